package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

func traceCommand() *cobra.Command {
	var o TraceOptions
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
			return Trace(cmd.Context(), o)
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

// TraceOptions are the flags of `backbone trace`.
type TraceOptions struct {
	Server      string
	Token       string
	LegalEntity string
	ID          string // event, document or journal number
	Effects     bool   // what the event led to, instead of its causes
	Process     bool   // everything that happened under the event's correlation id
	Raw         bool   // events as they are stored
	JSON        bool
	Out         io.Writer
}

// Trace follows an event back to its first cause, with the intents and persons
// behind each step, or forward to its effects, or shows the process that it is part of.
func Trace(ctx context.Context, o TraceOptions) error {
	if o.Token == "" {
		return fault.New(fault.Unauthenticated, "trace.token_missing", "no access token; set BACKBONE_TOKEN or --token")
	}
	client, err := httpclient.New(httpclient.Config{Server: o.Server, Token: o.Token, Raw: o.Raw})
	if err != nil {
		return err
	}
	return traceBack(ctx, client, o)
}

func traceBack(ctx context.Context, client *httpclient.Client, o TraceOptions) error {
	id, err := findEvent(ctx, client, o.LegalEntity, o.ID)
	if err != nil {
		return err
	}
	switch {
	case o.Effects:
		return traceEffects(ctx, client, o, id)
	case o.Process:
		return traceProcess(ctx, client, o, id)
	}
	chain, err := client.Lineage(ctx, o.LegalEntity, id)
	if err != nil {
		return err
	}
	intents := map[string]httpclient.StoredIntent{}
	for _, e := range chain.Events {
		if e.IntentID == "" {
			continue
		}
		if _, known := intents[e.IntentID]; known {
			continue
		}
		stored, err := client.GetIntent(ctx, e.Scope.LegalEntity, e.IntentID)
		if err != nil {
			return err
		}
		intents[e.IntentID] = stored
	}
	if o.JSON {
		return printJSON(o.Out, map[string]any{"lineage": chain.Events, "truncated": chain.Truncated, "left_out": shownLeftOut(chain.LeftOut), "intents": intents})
	}
	for depth, e := range chain.Events {
		printStep(o.Out, depth, e, intents[e.IntentID])
	}
	printLeftOut(o.Out, chain.LeftOut)
	return nil
}

var journalNumber = regexp.MustCompile(`^[A-Z]{2}-[A-Za-z0-9._-]+-\d{6}$`)

// findEvent turns what a person has at hand into an event id: an event's own id,
// a journal number, or the id of a document, whose last event is taken.
func findEvent(ctx context.Context, client *httpclient.Client, legalEntity, id string) (string, error) {
	if journalNumber.MatchString(id) {
		return lastEvent(ctx, client, legalEntity, "tag", "journal:"+id, id)
	}
	if _, err := event.ParseID(id); err == nil {
		e, err := client.Event(ctx, legalEntity, id)
		if fault.KindOf(err) != fault.NotFound {
			return e.ID, err
		}
	}
	for _, kind := range []string{"invoice", "credit_memo", "journal", "vendor"} {
		found, err := lastEvent(ctx, client, legalEntity, "entity", kind+":"+id, id)
		if fault.CodeOf(err) != codeNothingToTrace {
			return found, err
		}
	}
	return "", nothingToTrace(id)
}

const codeNothingToTrace = "trace.not_found"

func nothingToTrace(id string) *fault.Error {
	return fault.New(fault.NotFound, codeNothingToTrace, "there is no event, document or journal %q in this legal entity; check the id and --legal-entity", id)
}

func lastEvent(ctx context.Context, client *httpclient.Client, legalEntity, streamType, streamID, asked string) (string, error) {
	if legalEntity == "" {
		return "", fault.New(fault.Invalid, "trace.legal_entity_missing", "documents and journals are looked for in one legal entity; name it with --legal-entity or BACKBONE_LEGAL_ENTITY")
	}

	page, err := client.Events(ctx, url.Values{
		"stream_type": {streamType}, "stream_id": {streamID}, "legal_entity": {legalEntity}, "direction": {"backward"}, "limit": {"1"},
	})
	if err != nil {
		return "", err
	}
	if len(page.Events) == 0 {
		return "", nothingToTrace(asked)
	}
	return page.Events[0].ID, nil
}

// printStep writes one link of the chain: what happened, by whom, through which
// intent, let through by which rules, from which paper.
func printStep(out io.Writer, depth int, e httpclient.Event, in httpclient.StoredIntent) {
	indent := strings.Repeat("   ", depth)
	arrow := ""
	if depth > 0 {
		arrow = "└─ "
		indent = strings.Repeat("   ", depth-1)
	}
	rest := strings.Repeat("   ", depth) + "     "
	fmt.Fprintln(out, strings.TrimRight(indent+arrow+e.Type+"  "+headline(e), " "))
	fmt.Fprintf(out, "%s%s  %s/%s version %d, sequence %s, effective %s\n", rest, e.RecordedAt.UTC().Format("2006-01-02 15:04:05.000Z"), e.Stream.Type, e.Stream.ID, e.Stream.Version, e.Sequence, e.EffectiveDate)
	fmt.Fprintf(out, "%sby %s %s (%s)", rest, e.Actor.Type, e.Actor.ID, e.Actor.Name)
	if e.IntentID != "" {
		fmt.Fprintf(out, ", intent %s %s", in.Type, e.IntentID)
	}
	fmt.Fprintln(out)
	for _, a := range in.Approvals {
		fmt.Fprintf(out, "%s%s by %s as %s\n", rest, a.Decision, a.PersonID, a.Role)
	}
	if e.Metadata.Source.Reference != "" {
		fmt.Fprintf(out, "%ssource %s, %s, %s\n", rest, e.Metadata.Source.System, e.Metadata.Source.Channel, e.Metadata.Source.Reference)
	}
	var rules []string
	for _, r := range e.Metadata.RulesEvaluated {
		if r.Result == string(event.RuleFired) {
			rules = append(rules, r.RuleID)
		}
	}
	if len(rules) > 0 {
		fmt.Fprintf(out, "%srules fired: %s\n", rest, strings.Join(rules, ", "))
	}
}

// headline picks what a reader looks for first out of an event's data.
func headline(e httpclient.Event) string {
	var d struct {
		InvoiceNumber string      `json:"invoice_number"`
		JournalNumber string      `json:"journal_number"`
		VendorID      string      `json:"vendor_id"`
		Name          string      `json:"name"`
		Currency      string      `json:"currency"`
		Total         json.Number `json:"total_amount"`
		TotalDebit    json.Number `json:"total_debit"`
		Amount        json.Number `json:"amount"`
		Functional    json.Number `json:"functional_amount"`
		Book          string      `json:"functional_currency"`
	}
	if json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	var parts []string
	for _, s := range []string{d.JournalNumber, d.InvoiceNumber, d.VendorID, d.Name} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	for _, m := range []struct {
		amount   json.Number
		currency string
	}{{d.Total, d.Currency}, {d.TotalDebit, d.Book}, {d.Amount, d.Currency}, {d.Functional, d.Book}} {
		if m.amount != "" {
			parts = append(parts, strings.TrimSpace(m.amount.String()+" "+m.currency))
			break
		}
	}
	return strings.Join(parts, ", ")
}

// traceEffects shows what an event led to, each effect under its cause.
func traceEffects(ctx context.Context, client *httpclient.Client, o TraceOptions, id string) error {
	root, err := client.Event(ctx, o.LegalEntity, id)
	if err != nil {
		return err
	}
	tree, err := client.Descendants(ctx, root.Scope.LegalEntity, id)
	if err != nil {
		return err
	}
	if o.JSON {
		return printJSON(o.Out, map[string]any{"event": root, "descendants": tree.Events, "truncated": tree.Truncated, "left_out": shownLeftOut(tree.LeftOut)})
	}
	effects := map[string][]httpclient.Descendant{}
	for _, d := range tree.Events {
		effects[d.Parent] = append(effects[d.Parent], d)
	}
	printEffect(o.Out, 0, root)
	var under func(id string)
	under = func(id string) {
		for _, d := range effects[id] {
			printEffect(o.Out, d.Depth, d.Event)
			under(d.Event.ID)
		}
	}
	under(id)
	printLeftOut(o.Out, tree.LeftOut)
	return nil
}

func printEffect(out io.Writer, depth int, e httpclient.Event) {
	indent := ""
	if depth > 0 {
		indent = strings.Repeat("   ", depth-1) + "└─ "
	}
	fmt.Fprintln(out, strings.TrimRight(indent+e.Type+"  "+headline(e), " "))
	printWhere(out, strings.Repeat("   ", depth)+"     ", e)
}

func printWhere(out io.Writer, indent string, e httpclient.Event) {
	fmt.Fprintf(out, "%s%s  %s  %s/%s version %d, sequence %s, by %s %s\n", indent, e.RecordedAt.UTC().Format("2006-01-02 15:04:05.000Z"),
		e.Scope.LegalEntity, e.Stream.Type, e.Stream.ID, e.Stream.Version, e.Sequence, e.Actor.Type, e.Actor.ID)
}

// traceProcess shows everything under the event's correlation id with its times.
func traceProcess(ctx context.Context, client *httpclient.Client, o TraceOptions, id string) error {
	e, err := client.Event(ctx, o.LegalEntity, id)
	if err != nil {
		return err
	}
	p, err := client.Process(ctx, e.CorrelationID)
	if err != nil {
		return err
	}
	if o.JSON {
		p.LeftOut = shownLeftOut(p.LeftOut)
		return printJSON(o.Out, p)
	}
	for i, e := range p.Events {
		fmt.Fprintln(o.Out, strings.TrimRight(fmt.Sprintf("+%s  %s  %s", elapsed(p.Steps[i].SinceStartMS), e.Type, headline(e)), " "))
		printWhere(o.Out, "     ", e)
	}
	fmt.Fprintf(o.Out, "process %s: %d events in %s by %s\n", p.CorrelationID, len(p.Events), elapsed(p.DurationMS), strings.Join(p.Actors, ", "))
	if about := aboutLine(p.Entities); about != "" {
		fmt.Fprintln(o.Out, about)
	}
	printLeftOut(o.Out, p.LeftOut)
	return nil
}

// mostAbout bounds the entities that a terminal is shown of a process.
const mostAbout = 20

// aboutLine names what a process was about, each entity once, whatever its roles.
func aboutLine(entities []httpclient.Entity) string {
	var names []string
	seen := make(map[string]struct{}, len(entities)) // a process of many documents is about very many entities
	for _, e := range entities {
		name := e.Type + " " + e.ID
		if _, again := seen[name]; !again {
			seen[name] = struct{}{}
			names = append(names, name)
		}
	}
	switch n := len(names); {
	case n == 0:
		return ""
	case n > mostAbout:
		return fmt.Sprintf("about %s and %d more, which --json lists", strings.Join(names[:mostAbout], ", "), n-mostAbout)
	default:
		return "about " + strings.Join(names, ", ")
	}
}

func elapsed(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// leftOutTexts say why an answer stops before its end.
var leftOutTexts = map[string]string{
	"depth":        "it goes on for more steps than are followed",
	"count":        "there are more events than are shown at once",
	"size":         "there are more events, but together they are too large to be shown at once",
	"legal_entity": "it goes on in a legal entity that you may not see",
	"missing":      "the cause is in no log",
	"cycle":        "the events name each other as their cause",
}

func printLeftOut(out io.Writer, left []httpclient.LeftOut) {
	for _, l := range left {
		text, known := leftOutTexts[l.Reason]
		if !known {
			text = l.Reason
		}
		if l.EventID != "" {
			text = "at " + l.EventID + " " + text
		}
		fmt.Fprintln(out, "… "+text)
	}
}

// shownLeftOut is a list in JSON even when it is empty.
func shownLeftOut(left []httpclient.LeftOut) []httpclient.LeftOut {
	return append([]httpclient.LeftOut{}, left...)
}
