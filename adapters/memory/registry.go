package memory

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// Registry keeps the built-in event types and the numbers of all types. It has no registries of
// earlier releases.
type Registry struct{ *state }

var (
	_ ports.SharedEventTypes = (*Registry)(nil)
	_ ports.RegistryAudit    = (*Registry)(nil)
)

// SharedEventTypes implements ports.SharedEventTypes.
func (s *Registry) SharedEventTypes(ctx context.Context) (types []eventtype.Registration, generation int64, err error) {
	err = s.do(ctx, func() error {
		types = make([]eventtype.Registration, 0, len(s.types))
		for _, r := range s.types {
			types = append(types, cloneRegistration(r))
		}
		slices.SortStableFunc(types, compareRegistrations)
		generation = int64(len(types))
		types = eventtype.Amended(types)
		return nil
	})
	return types, generation, err
}

func compareRegistrations(a, b eventtype.Registration) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
}

// SharedGeneration implements ports.SharedEventTypes.
func (s *Registry) SharedGeneration(ctx context.Context) (int64, error) {
	return get(ctx, s.state, func() (int64, error) { return int64(len(s.types)), nil })
}

// RegisterEventType implements ports.SharedEventTypes.
func (s *Registry) RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error) {
	return get(ctx, s.state, func() (eventtype.Registration, error) {
		name := s.reserve(r.Type, true)
		if !name.IsShared {
			return eventtype.Registration{}, eventtype.NameTaken("", r.Type)
		}
		stored := 0
		for i := range s.types {
			if compareRegistrations(s.types[i], r) == 0 {
				stored++
			}
		}
		if stored != r.AmendmentNumber() {
			return eventtype.Registration{}, eventtype.Duplicate(r.Type, r.SchemaVersion)
		}
		r = cloneRegistration(r)
		if r.RegisteredAt.IsZero() {
			r.RegisteredAt = s.now()
		}
		r.Number, r.Active, r.RegisteredAt, r.Amends, r.Schemas = name.Number, true, event.Micros(r.RegisteredAt), false, nil
		document, err := r.Document()
		if err != nil {
			return eventtype.Registration{}, err
		}
		s.types, s.typeDocuments = append(s.types, r), append(s.typeDocuments, document)
		return cloneRegistration(r), nil
	})
}

// reserve gives the number of a type, and numbers one that has none.
func (s *state) reserve(name string, isShared bool) ports.EventTypeName {
	known, ok := s.typeNames[name]
	if !ok {
		known = ports.EventTypeName{Number: int32(len(s.typeNames)) + 1, IsShared: isShared}
		s.typeNames[name] = known
	}
	return known
}

// ReserveEventTypes implements ports.SharedEventTypes.
func (s *Registry) ReserveEventTypes(ctx context.Context, names []string) (map[string]ports.EventTypeName, error) {
	return get(ctx, s.state, func() (map[string]ports.EventTypeName, error) {
		out := make(map[string]ports.EventTypeName, len(names))
		for _, name := range names {
			out[name] = s.reserve(name, false)
		}
		return out, nil
	})
}

// EventTypeNumbers returns the numbers of the types that have one.
func (s *Registry) EventTypeNumbers(ctx context.Context, names []string) (map[string]ports.EventTypeName, error) {
	return get(ctx, s.state, func() (map[string]ports.EventTypeName, error) {
		out := map[string]ports.EventTypeName{}
		for _, name := range names {
			if known, ok := s.typeNames[name]; ok {
				out[name] = known
			}
		}
		return out, nil
	})
}

// AnnounceEventTypes implements ports.SharedEventTypes.
func (s *Registry) AnnounceEventTypes(ctx context.Context) error {
	return s.do(ctx, func() error {
		for changed := range s.typeListeners {
			select {
			case changed <- struct{}{}:
			default: // a signal is waiting already
			}
		}
		return nil
	})
}

// ListenEventTypes calls changed whenever a node has announced that event types have changed, until
// ctx ends, whose error it returns.
func (s *Registry) ListenEventTypes(ctx context.Context, changed func()) error {
	signal := make(chan struct{}, 1)
	s.mu.Lock()
	s.typeListeners[signal] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.typeListeners, signal)
		s.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-signal:
			changed()
		}
	}
}

// RegistryRecord implements ports.SharedEventTypes.
func (s *Registry) RegistryRecord(ctx context.Context, tenantID string) (ports.RegistryRecord, error) {
	return get(ctx, s.state, func() (ports.RegistryRecord, error) {
		record := ports.RegistryRecord{TenantID: tenantID}
		if tenantID != "" {
			return record, nil
		}
		for i := range s.types {
			t, document := &s.types[i], s.typeDocuments[i]
			record.Versions = append(record.Versions, ports.StoredVersion{
				Type: t.Type, SchemaVersion: t.SchemaVersion, Document: bytes.Clone(document), Digest: sha256.Sum256(document), By: t.RegisteredBy, At: t.RegisteredAt,
			})
		}
		slices.SortStableFunc(record.Versions, func(a, b ports.StoredVersion) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
		})
		for i := 1; i < len(record.Versions); i++ {
			if v, before := &record.Versions[i], &record.Versions[i-1]; v.Type == before.Type && v.SchemaVersion == before.SchemaVersion {
				v.Amendment = before.Amendment + 1
			}
		}
		return record, nil
	})
}

// RegistryRecords implements ports.RegistryAudit.
func (s *Registry) RegistryRecords(ctx context.Context) ([]ports.RegistryRecord, error) {
	shared, err := s.RegistryRecord(ctx, "")
	return []ports.RegistryRecord{shared}, err
}
