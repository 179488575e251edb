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
	"github.com/erpbackbone/backbone/ports"
)

var historyPromises = []promise{
	{"registration at another generation is refused", registeredAt},
	{"every change of a type is in its history", typeHistory},
	{"built-in versions are read as they were registered", registryRecord},
	{"change without a difference is not recorded", unchangedType},
	{"deprecated version is not active", deprecatedType},
	{"tenants have registries of their own", tenantTypes},
	{"name is the shared registry's or the tenants'", typeNameTaken},
	{"name registered for both at once is taken by one", typeNameRace},
	{"proposed change takes effect once a second person confirms it", proposedChange},
	{"proposed version is withheld until a second person confirms it", proposedVersion},
	{"confirmed and rejected at once, a proposal has one outcome", proposalRace},
	{"version registered by several nodes at once is registered once", registrationRace},
	{"amended version keeps each of its schemas", amendedVersion},
	{"built-in version is amended once at a time, and by an amendment only", amendedBuiltIn},
	{"proposed amendment takes effect once a second person confirms it", proposedAmendment},
	{"version amended by several nodes at once is amended once", amendmentRace},
}

// own is a registration of a tenant.
func (s *suite) own(tenantID, name string, version uint32) eventtype.Registration {
	r := registration(name, version, s.clock.Now())
	r.TenantID = tenantID
	return r
}

func registeredAt(t *testing.T, s *suite) {
	ctx, tenant := context.Background(), s.unique("tenant")
	r := s.own(tenant, "conformance.at.registered", 1)
	_, err := s.types.RegisterEventTypeAt(ctx, r, 1)
	require.Equal(t, "event_type.registry_moved", fault.CodeOf(err))
	require.Zero(t, s.ownGeneration(t, tenant))
	got, err := s.types.EventTypeHistory(ctx, tenant, r.Type)
	require.NoError(t, err)
	require.NotNil(t, got)
	require.Empty(t, got, "nothing was written")
	_, err = s.types.RegisterEventTypeAt(ctx, r, 0)
	require.NoError(t, err)
}

func typeHistory(t *testing.T, s *suite) {
	ctx, name, tenant := context.Background(), "conformance.history.kept", s.unique("tenant")
	var digests [2][sha256.Size]byte
	for v := range uint32(2) {
		r := s.own(tenant, name, v+1)
		document, err := r.Document()
		require.NoError(t, err)
		digests[v] = sha256.Sum256(document)
		_, err = s.types.RegisterEventType(ctx, r)
		require.NoError(t, err)
	}
	one := s.agree(t, eventtype.Change{TenantID: tenant, Action: eventtype.ActionDeprecationProposed, Type: name, SchemaVersion: 1, Actor: "p-1", Reason: "superseded"})
	require.Len(t, one, 1)
	both := s.agree(t, eventtype.Change{TenantID: tenant, Action: eventtype.ActionDeprecationProposed, Type: name, Actor: "p-2"})
	require.Len(t, both, 1, "version 1 was deprecated already")
	back := s.agree(t, eventtype.Change{TenantID: tenant, Action: eventtype.ActionReactivationProposed, Type: name, Actor: "p-3"})
	require.Len(t, back, 2)

	got, err := s.types.EventTypeHistory(ctx, tenant, name)
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
		require.NotZero(t, c.Checksum, "of its event")
		require.EqualValues(t, i+1, c.Number)
	}
	require.Equal(t, []row{
		{eventtype.ActionRegistered, 1, "suite", "", digests[0]},
		{eventtype.ActionRegistered, 2, "suite", "", digests[1]},
		{eventtype.ActionDeprecationProposed, 1, "p-1", "superseded", digests[0]},
		{eventtype.ActionDeprecated, 1, "second", "superseded", digests[0]},
		{eventtype.ActionDeprecationProposed, 2, "p-2", "", digests[1]},
		{eventtype.ActionDeprecated, 2, "second", "", digests[1]},
		{eventtype.ActionReactivationProposed, 1, "p-3", "", digests[0]},
		{eventtype.ActionReactivationProposed, 2, "p-3", "", digests[1]},
		{eventtype.ActionReactivated, 1, "second", "", digests[0]},
		{eventtype.ActionReactivated, 2, "second", "", digests[1]},
	}, rows)
	require.EqualValues(t, 10, s.ownGeneration(t, tenant), "the number of the last change")
}

