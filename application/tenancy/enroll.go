package tenancy

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// TokenLifetime is how long an access token from Admit is valid, unless it is asked for a shorter time.
const TokenLifetime = 365 * 24 * time.Hour

// Application asks for a principal to be enrolled.
type Application struct {
	// Principal is what is asked for. PrincipalID, RoleLabel and the times are set by Admit.
	Principal  ports.Principal
	Renew      bool // replace a token that is still valid, such as a lost one; without roles the rights stay
	Everywhere bool // all legal entities of the tenant, also for a principal that had some only
	KindGiven  bool // ActorType was asked for; a renewal without it keeps the kind
	// ValidFor is how long the token is good; 0: TokenLifetime, which is the longest.
	ValidFor time.Duration
	Reason   string // for the administrative log, without personal data; "": none
}

// Admit enrolls a new principal, or a known one whose access has expired or is renewed, and
// returns its new token. A known principal keeps its login, so that the token before is good
// no longer, and its legal entities and binding unless others are given. by is the
// administrator who asks; nil is the operator of the installation, who has its database.
//
// Faults: those of Enroll, principal.duplicate, principal.not_found, principal.kind_differs,
// principal.role_missing, principal.lifetime_invalid, principal.reason_invalid, principal.changed (another
// administrator was first), and with an administrator auth.forbidden: an administrator grants
// nothing to themselves, and no legal entities beyond their own.
func (s *Service) Admit(ctx context.Context, by *ports.Principal, a Application) (_ ports.Principal, token string, renewed bool, err error) {
	p := a.Principal
	if a.ValidFor < 0 || a.ValidFor > TokenLifetime {
		return p, "", false, fault.New(fault.Invalid, "principal.lifetime_invalid", "a token is good for at most a year; give a shorter time")
	}
	if err := checkReason(a.Reason, false); err != nil {
		return p, "", false, err
	}
	if len(p.Roles) == 0 && !a.Renew {
		return p, "", false, fault.New(fault.Invalid, "principal.role_missing", "a new principal needs a role; give one").WithField("/roles")
	}
	if len(p.Roles) == 0 && (len(p.LegalEntities) > 0 || a.Everywhere) {
		return p, "", false, fault.New(fault.Invalid, "principal.role_missing", "legal entities are given together with roles; give the roles too, or leave both as they are").WithField("/roles")
	}
	grant := Enrolment{Persons: []string{p.PersonID}}
	before, err := s.principals.PrincipalByPerson(ctx, p.TenantID, p.PersonID)
	switch known := err == nil; {
	case !known && fault.KindOf(err) != fault.NotFound:
		return p, "", false, err
	case !known && a.Renew:
		return p, "", false, fault.New(fault.NotFound, "principal.not_found", "tenant %s has no principal %s whose access could be renewed; enroll it without renewing", p.TenantID, p.PersonID)
	case !known:
		p.PrincipalID = p.PersonID + "-1"
	default:
		if grant.Entitlements, err = s.entitlements(ctx, p.TenantID, p.PersonID); err != nil {
			return p, "", false, err
		}
		if p, err = s.change(before, a); err != nil {
			return p, "", false, err
		}
		renewed = true
	}
	grant.Entitlements = append(grant.Entitlements, nonNil(p.LegalEntities))
	if p.Binding.ResponsiblePerson != "" {
		grant.Persons = append(grant.Persons, p.Binding.ResponsiblePerson)
	}
	var actor event.Actor
	if by != nil {
		actor = by.Actor()
		if err := s.Authorize(ctx, *by, Action{Name: actionEnroll, Enrolment: &grant}); err != nil {
			return p, "", false, err
		}
	}
	p.ExpiresAt = event.Micros(s.clock.Now().Add(cmp.Or(a.ValidFor, TokenLifetime)))
	token, err = s.enroll(ctx, p, a.Reason, actor)
	return p, token, renewed, err
}

