package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Intents is the intent pipeline: pipeline.Service.
type Intents interface {
	Submit(ctx context.Context, caller pipeline.Caller, req pipeline.Request) (pipeline.Outcome, error)
	Get(ctx context.Context, le ports.LegalEntity, id event.ID) (intent.Intent, pipeline.Outcome, error)
	Approve(ctx context.Context, approver pipeline.Caller, d pipeline.Decision) (pipeline.Outcome, error)
	Reject(ctx context.Context, approver pipeline.Caller, d pipeline.Decision) (pipeline.Outcome, error)
}

var intentHandlers = handlers{
	"submitIntent":  withBody((*Server).submitIntent),
	"getIntent":     (*Server).getIntent,
	"approveIntent": withBody((*Server).approveIntent),
	"rejectIntent":  withBody((*Server).rejectIntent),
}

// submitIntent answers POST /api/intents.
func (s *Server) submitIntent(ctx context.Context, r request, body *api.IntentRequest) (response, error) {
	switch {
	case body.Type == "":
		return nil, missingMember("/type")
	case body.LegalEntity == "":
		return nil, missingMember("/legal_entity")
	}
	le, err := s.authorizeIn(ctx, "intents.submit", body.LegalEntity)
	if err != nil {
		return nil, pointAtMember(err, "/legal_entity")
	}
	if err := checkObject(body.Payload, "/payload"); err != nil {
		return nil, err
	}
	req := pipeline.Request{
		Type: body.Type, LegalEntity: le, Payload: body.Payload, CorrelationID: body.CorrelationID, DryRun: body.DryRun,
		IdempotencyKey: r.header("Idempotency-Key"),
		Source:         event.Source{System: body.Source.System, Channel: body.Source.Channel, Reference: body.Source.Reference},
	}
	if req.Source == (event.Source{}) {
		req.Source = event.Source{System: "backbone", Channel: "api"}
	}
	if body.EffectiveDate != "" {
		d, err := event.ParseDate(body.EffectiveDate)
		if err != nil {
			return nil, fault.New(fault.Invalid, "intent.effective_date_invalid", "effective_date is an ISO date such as 2026-03-31; correct it").WithField("/effective_date")
		}
		req.EffectiveDate = &d
	}
	if body.CausedBy != "" {
		if req.CausedBy, err = event.ParseID(body.CausedBy); err != nil {
			return nil, invalidCause("/caused_by")
		}
	}
	out, err := s.config.Intents.Submit(ctx, callerOf(ctx), req)
	if err != nil {
		return nil, err
	}
	a, err := outcomeAnswer(statusOf(out), out)
	if err != nil {
		return nil, err
	}
	// The drafts of a dry run may carry sealed values of read models and events.
	a.body, err = s.openSealedValues(ctx, le.Partition, a.body)
	return a, err
}

// statusOf is 200 for a request that changed nothing, 202 for an intent that waits for
// approval, 201 for an executed one. A rejection answers 200 without asking statusOf.
func statusOf(o pipeline.Outcome) int {
	switch {
	case o.Replayed || o.Status == intent.Planned:
		return http.StatusOK
	case o.Status == intent.PendingApproval:
		return http.StatusAccepted
	default:
		return http.StatusCreated
	}
}

func outcomeAnswer(status int, o pipeline.Outcome) (answer, error) {
	rules, err := encode(list(o.Rules))
	if err != nil {
		return answer{}, err
	}
	out := api.IntentOutcome{
		IntentID: o.IntentID.String(), Status: string(o.Status), Events: intentEvents(o.Events), Rules: rules,
		CorrelationID: o.CorrelationID, PlanHash: o.PlanHash,
	}
	if o.Status == intent.PendingApproval || o.Status == intent.Planned {
		out.Needs = needAnswers(o.Needs)
	}
	if o.Status == intent.Planned {
		if out.Drafts, err = draftAnswers(o.Drafts); err != nil {
			return answer{}, err
		}
	}
	a, err := reply(status, out)
	a.replayed = o.Replayed
	return a, err
}

func intentEvents(results []pipeline.Result) []api.IntentEvent {
	out := make([]api.IntentEvent, len(results))
	for i, e := range results {
		out[i] = api.IntentEvent{
			ID: e.ID.String(), Type: e.Type, Sequence: numberText(e.Sequence), Stream: e.Stream.String(), StreamVersion: int64(e.StreamVersion),
		}
	}
	return out
}

func needAnswers(needs []intent.ApprovalNeed) []api.ApprovalNeed {
	out := make([]api.ApprovalNeed, len(needs))
	for i, n := range needs {
		out[i] = api.ApprovalNeed{Roles: list(n.Roles), Reason: n.Reason, RuleID: n.RuleID}
	}
	return out
}

