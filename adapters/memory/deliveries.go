package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// RemoveOrphanedMessages implements ports.Deliveries: nothing is ever left.
func (s *SubscriptionStore) RemoveOrphanedMessages(ctx context.Context) (removed int, err error) {
	return 0, ctx.Err()
}

// AddCursors implements ports.Deliveries.
func (s *SubscriptionStore) AddCursors(ctx context.Context, uid event.ID, cursors []ports.DeliveryCursor) error {
	return s.do(ctx, func() error {
		if k := s.subscriptions[uid]; k != nil {
			k.addCursors(cursors, s.now())
		}
		return nil
	})
}

// Backlogs implements ports.Deliveries.
func (s *SubscriptionStore) Backlogs(ctx context.Context, uid event.ID) ([]ports.DeliveryBacklog, error) {
	return get(ctx, s.state, func() ([]ports.DeliveryBacklog, error) {
		out := []ports.DeliveryBacklog{}
		for _, d := range s.cursorsOf(uid) {
			b := ports.DeliveryBacklog{DeliveryCursor: d.cursor}
			b.Parked = 0
			for _, m := range d.messages {
				switch m.State {
				case subscription.ParkedState:
					b.Parked++
					continue
				case subscription.Leased:
					b.InFlight++
				default:
					b.Waiting++
				}
				if b.FirstOpen == 0 || m.Sequence < b.FirstOpen {
					b.FirstOpen = m.Sequence
				}
				if !m.Due.IsZero() && (b.NextDue.IsZero() || m.Due.Before(b.NextDue)) {
					b.NextDue = m.Due
				}
			}
			out = append(out, b)
		}
		slices.SortFunc(out, func(a, b ports.DeliveryBacklog) int { return cmp.Compare(a.Partition, b.Partition) })
		return out, nil
	})
}

// DeliveryStates implements ports.Deliveries.
func (s *SubscriptionStore) DeliveryStates(ctx context.Context, uids []event.ID) (map[event.ID]ports.DeliveryState, error) {
	out := make(map[event.ID]ports.DeliveryState, len(uids))
	for _, uid := range uids {
		there, err := s.Backlogs(ctx, uid)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		if k := s.subscriptions[uid]; k != nil {
			out[uid] = ports.DeliveryState{Revision: k.definition.Revision, CursorHash: ports.HashCursors(there)}
		}
		s.mu.Unlock()
	}
	return out, nil
}

// AllBacklogs implements ports.Deliveries.
func (s *SubscriptionStore) AllBacklogs(ctx context.Context) (map[event.ID][]ports.DeliveryBacklog, error) {
	all, err := s.Subscriptions(ctx, "")
	out := map[event.ID][]ports.DeliveryBacklog{}
	for i := 0; i < len(all) && err == nil; i++ {
		out[all[i].UID], err = s.Backlogs(ctx, all[i].UID)
	}
	return out, err
}

// Due implements ports.Deliveries.
func (s *SubscriptionStore) Due(ctx context.Context, limit int) ([]ports.DueDelivery, error) {
	return get(ctx, s.state, func() ([]ports.DueDelivery, error) {
		now := s.now()
		out := []ports.DueDelivery{}
		for uid, k := range s.subscriptions {
			for p, d := range k.cursors {
				due := ports.DueDelivery{UID: uid, Partition: p}
				found := false
				for _, m := range d.messages {
					if !m.Due.IsZero() && !m.Due.After(now) {
						found = true
						due.Expired = due.Expired || m.State == subscription.Leased
					}
				}
				if found && !full(len(out), limit) {
					out = append(out, due)
				}
			}
		}
		slices.SortFunc(out, func(a, b ports.DueDelivery) int {
			return cmp.Or(a.UID.Compare(b.UID), cmp.Compare(a.Partition, b.Partition))
		})
		return out, nil
	})
}

// RegisterConsumer implements ports.Deliveries.
func (s *SubscriptionStore) RegisterConsumer(ctx context.Context, uid event.ID, consumer string, back time.Duration) ([]string, error) {
	return get(ctx, s.state, func() ([]string, error) {
		k := s.subscriptions[uid]
		if k == nil {
			return nil, subscriptionNotFound()
		}
		now := s.now()
		if until := now.Add(back); until.After(k.consumers[consumer]) {
			k.consumers[consumer] = until
		}
		maps.DeleteFunc(k.consumers, func(_ string, until time.Time) bool { return !until.After(now) })
		return slices.Sorted(maps.Keys(k.consumers)), nil
	})
}

// EventsAt implements ports.Deliveries.
func (s *SubscriptionStore) EventsAt(ctx context.Context, id event.PartitionID, sequences []event.Sequence) ([]event.Recorded, error) {
	return readPartition(ctx, s.state, id, func(p *partition) ([]event.Recorded, error) {
		out := []event.Recorded{}
		for _, n := range slices.Compact(slices.Sorted(slices.Values(sequences))) {
			if n > 0 && n <= event.Sequence(len(p.events)) {
				out = append(out, cloneRecorded(p.at(n), true))
			}
		}
		return out, nil
	})
}

