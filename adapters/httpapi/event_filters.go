package httpapi

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const actionReadEvents = "events.read"

// readSelection reads the parameters of a query for events, without its limit, and
// checks that the caller may do the action there.
func (s *Server) readSelection(ctx context.Context, action string, r *request) (query.Selection, error) {
	p := callOf(ctx).principal
	sel := query.Selection{
		TenantID: p.TenantID, Kind: query.StreamKind(r.query("stream_type")), StreamID: r.query("stream_id"), LegalEntity: r.query("legal_entity"),
		Readable: p.LegalEntities, Cursor: r.query("cursor"),
	}
	var err error
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
	default:
		if sel.Administrative, err = s.canReadAdministrativeLog(ctx, action); err != nil {
			return sel, err
		}
	}
	if sel.Filter, err = parseEventFilter(r); err != nil {
		return sel, err
	}
	sel.Modules = r.list("modules")
	slices.Sort(sel.Modules)
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
	registered, err := s.seenTypes(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range registered {
		t := &registered[i]
		inModules := len(sel.Modules) == 0 || slices.Contains(sel.Modules, t.Module)
		if inModules && len(sel.Modules) > 0 {
			known[t.Module] = true
			if !slices.Contains(sel.ModuleTypes, t.Type) {
				sel.ModuleTypes = append(sel.ModuleTypes, t.Type)
			}
		}
		selected := len(sel.Filter.Types) == 0 || slices.Contains(sel.Filter.Types, t.Type)
		if sel.Kind == query.ByType {
			selected = t.Type == sel.StreamID
		}
		if sel.Filter.Predicate == nil || !inModules || !selected {
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

// seenTypes lists the registered event types that the caller sees, each with the module that owns it:
// what a caller asks for beyond these is answered as if it did not exist.
func (s *Server) seenTypes(ctx context.Context) ([]eventtype.Registration, error) {
	registered, err := s.config.Types.List(ctx, callOf(ctx).principal.TenantID)
	if err != nil {
		return nil, err
	}
	sight, err := module.SightOf(ctx)
	registered = slices.DeleteFunc(registered, func(t eventtype.Registration) bool { return !sight.Sees(t.Type) })
	for i := range registered {
		registered[i].Module = cmp.Or(s.config.Catalog.Owner(registered[i].Type), registered[i].Module)
	}
	return registered, err
}

func unknownModule(field string) error {
	return fault.New(fault.Invalid, "query.module_unknown", "no event type belongs to one of these modules; GET /api/event-types lists types with their modules").WithField(field)
}

// unknownType refuses a type that is not registered, so that the caller does not wait for
// events that cannot come.
func unknownType(field string) error {
	return fault.New(fault.Invalid, "query.event_type_unknown", "one of these event types is not registered; GET /api/event-types lists them").WithField(field)
}

func parseEventFilter(r *request) (ports.EventQuery, error) {
	q := ports.EventQuery{
		Division: r.query("division"), Region: r.query("region"), Site: r.query("site"),
		Source:    event.Source{System: r.query("source_system"), Channel: r.query("source_channel"), Reference: r.query("source_reference")},
		Direction: r.direction(), WithoutData: r.withoutData(), Types: r.list("event_types"),
	}
	if len(q.Types) > 0 && r.query("stream_type") == string(query.ByType) {
		r.fail(invalidParameter("event_types", "not taken with stream_type=type, which names the type itself"))
	}
	q.OccurredFrom, q.OccurredTo = r.moment("from_date", false), r.moment("to_date", true)
	q.RecordedFrom, q.RecordedTo = r.moment("recorded_from", false), r.moment("recorded_to", true)
	q.EffectiveFrom, q.EffectiveTo = r.date("effective_from"), r.date("effective_to")
	q.From, q.To = r.sequence("from_sequence"), r.sequence("to_sequence")
	q.SchemaVersion = uint32(r.integer("schema_version", 1, math.MaxInt16, 0, "a number from 1 to 32767"))
	if r.err == nil && (r.query("path") != "" || r.query("operator") != "" || r.query("value") != "") {
		q.Predicate, r.err = event.ParsePredicate(r.query("path"), r.query("operator"), r.query("value"))
	}
	return q, r.err
}
