package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

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

func printJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
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
