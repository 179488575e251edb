package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// slowHandler writes a row and then takes its time.
type slowHandler struct{ takes time.Duration }

// Apply implements ports.ProjectionHandler.
func (h slowHandler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	rows, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	n, _ := rows.Get("counts", "all")
	count, _ := n.(int)
	rows.Put("counts", "all", count+len(b.Events))
	return ports.Sleep(ctx, h.takes)
}

// TestTransactionLimit checks that a process which stops in the middle of a batch loses its
// transaction to one that waits, so that no event is counted twice.
func TestTransactionLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := memory.New(memory.Config{LogName: "x", Clock: system.Clock{}, TransactionLimit: time.Minute})
		le, err := d.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DE"})
		require.NoError(t, err)
		_, err = d.Appender.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{
			{Skeleton: event.Skeleton{ID: event.ID{1}, Type: "till.cash.moved", Stream: event.StreamID{Type: "till", ID: "1"}}, Payload: []byte(`{}`)},
		}})
		require.NoError(t, err)
		work := ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: "till.counts", Version: 1, Partition: le.Partition}}
		stopped := make(chan error, 1)
		go func() {
			_, _, err := d.Projections.Advance(t.Context(), work, slowHandler{takes: time.Hour})
			stopped <- err
		}()
		synctest.Wait()

		brief := work
		brief.LockWait = time.Second
		began := time.Now()
		_, _, err = d.Projections.Advance(t.Context(), brief, slowHandler{})
		require.Equal(t, "projection.busy", fault.CodeOf(err))
		require.Equal(t, time.Second, time.Since(began))

		_, n, err := d.Projections.Advance(t.Context(), work, slowHandler{})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, time.Minute, time.Since(began), "the lock is lost after the limit")
		require.Equal(t, "store.unavailable", fault.CodeOf(<-stopped))
		count, _ := d.ReadModels.Row("counts", "all")
		require.Equal(t, 1, count)
	})
}

// TestTransactionLimit_ofDeliveries checks the same of a delivery, and of one that counts failures:
// what it did is not written.
func TestTransactionLimit_ofDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := memory.New(memory.Config{LogName: "x", Clock: system.Clock{}, TransactionLimit: time.Minute})
		sub, _, err := d.Subscriptions.CreateSubscription(t.Context(), subscription.Subscription{UID: event.ID{1}, TenantID: "acme", ID: "invoices", Status: subscription.Active}, []ports.DeliveryCursor{{Partition: 1}, {Partition: 2}}, 0)
		require.NoError(t, err)
		fail := func(p event.PartitionID, wait bool, takes time.Duration) (bool, error) {
			return d.Subscriptions.Deliver(t.Context(), sub.UID, p, wait, func(ctx context.Context, tx ports.DeliveryTx) error {
				_, err := tx.Fail(ctx, 1, "busy", 0)
				return errors.Join(err, ports.Sleep(ctx, takes))
			})
		}
		stopped := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := fail(1, true, time.Hour)
			stopped <- err
		}()
		synctest.Wait()
		ran, err := fail(1, false, 0)
		require.NoError(t, err)
		require.False(t, ran, "another caller has the lock")

		ran, err = fail(2, true, 0) // the failures of a subscription are counted one by one
		require.NoError(t, err)
		require.True(t, ran)
		require.Equal(t, time.Minute, time.Since(began))
		ran, err = fail(1, false, 0)
		require.NoError(t, err)
		require.True(t, ran, "the lock is lost after the limit")
		require.Equal(t, "store.unavailable", fault.CodeOf(<-stopped))
		sub, err = d.Subscriptions.Subscription(t.Context(), "acme", "invoices")
		require.NoError(t, err)
		require.Equal(t, 2, sub.Failures)
	})
}
