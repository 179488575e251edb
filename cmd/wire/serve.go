package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Serve runs the API until ctx ends.
func Serve(ctx context.Context, config configs.Config) (err error) {
	if config.Database.DSN == "" {
		return fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	if err := requireKeys(config); err != nil {
		return err
	}
	logger := newLogger(config.Log)
	server, err := NewServer(ctx, config, Options{Logger: logger, Audit: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	listener, err := net.Listen("tcp", config.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	background, stop := context.WithCancel(ctx)
	running := make(chan struct{})
	go func() {
		defer close(running)
		server.App.Run(background)
	}()
	logger.InfoContext(ctx, "serving", "address", listener.Addr().String(), "version", configs.Version)
	err = server.Serve(ctx, listener)
	stop()
	<-running
	return err
}

// BootstrapOptions are the flags of `backbone bootstrap`.
type BootstrapOptions struct {
	LogName    string
	Deployment uint16
	Tenant     string
	Admin      string
}

// Bootstrap fixes the installation and enrolls the first administrator. It
// returns the access token, which is not kept.
func Bootstrap(ctx context.Context, config configs.Config, o BootstrapOptions) (string, error) {
	if config.Database.DSN == "" {
		return "", fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	app, err := Open(ctx, config, Options{LogName: o.LogName, Deployment: o.Deployment})
	if err != nil {
		return "", err
	}
	defer app.Close()
	token, _, err := enroll(ctx, app, ports.Principal{
		TenantID: o.Tenant, PersonID: o.Admin, PrincipalID: o.Admin + "-1", ActorType: event.Human, Roles: []string{"admin"},
	}, enrollment{everywhere: true})
	return token, err
}

// tokenLife is how long an access token is good.
const tokenLife = 365 * 24 * time.Hour

// enrollment is how somebody is let in.
type enrollment struct {
	renew      bool // replaces a token that is still good, such as one that was lost
	everywhere bool // in all legal entities of the tenant, also who was in some only
	service    bool // said to be a service
}

// enroll makes a token for somebody new, or for somebody whose access has expired or is
// renewed. Nobody who is known gets into further legal entities without their being
// named, or all of them.
func enroll(ctx context.Context, app *App, p ports.Principal, how enrollment) (token string, renewed bool, err error) {
	renew := how.renew
	before, err := app.Store.PrincipalByPerson(ctx, p.TenantID, p.PersonID)
	switch {
	case fault.KindOf(err) == fault.NotFound && renew:
		return "", false, fault.New(fault.NotFound, "principal.not_found", "tenant %s has no principal %s whose access could be renewed; leave --renew out", p.TenantID, p.PersonID)
	case fault.KindOf(err) == fault.NotFound:
	case err != nil:
		return "", false, err
	case !renew && !before.Expired(time.Now()):
		return "", false, fault.New(fault.Conflict, "principal.duplicate",
			"tenant %s has a principal %s already, and a token is printed only once; choose another id, or replace its token with --renew", p.TenantID, p.PersonID)
	case before.ActorType != p.ActorType && (!renew || how.service): // a renewal that does not say leaves it as it was
		return "", false, fault.New(fault.Conflict, "principal.kind_differs",
			"principal %s of tenant %s is a %s, and stays one in what it has done; choose another id, or leave --service as it was", p.PersonID, p.TenantID, before.ActorType)
	default:
		// The same login, so that the token before is good no longer.
		p.PrincipalID, p.DisplayName, p.ActorType, renewed = before.PrincipalID, before.DisplayName, before.ActorType, true
		if len(p.Roles) == 0 {
			p.Roles, p.RoleLabel = before.Roles, before.RoleLabel
		}
		if len(p.LegalEntities) == 0 && !how.everywhere {
			p.LegalEntities = before.LegalEntities
		}
	}
	p.ExpiresAt = time.Now().Add(tokenLife)
	token, err = app.Tenancy.Enroll(ctx, p)
	return token, renewed, err
}

// EnrollOptions are the flags of `backbone enroll`.
type EnrollOptions struct {
	Tenant        string
	Person        string
	Roles         []string
	LegalEntities []string // empty: all for somebody new, as before for somebody known
	Everywhere    bool     // all legal entities, for somebody known too
	Service       bool
	Renew         bool // replace a token that is still good; without Roles the rights stay
}

// Enroll makes a further principal, or renews the access of one, and returns the access
// token, which is not kept.
func Enroll(ctx context.Context, config configs.Config, o EnrollOptions) (token string, renewed bool, err error) {
	if config.Database.DSN == "" {
		return "", false, fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	if len(o.Roles) == 0 && !o.Renew {
		return "", false, fault.New(fault.Invalid, "cli.role_missing", "somebody new needs a role; give --role")
	}
	if len(o.Roles) == 0 && (len(o.LegalEntities) > 0 || o.Everywhere) {
		return "", false, fault.New(fault.Invalid, "cli.role_missing", "legal entities are given together with roles; give --role too, or leave both as they are")
	}
	app, err := Open(ctx, config, Options{})
	if err != nil {
		return "", false, err
	}
	defer app.Close()
	kind := event.Human
	if o.Service {
		kind = event.System
	}
	return enroll(ctx, app, ports.Principal{
		TenantID: o.Tenant, PersonID: o.Person, PrincipalID: o.Person + "-1", ActorType: kind,
		Roles: o.Roles, LegalEntities: o.LegalEntities,
	}, enrollment{renew: o.Renew, everywhere: o.Everywhere, service: o.Service})
}
