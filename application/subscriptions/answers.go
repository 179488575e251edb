package subscriptions

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Acknowledgement names the events that a subscriber has processed: one event and all that
// were delivered before it in its legal entity, or a list of events.
type Acknowledgement struct {
	ID       string
	Consumer string // only messages that this consumer got; "": of any consumer

	LegalEntity string // with EventIDs it may be left out
	EventID     event.ID
	Sequence    event.Sequence
	EventIDs    []event.ID
}

// Refusal names the events that a subscriber could not process.
type Refusal struct {
	ID          string
	Consumer    string
	LegalEntity string // "": of any legal entity
	EventIDs    []event.ID
	Action      subscription.Refusal
	Code        string // groups failures; "" is subscription.CodeNack
	Reason      string // in words, for people; no personal data
}

// AnswerResult is the outcome of an answer. Ignored messages were not changed.
type AnswerResult struct {
	Applied int
	Ignored []Ignored
}

// Ignored is an event that an answer did not apply to.
type Ignored struct {
	EventID event.ID
	Reason  subscription.Outcome
}

// maxAnswers bounds the events of one answer.
const maxAnswers = 10_000

// Acknowledge ends messages. Messages that were acknowledged before or not delivered are
// reported as ignored. Faults: subscription.not_found,
// subscription.answer_invalid, subscription.not_handed_out, event.not_found,
// legal_entity.not_found.
func (s *Service) Acknowledge(ctx context.Context, p ports.Principal, a Acknowledgement) (AnswerResult, error) {
	sub, err := s.findOwned(ctx, p, a.ID)
	if err != nil {
		return AnswerResult{}, err
	}
	if len(a.EventIDs) > 0 {
		return s.answer(ctx, p, &sub, a.LegalEntity, a.EventIDs, func(w *subscription.Window, n event.Sequence) subscription.Outcome {
			return w.Acknowledge(n, a.Consumer)
		}, nil)
	}
	if a.Sequence == 0 || a.EventID == (event.ID{}) || a.LegalEntity == "" {
		return AnswerResult{}, fault.New(fault.Invalid, "subscription.answer_invalid", "name an event by event_id, sequence and legal_entity, or several by event_ids")
	}
	le, err := s.entity(ctx, p, a.LegalEntity)
	if err != nil {
		return AnswerResult{}, err
	}
	e, err := s.config.Log.EventByID(ctx, le.Partition, a.EventID)
	if err != nil {
		return AnswerResult{}, err
	}
	if e.Sequence != a.Sequence {
		return AnswerResult{}, fault.New(fault.Invalid, "subscription.answer_invalid", "the event has another sequence in this legal entity; send id and sequence of the same event").WithField("/sequence")
	}
	var out AnswerResult
	var counts subscription.Counts
	err = s.withLock(ctx, sub.UID, le.Partition, func(ctx context.Context, tx ports.DeliveryTx) error {
		c := tx.Cursor()
		if a.Sequence > c.ReadThrough {
			return fault.New(fault.Conflict, "subscription.not_handed_out", "this event was not delivered yet; acknowledge what a poll returned").
				With("read_through", sequenceText(c.ReadThrough))
		}
		w, err := deliveredWindow(ctx, tx, &sub)
		if err != nil {
			return err
		}
		out.Applied = w.AcknowledgeThrough(a.Sequence, a.Consumer)
		counts = w.Counts
		return saveAnswer(ctx, s, tx, &sub, w)
	})
	return s.finishAnswer(&sub, out, counts, err)
}

func (s *Service) finishAnswer(sub *subscription.Subscription, out AnswerResult, counts subscription.Counts, err error) (AnswerResult, error) {
	if err != nil {
		return AnswerResult{}, err
	}
	s.observe(sub, counts)
	s.wakeUps.wake(sub.UID)
	return out, nil
}

// openWindow reads the open messages of a locked cursor.
func openWindow(ctx context.Context, tx ports.DeliveryTx, sub *subscription.Subscription) (*subscription.Window, error) {
	open, err := tx.Open(ctx)
	if err != nil {
		return nil, err
	}
	return subscription.NewWindow(sub.Settings, tx.Now(), open), nil
}

