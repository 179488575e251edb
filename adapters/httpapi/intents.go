package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Intents is the intent pipeline: pipeline.Service.
type Intents interface {
	Submit(ctx context.Context, caller pipeline.Caller, req pipeline.Request) (pipeline.Outcome, error)
	List(ctx context.Context, r pipeline.ListRequest) (pipeline.List, error)
	Segregation(ctx context.Context, r pipeline.SegregationRequest) (pipeline.SegregationReport, error)
	Get(ctx context.Context, le ports.LegalEntity, id event.ID) (intent.Intent, pipeline.Outcome, error)
	Approve(ctx context.Context, approver pipeline.Caller, d pipeline.Decision) (pipeline.Outcome, error)
	Reject(ctx context.Context, approver pipeline.Caller, d pipeline.Decision) (pipeline.Outcome, error)
	Withdraw(ctx context.Context, requester pipeline.Caller, d pipeline.Decision) (pipeline.Outcome, error)
	BuildFile(ctx context.Context, caller pipeline.Caller, req pipeline.FileRequest) (module.BuiltFile, error)
	RefuseDecision(ctx context.Context, caller pipeline.Caller, d pipeline.Decision, attempt string, refusal error) error
}

var intentHandlers = handlers{
	"submitIntent":      withBody((*Server).submitIntent),
	"listIntents":       (*Server).listIntents,
	"reportSegregation": (*Server).reportSegregation,
	"getIntent":         (*Server).getIntent,
	"approveIntent":     withBody((*Server).approveIntent),
	"rejectIntent":      withBody((*Server).rejectIntent),
	"withdrawIntent":    withBody((*Server).withdrawIntent),
}

