package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

var snapshotPromises = []promise{
	{"newest entity snapshots are kept", keepEntitySnapshots},
	{"entity snapshot is read as written", sameEntitySnapshot},
	{"snapshots of other entities do not count", foreignSnapshots},
	{"back-dated event makes snapshots stale", staleSnapshots},
	{"stream snapshot is read by version", streamSnapshots},
	{"snapshot of a version is never overwritten", streamSnapshotContent},
	{"internal snapshots are separate", internalSnapshots},
	{"snapshot of another epoch is not saved", snapshotEpoch},
	{"concurrent saves leave the newest", snapshotRace},
	{"snapshot with another MAC is not removed", removeSnapshots},
}

func (b *partition) entitySnapshot(id string, at event.Sequence) ports.EntitySnapshot {
	return ports.EntitySnapshot{
		Partition: b.le.Partition, EntityType: "case", EntityID: id, AsOf: at, Version: at - 1, Fold: "2", EffectiveThrough: event.MustDate("2026-03-02"),
		EventCount: int(at) - 2, CreatedAt: b.clock.Now(), State: json.RawMessage(fmt.Sprintf(`{"at": %d, "amount": 1.50}`, at)), MAC: bytes.Repeat([]byte{byte(at)}, 32),
	}
}

func (b *partition) saveEntity(t tester, s ports.EntitySnapshot) bool {
	t.Helper()
	_, epoch, err := b.store.EntitySnapshots(context.Background(), s.Partition, s.EntityType, s.EntityID)
	require.NoError(t, err)
	kept, err := b.store.SaveEntitySnapshot(context.Background(), s, epoch)
	require.NoError(t, err)
	return kept
}

func (b *partition) entitySnapshots(t tester, id string) []ports.EntitySnapshot {
	t.Helper()
	got, _, err := b.store.EntitySnapshots(context.Background(), b.le.Partition, "case", id)
	require.NoError(t, err)
	require.NotNil(t, got)
	return got
}

func asOf(all []ports.EntitySnapshot) []event.Sequence {
	out := make([]event.Sequence, len(all))
	for i, s := range all {
		out[i] = s.AsOf
	}
	return out
}

func keepEntitySnapshots(t *testing.T, s *suite) {
	b := s.newPartition(t)
	require.Empty(t, b.entitySnapshots(t, "K"))
	for _, at := range []event.Sequence{300, 100, 400, 200} {
		require.True(t, b.saveEntity(t, b.entitySnapshot("K", at)) || at == 100, "%d", at)
	}
	require.Equal(t, []event.Sequence{400, 300, 200}, asOf(b.entitySnapshots(t, "K")))
	require.False(t, b.saveEntity(t, b.entitySnapshot("K", 150)), "older than all that are kept")
	require.Equal(t, []event.Sequence{400, 300, 200}, asOf(b.entitySnapshots(t, "K")))
	require.True(t, b.saveEntity(t, b.entitySnapshot("K", 500)))
	require.Equal(t, []event.Sequence{500, 400, 300}, asOf(b.entitySnapshots(t, "K")))
}

func sameEntitySnapshot(t *testing.T, s *suite) {
	b := s.newPartition(t)
	want := b.entitySnapshot("S", 10)
	require.True(t, b.saveEntity(t, want))
	require.Equal(t, []ports.EntitySnapshot{want}, b.entitySnapshots(t, "S"), "the state byte for byte")
	want.Fold, want.Stale, want.EventCount, want.EffectiveThrough = "3", true, 1, event.MustDate("2026-04-01")
	want.MAC = bytes.Repeat([]byte{7}, 32)
	want.Version, want.State = 3, json.RawMessage(`{"other":"\u0000 1.50"}`)
	require.True(t, b.saveEntity(t, want))
	got := b.entitySnapshots(t, "S")
	require.Equal(t, []ports.EntitySnapshot{want}, got, "one at the same place takes over")
	got[0].State[0], got[0].MAC[0] = 'x', 'x'
	require.Equal(t, []ports.EntitySnapshot{want}, b.entitySnapshots(t, "S"))
}

