package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// brokenSubscriptions break one promise of a sound store.
type brokenSubscriptions struct {
	conformance.MemoryStore
	create    func(s conformance.MemoryStore, sub *subscription.Subscription)
	change    func(s conformance.MemoryStore, sub *subscription.Subscription)
	deliver   func(s conformance.MemoryStore, uid event.ID, p event.PartitionID, wait bool, f func(context.Context, ports.DeliveryTx) error) (bool, error)
	tx        func(ports.DeliveryTx) ports.DeliveryTx
	due       func([]ports.DueDelivery) []ports.DueDelivery
	stay      bool // consumers never leave
	parked    func(*ports.ParkedQuery)
	keep      bool // deleting does nothing
	boundless bool // a tenant may have any number
	anywhere  bool // looks for events in all partitions
}

func (b *brokenSubscriptions) CreateSubscription(ctx context.Context, s subscription.Subscription, c []ports.DeliveryCursor, most int) (subscription.Subscription, bool, error) {
	if b.create != nil {
		b.create(b.MemoryStore, &s)
	}
	if b.boundless {
		most = 0
	}
	return b.MemoryStore.CreateSubscription(ctx, s, c, most)
}

func (b *brokenSubscriptions) ChangeSubscription(ctx context.Context, s subscription.Subscription) error {
	if b.change != nil {
		b.change(b.MemoryStore, &s)
	}
	return b.MemoryStore.ChangeSubscription(ctx, s)
}

func (b *brokenSubscriptions) Deliver(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(context.Context, ports.DeliveryTx) error) (bool, error) {
	inner := f
	if b.tx != nil {
		inner = func(ctx context.Context, tx ports.DeliveryTx) error { return f(ctx, b.tx(tx)) }
	}
	if b.deliver != nil {
		return b.deliver(b.MemoryStore, uid, p, wait, inner)
	}
	return b.MemoryStore.Deliver(ctx, uid, p, wait, inner)
}

func (b *brokenSubscriptions) PartitionsWithOpen(ctx context.Context, uid event.ID, in []event.PartitionID, events []event.ID) ([]event.PartitionID, error) {
	if b.anywhere {
		in = nil
	}
	return b.MemoryStore.PartitionsWithOpen(ctx, uid, in, events)
}

func (b *brokenSubscriptions) Due(ctx context.Context, limit int) ([]ports.DueDelivery, error) {
	out, err := b.MemoryStore.Due(ctx, limit)
	if b.due != nil {
		out = b.due(out)
	}
	return out, err
}

func (b *brokenSubscriptions) RegisterConsumer(ctx context.Context, uid event.ID, consumer string, back time.Duration) ([]string, error) {
	if b.stay {
		back = 24 * time.Hour
	}
	return b.MemoryStore.RegisterConsumer(ctx, uid, consumer, back)
}

func (b *brokenSubscriptions) ParkedMessages(ctx context.Context, uid event.ID, partitions []event.PartitionID, from event.PartitionID, q ports.ParkedQuery) ([]ports.ParkedMessage, error) {
	if b.parked != nil {
		b.parked(&q)
	}
	return b.MemoryStore.ParkedMessages(ctx, uid, partitions, from, q)
}

func (b *brokenSubscriptions) DeleteSubscription(ctx context.Context, uid event.ID) error {
	if b.keep {
		return nil
	}
	return b.MemoryStore.DeleteSubscription(ctx, uid)
}

// brokenDelivery changes what happens inside of a delivery.
type brokenDelivery struct {
	ports.DeliveryTx
	message   func(*subscription.Message)
	clear     func(event.Sequence) event.Sequence
	threshold func(int) int
	cursor    func(*ports.DeliveryCursor)
	but       func([]subscription.BlockedKey) []subscription.BlockedKey
}

func (d brokenDelivery) Waiting(ctx context.Context, after event.Sequence, but []subscription.BlockedKey, limit int) ([]subscription.Message, error) {
	if d.but != nil {
		but = d.but(but)
	}
	return d.DeliveryTx.Waiting(ctx, after, but, limit)
}

func (d brokenDelivery) Save(ctx context.Context, c ports.DeliveryCursor, changed []subscription.Message, done []event.Sequence) error {
	if d.cursor != nil {
		d.cursor(&c)
	}
	for i := range changed {
		if d.message != nil {
			d.message(&changed[i])
		}
	}
	return d.DeliveryTx.Save(ctx, c, changed, done)
}

func (d brokenDelivery) Clear(ctx context.Context, n event.Sequence) error {
	if d.clear != nil {
		n = d.clear(n)
	}
	return d.DeliveryTx.Clear(ctx, n)
}

func (d brokenDelivery) Fail(ctx context.Context, n int, code string, threshold int) (bool, error) {
	if d.threshold != nil {
		threshold = d.threshold(threshold)
	}
	return d.DeliveryTx.Fail(ctx, n, code, threshold)
}

