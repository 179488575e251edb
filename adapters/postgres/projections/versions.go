package projections

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Versions registers projections and replaces one version of a projection by another.
type Versions struct {
	*work
	sweeps sync.Map // by sweepKey the last partition that this node has swept
}

var (
	_ ports.ProjectionRegister = (*Versions)(nil)
	_ ports.ProjectionVersions = (*Versions)(nil)
	_ ports.DeadLetters        = (*Versions)(nil)
)

// NewVersions makes the store of projections' versions.
func NewVersions(c *Checkpoints) *Versions {
	return &Versions{work: c.work}
}

// ActiveProjection implements ports.ProjectionVersions.
func (s *Versions) ActiveProjection(ctx context.Context, name string) (int, error) {
	version, err := s.queries.ActiveProjection(ctx, s.db.Reads, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, projection.NotFound(name)
	}
	return int(version), pg.Translate(ctx, err)
}

// requireLive refuses to start a partition of a dropped version, which a node may try that has
// not yet noticed the drop.
func (s *work) requireLive(ctx context.Context, tx pgx.Tx, w ports.ProjectionWork) error {
	role, err := s.queries.ShareProjection(ctx, tx, &projectionsdb.ShareProjectionParams{Name: w.Projection, Version: int32(w.Version)})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the caller keeps no register
	}
	if err == nil && !projection.Role(role).IsLive() {
		err = projection.Fenced()
	}
	return err
}

// lockVersions locks the checkpoints of versions, of all partitions if p is 0.
func (s *work) lockVersions(ctx context.Context, tx pgx.Tx, name string, p event.PartitionID, versions ...int32) (map[event.PartitionID]map[int]*ports.Checkpoint, error) {
	rows, err := s.queries.LockVersions(ctx, tx, &projectionsdb.LockVersionsParams{Projection: name, Versions: versions, PartitionID: int32(p)})
	if err != nil {
		return nil, err
	}
	out := map[event.PartitionID]map[int]*ports.Checkpoint{}
	for i := range rows {
		c := checkpoint(&rows[i].BackboneProjectionCheckpoint)
		if out[c.Partition] == nil {
			out[c.Partition] = map[int]*ports.Checkpoint{}
		}
		out[c.Partition][c.Version] = &c
	}
	return out, nil
}

func (s *work) changeRole(ctx context.Context, tx pgx.Tx, name string, version int32, by string, to projection.Role, from ...projection.Role) error {
	roles := pg.Map(from, func(r *projection.Role) string { return string(*r) })
	changed, err := s.queries.ChangeRole(ctx, tx, &projectionsdb.ChangeRoleParams{
		Name: name, Version: version, Role: string(to), Roles: roles, ChangedAt: s.db.Now(), ChangedBy: by,
	})
	if err == nil && changed == 0 {
		err = projection.Changed()
	}
	return err
}

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
	err = s.inTransaction(ctx, "", func(tx pgx.Tx) error {
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

// checkLimits locks the register of a tenant, so that two transactions cannot both count
// before either adds. It allows a version that exists.
func (s *Versions) checkLimits(ctx context.Context, tx pgx.Tx, p projection.Projection) error {
	tenantID, _, isCustom := projection.SplitName(p.Name)
	if !isCustom {
		return nil
	}
	if err := s.queries.LockProjectionTenant(ctx, tx, tenantID); err != nil {
		return err
	}
	// A second statement sees what was committed before the lock was acquired.
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

// insertBuilding locks the active version, so that no version is added to a projection that is
// being ended: EndProjection lists the versions again after it has locked the active one.
func (s *Versions) insertBuilding(ctx context.Context, tx pgx.Tx, row *projectionsdb.InsertProjectionParams, expectedActive int) error {
	active, err := s.queries.ShareActiveProjection(ctx, tx, row.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // it is not added
	}
	if err != nil {
		return err
	}
	if expectedActive != 0 && expectedActive != int(active) {
		return untranslatedError{projection.WrongVersion(row.Name, expectedActive, int(active))}
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
	return registered(ctx, rows, err, func(r *projectionsdb.NamedProjectionsRow) *projectionsdb.BackboneProjection {
		return &r.BackboneProjection
	})
}

// ListProjections implements ports.ProjectionRegister.
func (s *Versions) ListProjections(ctx context.Context) ([]projection.Projection, error) {
	rows, err := s.queries.ListProjections(ctx, s.db.Reads)
	return registered(ctx, rows, err, func(r *projectionsdb.ListProjectionsRow) *projectionsdb.BackboneProjection {
		return &r.BackboneProjection
	})
}

// registered converts the rows of a query of the register that returned err.
func registered[R any](ctx context.Context, rows []R, err error, row func(*R) *projectionsdb.BackboneProjection) ([]projection.Projection, error) {
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]projection.Projection, len(rows))
	for i := range rows {
		r := row(&rows[i])
		out[i] = projection.Projection{
			Name: r.Name, Version: int(r.Version), Code: int(r.Code), Role: projection.Role(r.Role), Scope: event.PartitionID(r.Scope), Base: int(r.Base),
			SelfSwitching: r.SelfSwitching, Status: projection.Status(r.Status), Definition: r.Definition,
			CreatedAt: r.CreatedAt.UTC(), ChangedAt: r.ChangedAt.UTC(), ChangedBy: r.ChangedBy, Revision: r.Revision,
		}
		if err := json.Unmarshal(r.Settings, &out[i].Settings); err != nil {
			return nil, fault.New(fault.Internal, pg.CodeInternal, "the settings of projection %s cannot be read; write them again", r.Name)
		}
	}
	return out, nil
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
