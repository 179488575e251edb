package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

var subscriptionMessageHandlers = handlers{
	"pollSubscription":      (*Server).pollSubscription,
	"acknowledgeEvents":     withBody((*Server).acknowledgeEvents),
	"refuseEvents":          withBody((*Server).refuseEvents),
	"listParkedMessages":    (*Server).listParkedMessages,
	"listParkedGroups":      (*Server).listParkedGroups,
	"getParkedMessage":      (*Server).getParkedMessage,
	"replayParkedMessages":  withBody((*Server).replayParkedMessages),
	"discardParkedMessages": withBody((*Server).discardParkedMessages),
	"listParkedDecisions":   (*Server).listParkedDecisions,
}

// pollSubscription answers GET /api/subscriptions/{id}/poll.
func (s *Server) pollSubscription(ctx context.Context, r request) (response, error) {
	limit, err := parsePageLimit(r.query("limit"))
	if err != nil {
		return nil, err
	}
	wait := 0
	if r.query("wait_ms") != "" {
		if wait, err = strconv.Atoi(r.query("wait_ms")); err != nil || wait < 0 || milliseconds(wait) > subscriptions.MaxWait {
			return nil, invalidParameter("wait_ms", "a number from 0 to 30000")
		}
	}
	service, _, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	batch, err := service.Poll(ctx, callOf(ctx).principal, subscriptions.Poll{ID: r.path("id"), Consumer: r.query("consumer"), Limit: limit, Wait: milliseconds(wait)})
	if err != nil {
		return nil, err
	}
	recorded := make([]event.Recorded, len(batch.Deliveries))
	for i := range batch.Deliveries {
		recorded[i] = batch.Deliveries[i].Event
	}
	w, shown, err := s.render(ctx, recorded)
	if err != nil {
		s.giveBack(ctx, service, r.path("id"), batch.Deliveries, err)
		return nil, err
	}
	w.raw(`{"events":[`)
	for i := range shown {
		if i > 0 {
			w.raw(",")
		}
		if err := w.event(&shown[i]); err != nil {
			return nil, err
		}
		// An event is an object: the delivery is its last member.
		w.b = bytes.TrimSuffix(w.b, []byte("}"))
		w.raw(`,"delivery":{"attempt":`)
		w.b = strconv.AppendInt(w.b, int64(batch.Deliveries[i].Attempt), 10)
		w.time("deadline", batch.Deliveries[i].Deadline)
		w.raw("}}")
	}
	w.raw(`],"has_more":`)
	w.b = strconv.AppendBool(w.b, batch.HasMore)
	w.member("status", string(batch.Status))
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

// giveBackTimeout bounds giveBack, which runs even if the caller has left.
const giveBackTimeout = 5 * time.Second

// giveBack undoes deliveries that the server could not render, such as while the keys
// are unavailable: their attempts must not count, or messages that no consumer saw would
// become dead letters. If it fails too, the deliveries expire.
func (s *Server) giveBack(ctx context.Context, service Subscriptions, id string, list []subscriptions.Delivery, cause error) {
	switch fault.KindOf(cause) {
	case fault.Unavailable, fault.Timeout, fault.TooMany:
	default:
		if ctx.Err() == nil {
			return // the messages cannot be rendered: they must become dead letters
		}
	}
	p := callOf(ctx).principal
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err := service.Requeue(ctx, p, id, list); err != nil {
		s.log.WarnContext(ctx, "messages that could not be shown wait until their leases end", "subscription", id, "code", fault.CodeOf(err))
	}
}

// eventIDs reads a list of ids.
func eventIDs(texts []string, pointer string) ([]event.ID, error) {
	out := make([]event.ID, len(texts))
	for i, text := range texts {
		var err error
		if out[i], err = event.ParseID(text); err != nil {
			return nil, fault.New(fault.Invalid, "subscription.answer_invalid", "an event id has 26 characters; send those that a poll brought").WithField(pointer + "/" + strconv.Itoa(i))
		}
	}
	return out, nil
}

// acknowledgeEvents answers POST /api/subscriptions/{id}/acknowledge.
func (s *Server) acknowledgeEvents(ctx context.Context, r request, body *api.Acknowledge) (response, error) {
	b := body
	a := subscriptions.Acknowledgement{ID: r.path("id"), Consumer: b.Consumer, LegalEntity: b.LegalEntity}
	var err error
	if a.EventIDs, err = eventIDs(b.EventIds, "/event_ids"); err != nil {
		return nil, err
	}
	if len(a.EventIDs) > 0 && (b.EventID != "" || b.Sequence != "") {
		return nil, fault.New(fault.Invalid, "subscription.answer_invalid", "name one event by event_id, sequence and legal_entity, or several by event_ids, not both").WithField("/event_ids")
	}
	if b.EventID != "" {
		if a.EventID, err = event.ParseID(b.EventID); err != nil {
			return nil, fault.New(fault.Invalid, "subscription.answer_invalid", "an event id has 26 characters; send one that a poll brought").WithField("/event_id")
		}
	}
	if b.Sequence != "" {
		n, err := strconv.ParseUint(b.Sequence, 10, 63)
		if err != nil {
			return nil, fault.New(fault.Invalid, "subscription.answer_invalid", "a sequence is a number in quotes; send that of the event").WithField("/sequence")
		}
		a.Sequence = event.Sequence(n)
	}
	service, _, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	out, err := service.Acknowledge(ctx, callOf(ctx).principal, a)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.Acknowledged{Acknowledged: out.Applied, Ignored: ignoredAnswers(out.Ignored)})
}

