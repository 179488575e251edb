package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// Registry keeps the registered event types and their history.
type Registry struct{ *state }

// EventTypes implements ports.EventTypes: by type name, then by version.
func (s *Registry) EventTypes(ctx context.Context, tenantID string) (types []eventtype.Registration, generation int64, err error) {
	err = s.do(ctx, func() error {
		types = list(slices.Values(s.types), func(r eventtype.Registration) bool { return r.TenantID == tenantID }, compareRegistrations)
		for i := range types {
			types[i] = cloneRegistration(types[i])
		}
		generation = s.generations[tenantID]
		return nil
	})
	return types, generation, err
}

func compareRegistrations(a, b eventtype.Registration) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
}

// EventTypeGenerations implements ports.EventTypes.
func (s *Registry) EventTypeGenerations(ctx context.Context) (map[string]int64, error) {
	return get(ctx, s.state, func() (map[string]int64, error) { return maps.Clone(s.generations), nil })
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
		if at != nil && *at != s.generations[r.TenantID] {
			return eventtype.Registration{}, eventtype.RegistryMoved()
		}
		for i := range s.types {
			t := &s.types[i]
			switch {
			case t.Type != r.Type:
			case (t.TenantID == "") != (r.TenantID == ""):
				return eventtype.Registration{}, eventtype.NameTaken(r.TenantID, r.Type)
			case t.TenantID == r.TenantID && t.SchemaVersion == r.SchemaVersion:
				return eventtype.Registration{}, eventtype.Duplicate(r.Type, r.SchemaVersion)
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
		changes := []eventtype.Change{r.Registered(sha256.Sum256(document))}
		changes[0].Number = s.generations[r.TenantID] + 1
		s.types = append(s.types, r)
		s.recordTypeChanges(changes)
		return cloneRegistration(s.types[len(s.types)-1]), nil
	})
}

// ChangeEventType implements ports.EventTypes.
func (s *Registry) ChangeEventType(ctx context.Context, c eventtype.Change) ([]eventtype.Change, error) {
	return s.changeEventType(ctx, c, nil)
}

// ChangeEventTypeAt implements ports.EventTypes.
func (s *Registry) ChangeEventTypeAt(ctx context.Context, c eventtype.Change, generation int64) ([]eventtype.Change, error) {
	return s.changeEventType(ctx, c, &generation)
}

func (s *state) changeEventType(ctx context.Context, c eventtype.Change, at *int64) ([]eventtype.Change, error) {
	return get(ctx, s, func() ([]eventtype.Change, error) {
		if at != nil && *at != s.generations[c.TenantID] {
			return nil, eventtype.RegistryMoved()
		}
		if c.At.IsZero() {
			c.At = s.now()
		}
		c.At, c.Number = event.Micros(c.At), s.generations[c.TenantID]+1
		var versions []eventtype.VersionState
		for i := range s.types {
			if t := &s.types[i]; t.TenantID == c.TenantID && t.Type == c.Type {
				versions = append(versions, eventtype.VersionState{
					SchemaVersion: t.SchemaVersion, Digest: s.digestOf(t), State: t.State(),
				})
			}
		}
		slices.SortFunc(versions, func(a, b eventtype.VersionState) int { return cmp.Compare(a.SchemaVersion, b.SchemaVersion) })
		out, err := eventtype.ChangeVersions(versions, c)
		if err != nil {
			return nil, err
		}
		s.recordTypeChanges(out)
		return out, nil
	})
}

// recordTypeChanges appends changes of one registry to its chain and applies them.
func (s *state) recordTypeChanges(changes []eventtype.Change) {
	for i := range changes {
		c := &changes[i]
		link := eventtype.ChainStart(c.TenantID)
		for j := range slices.Backward(s.typeChanges) {
			if s.typeChanges[j].TenantID == c.TenantID {
				link = s.typeChanges[j].Checksum
				break
			}
		}
		c.Checksum = c.ChainChecksum(link)
		s.typeChanges = append(s.typeChanges, *c)
		s.generations[c.TenantID] = c.Number
		for j := range s.types {
			if t := &s.types[j]; t.TenantID == c.TenantID && t.Type == c.Type && t.SchemaVersion == c.SchemaVersion {
				state := t.State()
				state.Apply(*c)
				*t = t.In(state)
			}
		}
	}
}

// RegistryRecords implements ports.RegistryAudit.
func (s *Registry) RegistryRecords(ctx context.Context) ([]ports.RegistryRecord, error) {
	return get(ctx, s.state, func() ([]ports.RegistryRecord, error) {
		var out []ports.RegistryRecord
		for _, tenantID := range slices.Sorted(maps.Keys(s.generations)) {
			record := ports.RegistryRecord{TenantID: tenantID, Generation: s.generations[tenantID]}
			for _, c := range s.typeChanges {
				if c.TenantID == tenantID {
					record.Changes = append(record.Changes, c)
				}
			}
			for i := range s.types {
				t := &s.types[i]
				if t.TenantID != tenantID {
					continue
				}
				document, err := t.Document()
				if err != nil {
					return nil, err
				}
				record.Versions = append(record.Versions, ports.StoredVersion{Type: t.Type, SchemaVersion: t.SchemaVersion, Digest: sha256.Sum256(document), By: t.RegisteredBy, At: t.RegisteredAt})
			}
			slices.SortFunc(record.Versions, func(a, b ports.StoredVersion) int {
				return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
			})
			out = append(out, record)
		}
		return out, nil
	})
}

// digestOf is the digest with which a version was registered.
func (s *state) digestOf(t *eventtype.Registration) (digest [sha256.Size]byte) {
	for _, c := range s.typeChanges {
		if c.TenantID == t.TenantID && c.Type == t.Type && c.SchemaVersion == t.SchemaVersion {
			return c.Digest
		}
	}
	return digest
}

// EventTypeHistory implements ports.EventTypes.
func (s *Registry) EventTypeHistory(ctx context.Context, tenantID, name string) ([]eventtype.Change, error) {
	return get(ctx, s.state, func() ([]eventtype.Change, error) {
		return slices.DeleteFunc(append([]eventtype.Change{}, s.typeChanges...), func(c eventtype.Change) bool {
			return c.TenantID != tenantID || name != "" && c.Type != name
		}), nil
	})
}
