package httpapi

import (
	"bytes"
	"context"
	"strconv"
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
	"listParkedGroups":      withCaller((*Server).listParkedGroups),
	"getParkedMessage":      (*Server).getParkedMessage,
	"replayParkedMessages":  withBody((*Server).replayParkedMessages),
	"discardParkedMessages": withBody((*Server).discardParkedMessages),
	"listParkedDecisions":   (*Server).listParkedDecisions,
}

// pollSubscription answers GET /api/subscriptions/{id}/poll.
func (s *Server) pollSubscription(ctx context.Context, r *request) (any, error) {
	q := subscriptions.Poll{
		ID: r.path("id"), Consumer: r.query("consumer"), Limit: r.pageLimit("limit"),
		Wait: milliseconds(r.integer("wait_ms", 0, int(subscriptions.MaxWait/time.Millisecond), 0, "a number from 0 to 30000")),
	}
	if r.err != nil {
		return nil, r.err
	}
	batch, err := s.config.Subscriptions.Poll(ctx, callOf(ctx).principal, q)
	if err != nil {
		return nil, err
	}
	w, err := s.render(ctx, convert(batch.Deliveries, func(d subscriptions.Delivery) event.Recorded { return d.Event }))
	if err != nil {
		s.requeue(ctx, q.ID, batch.Deliveries, err)
		return nil, err
	}
	w.raw(`{"events":[`)
	for i := range w.prepared {
		if i > 0 {
			w.raw(",")
		}
		w.event(&w.prepared[i])
		// An event is an object: the delivery is its last member.
		w.b = bytes.TrimSuffix(w.b, []byte("}"))
		w.raw(`,"delivery":{"attempt":`)
		w.b = strconv.AppendInt(w.b, int64(batch.Deliveries[i].Attempt), 10)
		w.time("deadline", batch.Deliveries[i].Deadline)
		w.raw("}}")
	}
	w.raw(`]`)
	w.boolean("has_more", batch.HasMore)
	w.member("status", string(batch.Status))
	w.raw("}")
	return w.answer()
}

// requeueTimeout bounds requeue, which runs even if the caller has left.
const requeueTimeout = 5 * time.Second

// requeue undoes deliveries that the server could not render, such as while the keys
// are unavailable: their attempts must not count, or messages that no consumer saw would
// become dead letters. If it fails too, the deliveries expire.
func (s *Server) requeue(ctx context.Context, id string, list []subscriptions.Delivery, cause error) {
	switch fault.KindOf(cause) {
	case fault.Unavailable, fault.Timeout, fault.TooMany:
	default:
		if ctx.Err() == nil {
			return // the messages cannot be rendered: they must become dead letters
		}
	}
	p := callOf(ctx).principal
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
	defer cancel()
	if err := s.config.Subscriptions.Requeue(ctx, p, id, list); err != nil {
		s.log.WarnContext(ctx, "failed to requeue messages that could not be rendered; they are delivered again when their leases expire", "subscription", id, "code", fault.CodeOf(err))
	}
}

func invalidAnswer(pointer, want string) error {
	return fault.New(fault.Invalid, "subscription.answer_invalid", "%s", want).WithField(pointer)
}

// parseEventIDs reads a list of ids.
func parseEventIDs(texts []string, pointer string) ([]event.ID, error) {
	out := make([]event.ID, len(texts))
	for i, text := range texts {
		var err error
		if out[i], err = event.ParseID(text); err != nil {
			return nil, invalidAnswer(pointer+"/"+strconv.Itoa(i), "an event id has 26 characters; send ids that a poll returned")
		}
	}
	return out, nil
}

// acknowledgeEvents answers POST /api/subscriptions/{id}/acknowledge.
func (s *Server) acknowledgeEvents(ctx context.Context, r *request, body *api.Acknowledge) (any, error) {
	a := subscriptions.Acknowledgement{ID: r.path("id"), Consumer: body.Consumer, LegalEntity: body.LegalEntity}
	var err error
	if a.EventIDs, err = parseEventIDs(body.EventIds, "/event_ids"); err != nil {
		return nil, err
	}
	if len(a.EventIDs) > 0 && (body.EventID != "" || body.Sequence != "") {
		return nil, invalidAnswer("/event_ids", "name one event by event_id, sequence and legal_entity, or several by event_ids, not both")
	}
	if body.EventID != "" {
		if a.EventID, err = event.ParseID(body.EventID); err != nil {
			return nil, invalidAnswer("/event_id", "an event id has 26 characters; send one that a poll returned")
		}
	}
	if body.Sequence != "" {
		n, err := strconv.ParseUint(body.Sequence, 10, 63)
		if err != nil {
			return nil, invalidAnswer("/sequence", "a sequence is a number in quotes; send that of the event")
		}
		a.Sequence = event.Sequence(n)
	}
	out, err := s.config.Subscriptions.Acknowledge(ctx, callOf(ctx).principal, a)
	return api.Acknowledged{Acknowledged: out.Applied, Ignored: convert(out.Ignored, ignoredAnswer)}, err
}

// refuseEvents answers POST /api/subscriptions/{id}/nack.
func (s *Server) refuseEvents(ctx context.Context, r *request, body *api.Nack) (any, error) {
	n := subscriptions.Refusal{
		ID: r.path("id"), Consumer: body.Consumer, LegalEntity: body.LegalEntity, Action: subscription.Refusal(body.Action), Code: body.Code, Reason: body.Reason,
	}
	var err error
	if n.EventIDs, err = parseEventIDs(body.EventIds, "/event_ids"); err != nil {
		return nil, err
	}
	out, err := s.config.Subscriptions.Refuse(ctx, callOf(ctx).principal, n)
	return api.Refused{Refused: out.Applied, Ignored: convert(out.Ignored, ignoredAnswer)}, err
}

