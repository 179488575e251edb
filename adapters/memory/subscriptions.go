package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// SubscriptionStore keeps subscriptions, their deliveries and dead letters.
type SubscriptionStore struct{ *state }

// subscriptionRecord is a subscription with its cursors and consumers.
type subscriptionRecord struct {
	failureLock chan struct{} // holds a token while a caller counts failures or changes the definition
	definition  subscription.Subscription
	cursors     map[event.PartitionID]*delivery
	consumers   map[string]time.Time // back until
}

// delivery is a subscription in one partition. busy holds a token during a Deliver.
type delivery struct {
	busy     chan struct{}
	cursor   ports.DeliveryCursor
	messages map[event.Sequence]subscription.Message
}

func subscriptionNotFound() error {
	return fault.New(fault.NotFound, "subscription.not_found", "there is no such subscription; GET /api/subscriptions lists them")
}

func (s *state) find(tenantID, id string) *subscriptionRecord {
	for _, k := range s.subscriptions {
		if k.definition.TenantID == tenantID && k.definition.ID == id {
			return k
		}
	}
	return nil
}

// CreateSubscription implements ports.Subscriptions.
func (s *SubscriptionStore) CreateSubscription(ctx context.Context, sub subscription.Subscription, cursors []ports.DeliveryCursor, most int) (stored subscription.Subscription, created bool, err error) {
	err = s.do(ctx, func() error {
		if k := s.find(sub.TenantID, sub.ID); k != nil {
			stored = k.definition
			return nil
		}
		if full(len(s.definitions(sub.TenantID)), most) {
			return subscription.LimitReached(most)
		}
		k := &subscriptionRecord{failureLock: make(chan struct{}, 1), definition: sub, cursors: map[event.PartitionID]*delivery{}, consumers: map[string]time.Time{}}
		s.subscriptions[sub.UID] = k
		k.addCursors(cursors, s.now())
		stored, created = sub, true
		return nil
	})
	return stored, created, err
}

// definitions lists those of a tenant, or all for "". It is called with the lock held.
func (s *state) definitions(tenantID string) []subscription.Subscription {
	out := []subscription.Subscription{}
	for _, k := range s.subscriptions {
		if tenantID == "" || k.definition.TenantID == tenantID {
			out = append(out, k.definition)
		}
	}
	slices.SortFunc(out, func(a, b subscription.Subscription) int {
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// lockFailures waits until no other caller counts failures or changes the definition.
func (k *subscriptionRecord) lockFailures(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case k.failureLock <- struct{}{}:
		return nil
	}
}

func (k *subscriptionRecord) unlockFailures() { <-k.failureLock }

func (k *subscriptionRecord) addCursors(cursors []ports.DeliveryCursor, now time.Time) {
	for _, c := range cursors {
		if k.cursors[c.Partition] == nil {
			k.cursors[c.Partition] = &delivery{
				busy: make(chan struct{}, 1), messages: map[event.Sequence]subscription.Message{},
				cursor: ports.DeliveryCursor{Partition: c.Partition, ReadThrough: c.ReadThrough, Checkpoint: c.ReadThrough, Term: 1, UpdatedAt: now},
			}
		}
	}
}

// Subscription implements ports.Subscriptions.
func (s *SubscriptionStore) Subscription(ctx context.Context, tenantID, id string) (subscription.Subscription, error) {
	return get(ctx, s.state, func() (subscription.Subscription, error) {
		if k := s.find(tenantID, id); k != nil {
			return k.definition, nil
		}
		return subscription.Subscription{}, subscriptionNotFound()
	})
}

// Subscriptions implements ports.Subscriptions.
func (s *SubscriptionStore) Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error) {
	return get(ctx, s.state, func() ([]subscription.Subscription, error) {
		return s.definitions(tenantID), nil
	})
}

// ChangeSubscription implements ports.Subscriptions.
func (s *SubscriptionStore) ChangeSubscription(ctx context.Context, sub subscription.Subscription) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	k := s.subscriptions[sub.UID]
	s.mu.Unlock()
	if k != nil { // a delivery may be about to open the breaker, in a revision of its own
		if err := k.lockFailures(ctx); err != nil {
			return err
		}
		defer k.unlockFailures()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k == nil || s.subscriptions[sub.UID] != k || k.definition.Revision != sub.Revision-1 {
		return fault.New(fault.Conflict, "subscription.changed", "somebody else changed the subscription meanwhile; read it and try again")
	}
	d := &k.definition
	d.Filter, d.Settings, d.Status, d.Revision, d.Failures, d.LastFailure = sub.Filter, sub.Settings, sub.Status, sub.Revision, sub.Failures, sub.LastFailure
	d.ResetStart, d.UpdatedAt = sub.ResetStart, s.now()
	return nil
}

// DeleteSubscription implements ports.Subscriptions.
func (s *SubscriptionStore) DeleteSubscription(ctx context.Context, uid event.ID) error {
	return s.do(ctx, func() error {
		delete(s.subscriptions, uid)
		return nil
	})
}

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
		k := s.subscriptions[uid]
		if k == nil {
			return out, nil
		}
		for _, d := range k.cursors {
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
		return out, nil
	})
}

