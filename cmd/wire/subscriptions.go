package wire

import (
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// composeSubscriptions composes the persistent subscriptions.
func (a *App) composeSubscriptions(clock ports.Clock, ids ports.IDSource, cursors subscriptions.Cursors) (err error) {
	c := a.config.Subscriptions
	a.Subscriptions, err = subscriptions.New(subscriptions.Config{
		Store: a.Store.Subscriptions, Log: a.Store.Events, Decisions: administration.NewSubscriptions(a.administration), Access: subscriptionAccess{a}, Heads: a.heads, IDs: ids, Clock: clock,
		Modules: a.modules, Observer: a.metrics, Logger: a.logger, Cursors: cursors,
		Limits: subscriptions.Limits{
			MaxPerTenant: c.PerTenant, MaxBytes: c.PollBytes, ExpireInterval: c.Sweep, RecheckInterval: c.Recheck, MeasureInterval: c.Measure, OrphanInterval: c.Orphans,
		},
	})
	return err
}

// RecoverDecided writes the rows of subscriptions and custom projections that decisions lack after
// a crash.
func (a *App) RecoverDecided(ctx context.Context) error {
	logs, err := a.Store.Directory.AdministrativeLogs(ctx, "")
	if err != nil {
		return err
	}
	for _, log := range logs {
		err := a.Subscriptions.Recover(ctx, log.TenantID)
		if err == nil {
			err = a.custom.Recover(ctx, log.TenantID)
		}
		if err == nil {
			err = a.rebuilds.Recover(ctx, log.TenantID)
		}
		if err != nil && !administration.IsBroken(err) { // which the start has reported
			return err
		}
	}
	return nil
}

// modules returns a function that names the module of a tenant's event type: the built-in module that
// declares the type, else the module for which it was registered.
func (a *App) modules(ctx context.Context, tenantID string) (func(string) string, error) {
	if err := a.Registry.Refresh(ctx, tenantID); err != nil {
		return nil, err
	}
	registered := a.Registry.Owners(tenantID)
	return func(eventType string) string { return cmp.Or(a.Catalog.Owner(eventType), registered[eventType]) }, nil
}

// subscriptionAccess decides by the tenant's roles. It implements subscriptions.Access.
type subscriptionAccess struct{ app *App }

// Readable implements subscriptions.Access. A principal whose role was withdrawn can read
// nothing from then on.
func (s subscriptionAccess) Readable(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	administrative, err := s.administrative(ctx, p)
	if err != nil {
		return nil, err
	}
	err = s.app.Tenancy.Authorize(ctx, p, tenancy.Action{Name: "events.read"})
	if fault.KindOf(err) == fault.Forbidden {
		return administrative, nil
	}
	if err != nil {
		return nil, err
	}
	books, err := s.books(ctx, p)
	return slices.Concat(books, administrative), err
}

// administrative lists the administrative log of the tenant, if the principal may read it.
func (s subscriptionAccess) administrative(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	err := s.app.Tenancy.Authorize(ctx, p, tenancy.Action{Name: "streams.read", LegalEntity: ports.AdministrativeCode})
	if fault.KindOf(err) == fault.Forbidden {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.app.Tenancy.AdministrativeLogs(ctx, p.TenantID)
}

// Sight implements subscriptions.Access.
func (s subscriptionAccess) Sight(ctx context.Context, p ports.Principal) (module.Sight, error) {
	if p.IsService() {
		if err := s.app.Registry.Refresh(ctx, p.TenantID); err != nil {
			return module.Sight{}, err
		}
	}
	return s.app.Tenancy.Sight(p), nil
}

// Visible implements subscriptions.Access.
func (s subscriptionAccess) Visible(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	administrative, err := s.administrative(ctx, p)
	if err != nil {
		return nil, err
	}
	books, err := s.books(ctx, p)
	return slices.Concat(books, administrative), err
}

// books lists the legal entities that a principal is entitled to.
func (s subscriptionAccess) books(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	all, err := s.app.Tenancy.LegalEntities(ctx, p.TenantID)
	if err != nil || len(p.LegalEntities) == 0 {
		return all, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(le ports.LegalEntity) bool { return !slices.Contains(p.LegalEntities, le.Code) }), nil
}

// Owner implements subscriptions.Access.
func (s subscriptionAccess) Owner(ctx context.Context, tenantID, personID string) (ports.Principal, error) {
	return s.app.Principals.PrincipalByPerson(ctx, tenantID, personID)
}
