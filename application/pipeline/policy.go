package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// actorInput is the actor in a policy's input.
type actorInput struct {
	Type       string   `json:"type"`
	ID         string   `json:"id"`
	Roles      []string `json:"roles"`
	OnBehalfOf string   `json:"on_behalf_of"`
}

type approvalInput struct {
	PersonID string   `json:"person_id"`
	Roles    []string `json:"roles"`
}

type policyInput struct {
	Intent struct {
		Type          string `json:"type"`
		EffectiveDate string `json:"effective_date,omitempty"`
	} `json:"intent"`
	Actor     actorInput      `json:"actor"`
	Facts     any             `json:"facts,omitempty"`
	Approvals []approvalInput `json:"approvals"`
}

// policyAnswer is what a policy's rule decision answers about a plan. module.IntentType.Policy
// tells module authors what it may hold. Attempts share its slices and maps: they are only read.
type policyAnswer struct {
	Outcome string                 `json:"outcome"` // "allow", "deny", "needs_approval"
	Denials []denial               `json:"denials"` // of "deny": at least one
	Needs   []intent.ApprovalNeed  `json:"needs"`   // of "needs_approval": at least one, met or not
	Rules   []event.RuleEvaluation `json:"rules"`
}

type denial struct {
	Code       string         `json:"code"`
	Kind       string         `json:"kind"` // the name of a fault.Kind; see kindByName
	Detail     string         `json:"detail"`
	Attributes map[string]any `json:"attributes"`
}

func (a *attempt) newPolicyInput() policyInput {
	in := policyInput{
		Actor: actorInput{
			Type: string(a.stored.Actor.Type), ID: a.stored.Actor.ID, Roles: append([]string{}, a.stored.Roles...),
		},
		Approvals: []approvalInput{},
	}
	in.Intent.Type = a.stored.Type
	if d := a.stored.Actor.Details.OnBehalfOf; d != nil {
		in.Actor.OnBehalfOf = d.ID
	}
	for _, ap := range a.stored.Approvals {
		in.Approvals = append(in.Approvals, approvalInput{PersonID: ap.PersonID, Roles: []string{ap.Role}})
	}
	return in
}

// checkMaySubmit asks the module's policy whether the actor may submit an intent of this
// type. The answer is cached on this node by intent type, actor type and roles, until the
// process ends or the cache is full, because the policies do not change while a node runs.
// A policy must therefore answer by these three only: the actor's id is in its input, but
// the first actor's answer would serve every other one with the same roles.
func (a *attempt) checkMaySubmit(ctx context.Context) error {
	s := a.service
	roles := slices.Sorted(slices.Values(a.stored.Roles))
	key := a.stored.Type + "|" + string(a.stored.Actor.Type) + "|" + strings.Join(roles, ",")
	s.maySubmitMu.RLock()
	allowed, known := s.maySubmit[key]
	s.maySubmitMu.RUnlock()
	if !known {
		var answer struct {
			Allow  *bool  `json:"allow"`
			Reason string `json:"reason"`
		}
		if err := s.Policies.Decide(ctx, "data."+a.intentType.Policy+".submit", a.newPolicyInput(), &answer); err != nil {
			return err
		}
		if answer.Allow == nil {
			return fault.New(fault.Forbidden, "policy.undecided", "the policy gave no decision on this intent; tell an administrator")
		}
		allowed = *answer.Allow
		s.maySubmitMu.Lock()
		if len(s.maySubmit) > 10_000 {
			clear(s.maySubmit)
		}
		s.maySubmit[key] = allowed
		s.maySubmitMu.Unlock()
	}
	if !allowed {
		return fault.New(fault.Forbidden, codeForbidden, "none of your roles may submit %s; ask an administrator, or a person who has the role", a.stored.Type)
	}
	return nil
}

