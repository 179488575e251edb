package disclosure

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Grants lists the principals and grants of a tenant: administration.Principals.
type Grants interface {
	PrincipalByPerson(ctx context.Context, tenantID, personID string) (ports.Principal, error)
	Grants(ctx context.Context, tenantID string) ([]disclosure.Grant, error)
}

// roleAuditor is the role that grants are for.
const roleAuditor = "auditor"

// NewGrant asks for a grant.
type NewGrant struct {
	PersonID       string
	Classes        []shredding.Class
	Until          time.Time
	Reason         string
	IdempotencyKey string // may be ""
}

// granted returns the classes that a person may read by grants, each with the grant that ends last: none without
// a reason, and for all but auditors, who are asked about only then.
func (s *Service) granted(ctx context.Context, p ports.Principal, reason string) (map[shredding.Class]disclosure.Grant, error) {
	if reason == "" || p.IsService() || !slices.Contains(p.Roles, roleAuditor) {
		return nil, nil
	}
	all, err := s.Principals.Grants(ctx, p.TenantID)
	if err != nil {
		return nil, err
	}
	now, granted := s.Clock.Now(), map[shredding.Class]disclosure.Grant{}
	for _, g := range all {
		if g.PersonID != p.PersonID || !g.Active(now) {
			continue
		}
		for _, c := range g.Classes {
			if g.Until.After(granted[c].Until) {
				granted[c] = g
			}
		}
	}
	return granted, nil
}

// Grant lets an auditor read classes of personal data for a time. Of the same key again it
// returns the grant that it made, also when that has ended or its person has lost the role. Faults:
//
//	disclosure.needs_person    Forbidden: the caller is a service
//	disclosure.self            Forbidden: a person grants nothing to themself
//	disclosure.classes_invalid Invalid
//	disclosure.until_invalid   Invalid: not in the future, or too far in it
//	principal.not_found        NotFound
//	disclosure.not_auditor     FailedPrecondition
//	idempotency.mismatch       Conflict
//
// and those of CheckReason.
func (s *Service) Grant(ctx context.Context, by ports.Principal, n NewGrant) (g disclosure.Grant, replayed bool, err error) {
	now := s.Clock.Now()
	n.Until = event.Micros(n.Until.UTC())
	if err := checkRequest(by, n); err != nil {
		return g, false, err
	}
	id := s.IDs.NewID(now)
	if n.IdempotencyKey != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "backbone/disclosure-key/v1\x00%s\x00%s\x00%s", by.TenantID, by.PersonID, n.IdempotencyKey))
		id = event.ID(sum[:16])
		// Before what may have changed since: a repeat is answered also after the grant has ended.
		if g, err = s.grant(ctx, by.TenantID, id); fault.CodeOf(err) != codeNotFound {
			return replay(g, n, err)
		}
	}
	if err := s.mayBeGranted(ctx, by, n, now); err != nil {
		return g, false, err
	}
	expected := concurrency.StreamExpectation{Stream: grantStream(id), Expected: concurrency.NoStream()}
	err = s.Administration.Record(ctx, by.TenantID, by.Actor(), expected, grantDraft(disclosure.Granted, id, disclosure.GrantData{PersonID: n.PersonID, Classes: n.Classes, Until: n.Until, Reason: n.Reason}))
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion { // the same request was first
		g, err = s.grant(ctx, by.TenantID, id)
		return replay(g, n, err)
	}
	if err != nil {
		return g, false, err
	}
	g, err = s.grant(ctx, by.TenantID, id)
	return g, false, err
}

// replay answers a repeated request with the grant under its key.
func replay(g disclosure.Grant, n NewGrant, err error) (disclosure.Grant, bool, error) {
	if err != nil {
		return disclosure.Grant{}, false, err
	}
	if g.PersonID != n.PersonID || !slices.Equal(g.Classes, n.Classes) || !g.Until.Equal(n.Until) || g.Reason != n.Reason {
		return disclosure.Grant{}, false, fault.New(fault.Conflict, "idempotency.mismatch", "this idempotency key was used for another request; use a new one")
	}
	return g, true, nil
}

