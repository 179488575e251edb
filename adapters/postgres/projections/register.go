package projections

import (
	"context"
	"encoding/json"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// AddProjection implements ports.ProjectionRegister.
func (s *Versions) AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	settings, err := json.Marshal(p.Settings)
	if err != nil {
		return p, err
	}
	p = p.WithDefaults()
	row := &projectionsdb.InsertProjectionParams{
		Name: p.Name, Version: int32(p.Version), Code: int32(p.Code), Role: string(p.Role), Scope: int32(p.Scope), Base: int32(p.Base), SelfSwitching: p.SelfSwitching,
		Status: string(p.Status), Settings: settings, Definition: p.Definition, CreatedAt: s.db.Now(), ChangedBy: p.ChangedBy,
	}
	err = s.inTransaction(ctx, func(tx pgx.Tx) error {
		if err := s.checkLimits(ctx, tx, p); err != nil {
			return err
		}
		if p.Role == projection.Building || p.Role == projection.Saving {
			return s.insertBuilding(ctx, tx, row, p.ExpectedActive)
		}
		return s.queries.InsertProjection(ctx, tx, row)
	})
	if err != nil {
		return p, err
	}
	return s.findProjection(ctx, p.Name, p.Version)
}

// checkLimits lets one version of a tenant's projections be added at a time, so that who counts
// them counts all. What is known already is not added.
func (s *Versions) checkLimits(ctx context.Context, tx pgx.Tx, p projection.Projection) error {
	tenantID, _, owned := projection.SplitName(p.Name)
	if !owned {
		return nil
	}
	if err := s.queries.LockProjectionTenant(ctx, tx, tenantID); err != nil {
		return err
	}
	// In a statement of its own, which sees what was committed before the lock was had.
	rows, err := s.queries.CountedProjections(ctx, tx, projection.CustomName(tenantID, ""))
	if err != nil {
		return err
	}
	all := make([]projection.Projection, len(rows))
	for i, r := range rows {
		if all[i] = (projection.Projection{Name: r.Name, Version: int(r.Version), Role: projection.Role(r.Role)}); all[i].Name == p.Name && all[i].Version == p.Version {
			return nil
		}
	}
	if err := projection.CheckLimits(all, p); err != nil {
		return untranslatedError{err}
	}
	return nil
}

// insertBuilding holds the version that is shown, so that a version is never begun of a
// projection that is being ended: whoever ends it looks for versions again once it has
// that one.
func (s *Versions) insertBuilding(ctx context.Context, tx pgx.Tx, row *projectionsdb.InsertProjectionParams, follows int) error {
	shown, err := s.queries.ShareActiveProjection(ctx, tx, row.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // it stays unknown
	}
	if err != nil {
		return err
	}
	if follows != 0 && follows != int(shown) {
		return untranslatedError{projection.WrongVersion(row.Name, follows, int(shown))}
	}
	return s.queries.InsertProjection(ctx, tx, row)
}

func (s *Versions) findProjection(ctx context.Context, name string, version int) (projection.Projection, error) {
	all, err := s.NamedProjections(ctx, name)
	if err != nil {
		return projection.Projection{}, err
	}
	for _, p := range all {
		if p.Version == version {
			return p, nil
		}
	}
	return projection.Projection{}, projection.NotFound(name)
}