// Deliver implements ports.Deliveries.
func (s *SubscriptionStore) Deliver(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(ctx context.Context, tx ports.DeliveryTx) error) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	k := s.subscriptions[uid]
	if k == nil || k.cursors[p] == nil {
		s.mu.Unlock()
		return false, subscriptionNotFound()
	}
	d := k.cursors[p]
	s.mu.Unlock()
	var turn uint64
	var err error
	if wait {
		turn, err = d.lock.acquire(ctx, 0)
	} else {
		turn, _, _ = d.lock.take()
	}
	if err != nil || turn == 0 {
		return false, err
	}
	defer d.lock.release(turn)
	s.mu.Lock()
	if s.subscriptions[uid] != k {
		s.mu.Unlock()
		return false, subscriptionNotFound()
	}
	tx := &deliveryTx{store: s, subscription: k, now: s.now(), definition: k.definition, cursor: d.cursor, messages: maps.Clone(d.messages)}
	s.mu.Unlock()
	defer tx.close()
	if err := f(ctx, tx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(ctx.Err(), d.lock.check(turn), tx.checkFailures()); err != nil {
		return false, err
	}
	d.cursor, d.messages = tx.cursor, tx.messages
	for _, change := range tx.breaker {
		change(&k.definition)
	}
	return true, nil
}

// deliveryTx implements ports.DeliveryTx on a copy that replaces the original.
type deliveryTx struct {
	store        *SubscriptionStore
	subscription *subscriptionRecord
	now          time.Time
	definition   subscription.Subscription
	cursor       ports.DeliveryCursor
	messages     map[event.Sequence]subscription.Message
	failures     uint64                             // its turn with the lock of those that count failures; 0: none
	breaker      []func(*subscription.Subscription) // changes of the breaker, made at the end under the lock
}

// lockFailures keeps deliveries of other legal entities from counting failures until this one
// ends, so that each sees the failures counted before it.
func (d *deliveryTx) lockFailures(ctx context.Context) (err error) {
	if d.failures == 0 {
		d.failures, err = d.subscription.failureLock.acquire(ctx, 0)
	}
	return err
}

// checkFailures refuses a delivery that counted failures and has lost their lock.
func (d *deliveryTx) checkFailures() error {
	if d.failures == 0 {
		return nil
	}
	return d.subscription.failureLock.check(d.failures)
}

func (d *deliveryTx) close() {
	if d.failures != 0 {
		d.subscription.failureLock.release(d.failures)
	}
}

func (d *deliveryTx) Now() time.Time              { return d.now }
func (d *deliveryTx) Status() subscription.Status { return d.definition.Status }
func (d *deliveryTx) Revision() int64             { return d.definition.Revision }

func (d *deliveryTx) Cursor() ports.DeliveryCursor {
	c := d.cursor
	c.Parked = len(filterParked(d.messages, ports.ParkedQuery{}))
	return c
}

func (d *deliveryTx) Open(context.Context) ([]subscription.Message, error) {
	return d.filterOpen(func(*subscription.Message) bool { return true }), nil
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
	events, err := d.store.reader().Events(ctx, ports.EventQuery{Partition: d.cursor.Partition, After: after, Limit: limit})
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
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	now := d.subscription.definition // with what this delivery has changed so far
	for _, change := range d.breaker {
		change(&now)
	}
	wasActive := now.Status == subscription.Active
	count := func(s *subscription.Subscription) {
		s.Failures += failures
		s.LastFailure = subscription.Failure{Code: code, At: d.now}
		if s.Status == subscription.Active && threshold > 0 && s.Failures >= threshold {
			s.Status = subscription.Parked
			s.Revision++
		}
	}
	count(&now)
	d.breaker = append(d.breaker, count)
	return wasActive && now.Status == subscription.Parked, nil
}

func (d *deliveryTx) Succeed(ctx context.Context) error {
	if err := d.lockFailures(ctx); err != nil {
		return err
	}
	d.breaker = append(d.breaker, func(s *subscription.Subscription) { s.Failures = 0 })
	return nil
}

// filterOpen lists the open messages that keep accepts, by sequence.
func (d *deliveryTx) filterOpen(keep func(*subscription.Message) bool) []subscription.Message {
	return list(maps.Values(d.messages), func(m subscription.Message) bool { return m.State != subscription.ParkedState && keep(&m) }, compareMessages)
}

func compareMessages(a, b subscription.Message) int { return cmp.Compare(a.Sequence, b.Sequence) }

