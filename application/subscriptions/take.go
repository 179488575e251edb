package subscriptions

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
	bytes     int                 // of payloads that may still be answered; what has taken them all or more ends the poll
	answered  bool                // something was taken: not even one more may exceed the bytes
	stopped   bool                // the subscription was paused, parked, changed or deleted meanwhile
	status    subscription.Status // then
}

// taken is what one step brought.
type taken struct {
	deliveries  []Delivery
	before      event.Sequence // read through, before and after
	readThrough event.Sequence
	stuck       bool // nothing new before something is answered
	cut         bool // more could have been taken, were it not for its bytes
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
	var scanned, bytes int
	var opened bool
	var counts subscription.Counts
	ran, err := s.config.Store.Deliver(ctx, uid, b.Partition, false, func(ctx context.Context, tx ports.DeliveryTx) error {
		got, again, fresh, scanned, bytes, opened = taken{}, nil, nil, 0, 0, false // it may run again
		if t.status = tx.Status(); t.status != subscription.Active || tx.Revision() != t.sub.Revision {
			t.stopped = true
			return nil
		}
		w, err := t.window(ctx, tx)
		if err != nil {
			return err
		}
		cursor := tx.Cursor()
		got.before, got.readThrough = cursor.ReadThrough, cursor.ReadThrough
		if w.Expire() {
			if opened, err = s.failed(ctx, tx, t.sub, w); err != nil {
				return err
			}
		}
		if !opened {
			left := min(room, t.sub.Settings.MaxInFlight-t.elsewhere-w.InFlight())
			if again, bytes, got.cut, err = t.claim(ctx, tx, w, max(left, 0)); err != nil {
				return err
			}
			got.stuck = w.Stuck()
			if left -= len(again); left > 0 && !got.stuck && !got.cut {
				if fresh, scanned, err = t.read(ctx, tx, w, &cursor, left, len(again), &bytes, &got); err != nil {
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
	t.bytes -= bytes
	t.answered = t.answered || len(again)+len(fresh) > 0
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

// manyKeys is how many messages on their way, and keys that they hold, are left out one by
// one of what is read. With more, all that is open is read.
const manyKeys = 200

// window takes what was handed out, if what else is open can be found by its keys; fill
// adds it. Otherwise it takes all.
func (t *taking) window(ctx context.Context, tx ports.DeliveryTx) (*subscription.Window, error) {
	if t.mine != nil || t.sub.Settings.PartitionBy == subscription.PerLegalEntity {
		return window(ctx, tx, t.sub)
	}
	handed, err := tx.Moving(ctx)
	if err != nil {
		return nil, err
	}
	if len(handed) > manyKeys {
		return window(ctx, tx, t.sub)
	}
	return subscription.NewPart(t.sub.Settings, tx.Now(), handed), nil
}

// fill adds what waits to a part of what is open, until there is as much to hand out as
// there is room. If that is less, the keys of all that was not added are held: whatever
// else the log has of them must wait too.
func fill(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, room int) error {
	page := 2*room + 50
	for after := event.Sequence(0); ; {
		but := w.Held()
		if len(but) > manyKeys {
			but, page = nil, maxWaiting // all of it: page by page, each would be held against all before it
		}
		more, err := tx.Waiting(ctx, after, but, page)
		if err != nil {
			return err
		}
		w.Take(more)
		held, err := tx.ParkedKeys(ctx, w.Keys())
		if err != nil {
			return err
		}
		w.Hold(held)
		if len(more) < page || len(w.Claimable(room, nil)) >= room {
			return nil
		}
		after = more[len(more)-1].Sequence
	}
}

// claim hands out what was taken in before and is due, as many bytes as are left.
func (t *taking) claim(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, room int) (again []subscription.Message, bytes int, cut bool, err error) {
	held, err := tx.ParkedKeys(ctx, w.Keys())
	if err != nil {
		return nil, 0, false, err
	}
	w.Hold(held)
	if w.Part() && room > 0 {
		if err := fill(ctx, tx, w, room); err != nil {
			return nil, 0, false, err
		}
	}
	wanted := w.Claimable(room, t.mine)
	if len(wanted) == 0 {
		return nil, 0, false, nil
	}
	sizes, err := tx.Sizes(ctx, wanted)
	if err != nil {
		return nil, 0, false, err
	}
	fitting := 0
	for _, n := range wanted {
		if !t.fits(bytes+sizes[n], fitting) {
			break
		}
		bytes += sizes[n]
		fitting++
	}
	return w.Claim(t.consumer, fitting, t.mine), bytes, fitting < len(wanted), nil
}

// fits reports whether a poll's answer may have so many bytes of this legal entity, of
// which before messages are taken already. The first of a poll always fits.
func (t *taking) fits(bytes, before int) bool {
	return bytes <= t.bytes || before == 0 && !t.answered
}

// leastRead are the bytes that one step of the log may read, however few are left of an
// answer: the filter may leave most of them out.
const leastRead = 1 << 20

// read takes events in that were not looked at yet, one step of the log. before is what
// the answer has of this legal entity already.
func (t *taking) read(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, cursor *ports.DeliveryCursor, room, before int, bytes *int, got *taken) (handed []Delivery, scanned int, err error) {
	step := scanStep
	if everything(&t.sub.Filter) {
		if step = min(room, scanStep); t.sub.Settings.PartitionBy != subscription.PerLegalEntity {
			step = min(2*room+50, scanStep) // some may have to wait
		}
	}
	events, err := tx.EventsAfter(ctx, cursor.ReadThrough, step, max(t.bytes-*bytes, min(leastRead, t.service.config.Bytes)), t.sub.Filter.EventTypes)
	if err != nil || len(events) == 0 {
		return nil, 0, err
	}
	var candidates []subscription.Candidate
	bySequence := make(map[event.Sequence]*event.Recorded, len(events))
	total := *bytes
	for i := range events {
		e := &events[i]
		if !t.sub.Filter.Matches(e, t.moduleOf) {
			continue
		}
		if total += len(e.Payload); !t.fits(total, before+len(candidates)) {
			events, got.cut = events[:i], true
			break
		}
		candidates = append(candidates, subscription.Candidate{Sequence: e.Sequence, EventID: e.ID, Key: t.sub.Settings.KeyOf(e)})
		bySequence[e.Sequence] = e
	}
	held, err := tx.ParkedKeys(ctx, w.KeysOf(candidates))
	if err != nil {
		return nil, 0, err
	}
	w.Hold(held)
	waiting := w.WaitingCount()
	if w.Part() {
		if waiting, err = tx.CountWaiting(ctx); err != nil {
			return nil, 0, err
		}
	}
	out, took := w.Admit(candidates, t.consumer, room, maxWaiting-waiting, t.mine)
	if len(events) > 0 {
		cursor.ReadThrough = events[len(events)-1].Sequence
	}
	if took < len(candidates) {
		cursor.ReadThrough = candidates[took].Sequence - 1
	}
	for _, m := range out {
		e := bySequence[m.Sequence]
		*bytes += len(e.Payload)
		handed = append(handed, Delivery{Event: *e, Attempt: m.Attempts, Deadline: m.Due})
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
	if w.Part() {
		lowest, err := tx.Lowest(ctx, w.Ended()+1)
		if err != nil {
			return err
		}
		first = w.FirstOf(lowest)
	}
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
