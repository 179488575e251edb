package delivery

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// taking is one poll's way through the legal entities.
type taking struct {
	service  *Service
	sub      *subscription.Subscription
	consumer string
	mine     func(subscription.Key) bool
	moduleOf func(eventType string) string
	// elsewhere counts what is in flight in other legal entities. Polls that run there at
	// the same time are not seen, so several consumers may exceed the bound a little.
	elsewhere int
	scan      int                 // events that may still be looked at
	stopped   bool                // the subscription was paused, parked, changed or deleted meanwhile
	status    subscription.Status // then
}

// taken is what one step brought.
type taken struct {
	deliveries  []Delivery
	before      event.Sequence // read through, before and after
	readThrough event.Sequence
	stuck       bool // nothing new before something is answered
	busy        bool // another node is there
}

// from takes messages of one legal entity in one transaction.
func (t *taking) from(ctx context.Context, b ports.DeliveryBacklog, room int) (taken, error) {
	s, uid := t.service, t.sub.UID
	unlock, err := s.locks.lock(ctx, place{uid, b.Partition})
	if err != nil {
		return taken{}, err
	}
	var got taken
	var again []subscription.Message
	var fresh []Delivery
	var scanned int
	var opened bool
	var counts subscription.Counts
	ran, err := s.config.Store.Deliver(ctx, uid, b.Partition, false, func(ctx context.Context, tx ports.DeliveryTx) error {
		got, again, fresh, scanned, opened = taken{}, nil, nil, 0, false // it may run again
		if t.status = tx.Status(); t.status != subscription.Active || tx.Revision() != t.sub.Revision {
			t.stopped = true
			return nil
		}
		open, parked, err := tx.Open(ctx)
		if err != nil {
			return err
		}
		cursor := tx.Cursor()
		got.before, got.readThrough = cursor.ReadThrough, cursor.ReadThrough
		w := subscription.NewWindow(t.sub.Settings, tx.Now(), open, parked)
		if w.Expire() {
			if opened, err = s.failed(ctx, tx, t.sub, w); err != nil {
				return err
			}
		}
		if !opened {
			left := min(room, t.sub.Settings.MaxInFlight-t.elsewhere-w.InFlight())
			again = w.Claim(t.consumer, max(left, 0), t.mine)
			got.stuck = w.Stuck()
			if left -= len(again); left > 0 && !got.stuck {
				if fresh, scanned, err = t.read(ctx, tx, w, &cursor, left); err != nil {
					return err
				}
			}
			got.readThrough = cursor.ReadThrough
		}
		counts = w.Counts
		return store(ctx, tx, cursor, w, &t.sub.Settings, got.readThrough != got.before)
	})
	unlock()
	if err != nil {
		return taken{}, err
	}
	if !ran {
		got.busy = true
		return got, nil
	}
	t.scan -= max(scanned, 1)
	s.observe(t.sub, counts)
	if opened {
		t.stopped, t.status = true, subscription.Parked
		s.config.Observer.SubscriptionBreaker(t.sub.TenantID, t.sub.ID)
	}
	if got.deliveries, err = s.deliveries(ctx, b.Partition, again); err != nil {
		return got, err
	}
	got.deliveries = append(got.deliveries, fresh...) // what is new follows all that was there
	return got, nil
}

// read takes events in that were not looked at yet, one step of the log.
func (t *taking) read(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, cursor *ports.DeliveryCursor, room int) (handed []Delivery, scanned int, err error) {
	step := scanStep
	if everything(&t.sub.Filter) {
		if step = min(room, scanStep); t.sub.Settings.PartitionBy != subscription.PerLegalEntity {
			step = min(2*room+50, scanStep) // some may have to wait
		}
	}
	events, err := tx.EventsAfter(ctx, cursor.ReadThrough, step, t.sub.Filter.EventTypes)
	if err != nil || len(events) == 0 {
		return nil, 0, err
	}
	var candidates []subscription.Candidate
	bySequence := make(map[event.Sequence]*event.Recorded, len(events))
	for i := range events {
		e := &events[i]
		if t.sub.Filter.Matches(e, t.moduleOf) {
			candidates = append(candidates, subscription.Candidate{Sequence: e.Sequence, EventID: e.ID, Key: t.sub.Settings.KeyOf(e)})
			bySequence[e.Sequence] = e
		}
	}
	out, took := w.Admit(candidates, t.consumer, room, maxWaiting-w.WaitingCount(), t.mine)
	cursor.ReadThrough = events[len(events)-1].Sequence
	if took < len(candidates) {
		cursor.ReadThrough = candidates[took].Sequence - 1
	}
	for _, m := range out {
		handed = append(handed, Delivery{Event: *bySequence[m.Sequence], Attempt: m.Attempts, Deadline: m.Due})
	}
	return handed, len(events), nil
}

// deliveries reads the events of messages that were there already.
func (s *Service) deliveries(ctx context.Context, p event.PartitionID, messages []subscription.Message) ([]Delivery, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	sequences := make([]event.Sequence, len(messages))
	for i, m := range messages {
		sequences[i] = m.Sequence
	}
	events, err := s.config.Store.EventsAt(ctx, p, sequences)
	if err != nil {
		return nil, err
	}
	bySequence := make(map[event.Sequence]*event.Recorded, len(events))
	for i := range events {
		bySequence[events[i].Sequence] = &events[i]
	}
	out := make([]Delivery, 0, len(messages))
	for _, m := range messages {
		if e := bySequence[m.Sequence]; e != nil {
			out = append(out, Delivery{Event: *e, Attempt: m.Attempts, Deadline: m.Due})
		}
	}
	return out, nil
}

// failed tells the breaker of the window's failures.
func (s *Service) failed(ctx context.Context, tx ports.DeliveryTx, sub *subscription.Subscription, w *subscription.Window) (opened bool, err error) {
	return tx.Fail(ctx, w.Failures, w.LastCode, max(sub.Settings.BreakerAfter, 0))
}

// store keeps what became of a window, if anything did.
func store(ctx context.Context, tx ports.DeliveryTx, c ports.DeliveryCursor, w *subscription.Window, settings *subscription.Settings, moved bool) error {
	changed, done := w.Changes()
	if len(changed) == 0 && len(done) == 0 && !moved {
		return nil
	}
	c.Counts.Add(w.Counts)
	c.Pending += int(w.Counts.Acknowledged + w.Counts.Skipped)
	first := w.First()
	if first == 0 || c.Pending >= settings.CheckpointAfter {
		c.Pending = 0
		if c.Checkpoint = c.ReadThrough; first > 0 {
			c.Checkpoint = max(first-1, 0)
		}
	}
	return tx.Save(ctx, c, changed, done)
}

func everything(f *subscription.Filter) bool {
	return len(f.EventTypes) == 0 && len(f.Modules) == 0 && len(f.Divisions) == 0 && len(f.Tags) == 0 && len(f.StreamTypes) == 0 && f.Predicate == nil
}
