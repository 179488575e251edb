package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Serve runs a node until ctx ends: it composes the server, opens the port, and starts the
// background work and the API. When ctx ends, background work stops at once, while requests in
// flight have http.shutdown_timeout before the API closes their connections. The key service
// and the connections to the databases are closed last. Only the requests have a time limit.
func Serve(ctx context.Context, config configs.Config, modules []plugin.Module) (err error) {
	if config.Database.DSN == "" {
		return fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN")
	}
	if err := requireKeys(config); err != nil {
		return err
	}
	logger := newLogger(config.Log)
	server, err := NewServer(ctx, config, Options{Modules: modules, Logger: logger, Audit: os.Stderr})
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
