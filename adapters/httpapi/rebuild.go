package httpapi

import (
	"context"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/projector"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Rebuilds builds versions of projections beside each other: projector.Rebuilds.
type Rebuilds interface {
	Show(ctx context.Context, name string) (projector.Rebuild, error)
	Start(ctx context.Context, o projector.Order, selfSwitching bool) (projector.Rebuild, error)
	Compare(ctx context.Context, name string, partitions []event.PartitionID, examples int) (projector.Comparison, error)
	Switch(ctx context.Context, o projector.Order) (projector.Rebuild, error)
	Rollback(ctx context.Context, o projector.Order) (projector.Rebuild, error)
	Cancel(ctx context.Context, o projector.Order) (projector.Rebuild, error)
	Drop(ctx context.Context, o projector.Order) (projector.Rebuild, error)
}

// rebuilt answers with what a step of a rebuild leaves.
func (s *Server) rebuilt(step func(Rebuilds) (projector.Rebuild, error)) (answer, error) {
	if s.config.Rebuilds == nil {
		return answer{}, projectionsNotServed()
	}
	b, err := step(s.config.Rebuilds)
	if err != nil {
		return answer{}, err
	}
	return reply(http.StatusOK, rebuildAnswer(b))
}

// decided is rebuilt for steps that change what all legal entities are shown.
func (s *Server) decided(ctx context.Context, step func(Rebuilds) (projector.Rebuild, error)) (answer, error) {
	if err := s.forAll(ctx); err != nil {
		return answer{}, err
	}
	return s.rebuilt(step)
}

func order(ctx context.Context, name string, force bool) projector.Order {
	return projector.Order{Name: name, By: callOf(ctx).principal.PersonID, Force: force}
}

// GetProjectionRebuild answers GET /api/admin/projections/{name}/rebuild.
func (s *Server) GetProjectionRebuild(ctx context.Context, r api.GetProjectionRebuildRequestObject) (api.GetProjectionRebuildResponseObject, error) {
	return s.rebuilt(func(b Rebuilds) (projector.Rebuild, error) { return b.Show(ctx, r.Name) })
}

// RebuildProjection answers POST /api/admin/projections/{name}/rebuild.
func (s *Server) RebuildProjection(ctx context.Context, r api.RebuildProjectionRequestObject) (api.RebuildProjectionResponseObject, error) {
	return s.decided(ctx, func(b Rebuilds) (projector.Rebuild, error) {
		return b.Start(ctx, order(ctx, r.Name, false), r.Body != nil && r.Body.Switch)
	})
}

// SwitchProjection answers POST /api/admin/projections/{name}/switch.
func (s *Server) SwitchProjection(ctx context.Context, r api.SwitchProjectionRequestObject) (api.SwitchProjectionResponseObject, error) {
	return s.decided(ctx, func(b Rebuilds) (projector.Rebuild, error) {
		return b.Switch(ctx, order(ctx, r.Name, r.Body != nil && r.Body.Force))
	})
}

// RollbackProjection answers POST /api/admin/projections/{name}/rollback.
func (s *Server) RollbackProjection(ctx context.Context, r api.RollbackProjectionRequestObject) (api.RollbackProjectionResponseObject, error) {
	return s.decided(ctx, func(b Rebuilds) (projector.Rebuild, error) {
		return b.Rollback(ctx, order(ctx, r.Name, r.Body != nil && r.Body.Force))
	})
}

// CancelProjectionRebuild answers POST /api/admin/projections/{name}/cancel.
func (s *Server) CancelProjectionRebuild(ctx context.Context, r api.CancelProjectionRebuildRequestObject) (api.CancelProjectionRebuildResponseObject, error) {
	return s.decided(ctx, func(b Rebuilds) (projector.Rebuild, error) { return b.Cancel(ctx, order(ctx, r.Name, false)) })
}

// DropProjectionVersion answers POST /api/admin/projections/{name}/drop.
func (s *Server) DropProjectionVersion(ctx context.Context, r api.DropProjectionVersionRequestObject) (api.DropProjectionVersionResponseObject, error) {
	return s.decided(ctx, func(b Rebuilds) (projector.Rebuild, error) { return b.Drop(ctx, order(ctx, r.Name, false)) })
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
	ids, codes, err := s.seen(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.config.Rebuilds.Compare(ctx, r.Name, ids, examples)
	if err != nil {
		return nil, err
	}
	out := api.ProjectionComparison{
		Name: c.Projection, Left: c.Left, Right: c.Right, Rows: count(c.Rows()), LegalEntities: make([]api.ProjectionDifference, len(c.Partitions)), NotCompared: []string{},
	}
	for _, id := range c.Unready {
		out.NotCompared = append(out.NotCompared, codes[id])
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

func rebuildAnswer(b projector.Rebuild) api.ProjectionRebuild {
	out := api.ProjectionRebuild{Name: b.Projection, Active: b.Active, Retained: b.Retained, Dropping: append([]int{}, b.Dropping...)}
	if b.Building == 0 {
		return out
	}
	out.Building = api.ProjectionBuilding{
		Version: b.Building, Status: string(b.Status), StartedAt: timeText(b.StartedAt), StartedBy: b.StartedBy, Switch: b.SelfSwitching,
		DoneEvents: count(b.Progress.Done), TotalEvents: count(b.Progress.Total), EventsPerSecond: b.PerSecond, CaughtUp: b.CaughtUp, Faulted: b.Halted,
	}
	if b.LeftKnown {
		out.Building.SecondsLeft = b.Left.Seconds()
	}
	return out
}
