package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

func traceCommand() *cobra.Command {
	t := &trace{}
	var server, token string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "trace ID",
		Short: "From an event, document or journal back to its paper and the persons",
		Long: "trace follows causes to the root: who did what, when, through which intent, let\n" +
			"through by which rules; and what became of a document between two of them, such as\n" +
			"a hold and who released it. With --effects it shows what the event led to instead, with\n" +
			"--process everything that happened under its correlation id, and when. ID is an\n" +
			"event's id, a journal number, or the id of a document or vendor, of which the last\n" +
			"event is taken. It may also be a figure of a report, such as gl:account:2000,\n" +
			"gl:tax:S19, ap:document:ID or ap:vendor:V-1: each of its lines is then followed to\n" +
			"persons and papers. --figures goes the way back, from an event to the figures.",
		Example: "  backbone trace --legal-entity DEMF SL-2026-000001\n" +
			"  backbone trace --legal-entity DEMF gl:account:2000 --as-of 2026-03-31\n" +
			"  backbone trace --legal-entity DEMF --effects 01JQ8E6Z6G3V5T8C9N2M4K7R1P --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if t.session, err = connect(cmd, server, token, "trace.token_missing", asJSON); err != nil {
				return err
			}
			return t.run(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	serverFlags(cmd, &server, &token)
	legalEntityFlag(cmd, &t.legalEntity, "legal entity the ID belongs to (environment BACKBONE_LEGAL_ENTITY); required for documents and journals (default: an event is looked for in all that you may see)")
	f.BoolVar(&t.effects, "effects", false, "what the event led to, instead of what led to it")
	f.BoolVar(&t.process, "process", false, "everything that happened under the event's correlation id")
	f.BoolVar(&t.figures, "figures", false, "the figures of reports that the event and its effects are behind")
	figureFlags(cmd, &t.figure)
	f.BoolVar(&t.raw, "raw", false, "events as they are stored, not in the newest version of their type")
	f.BoolVar(&asJSON, "json", false, "print the events and intents as JSON")
	cmd.MarkFlagsMutuallyExclusive("effects", "process", "figures")
	return cmd
}

// trace follows an event back to its first cause, with the intent and the person of each step,
// or forward to its effects, or shows the process that it belongs to.
type trace struct {
	session
	legalEntity string
	effects     bool // show the effects of the event instead of its causes
	process     bool // everything that happened under the event's correlation id
	raw         bool // events as they are stored
	figures     bool // show the figures that the event and its effects are behind
	figure      client.TraceFigureParams
}

// run traces an event, a document or a journal.
func (t *trace) run(ctx context.Context, id string) error {
	if isFigure(id) {
		return t.showFigure(ctx, id)
	}
	id, err := t.findEvent(ctx, id)
	switch {
	case err != nil:
		return err
	case t.figures:
		return t.showFigure(ctx, id)
	case t.effects:
		return t.showEffects(ctx, id)
	case t.process:
		return t.showProcess(ctx, id)
	default:
		return t.showCauses(ctx, id)
	}
}

func (t *trace) showCauses(ctx context.Context, id string) error {
	chain, err := t.GetLineage(ctx, id, client.GetLineageParams{LegalEntity: t.legalEntity, Raw: t.raw})
	if err != nil {
		return err
	}
	history, err := t.stepsBetween(ctx, chain.Lineage)
	if err != nil {
		return err
	}
	intents := map[string]client.Intent{}
	for _, e := range slices.Concat(chain.Lineage, history.all()) {
		if _, known := intents[e.IntentID]; known || e.IntentID == "" {
			continue
		}
		if intents[e.IntentID], err = t.GetIntent(ctx, e.IntentID, client.GetIntentParams{LegalEntity: e.Scope.LegalEntity}); err != nil {
			return err
		}
	}
	answer := map[string]any{"lineage": chain.Lineage, "truncated": chain.Truncated, "left_out": leftOutList(chain.LeftOut), "intents": intents, "steps_between": history}
	if len(chain.Names) > 0 {
		answer["names"] = chain.Names
	}
	return t.show(answer, func(p *page) {
		for depth, e := range chain.Lineage {
			p.between(depth, history[e.ID], intents)
			p.cause(depth, e, intents[e.IntentID], chain.Names)
		}
		p.leftOut(chain.LeftOut)
	})
}