// Consumers implements ports.Deliveries.
func (s *SubscriptionStore) Consumers(ctx context.Context, uid event.ID, consumer string, back time.Duration) ([]string, error) {
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
	s.mu.Lock()
	k := s.subscriptions[uid]
	if k == nil || k.cursors[p] == nil {
		s.mu.Unlock()
		return false, subscriptionNotFound()
	}
	d := k.cursors[p]
	s.mu.Unlock()
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
	s.mu.Lock()
	if s.subscriptions[uid] != k {
		s.mu.Unlock()
		return false, subscriptionNotFound()
	}
	tx := &deliveryTx{store: s, subscription: k, delivery: d, now: s.now(), definition: k.definition, cursor: d.cursor, messages: maps.Clone(d.messages)}
	s.mu.Unlock()
	defer tx.close()
	if err := f(ctx, tx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.cursor, d.messages = tx.cursor, tx.messages
	if tx.applyBreaker != nil {
		tx.applyBreaker()
	}
	s.decisions = append(s.decisions, tx.decisions...)
	return true, nil
}

// deliveryTx implements ports.DeliveryTx on a copy that replaces the original.
type deliveryTx struct {
	store          *SubscriptionStore
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
// ends, so that each sees the failures counted before it.
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

// filterOpen lists the open messages that keep accepts, by sequence.
func (d *deliveryTx) filterOpen(keep func(*subscription.Message) bool) []subscription.Message {
	out := []subscription.Message{}
	for _, n := range slices.Sorted(maps.Keys(d.messages)) {
		if m := d.messages[n]; m.State != subscription.ParkedState && keep(&m) {
			out = append(out, m)
		}
	}
	return out
}

func (d *deliveryTx) OpenByEvent(_ context.Context, events []event.ID) ([]subscription.Message, error) {
	return d.filterOpen(func(m *subscription.Message) bool { return slices.Contains(events, m.EventID) }), nil
}

func (d *deliveryTx) Delivered(context.Context) ([]subscription.Message, error) {
	return d.filterOpen(func(m *subscription.Message) bool { return m.State != subscription.Waiting }), nil
}

func (d *deliveryTx) Waiting(_ context.Context, after event.Sequence, except []subscription.HeldKey, limit int) ([]subscription.Message, error) {
	out := d.filterOpen(func(m *subscription.Message) bool {
		held := func(k subscription.HeldKey) bool { return k.Key == m.Key && m.Sequence > k.After }
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
		out := []event.PartitionID{}
		k := s.subscriptions[uid]
		if k == nil {
			return out, nil
		}
		for p, d := range k.cursors {
			if len(in) > 0 && !slices.Contains(in, p) {
				continue
			}
			for _, m := range d.messages {
				if m.State != subscription.ParkedState && slices.Contains(events, m.EventID) {
					out = append(out, p)
					break
				}
			}
		}
		slices.Sort(out)
		return out, nil
	})
}

func filterParked(messages map[event.Sequence]subscription.Message, q ports.ParkedQuery) []subscription.Message {
	out := []subscription.Message{}
	for _, n := range slices.Sorted(maps.Keys(messages)) {
		m := messages[n]
		if m.State == subscription.ParkedState && n > q.After && (q.Code == "" || m.Code == q.Code) &&
			(len(q.EventIDs) == 0 || slices.Contains(q.EventIDs, m.EventID)) && !full(len(out), q.Limit) {
			out = append(out, m)
		}
	}
	return out
}

// ParkedMessages implements ports.SubscriptionDeadLetters.
func (s *SubscriptionStore) ParkedMessages(ctx context.Context, uid event.ID, partitions []event.PartitionID, from event.PartitionID, q ports.ParkedQuery) ([]ports.ParkedMessage, error) {
	return get(ctx, s.state, func() ([]ports.ParkedMessage, error) {
		out := []ports.ParkedMessage{}
		k := s.subscriptions[uid]
		if k == nil {
			return out, nil
		}
		sorted := slices.Clone(partitions)
		slices.Sort(sorted)
		for _, p := range sorted {
			if d := k.cursors[p]; d != nil && p >= from {
				one := q
				if p > from {
					one.After = 0
				}
				for _, m := range filterParked(d.messages, one) {
					if !full(len(out), q.Limit) {
						out = append(out, ports.ParkedMessage{Partition: p, Message: m})
					}
				}
			}
		}
		return out, nil
	})
}

// ParkedGroups implements ports.SubscriptionDeadLetters.
func (s *SubscriptionStore) ParkedGroups(ctx context.Context, uid event.ID, partitions []event.PartitionID) ([]ports.ParkedGroup, error) {
	all, err := s.ParkedMessages(ctx, uid, partitions, 0, ports.ParkedQuery{})
	if err != nil {
		return nil, err
	}
	groups := map[string]*ports.ParkedGroup{}
	for _, m := range all {
		g := groups[m.Code]
		if g == nil {
			g = &ports.ParkedGroup{Code: m.Code, First: m.ChangedAt, Last: m.ChangedAt}
			groups[m.Code] = g
		}
		g.Messages++
		if m.ChangedAt.Before(g.First) {
			g.First = m.ChangedAt
		}
		if m.ChangedAt.After(g.Last) {
			g.Last = m.ChangedAt
		}
	}
	out := []ports.ParkedGroup{}
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b ports.ParkedGroup) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Code, b.Code))
	})
	return out, nil
}

// Decisions implements ports.SubscriptionDeadLetters.
func (s *SubscriptionStore) Decisions(ctx context.Context, tenantID, id string, partitions []event.PartitionID, limit int) ([]ports.ParkedDecision, error) {
	return get(ctx, s.state, func() ([]ports.ParkedDecision, error) {
		out := []ports.ParkedDecision{}
		for _, d := range s.decisions {
			if d.TenantID == tenantID && d.Subscription == id && slices.Contains(partitions, d.Partition) {
				out = append(out, d)
			}
		}
		slices.SortFunc(out, func(a, b ports.ParkedDecision) int { return b.ID.Compare(a.ID) })
		if full(len(out), limit) {
			out = out[:limit]
		}
		return out, nil
	})
}
