package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

func tailCommand() *cobra.Command {
	var o wire.TailOptions
	var all bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print events as they are written, as you may read them",
		Long: "tail follows a live feed of a server: what there is from --from on, then what comes. It\n" +
			"connects again by itself when the connection is lost, behind the last event, so nothing is\n" +
			"missed and nothing comes twice. Ctrl-C ends it and tells how to go on later.",
		Example: "  backbone tail\n" +
			"  backbone tail --from beginning --legal-entity DEMF --type ap.invoice.submitted --json | jq .data\n" +
			"  backbone tail --stream machine/M-17 --legal-entity DEMF --from beginning",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Stream != "" && o.LegalEntity == "" {
				o.LegalEntity = os.Getenv("BACKBONE_LEGAL_ENTITY")
			}
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return wire.Tail(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Server, "server", envOr("BACKBONE_SERVER", "http://127.0.0.1:8080"), "server's URL (environment BACKBONE_SERVER)")
	f.StringVar(&o.Token, "token", os.Getenv("BACKBONE_TOKEN"), "access token (environment BACKBONE_TOKEN)")
	f.StringVar(&o.Stream, "stream", "", "one stream, TYPE/ID")
	f.BoolVar(&all, "all", false, "all legal entities that you may see (the default)")
	f.StringVar(&o.LegalEntity, "legal-entity", "", "of the stream (environment BACKBONE_LEGAL_ENTITY), or only these of all, separated by commas")
	f.StringSliceVar(&o.Types, "type", nil, "only events of these types")
	f.StringSliceVar(&o.Modules, "module", nil, "only events of these modules")
	f.StringVar(&o.From, "from", "now", "beginning, now, a cursor, or what an earlier tail told")
	f.BoolVar(&o.JSON, "json", false, "print each event as a line of JSON")
	cmd.MarkFlagsMutuallyExclusive("stream", "all")
	cmd.MarkFlagsMutuallyExclusive("stream", "type")
	cmd.MarkFlagsMutuallyExclusive("stream", "module")
	f.Lookup("token").DefValue = "" // help shows nobody's token
	f.Lookup("server").DefValue = "http://127.0.0.1:8080"
	return cmd
}