// Revoke ends all access of a person or service of a tenant at once; other nodes learn of it
// within seconds. by is the administrator who asks, nil the operator of the installation.
// Faults: principal.not_found, principal.reason_missing, principal.reason_invalid, pii.in_text, and with an administrator auth.forbidden: an
// administrator neither revokes their own access nor that to legal entities beyond their own.
func (s *Service) Revoke(ctx context.Context, by *ports.Principal, tenantID, personID, reason string) error {
	if err := checkReason(reason, true); err != nil {
		return err
	}
	if _, err := s.principals.PrincipalByPerson(ctx, tenantID, personID); err != nil {
		return err
	}
	actor, err := s.authorizeChange(ctx, by, tenantID, personID)
	if err != nil {
		return err
	}
	if err := s.principals.RevokePerson(ctx, tenantID, personID, reason, actor); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byToken)
	return nil
}

// Review records that an administrator reviewed the rights of a person or service, and that they
// stay. version is that of the login in the list of principals; 0 reviews the rights as they are.
// Faults: those of Revoke, and principal.changed.
func (s *Service) Review(ctx context.Context, by *ports.Principal, tenantID, personID string, version event.Version, reason string) error {
	if err := checkReason(reason, true); err != nil {
		return err
	}
	if _, err := s.principals.PrincipalByPerson(ctx, tenantID, personID); err != nil {
		return err
	}
	actor, err := s.authorizeChange(ctx, by, tenantID, personID)
	if err != nil {
		return err
	}
	return s.principals.ReviewPerson(ctx, tenantID, personID, version, reason, actor)
}

// Principals lists the logins of a tenant that an administrator or auditor may see: all, or those
// with access to no more than the caller's legal entities.
func (s *Service) Principals(ctx context.Context, p ports.Principal) ([]ports.PrincipalStatus, error) {
	list, err := s.principals.ListPrincipals(ctx, p.TenantID)
	if len(p.LegalEntities) == 0 {
		return list, err
	}
	return slices.DeleteFunc(list, func(o ports.PrincipalStatus) bool {
		return len(o.LegalEntities) == 0 || slices.ContainsFunc(o.LegalEntities, func(code string) bool { return !slices.Contains(p.LegalEntities, code) })
	}), err
}

// authorizeChange asks whether an administrator may change what a principal has, and returns the
// actor of the change; nil is the operator of the installation.
func (s *Service) authorizeChange(ctx context.Context, by *ports.Principal, tenantID, personID string) (event.Actor, error) {
	if by == nil {
		return event.Actor{}, nil
	}
	grant := Enrolment{Persons: []string{personID}}
	var err error
	if grant.Entitlements, err = s.entitlements(ctx, tenantID, personID); err != nil {
		return event.Actor{}, err
	}
	return by.Actor(), s.Authorize(ctx, *by, Action{Name: actionEnroll, Enrolment: &grant})
}

// entitlements are the legal entities of each login of a person that is not revoked: a change may
// end any of them.
func (s *Service) entitlements(ctx context.Context, tenantID, personID string) (all [][]string, err error) {
	logins, err := s.principals.ListPrincipals(ctx, tenantID)
	for i := range logins {
		if p := &logins[i]; p.PersonID == personID && p.RevokedAt.IsZero() {
			all = append(all, nonNil(p.LegalEntities))
		}
	}
	return all, err
}

// maxReason is the length of a reason in bytes.
const maxReason = 1000

// checkReason checks a text that the administrative log keeps. Faults principal.reason_missing,
// principal.reason_invalid, pii.in_text.
func checkReason(text string, required bool) error {
	switch {
	case required && strings.TrimSpace(text) == "":
		return fault.New(fault.Invalid, "principal.reason_missing", "the reason is missing; write why, without personal data").WithField("/reason")
	case len(text) > maxReason || !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return fault.New(fault.Invalid, "principal.reason_invalid", "a reason is UTF-8 text of at most %d bytes; shorten or correct it", maxReason).WithField("/reason")
	}
	return shredding.CheckText("/reason", text)
}