func (d *deliveryTx) OpenByEvent(_ context.Context, events []event.ID) ([]subscription.Message, error) {
	return d.filterOpen(func(m *subscription.Message) bool { return slices.Contains(events, m.EventID) }), nil
}

func (d *deliveryTx) Delivered(context.Context) ([]subscription.Message, error) {
	return d.filterOpen(func(m *subscription.Message) bool { return m.State != subscription.Waiting }), nil
}

func (d *deliveryTx) Waiting(_ context.Context, after event.Sequence, except []subscription.BlockedKey, limit int) ([]subscription.Message, error) {
	out := d.filterOpen(func(m *subscription.Message) bool {
		held := func(k subscription.BlockedKey) bool { return k.Key == m.Key && m.Sequence > k.After }
		return m.State == subscription.Waiting && m.Sequence > after && !slices.ContainsFunc(except, held)
	})
	return first(out, limit), nil
}

func (d *deliveryTx) CountWaiting(context.Context) (int, error) {
	return len(d.filterOpen(func(m *subscription.Message) bool { return m.State == subscription.Waiting })), nil
}

func (d *deliveryTx) LowestOpen(_ context.Context, limit int) ([]event.Sequence, error) {
	out := []event.Sequence{}
	for _, m := range first(d.filterOpen(func(*subscription.Message) bool { return true }), limit) {
		out = append(out, m.Sequence)
	}
	return out, nil
}

// PartitionsWithOpen implements ports.Deliveries.
func (s *SubscriptionStore) PartitionsWithOpen(ctx context.Context, uid event.ID, in []event.PartitionID, events []event.ID) ([]event.PartitionID, error) {
	return get(ctx, s.state, func() ([]event.PartitionID, error) {
		open := func(m subscription.Message) bool {
			return m.State != subscription.ParkedState && slices.Contains(events, m.EventID)
		}
		out := []event.PartitionID{}
		for p, d := range s.cursorsOf(uid) {
			if (len(in) == 0 || slices.Contains(in, p)) && slices.ContainsFunc(slices.Collect(maps.Values(d.messages)), open) {
				out = append(out, p)
			}
		}
		slices.Sort(out)
		return out, nil
	})
}

func filterParked(messages map[event.Sequence]subscription.Message, q ports.ParkedQuery) []subscription.Message {
	return first(list(maps.Values(messages), func(m subscription.Message) bool {
		return m.State == subscription.ParkedState && m.Sequence > q.After && (q.Code == "" || m.Code == q.Code) &&
			(len(q.EventIDs) == 0 || slices.Contains(q.EventIDs, m.EventID))
	}, compareMessages), q.Limit)
}

// ParkedMessages implements ports.SubscriptionDeadLetters.
func (s *SubscriptionStore) ParkedMessages(ctx context.Context, uid event.ID, partitions []event.PartitionID, from event.PartitionID, q ports.ParkedQuery) ([]ports.ParkedMessage, error) {
	return get(ctx, s.state, func() ([]ports.ParkedMessage, error) {
		out := []ports.ParkedMessage{}
		for _, p := range slices.Sorted(slices.Values(partitions)) {
			if d := s.cursorsOf(uid)[p]; d != nil && p >= from {
				one := q
				if p > from {
					one.After = 0
				}
				for _, m := range filterParked(d.messages, one) {
					out = append(out, ports.ParkedMessage{Partition: p, Message: m})
				}
			}
		}
		return first(out, q.Limit), nil
	})
}

// ParkedGroups implements ports.SubscriptionDeadLetters.
func (s *SubscriptionStore) ParkedGroups(ctx context.Context, uid event.ID, partitions []event.PartitionID) ([]ports.ParkedGroup, error) {
	messages, err := s.ParkedMessages(ctx, uid, partitions, 0, ports.ParkedQuery{})
	groups := map[string]ports.ParkedGroup{}
	for _, m := range messages {
		g, known := groups[m.Code]
		if !known {
			g = ports.ParkedGroup{Code: m.Code, First: m.ChangedAt, Last: m.ChangedAt}
		}
		g.Messages++
		if m.ChangedAt.Before(g.First) {
			g.First = m.ChangedAt
		}
		if m.ChangedAt.After(g.Last) {
			g.Last = m.ChangedAt
		}
		groups[m.Code] = g
	}
	return list(maps.Values(groups), all, func(a, b ports.ParkedGroup) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Code, b.Code))
	}), err
}

// FormerDecisionsOf implements ports.SubscriptionDeadLetters. No earlier release stored anything here.
func (s *SubscriptionStore) FormerDecisionsOf(context.Context, string, string, []event.PartitionID, int) ([]ports.ParkedDecision, error) {
	return nil, nil
}

// FormerDecisions implements ports.FormerDecisions.
func (s *SubscriptionStore) FormerDecisions(context.Context, string, ports.ParkedDecision, int) ([]ports.ParkedDecision, error) {
	return nil, nil
}
