package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/cmd/wire"
)

func beginIncarnationCommand(modules []plugin.Module) *cobra.Command {
	var o incarnationOptions
	cmd := databaseCommand(&cobra.Command{
		Use:   "begin-incarnation",
		Short: "Let servers sign the log again after events were lost in a restore",
		Long: "After a restore that lost events which were signed, servers refuse to sign the log: it is not\n" +
			"the one that they signed. begin-incarnation says so in an event of every log, and signs the\n" +
			"log as another incarnation. Checkpoints of the one before stay valid up to the last one that\n" +
			"the log still has; the others become forks, which \"backbone verify --checkpoints\" lists.\n\n" +
			"Run it while no server runs, and again if it was interrupted. It refuses if no known checkpoint is\n" +
			"missed. Servers export one every ten minutes only: if the restore lost the last events, use --force.",
		Example: "  backbone begin-incarnation --config /etc/backbone.yaml --reason \"Restored the backup of 1 March\"",
	}, &o.databaseOptions, func(ctx context.Context) error { return beginIncarnation(ctx, o, modules) })
	cmd.Flags().StringVar(&o.Reason, "reason", "", "why, for auditors; no personal data (required)")
	cmd.Flags().BoolVar(&o.Force, "force", false, "begin although no known checkpoint is missed: the restore lost events that were signed after the newest one")
	required(cmd, "reason")
	return cmd
}

// incarnationOptions are the flags of `backbone begin-incarnation`.
type incarnationOptions struct {
	databaseOptions
	Reason string
	Force  bool
}

func beginIncarnation(ctx context.Context, o incarnationOptions, modules []plugin.Module) error {
	app, err := wire.OpenWithKeys(ctx, o.Config, wire.Options{Modules: modules, Audit: o.err})
	if err != nil {
		return err
	}
	defer app.Close()
	show := newProgress(o.err, o.terminal)
	begun, err := app.BeginIncarnation(ctx, o.Reason, o.Force, func(done, total int) {
		if o.terminal {
			show.report("logs", done, total)
		}
	})
	if err != nil {
		return err
	}
	return o.show(begun, func(p *page) {
		p.line("Incarnation %d is signed, with %s. An event says so in %s.", begun.Number, counted(begun.Size, "event"), counted(begun.Logs, "log"))
		p.line("Of the one before, the log has the checkpoint of %s; the newest that is known had %d.", counted(begun.Common, "event"), begun.Lost)
		p.line("Start the servers.")
	})
}