// askPolicy asks the module's policy about the plan. Faults: the policy's denial;
// policy.undecided if the answer is none of the three outcomes, or contradicts itself: a "deny"
// without denials, a "needs_approval" without needs, an "allow" with needs. So a plan waits
// while it has unmet needs, whatever else the answer says.
func (a *attempt) askPolicy(ctx context.Context, facts any, effective event.Date) (policyAnswer, error) {
	in := a.newPolicyInput()
	in.Intent.EffectiveDate = effective.String()
	if err := a.checkNoPersonalText(facts, "the policy"); err != nil {
		return policyAnswer{}, err
	}
	in.Facts = facts
	var d policyAnswer
	if err := a.service.Policies.Decide(ctx, "data."+a.intentType.Policy+".decision", in, &d); err != nil {
		return policyAnswer{}, err
	}
	switch {
	case d.Outcome == "allow" && len(d.Needs) == 0, d.Outcome == "needs_approval" && len(d.Needs) > 0:
		return d, nil
	case d.Outcome == "deny" && len(d.Denials) > 0:
		return d, denialFault(d)
	}
	return d, fault.New(fault.Forbidden, "policy.undecided", "the policy gave no decision on this intent; tell an administrator")
}

// denialFault turns a policy's denials into one fault. The first denial by code gives
// the fault; with several, all are listed as violations.
func denialFault(d policyAnswer) error {
	denials := slices.SortedStableFunc(slices.Values(d.Denials), func(a, b denial) int { return strings.Compare(a.Code, b.Code) })
	first := denials[0]
	f := fault.New(kindByName(first.Kind), first.Code, "%s", first.Detail)
	for name, v := range first.Attributes {
		f = f.With(name, v)
	}
	if len(denials) > 1 {
		var vs []fault.Violation
		for _, x := range denials {
			vs = append(vs, fault.Violation{Code: x.Code, Detail: x.Detail})
		}
		f = f.WithViolations(vs...)
	}
	return f
}

// kindByName finds the kind that a policy names. An unknown name is Forbidden, and so is
// "internal": a denial is a decision, not a defect.
func kindByName(name string) fault.Kind {
	for _, k := range fault.Kinds() {
		if k.String() == name && k != fault.Internal {
			return k
		}
	}
	return fault.Forbidden
}

// planDigest hashes a plan's drafts, without times, series numbers and sequences, and the
// digest of all policies in force, of every module. The drafts hold personal values in clear,
// so setPlanHash keys the digest of a type with personal fields.
func planDigest(drafts []event.Draft, policyDigest string) (event.Hash, error) {
	parts := [][]byte{[]byte("backbone/plan/v1"), []byte(policyDigest)}
	for i := range drafts {
		d := &drafts[i]
		c := struct {
			Type       string
			Version    uint32
			Effective  event.Date
			Scope      event.Scope
			Stream     event.StreamID
			Cause      string
			CauseIndex int
			CausedIn   event.PartitionID `json:",omitzero"`
			Data       any
			Dimensions map[string]string
			Entities   []event.EntityRef
			Tags       []string
		}{d.Type, d.SchemaVersion, d.EffectiveDate, d.Scope, d.Stream, d.CausedBy.String(), d.CausedByIndex, d.CausedByPartition, d.Data, d.Dimensions, d.Entities, d.Tags}
		b, err := json.Marshal(c)
		if err != nil {
			return event.Hash{}, fmt.Errorf("plan hash: %w", err)
		}
		parts = append(parts, b)
	}
	return hashParts(parts...), nil
}

// hashParts hashes each part with its length.
func hashParts(parts ...[]byte) event.Hash {
	h := sha256.New()
	for _, part := range parts {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return event.Hash(h.Sum(nil))
}

// requestDigest hashes a request's content for its idempotency key. Source is left out: it
// says where the request came from, not what it asks for.
func requestDigest(req Request) event.Hash {
	parts := [][]byte{
		[]byte(req.Type), []byte(req.LegalEntity.Code), jsondoc.AppendCompact(nil, req.Payload), []byte(formatDate(req.EffectiveDate)),
		[]byte(req.CorrelationID), req.CausedBy[:],
	}
	if req.CausedByPartition != 0 {
		parts = append(parts, binary.BigEndian.AppendUint32(nil, uint32(req.CausedByPartition)))
	}
	return hashParts(parts...)
}

func formatDate(d *event.Date) string {
	if d == nil {
		return ""
	}
	return d.String()
}