func inside(d brokenDelivery) func(ports.DeliveryTx) ports.DeliveryTx {
	return func(tx ports.DeliveryTx) ports.DeliveryTx {
		of := d // several deliveries run at the same time
		of.DeliveryTx = tx
		return of
	}
}

// wrapDelivery runs f and keeps its changes although it failed.
func wrapDelivery(s conformance.MemoryStore, uid event.ID, p event.PartitionID, wait bool, f func(context.Context, ports.DeliveryTx) error) (bool, error) {
	var failed error
	ran, err := s.Deliver(context.Background(), uid, p, wait, func(ctx context.Context, tx ports.DeliveryTx) error {
		failed = f(ctx, tx)
		return nil
	})
	if failed != nil {
		return false, failed
	}
	return ran, err
}

func TestSubscriptionPromisesFailOnBrokenStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		store    brokenSubscriptions
		mustFail string // "" is a sound store
	}{
		{"sound", brokenSubscriptions{}, ""},
		{"replaces a definition", brokenSubscriptions{create: func(s conformance.MemoryStore, sub *subscription.Subscription) {
			if there, err := s.Subscription(context.Background(), sub.TenantID, sub.ID); err == nil {
				_ = s.DeleteSubscription(context.Background(), there.UID)
			}
		}}, "first definition of an id is kept"},
		{"forgets settings", brokenSubscriptions{create: func(_ conformance.MemoryStore, sub *subscription.Subscription) { sub.Settings.RetryLongest = 0 }}, "definition is read as written"},
		{"lets the last change win", brokenSubscriptions{change: func(s conformance.MemoryStore, sub *subscription.Subscription) {
			if there, err := s.Subscription(context.Background(), sub.TenantID, sub.ID); err == nil {
				sub.Revision = there.Revision + 1
			}
		}}, "change of another revision is refused"},
		{"keeps what failed", brokenSubscriptions{deliver: wrapDelivery}, "failed transaction writes nothing"},
		{"forgets the consumer of a message", brokenSubscriptions{tx: inside(brokenDelivery{message: func(m *subscription.Message) { m.Consumer = "" }})}, "messages are read as written"},
		{"forgets the pending", brokenSubscriptions{tx: inside(brokenDelivery{cursor: func(c *ports.DeliveryCursor) { c.Pending = 0 }})}, "messages are read as written"},
		{"ignores blocked keys", brokenSubscriptions{tx: inside(brokenDelivery{but: func([]subscription.BlockedKey) []subscription.BlockedKey { return nil }})}, "partial reads of open messages agree"},
		{"finds events of other partitions", brokenSubscriptions{anywhere: true}, "partial reads of open messages agree"},
		{"reports waiting messages as due", brokenSubscriptions{tx: inside(brokenDelivery{message: func(m *subscription.Message) {
			if m.State == subscription.Waiting {
				m.Due = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			}
		}})}, "only due messages are found"},
		{"does not report that a lease ended", brokenSubscriptions{due: func(list []ports.DueDelivery) []ports.DueDelivery {
			for i := range list {
				list[i].Expired = false
			}
			return list
		}}, "only due messages are found"},
		{"clears dead letters too", brokenSubscriptions{tx: inside(brokenDelivery{clear: func(event.Sequence) event.Sequence { return 0 }})}, "reset keeps parked messages before it"},
		{"begins every page at the start", brokenSubscriptions{parked: func(q *ports.ParkedQuery) { q.After = 0 }}, "parked messages are paged and grouped"},
		{"mixes failures", brokenSubscriptions{parked: func(q *ports.ParkedQuery) { q.Code = "" }}, "parked messages are paged and grouped"},
		{"never opens the breaker", brokenSubscriptions{tx: inside(brokenDelivery{threshold: func(int) int { return 0 }})}, "breaker opens once at its threshold"},
		{"keeps consumers for ever", brokenSubscriptions{stay: true}, "absent consumers are forgotten"},
		{"ignores the tenant limit", brokenSubscriptions{boundless: true}, "tenant limit is enforced"},
		{"deletes nothing", brokenSubscriptions{keep: true}, "deleted subscription delivers nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			failed := map[string]bool{}
			for _, p := range conformance.SubscriptionPromises() {
				if c.mustFail != "" && c.mustFail != p.Name {
					continue
				}
				clock := conformance.NewClock()
				store := c.store
				store.MemoryStore = conformance.NewMemoryStore(memory.Config{Clock: clock})
				failed[p.Name] = fails(func(t require.TestingT) {
					p.Check(t, conformance.NewSubscriptionFixture(t, &store, clock, "tenant"))
				})
			}
			if c.mustFail != "" {
				require.True(t, failed[c.mustFail])
				return
			}
			for name, isFailed := range failed {
				require.False(t, isFailed, name)
			}
		})
	}
}
