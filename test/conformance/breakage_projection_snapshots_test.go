package conformance_test

import (
	"context"

	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// partBroken replaces a partition without its rows, or begins with an empty snapshot.
type partBroken struct {
	*wrapper
	keepRows bool
	forget   bool
}

func replaceNothing(w *wrapper) conformance.Store { return partBroken{wrapper: w, keepRows: true} }

func restoreNothing(w *wrapper) conformance.Store { return partBroken{wrapper: w, forget: true} }

func (s partBroken) SwitchPartition(ctx context.Context, w ports.PartitionSwitch) (int, error) {
	if s.keepRows {
		return w.To + 1, nil
	}
	return s.wrapper.SwitchPartition(ctx, w)
}

func (s partBroken) RestorePart(ctx context.Context, c ports.SnapshotCopy) (bool, error) {
	if s.forget {
		return true, nil
	}
	return s.wrapper.RestorePart(ctx, c)
}
