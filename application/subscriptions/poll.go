package subscriptions

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Bounds of a poll.
const (
	MaxWait       = 30 * time.Second
	MaxPoll       = 1000
	maxScanStep   = 1000   // events that one transaction reads
	maxScanPoll   = 50_000 // events that one poll reads before it answers
	maxWaiting    = 10_000 // messages of a legal entity that wait behind earlier ones
	recheckLocked = 10 * time.Millisecond
)

// Poll is a request for the next messages.
type Poll struct {
	ID       string
	Consumer string
	Limit    int           // 1 to MaxPoll
	Wait     time.Duration // at most MaxWait
}

// Delivery is a delivered event.
type Delivery struct {
	Event    event.Recorded
	Attempt  int       // 1: for the first time
	Deadline time.Time // of the answer
}

// Batch is the result of a poll.
type Batch struct {
	Deliveries []Delivery // in order within a legal entity; between legal entities there is no order
	HasMore    bool       // another poll may return messages at once
	Status     subscription.Status
}

// Poll delivers due messages: first those whose next attempt is due, then events that were
// not read yet. If there are none it waits, without a lock or connection of the store.
// Faults: subscription.not_found, subscription.consumer_invalid.
func (s *Service) Poll(ctx context.Context, p ports.Principal, q Poll) (Batch, error) {
	if !subscription.ValidConsumer(q.Consumer) {
		return Batch{}, fault.New(fault.Invalid, "subscription.consumer_invalid", "a consumer's name has 1 to 100 letters, digits, and _ . : - after the first, and is no personal data; correct it").WithField("consumer")
	}
	q.Limit, q.Wait = min(max(q.Limit, 1), MaxPoll), min(q.Wait, MaxWait)
	timeout := time.NewTimer(q.Wait)
	defer timeout.Stop()
	for first := true; ; first = false {
		// Both are taken before reading, so that no change between reading and waiting is missed.
		heads, grown := s.config.Heads.Heads()
		if first || s.config.Heads.LastRead().IsZero() {
			heads = nil // read from the store, so that the caller's last writes are included
		}
		sub, err := s.findOwned(ctx, p, q.ID)
		if err != nil {
			return Batch{}, err
		}
		woken, unsubscribe := s.wakeUps.subscribe(sub.UID)
		r, err := s.attemptPoll(ctx, p, sub, q, heads)
		if err != nil || len(r.batch.Deliveries) > 0 || q.Wait <= 0 {
			unsubscribe()
			return r.batch, err
		}
		if r.batch.HasMore {
			unsubscribe()
			select {
			case <-timeout.C:
				return r.batch, nil
			case <-ctx.Done():
				return Batch{}, ctx.Err()
			default:
				continue
			}
		}
		again, err := s.waitForChange(ctx, r, grown, woken, timeout.C)
		unsubscribe()
		if err != nil || !again {
			return r.batch, err
		}
	}
}

// waitForChange waits until another attempt may find messages.
func (s *Service) waitForChange(ctx context.Context, r pollAttempt, grown, woken <-chan struct{}, timeout <-chan time.Time) (again bool, err error) {
	var recheck, due <-chan time.Time
	if r.recheck > 0 {
		t := time.NewTicker(r.recheck)
		defer t.Stop()
		recheck = t.C
	}
	if r.due > 0 {
		t := time.NewTimer(r.due)
		defer t.Stop()
		due = t.C
	}
	if r.coalesced {
		defer s.states.register(r.uid)()
	}
	for {
		// Several may be ready after the attempt or the recheck, and a select takes any of them.
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case ports.TryReceive(timeout), ports.TryReceive(s.closing):
			return false, nil
		case ports.TryReceive(woken), ports.TryReceive(due):
			return true, nil
		case ports.TryReceive(grown):
			var heads map[event.PartitionID]ports.Head
			if heads, grown = s.config.Heads.Heads(); r.isAffected(heads) {
				return true, nil
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.closing:
		case <-woken:
		case <-grown:
		case <-timeout:
			return false, nil
		case <-due:
			return true, nil
		case <-recheck:
			if !r.coalesced || ports.TryReceive(due) { // both timers may have begun together
				return true, nil
			}
			state, err := s.deliveryState(ctx, r.uid)
			if err != nil {
				return false, err
			}
			if state.Revision != r.state.Revision || !r.inactive && state.CursorHash != r.state.CursorHash {
				return true, nil
			}
		}
	}
}

