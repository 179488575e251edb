package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// TestALockOfSomebodyElseIsBusy: whoever holds the checkpoint, or what the handler
// writes, keeps an attempt no longer than it wants to wait, and changes nothing.
func TestALockOfSomebodyElseIsBusy(t *testing.T) {
	t.Parallel()
	w, books := newTill(t)
	p, other := books[0], books[1]
	for _, id := range books {
		_, err := w.store.Append(t.Context(), invoice(id, 4))
		require.NoError(t, err)
	}
	advance := func(p event.PartitionID, wait time.Duration) (ports.Checkpoint, int, error) {
		work := w.work(1, p)
		work.LockWait = wait
		return w.store.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: work, Limit: 1}, w)
	}
	_, passed, err := advance(p, 0)
	require.NoError(t, err)
	require.Equal(t, 1, passed)
	for name, statement := range map[string]string{
		"the checkpoint":           "SELECT FROM backbone.projection_checkpoints WHERE partition_id = $1 FOR UPDATE",
		"what the handler writes":  "INSERT INTO till.sums (sequence, partition_id, version, total, note) VALUES (2, $1, 1, 0, 'of somebody else')",
		"the version of the model": "",
	} {
		at := p
		if statement == "" { // the other partition has no checkpoint yet
			statement, at = "UPDATE backbone.projections SET changed_by = changed_by WHERE version <> $1", other
		}
		tx, err := connect(t, w.dsn).Begin(t.Context())
		require.NoError(t, err)
		tag, err := tx.Exec(t.Context(), statement, int32(p))
		require.NoError(t, err)
		require.Positive(t, tag.RowsAffected(), name)
		for range 6 { // more often than an event's attempts
			_, passed, err = advance(at, 20*time.Millisecond)
			f, ok := fault.As(err)
			require.True(t, ok, "%s: %v", name, err)
			require.Equal(t, projection.CodeBusy, f.Code, name)
			require.Equal(t, fault.Unavailable, f.Kind)
			require.Positive(t, f.RetryAfter)
			require.Zero(t, passed)
		}
		require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context())))
	}
	checkpoints, err := w.store.Checkpoints(t.Context(), tillName, 1)
	require.NoError(t, err)
	require.Len(t, checkpoints, 1)
	require.EqualValues(t, 1, checkpoints[0].Sequence)
	require.Zero(t, checkpoints[0].Attempts)
	require.Zero(t, checkpoints[0].Failed)
	for _, id := range books {
		_, passed, err = advance(id, 20*time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, 1, passed)
	}
}
