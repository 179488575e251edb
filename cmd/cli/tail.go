package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

func tailCommand() *cobra.Command {
	var t tail
	var server, token string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print events as they are written, as you may read them",
		Long: "tail follows a live feed of a server: what there is from --from on, then what comes. It\n" +
			"connects again by itself when the connection is lost, behind the last event, so nothing is\n" +
			"missed and nothing comes twice. Ctrl-C ends it and prints how to continue later.",
		Example: "  backbone tail\n" +
			"  backbone tail --from beginning --legal-entity DEMF --type ap.invoice.submitted --json | jq .data\n" +
			"  backbone tail --stream-type machine --site B-7 --custom cost_center=CC-1,cost_center=CC-2\n" +
			"  backbone tail --stream machine/M-17 --legal-entity DEMF --from beginning",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if t.session, err = connect(cmd, server, token, "tail.token_missing", asJSON); err != nil {
				return err
			}
			if t.stream != "" && t.legalEntity == "" {
				t.legalEntity = os.Getenv("BACKBONE_LEGAL_ENTITY")
			}
			return t.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	serverFlags(cmd, &server, &token)
	f.StringVar(&t.stream, "stream", "", "one stream, TYPE/ID")
	f.BoolVar(&all, "all", false, "all legal entities that you may see (the default)")
	f.StringVar(&t.legalEntity, "legal-entity", "", "of the stream (required with --stream; environment BACKBONE_LEGAL_ENTITY), or only these, separated by commas (default: all that you may see)")
	t.filter = eventFilterFlags(cmd)
	f.StringVar(&t.from, "from", "now", "beginning, now, position:N of the global log, a cursor, or the position that an earlier tail printed")
	f.BoolVar(&asJSON, "json", false, "print each event as a line of JSON")
	for _, name := range []string{"all", "type", "module", "division", "region", "site", "custom", "tag", "stream-type"} {
		cmd.MarkFlagsMutuallyExclusive("stream", name)
	}
	return cmd
}

// tail follows a live feed.
type tail struct {
	session
	stream      string // TYPE/ID; "": all
	legalEntity string
	filter      *eventFilter
	from        string // beginning, now, or the position that an earlier tail printed
}

// run prints events as they arrive until ctx ends, which is no error. When the connection is
// lost it reconnects and continues after the last event.
func (t *tail) run(ctx context.Context) error {
	feed, err := t.feed()
	if err != nil {
		return err
	}
	feed.Lost = func(err error, pause time.Duration) {
		fmt.Fprintf(t.err, "Connection lost (%s); trying again in %s\n", fault.CodeOf(err), pause)
	}
	last := ""
	err = t.Follow(ctx, feed, func(item client.FeedItem) error {
		last = item.ID
		if item.Name == client.FeedCaughtUp {
			fmt.Fprintln(t.err, "Caught up; waiting for events. Ctrl-C ends.")
			return nil
		}
		return t.printEvent(item.Data)
	})
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	if last != "" {
		fmt.Fprintf(t.err, "Continue behind the last event with --from %s\n", t.next(last))
	}
	return nil
}

// afterVersion marks a position that an earlier tail of a stream printed.
const afterVersion = "after:"

// next returns the value of --from that continues after an item.
func (t *tail) next(id string) string {
	if t.stream != "" {
		return afterVersion + id
	}
	return id
}

func (t *tail) feed() (client.Feed, error) {
	f := client.Feed{Path: client.AllPath, Parameters: url.Values{}}
	set := func(name, value string) {
		if value != "" {
			f.Parameters.Set(name, value)
		}
	}
	from := t.from
	if from == "beginning" {
		from = "0"
	}
	if t.stream == "" {
		set("from", from)
		set("legal_entities", t.legalEntity)
		for name, values := range map[string][]string{
			"event_types": t.filter.types, "modules": t.filter.modules, "divisions": t.filter.divisions, "regions": t.filter.regions, "sites": t.filter.sites,
			"custom": t.filter.custom, "tags": t.filter.tags, "stream_types": t.filter.streamTypes,
		} {
			set(name, strings.Join(values, ","))
		}
		return f, nil
	}
	streamType, id, found := strings.Cut(t.stream, "/")
	if !found || streamType == "" || id == "" {
		return f, fault.New(fault.Invalid, "tail.stream_invalid", "a stream is given as TYPE/ID, such as machine/M-17")
	}
	f.Path = client.StreamPath(streamType, id)
	set("legal_entity", t.legalEntity)
	if version, found := strings.CutPrefix(from, afterVersion); found {
		f.LastID = version
		return f, nil
	}
	set("from", from)
	return f, nil
}

func (t *tail) printEvent(event []byte) error {
	if t.json {
		_, err := fmt.Fprintf(t.out, "%s\n", event)
		return err
	}
	var e struct {
		Type       string `json:"type"`
		Sequence   string `json:"sequence"`
		RecordedAt string `json:"recorded_at"`
		Stream     struct {
			Type    string `json:"type"`
			ID      string `json:"id"`
			Version int    `json:"version"`
		} `json:"stream"`
		Scope struct {
			LegalEntity string `json:"legal_entity"`
		} `json:"scope"`
		Actor struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"actor"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return err
	}
	_, err := fmt.Fprintf(t.out, "%s  %-8s %8s  %-32s %s/%s v%d  %s\n", e.RecordedAt, e.Scope.LegalEntity, e.Sequence, e.Type, e.Stream.Type, e.Stream.ID, e.Stream.Version, e.Actor.Name)
	return err
}
