package memory

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// ProjectionTargets refuses to rebuild single entities, since read models in memory have no
// tables with columns to find them by.
type ProjectionTargets struct{}

// RebuildTarget implements ports.ProjectionTargetStore: fault
// projection.target_unsupported.
func (s *ProjectionTargets) RebuildTarget(_ context.Context, r ports.TargetRebuild, _ ports.ProjectionHandler) (ports.TargetChange, error) {
	return ports.TargetChange{}, projection.TargetsUndeclared(r.Projection)
}

// SubjectEntities implements ports.ProjectionTargetStore. There are none.
func (s *ProjectionTargets) SubjectEntities(context.Context, event.PartitionID, shredding.Subject, []ports.ProjectionTarget) ([]ports.SubjectEntity, error) {
	return nil, nil
}

// CountCopies implements ports.ProjectionTargetStore. There are none.
func (s *ProjectionTargets) CountCopies(context.Context, event.PartitionID, shredding.Subject, []ports.ProjectionTarget) (map[int]int64, error) {
	return map[int]int64{}, nil
}
