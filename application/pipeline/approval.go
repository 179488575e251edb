package pipeline

import (
	"context"
	"crypto/sha256"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Get reads a stored intent that the caller sees, and its outcome. The payload's personal values stay
// sealed; module.Opener opens them at module.LocationOf. The payload is {} once the outcome is Redacted,
// because it repeats what was redacted. Fault intent.not_found.
func (s *Service) Get(ctx context.Context, le ports.LegalEntity, id event.ID) (intent.Intent, Outcome, error) {
	stored, err := s.load(ctx, le, id)
	if err != nil {
		return intent.Intent{}, Outcome{}, err
	}
	out, err := s.LoadOutcome(ctx, stored)
	if err == nil {
		out.Redacted, err = s.Intents.HasRedactions(ctx, &stored)
	}
	if out.Redacted {
		stored.Payload = emptyPayload
	}
	return stored, out, err
}

// load reads a stored intent. One of a module that the caller, a service, is not bound to looks
// like none.
func (s *Service) load(ctx context.Context, le ports.LegalEntity, id event.ID) (intent.Intent, error) {
	stored, err := s.Intents.Intent(ctx, le.Partition, id)
	if err != nil {
		return intent.Intent{}, err
	}
	sight, err := module.SightOf(ctx)
	if err == nil && !sight.Owns(stored.Type) {
		err = intent.NotFound(id)
	}
	return stored, err
}

// Decision is one person's approval or rejection of a parked intent.
type Decision struct {
	LegalEntity    ports.LegalEntity
	Intent         event.ID
	PlanHash       string // of the plan that the approver has read; "" accepts the stored plan
	Comment        string // of an approval, or the reason of a rejection
	IdempotencyKey string
}

// Approve records an approval and executes the intent once no need is left. While needs are
// left, the outcome is pending_approval.
//
// The approver must be a person, must not be the requester (nor the person that the
// requester acted for), must not have decided on this intent before, and must have one of
// the roles of a need that is still unmet. The same holds for Reject.
//
// The intent is planned again on fresh state. If its hash differs from the approved plan's,
// because the drafts or any module's policies have changed, the new hash and needs are stored
// and Approve fails with intent.plan_changed. Only this approval is dropped: approvals that
// were recorded for an earlier plan are kept with that plan's hash and still count for their
// needs. A changed plan whose needs they all meet, or that has none, is executed at once
// without this approval, as a submission would be.
//
// Every other fault leaves the intent parked and this approval unrecorded. The approver may
// try again, which helps after conflicts that outlasted the retries and after intent.changed
// (another decision was written first; Approve does not retry it). Further faults:
// intent.not_found, intent.wrong_state, intent.type_unknown, intent.approval_needs_person,
// sod.same_person, intent.forbidden, intent.idempotency_mismatch,
// pii.in_text (the comment is never erased), pii.subject_erased if a person of the
// payload was erased since the submission (only Reject can end the intent then), those of
// module.Opener, and every fault of executing.
func (s *Service) Approve(ctx context.Context, approver Caller, d Decision) (Outcome, error) {
	if err := shredding.CheckText("/comment", d.Comment); err != nil {
		return Outcome{}, err
	}
	claim, err := s.newDecisionClaim(ctx, approver, d, "approve")
	if err != nil {
		return Outcome{}, err
	}
	a, role, err := s.loadForDecision(ctx, approver, d.LegalEntity, d.Intent)
	if err == nil {
		err = a.findType()
	}
	if err != nil {
		return s.replayOrRefuse(ctx, d, claim, a, "approve", err)
	}
	a.idempotency = claim
	if d.PlanHash != "" && d.PlanHash != a.stored.PlanHash {
		return Outcome{}, planChangedFault(d.Intent, a.stored.PlanHash)
	}
	if err := a.openPayload(ctx); err != nil {
		return Outcome{}, err
	}
	approvedHash := a.stored.PlanHash
	undecided := *a // without this approval
	a.stored.Approvals = append(slices.Clip(a.stored.Approvals), intent.Approval{
		PersonID: approver.Principal.PersonID, ActorID: approver.Actor.ID, Role: role, Decision: "approved",
		PlanHash: approvedHash, Comment: d.Comment, At: event.Micros(s.Clock.Now()),
	})
	out, err := a.planAndApply(ctx, func(ctx context.Context, p planned) (Outcome, error) {
		if err := a.setPlanHash(ctx, &p); err != nil {
			return Outcome{}, err
		}
		if p.hash != approvedHash {
			return Outcome{}, planChangedFault(d.Intent, p.hash)
		}
		return a.parkOrExecute(ctx, p)
	})
	if fault.CodeOf(err) == codePlanChanged {
		out, err = undecided.applyChangedPlan(ctx)
	}
	if err != nil {
		undecided.recordRefusedDecision(ctx, "approve", err)
	}
	return out, a.redactError(err, true)
}

// applyChangedPlan plans a parked intent again without a further approval. It parks the new
// plan and fails with intent.plan_changed; a plan without an unmet need is executed, as at
// a submission: parked, no role could decide on it.
func (a *attempt) applyChangedPlan(ctx context.Context) (Outcome, error) {
	return a.planAndApply(ctx, func(ctx context.Context, p planned) (Outcome, error) {
		if len(unmetNeeds(p.answer.Needs, a.stored.Approvals)) == 0 {
			return a.execute(ctx, p)
		}
		parked := *a             // with what the planning set
		parked.idempotency = nil // the approval is not stored, so its key stays free
		out, err := parked.parkForApproval(ctx, p)
		if err == nil {
			err = planChangedFault(a.stored.ID, out.PlanHash)
		}
		return Outcome{}, err
	})
}

// newDecisionClaim ties a decision to its idempotency key; nil without one. Unlike reserveKey
// it reserves nothing: of two decisions at the same moment the append lets one through.
func (s *Service) newDecisionClaim(ctx context.Context, approver Caller, d Decision, verb string) (*ports.IdempotencyClaim, error) {
	if d.IdempotencyKey == "" {
		return nil, nil
	}
	key, err := concurrency.ScopeIdempotencyKey(approver.Principal.PersonID, "intents/"+verb, d.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	claim := &ports.IdempotencyClaim{Key: key, ExpiresAt: s.Clock.Now().Add(s.KeyTTL)}
	digest := sha256.Sum256([]byte(d.Intent.String() + "|" + d.PlanHash + "|" + d.Comment))
	return claim, module.SetFingerprint(ctx, s.Fingerprints, d.LegalEntity.TenantID, claim, digest, false)
}

// replayOrRefuse answers a decision that was refused before it was planned: with the intent's
// present outcome if the decision was made before under the same key, else with the refusal,
// which it records. a is nil if the intent does not wait.
func (s *Service) replayOrRefuse(ctx context.Context, d Decision, claim *ports.IdempotencyClaim, a *attempt, verb string, refusal error) (Outcome, error) {
	if claim != nil {
		replay, err := s.lookUpReplay(ctx, d.LegalEntity.Partition, claim)
		if err != nil {
			return Outcome{}, err
		}
		if replay != nil {
			return *replay, nil
		}
	}
	if a != nil {
		a.recordRefusedDecision(ctx, verb, refusal)
	}
	return Outcome{}, refusal
}

const (
	codePlanChanged = "intent.plan_changed"
	codeSamePerson  = "sod.same_person"
	codeForbidden   = "intent.forbidden"
)

func planChangedFault(id event.ID, currentHash string) error {
	return fault.New(fault.Conflict, codePlanChanged,
		"the state has changed and the plan with it; read the intent again and approve the new plan").
		With("plan_hash", currentHash).WithIntent(id.String())
}

// Reject ends a parked intent. It neither plans nor opens the payload, so it also ends an
// intent that can no longer be executed, such as one of a module that is disabled. Faults as
// Approve, without those of planning and executing.
func (s *Service) Reject(ctx context.Context, approver Caller, d Decision) (Outcome, error) {
	if err := shredding.CheckText("/reason", d.Comment); err != nil {
		return Outcome{}, err
	}
	claim, err := s.newDecisionClaim(ctx, approver, d, "reject")
	if err != nil {
		return Outcome{}, err
	}
	a, role, err := s.loadForDecision(ctx, approver, d.LegalEntity, d.Intent)
	if err != nil {
		return s.replayOrRefuse(ctx, d, claim, a, "reject", err)
	}
	a.idempotency = claim
	return a.end(ctx, intent.Rejected, intent.Approval{
		PersonID: approver.Principal.PersonID, ActorID: approver.Actor.ID, Role: role, Decision: "rejected", Comment: d.Comment,
	})
}

// Withdraw takes a parked intent back, as its requester: the person who submitted it, or for
// whom it was submitted. Faults: intent.not_found, intent.wrong_state, intent.not_requester
// (Forbidden), intent.changed if a decision was written first, intent.idempotency_mismatch,
// pii.in_text.
func (s *Service) Withdraw(ctx context.Context, requester Caller, d Decision) (Outcome, error) {
	if err := shredding.CheckText("/reason", d.Comment); err != nil {
		return Outcome{}, err
	}
	claim, err := s.newDecisionClaim(ctx, requester, d, "withdraw")
	if err != nil {
		return Outcome{}, err
	}
	a, err := s.loadWaiting(ctx, requester, d.LegalEntity, d.Intent)
	if err == nil && !isRequester(requester, a.stored) {
		err = fault.New(fault.Forbidden, "intent.not_requester", "only its requester may withdraw an intent; one who may approve it can reject it").WithIntent(d.Intent.String())
	}
	if err != nil {
		return s.replayOrRefuse(ctx, d, claim, a, "withdraw", err)
	}
	a.idempotency = claim
	return a.end(ctx, intent.Withdrawn, intent.Approval{
		PersonID: requester.Principal.PersonID, ActorID: requester.Actor.ID, Decision: "withdrawn", Comment: d.Comment,
	})
}

// RefuseDecision records that the caller attempted to "approve", "reject" or "withdraw" a waiting
// intent without any right to such decisions, and returns the refusal. Nothing is recorded of an
// intent that the caller does not see (intent.not_found) or that does not wait (intent.wrong_state).
func (s *Service) RefuseDecision(ctx context.Context, caller Caller, d Decision, attempt string, refusal error) error {
	a, err := s.loadWaiting(ctx, caller, d.LegalEntity, d.Intent)
	if err != nil {
		return err
	}
	a.recordRefusedDecision(ctx, attempt, refusal)
	return refusal
}

// end ends a parked intent without events of its own. A decision without a person is not
// recorded in the row.
func (a *attempt) end(ctx context.Context, status intent.Status, decision intent.Approval) (Outcome, error) {
	row := a.stored
	row.Status = status
	if decision.PersonID != "" {
		decision.PlanHash, decision.At = row.PlanHash, event.Micros(a.service.Clock.Now())
		row.Approvals = append(slices.Clip(row.Approvals), decision)
	}
	res, err := a.write(ctx, row, outcomeWrite{about: "backbone.intent." + string(status)})
	if err != nil {
		return Outcome{}, err
	}
	if res.Replayed {
		return a.service.replay(ctx, row.Partition, res.Outcome)
	}
	return a.service.LoadOutcome(ctx, row)
}

// loadForDecision loads a parked intent, and checks that approver may decide on it and in which
// role. If the approver may not, it returns the attempt with the fault.
func (s *Service) loadForDecision(ctx context.Context, approver Caller, le ports.LegalEntity, id event.ID) (*attempt, string, error) {
	a, err := s.loadWaiting(ctx, approver, le, id)
	if err != nil {
		return nil, "", err
	}
	role, err := mayDecide(approver, &a.stored)
	return a, role, err
}

// findType finds the intent's type, which planning needs.
func (a *attempt) findType() error {
	t, ok := a.service.Catalog.Intent(a.stored.Type)
	if !ok {
		return fault.New(fault.FailedPrecondition, "intent.type_unknown", "no module of this node plans intents of type %s, so it cannot be approved; reject it, or ask an operator to enable the module again", a.stored.Type).
			WithIntent(a.stored.ID.String())
	}
	a.intentType = t
	return nil
}

// mayDecide checks that a person may decide on a waiting intent and returns the role that the
// decision counts for: one of the person's roles that an unmet need lists, the last one found if
// there are several. sod.same_person names the rule of segregation of duties in its attribute
// "rule": "S2", two approvers of an intent differ; "S8", the approver is not the requester.
func mayDecide(approver Caller, in *intent.Intent) (role string, err error) {
	if approver.Principal.ActorType != event.Human {
		return "", fault.New(fault.Forbidden, "intent.approval_needs_person", "only a person may decide on an intent; use a person's token")
	}
	if isRequester(approver, *in) {
		return "", fault.New(fault.Forbidden, codeSamePerson, "the requester of an intent never approves it; ask another person").
			With("rule", "S8").WithIntent(in.ID.String())
	}
	for _, earlier := range in.Approvals {
		if earlier.PersonID == approver.Principal.PersonID {
			return "", fault.New(fault.Forbidden, codeSamePerson, "you have decided on this intent already; another person must").With("rule", "S2").WithIntent(in.ID.String())
		}
	}
	for _, need := range unmetNeeds(in.Needs, in.Approvals) {
		for _, have := range approver.Principal.Roles {
			if containsOrEmpty(need.Roles, have) {
				role = have
			}
		}
	}
	if role == "" {
		return "", fault.New(fault.Forbidden, codeForbidden, "none of your roles may decide on this intent; it waits for one of those in needs").
			With("needs", in.Needs).WithIntent(in.ID.String())
	}
	return role, nil
}

// loadWaiting loads a parked intent for a write by caller.
func (s *Service) loadWaiting(ctx context.Context, caller Caller, le ports.LegalEntity, id event.ID) (*attempt, error) {
	stored, err := s.load(ctx, le, id)
	if err != nil {
		return nil, err
	}
	if stored.Status != intent.PendingApproval {
		return nil, fault.New(fault.FailedPrecondition, "intent.wrong_state", "the intent is %s, and only one that is pending_approval can be decided; read it to see what became of it", stored.Status).
			With("state", string(stored.Status)).With("allowed_states", []string{string(intent.PendingApproval)}).WithIntent(stored.ID.String())
	}
	a := &attempt{service: s, caller: caller, entity: le, stored: stored, storedApprovals: len(stored.Approvals)}
	if stored.HasEffectiveDate {
		d := stored.EffectiveDate
		a.inputDate = &d
	}
	return a, nil
}

func isRequester(approver Caller, stored intent.Intent) bool {
	p := approver.Principal.PersonID
	if p == stored.PersonID || p == stored.Actor.ID {
		return true
	}
	d := stored.Actor.Details.OnBehalfOf
	return d != nil && d.ID == p
}
