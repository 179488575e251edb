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

// rebuilt answers with what a step of a rebuild leaves. Steps know a projection by its
// name among those of all tenants.
func (s *Server) rebuilt(ctx context.Context, name string, step func(Rebuilds, projector.Order) (projector.Rebuild, error)) (answer, error) {
	if s.config.Rebuilds == nil {
		return answer{}, projectionsNotServed()
	}
	full, err := s.named(ctx, name)
	if err != nil {
		return answer{}, err
	}
	b, err := step(s.config.Rebuilds, projector.Order{Name: full, By: callOf(ctx).principal.PersonID})
	if err != nil {
		return answer{}, err
	}
	b.Projection = name
	return reply(http.StatusOK, rebuildAnswer(b))
}

// decided is rebuilt for steps that change what readers are shown.
func (s *Server) decided(ctx context.Context, name string, step func(Rebuilds, projector.Order) (projector.Rebuild, error)) (answer, error) {
	if _, err := s.named(ctx, name); err != nil {
		return answer{}, err
	}
	if err := s.mayChange(ctx, name); err != nil {
		return answer{}, err
	}
	return s.rebuilt(ctx, name, step)
}

// GetProjectionRebuild answers GET /api/admin/projections/{name}/rebuild.
func (s *Server) GetProjectionRebuild(ctx context.Context, r api.GetProjectionRebuildRequestObject) (api.GetProjectionRebuildResponseObject, error) {
	if err := s.maySee(ctx, r.Name); err != nil {
		return nil, err
	}
	return s.rebuilt(ctx, r.Name, func(b Rebuilds, o projector.Order) (projector.Rebuild, error) { return b.Show(ctx, o.Name) })
}

// RebuildProjection answers POST /api/admin/projections/{name}/rebuild.
func (s *Server) RebuildProjection(ctx context.Context, r api.RebuildProjectionRequestObject) (api.RebuildProjectionResponseObject, error) {
	return s.decided(ctx, r.Name, func(b Rebuilds, o projector.Order) (projector.Rebuild, error) {
		return b.Start(ctx, o, r.Body != nil && r.Body.Switch)
	})
}

// SwitchProjection answers POST /api/admin/projections/{name}/switch.
func (s *Server) SwitchProjection(ctx context.Context, r api.SwitchProjectionRequestObject) (api.SwitchProjectionResponseObject, error) {
	return s.decided(ctx, r.Name, func(b Rebuilds, o projector.Order) (projector.Rebuild, error) {
		o.Force = r.Body != nil && r.Body.Force
		return b.Switch(ctx, o)
	})
}

// RollbackProjection answers POST /api/admin/projections/{name}/rollback.
func (s *Server) RollbackProjection(ctx context.Context, r api.RollbackProjectionRequestObject) (api.RollbackProjectionResponseObject, error) {
	return s.decided(ctx, r.Name, func(b Rebuilds, o projector.Order) (projector.Rebuild, error) {
		o.Force = r.Body != nil && r.Body.Force
		return b.Rollback(ctx, o)
	})
}

// CancelProjectionRebuild answers POST /api/admin/projections/{name}/cancel.
func (s *Server) CancelProjectionRebuild(ctx context.Context, r api.CancelProjectionRebuildRequestObject) (api.CancelProjectionRebuildResponseObject, error) {
	return s.decided(ctx, r.Name, func(b Rebuilds, o projector.Order) (projector.Rebuild, error) { return b.Cancel(ctx, o) })
}

// DropProjectionVersion answers POST /api/admin/projections/{name}/drop.
func (s *Server) DropProjectionVersion(ctx context.Context, r api.DropProjectionVersionRequestObject) (api.DropProjectionVersionResponseObject, error) {
	return s.decided(ctx, r.Name, func(b Rebuilds, o projector.Order) (projector.Rebuild, error) { return b.Drop(ctx, o) })
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
	c, err := s.config.Rebuilds.Compare(ctx, full, ids, examples)
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
