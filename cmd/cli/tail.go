package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

func tailCommand() *cobra.Command {
	var o TailOptions
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
			return Tail(cmd.Context(), o)
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

// TailOptions are the flags of `backbone tail`.
type TailOptions struct {
	Server      string
	Token       string
	Stream      string // TYPE/ID; "": all
	LegalEntity string
	Types       []string
	Modules     []string
	From        string // beginning, now, or what an earlier tail told
	JSON        bool
	Out         io.Writer
	Err         io.Writer
}

// Tail prints events as they come until ctx ends, which is no error. It connects again
// behind the last event when the connection is lost.
func Tail(ctx context.Context, o TailOptions) error {
	if o.Token == "" {
		return fault.New(fault.Unauthenticated, "tail.token_missing", "no access token; set BACKBONE_TOKEN or --token")
	}
	client, err := httpclient.New(httpclient.Config{Server: o.Server, Token: o.Token})
	if err != nil {
		return err
	}
	feed, err := o.feed()
	if err != nil {
		return err
	}
	feed.Lost = func(err error, pause time.Duration) {
		fmt.Fprintf(o.Err, "Connection lost (%s); trying again in %s\n", fault.CodeOf(err), pause)
	}
	last := ""
	err = client.Follow(ctx, feed, func(item httpclient.FeedItem) error {
		last = item.ID
		if item.Name == httpclient.FeedCaughtUp {
			fmt.Fprintln(o.Err, "Caught up; waiting for events. Ctrl-C ends.")
			return nil
		}
		return o.print(item.Data)
	})
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	if last != "" {
		fmt.Fprintf(o.Err, "Go on behind the last event with --from %s\n", o.goOn(last))
	}
	return nil
}

// afterVersion marks a position that an earlier tail of a stream told.
const afterVersion = "after:"

func (o *TailOptions) goOn(id string) string {
	if o.Stream != "" {
		return afterVersion + id
	}
	return id
}

func (o *TailOptions) feed() (httpclient.Feed, error) {
	f := httpclient.Feed{Path: httpclient.AllPath, Parameters: url.Values{}}
	set := func(name, value string) {
		if value != "" {
			f.Parameters.Set(name, value)
		}
	}
	from := o.From
	if from == "beginning" {
		from = "0"
	}
	if o.Stream == "" {
		set("from", from)
		set("event_types", strings.Join(o.Types, ","))
		set("modules", strings.Join(o.Modules, ","))
		set("legal_entities", o.LegalEntity)
		return f, nil
	}
	streamType, id, found := strings.Cut(o.Stream, "/")
	if !found || streamType == "" || id == "" {
		return f, fault.New(fault.Invalid, "tail.stream_invalid", "a stream is given as TYPE/ID, such as machine/M-17")
	}
	f.Path = httpclient.StreamPath(streamType, id)
	set("legal_entity", o.LegalEntity)
	if version, found := strings.CutPrefix(from, afterVersion); found {
		f.LastID = version
		return f, nil
	}
	set("from", from)
	return f, nil
}

func (o *TailOptions) print(event []byte) error {
	if o.JSON {
		_, err := fmt.Fprintf(o.Out, "%s\n", event)
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
	_, err := fmt.Fprintf(o.Out, "%s  %-8s %8s  %-32s %s/%s v%d  %s\n", e.RecordedAt, e.Scope.LegalEntity, e.Sequence, e.Type, e.Stream.Type, e.Stream.ID, e.Stream.Version, e.Actor.Name)
	return err
}