// pollAttempt is one attempt to find messages in all legal entities.
type pollAttempt struct {
	batch       Batch
	readThrough map[event.PartitionID]event.Sequence
	partitions  int           // number of partitions at the attempt
	recheck     time.Duration // 0: only a signal can make messages available
	due         time.Duration // until the first open message is due; 0: none

	// How waitForChange rechecks: with coalesced it compares the state of the subscription, with
	// inactive only its revision; otherwise it makes another attempt.
	uid                 event.ID
	coalesced, inactive bool
	state               ports.DeliveryState
}

// isAffected reports whether a covered partition has grown or a legal entity was added.
func (r *pollAttempt) isAffected(heads map[event.PartitionID]ports.Head) bool {
	if len(heads) > r.partitions {
		return true
	}
	for p, n := range r.readThrough {
		if heads[p].Sequence > n {
			return true
		}
	}
	return false
}

// attemptPoll delivers from one legal entity after the other until the limit is reached. If
// heads is nil they are read from the store.
func (s *Service) attemptPoll(ctx context.Context, p ports.Principal, sub subscription.Subscription, q Poll, heads map[event.PartitionID]ports.Head) (pollAttempt, error) {
	r := pollAttempt{
		batch: Batch{Deliveries: []Delivery{}, Status: sub.Status}, readThrough: map[event.PartitionID]event.Sequence{},
		uid: sub.UID, state: ports.DeliveryState{Revision: sub.Revision},
	}
	if heads == nil {
		var err error
		if heads, err = s.config.Log.PartitionHeads(ctx); err != nil {
			return r, err
		}
	}
	r.partitions = len(heads)
	if sub.Status != subscription.Active {
		r.recheck, r.coalesced, r.inactive = s.config.RecheckInterval, true, true // it may be resumed on another node
		return r, nil
	}
	entities, err := s.deliverableEntities(ctx, p, &sub)
	if err != nil {
		return r, err
	}
	backlogs, err := s.ensureCursors(ctx, &sub, entities)
	if err != nil {
		return r, err
	}
	ownsKey, err := s.keyOwnership(ctx, &sub, q)
	if err != nil {
		return r, err
	}
	// When a pinned consumer leaves, its keys move to other consumers without any stored change.
	r.coalesced = sub.Settings.ConsumerStrategy != subscription.Pinned
	r.state.CursorHash = ports.HashCursors(backlogs)
	inFlight := 0
	now := s.config.Clock.Now()
	for _, b := range backlogs {
		inFlight += b.InFlight
		if wait := max(b.NextDue.Sub(now), s.config.RecheckInterval); !b.NextDue.IsZero() && (r.due == 0 || wait < r.due) {
			r.due = wait
		}
	}
	backlogs = slices.DeleteFunc(backlogs, func(b ports.DeliveryBacklog) bool {
		return !slices.ContainsFunc(entities, func(le ports.LegalEntity) bool { return le.Partition == b.Partition })
	})
	// The least recently served legal entity first, so that a busy one does not starve the rest.
	slices.SortStableFunc(backlogs, func(a, b ports.DeliveryBacklog) int { return a.UpdatedAt.Compare(b.UpdatedAt) })
	f := fetcher{service: s, sub: &sub, consumer: q.Consumer, ownsKey: ownsKey, scanBudget: maxScanPoll, byteBudget: s.config.MaxBytes, moduleOf: noModule}
	if len(sub.Filter.Modules) > 0 {
		if f.moduleOf, err = s.config.Modules(ctx, sub.TenantID); err != nil {
			return r, err
		}
	}
	if f.sight, err = s.config.Access.Sight(ctx, p); err != nil {
		return r, err
	}
	for _, b := range backlogs {
		r.readThrough[b.Partition] = b.ReadThrough
		if b.InFlight > 0 || b.Waiting > 0 {
			r.recheck = s.config.RecheckInterval
		}
		behind := heads[b.Partition].Sequence > b.ReadThrough
		if !behind && b.InFlight == 0 && b.Waiting == 0 {
			continue
		}
		room := q.Limit - len(r.batch.Deliveries)
		f.inFlightElsewhere = inFlight - b.InFlight + len(r.batch.Deliveries)
		if room <= 0 || f.scanBudget <= 0 || f.byteBudget <= 0 {
			r.batch.HasMore = true
			break
		}
		if err := s.fetchEntity(ctx, &f, &r, b, heads[b.Partition].Sequence, room); err != nil {
			return r, err
		}
		if f.stopped {
			r.batch.Status, r.recheck, r.coalesced = f.status, recheckLocked, false // the current status
			break
		}
	}
	return r, nil
}

