package query

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// MaxFigureRows bounds the rows of a page of a figure's trace: each is followed to its root.
const MaxFigureRows = 50

// maxFiguresOfEvent bounds the figures that are named of one event.
const maxFiguresOfEvent = 100

// Figures traces figures of read models to the events behind them, and events to the figures
// that they are behind.
type Figures struct {
	events   *Service
	reports  *Reports
	declared map[string]module.Figure // by module:name
}

// NewFigures joins the declared figures with the services that answer them.
func NewFigures(events *Service, reports *Reports, declared map[string]module.Figure) *Figures {
	return &Figures{events: events, reports: reports, declared: declared}
}

// FigureQuery asks for the trace of a figure or an event.
type FigureQuery struct {
	Entity   ports.LegalEntity
	Readable []string // codes of legal entities that the caller may see; none: all
	Figure   string   // "gl:account:2000", or the id of an event
	AsOf     string
	KnownAt  string
	Params   map[string]string // of the read model, but for the one that takes the value
	Cursor   string
	Limit    int // at most MaxFigureRows
	Depth    int // causes that are followed from each event, at most MaxLineageDepth
}

// FigureTrace is a page of a trace.
type FigureTrace struct {
	ReadModel  string             // "" for an event
	Header     ports.ReportFields // of the read model
	Rows       []FigureRow
	Events     []event.Recorded // of all chains, each once
	Omissions  []Omission
	NextCursor string
}

// FigureRow is a row of the figure with the causes of its event, root first; or, of an event's
// trace, an effect with its causes up to the event asked for.
type FigureRow struct {
	Row     any // of the read model; nil for an effect
	EventID event.ID
	Chain   []event.ID
	Figures []string // that the event is behind, at most maxFiguresOfEvent
}

// ReadModelOf finds the read model of a figure; "" for the id of an event. Fault:
// trace.figure_unknown.
func (f *Figures) ReadModelOf(figure string) (string, error) {
	if _, err := event.ParseID(figure); err == nil {
		return "", nil
	}
	d, _, err := f.find(figure)
	return d.ReadModel, err
}

func (f *Figures) find(figure string) (d module.Figure, value string, err error) {
	parts := strings.SplitN(figure, ":", 3)
	if len(parts) == 3 && parts[2] != "" {
		if d, ok := f.declared[parts[0]+":"+parts[1]]; ok {
			return d, parts[2], nil
		}
	}
	return d, "", fault.New(fault.NotFound, "trace.figure_unknown",
		"%q is no figure; name the id of an event, or one of %s with a value, as gl:account:2000", figure, strings.Join(slices.Sorted(maps.Keys(f.declared)), ", ")).WithField("figure")
}

// Trace follows a figure to its rows, their events and the causes of these; or an event to its
// effects and the figures that they are behind. Further faults: those of Reports.Query,
// event.not_found.
func (f *Figures) Trace(ctx context.Context, q FigureQuery) (FigureTrace, error) {
	if id, err := event.ParseID(q.Figure); err == nil {
		return f.back(ctx, q, id)
	}
	d, value, err := f.find(q.Figure)
	if err != nil {
		return FigureTrace{}, err
	}
	params := maps.Clone(d.Params)
	if params == nil {
		params = map[string]string{}
	}
	maps.Copy(params, q.Params)
	params[d.Param] = value
	report, err := f.reports.Query(ctx, ReportQuery{
		Path: d.ReadModel, Entity: q.Entity, AsOf: q.AsOf, KnownAt: q.KnownAt, Params: params, Cursor: q.Cursor, Limit: min(q.Limit, MaxFigureRows),
	})
	if err != nil {
		return FigureTrace{}, err
	}
	out := FigureTrace{ReadModel: d.ReadModel, Header: report.Header, NextCursor: report.NextCursor}
	c := &chains{figures: f, query: q, seen: map[event.ID]bool{}, found: map[event.ID][]event.ID{}, left: MaxPageBytes}
	for _, r := range report.Rows {
		row, err := c.row(ctx, r)
		if err != nil {
			return FigureTrace{}, err
		}
		out.Rows = append(out.Rows, row)
	}
	out.Events, out.Omissions = c.events, c.omitted
	return out, nil
}

// chains follows events to their roots and keeps each event once.
type chains struct {
	figures *Figures
	query   FigureQuery
	seen    map[event.ID]bool
	found   map[event.ID][]event.ID // the chain of each event that was followed
	events  []event.Recorded
	omitted omissions
	left    int // bytes of payloads
}