func ignoredAnswer(e subscriptions.Ignored) api.IgnoredEvent {
	return api.IgnoredEvent{EventID: e.EventID.String(), Reason: string(e.Reason)}
}

// listParkedMessages answers GET /api/subscriptions/{id}/parked.
func (s *Server) listParkedMessages(ctx context.Context, r *request) (any, error) {
	q := subscriptions.DeadLetterQuery{LegalEntity: r.query("legal_entity"), Code: r.query("code"), After: r.query("cursor"), Limit: r.pageLimit("limit")}
	caller, err := s.subscriptionCaller(ctx, r)
	if err != nil {
		return nil, err
	}
	page, err := s.config.Subscriptions.DeadLetters(ctx, caller, r.path("id"), q)
	return api.ParkedList{Messages: convert(page.DeadLetters, parkedAnswer), HasMore: page.Next != "", NextCursor: page.Next}, err
}

func parkedAnswer(m subscriptions.DeadLetter) api.ParkedMessage {
	return api.ParkedMessage{
		LegalEntity: m.LegalEntity, Sequence: numberText(m.Sequence), EventID: m.EventID.String(), Consumer: m.Consumer, Attempts: m.Attempts,
		Code: m.Code, Detail: m.Detail, ParkedAt: timeText(m.ChangedAt), LastDeliveredAt: optionalTime(m.DeliveredAt),
	}
}

// listParkedGroups answers GET /api/subscriptions/{id}/parked/groups.
func (s *Server) listParkedGroups(ctx context.Context, r *request, caller subscriptions.Caller) (any, error) {
	groups, err := s.config.Subscriptions.DeadLetterGroups(ctx, caller, r.path("id"))
	return api.ParkedGroupList{Groups: convert(groups, func(g ports.ParkedGroup) api.ParkedGroup {
		return api.ParkedGroup{Code: g.Code, Messages: g.Messages, FirstParkedAt: timeText(g.First), LastParkedAt: timeText(g.Last)}
	})}, err
}

// getParkedMessage answers GET /api/subscriptions/{id}/parked/{event_id}. A caller who may
// read the event gets it too, with its personal values opened.
func (s *Server) getParkedMessage(ctx context.Context, r *request) (any, error) {
	id, err := parseID(r.path("event_id"), "subscription.message_not_found")
	if err != nil {
		return nil, err
	}
	caller, err := s.subscriptionCaller(ctx, r)
	if err != nil {
		return nil, err
	}
	m, err := s.config.Subscriptions.DeadLetter(ctx, caller, r.path("id"), id)
	if err != nil {
		return nil, err
	}
	head, err := encode(parkedAnswer(m))
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
	w, err := s.render(ctx, found)
	if err != nil {
		return nil, err
	}
	w.bytes(bytes.TrimSuffix(head, []byte("}")))
	if len(w.prepared) > 0 {
		w.name("event")
		w.event(&w.prepared[0])
	}
	w.raw("}")
	return w.answer()
}

// replayParkedMessages answers POST /api/subscriptions/{id}/parked/replay.
func (s *Server) replayParkedMessages(ctx context.Context, r *request, body *api.SettleParked) (any, error) {
	return s.settleParked(ctx, r, body, s.config.Subscriptions.Replay)
}

// discardParkedMessages answers POST /api/subscriptions/{id}/parked/discard.
func (s *Server) discardParkedMessages(ctx context.Context, r *request, body *api.SettleParked) (any, error) {
	return s.settleParked(ctx, r, body, s.config.Subscriptions.Discard)
}

// settleParked passes the selected parked messages to settle: the service's Replay or Discard.
func (s *Server) settleParked(
	ctx context.Context, r *request, b *api.SettleParked,
	settle func(ctx context.Context, c subscriptions.Caller, id string, q subscriptions.DeadLetterQuery, reason string) (subscriptions.DeadLetterResult, error),
) (any, error) {
	q := subscriptions.DeadLetterQuery{LegalEntity: b.LegalEntity, Code: b.Code, Limit: defaultPage}
	var err error
	if q.EventIDs, err = parseEventIDs(b.EventIds, "/event_ids"); err != nil {
		return nil, err
	}
	if b.All == (len(q.EventIDs) > 0) {
		return nil, invalidAnswer("/event_ids", "name event_ids, or all: true with a code or legal_entity to narrow it, and not both")
	}
	if b.Limit != nil {
		if q.Limit = *b.Limit; q.Limit < 1 || q.Limit > maxPage {
			return nil, invalidAnswer("/limit", "a step is 1 to 1000 messages; correct the limit")
		}
	}
	caller, err := s.subscriptionCaller(ctx, r)
	if err != nil {
		return nil, err
	}
	out, err := settle(ctx, caller, r.path("id"), q, b.Reason)
	return api.SettledParked{Messages: out.Messages, HasMore: out.HasMore}, err
}

// listParkedDecisions answers GET /api/subscriptions/{id}/decisions.
func (s *Server) listParkedDecisions(ctx context.Context, r *request) (any, error) {
	limit := r.pageLimit("limit")
	caller, err := s.subscriptionCaller(ctx, r)
	if err != nil {
		return nil, err
	}
	all, codes, err := s.config.Subscriptions.Decisions(ctx, caller, r.path("id"), limit)
	return api.ParkedDecisionList{Decisions: convert(all, func(d ports.ParkedDecision) api.ParkedDecision {
		return api.ParkedDecision{
			ID: d.ID.String(), Action: d.Action, LegalEntity: codes[d.Partition], Sequence: numberText(d.Sequence), EventID: d.EventID.String(),
			Actor: d.Actor, Reason: d.Reason, Code: d.Code, At: timeText(d.At),
		}
	})}, err
}
