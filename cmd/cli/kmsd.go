package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/kmsd"
)

func kmsdCommand() *cobra.Command {
	var o kmsdOptions
	cmd := &cobra.Command{
		Use:   "kmsd",
		Short: "Serve keys on this machine by the AWS KMS protocol",
		Long: "kmsd keeps the keys that wrap data keys and the keys that sign, for installations\n" +
			"without AWS KMS. It answers on this machine only, to requests signed with a profile\n" +
			"of DIR/credentials, which it makes on the first start: app, rotator, signer, and\n" +
			"breakglass, which alone may cancel a deletion. Every call is audited on stderr.\n" +
			"\n" +
			"Keep DIR on an encrypted volume of its own, outside the database and its backups:\n" +
			"destroying a key removes its file, but neither flash cells nor snapshots of it.\n" +
			"A key is destroyed 7 to 30 days after its deletion was scheduled.",
		Example: "  backbone kmsd --listen 127.0.0.1:8089 --keys /var/lib/backbone-keys\n" +
			"  backbone kmsd --listen unix:/run/backbone/kms.sock --keys /var/lib/backbone-keys",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Audit = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return serveKMSD(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "", "loopback address with port, or unix:PATH (required)")
	f.StringVar(&o.Keys, "keys", "", "folder of the keys, made if absent, mode 0700 (required)")
	required(cmd, "listen", "keys")
	return cmd
}

// kmsdOptions are the flags of `backbone kmsd`.
type kmsdOptions struct {
	Listen string // "127.0.0.1:PORT" or "unix:PATH"
	Keys   string // folder
	Out    io.Writer
	Audit  io.Writer // one JSON line per call
}

// serveKMSD serves keys until ctx ends. It audits every call, whatever log.level is.
func serveKMSD(ctx context.Context, o kmsdOptions) (err error) {
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
