package subscriptions

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// fetcher takes messages for one poll from one legal entity after the other.
type fetcher struct {
	service  *Service
	sub      *subscription.Subscription
	consumer string
	ownsKey  func(subscription.Key) bool
	moduleOf func(eventType string) string
	// inFlightElsewhere counts what is in flight in other legal entities. Polls that run there at
	// the same time are not seen, so several consumers may exceed the bound a little.
	inFlightElsewhere int
	scanBudget        int                 // events that may still be looked at
	byteBudget        int                 // of payloads that may still be answered; what has taken them all or more ends the poll
	hasMessages       bool                // something was taken: not even one more may exceed the bytes
	stopped           bool                // the subscription was paused, parked, changed or deleted meanwhile
	status            subscription.Status // then
}

// fetchResult is what was taken from one legal entity in one transaction.
type fetchResult struct {
	deliveries  []Delivery
	readBefore  event.Sequence // readNew through, before and after
	readThrough event.Sequence
	blocked     bool // nothing new before something is answered
	truncated   bool // more could have been taken, were it not for its bytes
	locked      bool // another node holds the lock
}

// fetchFrom takes messages of one legal entity in one transaction.
func (t *fetcher) fetchFrom(ctx context.Context, b ports.DeliveryBacklog, room int) (fetchResult, error) {
	s, uid := t.service, t.sub.UID
	unlock, err := s.locks.lock(ctx, lockKey{uid, b.Partition})
	if err != nil {
		return fetchResult{}, err
	}
	var result fetchResult
	var due []subscription.Message
	var fresh []Delivery
	var scanned, bytes int
	var opened bool
	var counts subscription.Counts
	ran, err := s.config.Store.Deliver(ctx, uid, b.Partition, false, func(ctx context.Context, tx ports.DeliveryTx) error {
		result, due, fresh, scanned, bytes, opened = fetchResult{}, nil, nil, 0, 0, false // it may run again
		if t.status = tx.Status(); t.status != subscription.Active || tx.Revision() != t.sub.Revision {
			t.stopped = true
			return nil
		}
		w, err := t.loadWindow(ctx, tx)
		if err != nil {
			return err
		}
		cursor := tx.Cursor()
		result.readBefore, result.readThrough = cursor.ReadThrough, cursor.ReadThrough
		if w.Expire() {
			if opened, err = s.countFailures(ctx, tx, t.sub, w); err != nil {
				return err
			}
		}
		if !opened {
			free := min(room, t.sub.Settings.MaxInFlight-t.inFlightElsewhere-w.Count(subscription.Leased))
			if due, bytes, result.truncated, err = t.claimDue(ctx, tx, w, max(free, 0)); err != nil {
				return err
			}
			result.blocked = w.IsBlocked()
			if free -= len(due); free > 0 && !result.blocked && !result.truncated {
				if fresh, scanned, err = t.readNew(ctx, tx, w, &cursor, free, len(due), &bytes, &result); err != nil {
					return err
				}
			}
			result.readThrough = cursor.ReadThrough
		}
		counts = w.Counts
		return saveWindow(ctx, tx, cursor, w, &t.sub.Settings, result.readThrough != result.readBefore)
	})
	unlock()
	if err != nil {
		return fetchResult{}, err
	}
	if !ran {
		result.locked = true
		return result, nil
	}
	t.scanBudget -= max(scanned, 1)
	t.byteBudget -= bytes
	t.hasMessages = t.hasMessages || len(due)+len(fresh) > 0
	s.observe(t.sub, counts)
	if opened {
		t.stopped, t.status = true, subscription.Parked
		s.config.Observer.SubscriptionBreaker(t.sub.TenantID, t.sub.ID)
	}
	if result.deliveries, err = s.loadEvents(ctx, b.Partition, due); err != nil {
		return result, err
	}
	result.deliveries = append(result.deliveries, fresh...) // what is new follows all that was there
	return result, nil
}

// maxHeldKeys is how many messages on their way, and keys that they hold, are left out one by
// one of what is read. With more, all that is open is read.
const maxHeldKeys = 200

// loadWindow takes what was handed out, if what else is open can be found by its keys; fill
// adds it. Otherwise it takes all.
func (t *fetcher) loadWindow(ctx context.Context, tx ports.DeliveryTx) (*subscription.Window, error) {
	if t.ownsKey != nil || t.sub.Settings.PartitionBy == subscription.PerLegalEntity {
		return openWindow(ctx, tx, t.sub)
	}
	delivered, err := tx.Delivered(ctx)
	if err != nil {
		return nil, err
	}
	if len(delivered) > maxHeldKeys {
		return openWindow(ctx, tx, t.sub)
	}
	return subscription.NewPartialWindow(t.sub.Settings, tx.Now(), delivered), nil
}

// loadWaiting adds what waits to a part of what is open, until there is as much to hand out as
// there is room. If that is less, the keys of all that was not added are held: whatever
// else the log has of them must wait too.
func loadWaiting(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, room int) error {
	page := 2*room + 50
	for after := event.Sequence(0); ; {
		except := w.HeldKeys()
		if len(except) > maxHeldKeys {
			except, page = nil, maxWaiting // all of it: page by page, each would be held against all before it
		}
		more, err := tx.Waiting(ctx, after, except, page)
		if err != nil {
			return err
		}
		w.Add(more)
		held, err := tx.ParkedKeys(ctx, w.ClaimableKeys())
		if err != nil {
			return err
		}
		w.HoldKeys(held)
		if len(more) < page || len(w.Claimable(room, nil)) >= room {
			return nil
		}
		after = more[len(more)-1].Sequence
	}
}