// deliveredWindow reads only the delivered messages, which a subscriber may answer or let time
// out. Any number of messages may wait behind them.
func deliveredWindow(ctx context.Context, tx ports.DeliveryTx, sub *subscription.Subscription) (*subscription.Window, error) {
	delivered, err := tx.Delivered(ctx)
	if err != nil {
		return nil, err
	}
	return subscription.NewPartialWindow(sub.Settings, tx.Now(), delivered), nil
}

// saveAnswer stores a window and counts its failures for the breaker.
func saveAnswer(ctx context.Context, s *Service, tx ports.DeliveryTx, sub *subscription.Subscription, w *subscription.Window) error {
	var err error
	switch {
	case w.Succeeded:
		err = tx.Succeed(ctx)
	case w.Failures > 0:
		var opened bool
		if opened, err = s.countFailures(ctx, tx, sub, w); opened {
			s.config.Observer.SubscriptionBreaker(sub.TenantID, sub.ID)
		}
	}
	if err != nil {
		return err
	}
	return saveWindow(ctx, tx, tx.Cursor(), w, &sub.Settings, false)
}

var failureCode = regexp.MustCompile(`^[a-z0-9][a-z0-9_.:-]{0,63}$`)

// codeWords replaces the separators of a code by blanks.
var codeWords = strings.NewReplacer("_", " ", ".", " ", ":", " ", "-", " ")

// personalCode reports whether a code, or a word of it, looks like personal data. It checks
// capital letters, because codes have small ones and account numbers capital ones.
func personalCode(code string) bool {
	upper := strings.ToUpper(code)
	return shredding.PersonalPattern(upper) != "" || shredding.CheckText("/code", codeWords.Replace(upper)) != nil
}

// Refuse answers messages with a failure: they are retried later, parked, or skipped. Faults:
// as Acknowledge, and subscription.reason_invalid,
// pii.in_text.
func (s *Service) Refuse(ctx context.Context, p ports.Principal, r Refusal) (AnswerResult, error) {
	switch r.Action {
	case subscription.RetryLater, subscription.Park, subscription.Skip:
	default:
		return AnswerResult{}, fault.New(fault.Invalid, "subscription.answer_invalid", "the action is retry, park or skip; correct it").WithField("/action")
	}
	if r.Code == "" {
		r.Code = subscription.CodeNack
	}
	if !failureCode.MatchString(r.Code) || personalCode(r.Code) {
		return AnswerResult{}, fault.New(fault.Invalid, "subscription.reason_invalid", "a code has 1 to 64 small letters, digits, and _ . : -, and no value of the event; correct it").WithField("/code")
	}
	if err := checkReason(r.Reason); err != nil {
		return AnswerResult{}, err
	}
	if len(r.EventIDs) == 0 {
		return AnswerResult{}, fault.New(fault.Invalid, "subscription.answer_invalid", "name the events by event_ids").WithField("/event_ids")
	}
	sub, err := s.findOwned(ctx, p, r.ID)
	if err != nil {
		return AnswerResult{}, err
	}
	refuse := func(w *subscription.Window, n event.Sequence) subscription.Outcome {
		return w.Refuse(n, r.Consumer, r.Action, r.Code, r.Reason)
	}
	if r.Action != subscription.Skip {
		return s.answer(ctx, p, &sub, r.LegalEntity, r.EventIDs, refuse, nil)
	}
	return s.answer(ctx, p, &sub, r.LegalEntity, r.EventIDs, refuse, func(partition event.PartitionID) *messageDecision {
		if heads, _ := s.config.Heads.Heads(); heads[partition].Administrative {
			return nil // each record would be one more event there to be skipped
		}
		return s.messageDecision(p, &sub, partition, "skip", r.Reason)
	})
}

const maxReason = 500

// checkReason refuses a reason that looks like personal data, because it is stored.
func checkReason(reason string) error {
	if len(reason) > maxReason {
		return fault.New(fault.Invalid, "subscription.reason_invalid", "a reason has at most 500 bytes; shorten it").WithField("/reason")
	}
	return shredding.CheckText("/reason", reason)
}

// messageDecision records, once, a decision about messages of one partition: a transaction may run
// again, and then records only what it did not record before.
type messageDecision struct {
	ports.MessageDecision
	decisions ports.SubscriptionDecisions
	recorded  map[event.Sequence]bool
}

func (s *Service) messageDecision(p ports.Principal, sub *subscription.Subscription, partition event.PartitionID, action, reason string) *messageDecision {
	return &messageDecision{
		ports.MessageDecision{Subscription: sub, Partition: partition, Action: action, Reason: reason, By: p}, s.config.Decisions, map[event.Sequence]bool{},
	}
}