func draftAnswers(drafts []event.Draft) ([]api.DraftEvent, error) {
	out := make([]api.DraftEvent, len(drafts))
	for i, d := range drafts {
		data, err := encode(d.Data)
		if err != nil {
			return nil, err
		}
		out[i] = api.DraftEvent{
			Type: d.Type, Stream: d.Stream.String(), EffectiveDate: d.EffectiveDate.String(), Data: json.RawMessage(data),
			Dimensions: d.Dimensions, Entities: entityAnswers(d.Entities), Tags: d.Tags,
		}
		if out[i].Dimensions == nil {
			out[i].Dimensions = map[string]string{}
		}
	}
	return out, nil
}

// getIntent answers GET /api/intents/{id}.
func (s *Server) getIntent(ctx context.Context, r request) (response, error) {
	id, err := parseID(r.path("id"), codeIntentNotFound)
	if err != nil {
		return nil, err
	}
	var stored intent.Intent
	var outcome pipeline.Outcome
	err = s.inLegalEntities(ctx, "intents.read", r.query("legal_entity"), codeIntentNotFound, func(le ports.LegalEntity) (err error) {
		stored, outcome, err = s.config.Intents.Get(ctx, le, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	payload, err := s.openIntent(ctx, stored)
	if err != nil {
		return nil, err
	}
	rules, err := encode(list(outcome.Rules))
	if err != nil {
		return nil, err
	}
	out := api.Intent{
		IntentID: stored.ID.String(), Type: stored.Type, LegalEntity: stored.LegalEntity, Status: string(stored.Status), Payload: payload,
		Actor: actorAnswer(stored.Actor), Events: intentEvents(outcome.Events), Rules: rules, CorrelationID: stored.CorrelationID,
		CausedBy: idText(stored.CausedBy), PlanHash: stored.PlanHash, Needs: needAnswers(stored.Need),
		Approvals: make([]api.Approval, len(stored.Approvals)), Revision: stored.Revision,
		CreatedAt: timeText(stored.CreatedAt), UpdatedAt: timeText(stored.UpdatedAt),
	}
	if stored.HasEffective {
		out.EffectiveDate = stored.EffectiveDate.String()
	}
	for i, a := range stored.Approvals {
		out.Approvals[i] = api.Approval{
			PersonID: a.PersonID, ActorID: a.ActorID, Role: a.Role, Decision: a.Decision, PlanHash: a.PlanHash, Comment: a.Comment, At: timeText(a.At),
		}
	}
	if f := stored.Refusal; f != nil {
		out.Refusal = api.Refusal{Code: f.Code, Kind: f.Kind, Detail: f.Detail}
	}
	return reply(http.StatusOK, out)
}

// approveIntent answers POST /api/intents/{id}/approve.
func (s *Server) approveIntent(ctx context.Context, r request, body *api.ApproveRequest) (response, error) {
	if err := checkText("/comment", body.Comment); err != nil {
		return nil, err
	}
	return s.decide(ctx, r.path("id"), r.query("legal_entity"), func(le ports.LegalEntity, id event.ID) (int, pipeline.Outcome, error) {
		out, err := s.config.Intents.Approve(ctx, callerOf(ctx), pipeline.Decision{LegalEntity: le, Intent: id, PlanHash: body.PlanHash, Comment: body.Comment, IdempotencyKey: r.header("Idempotency-Key")})
		return statusOf(out), out, err
	})
}

// rejectIntent answers POST /api/intents/{id}/reject.
func (s *Server) rejectIntent(ctx context.Context, r request, body *api.RejectRequest) (response, error) {
	if strings.TrimSpace(body.Reason) == "" {
		return nil, missingMember("/reason")
	}
	if err := checkText("/reason", body.Reason); err != nil {
		return nil, err
	}
	return s.decide(ctx, r.path("id"), r.query("legal_entity"), func(le ports.LegalEntity, id event.ID) (int, pipeline.Outcome, error) {
		out, err := s.config.Intents.Reject(ctx, callerOf(ctx), pipeline.Decision{LegalEntity: le, Intent: id, Comment: body.Reason, IdempotencyKey: r.header("Idempotency-Key")})
		return http.StatusOK, out, err
	})
}

// decide finds the intent in the legal entity that is named, or in those that the
// caller may see.
func (s *Server) decide(ctx context.Context, idText, code string, decision func(ports.LegalEntity, event.ID) (int, pipeline.Outcome, error)) (answer, error) {
	id, err := parseID(idText, codeIntentNotFound)
	if err != nil {
		return answer{}, err
	}
	var status int
	var out pipeline.Outcome
	err = s.inLegalEntities(ctx, "intents.approve", code, codeIntentNotFound, func(le ports.LegalEntity) (err error) {
		status, out, err = decision(le, id)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	return outcomeAnswer(status, out)
}

// maxTextBytes bounds comments and reasons, in bytes.
const maxTextBytes = 2000

func checkText(pointer, text string) error {
	if len(text) > maxTextBytes {
		return fault.New(fault.TooLarge, "request.text_too_long", "this text may have %d bytes; shorten it", maxTextBytes).WithField(pointer)
	}
	return nil
}
