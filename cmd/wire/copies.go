package wire

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projector"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// writers tells an erasure how far all versions of a projection have read that may
// still write copies: the one that is shown, one that is being built beside it, and one
// that is kept. An erasure that waited for the first alone would find copies written
// behind it by the others. Versions of another release's handler write nothing here.
type writers struct {
	*projector.Runner
	register ports.ProjectionRegister
	declared []module.Projection
}

// Reached is how far the version, and every other one that writes, has read.
func (w writers) Reached(ctx context.Context, name string, version int, p event.PartitionID) (event.Sequence, error) {
	reached, err := w.Runner.Reached(ctx, name, version, p)
	if err != nil {
		return 0, err
	}
	all, err := w.register.ListProjections(ctx)
	if err != nil {
		return 0, err
	}
	for _, other := range all {
		if other.Name != name || other.Version == version || other.Role != projection.Building && other.Role != projection.Retained || !w.writes(other) {
			continue
		}
		at, err := w.Runner.Reached(ctx, name, other.Version, p)
		if err != nil {
			return 0, err
		}
		reached = min(reached, at)
	}
	return reached, nil
}

func (w writers) writes(p projection.Projection) bool {
	for _, d := range w.declared {
		if d.Name == p.Name && d.Version == p.Code {
			return true
		}
	}
	return false
}