func (d *messageDecision) record(ctx context.Context, messages []subscription.Message) error {
	d.Messages = slices.DeleteFunc(slices.Clone(messages), func(m subscription.Message) bool { return d.recorded[m.Sequence] })
	if len(d.Messages) == 0 {
		return nil
	}
	if err := d.decisions.DecideMessages(ctx, d.MessageDecision); err != nil {
		return err
	}
	for _, m := range d.Messages {
		d.recorded[m.Sequence] = true
	}
	return nil
}

// answerFunc applies an answer to one message of a window.
type answerFunc func(*subscription.Window, event.Sequence) subscription.Outcome

// decisionFunc makes the decision about the messages of a partition that an answer applies to.
type decisionFunc func(event.PartitionID) *messageDecision

// answer applies an answer to the events in all partitions in which they are open. decide
// makes the decision that is recorded about the messages that the answer applied to; nil: none.
func (s *Service) answer(ctx context.Context, p ports.Principal, sub *subscription.Subscription, legalEntity string, ids []event.ID, apply answerFunc, decide decisionFunc) (AnswerResult, error) {
	if len(ids) > maxAnswers {
		return AnswerResult{}, fault.New(fault.Invalid, "subscription.answer_invalid", "an answer names at most 10,000 events; send several").WithField("/event_ids")
	}
	wanted := make(map[event.ID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	var only event.PartitionID
	if legalEntity != "" {
		le, err := s.entity(ctx, p, legalEntity)
		if err != nil {
			return AnswerResult{}, err
		}
		only = le.Partition
	}
	outcomes := map[event.ID]subscription.Outcome{}
	var total subscription.Counts
	visited := map[event.PartitionID]bool{}
	// Messages that are not open may be parked.
	for _, list := range []func(context.Context, *subscription.Subscription, event.PartitionID, []event.ID) ([]event.PartitionID, error){s.partitionsWithOpen, s.partitionsWithParked} {
		if len(outcomes) == len(wanted) {
			break
		}
		partitions, err := list(ctx, sub, only, ids)
		if err != nil {
			return AnswerResult{}, err
		}
		for _, partition := range partitions {
			if visited[partition] || len(outcomes) == len(wanted) {
				continue
			}
			visited[partition] = true
			found, counts, err := s.answerPartition(ctx, sub, partition, ids, wanted, apply, decide)
			if err != nil {
				return AnswerResult{}, err
			}
			total.Add(counts)
			maps.Copy(outcomes, found)
		}
	}
	out := AnswerResult{Ignored: []Ignored{}}
	for _, id := range ids {
		switch outcome, found := outcomes[id]; {
		case !found:
			out.Ignored = append(out.Ignored, Ignored{id, subscription.NotOutstanding})
		case outcome == subscription.Applied:
			out.Applied++
			outcomes[id] = subscription.NotOutstanding // for an id that is named twice
		default:
			out.Ignored = append(out.Ignored, Ignored{id, outcome})
		}
	}
	return s.finishAnswer(sub, out, total, nil)
}

// answerPartition applies an answer to the events that are open in one partition, and reports
// those that are parked there.
func (s *Service) answerPartition(ctx context.Context, sub *subscription.Subscription, partition event.PartitionID, ids []event.ID, wanted map[event.ID]bool, apply answerFunc, decide decisionFunc) (found map[event.ID]subscription.Outcome, counts subscription.Counts, err error) {
	var decision *messageDecision
	if decide != nil {
		decision = decide(partition)
	}
	err = s.withLock(ctx, sub.UID, partition, func(ctx context.Context, tx ports.DeliveryTx) error {
		found = map[event.ID]subscription.Outcome{} // the function may run again
		w, open, err := windowOf(ctx, tx, sub, ids)
		if err != nil {
			return err
		}
		var decided []subscription.Message
		for _, m := range slices.Clone(open) {
			if !wanted[m.EventID] {
				continue
			}
			outcome := apply(w, m.Sequence)
			if found[m.EventID] = outcome; outcome == subscription.Applied {
				decided = append(decided, m)
			}
		}
		if len(found) < len(wanted) && tx.Cursor().Parked > 0 {
			dead, err := tx.Parked(ctx, ports.ParkedQuery{EventIDs: ids, Limit: maxAnswers})
			if err != nil {
				return err
			}
			for _, m := range dead {
				found[m.EventID] = subscription.AlreadyParked
			}
		}
		counts = w.Counts
		if decision != nil {
			if err := decision.record(ctx, decided); err != nil {
				return err
			}
		}
		return saveAnswer(ctx, s, tx, sub, w)
	})
	return found, counts, err
}

// Requeue undoes deliveries that did not reach the consumer: they are repeated, and no attempt
// is counted. Messages that were answered or delivered again since then stay as they are.
func (s *Service) Requeue(ctx context.Context, p ports.Principal, id string, list []Delivery) error {
	sub, err := s.findOwned(ctx, p, id)
	if err != nil {
		return err
	}
	in := map[event.PartitionID][]Delivery{}
	for _, d := range list {
		in[d.Event.Partition] = append(in[d.Event.Partition], d)
	}
	for partition, of := range in {
		err := s.withLock(ctx, sub.UID, partition, func(ctx context.Context, tx ports.DeliveryTx) error {
			w, err := deliveredWindow(ctx, tx, &sub)
			if err != nil {
				return err
			}
			for _, d := range of {
				w.Requeue(d.Event.Sequence, d.Attempt)
			}
			return saveWindow(ctx, tx, tx.Cursor(), w, &sub.Settings, false)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxNamedEvents is how many events of an answer are read by id. For more events, all open
// messages are read.
const maxNamedEvents = 100

// windowOf reads the open messages of an answer's events; for many events, all open messages.
func windowOf(ctx context.Context, tx ports.DeliveryTx, sub *subscription.Subscription, ids []event.ID) (w *subscription.Window, open []subscription.Message, err error) {
	if len(ids) > maxNamedEvents {
		if open, err = tx.Open(ctx); err != nil {
			return nil, nil, err
		}
		return subscription.NewWindow(sub.Settings, tx.Now(), open), open, nil
	}
	if open, err = tx.OpenByEvent(ctx, ids); err != nil {
		return nil, nil, err
	}
	return subscription.NewPartialWindow(sub.Settings, tx.Now(), open), open, nil
}

// partitionsWithOpen lists the partitions in which one of the events is open or, for many
// events, any message is, so that no lock of another partition is waited for. only limits it
// to one partition; 0: all.
func (s *Service) partitionsWithOpen(ctx context.Context, sub *subscription.Subscription, only event.PartitionID, ids []event.ID) ([]event.PartitionID, error) {
	if len(ids) > maxNamedEvents {
		return s.filterPartitions(ctx, sub, only, func(b *ports.DeliveryBacklog) bool { return b.FirstOpen > 0 })
	}
	var in []event.PartitionID
	if only > 0 {
		in = append(in, only)
	}
	return s.config.Store.PartitionsWithOpen(ctx, sub.UID, in, ids)
}

// partitionsWithParked lists the partitions in which anything is parked.
func (s *Service) partitionsWithParked(ctx context.Context, sub *subscription.Subscription, only event.PartitionID, _ []event.ID) ([]event.PartitionID, error) {
	return s.filterPartitions(ctx, sub, only, func(b *ports.DeliveryBacklog) bool { return b.Parked > 0 })
}

// filterPartitions lists the partitions whose backlog meets a condition. only limits it to one
// partition; 0: all.
func (s *Service) filterPartitions(ctx context.Context, sub *subscription.Subscription, only event.PartitionID, holds func(*ports.DeliveryBacklog) bool) (out []event.PartitionID, err error) {
	backlogs, err := s.config.Store.Backlogs(ctx, sub.UID)
	for i := range backlogs {
		if b := &backlogs[i]; holds(b) && (only == 0 || only == b.Partition) {
			out = append(out, b.Partition)
		}
	}
	return out, err
}

// entity finds a legal entity that the caller may see.
func (s *Service) entity(ctx context.Context, p ports.Principal, code string) (ports.LegalEntity, error) {
	all, err := s.config.Access.Visible(ctx, p)
	if err != nil {
		return ports.LegalEntity{}, err
	}
	for _, le := range all {
		if le.Code == code {
			return le, nil
		}
	}
	return ports.LegalEntity{}, fault.New(fault.NotFound, "legal_entity.not_found", "there is no such legal entity that you may see; GET /api/admin/legal-entities lists them").WithField("legal_entity")
}