// claimDue hands out what was taken in before and is due, as many bytes as are left.
func (t *fetcher) claimDue(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, room int) (claimed []subscription.Message, bytes int, truncated bool, err error) {
	held, err := tx.ParkedKeys(ctx, w.ClaimableKeys())
	if err != nil {
		return nil, 0, false, err
	}
	w.HoldKeys(held)
	if w.IsPartial() && room > 0 {
		if err := loadWaiting(ctx, tx, w, room); err != nil {
			return nil, 0, false, err
		}
	}
	wanted := w.Claimable(room, t.ownsKey)
	if len(wanted) == 0 {
		return nil, 0, false, nil
	}
	sizes, err := tx.Sizes(ctx, wanted)
	if err != nil {
		return nil, 0, false, err
	}
	fitting := 0
	for _, n := range wanted {
		if !t.fitsBudget(bytes+sizes[n], fitting) {
			break
		}
		bytes += sizes[n]
		fitting++
	}
	return w.Claim(t.consumer, fitting, t.ownsKey), bytes, fitting < len(wanted), nil
}

// fitsBudget reports whether a poll's answer may have so many bytes of this legal entity, of
// which before messages are taken already. The first of a poll always fits.
func (t *fetcher) fitsBudget(bytes, before int) bool {
	return bytes <= t.byteBudget || before == 0 && !t.hasMessages
}

// minReadBytes are the bytes that one step of the log may read, however few are left of an
// answer: the filter may leave most of them out.
const minReadBytes = 1 << 20

// readNew takes events in that were not looked at yet, one step of the log. before is what
// the answer has of this legal entity already.
func (t *fetcher) readNew(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, cursor *ports.DeliveryCursor, room, before int, bytes *int, result *fetchResult) (deliveries []Delivery, scanned int, err error) {
	step := maxScanStep
	if selectsAll(&t.sub.Filter) {
		if step = min(room, maxScanStep); t.sub.Settings.PartitionBy != subscription.PerLegalEntity {
			step = min(2*room+50, maxScanStep) // some may have to wait
		}
	}
	events, err := tx.EventsAfter(ctx, cursor.ReadThrough, step, max(t.byteBudget-*bytes, min(minReadBytes, t.service.config.MaxBytes)), t.sub.Filter.EventTypes)
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
		if total += len(e.Payload); !t.fitsBudget(total, before+len(candidates)) {
			events, result.truncated = events[:i], true
			break
		}
		candidates = append(candidates, subscription.Candidate{Sequence: e.Sequence, EventID: e.ID, Key: t.sub.Settings.KeyOf(e)})
		bySequence[e.Sequence] = e
	}
	held, err := tx.ParkedKeys(ctx, w.KeysOf(candidates))
	if err != nil {
		return nil, 0, err
	}
	w.HoldKeys(held)
	waiting := w.Count(subscription.Waiting)
	if w.IsPartial() {
		if waiting, err = tx.CountWaiting(ctx); err != nil {
			return nil, 0, err
		}
	}
	admitted, count := w.Admit(candidates, t.consumer, room, maxWaiting-waiting, t.ownsKey)
	if len(events) > 0 {
		cursor.ReadThrough = events[len(events)-1].Sequence
	}
	if count < len(candidates) {
		cursor.ReadThrough = candidates[count].Sequence - 1
	}
	for _, m := range admitted {
		e := bySequence[m.Sequence]
		*bytes += len(e.Payload)
		deliveries = append(deliveries, Delivery{Event: *e, Attempt: m.Attempts, Deadline: m.Due})
	}
	return deliveries, len(events), nil
}

// loadEvents reads the events of messages that were there already.
func (s *Service) loadEvents(ctx context.Context, p event.PartitionID, messages []subscription.Message) ([]Delivery, error) {
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

// countFailures tells the breaker of the window's failures.
func (s *Service) countFailures(ctx context.Context, tx ports.DeliveryTx, sub *subscription.Subscription, w *subscription.Window) (opened bool, err error) {
	return tx.Fail(ctx, w.Failures, w.LastCode, max(sub.Settings.BreakerAfter, 0))
}

// saveWindow stores the changes of a window, if there are any.
func saveWindow(ctx context.Context, tx ports.DeliveryTx, c ports.DeliveryCursor, w *subscription.Window, settings *subscription.Settings, moved bool) error {
	changed, done := w.Changes()
	if len(changed) == 0 && len(done) == 0 && !moved {
		return nil
	}
	c.Counts.Add(w.Counts)
	c.Pending += int(w.Counts.Acknowledged + w.Counts.Skipped)
	first := w.FirstOpen()
	if w.IsPartial() {
		lowest, err := tx.LowestOpen(ctx, w.ClosedCount()+1)
		if err != nil {
			return err
		}
		first = w.FirstOpenAmong(lowest)
	}
	if first == 0 || c.Pending >= settings.CheckpointAfter {
		c.Pending = 0
		if c.Checkpoint = c.ReadThrough; first > 0 {
			c.Checkpoint = max(first-1, 0)
		}
	}
	return tx.Save(ctx, c, changed, done)
}

func selectsAll(f *subscription.Filter) bool {
	return len(f.EventTypes) == 0 && len(f.Modules) == 0 && len(f.Divisions) == 0 && len(f.Tags) == 0 && len(f.StreamTypes) == 0 && f.Predicate == nil
}
