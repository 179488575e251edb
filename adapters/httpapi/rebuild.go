package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Rebuilds builds versions of projections beside each other: projector.Rebuilds.
type Rebuilds interface {
	Show(ctx context.Context, name string) (projections.Rebuild, error)
	Start(ctx context.Context, o projections.Order, selfSwitching bool) (projections.Rebuild, error)
	Compare(ctx context.Context, name string, partitions []event.PartitionID, examples int) (projections.Comparison, error)
	ComparePartition(ctx context.Context, name string, p event.PartitionID, examples int) (projections.Comparison, error)
	Switch(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	Rollback(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	Cancel(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	Drop(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	TakeSnapshot(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	DropSnapshot(ctx context.Context, o projections.Order) (projections.Rebuild, error)
}

// rebuilt answers with how the versions stand after a step of a rebuild. Steps know a
// projection by its name among those of all tenants.
func (s *Server) rebuilt(ctx context.Context, name string, step func(Rebuilds, projections.Order) error, o projections.Order) (answer, error) {
	if s.config.Rebuilds == nil {
		return answer{}, projectionsNotServed()
	}
	var err error
	if o.Name, err = s.named(ctx, name); err != nil {
		return answer{}, err
	}
	o.By = callOf(ctx).principal.PersonID
	if err := step(s.config.Rebuilds, o); err != nil {
		return answer{}, err
	}
	b, err := s.config.Rebuilds.Show(ctx, o.Name)
	if err != nil {
		return answer{}, err
	}
	_, codes, err := s.seen(ctx)
	if err != nil {
		return answer{}, err
	}
	b.Projection = name
	return reply(http.StatusOK, rebuildAnswer(b, codes))
}

// decided is rebuilt for steps that change what one legal entity is shown, or without
// one all of them.
func (s *Server) decided(ctx context.Context, name, legalEntity string, step func(Rebuilds, projections.Order) (projections.Rebuild, error)) (answer, error) {
	o := projections.Order{}
	if _, err := s.named(ctx, name); err != nil {
		return answer{}, err
	}
	if legalEntity == "" {
		if err := s.mayChange(ctx, name); err != nil {
			return answer{}, err
		}
	} else {
		le, err := s.enter(ctx, actionOperateProjections, legalEntity)
		if err != nil {
			return answer{}, err
		}
		if err := s.maySee(ctx, name); err != nil {
			return answer{}, err
		}
		o.Partition = le.Partition
	}
	return s.rebuilt(ctx, name, func(b Rebuilds, o projections.Order) error {
		_, err := step(b, o)
		return err
	}, o)
}

// GetProjectionRebuild answers GET /api/admin/projections/{name}/rebuild.
func (s *Server) GetProjectionRebuild(ctx context.Context, r api.GetProjectionRebuildRequestObject) (api.GetProjectionRebuildResponseObject, error) {
	if err := s.maySee(ctx, r.Name); err != nil {
		return nil, err
	}
	return s.rebuilt(ctx, r.Name, func(Rebuilds, projections.Order) error { return nil }, projections.Order{})
}

// latestSnapshot is the newest one that a rebuild may begin with.
const latestSnapshot = "latest"

// RebuildProjection answers POST /api/admin/projections/{name}/rebuild.
func (s *Server) RebuildProjection(ctx context.Context, r api.RebuildProjectionRequestObject) (api.RebuildProjectionResponseObject, error) {
	given := api.ProjectionRebuildCommand{}
	if r.Body != nil {
		given = *r.Body
	}
	snapshot, latest := 0, given.FromSnapshot == latestSnapshot
	if given.FromSnapshot != "" && !latest {
		n, err := strconv.ParseUint(given.FromSnapshot, 10, 31)
		if err != nil || n == 0 {
			return nil, fault.New(fault.Invalid, "projection.snapshot_invalid", "a snapshot is named by its version, or is latest; correct it").WithField("/from_snapshot")
		}
		snapshot = int(n)
	}
	return s.decided(ctx, r.Name, given.LegalEntity, func(b Rebuilds, o projections.Order) (projections.Rebuild, error) {
		o.Snapshot, o.Latest = snapshot, latest
		return b.Start(ctx, o, given.Switch)
	})
}

// SwitchProjection answers POST /api/admin/projections/{name}/switch.
func (s *Server) SwitchProjection(ctx context.Context, r api.SwitchProjectionRequestObject) (api.SwitchProjectionResponseObject, error) {
	given := api.ProjectionSwitchCommand{}
	if r.Body != nil {
		given = *r.Body
	}
	return s.decided(ctx, r.Name, given.LegalEntity, func(b Rebuilds, o projections.Order) (projections.Rebuild, error) {
		o.Force = given.Force
		return b.Switch(ctx, o)
	})
}

// RollbackProjection answers POST /api/admin/projections/{name}/rollback.
func (s *Server) RollbackProjection(ctx context.Context, r api.RollbackProjectionRequestObject) (api.RollbackProjectionResponseObject, error) {
	given := api.ProjectionSwitchCommand{}
	if r.Body != nil {
		given = *r.Body
	}
	return s.decided(ctx, r.Name, given.LegalEntity, func(b Rebuilds, o projections.Order) (projections.Rebuild, error) {
		o.Force = given.Force
		return b.Rollback(ctx, o)
	})
}

// TakeProjectionSnapshot answers POST /api/admin/projections/{name}/snapshot.
func (s *Server) TakeProjectionSnapshot(ctx context.Context, r api.TakeProjectionSnapshotRequestObject) (api.TakeProjectionSnapshotResponseObject, error) {
	given := api.ProjectionPartCommand{}
	if r.Body != nil {
		given = *r.Body
	}
	return s.decided(ctx, r.Name, given.LegalEntity, func(b Rebuilds, o projections.Order) (projections.Rebuild, error) { return b.TakeSnapshot(ctx, o) })
}

// CancelProjectionRebuild answers POST /api/admin/projections/{name}/cancel.
func (s *Server) CancelProjectionRebuild(ctx context.Context, r api.CancelProjectionRebuildRequestObject) (api.CancelProjectionRebuildResponseObject, error) {
	given := api.ProjectionPartCommand{}
	if r.Body != nil {
		given = *r.Body
	}
	return s.decided(ctx, r.Name, given.LegalEntity, func(b Rebuilds, o projections.Order) (projections.Rebuild, error) { return b.Cancel(ctx, o) })
}

// DropProjectionVersion answers POST /api/admin/projections/{name}/drop.
func (s *Server) DropProjectionVersion(ctx context.Context, r api.DropProjectionVersionRequestObject) (api.DropProjectionVersionResponseObject, error) {
	given := api.ProjectionDropCommand{}
	if r.Body != nil {
		given = *r.Body
	}
	return s.decided(ctx, r.Name, given.LegalEntity, func(b Rebuilds, o projections.Order) (projections.Rebuild, error) {
		if o.Snapshot = given.Snapshot; o.Snapshot != 0 {
			return b.DropSnapshot(ctx, o)
		}
		return b.Drop(ctx, o)
	})
}

// The rows that a comparison names of each table and legal entity.
const (
	someExamples = 10
	maxExamples  = 1000
)

// CompareProjection answers POST /api/admin/projections/{name}/compare.
func (s *Server) CompareProjection(ctx context.Context, r api.CompareProjectionRequestObject) (api.CompareProjectionResponseObject, error) {
	if s.config.Rebuilds == nil {
		return nil, projectionsNotServed()
	}
	examples := someExamples
	if r.Body != nil && r.Body.Examples != 0 {
		examples = r.Body.Examples
	}
	if examples < 0 || examples > maxExamples {
		return nil, fault.New(fault.Invalid, "projection.examples_invalid", "a comparison names 1 to 1000 rows of a table and legal entity; correct it").WithField("/examples")
	}
	full, err := s.named(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	if err := s.maySee(ctx, r.Name); err != nil {
		return nil, err
	}
	ids, codes, err := s.seen(ctx)
	if err != nil {
		return nil, err
	}
	compare := func() (projections.Comparison, error) { return s.config.Rebuilds.Compare(ctx, full, ids, examples) }
	if r.Body != nil && r.Body.LegalEntity != "" {
		le, err := s.enter(ctx, actionOperateProjections, r.Body.LegalEntity)
		if err != nil {
			return nil, err
		}
		compare = func() (projections.Comparison, error) {
			return s.config.Rebuilds.ComparePartition(ctx, full, le.Partition, examples)
		}
	}
	c, err := compare()
	if err != nil {
		return nil, err
	}
	out := api.ProjectionComparison{
		Name: r.Name, Left: c.Left, Right: c.Right, Rows: count(c.Rows()), LegalEntities: make([]api.ProjectionDifference, len(c.Partitions)), NotCompared: []string{},
	}
	for _, list := range []struct {
		ids  []event.PartitionID
		into *[]string
	}{{c.Unready, &out.NotCompared}, {c.OnlyLeft, &out.OnlyLeft}, {c.OnlyRight, &out.OnlyRight}} {
		for _, id := range list.ids {
			*list.into = append(*list.into, codes[id])
		}
	}
	for i, p := range c.Partitions {
		out.LegalEntities[i] = api.ProjectionDifference{LegalEntity: codes[p.Partition], Sequence: number(p.Sequence), Tables: make([]api.ProjectionTableDifference, len(p.Tables))}
		for j, t := range p.Tables {
			out.LegalEntities[i].Tables[j] = tableDifferenceAnswer(t)
		}
	}
	return reply(http.StatusOK, out)
}

func tableDifferenceAnswer(t ports.TableDifference) api.ProjectionTableDifference {
	out := api.ProjectionTableDifference{
		Table: t.Table, LeftRows: count(t.LeftRows), RightRows: count(t.RightRows), OnlyLeft: count(t.OnlyLeft), OnlyRight: count(t.OnlyRight), Changed: count(t.Changed),
	}
	for _, e := range t.Examples {
		out.Examples = append(out.Examples, api.ProjectionRowDifference{Key: e.Key, In: e.Where, Columns: e.Columns})
	}
	return out
}
