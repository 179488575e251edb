package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Figures traces figures: query.Figures.
type Figures interface {
	ReadModelOf(figure string) (string, error)
	Trace(ctx context.Context, q query.FigureQuery) (query.FigureTrace, error)
}

// figureParams are the parameters of read models that a trace passes on.
var figureParams = []string{"from", "currency", "dimensions"}

// traceFigure answers GET /api/trace/{figure}.
func (s *Server) traceFigure(ctx context.Context, r *request) (any, error) {
	q := query.FigureQuery{
		Readable: callOf(ctx).principal.LegalEntities, Figure: r.path("figure"), AsOf: r.query("as_of"), KnownAt: r.query("known_at"), Cursor: r.query("cursor"),
		Params: map[string]string{}, Limit: r.integer("limit", 1, query.MaxFigureRows, 20, "a number from 1 to 50"),
		Depth: r.integer("depth", 0, query.MaxLineageDepth, query.MaxLineageDepth, "a number from 0 to 50"),
	}
	for _, name := range figureParams {
		if value := r.query(name); value != "" {
			q.Params[name] = value
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if err := s.authorizeTrace(ctx, r, &q); err != nil {
		return nil, err
	}
	found, err := s.config.Figures.Trace(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.figureAnswer(ctx, q, found)
}

// authorizeTrace demands the rights that the same reads need one by one.
func (s *Server) authorizeTrace(ctx context.Context, r *request, q *query.FigureQuery) error {
	code := r.query("legal_entity")
	if code == "" {
		return fault.New(fault.Invalid, "request.parameter_missing", "legal_entity is required; add it").WithField("legal_entity")
	}
	var err error
	for _, action := range []string{actionReadEvents, actionReadIntents} {
		if q.Entity, err = s.authorizeIn(ctx, action, code); err != nil {
			return err
		}
	}
	path, err := s.config.Figures.ReadModelOf(q.Figure)
	if err != nil || path == "" {
		return err
	}
	owner := tenancy.TypeAccess{Type: path, BuiltIn: true}
	owner.Module, _, _ = strings.Cut(path, "/")
	_, err = s.authorizeIn(ctx, actionReadModels, code, owner)
	return err
}

func (s *Server) figureAnswer(ctx context.Context, q query.FigureQuery, found query.FigureTrace) (any, error) {
	intents, persons, err := s.intentsOf(ctx, found.Events)
	if err != nil {
		return nil, err
	}
	names, err := s.namesOf(ctx, append(persons, actorsOf(found.Events)...))
	if err != nil {
		return nil, err
	}
	rows, err := encode(convert(found.Rows, func(f query.FigureRow) figureRow {
		return figureRow{Row: f.Row, EventID: idText(f.EventID), Chain: convert(f.Chain, event.ID.String), Figures: f.Figures}
	}))
	if err == nil {
		rows, err = s.openSealedValues(ctx, q.Entity.Partition, rows)
	}
	if err != nil {
		return nil, err
	}
	w, err := s.render(ctx, found.Events)
	if err != nil {
		return nil, err
	}
	w.raw(`{"figure":`)
	w.text(q.Figure)
	if found.ReadModel != "" {
		w.member("read_model", found.ReadModel)
		w.document("header", found.Header)
	}
	w.name("rows")
	w.bytes(rows)
	w.name("events")
	w.events()
	w.document("intents", nonNil(intents))
	if len(names) > 0 {
		w.document("names", names)
	}
	w.boolean("has_more", found.NextCursor != "")
	w.optional("next_cursor", found.NextCursor)
	w.omissions(found.Omissions)
	w.raw("}")
	return w.answer()
}

type figureRow struct {
	Row     any      `json:"row,omitempty"`
	EventID string   `json:"event_id,omitempty"`
	Chain   []string `json:"chain"`
	Figures []string `json:"figures,omitempty"`
}

// intentsOf reads the intents of events, each once, with the ids of the persons that they name.
// Those of a legal entity or module that the caller does not see are left out.
func (s *Server) intentsOf(ctx context.Context, events []event.Recorded) (answers []api.Intent, persons []string, err error) {
	visible, err := s.visibleLegalEntities(ctx)
	if err != nil {
		return nil, nil, err
	}
	var stored []intent.Intent
	var outcomes []pipeline.Outcome
	seen := map[event.ID]bool{}
	for i := range events {
		e := &events[i]
		at := slices.IndexFunc(visible, func(le ports.LegalEntity) bool { return le.Partition == e.Partition })
		if e.IntentID.IsZero() || seen[e.IntentID] || at < 0 {
			continue
		}
		seen[e.IntentID] = true
		in, outcome, err := s.config.Intents.Get(ctx, visible[at], e.IntentID)
		if fault.CodeOf(err) == codeIntentNotFound {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		stored, outcomes, persons = append(stored, in), append(outcomes, outcome), append(persons, personsOf(&in)...)
	}
	answers, err = s.intentAnswers(ctx, stored, outcomes)
	return answers, persons, err
}
