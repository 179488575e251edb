package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

var eventTypeHandlers = handlers{
	"registerEventType":    withBody((*Server).registerEventType),
	"listEventTypes":       (*Server).listEventTypes,
	"getEventType":         (*Server).getEventType,
	"checkEventType":       withBody((*Server).checkEventType),
	"deprecateEventType":   withBody((*Server).deprecateEventType),
	"reactivateEventType":  withBody((*Server).reactivateEventType),
	"confirmEventType":     withBody((*Server).confirmEventType),
	"rejectEventType":      withBody((*Server).rejectEventType),
	"getEventTypeHistory":  (*Server).getEventTypeHistory,
	"listEventTypeChanges": (*Server).listEventTypeChanges,
}

// registerEventType answers POST /api/event-types.
func (s *Server) registerEventType(ctx context.Context, r *request, body *api.EventTypeRegistration) (any, error) {
	principal := callOf(ctx).principal
	reg := registrationOf(principal.TenantID, body)
	proof, err := s.newProof(ctx, body.Proof)
	if err != nil {
		return nil, err
	}
	stored, err := s.config.Types.Register(ctx, reg, principal.Actor(), proof)
	if code := fault.CodeOf(err); (code == "event_type.duplicate" || code == "event_type.proposal_open") && r.idempotencyKey() != "" {
		return s.answerRepeatedRegistration(ctx, reg, err)
	}
	if err != nil {
		return nil, pointAtProof(err)
	}
	return reply(http.StatusCreated, api.EventTypeAnswer{EventType: eventTypeAnswer(stored), Amended: stored.Amends})
}

// registrationOf reads a registration out of a request.
func registrationOf(tenantID string, b *api.EventTypeRegistration) eventtype.Registration {
	reg := eventtype.Registration{
		TenantID: tenantID, Type: b.Type, SchemaVersion: b.SchemaVersion, Module: b.Module, DataSchema: b.DataSchema,
		RequiredDimensions: nonNil(b.RequiredDimensions), OptionalDimensions: nonNil(b.OptionalDimensions),
		RequiredEntityRefs: convert(b.RequiredEntityRefs, func(r api.RequiredReference) eventtype.RequiredRef {
			return eventtype.RequiredRef{EntityType: r.EntityType, Role: r.Role, Cardinality: eventtype.Cardinality(r.Cardinality)}
		}),
		PIIFields: convert(b.PiiFields, func(f api.PIIField) eventtype.PIIField {
			return eventtype.PIIField{Path: f.Path, Class: f.Class, Subject: f.Subject}
		}),
		RetentionClass: eventtype.RetentionClass(b.RetentionClass), MinRetentionYears: b.MinimumRetentionYears,
		BusinessKeys: convert(b.BusinessKeys, func(k api.BusinessKey) eventtype.BusinessKeyRule {
			return eventtype.BusinessKeyRule{Name: k.Name, Fields: k.Fields, Normalise: k.Normalise, Document: k.Document}
		}),
		Description: b.Description, Examples: nonNil(b.Examples),
	}
	for _, u := range b.Upcasters {
		reg.Upcasters = append(reg.Upcasters, eventtype.Upcaster{FromVersion: u.FromVersion, JQ: u.Jq})
	}
	return reg
}

