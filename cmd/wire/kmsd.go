package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/erpbackbone/backbone/adapters/kmsd"
)

// KMSDOptions are the flags of `backbone kmsd`.
type KMSDOptions struct {
	Listen string // "127.0.0.1:PORT" or "unix:PATH"
	Keys   string // folder
	Out    io.Writer
	Audit  io.Writer // one JSON line per call
}

// KMSD serves keys until ctx ends. The audit is written at its full detail whatever
// the configuration of other logs says.
func KMSD(ctx context.Context, o KMSDOptions) (err error) {
	logger := slog.New(slog.NewJSONHandler(o.Audit, nil))
	server, err := kmsd.Open(kmsd.Config{Directory: o.Keys, Logger: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	listener, err := kmsd.Listen(o.Listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "Keys in %s, region %s, credentials in %s.\nListening on %s\n",
		o.Keys, kmsd.Region, filepath.Join(o.Keys, kmsd.CredentialsFile), listener.Addr())
	return server.Serve(ctx, listener)
}
