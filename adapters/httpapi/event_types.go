package httpapi

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EventTypes is the registry: registry.Registry.
type EventTypes interface {
	Register(ctx context.Context, reg eventtype.Registration, by string, p registry.Proof) (eventtype.Registration, error)
	Check(ctx context.Context, reg eventtype.Registration, p registry.Proof) (registry.Assessment, error)
	Fetch(ctx context.Context, name string) ([]eventtype.Registration, error)
	List(ctx context.Context) ([]eventtype.Registration, error)
	FindUnregistered(ctx context.Context, types []string) ([]string, error)
	Deprecate(ctx context.Context, name string, version uint32, by, reason string) ([]eventtype.Registration, error)
	Reactivate(ctx context.Context, name string, version uint32, by, reason string) ([]eventtype.Registration, error)
	History(ctx context.Context, name string) ([]eventtype.Change, error)
	Changes(ctx context.Context) ([]eventtype.Change, error)
}

var eventTypeHandlers = handlers{
	"registerEventType":    withBody((*Server).registerEventType),
	"listEventTypes":       (*Server).listEventTypes,
	"getEventType":         (*Server).getEventType,
	"checkEventType":       withBody((*Server).checkEventType),
	"deprecateEventType":   withBody((*Server).deprecateEventType),
	"reactivateEventType":  withBody((*Server).reactivateEventType),
	"getEventTypeHistory":  (*Server).getEventTypeHistory,
	"listEventTypeChanges": (*Server).listEventTypeChanges,
}

// registerEventType answers POST /api/event-types.
func (s *Server) registerEventType(ctx context.Context, r request, body *api.EventTypeRegistration) (response, error) {
	reg := registrationOf(body)
	proof, err := s.parseProof(ctx, body.Proof)
	if err != nil {
		return nil, err
	}
	stored, err := s.config.Types.Register(ctx, reg, callOf(ctx).principal.PersonID, proof)
	if fault.CodeOf(err) == "event_type.duplicate" && r.header("Idempotency-Key") != "" {
		return s.answerRepeatedRegistration(ctx, reg, err)
	}
	if err != nil {
		return nil, pointAtProof(err)
	}
	return reply(http.StatusCreated, api.EventTypeAnswer{EventType: eventTypeAnswer(stored)})
}

// registrationOf reads a registration out of a request.
func registrationOf(b *api.EventTypeRegistration) eventtype.Registration {
	reg := eventtype.Registration{
		Type: b.Type, SchemaVersion: b.SchemaVersion, Module: b.Module, DataSchema: b.DataSchema,
		RequiredDimensions: list(b.RequiredDimensions), OptionalDimensions: list(b.OptionalDimensions),
		RequiredEntityRefs: make([]eventtype.RequiredRef, len(b.RequiredEntityRefs)), PIIFields: make([]eventtype.PIIField, len(b.PiiFields)),
		RetentionClass: eventtype.RetentionClass(b.RetentionClass), MinRetentionYears: b.MinimumRetentionYears,
		BusinessKeys: make([]eventtype.BusinessKeyRule, len(b.BusinessKeys)), Description: b.Description, Examples: list(b.Examples),
	}
	for _, u := range b.Upcasters {
		reg.Upcasters = append(reg.Upcasters, eventtype.Upcaster{FromVersion: u.FromVersion, JQ: u.Jq})
	}
	for i, ref := range b.RequiredEntityRefs {
		reg.RequiredEntityRefs[i] = eventtype.RequiredRef{EntityType: ref.EntityType, Role: ref.Role, Cardinality: eventtype.Cardinality(ref.Cardinality)}
	}
	for i, f := range b.PiiFields {
		reg.PIIFields[i] = eventtype.PIIField{Path: f.Path, Class: f.Class, Subject: f.Subject}
	}
	for i, k := range b.BusinessKeys {
		reg.BusinessKeys[i] = eventtype.BusinessKeyRule{Name: k.Name, Fields: k.Fields, Normalise: k.Normalise, Document: k.Document}
	}
	return reg
}

// answerRepeatedRegistration answers a registration that is sent again. A version never
// changes, so comparing with the stored one replaces a stored idempotency key.
func (s *Server) answerRepeatedRegistration(ctx context.Context, reg eventtype.Registration, duplicate error) (answer, error) {
	versions, err := s.config.Types.Fetch(ctx, reg.Type)
	if err != nil {
		return answer{}, err
	}
	for _, v := range versions {
		if v.SchemaVersion != reg.SchemaVersion {
			continue
		}
		reg.Active, reg.RegisteredAt, reg.RegisteredBy, reg.RetentionClass = v.Active, v.RegisteredAt, v.RegisteredBy, v.RetentionClass
		if v.RegisteredBy != callOf(ctx).principal.PersonID || !sameDocument(eventTypeAnswer(reg), eventTypeAnswer(v)) {
			break
		}
		a, err := reply(http.StatusOK, api.EventTypeAnswer{EventType: eventTypeAnswer(v)})
		a.replayed = true
		return a, err
	}
	return answer{}, duplicate
}

