package cli

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// isFigure reports whether an argument names a figure: <module>:<name>:<value>.
func isFigure(id string) bool { return strings.Count(id, ":") >= 2 }

func figureFlags(cmd *cobra.Command, p *client.TraceFigureParams) {
	f := cmd.Flags()
	f.StringVar(&p.AsOf, "as-of", "", "of a figure: as of this effective date")
	f.StringVar(&p.KnownAt, "known-at", "", "of a figure: as known then, an RFC 3339 time or seq:<n>")
	f.StringVar(&p.From, "from", "", "of a figure: first effective date")
	f.StringVar(&p.Currency, "currency", "", "of a figure: only lines in this currency")
	f.StringVar(&p.Dimensions, "dimensions", "", "of a figure: only lines with these values, as department=ENG")
	f.IntVar(&p.Limit, "rows", 0, "of a figure: rows of a page, at most 50 (default 20)")
	f.StringVar(&p.Cursor, "cursor", "", "of a figure: next_cursor of the page before")
}

// showFigure prints the rows of a figure, each with the causes of its event; or those of an
// event's effects, with the figures that they are behind.
func (t *trace) showFigure(ctx context.Context, id string) error {
	if t.legalEntity == "" {
		return fault.New(fault.Invalid, "trace.legal_entity_missing", "figures are of one legal entity; name it with --legal-entity or BACKBONE_LEGAL_ENTITY")
	}
	t.figure.LegalEntity, t.figure.Raw = t.legalEntity, t.raw
	found, err := t.TraceFigure(ctx, id, t.figure, t.keep())
	if err != nil {
		return err
	}
	var answer map[string]json.RawMessage // as the server wrote it: amounts keep their digits
	if err := json.Unmarshal(t.document, &answer); err != nil {
		return err
	}
	return t.show(answer, func(p *page) { p.figure(&found) })
}

func (p *page) figure(found *client.FigureTrace) {
	events, intents := map[string]client.Event{}, map[string]client.Intent{}
	for _, e := range found.Events {
		events[e.ID] = e
	}
	for _, in := range found.Intents {
		in.Names = found.Names
		intents[in.IntentID] = in
	}
	for _, r := range found.Rows {
		if found.ReadModel != "" {
			p.line("%s", rowLine(r.Row))
			for depth, id := range r.Chain {
				p.cause(depth, events[id], intents[events[id].IntentID], found.Names)
			}
		} else if depth := len(r.Chain) - 1; depth >= 0 {
			p.effect(depth, events[r.EventID], found.Names)
		}
		if len(r.Figures) > 0 {
			p.line("     behind %s", strings.Join(r.Figures, ", "))
		}
	}
	p.leftOut(found.LeftOut)
	if found.HasMore {
		p.line("… more rows with --cursor %s", found.NextCursor)
	}
}

// rowLine picks the members of a read model's row that tell which one it is.
func rowLine(row json.RawMessage) string {
	var members map[string]any
	if json.Unmarshal(row, &members) != nil {
		return ""
	}
	var parts []string
	for _, name := range []string{"effective_date", "date", "journal_number", "number", "account", "action", "side", "amount", "debit", "credit", "currency", "functional_amount"} {
		if text, ok := members[name].(string); ok && text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "  ")
}