// maxStepsBetween bounds the events of a document that are shown between two of the chain.
const maxStepsBetween = 20

// documentSteps are, by an event of the chain, the events of its stream between it and the
// chain's event before it on that stream. They caused nothing of the chain, but tell what became
// of the document: who held it and who released the hold, who validated it, who approved first.
type documentSteps map[string][]client.Event

func (d documentSteps) all() []client.Event {
	var out []client.Event
	for _, id := range slices.Sorted(maps.Keys(d)) {
		out = append(out, d[id]...)
	}
	return out
}

// stepsBetween reads the steps of a chain. A stream that the caller may not read has none.
func (t *trace) stepsBetween(ctx context.Context, chain []client.Event) (documentSteps, error) {
	out := documentSteps{}
	last := map[string]int64{} // version of the chain's last event, by stream
	for _, e := range chain {
		stream := e.Scope.LegalEntity + " " + e.Stream.Type + "/" + e.Stream.ID
		before, again := last[stream]
		last[stream] = e.Stream.Version
		missing := e.Stream.Version - before - 1
		if !again || missing <= 0 {
			continue
		}
		count := min(missing, maxStepsBetween)
		page, err := t.ReadStream(ctx, e.Stream.Type, e.Stream.ID, client.ReadStreamParams{
			LegalEntity: e.Scope.LegalEntity, From: e.Stream.Version - count, Count: int(count), Raw: t.raw,
		})
		if kind := fault.KindOf(err); err != nil && kind != fault.NotFound && kind != fault.Forbidden && kind != fault.Gone {
			return nil, err
		}
		out[e.ID] = slices.DeleteFunc(page.Events, func(found client.Event) bool {
			return found.Stream.Version <= before || found.Stream.Version >= e.Stream.Version
		})
	}
	return out, nil
}

// between writes the steps of a document before an event of the chain.
func (p *page) between(depth int, steps []client.Event, intents map[string]client.Intent) {
	indent := strings.Repeat("   ", depth)
	for _, e := range steps {
		in := intents[e.IntentID]
		p.line("%s", strings.TrimRight(indent+"│ "+e.Type+"  "+headline(e), " "))
		line := fmt.Sprintf("%s│      %s by %s", indent, e.RecordedAt.UTC().Format(millisecondLayout), actorLine(e.Actor, in.Names))
		if e.IntentID != "" {
			line += fmt.Sprintf(", intent %s %s", in.Type, e.IntentID)
		}
		p.line("%s", line)
	}
}

var journalNumber = regexp.MustCompile(`^[A-Z]{2}-[A-Za-z0-9._-]+-\d{6}$`)

