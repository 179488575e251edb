package main

import (
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

// exportFilters are the flags of export that pass to the server under their names
// with underscores.
var exportFilters = []struct{ flag, parameter, usage string }{
	{"stream-type", "stream_type", "what the events are gathered by: entity, scope, type, correlation, actor, tag or dimension"},
	{"stream-id", "stream_id", "vendor:V-1042, an event type, a tag, department:OPS, …; with scope the legal entity by default"},
	{"legal-entity", "legal_entity", "code of the legal entity (environment BACKBONE_LEGAL_ENTITY)"},
	{"event-types", "event_types", "only these types, separated by commas"},
	{"modules", "modules", "only types of these modules, separated by commas"},
	{"division", "division", "only events of this division"},
	{"region", "region", "only events of this region"},
	{"site", "site", "only events of this site"},
	{"from-date", "from_date", "occurred then or later, a date or RFC 3339 time"},
	{"to-date", "to_date", "occurred then or earlier, a date or RFC 3339 time"},
	{"recorded-from", "recorded_from", "recorded then or later"},
	{"recorded-to", "recorded_to", "recorded then or earlier"},
	{"effective-from", "effective_from", "effective then or later, a date"},
	{"effective-to", "effective_to", "effective then or earlier, a date"},
	{"from-sequence", "from_sequence", "only events from this sequence on"},
	{"to-sequence", "to_sequence", "only events up to and with this sequence"},
	{"schema-version", "schema_version", "only events of this version of their type"},
	{"source-system", "source_system", "only events from this system"},
	{"source-channel", "source_channel", "only events that came by this channel"},
	{"source-reference", "source_reference", "only events from this document of their source"},
	{"path", "path", "where in the data to look, such as $.lines[*].account; with --operator and --value"},
	{"operator", "operator", "eq, ne, gt, ge, lt, le, contains or exists"},
	{"value", "value", `a number, true, false, null or a text; '"6000"' in quotes is a text that looks like a number`},
	{"include-data", "include_data", "false leaves data, dimensions and entities out"},
	{"raw", "raw", "events as they are stored, not in the newest version of their type"},
	{"direction", "direction", "forward or backward"},
	{"limit", "limit", "export at most so many events"},
}

func exportCommand() *cobra.Command {
	var o wire.EventExportOptions
	values := make([]string, len(exportFilters))
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Export the events of a query as JSON Lines, as you may read them",
		Long: "export asks a server for the events of a query and writes them to FILE, one per line, as the\n" +
			"holder of the token may read them; FILE - is standard output. It ends with status 0 only when\n" +
			"everything is there. When it breaks off, what was written are whole pages, and --after-cursor\n" +
			"goes on behind the last one.\n\n" +
			"To verify a log offline use \"backbone export-log\", which reads the database and writes\n" +
			"everything that checksums cover, personal values as they are sealed.",
		Example: "  backbone export --legal-entity DEMF DEMF.jsonl\n" +
			"  backbone export --legal-entity DEMF --modules ap --effective-from 2026-03-01 --effective-to 2026-03-31 march.jsonl\n" +
			"  backbone export --legal-entity DEMF --stream-type entity --stream-id vendor:V-000001 - | jq .type",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Parameters = url.Values{}
			for i, f := range exportFilters {
				if values[i] != "" {
					o.Parameters.Set(f.parameter, values[i])
				}
			}
			if o.Parameters.Get("stream_type") == "scope" && o.Parameters.Get("stream_id") == "" {
				o.Parameters.Set("stream_id", o.Parameters.Get("legal_entity"))
			}
			o.File, o.Out, o.Err, o.Terminal = args[0], cmd.OutOrStdout(), cmd.ErrOrStderr(), wire.IsTerminal(os.Stderr)
			return wire.ExportEvents(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Server, "server", envOr("BACKBONE_SERVER", "http://127.0.0.1:8080"), "server's URL (environment BACKBONE_SERVER)")
	f.StringVar(&o.Token, "token", os.Getenv("BACKBONE_TOKEN"), "access token (environment BACKBONE_TOKEN)")
	f.StringVar(&o.AfterCursor, "after-cursor", "", "go on behind this cursor, which the export that broke off told; FILE is added to")
	for i, filter := range exportFilters {
		standard := map[string]string{"stream-type": "scope", "legal-entity": os.Getenv("BACKBONE_LEGAL_ENTITY")}[filter.flag]
		f.StringVar(&values[i], filter.flag, standard, filter.usage)
	}
	f.Lookup("raw").NoOptDefVal = "true"
	f.Lookup("token").DefValue = "" // help shows nobody's token
	f.Lookup("server").DefValue = "http://127.0.0.1:8080"
	f.Lookup("legal-entity").DefValue = ""
	return cmd
}