// change applies what is asked for to a known principal.
func (s *Service) change(before ports.Principal, a Application) (ports.Principal, error) {
	p := a.Principal
	switch {
	case !a.Renew && !before.Expired(s.clock.Now()):
		return p, fault.New(fault.Conflict, "principal.duplicate",
			"tenant %s has a principal %s already, and a token is shown only once; choose another id, or renew its access", p.TenantID, p.PersonID)
	case before.ActorType != p.ActorType && (!a.Renew || a.KindGiven):
		return p, fault.New(fault.Conflict, "principal.kind_differs",
			"principal %s of tenant %s is a %s, and stays one in what it has done; choose another id, or leave the kind as it was", p.PersonID, p.TenantID, before.ActorType)
	}
	p.PrincipalID, p.ActorType, p.Version = before.PrincipalID, before.ActorType, before.Version
	if len(p.Roles) == 0 {
		p.Roles, p.RoleLabel = before.Roles, before.RoleLabel
	}
	if len(p.LegalEntities) == 0 && !a.Everywhere {
		p.LegalEntities = before.LegalEntities
	}
	b := &p.Binding
	if b.ResponsiblePerson == "" {
		b.ResponsiblePerson = before.Binding.ResponsiblePerson
	}
	if b.TrustLevel == "" {
		b.TrustLevel = before.Binding.TrustLevel
	}
	if len(b.Modules) == 0 { // what a service reads belongs to its modules, so these change together
		if len(b.ContractedTypes)+len(b.PIIClasses) > 0 {
			return p, fault.New(fault.Invalid, "principal.module_missing", "contracted types and classes of personal data are given together with modules; give the modules too").WithField("/modules")
		}
		b.Modules, b.ContractedTypes, b.PIIClasses = before.Binding.Modules, before.Binding.ContractedTypes, before.Binding.PIIClasses
	}
	return p, nil
}

// Enroll is what Admit does for the operator, without what it keeps of a known principal. It replaces the login
// with the same principal id. Without a role label the first role is it; without a trust
// level a service's events are unchecked. Faults: principal.role_unknown,
// principal.id_invalid, principal.role_of_service, principal.binding_of_person and those of
// checkBinding.
func (s *Service) Enroll(ctx context.Context, p ports.Principal) (token string, err error) {
	before, err := s.principals.PrincipalByPerson(ctx, p.TenantID, p.PersonID)
	switch {
	case err == nil && before.PrincipalID == p.PrincipalID:
		p.Version = before.Version
	case err != nil && fault.KindOf(err) != fault.NotFound:
		return "", err
	}
	return s.enroll(ctx, p, "", event.Actor{})
}

// enroll stores a principal under a new token, which is returned once.
func (s *Service) enroll(ctx context.Context, p ports.Principal, reason string, by event.Actor) (token string, err error) {
	for _, role := range p.Roles {
		if !slices.Contains(s.roles, role) {
			return "", fault.New(fault.Invalid, "principal.role_unknown", "there is no role %q; the roles are %s", role, strings.Join(s.roles, ", ")).WithField("/roles")
		}
		if module.IsServiceRole(role) && !p.IsService() {
			return "", fault.New(fault.Invalid, "principal.role_of_service", "the role %s is for services; enroll a service, or choose a role for persons", role).WithField("/roles")
		}
	}
	if err := checkName(p); err != nil {
		return "", err
	}
	if p.TenantID == "" || p.PersonID == "" || len(p.Roles) == 0 {
		return "", fault.New(fault.Invalid, "principal.id_invalid", "a principal needs a tenant, a pseudonymous person id and a role")
	}
	if err := shredding.CheckIdentifier("person_id", p.PersonID); err != nil {
		return "", err
	}
	if p.IsService() {
		if p.Binding.TrustLevel == "" {
			p.Binding.TrustLevel = ports.TrustUnchecked
		}
		if err := s.checkBinding(ctx, p); err != nil {
			return "", err
		}
	} else if b := p.Binding; b.ResponsiblePerson != "" || b.TrustLevel != "" || len(b.Modules)+len(b.ContractedTypes)+len(b.PIIClasses) > 0 {
		return "", fault.New(fault.Invalid, "principal.binding_of_person", "only a service has modules, a responsible person and a trust level; leave them out, or enroll a service")
	}
	if p.RoleLabel == "" {
		p.RoleLabel = p.Roles[0]
	}
	token, p.TokenHash = s.NewToken()
	p.CreatedAt = event.Micros(s.clock.Now())
	return token, s.principals.SavePrincipal(ctx, p, reason, by)
}

