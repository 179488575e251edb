package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// A module's stream that was ended below the API refuses intents, which is stored like any
// refusal. The pipeline recreates no stream.
func TestSubmit_EndedStream(t *testing.T) {
	t.Parallel()
	for action, want := range map[event.StreamAction]string{
		event.DeleteStream: concurrency.CodeStreamDeleted, event.TombstoneStream: concurrency.CodeStreamTombstoned,
	} {
		b := newCashFixture(t)
		_, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":50}`)) // which caches the stream's state
		require.NoError(t, err)
		stored, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, event.StreamID{Type: "cash", ID: "main"}, 1, 1)
		require.NoError(t, err)
		end := event.Prepared{Skeleton: stored[0].Skeleton, Payload: []byte(`{"data":{"amount":0}}`), Change: &event.StreamChange{Action: action}}
		end.ID = event.ID{1}
		_, err = b.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: b.entity.Partition, Events: []event.Prepared{end}})
		require.NoError(t, err)

		_, err = b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":1}`))
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, want, f.Code)
		require.NotEmpty(t, f.IntentID)
		id, err := event.ParseID(f.IntentID)
		require.NoError(t, err)
		refused, _, err := b.service.Get(t.Context(), b.entity, id)
		require.NoError(t, err)
		require.Equal(t, intent.Denied, refused.Status)
		require.Equal(t, want, refused.Refusal.Code)
		head, err := b.store.Events.Head(t.Context(), b.entity.Partition)
		require.NoError(t, err)
		require.EqualValues(t, 3, head.Sequence, "the refusal is an event, on the intent's own stream")
	}
}
