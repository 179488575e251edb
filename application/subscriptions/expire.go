package subscriptions

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

const expireLimit = 10_000

// Run ends expired leases, wakes polls that wait for a retry, and measures lag, until ctx
// ends. A sweep costs one query for all subscriptions, and none while there are none.
func (s *Service) Run(ctx context.Context) {
	sweep, measure := time.NewTicker(s.config.ExpireInterval), time.NewTicker(s.config.MeasureInterval)
	defer sweep.Stop()
	defer measure.Stop()
	s.recordExpiry()
	defer s.lastExpiry.Store(nil)
	for {
		// When both are due it measures first: slow sweeps, which are always due, do not keep it from that.
		measures := ports.TryReceive(measure.C)
		if !measures {
			select {
			case <-ctx.Done():
			case <-sweep.C:
			case <-measure.C:
				measures = true
			}
		}
		var err error
		switch {
		case ctx.Err() != nil:
			return
		case measures:
			err = s.measure(ctx)
		case s.hasNoSubscriptions.Load():
			s.recordExpiry() // no subscription has leases
		default:
			if err = s.ExpireLeases(ctx); err == nil {
				s.recordExpiry()
			}
		}
		if err != nil && ctx.Err() == nil {
			s.config.Logger.WarnContext(ctx, "expired leases of subscriptions could not be handled; it will be tried again", "code", fault.CodeOf(err))
		}
	}
}

// ExpireLeases ends the leases that have expired and wakes the polls of subscriptions with
// messages whose next attempt is due. Several nodes may do so at the same time.
func (s *Service) ExpireLeases(ctx context.Context) error {
	due, err := s.config.Store.Due(ctx, expireLimit)
	if err != nil || len(due) == 0 {
		return err
	}
	var byUID map[event.ID]*subscription.Subscription
	for _, d := range due {
		if !d.Expired {
			continue
		}
		if byUID == nil {
			all, err := s.config.Store.Subscriptions(ctx, "")
			if err != nil {
				return err
			}
			byUID = make(map[event.ID]*subscription.Subscription, len(all))
			for i := range all {
				byUID[all[i].UID] = &all[i]
			}
		}
		if sub := byUID[d.UID]; sub != nil {
			if err := s.expirePartition(ctx, sub, d.Partition); err != nil && fault.KindOf(err) != fault.NotFound {
				return err
			}
		}
	}
	for _, d := range due {
		s.wakeUps.wake(d.UID)
	}
	return nil
}

// expirePartition ends leases in one legal entity. If another session holds its lock, that
// session ends them.
func (s *Service) expirePartition(ctx context.Context, sub *subscription.Subscription, p event.PartitionID) error {
	unlock, err := s.locks.lock(ctx, lockKey{sub.UID, p})
	if err != nil {
		return err
	}
	defer unlock()
	var counts subscription.Counts
	var opened bool
	ran, err := s.config.Store.Deliver(ctx, sub.UID, p, false, func(ctx context.Context, tx ports.DeliveryTx) error {
		counts, opened = subscription.Counts{}, false
		w, err := deliveredWindow(ctx, tx, sub)
		if err != nil || !w.Expire() {
			return err
		}
		if opened, err = s.countFailures(ctx, tx, sub, w); err != nil {
			return err
		}
		counts = w.Counts
		return saveWindow(ctx, tx, tx.Cursor(), w, &sub.Settings, false)
	})
	if err != nil || !ran {
		return err
	}
	s.observe(sub, counts)
	if opened {
		s.config.Observer.SubscriptionBreaker(sub.TenantID, sub.ID)
	}
	return nil
}

func (s *Service) observe(sub *subscription.Subscription, c subscription.Counts) {
	if c != (subscription.Counts{}) {
		s.config.Observer.SubscriptionCounts(sub.TenantID, sub.ID, c)
	}
}

