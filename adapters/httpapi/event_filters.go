package httpapi

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const actionReadEvents = "events.read"

const (
	defaultPage = 100
	maxPage     = 1000
)

// readSelection reads the parameters of a query for events, without its limit, and
// checks that the caller may do the action there.
func (s *Server) readSelection(ctx context.Context, action string, r request) (query.Selection, error) {
	p := callOf(ctx).principal
	sel := query.Selection{
		TenantID: p.TenantID, Kind: query.StreamKind(r.query("stream_type")), StreamID: r.query("stream_id"), LegalEntity: r.query("legal_entity"),
		Readable: p.LegalEntities, Cursor: r.query("cursor"),
	}
	entity := sel.LegalEntity
	if sel.Kind == query.ByScope && entity == "" {
		entity = sel.StreamID
	}
	switch {
	case entity != "":
		if _, err := s.authorizeIn(ctx, action, entity); err != nil {
			return sel, err
		}
	case sel.Kind != query.ByCorrelation:
		return sel, fault.New(fault.Invalid, "request.parameter_missing", "legal_entity is required for this stream_type; add it").WithField("legal_entity")
	}
	var err error
	if sel.Filter, err = eventFilter(r); err != nil {
		return sel, err
	}
	if r.query("modules") != "" {
		sel.Modules = strings.Split(r.query("modules"), ",")
		slices.Sort(sel.Modules)
	}
	switch {
	case sel.Kind == query.ByType && sel.StreamID != "":
		err = s.requireTypes(ctx, "stream_id", sel.StreamID)
	case len(sel.Filter.Types) > 0:
		err = s.requireTypes(ctx, "event_types", sel.Filter.Types...)
	}
	if err != nil || len(sel.Modules) == 0 && sel.Filter.Predicate == nil {
		return sel, err
	}
	return sel, s.checkAgainstRegistry(ctx, &sel)
}

