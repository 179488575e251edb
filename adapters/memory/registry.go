package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Registry keeps the registered event types and their history.
type Registry struct{ *state }

// EventTypes implements ports.EventTypes: by type name, then by version.
func (s *Registry) EventTypes(ctx context.Context) (types []eventtype.Registration, generation int64, err error) {
	err = s.do(ctx, func() error {
		types = list(slices.Values(s.types), all, func(a, b eventtype.Registration) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
		})
		for i := range types {
			types[i] = cloneRegistration(types[i])
		}
		generation = s.generation
		return nil
	})
	return types, generation, err
}

// EventTypesGeneration implements ports.EventTypes.
func (s *Registry) EventTypesGeneration(ctx context.Context) (int64, error) {
	return get(ctx, s.state, func() (int64, error) { return s.generation, nil })
}

// RegisterEventType implements ports.EventTypes.
func (s *Registry) RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error) {
	return s.registerEventType(ctx, r, nil)
}

// RegisterEventTypeAt implements ports.EventTypes.
func (s *Registry) RegisterEventTypeAt(ctx context.Context, r eventtype.Registration, generation int64) (eventtype.Registration, error) {
	return s.registerEventType(ctx, r, &generation)
}

func (s *state) registerEventType(ctx context.Context, r eventtype.Registration, at *int64) (eventtype.Registration, error) {
	document, err := r.Document()
	if err != nil {
		return eventtype.Registration{}, err
	}
	return get(ctx, s, func() (eventtype.Registration, error) {
		if at != nil && *at != s.generation {
			return eventtype.Registration{}, eventtype.RegistryMoved()
		}
		if slices.ContainsFunc(s.types, func(t eventtype.Registration) bool { return t.Type == r.Type && t.SchemaVersion == r.SchemaVersion }) {
			return eventtype.Registration{}, fault.New(fault.Conflict, "event_type.duplicate",
				"version %d of event type %q is registered already; register the next version", r.SchemaVersion, r.Type)
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
		s.recordTypeChanges([]eventtype.Change{{
			Number: s.generation, Action: eventtype.ActionRegistered, Type: r.Type, SchemaVersion: r.SchemaVersion,
			Digest: sha256.Sum256(document), Actor: r.RegisteredBy, At: r.RegisteredAt,
		}})
		return cloneRegistration(r), nil
	})
}

// ChangeEventType implements ports.EventTypes.
func (s *Registry) ChangeEventType(ctx context.Context, c eventtype.Change) ([]eventtype.Change, error) {
	return get(ctx, s.state, func() ([]eventtype.Change, error) {
		if c.At.IsZero() {
			c.At = s.now()
		}
		c.At = event.Micros(c.At)
		known := false
		out := []eventtype.Change{}
		for i := range s.types {
			t := &s.types[i]
			if t.Type != c.Type || (c.SchemaVersion != 0 && t.SchemaVersion != c.SchemaVersion) {
				continue
			}
			known = true
			active := c.Action == eventtype.ActionReactivated
			if t.Active == active {
				continue
			}
			t.Active = active
			made := c
			made.Number, made.SchemaVersion = s.generation+1, t.SchemaVersion
			made.Digest = s.digestOf(c.Type, t.SchemaVersion)
			out = append(out, made)
		}
		if !known {
			return nil, eventtype.NotRegistered(c.Type)
		}
		if len(out) > 0 {
			s.generation++
			slices.SortFunc(out, func(a, b eventtype.Change) int { return cmp.Compare(a.SchemaVersion, b.SchemaVersion) })
			s.recordTypeChanges(out)
		}
		return out, nil
	})
}

// recordTypeChanges appends changes to the chain of the registry.
func (s *state) recordTypeChanges(changes []eventtype.Change) {
	var link [sha256.Size]byte
	if n := len(s.typeChanges); n > 0 {
		link = s.typeChanges[n-1].Checksum
	}
	for i := range changes {
		link = changes[i].ChainChecksum(link)
		changes[i].Checksum = link
	}
	s.typeChanges = append(s.typeChanges, changes...)
}

// RegistryRecord implements ports.RegistryAudit.
func (s *Registry) RegistryRecord(ctx context.Context) (ports.RegistryRecord, error) {
	return get(ctx, s.state, func() (ports.RegistryRecord, error) {
		out := ports.RegistryRecord{Changes: slices.Clone(s.typeChanges), Versions: make([]ports.StoredVersion, len(s.types)), Generation: s.generation}
		for i := range s.types {
			t := &s.types[i]
			document, err := t.Document()
			if err != nil {
				return ports.RegistryRecord{}, err
			}
			out.Versions[i] = ports.StoredVersion{Type: t.Type, SchemaVersion: t.SchemaVersion, Digest: sha256.Sum256(document), By: t.RegisteredBy, At: t.RegisteredAt}
		}
		slices.SortFunc(out.Versions, func(a, b ports.StoredVersion) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
		})
		return out, nil
	})
}

// digestOf is the digest with which a version was registered.
func (s *state) digestOf(name string, version uint32) (digest [sha256.Size]byte) {
	for _, c := range s.typeChanges {
		if c.Type == name && c.SchemaVersion == version {
			return c.Digest
		}
	}
	return digest
}

// EventTypeHistory implements ports.EventTypes.
func (s *Registry) EventTypeHistory(ctx context.Context, name string) ([]eventtype.Change, error) {
	return get(ctx, s.state, func() ([]eventtype.Change, error) {
		return slices.DeleteFunc(append([]eventtype.Change{}, s.typeChanges...), func(c eventtype.Change) bool { return name != "" && c.Type != name }), nil
	})
}