// measure reports the lag of every subscription, and removes what deleted subscriptions have
// left: their series on this node, and the rows of interrupted deletions.
func (s *Service) measure(ctx context.Context) error {
	// Cursors are read before subscriptions, so that a subscription that is created between the
	// two queries is not taken for a deleted one.
	s.hasNoSubscriptions.Store(true) // before the query, because a concurrent poll sets it to false
	backlogs, err := s.config.Store.AllBacklogs(ctx)
	if err != nil {
		s.hasNoSubscriptions.Store(false)
		return err
	}
	all, err := s.config.Store.Subscriptions(ctx, "")
	if err != nil || len(all) > 0 || len(backlogs) > 0 {
		s.hasNoSubscriptions.Store(false)
	}
	if err != nil {
		return err
	}
	s.forgetDeleted(all)
	alive := make(map[event.ID]bool, len(all))
	for i := range all {
		alive[all[i].UID] = true
	}
	for uid := range backlogs {
		if !alive[uid] {
			if err := s.config.Store.DeleteSubscription(ctx, uid); err != nil {
				return err
			}
		}
	}
	if err := s.removeOrphans(ctx); err != nil {
		return err
	}
	heads, _ := s.config.Heads.Heads()
	now := s.config.Clock.Now()
	recorded, err := s.recordedTimes(ctx, all, backlogs, heads)
	if err != nil {
		return err
	}
	for i := range all {
		sub := &all[i]
		var events uint64
		var seconds float64
		parked := 0
		for _, b := range backlogs[sub.UID] {
			n := lag(&b, heads[b.Partition].Sequence)
			events += n
			parked += b.Parked
			if at, known := recorded[oldest(&b)]; known && n > 0 {
				seconds = max(seconds, now.Sub(at).Seconds())
			}
		}
		s.config.Observer.SubscriptionLag(sub.TenantID, sub.ID, events, seconds)
		s.config.Observer.SubscriptionParked(sub.TenantID, sub.ID, parked)
	}
	return nil
}

// removeOrphans removes parked messages whose subscription is gone. Only nodes of an older
// release leave any, so it looks for them once in OrphanInterval.
func (s *Service) removeOrphans(ctx context.Context) error {
	if now := s.config.Clock.Now(); s.lastOrphanRemoval.IsZero() || now.Sub(s.lastOrphanRemoval) >= s.config.OrphanInterval {
		removed, err := s.config.Store.RemoveOrphanedMessages(ctx)
		if err != nil {
			return err
		}
		s.lastOrphanRemoval = now
		if removed > 0 {
			s.config.Logger.InfoContext(ctx, "dead letters of deleted subscriptions were removed", "messages", removed)
		}
	}
	return nil
}

// recordedTimes returns when the oldest event of each backlog was recorded.
func (s *Service) recordedTimes(ctx context.Context, all []subscription.Subscription, backlogs map[event.ID][]ports.DeliveryBacklog, heads map[event.PartitionID]ports.Head) (map[ports.EventPosition]time.Time, error) {
	asked := map[ports.EventPosition]bool{}
	for i := range all {
		for _, b := range backlogs[all[i].UID] {
			if lag(&b, heads[b.Partition].Sequence) > 0 {
				asked[oldest(&b)] = true
			}
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	return s.config.Log.RecordedAt(ctx, slices.Collect(maps.Keys(asked)))
}

// seriesKey names the metric series of a subscription.
type seriesKey struct{ tenantID, id string }

// forgetDeleted ends the series of subscriptions that existed at the last measurement and have
// been deleted since, perhaps on another node.
func (s *Service) forgetDeleted(all []subscription.Subscription) {
	now := make(map[seriesKey]bool, len(all))
	for i := range all {
		now[seriesKey{all[i].TenantID, all[i].ID}] = true
	}
	for l := range s.reported {
		if !now[l] {
			s.config.Observer.SubscriptionGone(l.tenantID, l.id)
		}
	}
	s.reported = now
}

// Health returns an error if this node has not ended expired leases for too long, and nil if
// it has or does not run. Subscribers that are far behind are healthy. Fault
// subscription.stalled.
func (s *Service) Health() error {
	last := s.lastExpiry.Load()
	if last == nil {
		return nil
	}
	if since := time.Since(*last); since > max(stallAfter, 3*s.config.ExpireInterval) {
		return fault.New(fault.Unavailable, "subscription.stalled", "expired leases have not been looked for in %s; see that the database answers, then restart this node", since.Round(time.Second))
	}
	return nil
}

// recordExpiry stores when a sweep last succeeded.
func (s *Service) recordExpiry() {
	now := time.Now() // by this process's own monotonic clock
	s.lastExpiry.Store(&now)
}
