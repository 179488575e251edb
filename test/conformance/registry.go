package conformance

import (
	"context"
	"crypto/sha256"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

var historyPromises = []promise{
	{"registration at another generation is refused", registeredAt},
	{"every change of a type is in its history", typeHistory},
	{"changes of the registry form a chain", typeChain},
	{"change without a difference is not recorded", unchangedType},
	{"deprecated version is not active", deprecatedType},
}

func registeredAt(t *testing.T, s *suite) {
	ctx := context.Background()
	before, err := s.store.EventTypesGeneration(ctx)
	require.NoError(t, err)
	_, err = s.store.RegisterEventTypeAt(ctx, registration("conformance.at.registered", 1, s.clock.Now()), before+1)
	require.Equal(t, "event_type.registry_moved", fault.CodeOf(err))
	after, err := s.store.EventTypesGeneration(ctx)
	require.NoError(t, err)
	require.Equal(t, before, after)
	got, err := s.store.EventTypeHistory(ctx, "conformance.at.registered")
	require.NoError(t, err)
	require.NotNil(t, got)
	require.Empty(t, got, "nothing was written")
	_, err = s.store.RegisterEventTypeAt(ctx, registration("conformance.at.registered", 1, s.clock.Now()), after)
	require.NoError(t, err)
}

func typeHistory(t *testing.T, s *suite) {
	ctx, name := context.Background(), "conformance.history.kept"
	var digests [2][sha256.Size]byte
	for v := range uint32(2) {
		r := registration(name, v+1, s.clock.Now())
		document, err := r.Document()
		require.NoError(t, err)
		digests[v] = sha256.Sum256(document)
		_, err = s.store.RegisterEventType(ctx, r)
		require.NoError(t, err)
	}
	one, err := s.store.ChangeEventType(ctx, eventtype.Change{Action: eventtype.ActionDeprecated, Type: name, SchemaVersion: 1, Actor: "p-1", Reason: "superseded", At: s.clock.Now()})
	require.NoError(t, err)
	require.Len(t, one, 1)
	both, err := s.store.ChangeEventType(ctx, eventtype.Change{Action: eventtype.ActionDeprecated, Type: name, Actor: "p-2", At: s.clock.Now()})
	require.NoError(t, err)
	require.Len(t, both, 1, "version 1 was deprecated already")
	back, err := s.store.ChangeEventType(ctx, eventtype.Change{Action: eventtype.ActionReactivated, Type: name, Actor: "p-3", At: s.clock.Now()})
	require.NoError(t, err)
	require.Len(t, back, 2)
	require.Equal(t, back[0].Number, back[1].Number, "one request is one change")

	got, err := s.store.EventTypeHistory(ctx, name)
	require.NoError(t, err)
	type row struct {
		action  eventtype.Action
		version uint32
		actor   string
		reason  string
		digest  [sha256.Size]byte
	}
	rows := make([]row, len(got))
	for i, c := range got {
		rows[i] = row{c.Action, c.SchemaVersion, c.Actor, c.Reason, c.Digest}
		require.Equal(t, name, c.Type)
		require.False(t, c.At.IsZero())
		if i > 0 {
			require.GreaterOrEqual(t, c.Number, got[i-1].Number)
		}
	}
	require.Equal(t, []row{
		{eventtype.ActionRegistered, 1, "suite", "", digests[0]},
		{eventtype.ActionRegistered, 2, "suite", "", digests[1]},
		{eventtype.ActionDeprecated, 1, "p-1", "superseded", digests[0]},
		{eventtype.ActionDeprecated, 2, "p-2", "", digests[1]},
		{eventtype.ActionReactivated, 1, "p-3", "", digests[0]},
		{eventtype.ActionReactivated, 2, "p-3", "", digests[1]},
	}, rows)
	generation, err := s.store.EventTypesGeneration(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, got[5].Number, generation, "a change's number is the generation it made")
}

// typeChain expects one chain of all changes, also of concurrent ones, and the versions whose
// digests are in it: verification relies on both.
func typeChain(t *testing.T, s *suite) {
	ctx := context.Background()
	names := []string{"conformance.chain.first", "conformance.chain.second", "conformance.chain.third"}
	var writers errgroup.Group
	for _, name := range names {
		writers.Go(func() error {
			for v := range uint32(3) {
				if _, err := s.store.RegisterEventType(ctx, registration(name, v+1, s.clock.Now())); err != nil {
					return err
				}
			}
			_, err := s.store.ChangeEventType(ctx, eventtype.Change{Action: eventtype.ActionDeprecated, Type: name, Actor: "p-1", Reason: "superseded", At: s.clock.Now()})
			return err
		})
	}
	require.NoError(t, writers.Wait())
	got, err := s.store.RegistryRecord(ctx)
	require.NoError(t, err)
	var link [sha256.Size]byte
	number := int64(0)
	for i := range got.Changes {
		c := &got.Changes[i]
		require.True(t, c.Number == number || c.Number == number+1, "%d after %d", c.Number, number)
		link, number = c.ChainChecksum(link), c.Number
		require.Equal(t, link, c.Checksum, "change %d of %s", c.Number, c.Type)
	}
	require.GreaterOrEqual(t, got.Generation, number, "concurrent tests may change it")
	for _, name := range names {
		history, err := s.store.EventTypeHistory(ctx, name)
		require.NoError(t, err)
		require.Len(t, history, 6)
		for _, c := range history {
			require.Contains(t, got.Changes, c)
		}
	}
	versions := 0
	for _, v := range got.Versions {
		if slices.Contains(names, v.Type) {
			document, err := registration(v.Type, v.SchemaVersion, s.clock.Now()).Document()
			require.NoError(t, err)
			require.Equal(t, sha256.Sum256(document), v.Digest)
			require.Equal(t, "suite", v.By)
			require.False(t, v.Altered)
			versions++
		}
	}
	require.Equal(t, 9, versions)
}

func unchangedType(t *testing.T, s *suite) {
	ctx, name := context.Background(), "conformance.unchanged.kept"
	s.register(t, name)
	before, err := s.store.EventTypesGeneration(ctx)
	require.NoError(t, err)
	got, err := s.store.ChangeEventType(ctx, eventtype.Change{Action: eventtype.ActionReactivated, Type: name, Actor: "p-1"})
	require.NoError(t, err)
	require.NotNil(t, got)
	require.Empty(t, got)
	for _, c := range []eventtype.Change{{Type: name, SchemaVersion: 7}, {Type: "conformance.unchanged.unknown"}} {
		c.Action, c.Actor = eventtype.ActionDeprecated, "p-1"
		_, err = s.store.ChangeEventType(ctx, c)
		require.Equal(t, "event_type.not_found", fault.CodeOf(err))
	}
	after, err := s.store.EventTypesGeneration(ctx)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func deprecatedType(t *testing.T, s *suite) {
	ctx, name := context.Background(), "conformance.deprecated.kept"
	s.register(t, name)
	_, err := s.store.RegisterEventType(ctx, registration(name, 2, s.clock.Now()))
	require.NoError(t, err)
	active := func() map[uint32]bool {
		types, _, err := s.store.EventTypes(ctx)
		require.NoError(t, err)
		out := map[uint32]bool{}
		for _, r := range types {
			if r.Type == name {
				out[r.SchemaVersion] = r.Active
			}
		}
		return out
	}
	for _, step := range []struct {
		change eventtype.Change
		want   map[uint32]bool
	}{
		{eventtype.Change{Action: eventtype.ActionDeprecated, SchemaVersion: 1}, map[uint32]bool{1: false, 2: true}},
		{eventtype.Change{Action: eventtype.ActionDeprecated}, map[uint32]bool{1: false, 2: false}},
		{eventtype.Change{Action: eventtype.ActionReactivated, SchemaVersion: 2}, map[uint32]bool{1: false, 2: true}},
		{eventtype.Change{Action: eventtype.ActionReactivated}, map[uint32]bool{1: true, 2: true}},
	} {
		step.change.Type, step.change.Actor = name, "p-1"
		_, err := s.store.ChangeEventType(ctx, step.change)
		require.NoError(t, err)
		require.Equal(t, step.want, active())
	}
}
