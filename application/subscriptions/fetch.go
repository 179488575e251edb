package subscriptions

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// fetcher fetches the messages of one poll, legal entity by legal entity.
type fetcher struct {
	service  *Service
	sub      *subscription.Subscription
	consumer string
	ownsKey  func(subscription.Key) bool
	moduleOf func(eventType string) string
	sight    module.Sight // of the owner
	// inFlightElsewhere counts messages in flight in other legal entities. It does not see polls
	// that run there at the same time, so several consumers may exceed the bound a little.
	inFlightElsewhere int
	scanBudget        int                 // events that may still be read
	byteBudget        int                 // bytes of payloads that may still be answered; the poll ends when none are left
	hasMessages       bool                // a message was fetched, so no further one may exceed byteBudget
	stopped           bool                // the subscription was paused, parked, changed or deleted during the poll
	status            subscription.Status // then
}

// fetchResult is the result of one transaction in one legal entity.
type fetchResult struct {
	deliveries  []Delivery
	readBefore  event.Sequence // the cursor's position before and after
	readThrough event.Sequence
	blocked     bool // no new event is delivered before a message is answered
	truncated   bool // byteBudget excluded further messages
	locked      bool // another node holds the lock
}

// fetchFrom fetches messages of one legal entity in one transaction.
func (f *fetcher) fetchFrom(ctx context.Context, b ports.DeliveryBacklog, room int) (fetchResult, error) {
	s, uid := f.service, f.sub.UID
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
		result, due, fresh, scanned, bytes, opened = fetchResult{}, nil, nil, 0, 0, false // the function may run again
		if f.status = tx.Status(); f.status != subscription.Active || tx.Revision() != f.sub.Revision {
			f.stopped = true
			return nil
		}
		w, err := f.loadWindow(ctx, tx)
		if err != nil {
			return err
		}
		cursor := tx.Cursor()
		result.readBefore, result.readThrough = cursor.ReadThrough, cursor.ReadThrough
		if w.Expire() {
			if opened, err = s.countFailures(ctx, tx, f.sub, w); err != nil {
				return err
			}
		}
		if !opened {
			free := min(room, f.sub.Settings.MaxInFlight-f.inFlightElsewhere-w.Count(subscription.Leased))
			if due, bytes, result.truncated, err = f.claimDue(ctx, tx, w, max(free, 0)); err != nil {
				return err
			}
			result.blocked = w.IsBlocked()
			if free -= len(due); free > 0 && !result.blocked && !result.truncated {
				if fresh, scanned, err = f.readNew(ctx, tx, w, &cursor, free, len(due), &bytes, &result); err != nil {
					return err
				}
			}
			result.readThrough = cursor.ReadThrough
		}
		counts = w.Counts
		return saveWindow(ctx, tx, cursor, w, &f.sub.Settings, result.readThrough != result.readBefore)
	})
	unlock()
	if err != nil {
		return fetchResult{}, err
	}
	if !ran {
		result.locked = true
		return result, nil
	}
	f.scanBudget -= max(scanned, 1)
	f.byteBudget -= bytes
	f.hasMessages = f.hasMessages || len(due)+len(fresh) > 0
	s.observe(f.sub, counts)
	if opened {
		f.stopped, f.status = true, subscription.Parked
		s.config.Observer.SubscriptionBreaker(f.sub.TenantID, f.sub.ID)
	}
	if result.deliveries, err = s.loadEvents(ctx, b.Partition, due, f.sight); err != nil {
		return result, err
	}
	result.deliveries = append(result.deliveries, fresh...) // new events follow all due messages
	return result, nil
}

// maxBlockedKeys is how many delivered messages, and keys that they block, a query excludes by
// name. For more of them, all open messages are read.
const maxBlockedKeys = 200

// loadWindow reads the delivered messages if loadWaiting can find the remaining ones by their
// keys, and all open messages otherwise.
func (f *fetcher) loadWindow(ctx context.Context, tx ports.DeliveryTx) (*subscription.Window, error) {
	if f.ownsKey != nil || f.sub.Settings.PartitionBy == subscription.PerLegalEntity {
		return openWindow(ctx, tx, f.sub)
	}
	delivered, err := tx.Delivered(ctx)
	if err != nil {
		return nil, err
	}
	if len(delivered) > maxBlockedKeys {
		return openWindow(ctx, tx, f.sub)
	}
	return subscription.NewPartialWindow(f.sub.Settings, tx.Now(), delivered), nil
}

