package memory

import (
	"cmp"
	"context"
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
	failureLock *writeLock // held by who counts failures or changes the definition
	definition  subscription.Subscription
	cursors     map[event.PartitionID]*delivery
	consumers   map[string]time.Time // back until
}

// delivery is a subscription in one partition.
type delivery struct {
	lock     *writeLock // held during a Deliver
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
		k := &subscriptionRecord{failureLock: newWriteLock(s.readModels.limit), definition: sub, cursors: map[event.PartitionID]*delivery{}, consumers: map[string]time.Time{}}
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

// cursorsOf gives the deliveries of a subscription, none of an unknown one. It is called with
// the lock held.
func (s *state) cursorsOf(uid event.ID) map[event.PartitionID]*delivery {
	if k := s.subscriptions[uid]; k != nil {
		return k.cursors
	}
	return nil
}

func (k *subscriptionRecord) addCursors(cursors []ports.DeliveryCursor, now time.Time) {
	for _, c := range cursors {
		if k.cursors[c.Partition] == nil {
			k.cursors[c.Partition] = &delivery{
				lock: newWriteLock(k.failureLock.limit), messages: map[event.Sequence]subscription.Message{},
				cursor: ports.DeliveryCursor{Partition: c.Partition, ReadThrough: c.ReadThrough, Checkpoint: c.ReadThrough, UpdatedAt: now},
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
		turn, err := k.failureLock.acquire(ctx, 0)
		if err != nil {
			return err
		}
		defer k.failureLock.release(turn)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k == nil || s.subscriptions[sub.UID] != k || k.definition.Revision != sub.Revision-1 {
		return subscription.Changed()
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
