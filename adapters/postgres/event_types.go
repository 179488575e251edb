package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EventTypes implements ports.EventTypes: by type name, then by version.
func (s *Store) EventTypes(ctx context.Context) ([]eventtype.Registration, int64, error) {
	// The generation first: what is registered in between is read now and once more
	// after the next look at the generation.
	generation, err := s.EventTypesGeneration(ctx)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.queries.ListEventTypes(ctx, s.reads)
	if err != nil {
		return nil, 0, translate(ctx, err)
	}
	out := make([]eventtype.Registration, len(rows))
	for i := range rows {
		r := &rows[i]
		if err := json.Unmarshal(r.Document, &out[i]); err != nil {
			return nil, 0, fault.New(fault.Internal, codeInternal, "a registration cannot be decoded; report this").WithCause(err)
		}
		out[i].Number, out[i].Active = r.Number, r.IsActive
		out[i].RegisteredAt, out[i].RegisteredBy = r.RegisteredAt.UTC(), r.RegisteredBy
	}
	return out, generation, nil
}

// EventTypesGeneration implements ports.EventTypes.
func (s *Store) EventTypesGeneration(ctx context.Context) (int64, error) {
	generation, err := s.queries.GetEventTypeGeneration(ctx, s.reads)
	return generation, translate(ctx, err)
}

// RegisterEventType implements ports.EventTypes.
func (s *Store) RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error) {
	if r.RegisteredAt.IsZero() {
		r.RegisteredAt = s.now()
	}
	r.RegisteredAt = event.Micros(r.RegisteredAt)
	document, err := encodeRegistration(r)
	if err != nil {
		return eventtype.Registration{}, err
	}
	err = pgx.BeginFunc(ctx, s.reads, func(tx pgx.Tx) error {
		if _, err := s.queries.AdvanceEventTypeGeneration(ctx, tx); err != nil {
			return err
		}
		if err := s.queries.InsertEventType(ctx, tx, r.Type); err != nil {
			return err
		}
		if r.Number, err = s.queries.GetEventTypeNumber(ctx, tx, r.Type); err != nil {
			return err
		}
		if err := s.queries.InsertEventTypeVersion(ctx, tx, &backbonedb.InsertEventTypeVersionParams{
			Type: r.Type, SchemaVersion: int32(r.SchemaVersion), Module: r.Module, RetentionClass: string(r.RetentionClass),
			IsActive: r.Active, Document: document, RegisteredAt: r.RegisteredAt, RegisteredBy: r.RegisteredBy,
		}); err != nil {
			return err
		}
		return s.queries.NotifyChannel(ctx, tx, &backbonedb.NotifyChannelParams{Channel: channelEventTypes})
	})
	if violates(err, "event_type_registry_pkey") {
		return eventtype.Registration{}, fault.New(fault.Conflict, "event_type.duplicate",
			"version %d of event type %q is registered already; register the next version", r.SchemaVersion, r.Type)
	}
	if err != nil {
		return eventtype.Registration{}, translate(ctx, err)
	}
	return r, nil
}

// encodeRegistration keeps the characters of schemas and examples as they are.
func encodeRegistration(r eventtype.Registration) ([]byte, error) {
	r.RegisteredAt, r.RegisteredBy, r.Active = time.Time{}, "", false // columns
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, fault.New(fault.Invalid, "event_type.schema_invalid", "schema and examples must be JSON; correct them")
	}
	return b.Bytes(), nil
}