// loadWaiting adds waiting messages to a partial window until it has enough to deliver. If it
// finds fewer, the keys of all messages that it did not add are blocked, so later events of
// those keys must wait too.
func loadWaiting(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, room int) error {
	page := 2*room + 50
	for after := event.Sequence(0); ; {
		except := w.BlockedKeys()
		if len(except) > maxBlockedKeys {
			except, page = nil, maxWaiting // read all at once
		}
		more, err := tx.Waiting(ctx, after, except, page)
		if err != nil {
			return err
		}
		w.Add(more)
		parked, err := tx.ParkedKeys(ctx, w.ClaimableKeys())
		if err != nil {
			return err
		}
		w.BlockKeys(parked)
		if len(more) < page || len(w.Claimable(room, nil)) >= room {
			return nil
		}
		after = more[len(more)-1].Sequence
	}
}

// claimDue delivers stored messages that are due, up to the bytes that are left.
func (f *fetcher) claimDue(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, room int) (claimed []subscription.Message, bytes int, truncated bool, err error) {
	parked, err := tx.ParkedKeys(ctx, w.ClaimableKeys())
	if err != nil {
		return nil, 0, false, err
	}
	w.BlockKeys(parked)
	if w.IsPartial() && room > 0 {
		if err := loadWaiting(ctx, tx, w, room); err != nil {
			return nil, 0, false, err
		}
	}
	wanted := w.Claimable(room, f.ownsKey)
	if len(wanted) == 0 {
		return nil, 0, false, nil
	}
	sizes, err := tx.Sizes(ctx, wanted)
	if err != nil {
		return nil, 0, false, err
	}
	fitting := 0
	for _, n := range wanted {
		if !f.fitsBudget(bytes+sizes[n], fitting) {
			break
		}
		bytes += sizes[n]
		fitting++
	}
	return w.Claim(f.consumer, fitting, f.ownsKey), bytes, fitting < len(wanted), nil
}

// fitsBudget reports whether an answer may contain so many bytes of this legal entity, after
// before messages of it. The first message of a poll always fits.
func (f *fetcher) fitsBudget(bytes, before int) bool {
	return bytes <= f.byteBudget || before == 0 && !f.hasMessages
}

// minReadBytes is how many bytes one step may read from the log even if fewer may be answered,
// because the filter may exclude most of them.
const minReadBytes = 1 << 20

// readNew admits events that were not read yet, in one step of the log. before counts the
// messages of this legal entity that the answer has already.
func (f *fetcher) readNew(ctx context.Context, tx ports.DeliveryTx, w *subscription.Window, cursor *ports.DeliveryCursor, room, before int, bytes *int, result *fetchResult) (deliveries []Delivery, scanned int, err error) {
	step := maxScanStep
	if f.sub.Filter.SelectsAll() {
		if step = min(room, maxScanStep); f.sub.Settings.PartitionBy != subscription.PerLegalEntity {
			step = min(2*room+50, maxScanStep) // some of them may have to wait
		}
	}
	events, err := tx.EventsAfter(ctx, cursor.ReadThrough, step, max(f.byteBudget-*bytes, min(minReadBytes, f.service.config.MaxBytes)), f.sub.Filter.EventTypes)
	if err != nil || len(events) == 0 {
		return nil, 0, err
	}
	var candidates []subscription.Candidate
	bySequence := make(map[event.Sequence]*event.Recorded, len(events))
	total := *bytes
	for i := range events {
		e := &events[i]
		if !f.sight.Sees(e.Type) || !f.sub.Filter.Matches(e, f.moduleOf) {
			continue
		}
		if total += len(e.Payload); !f.fitsBudget(total, before+len(candidates)) {
			events, result.truncated = events[:i], true
			break
		}
		candidates = append(candidates, subscription.Candidate{Sequence: e.Sequence, EventID: e.ID, Key: f.sub.Settings.KeyOf(e)})
		bySequence[e.Sequence] = e
	}
	parked, err := tx.ParkedKeys(ctx, w.CandidateKeys(candidates))
	if err != nil {
		return nil, 0, err
	}
	w.BlockKeys(parked)
	waiting := w.Count(subscription.Waiting)
	if w.IsPartial() {
		if waiting, err = tx.CountWaiting(ctx); err != nil {
			return nil, 0, err
		}
	}
	admitted, count := w.Admit(candidates, f.consumer, room, maxWaiting-waiting, f.ownsKey)
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

// loadEvents reads the events of stored messages from the log, as erasures and redactions have
// left them. A message whose type the owner sees no longer is not delivered: its lease expires
// until it becomes a dead letter.
func (s *Service) loadEvents(ctx context.Context, p event.PartitionID, messages []subscription.Message, sight module.Sight) ([]Delivery, error) {
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
		if e := bySequence[m.Sequence]; e != nil && sight.Sees(e.Type) {
			out = append(out, Delivery{Event: *e, Attempt: m.Attempts, Deadline: m.Due})
		}
	}
	return out, nil
}

// countFailures adds the window's failures to the breaker's count.
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
