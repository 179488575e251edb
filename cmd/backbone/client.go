package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

func apCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ap", Short: "Work with accounts payable"}
	cmd.AddCommand(wire.ImportCommand())
	return cmd
}

func traceCommand() *cobra.Command {
	var o wire.TraceOptions
	cmd := &cobra.Command{
		Use:   "trace ID",
		Short: "From an event, document or journal back to its paper and the persons",
		Long: "trace follows causes to the root: who did what, when, through which intent, let\n" +
			"through by which rules. With --effects it shows what the event led to instead, with\n" +
			"--process everything that happened under its correlation id, and when. ID is an\n" +
			"event's id, a journal number, or the id of a document or vendor, of which the last\n" +
			"event is taken.",
		Example: "  backbone trace --legal-entity DEMF SL-2026-000001\n" +
			"  backbone trace --legal-entity DEMF --effects 01JQ8E6Z6G3V5T8C9N2M4K7R1P --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.ID, o.Out = args[0], cmd.OutOrStdout()
			return wire.Trace(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Server, "server", envOr("BACKBONE_SERVER", "http://127.0.0.1:8080"), "server's URL (environment BACKBONE_SERVER)")
	f.StringVar(&o.Token, "token", os.Getenv("BACKBONE_TOKEN"), "access token (environment BACKBONE_TOKEN)")
	f.StringVar(&o.LegalEntity, "legal-entity", os.Getenv("BACKBONE_LEGAL_ENTITY"), "legal entity the ID belongs to (environment BACKBONE_LEGAL_ENTITY)")
	f.BoolVar(&o.Effects, "effects", false, "what the event led to, instead of what led to it")
	f.BoolVar(&o.Process, "process", false, "everything that happened under the event's correlation id")
	f.BoolVar(&o.Raw, "raw", false, "events as they are stored, not in the newest version of their type")
	f.BoolVar(&o.JSON, "json", false, "print the events and intents as JSON")
	cmd.MarkFlagsMutuallyExclusive("effects", "process")
	f.Lookup("token").DefValue = "" // help shows nobody's token
	f.Lookup("server").DefValue = "http://127.0.0.1:8080"
	f.Lookup("legal-entity").DefValue = ""
	return cmd
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