// sameDocument compares two values as JSON, ignoring the order of members.
func sameDocument(a, b any) bool {
	canonical := func(v any) []byte {
		var document any
		raw, err := encode(v)
		if err != nil || json.Unmarshal(raw, &document) != nil {
			return nil
		}
		out, err := encode(document)
		if err != nil {
			return nil
		}
		return out
	}
	x := canonical(a)
	return x != nil && bytes.Equal(x, canonical(b))
}

// listEventTypes answers GET /api/event-types.
func (s *Server) listEventTypes(ctx context.Context, _ request) (response, error) {
	all, err := s.config.Types.List(ctx)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.EventTypeList{EventTypes: eventTypeAnswers(all), Total: len(all)})
}

// getEventType answers GET /api/event-types/{type}.
func (s *Server) getEventType(ctx context.Context, r request) (response, error) {
	versions, err := s.config.Types.Fetch(ctx, r.path("type"))
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.EventTypeVersions{Type: r.path("type"), Versions: eventTypeAnswers(versions)})
}

func eventTypeAnswers(all []eventtype.Registration) []api.EventType {
	out := make([]api.EventType, len(all))
	for i := range all {
		out[i] = eventTypeAnswer(all[i])
	}
	return out
}

func eventTypeAnswer(r eventtype.Registration) api.EventType {
	out := api.EventType{
		Type: r.Type, SchemaVersion: int(r.SchemaVersion), Module: r.Module, DataSchema: r.DataSchema,
		RequiredDimensions: list(r.RequiredDimensions), OptionalDimensions: list(r.OptionalDimensions),
		RequiredEntityRefs: make([]api.RequiredReference, len(r.RequiredEntityRefs)), PiiFields: make([]api.PIIField, len(r.PIIFields)),
		RetentionClass: string(r.RetentionClass), MinimumRetentionYears: r.MinRetentionYears,
		BusinessKeys: make([]api.BusinessKey, len(r.BusinessKeys)), Description: r.Description, Examples: list(r.Examples),
		IsActive: r.Active, RegisteredAt: timeText(r.RegisteredAt), RegisteredBy: r.RegisteredBy,
	}
	for _, u := range r.Upcasters {
		out.Upcasters = append(out.Upcasters, api.Upcaster{FromVersion: u.FromVersion, Jq: u.JQ})
	}
	for i, ref := range r.RequiredEntityRefs {
		out.RequiredEntityRefs[i] = api.RequiredReference{EntityType: ref.EntityType, Role: ref.Role, Cardinality: string(ref.Cardinality)}
	}
	for i, f := range r.PIIFields {
		out.PiiFields[i] = api.PIIField{Path: f.Path, Class: f.Class, Subject: f.Subject}
	}
	for i, k := range r.BusinessKeys {
		out.BusinessKeys[i] = api.BusinessKey{Name: k.Name, Fields: list(k.Fields), Normalise: k.Normalise, Document: k.Document}
	}
	return out
}

// checkEventType answers POST /api/event-types/check.
func (s *Server) checkEventType(ctx context.Context, _ request, body *api.EventTypeRegistration) (response, error) {
	proof, err := s.parseProof(ctx, body.Proof)
	if err != nil {
		return nil, err
	}
	found, err := s.config.Types.Check(ctx, registrationOf(body), proof)
	if err != nil {
		return nil, pointAtProof(err)
	}
	out := api.EventTypeCheck{
		Type: body.Type, SchemaVersion: int(body.SchemaVersion), Verdict: string(found.Verdict),
		Findings: make([]api.Violation, len(found.Findings)), Differences: []api.EventTypeDifference{},
	}
	for i, v := range found.Findings {
		out.Findings[i] = violationAnswer(v)
	}
	if c := found.Comparison; c != nil {
		out.ComparedWith, out.Compatible, out.Truncated = int(c.Older), &c.Compatible, c.Truncated
		for _, d := range c.Differences {
			out.Differences = append(out.Differences, api.EventTypeDifference{
				Kind: string(d.Kind), Pointer: d.Pointer, Demands: string(d.Demand), Met: d.Met, Guess: d.Guess, Detail: d.Detail,
			})
		}
	}
	if p := found.Proof; p != nil {
		out.Proof = api.UpcastProof{
			Examples: p.Examples, EventsScanned: p.Events, Partitions: p.Partitions, PartitionsDone: p.Done, Failures: make([]api.UpcastFailure, len(p.Failures)),
			FailuresElsewhere: p.HiddenFailures, Failed: p.Failed, Complete: p.Complete, NextCursor: p.Cursor, Proof: p.Proof,
		}
		for i, f := range p.Failures {
			out.Proof.Failures[i] = api.UpcastFailure{
				EventID: f.EventID, LegalEntity: f.LegalEntity, Sequence: f.Sequence, Example: f.Example, SchemaVersion: int(f.SchemaVersion), Code: f.Code, Pointer: f.Pointer,
			}
		}
	}
	return reply(http.StatusOK, out)
}

