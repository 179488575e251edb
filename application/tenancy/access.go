package tenancy

import (
	"cmp"
	"context"
	"fmt"
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
	LegalEntity string // "" when the action has none
	// EventTypes are the types that the action is about: of the events of a raw append, of an
	// intent, of the events behind a report. A service acts on those of its modules only.
	EventTypes []TypeAccess
	// Requester is the person who made the request that is decided on, for
	// erasure.approve and redaction.approve; "" before the request is known.
	Requester string
	Enrolment *Enrolment // for principals.enroll, once it is known
}

// Enrolment is an enrolment as the access policy sees it.
type Enrolment struct {
	Persons []string `json:"persons"` // who gains by it: the principal, and the one responsible for it
	// Entitlements are the legal entities of the principal after the enrolment, and of each login
	// that the person had before it; an empty list is all of the tenant.
	Entitlements [][]string `json:"entitlements"`
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
	Service     bool         `json:"service"`
	Modules     []string     `json:"modules,omitempty"` // of a service
	Actor       *actor       `json:"actor,omitempty"`
	Requester   string       `json:"requester,omitempty"`
	Enrolment   *Enrolment   `json:"enrolment,omitempty"`
}

type actor struct {
	Type   string `json:"type"`
	Person string `json:"person"`
}

const (
	actionApproveErasure   = "erasure.approve"
	actionApproveRedaction = "redaction.approve"
	actionEnroll           = "principals.enroll"
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
		Requester: a.Requester, Service: p.IsService(), Enrolment: a.Enrolment,
	}
	if input.EventTypes == nil {
		input.EventTypes = []TypeAccess{}
	}
	if input.Service {
		input.Modules = nonNil(p.Binding.Modules)
		s.nameModules(p, &input)
	}
	if a.Name == actionApproveErasure || a.Name == actionApproveRedaction || a.Name == actionEnroll && a.Enrolment != nil {
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
		return shredding.RedactionSamePerson()
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
		"service":      "only a person may do this, not a service or an agent",
		"module":       "this service is not bound to the module that owns this",
		"tenant_wide":  "this concerns all legal entities of the tenant, and you are limited to some",
		"exceeds":      "no administrator grants more legal entities than they have",
		"self":         "an administrator grants nothing to themselves",
	}
	nextSteps = map[string]string{
		"":            "ask an administrator",
		"service":     "use a person's token",
		"module":      "use its own types, or have an administrator enroll the service for the module",
		"tenant_wide": "ask an administrator of the whole tenant",
		"exceeds":     "name legal entities of your own, or ask an administrator of the whole tenant",
		"self":        "ask another administrator",
	}
)

// nameModules fills in the modules of the types that a service asks about.
func (s *Service) nameModules(p ports.Principal, input *accessInput) {
	sight := s.Sight(p)
	input.EventTypes = slices.Clone(input.EventTypes)
	for i := range input.EventTypes {
		t := &input.EventTypes[i]
		t.Module = cmp.Or(t.Module, sight.ModuleOf(t.Type))
	}
}

// Sight returns which events the principal sees: a person those of every type, a service those
// of its modules and those that it was contracted for. It knows the event types that this node
// knows; who reads on from where it stopped refreshes the registry before, because it would pass
// events of an unknown type over for good.
func (s *Service) Sight(p ports.Principal) module.Sight {
	if !p.IsService() {
		return module.FullSight()
	}
	var owners map[string]string
	if s.typeOwners != nil {
		owners = s.typeOwners(p.TenantID)
	}
	return module.NewSight(p.Binding, owners, s.owner)
}

// Rights returns which classes of personal data the principal reads in clear: by its roles,
// and of a service only those that it was enrolled for, in types of its modules. The policy
// adds the classes that an auditor was granted for a time. Fault policy.undecided.
func (s *Service) Rights(ctx context.Context, p ports.Principal, granted []shredding.Class) (module.Rights, error) {
	r, err := s.rightsOfRoles(ctx, p, granted)
	if err != nil || !p.IsService() {
		return r, err
	}
	return boundRights{roleRights: r, sight: s.Sight(p), classes: p.Binding.PIIClasses}, nil
}

// boundRights are the rights of a service.
type boundRights struct {
	roleRights
	sight   module.Sight
	classes []shredding.Class
}

// Reads implements module.Rights.
func (r boundRights) Reads(recordType string, class shredding.Class) bool {
	return slices.Contains(r.classes, class) && r.sight.Owns(recordType) && r.roleRights.Reads(recordType, class)
}

// rightsOfRoles asks the policy, which depends on the roles, on whether they are a service's,
// and on what was granted; its answer is cached by these.
func (s *Service) rightsOfRoles(ctx context.Context, p ports.Principal, granted []shredding.Class) (roleRights, error) {
	roles := slices.Sorted(slices.Values(p.Roles))
	key := strings.Join(roles, " ") // roles have no blanks
	if p.IsService() {
		key = "service " + key
	}
	if len(granted) > 0 {
		key += fmt.Sprint(" granted ", granted)
	}
	s.mu.RLock()
	cached, ok := s.roleRights[key]
	s.mu.RUnlock()
	if ok {
		return cached, nil
	}
	input := struct {
		Roles   []string          `json:"roles"`
		Service bool              `json:"service"`
		Granted []shredding.Class `json:"granted,omitempty"`
	}{nonNil(roles), p.IsService(), granted}
	made := roleRights{owner: s.owner}
	if err := s.policies.Decide(ctx, "data.backbone.authz.pii", input, &made.classes); err != nil {
		return roleRights{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.roleRights) > 1_000 {
		clear(s.roleRights)
	}
	s.roleRights[key] = made
	return made, nil
}

// roleRights implements module.Rights by the policy's answer.
type roleRights struct {
	owner   func(string) string
	classes struct {
		BuiltIn []shredding.Class `json:"builtin"`
		Foreign []shredding.Class `json:"foreign"`
	}
}

// Reads implements module.Rights.
func (r roleRights) Reads(recordType string, class shredding.Class) bool {
	switch {
	case r.owner == nil || recordType == "":
		return false
	case r.owner(recordType) != "":
		return slices.Contains(r.classes.BuiltIn, class)
	default:
		return slices.Contains(r.classes.Foreign, class)
	}
}
