package conformance_test

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// termBroken forgets the lease of the worker.
type termBroken struct{ *wrapper }

func ignoreTerm(w *wrapper) conformance.Store { return termBroken{w} }

func (s termBroken) Advance(ctx context.Context, a ports.ProjectionAdvance, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	a.Lease = nil
	return s.wrapper.Advance(ctx, a, h)
}

func (s termBroken) RecordFailure(ctx context.Context, f ports.ProjectionFailure) (ports.Checkpoint, error) {
	f.Lease = nil
	return s.wrapper.RecordFailure(ctx, f)
}

type failureBroken struct{ *wrapper }

func forgetFailures(w *wrapper) conformance.Store { return failureBroken{w} }

func (s failureBroken) RecordFailure(ctx context.Context, f ports.ProjectionFailure) (ports.Checkpoint, error) {
	f.At++ // of a place where the checkpoint is not
	return s.wrapper.RecordFailure(ctx, f)
}

type poisonBroken struct{ *wrapper }

func alwaysSkipPoison(w *wrapper) conformance.Store { return poisonBroken{w} }

func (s poisonBroken) Isolate(ctx context.Context, f ports.ProjectionFailure, _ string) (ports.Checkpoint, error) {
	return s.wrapper.Isolate(ctx, f, projection.SkipEvent)
}

type resetBroken struct{ *wrapper }

func silentReset(w *wrapper) conformance.Store { return resetBroken{w} }

func (s resetBroken) Reset(ctx context.Context, o ports.ProjectionOperation, h ports.ProjectionResetter) (ports.Checkpoint, error) {
	o.Projection += " " // nodes look at another one's revision
	c, err := s.wrapper.Reset(ctx, o, h)
	c.Projection = o.Projection[:len(o.Projection)-1]
	return c, err
}

type mixedRows struct{ *wrapper }

func mixRows(w *wrapper) conformance.Store { return mixedRows{w} }

func (s mixedRows) StoreProjectionRows(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch, rows []ports.ProjectionRow, gone []string) error {
	b.Partition = 1
	return s.wrapper.StoreProjectionRows(ctx, tx, b, rows, gone)
}

func (s mixedRows) ListProjectionRows(ctx context.Context, q ports.ProjectionRowQuery) ([]ports.ProjectionRow, event.Sequence, error) {
	q.Partition = 1
	return s.wrapper.ListProjectionRows(ctx, q)
}

type keptRows struct{ *wrapper }

func keepRows(w *wrapper) conformance.Store { return keptRows{w} }

func (s keptRows) StoreProjectionRows(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch, rows []ports.ProjectionRow, _ []string) error {
	return s.wrapper.StoreProjectionRows(ctx, tx, b, rows, nil)
}
