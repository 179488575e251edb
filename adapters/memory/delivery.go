package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Deliver implements ports.Deliveries.
func (s *Store) Deliver(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(ctx context.Context, tx ports.DeliveryTx) error) (bool, error) {
	s.subs.mu.Lock()
	k := s.subs.byUID[uid]
	if k == nil || k.cursors[p] == nil {
		s.subs.mu.Unlock()
		return false, subscriptionNotFound()
	}
	d := k.cursors[p]
	s.subs.mu.Unlock()
	if wait {
		select {
		case d.busy <- struct{}{}:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	} else {
		select {
		case d.busy <- struct{}{}:
		default:
			return false, nil
		}
	}
	defer func() { <-d.busy }()
	s.subs.mu.Lock()
	if s.subs.byUID[uid] != k {
		s.subs.mu.Unlock()
		return false, subscriptionNotFound()
	}
	tx := &deliveryTx{store: s, subscription: k, delivery: d, now: s.now(), definition: k.definition, cursor: d.cursor, messages: maps.Clone(d.messages)}
	s.subs.mu.Unlock()
	defer tx.close()
	if err := f(ctx, tx); err != nil {
		return false, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	d.cursor, d.messages = tx.cursor, tx.messages
	if tx.applyBreaker != nil {
		tx.applyBreaker()
	}
	s.subs.decisions = append(s.subs.decisions, tx.decisions...)
	return true, nil
}

// deliveryTx implements ports.DeliveryTx on a copy that replaces the original.
type deliveryTx struct {
	store          *Store
	subscription   *subscriptionRecord
	delivery       *delivery
	now            time.Time
	definition     subscription.Subscription
	cursor         ports.DeliveryCursor
	messages       map[event.Sequence]subscription.Message
	decisions      []ports.ParkedDecision
	hasFailureLock bool   // it holds the token of those that count failures
	applyBreaker   func() // for the breaker, under the lock at the end; nil: none
}

// lockFailures keeps deliveries of other legal entities from counting failures until this one
// ends: each then sees what the ones before it have counted.
func (d *deliveryTx) lockFailures(ctx context.Context) error {
	if d.hasFailureLock {
		return nil
	}
	err := d.subscription.lockFailures(ctx)
	d.hasFailureLock = err == nil
	return err
}

func (d *deliveryTx) close() {
	if d.hasFailureLock {
		d.subscription.unlockFailures()
	}
}

func (d *deliveryTx) Now() time.Time              { return d.now }
func (d *deliveryTx) Status() subscription.Status { return d.definition.Status }
func (d *deliveryTx) Revision() int64             { return d.definition.Revision }

func (d *deliveryTx) Cursor() ports.DeliveryCursor {
	c := d.cursor
	c.Parked = 0
	for _, m := range d.messages {
		if m.State == subscription.ParkedState {
			c.Parked++
		}
	}
	return c
}

func (d *deliveryTx) Open(context.Context) ([]subscription.Message, error) {
	out := []subscription.Message{}
	for _, n := range slices.Sorted(maps.Keys(d.messages)) {
		if m := d.messages[n]; m.State != subscription.ParkedState {
			out = append(out, m)
		}
	}
	return out, nil
}

func (d *deliveryTx) ParkedKeys(_ context.Context, keys []subscription.Key) (map[subscription.Key]event.Sequence, error) {
	first := map[subscription.Key]event.Sequence{}
	for n, m := range d.messages {
		if known, there := first[m.Key]; m.State == subscription.ParkedState && slices.Contains(keys, m.Key) && (!there || n < known) {
			first[m.Key] = n
		}
	}
	return first, nil
}

func (d *deliveryTx) Parked(_ context.Context, q ports.ParkedQuery) ([]subscription.Message, error) {
	return filterParked(d.messages, q), nil
}

func (d *deliveryTx) EventsAfter(ctx context.Context, after event.Sequence, limit, bytes int, types []string) ([]event.Recorded, error) {
	events, err := d.store.ChainPage(ctx, d.cursor.Partition, after, limit)
	return withinBytes(events, bytes, types), err
}

func (d *deliveryTx) Sizes(ctx context.Context, sequences []event.Sequence) (map[event.Sequence]int, error) {
	events, err := d.store.EventsAt(ctx, d.cursor.Partition, sequences)
	out := make(map[event.Sequence]int, len(events))
	for i := range events {
		out[events[i].Sequence] = len(events[i].Payload)
	}
	return out, err
}

func (d *deliveryTx) Save(_ context.Context, c ports.DeliveryCursor, changed []subscription.Message, done []event.Sequence) error {
	c.Partition, c.UpdatedAt = d.cursor.Partition, d.now
	d.cursor = c
	for _, m := range changed {
		d.messages[m.Sequence] = m
	}
	for _, n := range done {
		delete(d.messages, n)
	}
	return nil
}

func (d *deliveryTx) Clear(_ context.Context, parkedAfter event.Sequence) error {
	maps.DeleteFunc(d.messages, func(n event.Sequence, m subscription.Message) bool {
		return m.State != subscription.ParkedState || n > parkedAfter
	})
	return nil
}

func (d *deliveryTx) Fail(ctx context.Context, failures int, code string, threshold int) (bool, error) {
	if err := d.lockFailures(ctx); err != nil {
		return false, err
	}
	d.store.subs.mu.Lock()
	defer d.store.subs.mu.Unlock()
	s := &d.subscription.definition
	before := s.Failures
	opens := s.Status == subscription.Active && threshold > 0 && before < threshold && before+failures >= threshold
	d.applyBreaker = func() {
		s.Failures += failures
		s.LastFailure = subscription.Failure{Code: code, At: d.now}
		if s.Status == subscription.Active && threshold > 0 && s.Failures >= threshold {
			s.Status = subscription.Parked
			s.Revision++
		}
	}
	return opens, nil
}

func (d *deliveryTx) Succeed(ctx context.Context) error {
	if err := d.lockFailures(ctx); err != nil {
		return err
	}
	d.applyBreaker = func() { d.subscription.definition.Failures = 0 }
	return nil
}

func (d *deliveryTx) Record(_ context.Context, decisions []ports.ParkedDecision) error {
	for _, r := range decisions {
		r.TenantID, r.Subscription, r.Partition, r.At = d.definition.TenantID, d.definition.ID, d.cursor.Partition, d.now
		d.decisions = append(d.decisions, r)
	}
	return nil
}