// answerRepeatedRegistration answers a registration that is sent again. A version never loses
// anything, so comparing with the stored one replaces a stored idempotency key.
func (s *Server) answerRepeatedRegistration(ctx context.Context, reg eventtype.Registration, duplicate error) (answer, error) {
	versions, err := s.config.Types.ListVersions(ctx, reg.TenantID, reg.Type)
	if err != nil {
		return answer{}, err
	}
	for _, v := range versions {
		if v.SchemaVersion != reg.SchemaVersion {
			continue
		}
		have, by := v, v.RegisteredBy
		switch {
		case v.Amendment != nil:
			have, by = *v.Amendment, v.Proposal.Actor
		case len(v.Schemas) > 0:
			by = v.Schemas[len(v.Schemas)-1].By
		}
		reg.RegisteredAt, reg.RegisteredBy, reg.RetentionClass, reg.Schemas = have.RegisteredAt, have.RegisteredBy, have.RetentionClass, have.Schemas
		reg = reg.In(have.State())
		if by != callOf(ctx).principal.PersonID || !sameDocument(eventTypeAnswer(reg), eventTypeAnswer(have)) {
			break
		}
		return replyReplayed(http.StatusOK, api.EventTypeAnswer{EventType: eventTypeAnswer(v), Amended: v.Amendment != nil || len(v.Schemas) > 0}, true)
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
func (s *Server) listEventTypes(ctx context.Context, _ *request) (any, error) {
	sight, err := module.SightOf(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.config.Types.List(ctx, callOf(ctx).principal.TenantID)
	all = slices.DeleteFunc(all, func(t eventtype.Registration) bool { return !sight.Sees(t.Type) })
	return api.EventTypeList{EventTypes: convert(all, eventTypeAnswer), Total: len(all)}, err
}

// getEventType answers GET /api/event-types/{type}.
func (s *Server) getEventType(ctx context.Context, r *request) (any, error) {
	if err := requireSeenType(ctx, r.path("type")); err != nil {
		return nil, err
	}
	versions, err := s.config.Types.ListVersions(ctx, callOf(ctx).principal.TenantID, r.path("type"))
	return api.EventTypeVersions{Type: r.path("type"), Versions: convert(versions, eventTypeAnswer)}, err
}

// requireSeenType answers a service that does not see an event type as if there were none.
func requireSeenType(ctx context.Context, name string) error {
	sight, err := module.SightOf(ctx)
	if err == nil && !sight.Sees(name) {
		err = eventtype.NotRegistered(name)
	}
	return err
}

func eventTypeAnswer(r eventtype.Registration) api.EventType {
	out := api.EventType{
		Type: r.Type, SchemaVersion: int(r.SchemaVersion), Module: r.Module, DataSchema: r.DataSchema,
		RequiredDimensions: nonNil(r.RequiredDimensions), OptionalDimensions: nonNil(r.OptionalDimensions),
		RequiredEntityRefs: convert(r.RequiredEntityRefs, func(r eventtype.RequiredRef) api.RequiredReference {
			return api.RequiredReference{EntityType: r.EntityType, Role: r.Role, Cardinality: string(r.Cardinality)}
		}),
		PiiFields: convert(r.PIIFields, func(f eventtype.PIIField) api.PIIField {
			return api.PIIField{Path: f.Path, Class: f.Class, Subject: f.Subject}
		}),
		RetentionClass: string(r.RetentionClass), MinimumRetentionYears: r.MinRetentionYears,
		BusinessKeys: convert(r.BusinessKeys, func(k eventtype.BusinessKeyRule) api.BusinessKey {
			return api.BusinessKey{Name: k.Name, Fields: nonNil(k.Fields), Normalise: k.Normalise, Document: k.Document}
		}),
		Description: r.Description, Examples: nonNil(r.Examples),
		Status: typeStatus(r), IsActive: r.Active, RegisteredAt: timeText(r.RegisteredAt), RegisteredBy: r.RegisteredBy,
	}
	for _, u := range r.Upcasters {
		out.Upcasters = append(out.Upcasters, api.Upcaster{FromVersion: u.FromVersion, Jq: u.JQ})
	}
	if r.Proposal != nil {
		out.Proposal = eventTypeChangeAnswer(*r.Proposal)
	}
	for _, s := range r.Schemas {
		out.Schemas = append(out.Schemas, api.EventTypeSchema{DataSchema: s.DataSchema, Since: timeText(s.At), By: s.By})
	}
	if a := r.Amendment; a != nil {
		amended := eventTypeAnswer(*a)
		out.Amendment = api.EventTypeAmendment{DataSchema: amended.DataSchema, PiiFields: amended.PiiFields, Description: amended.Description, Examples: amended.Examples}
	}
	return out
}

func typeStatus(r eventtype.Registration) string {
	switch {
	case r.Withheld && r.Proposal != nil:
		return "proposed"
	case r.Withheld:
		return "rejected"
	case r.Active:
		return "active"
	default:
		return "deprecated"
	}
}

// checkEventType answers POST /api/event-types/check.
func (s *Server) checkEventType(ctx context.Context, _ *request, body *api.EventTypeRegistration) (any, error) {
	sight, err := module.SightOf(ctx)
	if err != nil {
		return nil, err
	}
	owner := tenancy.TypeAccess{Type: body.Type, Module: cmp.Or(sight.ModuleOf(body.Type), body.Module)}
	if err := s.config.Access.Authorize(ctx, callOf(ctx).principal, tenancy.Action{Name: "event_types.check", EventTypes: []tenancy.TypeAccess{owner}}); err != nil {
		return nil, err
	}
	proof, err := s.newProof(ctx, body.Proof)
	if err != nil {
		return nil, err
	}
	found, err := s.config.Types.Check(ctx, registrationOf(callOf(ctx).principal.TenantID, body), proof)
	if err != nil {
		return nil, pointAtProof(err)
	}
	out := api.EventTypeCheck{
		Type: body.Type, SchemaVersion: int(body.SchemaVersion), Verdict: string(found.Verdict),
		Findings: convert(found.Findings, violationAnswer), Differences: []api.EventTypeDifference{},
	}
	if c := found.Comparison; c != nil {
		out.ComparedWith, out.Compatible, out.Truncated = int(c.Older), &c.Compatible, c.Truncated
		out.Differences = convert(c.Differences, func(d eventtype.Difference) api.EventTypeDifference {
			return api.EventTypeDifference{Kind: string(d.Kind), Pointer: d.Pointer, Demands: string(d.Demand), Met: d.Met, Guess: d.Guess, Detail: d.Detail}
		})
	}
	if p := found.Report; p != nil {
		out.Proof = api.UpcastProof{
			Examples: p.Examples, EventsScanned: p.Events, Partitions: p.Partitions, PartitionsDone: p.PartitionsDone,
			Failures: convert(p.Failures, func(f module.ProofFailure) api.UpcastFailure {
				return api.UpcastFailure{
					EventID: f.EventID, LegalEntity: f.LegalEntity, Sequence: f.Sequence, Example: f.Example, SchemaVersion: int(f.SchemaVersion), Code: f.Code, Pointer: f.Pointer,
				}
			}),
			FailuresElsewhere: p.HiddenFailures, Failed: p.Failed, Complete: p.Complete, NextCursor: p.Cursor, Proof: p.Proof,
		}
	}
	return out, nil
}

// newProof makes the proof to check: the token of an earlier check of upcasters, and the legal
// entities whose events the answer may name to the caller.
func (s *Server) newProof(ctx context.Context, token string) (registry.ProofRequest, error) {
	_, codes, err := s.visiblePartitions(ctx)
	return registry.ProofRequest{Token: token, Visible: codes}, err
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
func (s *Server) deprecateEventType(ctx context.Context, r *request, body *api.EventTypeChangeRequest) (any, error) {
	return s.changeEventType(ctx, r, body, s.config.Types.Deprecate)
}

// reactivateEventType answers POST /api/event-types/{type}/reactivate.
func (s *Server) reactivateEventType(ctx context.Context, r *request, body *api.EventTypeChangeRequest) (any, error) {
	return s.changeEventType(ctx, r, body, s.config.Types.Reactivate)
}

// rejectEventType answers POST /api/event-types/{type}/reject.
func (s *Server) rejectEventType(ctx context.Context, r *request, body *api.EventTypeChangeRequest) (any, error) {
	return s.changeEventType(ctx, r, body, s.config.Types.Reject)
}

// confirmEventType answers POST /api/event-types/{type}/confirm.
func (s *Server) confirmEventType(ctx context.Context, r *request, body *api.EventTypeConfirmation) (any, error) {
	proof, err := s.newProof(ctx, body.Proof)
	if err != nil {
		return nil, err
	}
	change := api.EventTypeChangeRequest{SchemaVersion: body.SchemaVersion, Reason: body.Reason}
	return s.changeEventType(ctx, r, &change, func(ctx context.Context, d registry.Decision) ([]eventtype.Registration, error) {
		versions, err := s.config.Types.Confirm(ctx, d, proof)
		return versions, pointAtProof(err)
	})
}

func (s *Server) changeEventType(
	ctx context.Context, r *request, body *api.EventTypeChangeRequest, change func(context.Context, registry.Decision) ([]eventtype.Registration, error),
) (any, error) {
	version, err := schemaVersion(body.SchemaVersion, "event_type.schema_version_invalid")
	if err != nil {
		return nil, err
	}
	principal := callOf(ctx).principal
	versions, err := change(ctx, registry.Decision{
		TenantID: principal.TenantID, Type: r.path("type"), SchemaVersion: version, By: principal.Actor(), Reason: body.Reason,
	})
	return api.EventTypeVersions{Type: r.path("type"), Versions: convert(versions, eventTypeAnswer)}, err
}

// getEventTypeHistory answers GET /api/event-types/{type}/history.
func (s *Server) getEventTypeHistory(ctx context.Context, r *request) (any, error) {
	if err := requireSeenType(ctx, r.path("type")); err != nil {
		return nil, err
	}
	changes, err := s.config.Types.History(ctx, callOf(ctx).principal.TenantID, r.path("type"))
	return api.EventTypeHistory{Type: r.path("type"), Changes: convert(changes, eventTypeChangeAnswer)}, err
}

// listEventTypeChanges answers GET /api/event-types/history.
func (s *Server) listEventTypeChanges(ctx context.Context, _ *request) (any, error) {
	sight, err := module.SightOf(ctx)
	if err != nil {
		return nil, err
	}
	changes, err := s.config.Types.Changes(ctx, callOf(ctx).principal.TenantID)
	changes = slices.DeleteFunc(changes, func(c eventtype.Change) bool { return !sight.Sees(c.Type) })
	return api.EventTypeHistory{Changes: convert(changes, eventTypeChangeAnswer)}, err
}

func eventTypeChangeAnswer(c eventtype.Change) api.EventTypeChange {
	return api.EventTypeChange{
		Number: strconv.FormatInt(c.Number, 10), Type: c.Type, Event: string(c.Action), SchemaVersion: int(c.SchemaVersion),
		DocumentSha256: hex.EncodeToString(c.Digest[:]), Actor: c.Actor, Reason: c.Reason, At: timeText(c.At),
		Checksum: hex.EncodeToString(c.Checksum[:]),
	}
}