// findEvent resolves the argument of the command to an event id: an event's own id,
// a journal number, or the id of a document, whose last event is taken.
func (t *trace) findEvent(ctx context.Context, id string) (string, error) {
	if journalNumber.MatchString(id) {
		return t.lastEvent(ctx, "tag", "journal:"+id, id)
	}
	if _, err := event.ParseID(id); err == nil {
		e, err := t.event(ctx, id)
		if fault.KindOf(err) != fault.NotFound {
			return e.ID, err
		}
	}
	for _, kind := range []string{"invoice", "credit_memo", "journal", "vendor"} {
		found, err := t.lastEvent(ctx, "entity", kind+":"+id, id)
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

// event reads an event; without a legal entity it searches all that the caller may see.
func (t *trace) event(ctx context.Context, id string) (client.Event, error) {
	answer, err := t.GetEvent(ctx, id, client.GetEventParams{LegalEntity: t.legalEntity, Raw: t.raw})
	return answer.Event, err
}

func (t *trace) lastEvent(ctx context.Context, streamType, streamID, asked string) (string, error) {
	if t.legalEntity == "" {
		return "", fault.New(fault.Invalid, "trace.legal_entity_missing", "documents and journals are looked for in one legal entity; name it with --legal-entity or BACKBONE_LEGAL_ENTITY")
	}
	list, err := t.ListEvents(ctx, client.ListEventsParams{
		StreamType: streamType, StreamID: streamID, LegalEntity: t.legalEntity, Direction: "backward", Limit: 1, Raw: t.raw,
	})
	if err != nil {
		return "", err
	}
	if len(list.Events) == 0 {
		return "", nothingToTrace(asked)
	}
	return list.Events[0].ID, nil
}

// cause writes one link of the chain: the event, its actor, its intent, the rules that permitted
// it, and its source document. names are those of the chain; the intent has those of its approvers.
func (p *page) cause(depth int, e client.Event, in client.Intent, names client.PersonNames) {
	indent := strings.Repeat("   ", depth)
	arrow := ""
	if depth > 0 {
		arrow = "└─ "
		indent = strings.Repeat("   ", depth-1)
	}
	rest := strings.Repeat("   ", depth) + "     "
	p.line("%s", strings.TrimRight(indent+arrow+e.Type+"  "+headline(e), " "))
	p.line("%s%s  %s/%s version %d, sequence %s, effective %s", rest, e.RecordedAt.UTC().Format(millisecondLayout), e.Stream.Type, e.Stream.ID, e.Stream.Version, e.Sequence, e.EffectiveDate)
	by := fmt.Sprintf("%sby %s", rest, actorLine(e.Actor, names))
	if e.IntentID != "" {
		by += fmt.Sprintf(", intent %s %s", in.Type, e.IntentID)
	}
	p.line("%s", by)
	for _, a := range in.Approvals {
		p.line("%s%s by %s as %s", rest, a.Decision, withName(a.PersonID, in.Names), a.Role)
	}
	if e.Metadata.Source.Reference != "" {
		p.line("%ssource %s, %s, %s", rest, e.Metadata.Source.System, e.Metadata.Source.Channel, e.Metadata.Source.Reference)
	}
	var rules []string
	for _, r := range e.Metadata.RulesEvaluated {
		if string(r.Result) == string(event.RuleFired) {
			rules = append(rules, r.RuleID)
		}
	}
	if len(rules) > 0 {
		p.line("%srules fired: %s", rest, strings.Join(rules, ", "))
	}
}

// headline picks the members of an event's data that tell what it is about, whatever its
// module: numbers, names, kind and reason, an amount.
func headline(e client.Event) string {
	var d struct {
		InvoiceNumber string      `json:"invoice_number"`
		JournalNumber string      `json:"journal_number"`
		VendorID      string      `json:"vendor_id"`
		Name          string      `json:"name"`
		Kind          string      `json:"kind"`
		Reason        string      `json:"reason"`
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
	if d.Reason != "" {
		d.Reason = strconv.Quote(d.Reason)
	}
	for _, s := range []string{d.JournalNumber, d.InvoiceNumber, d.VendorID, d.Name, d.Kind, d.Reason} {
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

// showEffects prints the effects of an event, each under its cause.
func (t *trace) showEffects(ctx context.Context, id string) error {
	root, err := t.event(ctx, id)
	if err != nil {
		return err
	}
	tree, err := t.GetDescendants(ctx, id, client.GetDescendantsParams{LegalEntity: root.Scope.LegalEntity, Raw: t.raw})
	if err != nil {
		return err
	}
	effects := map[string][]client.Descendant{}
	for _, d := range tree.Descendants {
		effects[d.Parent] = append(effects[d.Parent], d)
	}
	answer := map[string]any{"event": root, "descendants": tree.Descendants, "truncated": tree.Truncated, "left_out": leftOutList(tree.LeftOut)}
	if len(tree.Names) > 0 {
		answer["names"] = tree.Names
	}
	return t.show(answer, func(p *page) {
		p.effect(0, root, tree.Names)
		var under func(id string)
		under = func(id string) {
			for _, d := range effects[id] {
				p.effect(d.Depth, d.Event, tree.Names)
				under(d.Event.ID)
			}
		}
		under(id)
		p.leftOut(tree.LeftOut)
	})
}

func (p *page) effect(depth int, e client.Event, names client.PersonNames) {
	indent := ""
	if depth > 0 {
		indent = strings.Repeat("   ", depth-1) + "└─ "
	}
	p.line("%s", strings.TrimRight(indent+e.Type+"  "+headline(e), " "))
	p.position(strings.Repeat("   ", depth)+"     ", e, names)
}

// position writes the place of an event in the log and its actor.
func (p *page) position(indent string, e client.Event, names client.PersonNames) {
	p.line("%s%s  %s  %s/%s version %d, sequence %s, by %s %s", indent, e.RecordedAt.UTC().Format(millisecondLayout),
		e.Scope.LegalEntity, e.Stream.Type, e.Stream.ID, e.Stream.Version, e.Sequence, e.Actor.Type, withName(e.Actor.ID, names))
}

// showProcess prints all events with the event's correlation id and their times.
func (t *trace) showProcess(ctx context.Context, id string) error {
	e, err := t.event(ctx, id)
	if err != nil {
		return err
	}
	v, err := t.GetProcess(ctx, e.CorrelationID, client.GetProcessParams{Raw: t.raw}, t.keep())
	if err != nil {
		return err
	}
	var answer map[string]json.RawMessage // as the server wrote it: amounts keep their digits
	if err := json.Unmarshal(t.document, &answer); err != nil {
		return err
	}
	if len(v.LeftOut) == 0 {
		answer["left_out"] = json.RawMessage("[]")
	}
	return t.show(answer, func(p *page) {
		for i, e := range v.Events {
			p.line("%s", strings.TrimRight(fmt.Sprintf("+%s  %s  %s", milliseconds(v.Steps[i].SinceStartMs), e.Type, headline(e)), " "))
			p.position("     ", e, v.Names)
		}
		p.line("process %s: %d events in %s by %s", v.CorrelationID, len(v.Events), milliseconds(v.ProcessDurationMs), strings.Join(withNames(v.ActorsInvolved, v.Names), ", "))
		if about := aboutLine(v.EntitiesInvolved); about != "" {
			p.line("%s", about)
		}
		p.leftOut(v.LeftOut)
	})
}

// withNames writes the name of a person after the id, where the server told it.
func withNames(ids []string, names client.PersonNames) []string {
	out := slices.Clone(ids)
	for i, id := range out {
		out[i] = withName(id, names)
	}
	return out
}

// withName is withNames for one person.
func withName(id string, names client.PersonNames) string {
	if name := names[id]; name != "" {
		return fmt.Sprintf("%s (%s)", id, name)
	}
	return id
}

// actorLine renders an actor with the person's name, if the answer has it, and the role.
func actorLine(a client.Actor, names client.PersonNames) string {
	role := a.Name
	if name := names[a.ID]; name != "" {
		role = name + ", " + role
	}
	return fmt.Sprintf("%s %s (%s)", a.Type, a.ID, role)
}

// maxEntitiesListed bounds the printed entities of a process.
const maxEntitiesListed = 20

// aboutLine lists the entities of a process, each once even if it has several roles.
func aboutLine(entities []client.EntityReference) string {
	var names []string
	seen := make(map[string]struct{}, len(entities)) // a process of many documents is about very many entities
	for _, e := range entities {
		name := e.EntityType + " " + e.EntityID
		if _, again := seen[name]; !again {
			seen[name] = struct{}{}
			names = append(names, name)
		}
	}
	switch n := len(names); {
	case n == 0:
		return ""
	case n > maxEntitiesListed:
		return fmt.Sprintf("about %s and %d more, which --json lists", strings.Join(names[:maxEntitiesListed], ", "), n-maxEntitiesListed)
	default:
		return "about " + strings.Join(names, ", ")
	}
}

func milliseconds(n json.Number) time.Duration {
	ms, _ := n.Float64() // the server writes numbers
	return time.Duration(ms * float64(time.Millisecond))
}

// leftOutTexts explain, by the server's reason, why an answer is incomplete.
var leftOutTexts = map[string]string{
	"depth":        "it has more steps than are followed",
	"count":        "there are more events than are shown at once",
	"size":         "there are more events, but together they are too large to be shown at once",
	"legal_entity": "it continues in a legal entity that you may not see",
	"missing":      "the cause is in no log",
	"cycle":        "the events name each other as their cause",
}

func (p *page) leftOut(left []client.LeftOut) {
	for _, l := range left {
		text, known := leftOutTexts[l.Reason]
		if !known {
			text = l.Reason
		}
		if l.EventID != "" {
			text = "at " + l.EventID + " " + text
		}
		p.line("… %s", text)
	}
}

// leftOutList encodes as a list even when it is empty.
func leftOutList(left []client.LeftOut) []client.LeftOut { return append([]client.LeftOut{}, left...) }