// refuseEvents answers POST /api/subscriptions/{id}/nack.
func (s *Server) refuseEvents(ctx context.Context, r request, body *api.Nack) (response, error) {
	b := body
	n := subscriptions.Refusal{ID: r.path("id"), Consumer: b.Consumer, LegalEntity: b.LegalEntity, Action: subscription.Refusal(b.Action), Code: b.Code, Reason: b.Reason}
	var err error
	if n.EventIDs, err = eventIDs(b.EventIds, "/event_ids"); err != nil {
		return nil, err
	}
	service, _, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	out, err := service.Refuse(ctx, callOf(ctx).principal, n)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.Refused{Refused: out.Applied, Ignored: ignoredAnswers(out.Ignored)})
}

func ignoredAnswers(all []subscriptions.Ignored) []api.IgnoredEvent {
	out := make([]api.IgnoredEvent, len(all))
	for i, x := range all {
		out[i] = api.IgnoredEvent{EventID: x.EventID.String(), Reason: string(x.Reason)}
	}
	return out
}

// listParkedMessages answers GET /api/subscriptions/{id}/parked.
func (s *Server) listParkedMessages(ctx context.Context, r request) (response, error) {
	limit, err := parsePageLimit(r.query("limit"))
	if err != nil {
		return nil, err
	}
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	page, err := service.DeadLetters(ctx, caller, r.path("id"), subscriptions.DeadLetterQuery{LegalEntity: r.query("legal_entity"), Code: r.query("code"), After: r.query("cursor"), Limit: limit})
	if err != nil {
		return nil, err
	}
	out := api.ParkedList{Messages: make([]api.ParkedMessage, len(page.DeadLetters)), HasMore: page.Next != "", NextCursor: page.Next}
	for i := range page.DeadLetters {
		out.Messages[i] = parkedAnswer(&page.DeadLetters[i])
	}
	return reply(http.StatusOK, out)
}

func parkedAnswer(m *subscriptions.DeadLetter) api.ParkedMessage {
	return api.ParkedMessage{
		LegalEntity: m.LegalEntity, Sequence: numberText(m.Sequence), EventID: m.EventID.String(), Consumer: m.Consumer, Attempts: m.Attempts,
		Code: m.Code, Detail: m.Detail, ParkedAt: timeText(m.ChangedAt), LastDeliveredAt: optionalTime(m.DeliveredAt),
	}
}

// listParkedGroups answers GET /api/subscriptions/{id}/parked/groups.
func (s *Server) listParkedGroups(ctx context.Context, r request) (response, error) {
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := service.DeadLetterGroups(ctx, caller, r.path("id"))
	if err != nil {
		return nil, err
	}
	out := api.ParkedGroupList{Groups: make([]api.ParkedGroup, len(groups))}
	for i, g := range groups {
		out.Groups[i] = api.ParkedGroup{Code: g.Code, Messages: g.Messages, FirstParkedAt: timeText(g.First), LastParkedAt: timeText(g.Last)}
	}
	return reply(http.StatusOK, out)
}

