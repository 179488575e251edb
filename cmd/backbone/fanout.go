package main

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
)

func fanoutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fanout",
		Short: "Look after the fan-out of events to NATS JetStream",
		Long: "Servers with nats.urls in their configuration publish every event to a JetStream stream,\n" +
			"in order within each legal entity. `backbone dev --nats` does so to a server of its own.",
	}
	cmd.AddCommand(fanoutStatusCommand())
	return cmd
}

func fanoutStatusCommand() *cobra.Command {
	var o wire.FanoutOptions
	var path, dataDir string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how far every legal entity is published",
		Long: "status shows, for every legal entity, how much is not published yet and how old the oldest\n" +
			"of it is, which node publishes it, and after failures the last one and when it is tried\n" +
			"again at the latest. Nodes share the legal entities evenly.",
		Example: "  backbone fanout status\n" +
			"  backbone fanout status --config /etc/backbone.yaml --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			if config.Database.DSN == "" {
				if file, err := wire.ReadDevFile(dataDir); err == nil {
					config = wire.DevConfig(file)
				}
			}
			o.Config, o.Out = config, cmd.OutOrStdout()
			return wire.FanoutStatus(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\", when no database is configured")
	f.BoolVar(&o.JSON, "json", false, "print the answer as JSON")
	return cmd
}
