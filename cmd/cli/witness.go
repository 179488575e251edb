package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/witness"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/domain/fault"
)

func witnessCommand() *cobra.Command {
	var o witnessOptions
	cmd := &cobra.Command{
		Use:   "witness",
		Short: "Sign the checkpoints of logs that you watch, on a machine of your own",
		Long: "witness signs checkpoints of logs (c2sp.org/tlog-witness), each only if it continues the one that\n" +
			"it signed before. All who demand its signature see the same log, also if the operator of the\n" +
			"log has another one at hand. Run it as an auditor, away from the operator: it\n" +
			"needs the public keys of the logs, and neither their database nor a login.\n\n" +
			"FOLDER keeps its key, which is made at the first start, and the newest checkpoint of each log.\n" +
			"Back it up with the key and never start a copy beside the original: a witness that forgot what\n" +
			"it signed is worth nothing. It speaks HTTP: put a proxy with TLS before it.",
		Example: "  backbone witness --listen 127.0.0.1:8095 --folder /var/lib/witness --name witness.example.org/w1 \\\n" +
			"    --log ledger.example.org/1+2a5b…+AZ…",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return serveWitness(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "", "address with port (required)")
	f.StringVar(&o.Folder, "folder", "", "folder of the key and the checkpoints, made if absent, mode 0700 (required)")
	f.StringVar(&o.Name, "name", "", "name of the witness in its signatures, such as a domain and a path (required)")
	f.StringArrayVar(&o.Logs, "log", nil, "verifier key of a log, or a file or folder with some; may be repeated (required)")
	required(cmd, "listen", "folder", "name", "log")
	return cmd
}

// witnessOptions are the flags of `backbone witness`.
type witnessOptions struct {
	Listen, Folder, Name string
	Logs                 []string
	Out, Err             io.Writer
}

// Bounds on requests to a witness, which are small.
const (
	witnessReadTimeout = 10 * time.Second
	witnessStopTimeout = 5 * time.Second
)

// serveWitness is a witness until ctx ends.
func serveWitness(ctx context.Context, o witnessOptions) (err error) {
	keys, err := verifierKeys(o.Logs)
	if err != nil {
		return err
	}
	folder, err := witness.OpenFolder(o.Folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	key, err := folder.Key()
	if err != nil {
		return err
	}
	cosigner, err := signednote.NewCosigner(o.Name, key)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fault.New(fault.Invalid, "witness.listen_failed", "%s is not free, or no address with port; choose another with --listen", o.Listen).WithCause(err)
	}
	w := globallog.NewWitness(folder, cosigner, signednote.Opener{}, keys...)
	server := &http.Server{
		Handler: witness.NewServer(w, slog.New(slog.NewJSONHandler(o.Err, nil))).Handler(), ReadTimeout: witnessReadTimeout, WriteTimeout: witnessReadTimeout, MaxHeaderBytes: 16 << 10,
	}
	fmt.Fprintf(o.Out, "Witness of %s at http://%s\nwitness %s %s http://%s\nThe line is for the policy of the log (global_log.witness_policy) and of its readers (--witness-policy).\n",
		strings.Join(w.Origins(), ", "), listener.Addr(), "W1", cosigner.VerifierKey(), listener.Addr())
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(stopped)
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), witnessStopTimeout)
		defer cancel()
		_ = server.Shutdown(stopping) // requests that take longer are cut off
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped // requests may still keep what they sign
	return server.Close()
}
