package wire

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/term"

	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Serve runs the API until ctx ends.
func Serve(ctx context.Context, config configs.Config) error {
	if config.Database.DSN == "" {
		return fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	logger := newLogger(config.Log)
	server, err := NewServer(ctx, config, Options{Logger: logger})
	if err != nil {
		return err
	}
	defer server.App.Close()
	if _, err := server.App.Store.Installation(ctx); err != nil {
		return err
	}
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
	app, err := Open(ctx, config, Options{})
	if err != nil {
		return "", err
	}
	defer app.Close()
	if err := app.Tenancy.Bootstrap(ctx, o.LogName, o.Deployment); err != nil {
		return "", err
	}
	if _, err := app.Store.PrincipalByPerson(ctx, o.Tenant, o.Admin); err == nil {
		return "", fault.New(fault.Conflict, "principal.duplicate", "tenant %s has a principal %s already; an administrator's token is printed only once", o.Tenant, o.Admin)
	} else if fault.KindOf(err) != fault.NotFound {
		return "", err
	}
	return app.Tenancy.Enroll(ctx, ports.Principal{
		TenantID: o.Tenant, PersonID: o.Admin, PrincipalID: o.Admin + "-1", ActorType: event.Human, RoleLabel: "admin", Roles: []string{"admin"},
	})
}