// getParkedMessage answers GET /api/subscriptions/{id}/parked/{event_id}. Whoever may read
// the event sees it too, opened for them.
func (s *Server) getParkedMessage(ctx context.Context, r request) (response, error) {
	id, err := parseID(r.path("event_id"), "subscription.message_not_found")
	if err != nil {
		return nil, err
	}
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	m, err := service.DeadLetter(ctx, caller, r.path("id"), id)
	if err != nil {
		return nil, err
	}
	head, err := encode(parkedAnswer(&m))
	if err != nil {
		return nil, err
	}
	var found []event.Recorded
	switch err := s.config.Access.Authorize(ctx, caller.Principal, tenancy.Action{Name: actionReadEvents, LegalEntity: m.LegalEntity}); {
	case err == nil:
		le, err := s.config.Access.LegalEntity(ctx, caller.Principal.TenantID, m.LegalEntity)
		if err != nil {
			return nil, err
		}
		e, err := s.config.Events.ByID(ctx, le, id)
		if err != nil {
			return nil, err
		}
		found = append(found, e)
	case fault.KindOf(err) != fault.Forbidden:
		return nil, err
	}
	w, shown, err := s.render(ctx, found)
	if err != nil {
		return nil, err
	}
	w.bytes(bytes.TrimSuffix(head, []byte("}")))
	if len(shown) > 0 {
		w.raw(`,"event":`)
		if err := w.event(&shown[0]); err != nil {
			return nil, err
		}
	}
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

// replayParkedMessages answers POST /api/subscriptions/{id}/parked/replay.
func (s *Server) replayParkedMessages(ctx context.Context, r request, body *api.SettleParked) (response, error) {
	return s.settleParked(ctx, r.path("id"), body, Subscriptions.Replay)
}

// discardParkedMessages answers POST /api/subscriptions/{id}/parked/discard.
func (s *Server) discardParkedMessages(ctx context.Context, r request, body *api.SettleParked) (response, error) {
	return s.settleParked(ctx, r.path("id"), body, Subscriptions.Discard)
}

type settleMethod func(s Subscriptions, ctx context.Context, c subscriptions.Caller, id string, q subscriptions.DeadLetterQuery, reason string) (subscriptions.DeadLetterResult, error)

func (s *Server) settleParked(ctx context.Context, id string, b *api.SettleParked, settle settleMethod) (answer, error) {
	q := subscriptions.DeadLetterQuery{LegalEntity: b.LegalEntity, Code: b.Code, Limit: defaultPage}
	var err error
	if q.EventIDs, err = eventIDs(b.EventIds, "/event_ids"); err != nil {
		return answer{}, err
	}
	if b.All == (len(q.EventIDs) > 0) {
		return answer{}, fault.New(fault.Invalid, "subscription.answer_invalid", "name event_ids, or all: true with a code or legal_entity to narrow it, and not both").WithField("/event_ids")
	}
	if b.Limit != nil {
		if q.Limit = *b.Limit; q.Limit < 1 || q.Limit > maxPage {
			return answer{}, fault.New(fault.Invalid, "subscription.answer_invalid", "a step is 1 to 1000 messages; correct the limit").WithField("/limit")
		}
	}
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return answer{}, err
	}
	out, err := settle(service, ctx, caller, id, q, b.Reason)
	if err != nil {
		return answer{}, err
	}
	return reply(http.StatusOK, api.SettledParked{Messages: out.Messages, HasMore: out.HasMore})
}

// listParkedDecisions answers GET /api/subscriptions/{id}/decisions.
func (s *Server) listParkedDecisions(ctx context.Context, r request) (response, error) {
	limit, err := parsePageLimit(r.query("limit"))
	if err != nil {
		return nil, err
	}
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	all, codes, err := service.Decisions(ctx, caller, r.path("id"), limit)
	if err != nil {
		return nil, err
	}
	out := api.ParkedDecisionList{Decisions: make([]api.ParkedDecision, len(all))}
	for i := range all {
		out.Decisions[i] = decisionAnswer(&all[i], codes[all[i].Partition])
	}
	return reply(http.StatusOK, out)
}