// fetchEntity fetches from one legal entity in steps until a step delivers messages.
func (s *Service) fetchEntity(ctx context.Context, f *fetcher, r *pollAttempt, b ports.DeliveryBacklog, head event.Sequence, room int) error {
	for {
		result, err := f.fetchFrom(ctx, b, room)
		if err != nil {
			return err
		}
		if result.locked {
			r.recheck, r.coalesced = recheckLocked, false
			return nil
		}
		r.batch.Deliveries = append(r.batch.Deliveries, result.deliveries...)
		r.readThrough[b.Partition] = result.readThrough
		hasMore := result.truncated || result.readThrough < head && !result.blocked
		if !hasMore || f.stopped || result.truncated && f.hasMessages || len(result.deliveries) > 0 || f.scanBudget <= 0 {
			r.batch.HasMore = r.batch.HasMore || hasMore && !f.stopped
			return nil
		}
		if result.readThrough == result.readBefore {
			return nil // no room until a message is answered
		}
	}
}

// deliverableEntities lists the legal entities that the filter covers and whose events both
// the owner and the caller may read now.
func (s *Service) deliverableEntities(ctx context.Context, p ports.Principal, sub *subscription.Subscription) ([]ports.LegalEntity, error) {
	owner, err := s.config.Access.Owner(ctx, sub.TenantID, sub.Owner)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	readable, err := s.config.Access.Readable(ctx, owner)
	if err != nil {
		return nil, err
	}
	callers, err := s.config.Access.Readable(ctx, p)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(readable), func(le ports.LegalEntity) bool {
		return !covers(&sub.Filter, le) || !slices.ContainsFunc(callers, func(o ports.LegalEntity) bool { return o.Partition == le.Partition })
	}), nil
}

// ensureCursors adds the cursors of legal entities that have joined and lists all cursors.
func (s *Service) ensureCursors(ctx context.Context, sub *subscription.Subscription, entities []ports.LegalEntity) ([]ports.DeliveryBacklog, error) {
	existing, err := s.config.Store.Backlogs(ctx, sub.UID)
	if err != nil {
		return nil, err
	}
	added, err := s.newCursors(ctx, sub, entities, slices.Concat(existing, []ports.DeliveryBacklog{{}}))
	if err != nil || len(added) == 0 {
		return existing, err
	}
	if err := s.config.Store.AddCursors(ctx, sub.UID, added); err != nil {
		return nil, err
	}
	return s.config.Store.Backlogs(ctx, sub.UID)
}

// keyOwnership returns a function that reports whether the consumer gets a key; nil: all keys.
func (s *Service) keyOwnership(ctx context.Context, sub *subscription.Subscription, q Poll) (func(subscription.Key) bool, error) {
	if sub.Settings.ConsumerStrategy != subscription.Pinned {
		return nil, nil
	}
	consumers, err := s.config.Store.RegisterConsumer(ctx, sub.UID, q.Consumer, q.Wait+sub.Settings.MessageTimeout)
	if err != nil {
		return nil, err
	}
	return func(k subscription.Key) bool { return k.Owner(consumers) == q.Consumer }, nil
}
