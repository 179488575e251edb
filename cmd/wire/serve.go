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
	return enroll(ctx, app, ports.Principal{
		TenantID: o.Tenant, PersonID: o.Admin, PrincipalID: o.Admin + "-1", ActorType: event.Human, Roles: []string{"admin"},
	})
}

// tokenLife is how long an access token is good.
const tokenLife = 365 * 24 * time.Hour

// enroll makes a token for somebody new.
func enroll(ctx context.Context, app *App, p ports.Principal) (string, error) {
	if _, err := app.Store.PrincipalByPerson(ctx, p.TenantID, p.PersonID); err == nil {
		return "", fault.New(fault.Conflict, "principal.duplicate", "tenant %s has a principal %s already, and a token is printed only once; choose another id", p.TenantID, p.PersonID)
	} else if fault.KindOf(err) != fault.NotFound {
		return "", err
	}
	p.ExpiresAt = time.Now().Add(tokenLife)
	return app.Tenancy.Enroll(ctx, p)
}

// EnrollOptions are the flags of `backbone enroll`.
type EnrollOptions struct {
	Tenant        string
	Person        string
	Roles         []string
	LegalEntities []string
	Service       bool
}

// Enroll makes a further principal and returns the access token, which is not
// kept.
func Enroll(ctx context.Context, config configs.Config, o EnrollOptions) (string, error) {
	if config.Database.DSN == "" {
		return "", fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	app, err := Open(ctx, config, Options{})
	if err != nil {
		return "", err
	}
	defer app.Close()
	kind := event.Human
	if o.Service {
		kind = event.System
	}
	return enroll(ctx, app, ports.Principal{
		TenantID: o.Tenant, PersonID: o.Person, PrincipalID: o.Person + "-1", ActorType: kind,
		Roles: o.Roles, LegalEntities: o.LegalEntities,
	})
}