// maxName is the length of a person's name in bytes.
const maxName = 200

// checkName checks a display name. Faults principal.name_of_service, principal.name_invalid.
func checkName(p ports.Principal) error {
	switch {
	case p.Name == "":
		return nil
	case p.IsService():
		return fault.New(fault.Invalid, "principal.name_of_service", "only a person has a name that is sealed; leave it out").WithField("/name")
	case len(p.Name) > maxName || !utf8.ValidString(p.Name) || strings.ContainsFunc(p.Name, unicode.IsControl):
		return fault.New(fault.Invalid, "principal.name_invalid", "a name is UTF-8 text of at most %d bytes without control characters; shorten or correct it", maxName).WithField("/name")
	}
	return nil
}

var moduleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// maxContracted bounds the types that a service is contracted for, and its modules.
const maxContracted = 256

// checkBinding checks what a service is enrolled for. Faults: principal.responsible_missing,
// principal.responsible_unknown, principal.module_missing, principal.module_invalid,
// principal.type_invalid, principal.pii_class_unknown, principal.trust_level_unknown.
func (s *Service) checkBinding(ctx context.Context, p ports.Principal) error {
	b := p.Binding
	if b.ResponsiblePerson == "" {
		return fault.New(fault.Invalid, "principal.responsible_missing", "a service needs a person who answers for it; name the person's id").WithField("/responsible_person")
	}
	responsible, err := s.principals.PrincipalByPerson(ctx, p.TenantID, b.ResponsiblePerson)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	if err != nil || responsible.IsService() || responsible.Expired(s.clock.Now()) {
		return fault.New(fault.FailedPrecondition, "principal.responsible_unknown", "the responsible person of a service is a person with access to the tenant; enroll the person first, or name another").WithField("/responsible_person")
	}
	if len(b.Modules) == 0 && slices.ContainsFunc(p.Roles, module.IsServiceRole) {
		return fault.New(fault.Invalid, "principal.module_missing", "a service sees and writes what its modules own; name at least one module").WithField("/modules")
	}
	if len(b.Modules) > maxContracted || len(b.ContractedTypes) > maxContracted {
		return fault.New(fault.TooLarge, "principal.binding_too_large", "a service has at most %d modules and as many contracted types; enroll several services", maxContracted).
			WithNumbers(maxContracted, max(len(b.Modules), len(b.ContractedTypes)))
	}
	for _, name := range b.Modules {
		if !moduleName.MatchString(name) {
			return fault.New(fault.Invalid, "principal.module_invalid", "a module's name has 1 to 64 letters, digits, dots, _ or -; correct it").WithField("/modules")
		}
	}
	for _, name := range b.ContractedTypes {
		if !eventtype.ValidName(name) {
			return fault.New(fault.Invalid, "principal.type_invalid", "an event type has a name such as crm.customer.created; correct it").WithField("/contracted_types")
		}
	}
	for _, class := range b.PIIClasses {
		if !class.Valid() {
			return fault.New(fault.Invalid, "principal.pii_class_unknown", "a class of personal data is one of %s; correct it", joined(shredding.Classes())).WithField("/pii_classes")
		}
	}
	if !slices.Contains(ports.TrustLevels(), b.TrustLevel) {
		return fault.New(fault.Invalid, "principal.trust_level_unknown", "a trust level is one of %s; correct it", joined(ports.TrustLevels())).WithField("/trust_level")
	}
	return nil
}

func joined[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}
