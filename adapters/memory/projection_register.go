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

// projectionState is what operators decided and what could not be digested.
type projectionState struct {
	projections map[projectionKey]projection.Projection
	letters     map[letterKey]ports.DeadLetter
}

func newProjectionState() projectionState {
	return projectionState{projections: map[projectionKey]projection.Projection{}, letters: map[letterKey]ports.DeadLetter{}}
}

// AddProjection implements ports.ProjectionRegister.
func (s *ProjectionVersions) AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	if err := ctx.Err(); err != nil {
		return p, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := projectionKey{p.Name, p.Version}
	if known, exists := s.operated.projections[key]; exists {
		return cloneProjection(known), nil
	}
	p = p.WithDefaults()
	shown := p.Role != projection.Building
	for other, known := range s.operated.projections {
		if other.name == p.Name && known.Role == projection.Active {
			if shown = true; p.ExpectedActive != 0 && p.ExpectedActive != known.Version {
				return p, projection.WrongVersion(p.Name, p.ExpectedActive, known.Version)
			}
		}
		if other.name == p.Name && known.Role == p.Role && known.Scope == p.Scope && p.Role != projection.Saved {
			return p, projection.NotFound(p.Name) // there is one of that role
		}
	}
	if !shown {
		return p, projection.NotFound(p.Name)
	}
	if err := projection.CheckLimits(slices.Collect(maps.Values(s.operated.projections)), p); err != nil {
		return p, err
	}
	p.Revision, p.CreatedAt, p.ExpectedActive = 1, s.now(), 0
	p.ChangedAt = p.CreatedAt
	s.operated.projections[key] = cloneProjection(p)
	return cloneProjection(p), nil
}

func cloneProjection(p projection.Projection) projection.Projection {
	p.Definition = slices.Clone(p.Definition)
	return p
}

// ListProjections implements ports.ProjectionRegister.
func (s *ProjectionVersions) ListProjections(ctx context.Context) ([]projection.Projection, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	latest := map[string]int{}
	for key := range s.operated.projections {
		latest[key.name] = max(latest[key.name], key.version)
	}
	return s.listed(func(p projection.Projection) bool { return p.Role != projection.Dropped || p.Version == latest[p.Name] }), nil
}

// NamedProjections implements ports.ProjectionRegister.
func (s *ProjectionVersions) NamedProjections(ctx context.Context, name string) ([]projection.Projection, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.listed(func(p projection.Projection) bool { return p.Name == name }), nil
}

// listed is called with the lock held.
func (s *state) listed(keep func(projection.Projection) bool) []projection.Projection {
	out := []projection.Projection{}
	for _, p := range s.operated.projections {
		if keep(p) {
			out = append(out, cloneProjection(p))
		}
	}
	slices.SortFunc(out, func(a, b projection.Projection) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return out
}

// ChangeProjection implements ports.ProjectionRegister.
func (s *ProjectionVersions) ChangeProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	if err := ctx.Err(); err != nil {
		return p, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, exists := s.operated.projections[projectionKey{p.Name, p.Version}]
	if !exists {
		return p, projection.NotFound(p.Name)
	}
	if known.Revision != p.Revision {
		return cloneProjection(known), projection.Changed()
	}
	return cloneProjection(s.changeProjection(p.Name, p.Version, p.ChangedBy, func(known *projection.Projection) {
		known.Status, known.Settings = p.Status, p.Settings
	})), nil
}

// changeProjection is called with the lock held. A projection that nobody registered
// stays unknown.
func (s *state) changeProjection(name string, version int, by string, change func(*projection.Projection)) projection.Projection {
	key := projectionKey{name, version}
	p, known := s.operated.projections[key]
	if !known {
		return p
	}
	change(&p)
	p.Revision++
	p.ChangedAt, p.ChangedBy = s.now(), by
	s.operated.projections[key] = p
	return p
}

// putLetter is called with the lock held.
func (s *state) putLetter(d ports.DeadLetter) {
	key := letterKey{d.Kind, d.Name, d.Version, d.Partition, d.Sequence}
	if known, exists := s.operated.letters[key]; exists {
		d.FirstFailedAt = known.FirstFailedAt
		d.Attempts += known.Attempts
	}
	s.operated.letters[key] = d
}

// settleLetters is called with the lock held.
func (s *state) settleLetters(w ports.ProjectionWork, through event.Sequence, status, by, reason string) {
	for key, d := range s.operated.letters {
		if key.kind == ports.LetterOfProjection && key.name == w.Projection && key.version == w.Version && key.partition == w.Partition &&
			key.sequence <= through && d.Status == ports.LetterWaiting {
			d.Status, d.SettledAt, d.SettledBy, d.Reason = status, s.now(), by, reason
			s.operated.letters[key] = d
		}
	}
}

// ListDeadLetters implements ports.DeadLetters.
func (s *ProjectionVersions) ListDeadLetters(ctx context.Context, q ports.DeadLetterQuery) ([]ports.DeadLetter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := []ports.DeadLetter{}
	for _, d := range s.operated.letters {
		if (q.Kind == "" || d.Kind == q.Kind) && (q.Name == "" || d.Name == q.Name) &&
			(len(q.Partitions) == 0 || slices.Contains(q.Partitions, d.Partition)) &&
			(len(q.Statuses) == 0 || slices.Contains(q.Statuses, d.Status)) && (q.After == nil || compareLetters(d, *q.After) > 0) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, compareLetters)
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	return out, nil
}

func compareLetters(a, b ports.DeadLetter) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version),
		cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
}