func (c *chains) row(ctx context.Context, r any) (FigureRow, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return FigureRow{}, fmt.Errorf("row of %s: %w", c.query.Figure, err)
	}
	var named struct {
		EventID string `json:"event_id"`
	}
	row := FigureRow{Row: r}
	if err := json.Unmarshal(text, &named); err != nil || named.EventID == "" {
		return row, err
	}
	if row.EventID, err = event.ParseID(named.EventID); err != nil {
		return row, err
	}
	if row.Chain, err = c.follow(ctx, row.EventID); err != nil || len(row.Chain) == 0 {
		return row, err
	}
	i := slices.IndexFunc(c.events, func(e event.Recorded) bool { return e.ID == row.EventID })
	row.Figures = c.figures.of(c.events[i])
	return row, nil
}

// follow returns the chain of an event, none if the answer is full.
func (c *chains) follow(ctx context.Context, id event.ID) ([]event.ID, error) {
	if chain, known := c.found[id]; known {
		return chain, nil
	}
	if c.left <= 0 {
		c.omitted.add(ReasonSize, id)
		return nil, nil
	}
	lineage, err := c.figures.events.Lineage(ctx, c.query.Entity, c.query.Readable, id)
	if err != nil {
		return nil, err
	}
	steps := lineage.Events
	if deepest := c.query.Depth + 1; len(steps) > deepest {
		steps = steps[len(steps)-deepest:]
		c.omitted.add(ReasonDepth, steps[0].ID)
	} else {
		for _, o := range lineage.Omissions {
			c.omitted.add(o.Reason, o.At)
		}
	}
	chain := make([]event.ID, len(steps))
	for i, e := range steps {
		if chain[i] = e.ID; !c.seen[e.ID] {
			c.seen[e.ID], c.events, c.left = true, append(c.events, e), c.left-len(e.Payload)
		}
	}
	c.found[id] = chain
	return chain, nil
}

// of lists the figures that an event is behind, by name.
func (f *Figures) of(e event.Recorded) []string {
	var data json.RawMessage
	if e.Payload != nil {
		var err error
		if data, err = e.Data(); err != nil {
			return nil
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.declared)) {
		d := f.declared[name]
		if !slices.Contains(d.EventTypes, e.Type) {
			continue
		}
		for _, value := range d.Values(e, data) {
			if figure := name + ":" + value; value != "" && len(out) < maxFiguresOfEvent && !slices.Contains(out, figure) {
				out = append(out, figure)
			}
		}
	}
	return out
}

// back lists an event and its effects with the figures that each is behind, as of a day and as
// known at a sequence of the event's legal entity.
func (f *Figures) back(ctx context.Context, q FigureQuery, id event.ID) (FigureTrace, error) {
	var known event.Sequence
	if q.KnownAt != "" {
		var err error
		if known, _, err = f.events.ResolveKnownAt(ctx, q.Entity.Partition, q.KnownAt); err != nil {
			return FigureTrace{}, err
		}
	}
	asOf := event.Date(0)
	if q.AsOf != "" {
		var err error
		if asOf, err = event.ParseDate(q.AsOf); err != nil {
			return FigureTrace{}, fault.New(fault.Invalid, "report.as_of_invalid", "as_of is an ISO date such as 2026-03-31").WithField("as_of")
		}
	}
	lineage, err := f.events.Lineage(ctx, q.Entity, q.Readable, id)
	if err != nil {
		return FigureTrace{}, err
	}
	self := lineage.Events[len(lineage.Events)-1]
	tree, err := f.events.Descendants(ctx, q.Entity, q.Readable, id, MaxEvents)
	if err != nil {
		return FigureTrace{}, err
	}
	out := FigureTrace{Omissions: tree.Omissions}
	chains := map[event.ID][]event.ID{}
	for _, d := range append([]Descendant{{Event: self}}, tree.Events...) {
		e := d.Event
		if d.Depth > q.Depth || asOf != 0 && e.EffectiveDate > asOf || known != 0 && e.Partition == q.Entity.Partition && e.Sequence > known {
			continue
		}
		chain := append(slices.Clip(chains[d.Parent]), e.ID)
		chains[e.ID] = chain
		out.Events = append(out.Events, e)
		out.Rows = append(out.Rows, FigureRow{EventID: e.ID, Chain: chain, Figures: f.of(e)})
	}
	return out, nil
}