// checkAgainstRegistry resolves the modules of a selection to event types, and refuses a
// predicate over a field that is personal in any selected type: it would compare sealed
// values.
func (s *Server) checkAgainstRegistry(ctx context.Context, sel *query.Selection) error {
	registered, err := s.config.Types.List(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range registered {
		t := &registered[i]
		owner := s.config.Catalog.Owner(t.Type)
		if owner == "" {
			owner = t.Module
		}
		ours := len(sel.Modules) == 0 || slices.Contains(sel.Modules, owner)
		if ours && len(sel.Modules) > 0 {
			known[owner] = true
			if !slices.Contains(sel.ModuleTypes, t.Type) {
				sel.ModuleTypes = append(sel.ModuleTypes, t.Type)
			}
		}
		asked := len(sel.Filter.Types) == 0 || slices.Contains(sel.Filter.Types, t.Type)
		if sel.Kind == query.ByType {
			asked = t.Type == sel.StreamID
		}
		if sel.Filter.Predicate == nil || !ours || !asked {
			continue
		}
		for _, f := range t.PIIFields {
			if sel.Filter.Predicate.Within(f.Path) {
				return fault.New(fault.Invalid, "query.predicate_personal",
					"this field is personal in events of type %s, whose values are sealed and cannot be searched; choose another field, or name event_types in which it is not personal", t.Type).WithField("path")
			}
		}
	}
	for _, m := range sel.Modules {
		if !known[m] {
			return unknownModule("modules")
		}
	}
	return nil
}

func unknownModule(field string) error {
	return fault.New(fault.Invalid, "query.module_unknown", "no event type belongs to one of these modules; GET /api/event-types lists types with their modules").WithField(field)
}

// unknownType refuses a type that is not registered, so that the caller does not wait for
// events that cannot come.
func unknownType(field string) error {
	return fault.New(fault.Invalid, "query.event_type_unknown", "one of these event types is not registered; GET /api/event-types lists them").WithField(field)
}

func eventFilter(r request) (ports.EventQuery, error) {
	q := ports.EventQuery{
		Division: r.query("division"), Region: r.query("region"), Site: r.query("site"),
		Source: event.Source{System: r.query("source_system"), Channel: r.query("source_channel"), Reference: r.query("source_reference")},
	}
	var err error
	if q.Direction, err = parseDirection(r.query("direction")); err != nil {
		return q, err
	}
	if q.WithoutData, err = parseIncludeData(r.query("include_data")); err != nil {
		return q, err
	}
	if r.query("event_types") != "" {
		q.Types = strings.Split(r.query("event_types"), ",")
		if r.query("stream_type") == string(query.ByType) {
			return q, invalidParameter("event_types", "not taken with stream_type=type, which names the type itself")
		}
	}
	if err := timeFilter(r, &q); err != nil {
		return q, err
	}
	for _, n := range [...]struct {
		name, text string
		to         *event.Sequence
	}{{"from_sequence", r.query("from_sequence"), &q.From}, {"to_sequence", r.query("to_sequence"), &q.To}} {
		if n.text == "" {
			continue
		}
		parsed, err := strconv.ParseUint(n.text, 10, 63)
		if err != nil || parsed == 0 {
			return q, invalidParameter(n.name, "a sequence such as 42; the first is 1")
		}
		*n.to = event.Sequence(parsed)
	}
	if r.query("schema_version") != "" {
		n, err := strconv.ParseUint(r.query("schema_version"), 10, 15)
		if err != nil || n == 0 {
			return q, invalidParameter("schema_version", "a number from 1 to 32767")
		}
		q.SchemaVersion = uint32(n)
	}
	if r.query("path") != "" || r.query("operator") != "" || r.query("value") != "" {
		q.Predicate, err = event.ParsePredicate(r.query("path"), r.query("operator"), r.query("value"))
	}
	return q, err
}

func timeFilter(r request, q *ports.EventQuery) error {
	for _, t := range [...]struct {
		name, text string
		until      bool
		to         *time.Time
	}{
		{"from_date", r.query("from_date"), false, &q.OccurredFrom}, {"to_date", r.query("to_date"), true, &q.OccurredTo},
		{"recorded_from", r.query("recorded_from"), false, &q.RecordedFrom}, {"recorded_to", r.query("recorded_to"), true, &q.RecordedTo},
	} {
		if t.text == "" {
			continue
		}
		at, ok := parseMoment(t.text, t.until)
		if !ok {
			return invalidParameter(t.name, "a date such as 2026-03-31 or an RFC 3339 time such as 2026-03-31T12:00:00Z")
		}
		*t.to = at
	}
	for _, d := range [...]struct {
		name, text string
		to         **event.Date
	}{
		{"effective_from", r.query("effective_from"), &q.EffectiveFrom}, {"effective_to", r.query("effective_to"), &q.EffectiveTo},
	} {
		if d.text == "" {
			continue
		}
		parsed, err := event.ParseDate(d.text)
		if err != nil {
			return invalidParameter(d.name, "an ISO date such as 2026-03-31")
		}
		*d.to = &parsed
	}
	return nil
}

func parseDirection(text string) (ports.Direction, error) {
	switch text {
	case "", "forward":
		return ports.Forward, nil
	case "backward":
		return ports.Backward, nil
	default:
		return ports.Forward, invalidParameter("direction", "forward or backward")
	}
}

// parseIncludeData reads include_data.
func parseIncludeData(text string) (bool, error) {
	switch text {
	case "", "true":
		return false, nil
	case "false":
		return true, nil
	default:
		return false, invalidParameter("include_data", "true or false")
	}
}

// parseMoment reads a bound in time: a time, or a date for the UTC day. Upper bounds include
// their value for the caller and exclude it for the store, so the result is the end of
// the day, or the microsecond after the time.
func parseMoment(text string, until bool) (time.Time, bool) {
	if d, err := event.ParseDate(text); err == nil {
		if until {
			d = d.AddDays(1)
		}
		return d.Time(), true
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, false
	}
	t = event.Micros(t)
	if until {
		t = t.Add(time.Microsecond)
	}
	return t, true
}

func invalidParameter(name, want string) error {
	return fault.New(fault.Invalid, "request.parameter_invalid", "this parameter is %s; correct it", want).WithField(name)
}

func parsePageLimit(text string) (int, error) { return parsePageCount("limit", text) }

// parsePageCount reads the number of events on a page.
func parsePageCount(name, text string) (int, error) {
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, invalidParameter(name, "a number from 1 to 1000")
	}
	return n, nil
}