// parseProof reads the token of an earlier check of upcasters, and adds the legal entities
// whose events may be named to the caller.
func (s *Server) parseProof(ctx context.Context, token string) (registry.Proof, error) {
	visible, err := s.visibleLegalEntities(ctx)
	if err != nil {
		return registry.Proof{}, err
	}
	p := registry.Proof{Token: token, Visible: make(map[event.PartitionID]string, len(visible))}
	for _, le := range visible {
		p.Visible[le.Partition] = le.Code
	}
	return p, nil
}

// pointAtProof moves a fault about the cursor to the member that carries it.
func pointAtProof(err error) error {
	if f, ok := fault.As(err); ok && f.Field == "cursor" {
		return f.WithField("/proof")
	}
	return err
}

// violationAnswer converts a finding.
func violationAnswer(v fault.Violation) api.Violation {
	return api.Violation{
		Field: v.Field, Code: v.Code, Rule: v.Rule, Severity: v.Severity, Detail: v.Detail, Expected: v.Expected, Got: v.Got,
		Difference: v.Difference, Currency: v.Currency, Bt: v.BT, Element: v.Element, Line: v.Line,
	}
}

// deprecateEventType answers POST /api/event-types/{type}/deprecate.
func (s *Server) deprecateEventType(ctx context.Context, r request, body *api.EventTypeChangeRequest) (response, error) {
	return s.changeEventType(ctx, r.path("type"), body, s.config.Types.Deprecate)
}

// reactivateEventType answers POST /api/event-types/{type}/reactivate.
func (s *Server) reactivateEventType(ctx context.Context, r request, body *api.EventTypeChangeRequest) (response, error) {
	return s.changeEventType(ctx, r.path("type"), body, s.config.Types.Reactivate)
}

func (s *Server) changeEventType(
	ctx context.Context, name string, body *api.EventTypeChangeRequest,
	change func(ctx context.Context, name string, version uint32, by, reason string) ([]eventtype.Registration, error),
) (answer, error) {
	version, err := schemaVersion(body.SchemaVersion, "event_type.schema_version_invalid")
	if err != nil {
		return answer{}, err
	}
	versions, err := change(ctx, name, version, callOf(ctx).principal.PersonID, body.Reason)
	if err != nil {
		return answer{}, err
	}
	return reply(http.StatusOK, api.EventTypeVersions{Type: name, Versions: eventTypeAnswers(versions)})
}

// getEventTypeHistory answers GET /api/event-types/{type}/history.
func (s *Server) getEventTypeHistory(ctx context.Context, r request) (response, error) {
	changes, err := s.config.Types.History(ctx, r.path("type"))
	if err != nil {
		return nil, err
	}
	return eventTypeHistoryAnswer(r.path("type"), changes)
}

// listEventTypeChanges answers GET /api/event-types/history.
func (s *Server) listEventTypeChanges(ctx context.Context, _ request) (response, error) {
	changes, err := s.config.Types.Changes(ctx)
	if err != nil {
		return nil, err
	}
	return eventTypeHistoryAnswer("", changes)
}

func eventTypeHistoryAnswer(name string, changes []eventtype.Change) (answer, error) {
	out := api.EventTypeHistory{Type: name, Changes: make([]api.EventTypeChange, len(changes))}
	for i, c := range changes {
		out.Changes[i] = api.EventTypeChange{
			Number: strconv.FormatInt(c.Number, 10), Type: c.Type, Event: string(c.Action), SchemaVersion: int(c.SchemaVersion),
			DocumentSha256: hex.EncodeToString(c.Digest[:]), Actor: c.Actor, Reason: c.Reason, At: timeText(c.At),
			Checksum: hex.EncodeToString(c.Checksum[:]),
		}
	}
	return reply(http.StatusOK, out)
}