func foreignSnapshots(t *testing.T, s *suite) {
	b, other := s.newPartition(t), s.newPartition(t)
	for n := range event.Sequence(4) {
		require.True(t, b.saveEntity(t, b.entitySnapshot("F", 10+n)))
	}
	require.True(t, b.saveEntity(t, b.entitySnapshot("G", 5)))
	require.True(t, other.saveEntity(t, other.entitySnapshot("F", 6)))
	foreign := b.entitySnapshot("F", 7)
	foreign.EntityType = "invoice"
	require.True(t, b.saveEntity(t, foreign))
	require.Equal(t, []event.Sequence{13, 12, 11}, asOf(b.entitySnapshots(t, "F")))
	require.Equal(t, []event.Sequence{5}, asOf(b.entitySnapshots(t, "G")))
	require.Equal(t, []event.Sequence{6}, asOf(other.entitySnapshots(t, "F")))
}

func staleSnapshots(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	for _, n := range []struct {
		at      event.Sequence
		through string
	}{{10, "2026-01-31"}, {20, "2026-02-28"}, {30, "2026-03-31"}} {
		e := b.entitySnapshot("B", n.at)
		e.EffectiveThrough = event.MustDate(n.through)
		require.True(t, b.saveEntity(t, e))
	}
	untouched := b.entitySnapshot("C", 20)
	require.True(t, b.saveEntity(t, untouched))
	stale := func() (out []event.Sequence) {
		for _, e := range b.entitySnapshots(t, "B") {
			if e.Stale {
				out = append(out, e.AsOf)
			}
		}
		return out
	}
	mark := func(at event.Sequence, effective string) int {
		n, err := b.store.MarkEntitySnapshotsStale(ctx, b.le.Partition, "case", "B", at, event.MustDate(effective))
		require.NoError(t, err)
		return n
	}
	require.Zero(t, mark(31, "2026-03-31"), "not earlier than what was folded")
	require.Zero(t, mark(10, "2026-01-01"), "folded already")
	require.Empty(t, stale())
	require.Equal(t, 1, mark(25, "2026-02-15"))
	require.Equal(t, []event.Sequence{20}, stale())
	require.Equal(t, 1, mark(31, "2026-02-15"), "one is marked already")
	require.Equal(t, []event.Sequence{30, 20}, stale())
	require.False(t, b.entitySnapshots(t, "C")[0].Stale)
}

func (b *partition) streamSnapshot(id string, v event.Version) ports.StreamSnapshot {
	return ports.StreamSnapshot{
		ID: b.ids.next(), Partition: b.le.Partition, Stream: stream(id), Version: v, StateType: "Case", SchemaVersion: 1,
		State: json.RawMessage(fmt.Sprintf(`{"v":%d}`, v)), Metadata: json.RawMessage(`{"by":"suite"}`), CreatedAt: b.clock.Now(), MAC: bytes.Repeat([]byte{byte(v)}, 32),
	}
}

func (b *partition) saveStream(n ports.StreamSnapshot) (ports.StreamSnapshot, bool, error) {
	_, epoch, err := b.store.StreamSnapshot(context.Background(), n.Partition, n.Stream, n.Internal, 0)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return n, false, err
	}
	return b.store.SaveStreamSnapshot(context.Background(), n, epoch)
}

func (b *partition) readStreamSnapshot(id string, internal bool, v event.Version) (ports.StreamSnapshot, error) {
	got, _, err := b.store.StreamSnapshot(context.Background(), b.le.Partition, stream(id), internal, v)
	return got, err
}

