package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// exportFilters are the flags that export passes to the server as parameters of the same names,
// with underscores for hyphens.
var exportFilters = []struct{ flag, parameter, usage string }{
	{"stream-type", "stream_type", "what the events are gathered by: entity, scope, type, correlation, actor, tag or dimension"},
	{"stream-id", "stream_id", "vendor:V-1042, an event type, a tag, department:OPS, …; with scope the legal entity by default"},
	{"legal-entity", "legal_entity", "code of the legal entity (environment BACKBONE_LEGAL_ENTITY); required, but with --stream-type correlation (default: all that you may see)"},
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
	{"include-data", "include_data", "false leaves data, dimensions and entities out (default true)"},
	{"raw", "raw", "events as they are stored, not in the newest version of their type"},
	{"direction", "direction", "forward or backward (default forward)"},
	{"limit", "limit", "export at most so many events"},
}

func exportCommand() *cobra.Command {
	var x eventExport
	var server, token string
	values := make([]string, len(exportFilters))
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Export the events of a query as JSON Lines, as you may read them",
		Long: "export asks a server for the events of a query and writes them to FILE, one per line, as the\n" +
			"holder of the token may read them; FILE - is standard output. It ends with status 0 only when\n" +
			"everything is there. An interrupted export has written whole pages, and --after-cursor\n" +
			"continues behind the last one.\n\n" +
			"To verify a log offline use \"backbone export-log\", which reads the database and writes\n" +
			"everything that checksums cover, personal values as they are sealed.",
		Example: "  backbone export --legal-entity DEMF DEMF.jsonl\n" +
			"  backbone export --legal-entity DEMF --modules ap --effective-from 2026-03-01 --effective-to 2026-03-31 march.jsonl\n" +
			"  backbone export --legal-entity DEMF --stream-type entity --stream-id vendor:V-000001 - | jq .type",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			x.parameters = url.Values{}
			for i, f := range exportFilters {
				if values[i] != "" {
					x.parameters.Set(f.parameter, values[i])
				}
			}
			if x.parameters.Get("stream_type") == "scope" && x.parameters.Get("stream_id") == "" {
				x.parameters.Set("stream_id", x.parameters.Get("legal_entity"))
			}
			var err error
			if x.session, err = connect(cmd, server, token, "export.token_missing", false); err != nil {
				return err
			}
			x.file = args[0]
			return x.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	serverFlags(cmd, &server, &token)
	f.StringVar(&x.afterCursor, "after-cursor", "", "continue behind this cursor, which an interrupted export printed; FILE is appended to")
	for i, filter := range exportFilters {
		standard := map[string]string{"stream-type": "scope", "legal-entity": os.Getenv("BACKBONE_LEGAL_ENTITY")}[filter.flag]
		f.StringVar(&values[i], filter.flag, standard, filter.usage)
	}
	f.Lookup("raw").NoOptDefVal = "true"
	f.Lookup("legal-entity").DefValue = ""
	return cmd
}

// eventExport writes the events of a query to a file in whole pages, so that an interrupted
// export can continue after its last page.
type eventExport struct {
	session
	parameters  url.Values // of GET /api/events/export
	afterCursor string
	file        string // "-": standard output
}

func (x *eventExport) run(ctx context.Context) (err error) {
	if x.afterCursor != "" {
		x.parameters.Set("cursor", x.afterCursor)
	}
	out := exportFile{export: x}
	show := newCounter(x.err, x.terminal)
	started := time.Now()
	events, cursor := 0, x.afterCursor
	err = x.Export(ctx, x.parameters, func(p client.ExportedPage) error {
		if err := out.write(p.Lines); err != nil {
			return err
		}
		events, cursor = events+p.Events, p.NextCursor
		show.add(p.Events)
		return nil
	})
	show.stop()
	err = errors.Join(err, out.close())
	seconds := max(time.Since(started).Seconds(), 0.001)
	if err == nil {
		fmt.Fprintf(x.err, "%d events in %.1f s (%.0f events/s)\n", events, seconds, float64(events)/seconds)
		return nil
	}
	if events > 0 {
		fmt.Fprintf(x.err, "The export was interrupted after %d events. Continue with the same command and --after-cursor %s\n", events, cursor)
	}
	return err
}

// exportFile receives the lines of an export. It creates its file with the first page, so that a
// refused query leaves no file. It appends to an existing file only when an export continues.
type exportFile struct {
	export *eventExport
	file   *os.File
	size   int64 // in whole pages
}

func (f *exportFile) write(lines []byte) error {
	if f.export.file == "-" {
		_, err := f.export.out.Write(lines)
		return err
	}
	if f.file == nil {
		flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
		if f.export.afterCursor == "" {
			flags |= os.O_EXCL
		}
		file, err := os.OpenFile(f.export.file, flags, 0o600)
		if errors.Is(err, os.ErrExist) {
			return fault.New(fault.Conflict, "export.file_exists", "the file is there already; name another one, remove it, or continue with --after-cursor")
		}
		if err != nil {
			return err
		}
		f.file = file
		about, err := file.Stat()
		if err != nil {
			return err
		}
		f.size = about.Size()
	}
	n, err := f.file.Write(lines)
	if err != nil { // a full disk must not leave a part of a page; truncating a pipe fails
		return errors.Join(err, f.file.Truncate(f.size))
	}
	f.size += int64(n)
	return nil
}

func (f *exportFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// counter shows on a terminal the number of received events and their rate; the total is
// unknown. It is not safe for concurrent use.
type counter struct {
	out            io.Writer // nil: nothing is shown
	events         int
	started, drawn time.Time
}

func newCounter(out io.Writer, terminal bool) *counter {
	if !terminal {
		return &counter{}
	}
	return &counter{out: out, started: time.Now()}
}

func (c *counter) add(n int) {
	c.events += n
	if now := time.Now(); c.out != nil && now.Sub(c.drawn) >= redrawAfter {
		c.drawn = now
		c.draw("")
	}
}

func (c *counter) draw(end string) {
	perSecond := float64(c.events) / max(time.Since(c.started).Seconds(), 1e-3)
	fmt.Fprintf(c.out, "%s%d events  %.0f events/s%s", clearLine, c.events, perSecond, end)
}

// stop draws the final numbers; output continues on the next line.
func (c *counter) stop() {
	if c.out != nil {
		c.draw("\n")
	}
}
