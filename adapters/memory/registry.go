package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EventTypes implements ports.EventTypes: by type name, then by version.
func (s *Store) EventTypes(ctx context.Context) ([]eventtype.Registration, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]eventtype.Registration, len(s.types))
	for i := range s.types {
		out[i] = cloneRegistration(s.types[i])
	}
	slices.SortFunc(out, func(a, b eventtype.Registration) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
	})
	return out, s.generation, nil
}

// EventTypesGeneration implements ports.EventTypes.
func (s *Store) EventTypesGeneration(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.generation, nil
}

// RegisterEventType implements ports.EventTypes.
func (s *Store) RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error) {
	if err := ctx.Err(); err != nil {
		return eventtype.Registration{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.types {
		if s.types[i].Type == r.Type && s.types[i].SchemaVersion == r.SchemaVersion {
			return eventtype.Registration{}, fault.New(fault.Conflict, "event_type.duplicate",
				"version %d of event type %q is registered already; register the next version", r.SchemaVersion, r.Type)
		}
	}
	number, known := s.typeNumbers[r.Type]
	if !known {
		number = int32(len(s.typeNumbers)) + 1
		s.typeNumbers[r.Type] = number
	}
	r = cloneRegistration(r)
	r.Number = number
	if r.RegisteredAt.IsZero() {
		r.RegisteredAt = s.now()
	}
	r.RegisteredAt = event.Micros(r.RegisteredAt)
	s.types = append(s.types, r)
	s.generation++
	return cloneRegistration(r), nil
}
