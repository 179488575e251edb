package tenancy

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Action is something the API can be asked to do, for the access policy.
type Action struct {
	Name        string
	LegalEntity string       // "" when the action has none
	EventTypes  []TypeAccess // for raw appends
	// Requester is the person who made the request that is decided on, for
	// erasure.approve and redaction.approve; "" before the request is known.
	Requester string
}

// TypeAccess is an event type as the access policy sees it.
type TypeAccess struct {
	Type    string `json:"type"`
	Module  string `json:"module"`
	BuiltIn bool   `json:"builtin"`
}

// accessInput is the access policy's input. It names the actor only for actions that need
// a person, so that the cached decision on roles serves all their holders.
type accessInput struct {
	Action      string       `json:"action"`
	Roles       []string     `json:"roles"`
	LegalEntity string       `json:"legal_entity"`
	Entitled    []string     `json:"entitled"`
	EventTypes  []TypeAccess `json:"event_types"`
	Actor       *actor       `json:"actor,omitempty"`
	Requester   string       `json:"requester,omitempty"`
}

type actor struct {
	Type   string `json:"type"`
	Person string `json:"person"`
}

const (
	actionApproveErasure   = "erasure.approve"
	actionApproveRedaction = "redaction.approve"
)

// Authorize evaluates the access policy. A legal entity outside the caller's
// entitlement is reported as unknown. Faults: auth.forbidden, erasure.same_person,
// redaction.same_person, legal_entity.not_found.
func (s *Service) Authorize(ctx context.Context, p ports.Principal, a Action) error {
	if a.LegalEntity != "" && !entitled(p, a.LegalEntity) {
		return entityNotFound(a.LegalEntity)
	}
	input := accessInput{
		Action: a.Name, Roles: nonNil(p.Roles), LegalEntity: a.LegalEntity, Entitled: nonNil(p.LegalEntities), EventTypes: a.EventTypes,
		Requester: a.Requester,
	}
	if input.EventTypes == nil {
		input.EventTypes = []TypeAccess{}
	}
	if a.Name == actionApproveErasure || a.Name == actionApproveRedaction {
		input.Actor = &actor{Type: string(p.ActorType), Person: p.PersonID}
	}
	var answer struct {
		Allow  bool   `json:"allow"`
		Reason string `json:"reason"`
	}
	if err := s.policies.Decide(ctx, "data.backbone.authz.decision", input, &answer); err != nil {
		return err
	}
	switch {
	case answer.Allow:
		return nil
	case answer.Reason == "same_person" && a.Name == actionApproveRedaction:
		return fault.New(fault.Forbidden, "redaction.same_person", "a redaction is approved by another person than requested it; ask a colleague")
	case answer.Reason == "same_person":
		return shredding.CheckApprover(a.Requester, a.Requester) // the policy has compared; this is its fault
	default:
		return fault.New(fault.Forbidden, "auth.forbidden", "%s; %s", cmp.Or(denials[answer.Reason], denials[""]), cmp.Or(nextSteps[answer.Reason], nextSteps[""])).
			With("action", a.Name)
	}
}

// denials describes the access policy's reasons, nextSteps what the caller can do.
var (
	denials = map[string]string{
		"":             "this is not allowed",
		"role":         "none of your roles allows this",
		"auditor":      "an auditor reads everything and writes nothing",
		"event_type":   "only event types that no built-in module owns may be appended directly; use an intent",
		"legal_entity": "this legal entity is not yours",
		"service":      "only a person may decide this, not a service or an agent",
	}
	nextSteps = map[string]string{
		"":        "ask an administrator",
		"service": "use a person's token",
	}
)

// Reader returns which classes of personal data the principal reads in clear. The
// policy depends on roles alone, so its answer is cached by them. Fault
// policy.undecided.
func (s *Service) Reader(ctx context.Context, p ports.Principal) (module.Reader, error) {
	roles := slices.Sorted(slices.Values(p.Roles))
	key := strings.Join(roles, " ") // roles have no blanks
	s.mu.RLock()
	cached, ok := s.readers[key]
	s.mu.RUnlock()
	if ok {
		return cached, nil
	}
	input := struct {
		Roles []string `json:"roles"`
	}{nonNil(roles)}
	made := reader{owner: s.owner}
	if err := s.policies.Decide(ctx, "data.backbone.authz.pii", input, &made.classes); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readers) > 1_000 {
		clear(s.readers)
	}
	s.readers[key] = made
	return made, nil
}

// reader implements module.Reader by the policy's answer.
type reader struct {
	owner   func(string) string
	classes struct {
		BuiltIn []shredding.Class `json:"builtin"`
		Foreign []shredding.Class `json:"foreign"`
	}
}

// Reads implements module.Reader.
func (r reader) Reads(recordType string, class shredding.Class) bool {
	switch {
	case r.owner == nil || recordType == "":
		return false
	case r.owner(recordType) != "":
		return slices.Contains(r.classes.BuiltIn, class)
	default:
		return slices.Contains(r.classes.Foreign, class)
	}
}
