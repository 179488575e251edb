package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

var (
	_ ports.Subscriptions           = (*Store)(nil)
	_ ports.Deliveries              = (*Store)(nil)
	_ ports.SubscriptionDeadLetters = (*Store)(nil)
)

// subscriptions keeps subscriptions under a lock of its own, taken before the log's.
type subscriptions struct {
	mu        sync.Mutex
	byUID     map[event.ID]*subscriptionRecord
	decisions []ports.ParkedDecision
}

// subscriptionRecord is a subscription with all that belongs to it.
type subscriptionRecord struct {
	failureLock chan struct{} // holds a token while somebody counts failures or changes the definition
	definition  subscription.Subscription
	cursors     map[event.PartitionID]*delivery
	consumers   map[string]time.Time // back until
}

// delivery is a subscription in one partition. busy holds a token while somebody is
// there.
type delivery struct {
	busy     chan struct{}
	cursor   ports.DeliveryCursor
	messages map[event.Sequence]subscription.Message
}

func subscriptionNotFound() error {
	return fault.New(fault.NotFound, "subscription.not_found", "there is no such subscription; GET /api/subscriptions lists them")
}

func (s *subscriptions) find(tenantID, id string) *subscriptionRecord {
	for _, k := range s.byUID {
		if k.definition.TenantID == tenantID && k.definition.ID == id {
			return k
		}
	}
	return nil
}

// CreateSubscription implements ports.Subscriptions.
func (s *Store) CreateSubscription(ctx context.Context, sub subscription.Subscription, cursors []ports.DeliveryCursor, most int) (subscription.Subscription, bool, error) {
	if err := ctx.Err(); err != nil {
		return sub, false, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	if k := s.subs.find(sub.TenantID, sub.ID); k != nil {
		return k.definition, false, nil
	}
	there := 0
	for _, k := range s.subs.byUID {
		if k.definition.TenantID == sub.TenantID {
			there++
		}
	}
	if full(there, most) {
		return sub, false, subscription.LimitReached(most)
	}
	if s.subs.byUID == nil {
		s.subs.byUID = map[event.ID]*subscriptionRecord{}
	}
	k := &subscriptionRecord{failureLock: make(chan struct{}, 1), definition: sub, cursors: map[event.PartitionID]*delivery{}, consumers: map[string]time.Time{}}
	s.subs.byUID[sub.UID] = k
	k.addCursors(cursors, s.now())
	return k.definition, true, nil
}

// lockFailures waits until nobody else counts failures or changes the definition.
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
func (s *Store) Subscription(ctx context.Context, tenantID, id string) (subscription.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return subscription.Subscription{}, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	if k := s.subs.find(tenantID, id); k != nil {
		return k.definition, nil
	}
	return subscription.Subscription{}, subscriptionNotFound()
}

// Subscriptions implements ports.Subscriptions.
func (s *Store) Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	out := []subscription.Subscription{}
	for _, k := range s.subs.byUID {
		if tenantID == "" || k.definition.TenantID == tenantID {
			out = append(out, k.definition)
		}
	}
	slices.SortFunc(out, func(a, b subscription.Subscription) int {
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// ChangeSubscription implements ports.Subscriptions.
func (s *Store) ChangeSubscription(ctx context.Context, sub subscription.Subscription) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.subs.mu.Lock()
	k := s.subs.byUID[sub.UID]
	s.subs.mu.Unlock()
	if k != nil { // a delivery may be about to open the breaker, in a revision of its own
		if err := k.lockFailures(ctx); err != nil {
			return err
		}
		defer k.unlockFailures()
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	if k == nil || s.subs.byUID[sub.UID] != k || k.definition.Revision != sub.Revision-1 {
		return fault.New(fault.Conflict, "subscription.changed", "somebody else changed the subscription meanwhile; read it and try again")
	}
	d := &k.definition
	d.Filter, d.Settings, d.Status, d.Revision, d.Failures, d.LastFailure = sub.Filter, sub.Settings, sub.Status, sub.Revision, sub.Failures, sub.LastFailure
	d.ResetStart, d.UpdatedAt = sub.ResetStart, s.now()
	return nil
}

// DeleteSubscription implements ports.Subscriptions.
func (s *Store) DeleteSubscription(ctx context.Context, uid event.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	delete(s.subs.byUID, uid)
	return nil
}

// RemoveOrphanedMessages implements ports.Deliveries: nothing is ever left.
func (s *Store) RemoveOrphanedMessages(ctx context.Context) (removed int, err error) {
	return 0, ctx.Err()
}

// AddCursors implements ports.Deliveries.
func (s *Store) AddCursors(ctx context.Context, uid event.ID, cursors []ports.DeliveryCursor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	if k := s.subs.byUID[uid]; k != nil {
		k.addCursors(cursors, s.now())
	}
	return nil
}

// Backlogs implements ports.Deliveries.
func (s *Store) Backlogs(ctx context.Context, uid event.ID) ([]ports.DeliveryBacklog, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	out := []ports.DeliveryBacklog{}
	k := s.subs.byUID[uid]
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
}

// DeliveryStates implements ports.Deliveries.
func (s *Store) DeliveryStates(ctx context.Context, uids []event.ID) (map[event.ID]ports.DeliveryState, error) {
	out := make(map[event.ID]ports.DeliveryState, len(uids))
	for _, uid := range uids {
		there, err := s.Backlogs(ctx, uid)
		if err != nil {
			return nil, err
		}
		s.subs.mu.Lock()
		if k := s.subs.byUID[uid]; k != nil {
			out[uid] = ports.DeliveryState{Revision: k.definition.Revision, CursorHash: ports.HashCursors(there)}
		}
		s.subs.mu.Unlock()
	}
	return out, nil
}

// AllBacklogs implements ports.Deliveries.
func (s *Store) AllBacklogs(ctx context.Context) (map[event.ID][]ports.DeliveryBacklog, error) {
	all, err := s.Subscriptions(ctx, "")
	out := map[event.ID][]ports.DeliveryBacklog{}
	for i := 0; i < len(all) && err == nil; i++ {
		out[all[i].UID], err = s.Backlogs(ctx, all[i].UID)
	}
	return out, err
}

// Due implements ports.Deliveries.
func (s *Store) Due(ctx context.Context, limit int) ([]ports.DueDelivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	now := s.now()
	out := []ports.DueDelivery{}
	for uid, k := range s.subs.byUID {
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
}

// Consumers implements ports.Deliveries.
func (s *Store) Consumers(ctx context.Context, uid event.ID, consumer string, back time.Duration) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	k := s.subs.byUID[uid]
	if k == nil {
		return nil, subscriptionNotFound()
	}
	now := s.now()
	if until := now.Add(back); until.After(k.consumers[consumer]) {
		k.consumers[consumer] = until
	}
	maps.DeleteFunc(k.consumers, func(_ string, until time.Time) bool { return !until.After(now) })
	return slices.Sorted(maps.Keys(k.consumers)), nil
}

// EventsAt implements ports.Deliveries.
func (s *Store) EventsAt(ctx context.Context, id event.PartitionID, sequences []event.Sequence) ([]event.Recorded, error) {
	out := []event.Recorded{}
	err := s.read(ctx, id, func(p *partition) error {
		if p == nil {
			return nil
		}
		sorted := slices.Clone(sequences)
		slices.Sort(sorted)
		for _, n := range slices.Compact(sorted) {
			if n > 0 && n <= event.Sequence(len(p.events)) {
				out = append(out, cloneRecorded(p.at(n), true))
			}
		}
		return nil
	})
	return out, err
}
