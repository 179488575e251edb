package projections_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// unforgetting cannot make versions unknown.
type unforgetting struct{ ports.ProjectionVersions }

func (unforgetting) ForgetDropped(context.Context, time.Time) (int, error) {
	return 0, fault.New(fault.Internal, "store.failed", "no")
}

// What a version is said to be kept by hides nothing that nobody has said yet.
func TestAVersionInTroubleHidesNoOtherFailure(t *testing.T) {
	t.Parallel()
	w := newAtelier(t)
	a := w.entity(t, "A")
	w.write(t, a, moved(3)...)
	w.start(t)
	w.until(t, func() bool { return w.reached(t, a) == 3 }, "the first version")
	open := func(v ports.ProjectionVersions) *projections.Rebuilds {
		return projections.NewRebuilds(projections.RebuildsConfig{
			Store: w.store, Register: w.store, Versions: v, Snapshots: w.store, Clock: w.clock, Declared: declared, MaxBehind: 5,
			Handlers: map[string]ports.ProjectionHandler{name: w.handler}, Tables: map[string][]ports.ProjectionTable{name: {ports.ProjectionRowTable}},
		})
	}
	rebuilds := open(w.store)
	part, err := rebuilds.Start(t.Context(), projections.Order{Name: name, By: "ada", Partition: a}, true)
	require.NoError(t, err)
	newer := projection.Projection{Name: name, Version: part.Parts[0].Building + 1, Code: version + 1, Role: projection.Building, Status: projection.Running}
	_, err = w.store.AddProjection(t.Context(), newer)
	require.NoError(t, err)
	require.NoError(t, w.store.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: name, From: version, To: newer.Version, Force: true, By: "ada"}))
	require.Equal(t, projection.CodeOtherCode, fault.CodeOf(rebuilds.Round(t.Context())))
	require.Equal(t, "store.failed", fault.CodeOf(open(unforgetting{w.store}).Round(t.Context())))
}