func decisionAnswer(d *ports.ParkedDecision, legalEntity string) api.ParkedDecision {
	return api.ParkedDecision{
		ID: d.ID.String(), Action: d.Action, LegalEntity: legalEntity, Sequence: numberText(d.Sequence), EventID: d.EventID.String(),
		Actor: d.Actor, Reason: d.Reason, Code: d.Code, At: timeText(d.At),
	}
}

// subscriptionAnswer is a definition with its state.
func subscriptionAnswer(s *subscription.Subscription) api.Subscription {
	out := api.Subscription{
		ID: s.ID, SubscriberType: s.SubscriberType, SubscriberID: s.SubscriberID, Owner: s.Owner, Status: string(s.Status),
		EventTypes: s.Filter.EventTypes, LegalEntities: s.Filter.LegalEntities, Modules: s.Filter.Modules, Divisions: s.Filter.Divisions,
		Tags: s.Filter.Tags, StreamTypes: s.Filter.StreamTypes,
		Settings: settingsAnswer(&s.Settings), CreatedAt: timeText(s.CreatedAt), UpdatedAt: timeText(s.UpdatedAt),
		FailuresInARow: s.Failures, LastFailureCode: s.LastFailure.Code, LastFailureAt: optionalTime(s.LastFailure.At),
	}
	if p := s.Filter.Predicate; p != nil {
		out.Predicate = api.SubscriptionPredicate{Path: pathText(p.Path), Operator: string(p.Operator), Value: string(p.Value)}
	}
	return out
}

// pathText writes a predicate's path as it is read.
func pathText(steps []string) string {
	var b strings.Builder
	b.WriteString("$")
	for _, step := range steps {
		if step != event.EachElement {
			b.WriteString(".")
		}
		b.WriteString(step)
	}
	return b.String()
}

func settingsAnswer(s *subscription.Settings) api.SubscriptionSettings {
	retries, breaker := max(s.MaxRetries, 0), max(s.BreakerAfter, 0)
	out := api.SubscriptionSettings{
		StartFrom: string(s.Start.From), StartTime: optionalTime(s.Start.Time), StartCursor: s.Start.Cursor, MessageTimeoutMs: int(s.MessageTimeout.Milliseconds()),
		MaxRetryCount: &retries, BreakerAfter: &breaker, CheckpointAfter: s.CheckpointAfter, MaxCheckpointCount: s.MaxInFlight,
		ConsumerStrategy: string(s.ConsumerStrategy), PartitionBy: s.PartitionBy,
		RetryFirstMs: int(s.RetryFirst.Milliseconds()), RetryLongestMs: int(s.RetryLongest.Milliseconds()),
	}
	for code, n := range s.Start.Positions {
		if out.StartPositions == nil {
			out.StartPositions = map[string]string{}
		}
		out.StartPositions[code] = numberText(n)
	}
	return out
}

func subscriptionStatusAnswer(s *subscriptions.Status) api.SubscriptionStatus {
	d := subscriptionAnswer(&s.Subscription)
	out := api.SubscriptionStatus{
		Subscription: d, LagEvents: int(s.LagEvents), LagSeconds: float32(s.LagAge.Seconds()), InFlight: s.InFlight, Waiting: s.Waiting, Parked: s.Parked,
		Statistics: statisticsAnswer(&s.Counts), Cursors: make([]api.SubscriptionCursor, len(s.Progress)),
	}
	for i := range s.Progress {
		p := &s.Progress[i]
		out.Cursors[i] = api.SubscriptionCursor{
			LegalEntity: p.LegalEntity, ReadThrough: numberText(p.ReadThrough), Checkpoint: numberText(p.Checkpoint), Head: numberText(p.Head),
			LagEvents: int(p.LagEvents), LagSeconds: float32(p.LagAge.Seconds()), InFlight: p.InFlight, Waiting: p.Waiting, Parked: p.Parked,
			UpdatedAt: timeText(p.UpdatedAt),
		}
	}
	return out
}

func statisticsAnswer(c *subscription.Counts) api.SubscriptionStatistics {
	return api.SubscriptionStatistics{
		Delivered: int(c.Delivered), Acknowledged: int(c.Acknowledged), Retried: int(c.Retried), TimedOut: int(c.TimedOut),
		Parked: int(c.Parked), Skipped: int(c.Skipped), Discarded: int(c.Discarded), Replayed: int(c.Replayed),
	}
}