// checkRequest checks what a repeat of the request has too.
func checkRequest(by ports.Principal, n NewGrant) error {
	if by.IsService() {
		return fault.New(fault.Forbidden, "disclosure.needs_person", "only a person grants personal data; use a person's token")
	}
	if strings.EqualFold(by.PersonID, n.PersonID) {
		return fault.New(fault.Forbidden, "disclosure.self", "a person grants no personal data to themself; ask a colleague")
	}
	if len(n.Classes) == 0 || slices.ContainsFunc(n.Classes, func(c shredding.Class) bool { return !c.Valid() }) {
		return fault.New(fault.Invalid, "disclosure.classes_invalid", "name one or more classes of personal data, such as contact").WithField("/classes")
	}
	if len(n.IdempotencyKey) > concurrency.MaxIdempotencyKey {
		return fault.New(fault.Invalid, "idempotency.key_invalid", "an idempotency key has at most %d bytes; send a shorter one", concurrency.MaxIdempotencyKey)
	}
	return CheckReason("/reason", n.Reason)
}

// mayBeGranted checks what changes with time: the end of the grant and the role of its person.
func (s *Service) mayBeGranted(ctx context.Context, by ports.Principal, n NewGrant, now time.Time) error {
	if !n.Until.After(now) || n.Until.After(now.Add(s.Limits.LongestGrant)) {
		return fault.New(fault.Invalid, "disclosure.until_invalid", "a grant ends in the future and after %s at the latest; give an earlier time", s.Limits.LongestGrant).WithField("/until")
	}
	to, err := s.Principals.PrincipalByPerson(ctx, by.TenantID, n.PersonID)
	if err != nil {
		return err
	}
	if to.IsService() || !slices.Contains(to.Roles, roleAuditor) {
		return fault.New(fault.FailedPrecondition, "disclosure.not_auditor", "%s is no auditor, and grants are for auditors; others read by their role", n.PersonID).WithField("/person_id")
	}
	return nil
}

// End ends a grant before its time. Faults: disclosure.needs_person, disclosure.not_found,
// disclosure.ended (Conflict), and those of CheckReason.
func (s *Service) End(ctx context.Context, by ports.Principal, id event.ID, reason string) (disclosure.Grant, error) {
	if by.IsService() {
		return disclosure.Grant{}, fault.New(fault.Forbidden, "disclosure.needs_person", "only a person ends a grant; use a person's token")
	}
	if err := CheckReason("/reason", reason); err != nil {
		return disclosure.Grant{}, err
	}
	if _, err := s.grant(ctx, by.TenantID, id); err != nil {
		return disclosure.Grant{}, err
	}
	err := s.Administration.Record(ctx, by.TenantID, by.Actor(), concurrency.StreamExpectation{Stream: grantStream(id), Expected: concurrency.Exactly(1)},
		grantDraft(disclosure.Ended, id, disclosure.EndData{Reason: reason}))
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		return disclosure.Grant{}, fault.New(fault.Conflict, "disclosure.ended", "the grant was ended before; read it again")
	}
	if err != nil {
		return disclosure.Grant{}, err
	}
	return s.grant(ctx, by.TenantID, id)
}

// ListGrants lists the grants of the principal's tenant, the newest first.
func (s *Service) ListGrants(ctx context.Context, p ports.Principal) ([]disclosure.Grant, error) {
	all, err := s.Principals.Grants(ctx, p.TenantID)
	slices.Reverse(all)
	return all, err
}

func (s *Service) grant(ctx context.Context, tenantID string, id event.ID) (disclosure.Grant, error) {
	all, err := s.Principals.Grants(ctx, tenantID)
	if err != nil {
		return disclosure.Grant{}, err
	}
	at := slices.IndexFunc(all, func(g disclosure.Grant) bool { return g.ID == id })
	if at < 0 {
		return disclosure.Grant{}, NoSuchGrant()
	}
	return all[at], nil
}

const codeNotFound = "disclosure.not_found"

// NoSuchGrant is the fault of an unknown grant.
func NoSuchGrant() error {
	return fault.New(fault.NotFound, codeNotFound, "there is no such grant; list the grants to find its id")
}

func grantStream(id event.ID) event.StreamID {
	return event.StreamID{Type: disclosure.GrantStream, ID: id.String()}
}

func grantDraft(eventType string, id event.ID, data any) event.Draft {
	return event.Draft{Type: eventType, SchemaVersion: 1, Stream: grantStream(id), Data: data, Source: event.Source{System: "backbone", Channel: "administration"}}
}
