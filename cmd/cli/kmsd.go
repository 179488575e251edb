package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/domain/fault"
)

func kmsdCommand() *cobra.Command {
	var o kmsdOptions
	cmd := &cobra.Command{
		Use:   "kmsd",
		Short: "Serve keys on this machine by the AWS KMS protocol",
		Long: "kmsd keeps the keys that wrap data keys and the keys that sign, for installations\n" +
			"without AWS KMS. It answers on this machine only, to requests signed with credentials\n" +
			"that \"backbone kmsd credentials\" made. It keeps their public keys only. Every call is\n" +
			"audited on stderr.\n" +
			"\n" +
			"Keep DIR on an encrypted volume of its own, outside the database and its backups:\n" +
			"destroying a key removes its file, but neither flash cells nor snapshots of it.\n" +
			"A key is destroyed 7 to 30 days after its deletion was scheduled.",
		Example: "  backbone kmsd credentials --keys /var/lib/backbone-keys --out /etc/backbone/kms\n" +
			"  backbone kmsd --listen 127.0.0.1:8089 --keys /var/lib/backbone-keys\n" +
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
	cmd.AddCommand(kmsdCredentialsCommand(), breakGlassCommand())
	return cmd
}

func kmsdCredentialsCommand() *cobra.Command {
	var keys, out, breakGlass string
	cmd := &cobra.Command{
		Use:   "credentials",
		Short: "Make the credentials of kmsd's callers",
		Long: "credentials makes new credentials, which end the former ones: with --out those of a server,\n" +
			"as the files app, rotator and signer of a folder, and with --break-glass those that alone\n" +
			"may enable, disable and cancel the deletion of a key. Keep the latter away from every\n" +
			"server, such as on paper or on a medium in a safe. kmsd must be stopped; DIR keeps the\n" +
			"public keys only, so that its backups let no one sign.",
		Example: "  backbone kmsd credentials --keys /var/lib/backbone-keys --out /etc/backbone/kms\n" +
			"  backbone kmsd credentials --keys /var/lib/backbone-keys --break-glass /media/safe/breakglass",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" && breakGlass == "" {
				return fault.New(fault.Invalid, "kmsd.credentials_unwritable", "say where the credentials shall lie: --out FOLDER for those of a server, --break-glass FILE for the others")
			}
			if out != "" {
				if err := kmsd.IssueTo(keys, out); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "Credentials of app, rotator and signer are in %s. Set kms.credentials_file to it.\n", out)
			}
			if breakGlass != "" {
				if err := kmsd.IssueBreakGlass(keys, breakGlass); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "Break-glass credentials are in %s. Take them away from this machine.\n", breakGlass)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&keys, "keys", "", "folder of the keys (required)")
	f.StringVar(&out, "out", "", "folder for the server's credentials, one file each")
	f.StringVar(&breakGlass, "break-glass", "", "new file for the break-glass credentials")
	required(cmd, "keys")
	return cmd
}

// breakGlassTimeout bounds one try of a break-glass call.
const breakGlassTimeout = 10 * time.Second

func breakGlassCommand() *cobra.Command {
	var endpoint, credentials string
	cmd := &cobra.Command{
		Use:       "break-glass enable|disable|cancel-deletion KEY",
		Short:     "Enable, disable or keep a key of kmsd, with the break-glass credentials",
		Long:      "break-glass calls kmsd with the break-glass credentials. A key whose deletion is cancelled\nopens the backups that were made before its epoch ended: erasures can be undone with it.",
		Example:   "  backbone kmsd break-glass cancel-deletion KEY --endpoint http://127.0.0.1:8089 --credentials /media/safe/breakglass",
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{"enable", "disable", "cancel-deletion"},
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := awskms.New(cmd.Context(), awskms.Config{
				Endpoint: endpoint, Region: kmsd.Region, CredentialsFile: credentials, Profile: kmsd.BreakGlass, Signer: kmsd.Signer{},
				Limits: awskms.Limits{Timeout: breakGlassTimeout, Tries: 1, Backoff: time.Second},
			})
			if err != nil {
				return err
			}
			switch args[0] {
			case "enable":
				return client.EnableKey(cmd.Context(), args[1])
			case "disable":
				return client.DisableKey(cmd.Context(), args[1])
			case "cancel-deletion":
				return client.CancelDeletion(cmd.Context(), args[1])
			}
			return fault.New(fault.Invalid, "kms.request_invalid", "break-glass can enable, disable or cancel-deletion; name one of them")
		},
	}
	f := cmd.Flags()
	f.StringVar(&endpoint, "endpoint", "", "http://127.0.0.1:PORT or unix:PATH of kmsd (required)")
	f.StringVar(&credentials, "credentials", "", "file of the break-glass credentials (required)")
	required(cmd, "endpoint", "credentials")
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
	fmt.Fprintf(o.Out, "Keys in %s, region %s.\nListening on %s\n", o.Keys, kmsd.Region, listener.Addr())
	return server.Serve(ctx, listener)
}