// generation is that of the shared registry.
func (s *suite) generation(t *testing.T) int64 {
	t.Helper()
	generation, err := s.store.SharedGeneration(context.Background())
	require.NoError(t, err)
	return generation
}

// ownGeneration is that of the registry of a tenant.
func (s *suite) ownGeneration(t *testing.T, tenantID string) int64 {
	t.Helper()
	all, err := s.types.EventTypeGenerations(context.Background())
	require.NoError(t, err)
	return all[tenantID]
}

// agree proposes a change and confirms it as another person.
func (s *suite) agree(t *testing.T, c eventtype.Change) []eventtype.Change {
	t.Helper()
	c.At = s.clock.Now()
	_, err := s.types.ChangeEventType(context.Background(), c)
	require.NoError(t, err)
	c.Action, c.Actor = c.Action.Confirmation(), "second"
	made, err := s.types.ChangeEventType(context.Background(), c)
	require.NoError(t, err)
	return made
}

// registryRecord expects the built-in versions with the digests of their documents, also when
// they are registered concurrently: verification relies on them.
func registryRecord(t *testing.T, s *suite) {
	ctx := context.Background()
	names := []string{"conformance.record.first", "conformance.record.second", "conformance.record.third"}
	var writers errgroup.Group
	for _, name := range names {
		writers.Go(func() error {
			for v := range uint32(3) {
				if _, err := s.store.RegisterEventType(ctx, registration(name, v+1, s.clock.Now())); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, writers.Wait())
	all, err := s.store.RegistryRecords(ctx)
	require.NoError(t, err)
	got, err := s.store.RegistryRecord(ctx, "")
	require.NoError(t, err)
	require.Equal(t, all[0], got)
	require.Empty(t, got.Changes, "no chain is continued")
	versions := 0
	for _, v := range got.Versions {
		if slices.Contains(names, v.Type) {
			document, err := registration(v.Type, v.SchemaVersion, s.clock.Now()).Document()
			require.NoError(t, err)
			require.Equal(t, sha256.Sum256(document), v.Digest)
			require.Equal(t, string(document), string(v.Document))
			require.Equal(t, "suite", v.By)
			require.False(t, v.Altered)
			versions++
		}
	}
	require.Equal(t, 9, versions)
	none, err := s.store.RegistryRecord(ctx, s.unique("tenant"))
	require.NoError(t, err)
	require.Empty(t, none.Versions)
	history, err := s.types.EventTypeHistory(ctx, "", names[0])
	require.NoError(t, err)
	require.Len(t, history, 3)
	require.Equal(t, eventtype.ActionRegistered, history[0].Action)
}

func unchangedType(t *testing.T, s *suite) {
	ctx, name, tenant := context.Background(), "conformance.unchanged.kept", s.unique("tenant")
	_, err := s.types.RegisterEventType(ctx, s.own(tenant, name, 1))
	require.NoError(t, err)
	got, err := s.types.ChangeEventType(ctx, eventtype.Change{TenantID: tenant, Action: eventtype.ActionReactivationProposed, Type: name, Actor: "p-1"})
	require.NoError(t, err)
	require.NotNil(t, got)
	require.Empty(t, got)
	for _, c := range []eventtype.Change{{Type: name, SchemaVersion: 7}, {Type: "conformance.unchanged.unknown"}} {
		c.TenantID, c.Action, c.Actor = tenant, eventtype.ActionDeprecationProposed, "p-1"
		_, err = s.types.ChangeEventType(ctx, c)
		require.Equal(t, "event_type.not_found", fault.CodeOf(err))
	}
	require.EqualValues(t, 1, s.ownGeneration(t, tenant))
}

func deprecatedType(t *testing.T, s *suite) {
	ctx, name, tenant := context.Background(), "conformance.deprecated.kept", s.unique("tenant")
	for v := range uint32(2) {
		_, err := s.types.RegisterEventType(ctx, s.own(tenant, name, v+1))
		require.NoError(t, err)
	}
	active := func() map[uint32]bool {
		types, _, err := s.types.EventTypes(ctx, tenant)
		require.NoError(t, err)
		out := map[uint32]bool{}
		for _, r := range types {
			out[r.SchemaVersion] = r.Active
		}
		return out
	}
	for _, step := range []struct {
		change eventtype.Change
		want   map[uint32]bool
	}{
		{eventtype.Change{Action: eventtype.ActionDeprecationProposed, SchemaVersion: 1}, map[uint32]bool{1: false, 2: true}},
		{eventtype.Change{Action: eventtype.ActionDeprecationProposed}, map[uint32]bool{1: false, 2: false}},
		{eventtype.Change{Action: eventtype.ActionReactivationProposed, SchemaVersion: 2}, map[uint32]bool{1: false, 2: true}},
		{eventtype.Change{Action: eventtype.ActionReactivationProposed}, map[uint32]bool{1: true, 2: true}},
	} {
		step.change.TenantID, step.change.Type, step.change.Actor = tenant, name, "p-1"
		s.agree(t, step.change)
		require.Equal(t, step.want, active())
	}
}

// tenantTypes expects that types of the same name have nothing in common but their number.
func tenantTypes(t *testing.T, s *suite) {
	ctx, name := context.Background(), "conformance.tenants.apart"
	one, two := s.unique("tenant"), s.unique("tenant")
	numbers := map[int32]bool{}
	for tenant, description := range map[string]string{one: "of the first", two: "of the second"} {
		r := s.own(tenant, name, 1)
		r.Description = description
		stored, err := s.types.RegisterEventType(ctx, r)
		require.NoError(t, err)
		require.Equal(t, tenant, stored.TenantID)
		numbers[stored.Number] = true
		require.EqualValues(t, 1, s.ownGeneration(t, tenant), "each counts its own changes")
	}
	require.Len(t, numbers, 1)
	require.False(t, numbers[0])
	s.agree(t, eventtype.Change{TenantID: one, Action: eventtype.ActionDeprecationProposed, Type: name, Actor: "p-1"})
	for tenant, want := range map[string]struct {
		description string
		active      bool
		changes     int
	}{one: {"of the first", false, 3}, two: {"of the second", true, 1}} {
		types, generation, err := s.types.EventTypes(ctx, tenant)
		require.NoError(t, err)
		require.Len(t, types, 1)
		require.EqualValues(t, want.changes, generation)
		require.Equal(t, want.description, types[0].Description)
		require.Equal(t, want.active, types[0].Active)
		history, err := s.types.EventTypeHistory(ctx, tenant, "")
		require.NoError(t, err)
		require.Len(t, history, want.changes)
	}
	shared, err := s.types.EventTypeHistory(ctx, "", name)
	require.NoError(t, err)
	require.Empty(t, shared)
}

func typeNameTaken(t *testing.T, s *suite) {
	ctx, tenant := context.Background(), s.unique("tenant")
	s.register(t, "conformance.taken.shared")
	_, err := s.types.RegisterEventType(ctx, s.own(tenant, "conformance.taken.shared", 7))
	require.Equal(t, "event_type.owned_by_module", fault.CodeOf(err))
	_, err = s.types.RegisterEventType(ctx, s.own(tenant, "conformance.taken.own", 1))
	require.NoError(t, err)
	_, err = s.store.RegisterEventType(ctx, registration("conformance.taken.own", 1, s.clock.Now()))
	require.Equal(t, "event_type.name_taken", fault.CodeOf(err))
	names, err := s.store.ReserveEventTypes(ctx, []string{"conformance.taken.shared", "conformance.taken.own"})
	require.NoError(t, err)
	require.True(t, names["conformance.taken.shared"].IsShared)
	require.False(t, names["conformance.taken.own"].IsShared)
}

func typeNameRace(t *testing.T, s *suite) {
	ctx, tenant := context.Background(), s.unique("tenant")
	_, err := s.types.RegisterEventType(ctx, s.own(tenant, "conformance.taken.first", 1)) // begins the log
	require.NoError(t, err)
	var shared, own error
	var both errgroup.Group
	both.Go(func() error {
		_, shared = s.store.RegisterEventType(ctx, registration("conformance.taken.raced", 1, s.clock.Now()))
		return nil
	})
	both.Go(func() error {
		_, own = s.types.RegisterEventType(ctx, s.own(tenant, "conformance.taken.raced", 1))
		return nil
	})
	require.NoError(t, both.Wait())
	if shared == nil {
		require.Equal(t, "event_type.owned_by_module", fault.CodeOf(own))
		return
	}
	require.Equal(t, "event_type.name_taken", fault.CodeOf(shared))
	require.NoError(t, own)
}

func proposedChange(t *testing.T, s *suite) {
	ctx, c := context.Background(), eventtype.Change{TenantID: s.unique("tenant"), Type: "conformance.proposed.change", SchemaVersion: 1, At: s.clock.Now()}
	r := registration(c.Type, 1, s.clock.Now())
	r.TenantID = c.TenantID
	_, err := s.types.RegisterEventType(ctx, r)
	require.NoError(t, err)
	change := func(a eventtype.Action, actor string) (int, string) {
		c := c
		c.Action, c.Actor = a, actor
		made, err := s.types.ChangeEventType(ctx, c)
		return len(made), fault.CodeOf(err)
	}
	state := func() eventtype.Registration {
		types, _, err := s.types.EventTypes(ctx, c.TenantID)
		require.NoError(t, err)
		return types[0]
	}
	for _, step := range []struct {
		action eventtype.Action
		actor  string
		made   int
		code   string
		active bool
		open   bool // a proposal
	}{
		{eventtype.ActionDeprecated, "p-1", 0, "event_type.not_proposed", true, false},
		{eventtype.ActionRejected, "p-1", 0, "event_type.not_proposed", true, false},
		{eventtype.ActionReactivationProposed, "p-1", 0, "", true, false},
		{eventtype.ActionDeprecationProposed, "p-1", 1, "", true, true},
		{eventtype.ActionDeprecationProposed, "p-2", 0, "", true, true},
		{eventtype.ActionReactivated, "p-2", 0, "event_type.not_proposed", true, true},
		{eventtype.ActionDeprecated, "p-1", 0, "event_type.same_person", true, true},
		{eventtype.ActionRejected, "p-1", 1, "", true, false},
		{eventtype.ActionDeprecationProposed, "p-1", 1, "", true, true},
		{eventtype.ActionDeprecated, "p-2", 1, "", false, false},
		{eventtype.ActionDeprecated, "p-2", 0, "event_type.not_proposed", false, false},
		{eventtype.ActionReactivationProposed, "p-2", 1, "", false, true},
		{eventtype.ActionReactivated, "p-1", 1, "", true, false},
	} {
		made, code := change(step.action, step.actor)
		require.Equal(t, step.code, code, "%s by %s", step.action, step.actor)
		require.Equal(t, step.made, made, "%s by %s", step.action, step.actor)
		got := state()
		require.Equal(t, step.active, got.Active)
		require.Equal(t, step.open, got.Proposal != nil)
	}
	history, err := s.types.EventTypeHistory(ctx, c.TenantID, c.Type)
	require.NoError(t, err)
	require.Len(t, history, 7, "both persons are in it")
}

func proposedVersion(t *testing.T, s *suite) {
	ctx := context.Background()
	r := registration("conformance.proposed.version", 1, s.clock.Now())
	r.TenantID, r.Withheld, r.RegisteredBy = s.unique("tenant"), true, "p-1"
	stored, err := s.types.RegisterEventType(ctx, r)
	require.NoError(t, err)
	require.True(t, stored.Withheld)
	require.False(t, stored.Active)
	require.Equal(t, "p-1", stored.Proposal.Actor)
	listed, _, err := s.types.EventTypes(ctx, r.TenantID)
	require.NoError(t, err)
	require.True(t, listed[0].Withheld)
	require.Equal(t, stored.Proposal, listed[0].Proposal)
	_, err = s.types.RegisterEventType(ctx, r)
	require.Equal(t, "event_type.duplicate", fault.CodeOf(err))
	c := eventtype.Change{TenantID: r.TenantID, Action: eventtype.ActionRegistered, Type: r.Type, SchemaVersion: 1, Actor: "p-1"}
	_, err = s.types.ChangeEventTypeAt(ctx, c, 1)
	require.Equal(t, "event_type.same_person", fault.CodeOf(err))
	c.Actor = "p-2"
	_, err = s.types.ChangeEventTypeAt(ctx, c, 7)
	require.Equal(t, "event_type.registry_moved", fault.CodeOf(err))
	_, err = s.types.ChangeEventTypeAt(ctx, c, 1)
	require.NoError(t, err)
	listed, _, err = s.types.EventTypes(ctx, r.TenantID)
	require.NoError(t, err)
	require.True(t, listed[0].Active)
	require.False(t, listed[0].Withheld)
	require.Nil(t, listed[0].Proposal)

	r.SchemaVersion = 2
	_, err = s.types.RegisterEventType(ctx, r)
	require.NoError(t, err)
	_, err = s.types.ChangeEventType(ctx, eventtype.Change{TenantID: r.TenantID, Action: eventtype.ActionRejected, Type: r.Type, SchemaVersion: 2, Actor: "p-1"})
	require.NoError(t, err)
	listed, _, err = s.types.EventTypes(ctx, r.TenantID)
	require.NoError(t, err)
	require.True(t, listed[1].Withheld, "a rejected version stays withheld")
	require.Nil(t, listed[1].Proposal)
}

func proposalRace(t *testing.T, s *suite) {
	ctx := context.Background()
	r := registration("conformance.proposed.race", 1, s.clock.Now())
	r.TenantID, r.Withheld, r.RegisteredBy = s.unique("tenant"), true, "p-1"
	_, err := s.types.RegisterEventType(ctx, r)
	require.NoError(t, err)
	var made [4]int
	var all errgroup.Group
	for i := range made {
		c := eventtype.Change{TenantID: r.TenantID, Action: eventtype.ActionRegistered, Type: r.Type, SchemaVersion: 1, Actor: "p-2"}
		if i%2 == 1 {
			c.Action = eventtype.ActionRejected
		}
		all.Go(func() error {
			changes, err := s.types.ChangeEventType(ctx, c)
			if fault.CodeOf(err) == "event_type.not_proposed" {
				return nil
			}
			made[i] = len(changes)
			return err
		})
	}
	require.NoError(t, all.Wait())
	require.Equal(t, 1, made[0]+made[1]+made[2]+made[3])
}

// registrationRace registers versions of one type through several nodes.
func registrationRace(t *testing.T, s *suite) {
	ctx, tenant := context.Background(), s.unique("tenant")
	nodes := []ports.EventTypes{s.types, s.newTypes(t), s.newTypes(t)}
	codes := make([]string, len(nodes))
	var all errgroup.Group
	for i, node := range nodes {
		all.Go(func() error {
			_, err := node.RegisterEventType(ctx, s.own(tenant, "conformance.registration.raced", 1))
			codes[i] = fault.CodeOf(err)
			return nil
		})
	}
	require.NoError(t, all.Wait())
	slices.Sort(codes)
	require.Equal(t, []string{"", "event_type.duplicate", "event_type.duplicate"}, codes)
	for _, node := range nodes {
		types, generation, err := node.EventTypes(ctx, tenant)
		require.NoError(t, err)
		require.Len(t, types, 1)
		require.EqualValues(t, 1, generation)
	}
}

// amendment is a registration that amends version 1 of a type.
func (s *suite) amendment(tenantID, name, member string) eventtype.Registration {
	r := s.own(tenantID, name, 1)
	r.DataSchema, r.Amends, r.RegisteredBy = []byte(`{"type":"object","properties":{"`+member+`":{"type":"integer"}}}`), true, "p-2"
	return r
}

func amendedVersion(t *testing.T, s *suite) {
	ctx, tenant, name := context.Background(), s.unique("tenant"), "conformance.amended.version"
	a := s.amendment(tenant, name, "size")
	_, err := s.types.RegisterEventTypeAt(ctx, a, 0)
	require.Equal(t, "event_type.not_found", fault.CodeOf(err))
	first, err := s.types.RegisterEventType(ctx, s.own(tenant, name, 1))
	require.NoError(t, err)
	require.Nil(t, first.Schemas)
	_, err = s.types.RegisterEventTypeAt(ctx, a, 7)
	require.Equal(t, "event_type.registry_moved", fault.CodeOf(err))
	got, err := s.types.RegisterEventTypeAt(ctx, a, 1)
	require.NoError(t, err)
	require.Equal(t, first.RegisteredBy, got.RegisteredBy)
	require.True(t, got.Active)
	require.JSONEq(t, string(a.DataSchema), string(got.DataSchema))
	require.Len(t, got.Schemas, 2)
	require.JSONEq(t, string(first.DataSchema), string(got.Schemas[0].DataSchema))
	require.Equal(t, "p-2", got.Schemas[1].By)
	_, err = s.types.RegisterEventTypeAt(ctx, a, 2)
	require.Equal(t, "event_type.duplicate", fault.CodeOf(err))
	for _, node := range []ports.EventTypes{s.types, s.newTypes(t)} {
		types, generation, err := node.EventTypes(ctx, tenant)
		require.NoError(t, err)
		require.EqualValues(t, 2, generation)
		require.Equal(t, got.Schemas, types[0].Schemas)
	}
	history, err := s.types.EventTypeHistory(ctx, tenant, name)
	require.NoError(t, err)
	document, err := a.Document()
	require.NoError(t, err)
	require.Equal(t, eventtype.ActionAmended, history[1].Action)
	require.Equal(t, sha256.Sum256(document), history[1].Digest)
}

func proposedAmendment(t *testing.T, s *suite) {
	ctx, tenant, name := context.Background(), s.unique("tenant"), "conformance.amended.proposed"
	_, err := s.types.RegisterEventType(ctx, s.own(tenant, name, 1))
	require.NoError(t, err)
	a := s.amendment(tenant, name, "size")
	a.Withheld = true
	got, err := s.types.RegisterEventType(ctx, a)
	require.NoError(t, err)
	require.True(t, got.Active)
	require.False(t, got.Withheld)
	require.Nil(t, got.Schemas)
	require.NotNil(t, got.Amendment)
	require.JSONEq(t, string(a.DataSchema), string(got.Amendment.DataSchema))
	_, err = s.types.RegisterEventType(ctx, s.amendment(tenant, name, "weight"))
	require.Equal(t, "event_type.proposal_open", fault.CodeOf(err))
	c := eventtype.Change{TenantID: tenant, Action: eventtype.ActionAmended, Type: name, SchemaVersion: 1, Actor: "p-2"}
	_, err = s.types.ChangeEventTypeAt(ctx, c, 2)
	require.Equal(t, "event_type.same_person", fault.CodeOf(err))
	c.Actor = "p-3"
	made, err := s.types.ChangeEventTypeAt(ctx, c, 2)
	require.NoError(t, err)
	require.Equal(t, got.Proposal.Digest, made[0].Digest)
	types, _, err := s.types.EventTypes(ctx, tenant)
	require.NoError(t, err)
	require.Nil(t, types[0].Amendment)
	require.Nil(t, types[0].Proposal)
	require.JSONEq(t, string(a.DataSchema), string(types[0].DataSchema))
	require.Equal(t, "p-3", types[0].Schemas[1].By)
}

// amendmentRace amends one version through several nodes that saw the same registry.
func amendmentRace(t *testing.T, s *suite) {
	ctx, tenant, name := context.Background(), s.unique("tenant"), "conformance.amended.raced"
	_, err := s.types.RegisterEventType(ctx, s.own(tenant, name, 1))
	require.NoError(t, err)
	codes := make([]string, 3)
	var all errgroup.Group
	for i, member := range []string{"size", "weight", "height"} {
		node := s.newTypes(t)
		all.Go(func() error {
			_, err := node.RegisterEventTypeAt(ctx, s.amendment(tenant, name, member), 1)
			codes[i] = fault.CodeOf(err)
			return nil
		})
	}
	require.NoError(t, all.Wait())
	slices.Sort(codes)
	require.Equal(t, []string{"", "event_type.registry_moved", "event_type.registry_moved"}, codes)
}

func amendedBuiltIn(t *testing.T, s *suite) {
	ctx := context.Background()
	first := registration("conformance.builtin.amended", 1, s.clock.Now())
	first.DataSchema = []byte(`{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"}}}`)
	_, err := s.store.RegisterEventType(ctx, first)
	require.NoError(t, err)
	before := s.generation(t)
	stored := func() eventtype.Registration {
		types, _, err := s.store.SharedEventTypes(ctx)
		require.NoError(t, err)
		at := slices.IndexFunc(types, func(r eventtype.Registration) bool { return r.Type == first.Type })
		require.GreaterOrEqual(t, at, 0)
		return types[at]
	}
	a := stored()
	require.Nil(t, a.Schemas)
	a.Amends, a.DataSchema = true, []byte(`{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"weight":{"type":"integer"}}}`)
	codes := make([]string, 3)
	var all errgroup.Group
	for i := range codes {
		all.Go(func() error {
			_, err := s.store.RegisterEventType(ctx, a)
			codes[i] = fault.CodeOf(err)
			return nil
		})
	}
	require.NoError(t, all.Wait())
	slices.Sort(codes)
	require.Equal(t, []string{"", "event_type.duplicate", "event_type.duplicate"}, codes)
	require.Greater(t, s.generation(t), before)
	b := stored()
	require.JSONEq(t, string(a.DataSchema), string(b.DataSchema))
	require.Len(t, b.Schemas, 2)
	require.JSONEq(t, string(first.DataSchema), string(b.Schemas[0].DataSchema))

	forged := b
	forged.Amends, forged.BusinessKeys = true, []eventtype.BusinessKeyRule{{Name: "size", Fields: []string{"size"}}}
	_, err = s.store.RegisterEventType(ctx, forged)
	require.NoError(t, err)
	require.Equal(t, b, stored(), "a row that is no amendment has no effect")
	record, err := s.store.RegistryRecord(ctx, "")
	require.NoError(t, err)
	rows := slices.DeleteFunc(record.Versions, func(v ports.StoredVersion) bool { return v.Type != first.Type })
	require.Equal(t, []int{0, 1, 2}, []int{rows[0].Amendment, rows[1].Amendment, rows[2].Amendment})
	history, err := s.types.EventTypeHistory(ctx, "", first.Type)
	require.NoError(t, err)
	require.Equal(t, eventtype.ActionAmended, history[1].Action)
}
