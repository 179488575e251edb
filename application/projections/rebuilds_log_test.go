package projections_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// logBuffer is a log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *logBuffer) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

func (n *logBuffer) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

func (n *logBuffer) count(text string) int { return strings.Count(n.String(), text) }

// countingRegister counts how often the register is looked at.
type countingRegister struct {
	ports.ProjectionRegister
	times atomic.Int64
}

func (a *countingRegister) ListProjections(ctx context.Context) ([]projection.Projection, error) {
	a.times.Add(1)
	return a.ProjectionRegister.ListProjections(ctx)
}

// TestRebuilds_LogsBlockedVersionOnce has a version of one legal entity that would switch by
// itself, once readers are shown what another handler built.
func TestRebuilds_LogsBlockedVersionOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRebuildFixture(t)
		a := w.entity(t, "A")
		w.write(t, a, moved(3)...)
		w.start(t)
		w.until(t, func() bool { return w.reached(t, a) == 3 }, "the first version")
		log, register := &logBuffer{}, &countingRegister{ProjectionRegister: w.store.ProjectionVersions}
		rebuilds := testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{
			Store: w.store.Projections, Log: w.store.Events, Register: register, Versions: w.store.ProjectionVersions, Snapshots: w.store.ProjectionSnapshots, Proofs: w.proofs(), Clock: w.clock, Declared: declared, MaxBehind: 5,
			Handlers: map[string]ports.ProjectionHandler{name: w.handler}, Tables: map[string][]ports.ProjectionTable{name: {ports.ProjectionRowTable}}, Logger: slog.New(slog.NewTextHandler(log, nil)),
		}))
		part, err := rebuilds.Start(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}, Partition: a}, true)
		require.NoError(t, err)
		scoped := part.Partitions[0].Building
		newer := projection.Projection{Name: name, Version: scoped + 1, Code: version + 1, Role: projection.Building, Status: projection.Running}
		_, err = w.store.ProjectionVersions.AddProjection(t.Context(), newer)
		require.NoError(t, err)
		require.NoError(t, w.store.ProjectionVersions.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: name, From: version, To: newer.Version, Force: true, By: "ada"}))
		require.Equal(t, projection.CodeOtherCode, fault.CodeOf(rebuilds.Maintain(t.Context())))

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); rebuilds.Run(ctx) }()
		defer func() { cancel(); <-done }()
		rounds := func() {
			t.Helper()
			from := register.times.Load()
			pass(20 * time.Second)
			require.Greater(t, register.times.Load(), from+20)
		}
		rounds()
		require.Equal(t, 1, log.count("WARN"), log.String())
		require.Equal(t, 1, log.count("code="+projection.CodeOtherCode))

		// The operator who changed it sees in the log whether that helped.
		all, err := w.store.ProjectionVersions.NamedProjections(t.Context(), name)
		require.NoError(t, err)
		for _, p := range all {
			if p.Version == scoped {
				p.ChangedBy = "ada"
				_, err = w.store.ProjectionVersions.ChangeProjection(t.Context(), p)
				require.NoError(t, err)
			}
		}
		pass(time.Second)
		require.Equal(t, 2, log.count("WARN"))
		rounds()
		require.Equal(t, 2, log.count("WARN"))
	})
}

func TestRebuilds_PrunesDroppedVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRebuildFixture(t)
		a := w.entity(t, "A")
		w.write(t, a, moved(3)...)
		w.start(t)
		w.until(t, func() bool { return w.reached(t, a) == 3 }, "the first version")
		for range 2 {
			_, err := w.rebuilds.Start(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}}, false)
			require.NoError(t, err)
			_, err = w.rebuilds.Cancel(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}})
			require.NoError(t, err)
			for range 3 { // removed, found empty, dropped
				require.NoError(t, w.rebuilds.Maintain(t.Context()))
			}
		}
		known := func() int {
			all, err := w.store.ProjectionVersions.NamedProjections(t.Context(), name)
			require.NoError(t, err)
			return len(all)
		}
		require.Equal(t, 3, known())
		w.clock.Advance(projections.KeptDropped - time.Hour)
		require.NoError(t, w.rebuilds.Maintain(t.Context()))
		require.Equal(t, 3, known())
		w.clock.Advance(2 * time.Hour)
		require.NoError(t, w.rebuilds.Maintain(t.Context()))
		require.Equal(t, 2, known(), "the newest stays, so that its number is not given again")
	})
}

// failingForget cannot make versions unknown.
type failingForget struct{ ports.ProjectionVersions }

func (failingForget) ForgetDropped(context.Context, time.Time) (int, error) {
	return 0, fault.New(fault.Internal, "store.failed", "no")
}

// TestRebuilds_ReportsFailureWithBlockedVersion: a failure that was already logged hides no
// failure that was not.
func TestRebuilds_ReportsFailureWithBlockedVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRebuildFixture(t)
		a := w.entity(t, "A")
		w.write(t, a, moved(3)...)
		w.start(t)
		w.until(t, func() bool { return w.reached(t, a) == 3 }, "the first version")
		open := func(v ports.ProjectionVersions) *projections.Rebuilds {
			return testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{
				Store: w.store.Projections, Log: w.store.Events, Register: w.store.ProjectionVersions, Versions: v, Snapshots: w.store.ProjectionSnapshots, Proofs: w.proofs(), Clock: w.clock, Declared: declared, MaxBehind: 5,
				Handlers: map[string]ports.ProjectionHandler{name: w.handler}, Tables: map[string][]ports.ProjectionTable{name: {ports.ProjectionRowTable}},
			}))
		}
		rebuilds := open(w.store.ProjectionVersions)
		part, err := rebuilds.Start(t.Context(), projections.Order{Name: name, Decider: projections.Decider{By: "ada"}, Partition: a}, true)
		require.NoError(t, err)
		newer := projection.Projection{Name: name, Version: part.Partitions[0].Building + 1, Code: version + 1, Role: projection.Building, Status: projection.Running}
		_, err = w.store.ProjectionVersions.AddProjection(t.Context(), newer)
		require.NoError(t, err)
		require.NoError(t, w.store.ProjectionVersions.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: name, From: version, To: newer.Version, Force: true, By: "ada"}))
		require.Equal(t, projection.CodeOtherCode, fault.CodeOf(rebuilds.Maintain(t.Context())))
		require.Equal(t, "store.failed", fault.CodeOf(open(failingForget{w.store.ProjectionVersions}).Maintain(t.Context())))
	})
}
