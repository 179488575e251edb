package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// RegisterEventType answers POST /api/event-types.
func (s *Server) RegisterEventType(ctx context.Context, r api.RegisterEventTypeRequestObject) (api.RegisterEventTypeResponseObject, error) {
	reg := registrationOf(r.Body)
	proof, err := s.proof(ctx, r.Body.Proof)
	if err != nil {
		return nil, err
	}
	stored, err := s.config.Types.Register(ctx, reg, callOf(ctx).principal.PersonID, proof)
	if fault.CodeOf(err) == "event_type.duplicate" && r.Params.IdempotencyKey != "" {
		return s.registeredBefore(ctx, reg, err)
	}
	if err != nil {
		return nil, ofProof(err)
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

// registeredBefore answers a repeated registration. A version never changes, so
// the stored one tells whether this is the same request again; nothing needs to be
// kept under the key.
func (s *Server) registeredBefore(ctx context.Context, reg eventtype.Registration, duplicate error) (answer, error) {
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

// sameDocument compares two values as JSON, whatever the order of members.
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

// ListEventTypes answers GET /api/event-types.
func (s *Server) ListEventTypes(ctx context.Context, _ api.ListEventTypesRequestObject) (api.ListEventTypesResponseObject, error) {
	all, err := s.config.Types.List(ctx)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.EventTypeList{EventTypes: eventTypeAnswers(all), Total: len(all)})
}

// GetEventType answers GET /api/event-types/{type}.
func (s *Server) GetEventType(ctx context.Context, r api.GetEventTypeRequestObject) (api.GetEventTypeResponseObject, error) {
	versions, err := s.config.Types.Fetch(ctx, r.Type)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.EventTypeVersions{Type: r.Type, Versions: eventTypeAnswers(versions)})
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

// CreateLegalEntity answers POST /api/admin/legal-entities.
func (s *Server) CreateLegalEntity(ctx context.Context, r api.CreateLegalEntityRequestObject) (api.CreateLegalEntityResponseObject, error) {
	le, err := s.config.Access.CreateLegalEntity(ctx, ports.LegalEntity{
		TenantID: callOf(ctx).principal.TenantID, Code: r.Body.Code, Name: r.Body.Name, TimeZone: r.Body.TimeZone,
	})
	if fault.CodeOf(err) == "legal_entity.duplicate" && r.Params.IdempotencyKey != "" {
		have, findErr := s.config.Access.LegalEntity(ctx, callOf(ctx).principal.TenantID, r.Body.Code)
		if findErr == nil && (have.Name == r.Body.Name || r.Body.Name == "") && (have.TimeZone == r.Body.TimeZone || r.Body.TimeZone == "") {
			a, err := reply(http.StatusOK, legalEntityAnswer(have))
			a.replayed = true
			return a, err
		}
	}
	if err != nil {
		return nil, err
	}
	return reply(http.StatusCreated, legalEntityAnswer(le))
}

// ListLegalEntities answers GET /api/admin/legal-entities.
func (s *Server) ListLegalEntities(ctx context.Context, _ api.ListLegalEntitiesRequestObject) (api.ListLegalEntitiesResponseObject, error) {
	visible, err := s.visible(ctx)
	if err != nil {
		return nil, err
	}
	out := api.LegalEntityList{LegalEntities: make([]api.LegalEntity, len(visible))}
	for i, le := range visible {
		out.LegalEntities[i] = legalEntityAnswer(le)
	}
	return reply(http.StatusOK, out)
}

func legalEntityAnswer(le ports.LegalEntity) api.LegalEntity {
	return api.LegalEntity{
		Code: le.Code, Name: le.Name, TimeZone: le.TimeZone, Status: le.Status, PartitionID: int64(le.Partition), CreatedAt: timeText(le.CreatedAt),
	}
}
