package testkit

import (
	"context"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Principals is a directory of callers without a log, for tests of what uses one.
type Principals struct {
	mu   sync.Mutex
	list []ports.Principal
}

// PrincipalByTokenHash implements ports.Principals.
func (d *Principals) PrincipalByTokenHash(ctx context.Context, hash event.Hash) (ports.Principal, error) {
	return d.find(ctx, func(p ports.Principal) bool { return p.TokenHash == hash },
		fault.New(fault.Unauthenticated, "auth.token_unknown", "the access token is not known"))
}

// PrincipalByPerson implements ports.Principals.
func (d *Principals) PrincipalByPerson(ctx context.Context, tenantID, personID string) (ports.Principal, error) {
	return d.find(ctx, func(p ports.Principal) bool { return p.TenantID == tenantID && p.PersonID == personID },
		fault.New(fault.NotFound, "principal.not_found", "the tenant has no such person"))
}

func (d *Principals) find(ctx context.Context, is func(ports.Principal) bool, missing error) (ports.Principal, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(d.list, is); i >= 0 {
		return d.list[i], ctx.Err()
	}
	return ports.Principal{}, missing
}

// RevokePerson implements ports.Principals.
func (d *Principals) RevokePerson(ctx context.Context, tenantID, personID, _ string, _ event.Actor) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = slices.DeleteFunc(d.list, func(o ports.Principal) bool { return o.TenantID == tenantID && o.PersonID == personID })
	return ctx.Err()
}

// ListPrincipals implements ports.Principals.
func (d *Principals) ListPrincipals(ctx context.Context, tenantID string) (found []ports.PrincipalStatus, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.list {
		if p.TenantID == tenantID {
			found = append(found, ports.PrincipalStatus{Principal: p})
		}
	}
	return found, ctx.Err()
}

// RecordExpiry implements ports.Principals.
func (d *Principals) RecordExpiry(ctx context.Context, _ ports.Principal) error { return ctx.Err() }

// ReviewPerson implements ports.Principals.
func (d *Principals) ReviewPerson(ctx context.Context, tenantID, personID string, _ event.Version, _ string, _ event.Actor) error {
	_, err := d.PrincipalByPerson(ctx, tenantID, personID)
	return err
}

// SavePrincipal implements ports.Principals.
func (d *Principals) SavePrincipal(ctx context.Context, p ports.Principal, _ string, _ event.Actor) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = slices.DeleteFunc(d.list, func(o ports.Principal) bool { return o.TenantID == p.TenantID && o.PrincipalID == p.PrincipalID })
	d.list = append(d.list, p)
	return ctx.Err()
}
