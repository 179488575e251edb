package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

const defaultDataDir = "dev-data"

func devCommand() *cobra.Command {
	var o wire.DevOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine, without set-up",
		Long: "dev starts an own PostgreSQL in the data folder, sets up a demo tenant with two\n" +
			"legal entities (USMF in USD, DEMF in EUR) and a person for every role, and serves\n" +
			"the API on loopback. It keeps its data between runs; DIR/dev.json says how to\n" +
			"reach it. It is not configured: backbone.yaml and BACKBONE_* are for serve.",
		Example: "  backbone dev\n" +
			"  backbone dev --sample\n" +
			"  backbone dev --nats\n" +
			"  backbone dev --data-dir /tmp/books --http 127.0.0.1:9000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Terminal = cmd.OutOrStdout(), wire.IsTerminal(os.Stdout)
			return wire.Dev(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.DataDir, "data-dir", defaultDataDir, "folder for PostgreSQL's data, log and dev.json")
	f.StringVar(&o.HTTP, "http", "127.0.0.1:8080", "loopback address of the API; port 0 takes a free one")
	f.StringVar(&o.Postgres, "postgres", "", "folder of PostgreSQL's programs (default: found on PATH and in /usr/lib/postgresql)")
	f.BoolVar(&o.NATS, "nats", false, "run a NATS server with JetStream too, and publish all events to it")
	f.BoolVar(&o.Sample, "sample", false, "take the sample invoices through submit, approve, post and trace first")
	return cmd
}
