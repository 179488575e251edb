package streams_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// TestRedaction_DeletesSnapshots saves states of before and after the redacted
// event, and one that was folded before the redaction and is saved after it.
func TestRedaction_DeletesSnapshots(t *testing.T) {
	t.Parallel()
	a := pgtest.NewRedactionFixture(t)
	ctx := t.Context()
	require.Equal(t, event.Sequence(2), a.Event.Sequence)
	state := json.RawMessage(`{"name":"Ada"}`)
	entity := func(at event.Sequence) ports.EntitySnapshot {
		return ports.EntitySnapshot{
			Partition: a.Partition, EntityType: "invoice", EntityID: "1", AsOf: at, Version: at, Fold: "1", EventCount: 1, CreatedAt: time.Now(), State: state,
		}
	}
	stream := func(id event.StreamID, v event.Version, internal bool) ports.StreamSnapshot {
		return ports.StreamSnapshot{
			ID: ulid.Make(), Partition: a.Partition, Stream: id, Internal: internal, Version: v, StateType: "x", SchemaVersion: 1, State: state, CreatedAt: time.Now(),
		}
	}
	other := event.StreamID{Type: "other", ID: "1"}
	_, epoch, err := a.Snapshots.EntitySnapshots(ctx, a.Partition, "invoice", "1")
	require.NoError(t, err)
	for n := range event.Sequence(3) {
		kept, err := a.Snapshots.SaveEntitySnapshot(ctx, entity(n+1), epoch)
		require.NoError(t, err)
		require.True(t, kept)
	}
	for _, s := range []ports.StreamSnapshot{
		stream(a.Event.Stream, a.Event.StreamVersion, false), stream(a.Event.Stream, a.Event.StreamVersion, true), stream(other, 1, false),
	} {
		_, _, err := a.Snapshots.SaveStreamSnapshot(ctx, s, epoch)
		require.NoError(t, err)
	}

	r := a.Store().Approved(t, "/data/name", "/data/lines/0/note")
	_, err = a.RedactPayload(ctx, r, conformance.Replacement(a.Event.PayloadHash, conformance.RedactedPayload))
	require.NoError(t, err)

	left, now, err := a.Snapshots.EntitySnapshots(ctx, a.Partition, "invoice", "1")
	require.NoError(t, err)
	require.NotEqual(t, epoch, now)
	require.Len(t, left, 1)
	require.Equal(t, event.Sequence(1), left[0].AsOf, "of before the event")
	for _, internal := range []bool{false, true} {
		_, _, err = a.Snapshots.StreamSnapshot(ctx, a.Partition, a.Event.Stream, internal, 0)
		require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
	}
	_, _, err = a.Snapshots.StreamSnapshot(ctx, a.Partition, other, false, 0)
	require.NoError(t, err, "another stream")

	kept, err := a.Snapshots.SaveEntitySnapshot(ctx, entity(5), epoch)
	require.NoError(t, err)
	require.False(t, kept, "folded before the redaction")
	_, _, err = a.Snapshots.SaveStreamSnapshot(ctx, stream(a.Event.Stream, 9, true), epoch)
	require.Equal(t, "snapshot.superseded", fault.CodeOf(err))
	kept, err = a.Snapshots.SaveEntitySnapshot(ctx, entity(5), now)
	require.NoError(t, err)
	require.True(t, kept)
}
