package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

type projectionKey struct {
	name    string
	version int
}

type letterKey struct {
	kind, name string
	version    int
	partition  event.PartitionID
	sequence   event.Sequence
}

// AddProjection implements ports.ProjectionRegister.
func (s *ProjectionVersions) AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	return get(ctx, s.state, func() (projection.Projection, error) {
		key := projectionKey{p.Name, p.Version}
		if known, exists := s.projections[key]; exists {
			return cloneProjection(known), nil
		}
		p = p.WithDefaults()
		hasActive := p.Role != projection.Building && p.Role != projection.Saving // only a version that is built beside another needs one
		for other, known := range s.projections {
			if other.name == p.Name && known.Role == projection.Active {
				if hasActive = true; p.ExpectedActive != 0 && p.ExpectedActive != known.Version {
					return p, projection.WrongVersion(p.Name, p.ExpectedActive, known.Version)
				}
			}
			if other.name == p.Name && known.Role == p.Role && known.Scope == p.Scope && p.Role != projection.Saved {
				return p, projection.NotFound(p.Name) // there is one of that role
			}
		}
		if !hasActive {
			return p, projection.NotFound(p.Name)
		}
		if err := projection.CheckLimits(slices.Collect(maps.Values(s.projections)), p); err != nil {
			return p, err
		}
		p.Revision, p.CreatedAt, p.ExpectedActive = 1, s.now(), 0
		p.ChangedAt = p.CreatedAt
		s.projections[key] = cloneProjection(p)
		return cloneProjection(p), nil
	})
}

func cloneProjection(p projection.Projection) projection.Projection {
	p.Definition = slices.Clone(p.Definition)
	return p
}

// ListProjections implements ports.ProjectionRegister.
func (s *ProjectionVersions) ListProjections(ctx context.Context) ([]projection.Projection, error) {
	return get(ctx, s.state, func() ([]projection.Projection, error) {
		latest := s.latestVersions()
		return s.listProjections(func(p projection.Projection) bool { return p.Role != projection.Dropped || p.Version == latest[p.Name] }), nil
	})
}

// NamedProjections implements ports.ProjectionRegister.
func (s *ProjectionVersions) NamedProjections(ctx context.Context, name string) ([]projection.Projection, error) {
	return get(ctx, s.state, func() ([]projection.Projection, error) {
		return s.listProjections(func(p projection.Projection) bool { return p.Name == name }), nil
	})
}

// listProjections is called with the lock held.
func (s *state) listProjections(keep func(projection.Projection) bool) []projection.Projection {
	out := list(maps.Values(s.projections), keep, func(a, b projection.Projection) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	for i := range out {
		out[i] = cloneProjection(out[i])
	}
	return out
}

// latestVersions is called with the lock held.
func (s *state) latestVersions() map[string]int {
	latest := map[string]int{}
	for key := range s.projections {
		latest[key.name] = max(latest[key.name], key.version)
	}
	return latest
}

// ChangeProjection implements ports.ProjectionRegister.
func (s *ProjectionVersions) ChangeProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	return get(ctx, s.state, func() (projection.Projection, error) {
		known, exists := s.projections[projectionKey{p.Name, p.Version}]
		if !exists {
			return p, projection.NotFound(p.Name)
		}
		if known.Revision != p.Revision {
			return cloneProjection(known), projection.Changed()
		}
		return cloneProjection(s.changeProjection(p.Name, p.Version, p.ChangedBy, func(known *projection.Projection) {
			known.Status, known.Settings = p.Status, p.Settings
		})), nil
	})
}

// changeProjection is called with the lock held. An unregistered projection stays
// unknown.
func (s *state) changeProjection(name string, version int, by string, change func(*projection.Projection)) projection.Projection {
	key := projectionKey{name, version}
	p, known := s.projections[key]
	if !known {
		return p
	}
	change(&p)
	p.Revision++
	p.ChangedAt, p.ChangedBy = s.now(), by
	s.projections[key] = p
	return p
}

// putLetter is called with the lock held.
func (s *state) putLetter(d ports.DeadLetter) {
	key := letterKey{d.Kind, d.Name, d.Version, d.Partition, d.Sequence}
	if known, exists := s.letters[key]; exists {
		d.FirstFailedAt = known.FirstFailedAt
		d.Attempts += known.Attempts
	}
	s.letters[key] = d
}

// settleLetters is called with the lock held.
func (s *state) settleLetters(w ports.ProjectionWork, through event.Sequence, status, by, reason string) {
	for key, d := range s.letters {
		if key.kind == ports.LetterOfProjection && key.name == w.Projection && key.version == w.Version && key.partition == w.Partition &&
			key.sequence <= through && d.Status == ports.LetterWaiting {
			d.Status, d.SettledAt, d.SettledBy, d.Reason = status, s.now(), by, reason
			s.letters[key] = d
		}
	}
}

// ListDeadLetters implements ports.DeadLetters.
func (s *ProjectionVersions) ListDeadLetters(ctx context.Context, q ports.DeadLetterQuery) ([]ports.DeadLetter, error) {
	return get(ctx, s.state, func() ([]ports.DeadLetter, error) {
		return first(list(maps.Values(s.letters), func(d ports.DeadLetter) bool {
			return (q.Kind == "" || d.Kind == q.Kind) && (q.Name == "" || d.Name == q.Name) &&
				(len(q.Partitions) == 0 || slices.Contains(q.Partitions, d.Partition)) &&
				(len(q.Statuses) == 0 || slices.Contains(q.Statuses, d.Status)) && (q.After == nil || compareLetters(d, *q.After) > 0)
		}, compareLetters), q.Limit), nil
	})
}

func compareLetters(a, b ports.DeadLetter) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version),
		cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
}
