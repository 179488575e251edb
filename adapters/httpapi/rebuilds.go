package httpapi

import (
	"context"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var rebuildHandlers = handlers{
	"getProjectionRebuild":    (*Server).getProjectionRebuild,
	"rebuildProjection":       withBody((*Server).rebuildProjection),
	"switchProjection":        withBody((*Server).switchProjection),
	"rollbackProjection":      withBody((*Server).rollbackProjection),
	"takeProjectionSnapshot":  withBody((*Server).takeProjectionSnapshot),
	"cancelProjectionRebuild": withBody((*Server).cancelProjectionRebuild),
	"dropProjectionVersion":   withBody((*Server).dropProjectionVersion),
	"compareProjection":       withBody((*Server).compareProjection),
}

var rowRebuildHandlers = handlers{
	"rebuildProjectionRows": withBody((*Server).rebuildProjectionRows),
}

// Rebuilds builds and switches versions of projections: projections.Rebuilds.
type Rebuilds interface {
	Show(ctx context.Context, name string) (projections.Rebuild, error)
	Start(ctx context.Context, o projections.Order, selfSwitching bool) (projections.Rebuild, error)
	Compare(ctx context.Context, name string, scope event.PartitionID, partitions []event.PartitionID, examples int) (projections.Comparison, error)
	Switch(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	Rollback(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	Cancel(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	Drop(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	TakeSnapshot(ctx context.Context, o projections.Order) (projections.Rebuild, error)
	DropSnapshot(ctx context.Context, o projections.Order) (projections.Rebuild, error)
}

// showRebuild answers with the state of a projection's versions.
func (s *Server) showRebuild(ctx context.Context, name string) (any, error) {
	full, err := s.fullProjectionName(ctx, name)
	if err != nil {
		return nil, err
	}
	b, err := s.config.Rebuilds.Show(ctx, full)
	if err != nil {
		return nil, err
	}
	_, codes, err := s.visiblePartitions(ctx)
	b.Projection = name
	return rebuildAnswer(b, codes), err
}

// runRebuildStep runs a step of a rebuild in one legal entity or, without one, in all, and
// answers with the state after it. The step gets the projection's full name.
func (s *Server) runRebuildStep(ctx context.Context, r *request, legalEntity string, o projections.Order, step func(context.Context, projections.Order) (projections.Rebuild, error)) (any, error) {
	name := r.path("name")
	var err error
	if o.Name, err = s.fullProjectionName(ctx, name); err != nil {
		return nil, err
	}
	if o.Partition, err = s.operatedPartition(ctx, legalEntity); err != nil {
		return nil, err
	}
	mayRun := s.checkMaySee
	if o.Partition == 0 {
		mayRun = s.checkMayChange
	}
	if err := mayRun(ctx, name); err != nil {
		return nil, err
	}
	o.Decider = decider(ctx)
	if _, err := step(ctx, o); err != nil {
		return nil, err
	}
	return s.showRebuild(ctx, name)
}

// getProjectionRebuild answers GET /api/admin/projections/{name}/rebuild.
func (s *Server) getProjectionRebuild(ctx context.Context, r *request) (any, error) {
	if err := s.checkMaySee(ctx, r.path("name")); err != nil {
		return nil, err
	}
	return s.showRebuild(ctx, r.path("name"))
}

// latestSnapshot asks for the newest snapshot that a rebuild may begin with.
const latestSnapshot = "latest"

// rebuildProjection answers POST /api/admin/projections/{name}/rebuild.
func (s *Server) rebuildProjection(ctx context.Context, r *request, body *api.ProjectionRebuildCommand) (any, error) {
	o := projections.Order{Latest: body.FromSnapshot == latestSnapshot}
	if body.FromSnapshot != "" && !o.Latest {
		n, err := strconv.ParseUint(body.FromSnapshot, 10, 31)
		if err != nil || n == 0 {
			return nil, fault.New(fault.Invalid, "projection.snapshot_invalid", "a snapshot is named by its version, or is latest; correct it").WithField("/from_snapshot")
		}
		o.Snapshot = int(n)
	}
	return s.runRebuildStep(ctx, r, body.LegalEntity, o, func(ctx context.Context, o projections.Order) (projections.Rebuild, error) {
		return s.config.Rebuilds.Start(ctx, o, body.Switch)
	})
}

// switchProjection answers POST /api/admin/projections/{name}/switch.
func (s *Server) switchProjection(ctx context.Context, r *request, body *api.ProjectionSwitchCommand) (any, error) {
	return s.runRebuildStep(ctx, r, body.LegalEntity, projections.Order{Force: body.Force}, s.config.Rebuilds.Switch)
}

// rollbackProjection answers POST /api/admin/projections/{name}/rollback.
func (s *Server) rollbackProjection(ctx context.Context, r *request, body *api.ProjectionSwitchCommand) (any, error) {
	return s.runRebuildStep(ctx, r, body.LegalEntity, projections.Order{Force: body.Force}, s.config.Rebuilds.Rollback)
}

// takeProjectionSnapshot answers POST /api/admin/projections/{name}/snapshot.
func (s *Server) takeProjectionSnapshot(ctx context.Context, r *request, body *api.ProjectionPartCommand) (any, error) {
	return s.runRebuildStep(ctx, r, body.LegalEntity, projections.Order{}, s.config.Rebuilds.TakeSnapshot)
}

// cancelProjectionRebuild answers POST /api/admin/projections/{name}/cancel.
func (s *Server) cancelProjectionRebuild(ctx context.Context, r *request, body *api.ProjectionPartCommand) (any, error) {
	return s.runRebuildStep(ctx, r, body.LegalEntity, projections.Order{}, s.config.Rebuilds.Cancel)
}

// dropProjectionVersion answers POST /api/admin/projections/{name}/drop.
func (s *Server) dropProjectionVersion(ctx context.Context, r *request, body *api.ProjectionDropCommand) (any, error) {
	drop := s.config.Rebuilds.Drop
	if body.Snapshot != 0 {
		drop = s.config.Rebuilds.DropSnapshot
	}
	return s.runRebuildStep(ctx, r, body.LegalEntity, projections.Order{Snapshot: body.Snapshot}, drop)
}

// How many differing rows a comparison lists for each table and legal entity.
const (
	defaultExamples = 10
	maxExamples     = 1000
)

// compareProjection answers POST /api/admin/projections/{name}/compare.
func (s *Server) compareProjection(ctx context.Context, r *request, body *api.ProjectionComparisonCommand) (any, error) {
	examples := defaultExamples
	if body.Examples != 0 {
		examples = body.Examples
	}
	if examples < 0 || examples > maxExamples {
		return nil, fault.New(fault.Invalid, "projection.examples_invalid", "a comparison names 1 to 1000 rows of a table and legal entity; correct it").WithField("/examples")
	}
	full, err := s.fullProjectionName(ctx, r.path("name"))
	if err != nil {
		return nil, err
	}
	if err := s.checkMaySee(ctx, r.path("name")); err != nil {
		return nil, err
	}
	ids, codes, err := s.visiblePartitions(ctx)
	if err != nil {
		return nil, err
	}
	scope, err := s.operatedPartition(ctx, body.LegalEntity)
	if err != nil {
		return nil, err
	}
	if scope != 0 {
		ids = []event.PartitionID{scope}
	}
	c, err := s.config.Rebuilds.Compare(ctx, full, scope, ids, examples)
	if err != nil {
		return nil, err
	}
	codeOf := func(id event.PartitionID) string { return codes[id] }
	out := api.ProjectionComparison{
		Name: r.path("name"), Left: c.Left, Right: c.Right, Rows: numberText(c.Rows()), NotCompared: convert(c.Unready, codeOf),
		OnlyLeft: convert(c.OnlyLeft, codeOf), OnlyRight: convert(c.OnlyRight, codeOf),
		LegalEntities: convert(c.Partitions, func(p ports.ProjectionDifference) api.ProjectionDifference {
			return api.ProjectionDifference{LegalEntity: codes[p.Partition], Sequence: numberText(p.Sequence), Tables: convert(p.Tables, tableDifferenceAnswer)}
		}),
	}
	return out, nil
}

func tableDifferenceAnswer(t ports.TableDifference) api.ProjectionTableDifference {
	out := api.ProjectionTableDifference{
		Table: t.Table, LeftRows: numberText(t.LeftRows), RightRows: numberText(t.RightRows), OnlyLeft: numberText(t.OnlyLeft), OnlyRight: numberText(t.OnlyRight), Changed: numberText(t.Changed),
	}
	for _, e := range t.Examples {
		out.Examples = append(out.Examples, api.ProjectionRowDifference{Key: e.Key, In: e.Where, Columns: e.Columns})
	}
	return out
}

// rebuildAnswer describes the versions, those of a single legal entity only to callers who may
// see it.
func rebuildAnswer(b projections.Rebuild, codes map[event.PartitionID]string) api.ProjectionRebuild {
	out := api.ProjectionRebuild{
		Name: b.Projection, Active: b.Active, Retained: b.Retained, Dropping: append([]int{}, b.Dropping...), Building: buildingAnswer(b),
		LegalEntities: []api.ProjectionPart{}, Snapshots: []api.ProjectionSnapshot{},
	}
	for _, part := range b.Partitions {
		if code, visible := codes[part.Partition]; visible {
			out.LegalEntities = append(out.LegalEntities, api.ProjectionPart{LegalEntity: code, Retained: part.Retained, Building: buildingAnswer(part)})
		}
	}
	for _, s := range b.Snapshots {
		code, visible := codes[s.Partition]
		if s.Partition != 0 && !visible {
			continue
		}
		snapshot := api.ProjectionSnapshot{
			Version: s.Version, LegalEntity: code, Complete: s.Complete, Outdated: !s.SameCode, StartedAt: timeText(s.StartedAt), StartedBy: s.StartedBy,
			LegalEntities: []api.ProjectionSnapshotPart{},
		}
		rows := uint64(0)
		for _, part := range s.Parts {
			code, visible := codes[part.Partition]
			if !visible {
				continue
			}
			rows += part.Rows
			snapshot.LegalEntities = append(snapshot.LegalEntities, api.ProjectionSnapshotPart{
				LegalEntity: code, Sequence: numberText(part.Sequence), RowCount: numberText(part.Rows), Usable: part.Usable, TakenAt: optionalTime(part.TakenAt),
			})
		}
		snapshot.RowCount = numberText(rows)
		out.Snapshots = append(out.Snapshots, snapshot)
	}
	return out
}

func buildingAnswer(b projections.Rebuild) (out api.ProjectionBuilding) {
	if b.Building == 0 {
		return out
	}
	out = api.ProjectionBuilding{
		Version: b.Building, Status: string(b.Status), StartedAt: timeText(b.StartedAt), StartedBy: b.StartedBy, Switch: b.SelfSwitching, FromSnapshot: b.Base,
		DoneEvents: numberText(b.Progress.Done), TotalEvents: numberText(b.Progress.Total), EventsPerSecond: b.PerSecond, CaughtUp: b.CaughtUp, Faulted: b.Halted,
	}
	if b.TimeLeftKnown {
		out.SecondsLeft = b.TimeLeft.Seconds()
	}
	return out
}

// rebuildProjectionRows answers POST /api/admin/projections/{name}/rebuild-rows.
func (s *Server) rebuildProjectionRows(ctx context.Context, r *request, body *api.ProjectionRowsCommand) (any, error) {
	o := projections.TargetOrder{
		Version: body.Version, Entity: event.StreamID{Type: body.Entity.Type, ID: body.Entity.ID}, DryRun: body.DryRun, By: callOf(ctx).principal.PersonID,
	}
	var err error
	if o.Name, err = s.fullProjectionName(ctx, r.path("name")); err != nil {
		return nil, err
	}
	if err := parseTargetOrder(body, &o); err != nil {
		return nil, err
	}
	ids, codes, err := s.visiblePartitions(ctx)
	if err != nil {
		return nil, err
	}
	only, err := s.operatedPartition(ctx, body.LegalEntity)
	if err != nil {
		return nil, err
	}
	if o.Partitions = ids; only != 0 {
		o.Partitions = []event.PartitionID{only}
	}
	report, err := s.config.Targets.Rebuild(ctx, o)
	if err != nil {
		return nil, err
	}
	return api.ProjectionRowsRebuilt{
		Name: r.path("name"), DryRun: report.DryRun, Rows: numberText(report.Rows()), LeftOut: append([]int{}, report.Foreign...),
		Rebuilt: convert(report.Rebuilt, func(one projections.TargetResult) api.ProjectionRowsResult {
			return api.ProjectionRowsResult{
				Version: one.Version, LegalEntity: codes[one.Partition], Entities: numberText(uint64(one.Entities)), Sequence: numberText(one.Sequence),
				Events: numberText(uint64(one.Events)), PassedOver: numberText(uint64(one.PassedOver)), Tables: convert(one.Tables, tableDifferenceAnswer),
			}
		}),
	}, nil
}

// parseTargetOrder checks which rows to rebuild, those of an entity in one legal entity or those
// of a person, and sets the order's Subject.
func parseTargetOrder(b *api.ProjectionRowsCommand, o *projections.TargetOrder) error {
	entity := o.Entity != event.StreamID{}
	switch {
	case b.Version < 0:
		return fault.New(fault.Invalid, "projection.target_invalid", "a version is a number from 1, or 0 for all; correct it").WithField("/version")
	case entity == (b.Subject != ""):
		return fault.New(fault.Invalid, "projection.target_invalid", "name an entity or a subject, and not both").WithField("/entity")
	case !entity:
		subject, err := shredding.ParseSubject(b.Subject)
		if f, ok := fault.As(err); ok {
			err = f.WithField("/subject")
		}
		o.Subject = subject
		return err
	case o.Entity.Type == "" || o.Entity.ID == "":
		return fault.New(fault.Invalid, "projection.target_invalid", "an entity has a type and an id, which are those of its stream; name both").WithField("/entity")
	case b.LegalEntity == "":
		return fault.New(fault.Invalid, "projection.partition_missing", "an entity is one of a legal entity; name it").WithField("/legal_entity")
	}
	return nil
}