// NamedProjections implements ports.ProjectionRegister.
func (s *Versions) NamedProjections(ctx context.Context, name string) ([]projection.Projection, error) {
	rows, err := s.queries.NamedProjections(ctx, s.db.Reads, name)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]projection.Projection, len(rows))
	for i := range rows {
		if out[i], err = register(&rows[i].BackboneProjection); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ListProjections implements ports.ProjectionRegister.
func (s *Versions) ListProjections(ctx context.Context) ([]projection.Projection, error) {
	rows, err := s.queries.ListProjections(ctx, s.db.Reads)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]projection.Projection, len(rows))
	for i := range rows {
		if out[i], err = register(&rows[i].BackboneProjection); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// register reads a row of the register.
func register(r *projectionsdb.BackboneProjection) (projection.Projection, error) {
	p := projection.Projection{
		Name: r.Name, Version: int(r.Version), Code: int(r.Code), Role: projection.Role(r.Role), Scope: event.PartitionID(r.Scope), Base: int(r.Base),
		SelfSwitching: r.SelfSwitching, Status: projection.Status(r.Status), Definition: r.Definition,
		CreatedAt: r.CreatedAt.UTC(), ChangedAt: r.ChangedAt.UTC(), ChangedBy: r.ChangedBy, Revision: r.Revision,
	}
	if err := json.Unmarshal(r.Settings, &p.Settings); err != nil {
		return p, fault.New(fault.Internal, pg.CodeInternal, "the settings of projection %s cannot be read; write them again", r.Name)
	}
	return p, nil
}

// ChangeProjection implements ports.ProjectionRegister.
func (s *Versions) ChangeProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	settings, err := json.Marshal(p.Settings)
	if err != nil {
		return p, err
	}
	changed, err := s.queries.UpdateProjection(ctx, s.db.Reads, &projectionsdb.UpdateProjectionParams{
		Name: p.Name, Version: int32(p.Version), Revision: p.Revision, Status: string(p.Status), Settings: settings,
		ChangedAt: s.db.Now(), ChangedBy: p.ChangedBy,
	})
	if err != nil {
		return p, pg.Translate(ctx, err)
	}
	now, err := s.findProjection(ctx, p.Name, p.Version)
	if err == nil && changed == 0 {
		err = projection.Changed()
	}
	return now, err
}

const maxSequence = event.Sequence(math.MaxInt64)

// resolveLetters ends what waits up to a sequence; nobody is the system.
func (s *work) resolveLetters(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork, through event.Sequence, status, by, reason string) error {
	return s.queries.SettleDeadLetters(ctx, tx, &projectionsdb.SettleDeadLettersParams{
		Kind: ports.LetterOfProjection, Name: w.Projection, Version: int32(w.Version), PartitionID: int32(w.Partition), Through: int64(through),
		Status: status, SettledAt: pg.OptionalTime(s.db.Now()), SettledBy: pg.OptionalText(by), Reason: pg.OptionalText(reason),
	})
}

// ListDeadLetters implements ports.DeadLetters.
func (s *Versions) ListDeadLetters(ctx context.Context, q ports.DeadLetterQuery) ([]ports.DeadLetter, error) {
	p := &projectionsdb.ListDeadLettersParams{Kind: q.Kind, Name: q.Name, Statuses: q.Statuses, PageSize: pg.PageSize(q.Limit), AfterPartitionID: -1}
	p.PartitionIds = make([]int32, len(q.Partitions))
	for i, id := range q.Partitions {
		p.PartitionIds[i] = int32(id)
	}
	if p.Statuses == nil {
		p.Statuses = []string{}
	}
	if a := q.After; a != nil {
		p.AfterKind, p.AfterName, p.AfterVersion, p.AfterPartitionID, p.AfterSequence = a.Kind, a.Name, int32(a.Version), int32(a.Partition), int64(a.Sequence)
	}
	rows, err := s.queries.ListDeadLetters(ctx, s.db.Reads, p)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]ports.DeadLetter, len(rows))
	for i := range rows {
		r := &rows[i].BackboneDeadLetter
		out[i] = ports.DeadLetter{
			Kind: r.Kind, Name: r.Name, Version: int(r.Version), Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence),
			EventID: r.EventID.Bytes, Code: r.Code, Detail: r.Detail, Attempts: int(r.Attempts),
			FirstFailedAt: r.FirstFailedAt.UTC(), LastFailedAt: r.LastFailedAt.UTC(), Status: r.Status,
			SettledAt: pg.TimeOrZero(r.SettledAt), SettledBy: r.SettledBy.String, Reason: r.Reason.String,
		}
	}
	return out, nil
}