func streamSnapshots(t *testing.T, s *suite) {
	b := s.newPartition(t)
	_, err := b.readStreamSnapshot("R", false, 0)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
	kept := map[event.Version]ports.StreamSnapshot{}
	for _, v := range []event.Version{3, 1, 7, 5} {
		n := b.streamSnapshot("R", v)
		if v == 5 {
			n.Metadata = nil
		}
		got, created, err := b.saveStream(n)
		require.NoError(t, err)
		require.True(t, created)
		require.Equal(t, n, got)
		kept[v] = n
	}
	for v, want := range kept {
		got, err := b.readStreamSnapshot("R", false, v)
		if v == 1 {
			require.Equal(t, "snapshot.not_found", fault.CodeOf(err), "the oldest of four went")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	latest, err := b.readStreamSnapshot("R", false, 0)
	require.NoError(t, err)
	require.Equal(t, kept[7], latest)
	_, _, err = b.saveStream(b.streamSnapshot("R", 2))
	require.Equal(t, "snapshot.superseded", fault.CodeOf(err))
	_, err = b.readStreamSnapshot("R", false, 2)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
}

func streamSnapshotContent(t *testing.T, s *suite) {
	b := s.newPartition(t)
	first := b.streamSnapshot("O", 4)
	_, created, err := b.saveStream(first)
	require.NoError(t, err)
	require.True(t, created)
	again := first
	again.ID, again.CreatedAt = b.ids.next(), again.CreatedAt.AddDate(0, 0, 1)
	got, created, err := b.saveStream(again)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, first, got, "the first one is answered")
	for name, change := range map[string]func(*ports.StreamSnapshot){
		"state":          func(n *ports.StreamSnapshot) { n.State = json.RawMessage(`{"v":5}`) },
		"type":           func(n *ports.StreamSnapshot) { n.StateType = "Other" },
		"schema version": func(n *ports.StreamSnapshot) { n.SchemaVersion = 2 },
		"metadata":       func(n *ports.StreamSnapshot) { n.Metadata = nil },
	} {
		other := again
		change(&other)
		_, _, err := b.saveStream(other)
		require.Equal(t, "snapshot.exists", fault.CodeOf(err), name)
	}
	stored, err := b.readStreamSnapshot("O", false, 4)
	require.NoError(t, err)
	require.Equal(t, first, stored)
}

func internalSnapshots(t *testing.T, s *suite) {
	b := s.newPartition(t)
	own := b.streamSnapshot("I", 4)
	own.Internal, own.StateType = true, "fold:case"
	_, created, err := b.saveStream(own)
	require.NoError(t, err)
	require.True(t, created)
	_, err = b.readStreamSnapshot("I", false, 0)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
	clients := b.streamSnapshot("I", 4)
	_, created, err = b.saveStream(clients)
	require.NoError(t, err)
	require.True(t, created)
	own.State, own.SchemaVersion = json.RawMessage(`{"v":"new"}`), 2
	_, created, err = b.saveStream(own)
	require.NoError(t, err)
	require.True(t, created, "an internal one takes over")
	for v := event.Version(5); v < 9; v++ {
		n := b.streamSnapshot("I", v)
		n.Internal = true
		_, _, err := b.saveStream(n)
		require.NoError(t, err)
	}
	got, err := b.readStreamSnapshot("I", false, 0)
	require.NoError(t, err)
	require.Equal(t, clients, got, "the internal ones do not push it out")
	_, err = b.readStreamSnapshot("I", true, 4)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
}

func snapshotEpoch(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	_, epoch, err := b.store.EntitySnapshots(ctx, b.le.Partition, "case", "E")
	require.NoError(t, err)
	kept, err := b.store.SaveEntitySnapshot(ctx, b.entitySnapshot("E", 9), epoch+1)
	require.NoError(t, err)
	require.False(t, kept)
	require.Empty(t, b.entitySnapshots(t, "E"))
	_, _, err = b.store.SaveStreamSnapshot(ctx, b.streamSnapshot("E", 1), epoch+1)
	require.Equal(t, "snapshot.superseded", fault.CodeOf(err))
}

func removeSnapshots(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	entity, n := b.entitySnapshot("X", 10), b.streamSnapshot("X", 4)
	require.True(t, b.saveEntity(t, entity))
	_, _, err := b.saveStream(n)
	require.NoError(t, err)
	other, otherStream := entity, n
	other.MAC, otherStream.MAC = bytes.Repeat([]byte{9}, 32), bytes.Repeat([]byte{9}, 32)
	require.NoError(t, b.store.RemoveEntitySnapshot(ctx, other))
	require.NoError(t, b.store.RemoveStreamSnapshot(ctx, otherStream))
	require.Len(t, b.entitySnapshots(t, "X"), 1)
	_, err = b.readStreamSnapshot("X", false, 4)
	require.NoError(t, err)
	require.NoError(t, b.store.RemoveEntitySnapshot(ctx, entity))
	require.NoError(t, b.store.RemoveStreamSnapshot(ctx, n))
	require.Empty(t, b.entitySnapshots(t, "X"))
	_, err = b.readStreamSnapshot("X", false, 4)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
}

func snapshotRace(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for round := range races {
		id := fmt.Sprint("Z", round)
		for _, err := range race(16, func(n int) error {
			_, err := b.store.SaveEntitySnapshot(context.Background(), b.entitySnapshot(id, event.Sequence(10+n)), 0)
			return err
		}) {
			require.NoError(t, err)
		}
		require.True(t, b.saveEntity(t, b.entitySnapshot(id, 100)))
		got := asOf(b.entitySnapshots(t, id))
		require.Equal(t, []event.Sequence{100, 25, 24}, got)
		require.Len(t, got, snapshot.Kept)
	}
}