// submitIntent answers POST /api/intents.
func (s *Server) submitIntent(ctx context.Context, r *request, body *api.IntentRequest) (any, error) {
	switch {
	case body.Type == "":
		return nil, missingMember("/type")
	case body.LegalEntity == "":
		return nil, missingMember("/legal_entity")
	}
	le, err := s.authorizeIn(ctx, actionSubmitIntent, body.LegalEntity, tenancy.TypeAccess{Type: body.Type})
	if err != nil {
		return nil, pointAtMember(err, "/legal_entity")
	}
	if err := checkObject(body.Payload, "/payload"); err != nil {
		return nil, err
	}
	req := pipeline.Request{
		Type: body.Type, LegalEntity: le, Payload: body.Payload, CorrelationID: body.CorrelationID, DryRun: body.DryRun,
		IdempotencyKey: r.idempotencyKey(),
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
	req.AllowUnknownCause = body.AllowUnknownCause
	if body.CausedByLegalEntity != "" {
		if req.CausedByPartition, err = s.partitionOfCause(ctx, body.CausedBy, body.CausedByLegalEntity); err != nil {
			return nil, err
		}
	}
	sight, err := module.SightOf(ctx) // before the intent is executed, so that a failure is that of the request
	if err != nil {
		return nil, err
	}
	out, err := s.config.Intents.Submit(ctx, callerOf(ctx), req)
	if err != nil {
		return nil, err
	}
	out.Drafts = slices.DeleteFunc(out.Drafts, func(d event.Draft) bool { return !sight.Sees(d.Type) })
	a, err := outcomeAnswer(statusOf(out), out)
	if err != nil || !body.DryRun {
		return a, err
	}
	// Drafts may carry sealed values of read models and events.
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
	rules, err := encode(nonNil(o.Rules))
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
	return replyReplayed(status, out, o.Replayed)
}

func intentEvents(results []ports.AppendedEvent) []api.IntentEvent {
	return convert(results, func(e ports.AppendedEvent) api.IntentEvent {
		return api.IntentEvent{
			ID: e.ID.String(), Type: e.Type, Sequence: numberText(e.Sequence), Stream: e.Stream.String(), StreamVersion: int64(e.StreamVersion),
		}
	})
}

func needAnswers(needs []intent.ApprovalNeed) []api.ApprovalNeed {
	return convert(needs, func(n intent.ApprovalNeed) api.ApprovalNeed {
		return api.ApprovalNeed{Roles: nonNil(n.Roles), Reason: n.Reason, RuleID: n.RuleID}
	})
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
func (s *Server) getIntent(ctx context.Context, r *request) (any, error) {
	var stored intent.Intent
	var outcome pipeline.Outcome
	if err := s.findByID(ctx, r, actionReadIntents, codeIntentNotFound, func(le ports.LegalEntity, id event.ID) (err error) {
		stored, outcome, err = s.config.Intents.Get(ctx, le, id)
		return err
	}); err != nil {
		return nil, err
	}
	answers, err := s.intentAnswers(ctx, []intent.Intent{stored}, []pipeline.Outcome{outcome})
	if err != nil {
		return nil, err
	}
	answers[0].Names, err = s.namesOf(ctx, personsOf(&stored))
	return answers[0], err
}

// personsOf returns the ids of those who submitted an intent and decided about it; they may repeat.
func personsOf(in *intent.Intent) []string {
	return append(convert(in.Approvals, func(a intent.Approval) string { return a.PersonID }), in.PersonID)
}

// intentAnswers renders intents with their payloads as the caller may read them, which it opens in
// place and together. Each intent has its outcome.
func (s *Server) intentAnswers(ctx context.Context, intents []intent.Intent, outcomes []pipeline.Outcome) ([]api.Intent, error) {
	if err := s.openIntents(ctx, intents); err != nil {
		return nil, err
	}
	var causes map[event.PartitionID]string
	if slices.ContainsFunc(intents, func(in intent.Intent) bool { return in.CausedByPartition != 0 }) {
		var err error
		if _, causes, err = s.visiblePartitions(ctx); err != nil {
			return nil, err
		}
	}
	answers := make([]api.Intent, len(intents))
	for i := range intents {
		var err error
		if answers[i], err = intentAnswer(&intents[i], outcomes[i], causes); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func intentAnswer(stored *intent.Intent, outcome pipeline.Outcome, causes map[event.PartitionID]string) (api.Intent, error) {
	rules, err := encode(nonNil(outcome.Rules))
	return api.Intent{
		IntentID: stored.ID.String(), Type: stored.Type, LegalEntity: stored.LegalEntity, Status: string(stored.Status), Payload: stored.Payload, PayloadRedacted: outcome.Redacted,
		Actor: actorAnswer(stored.Actor), Events: intentEvents(outcome.Events), Rules: rules, CorrelationID: stored.CorrelationID,
		CausedBy: idText(stored.CausedBy), CausedByLegalEntity: causes[stored.CausedByPartition], Documents: stored.Documents,
		PlanHash: stored.PlanHash, Needs: needAnswers(stored.Needs), Revision: stored.Revision,
		Approvals: convert(stored.Approvals, approvalAnswer), Refusal: refusalAnswer(stored), EffectiveDate: effectiveDate(stored),
		CreatedAt: timeText(stored.CreatedAt), UpdatedAt: timeText(stored.UpdatedAt),
	}, err
}

func approvalAnswer(a intent.Approval) api.Approval {
	return api.Approval{
		PersonID: a.PersonID, ActorID: a.ActorID, Role: a.Role, Decision: a.Decision, PlanHash: a.PlanHash, Comment: a.Comment, At: timeText(a.At),
	}
}

func refusalAnswer(in *intent.Intent) api.Refusal {
	if f := in.Refusal; f != nil {
		return api.Refusal{Code: f.Code, Kind: f.Kind, Detail: f.Detail, Rule: f.Rule}
	}
	return api.Refusal{}
}

func effectiveDate(in *intent.Intent) string {
	if !in.HasEffectiveDate {
		return ""
	}
	return in.EffectiveDate.String()
}

// maxAgeHours is about a hundred years.
const maxAgeHours = 1_000_000

// listIntents answers GET /api/intents.
func (s *Server) listIntents(ctx context.Context, r *request) (any, error) {
	caller := callerOf(ctx)
	q := pipeline.ListRequest{
		TenantID: caller.Principal.TenantID, LegalEntity: r.query("legal_entity"), Cursor: r.query("cursor"),
		Direction: r.direction(), Limit: r.pageLimit("limit"),
		MinAge: time.Duration(r.integer("min_age_hours", 1, maxAgeHours, 0, "a number of hours from 1 to 1000000")) * time.Hour,
		Filter: pipeline.ListFilter{
			Status: intent.Status(r.query("status")), Types: r.list("type"), Actor: r.query("actor"), Role: r.query("role"), Document: r.query("document"),
			From: r.moment("submitted_from", false), To: r.moment("submitted_to", true),
		},
	}
	if status := q.Filter.Status; status != "" && !slices.Contains(intent.Statuses, status) {
		r.fail(invalidParameter("status", "a status of a stored intent such as pending_approval"))
	}
	if r.flag("waiting_for_me") {
		q.Approver = &caller
	}
	if (q.Approver != nil || q.Filter.Role != "") && q.Filter.Status != "" && q.Filter.Status != intent.PendingApproval {
		r.fail(invalidParameter("status", "pending_approval with role or waiting_for_me, or left out"))
	}
	if r.err != nil {
		return nil, r.err
	}
	var err error
	if q.LegalEntities, err = s.legalEntitiesToSearch(ctx, r, actionReadIntents); err != nil {
		return nil, err
	}
	found, err := s.config.Intents.List(ctx, q)
	if err != nil {
		return nil, err
	}
	var persons []string
	for i := range found.Intents {
		persons = append(persons, personsOf(&found.Intents[i])...)
	}
	names, err := s.namesOf(ctx, persons)
	return api.IntentList{
		Names: names,
		Intents: convert(found.Intents, func(in intent.Intent) api.IntentSummary {
			return api.IntentSummary{
				IntentID: in.ID.String(), Type: in.Type, LegalEntity: in.LegalEntity, Status: string(in.Status), Actor: actorAnswer(in.Actor),
				RequestedBy: in.PersonID, EffectiveDate: effectiveDate(&in), CorrelationID: in.CorrelationID, Documents: in.Documents, PlanHash: in.PlanHash,
				Needs: needAnswers(in.Needs), Approvals: convert(in.Approvals, approvalAnswer), Refusal: refusalAnswer(&in), Revision: in.Revision,
				CreatedAt: timeText(in.CreatedAt), UpdatedAt: timeText(in.UpdatedAt),
			}
		}),
		HasMore: found.NextCursor != "", NextCursor: found.NextCursor,
	}, err
}

// legalEntitiesToSearch is the legal entity that the request names, or all that the caller may
// see.
func (s *Server) legalEntitiesToSearch(ctx context.Context, r *request, action string) ([]ports.LegalEntity, error) {
	code := r.query("legal_entity")
	if code == "" {
		return s.visibleLegalEntities(ctx)
	}
	le, err := s.authorizeIn(ctx, action, code)
	return []ports.LegalEntity{le}, err
}

// reportSegregation answers GET /api/sod/report.
func (s *Server) reportSegregation(ctx context.Context, r *request) (any, error) {
	q := pipeline.SegregationRequest{Person: r.query("person"), From: r.moment("from", false), To: r.moment("to", true)}
	if r.err != nil {
		return nil, r.err
	}
	var err error
	if q.LegalEntities, err = s.legalEntitiesToSearch(ctx, r, "sod.read"); err != nil {
		return nil, err
	}
	report, err := s.config.Intents.Segregation(ctx, q)
	if err != nil {
		return nil, err
	}
	names, err := s.namesOf(ctx, append(
		convert(report.Refusals, func(a pipeline.RefusedAttempts) string { return a.ActorID }),
		convert(report.Steps, func(d pipeline.DocumentSteps) string { return d.ActorID })...))
	return api.SegregationReport{
		Names: names,
		Refusals: convert(report.Refusals, func(a pipeline.RefusedAttempts) api.RefusedAttempts {
			return api.RefusedAttempts{
				LegalEntity: a.LegalEntity, ActorID: a.ActorID, IntentType: a.IntentType, Attempt: a.Attempt, Code: a.Code, Rule: a.Rule, Times: a.Times,
				FirstAt: timeText(a.First), LastAt: timeText(a.Last), LastIntent: a.LastIntent.String(), Documents: a.Documents,
			}
		}),
		Steps: convert(report.Steps, func(d pipeline.DocumentSteps) api.DocumentSteps {
			return api.DocumentSteps{
				LegalEntity: d.LegalEntity, ActorID: d.ActorID, Document: d.Document,
				Steps: convert(d.Steps, func(p pipeline.Step) api.SegregationStep {
					return api.SegregationStep{EventID: p.Event.String(), Type: p.Type, IntentID: idText(p.Intent), RecordedAt: timeText(p.Recorded)}
				}),
			}
		}),
	}, err
}

// approveIntent answers POST /api/intents/{id}/approve.
func (s *Server) approveIntent(ctx context.Context, r *request, body *api.ApproveRequest) (any, error) {
	if err := checkText("/comment", body.Comment); err != nil {
		return nil, err
	}
	d := pipeline.Decision{PlanHash: body.PlanHash, Comment: body.Comment}
	out, err := s.decideIntent(ctx, r, "intents.approve", d, s.config.Intents.Approve)
	if err != nil {
		return nil, err
	}
	return outcomeAnswer(statusOf(out), out)
}

// rejectIntent answers POST /api/intents/{id}/reject.
func (s *Server) rejectIntent(ctx context.Context, r *request, body *api.RejectRequest) (any, error) {
	return s.endIntent(ctx, r, "intents.approve", body, s.config.Intents.Reject)
}

// withdrawIntent answers POST /api/intents/{id}/withdraw.
func (s *Server) withdrawIntent(ctx context.Context, r *request, body *api.RejectRequest) (any, error) {
	return s.endIntent(ctx, r, actionSubmitIntent, body, s.config.Intents.Withdraw)
}

func (s *Server) endIntent(ctx context.Context, r *request, action string, body *api.RejectRequest, decision intentDecision) (any, error) {
	if strings.TrimSpace(body.Reason) == "" {
		return nil, missingMember("/reason")
	}
	if err := checkText("/reason", body.Reason); err != nil {
		return nil, err
	}
	out, err := s.decideIntent(ctx, r, action, pipeline.Decision{Comment: body.Reason}, decision)
	if err != nil {
		return nil, err
	}
	return outcomeAnswer(http.StatusOK, out)
}

type intentDecision func(context.Context, pipeline.Caller, pipeline.Decision) (pipeline.Outcome, error)

// decideIntent finds the intent and records the caller's decision about it.
func (s *Server) decideIntent(ctx context.Context, r *request, action string, d pipeline.Decision, decision intentDecision) (out pipeline.Outcome, err error) {
	d.IdempotencyKey = r.idempotencyKey()
	err = s.findByID(ctx, r, action, codeIntentNotFound, func(le ports.LegalEntity, id event.ID) (err error) {
		d.LegalEntity, d.Intent = le, id
		out, err = decision(ctx, callerOf(ctx), d)
		return err
	})
	return out, err
}

const actionReadIntents = "intents.read"

// decisions are the operations that decide on a waiting intent, and what they attempt.
var decisions = map[string]string{"approveIntent": "approve", "rejectIntent": "reject", "withdrawIntent": "withdraw"}

// refuseDecision answers a caller whose roles allow no such decision with the refusal, which it
// records if the caller sees the intent and it waits. It reads no body. Each attempt takes a place
// among the caller's requests in flight, as one that is allowed does.
func (s *Server) refuseDecision(ctx context.Context, r *request, attempt string, refusal error) error {
	if checkAddress(r.c.Request().URL) != nil {
		return refusal
	}
	p := callOf(ctx).principal
	ticket, err := s.admission.enter(admitted{p.TenantID, p.PrincipalID}, 0)
	if err != nil {
		return err
	}
	defer ticket.leave()
	if err = s.config.Access.Authorize(ctx, p, actionAnywhere(actionReadIntents)); err == nil {
		err = s.findByID(ctx, r, actionReadIntents, codeIntentNotFound, func(le ports.LegalEntity, id event.ID) error {
			return s.config.Intents.RefuseDecision(ctx, callerOf(ctx), pipeline.Decision{LegalEntity: le, Intent: id}, attempt, refusal)
		})
	}
	switch fault.KindOf(err) {
	case fault.Forbidden, fault.NotFound, fault.FailedPrecondition:
		return refusal
	default: // whether the caller sees it could not be found out
		return err
	}
}

// maxTextBytes bounds comments and reasons, in bytes.
const maxTextBytes = 2000

func checkText(pointer, text string) error {
	if len(text) > maxTextBytes {
		return fault.New(fault.TooLarge, "request.text_too_long", "this text may have %d bytes; shorten it", maxTextBytes).WithField(pointer)
	}
	return nil
}
