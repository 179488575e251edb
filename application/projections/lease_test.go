package projections_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// passingTime is a clock on which time passes between one look at it and the next, as
// it does on every clock but a test's.
type passingTime struct{ *testkit.Clock }

func (p passingTime) Now() time.Time {
	p.Advance(time.Microsecond)
	return p.Clock.Now()
}

// TestALeaseIsGoodAtOnce looks only when the log grows: what a lease was taken for must
// not wait for another signal or for the next tick.
func TestALeaseIsGoodAtOnce(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	c := g.config()
	c.Refresh, c.Renew, c.TTL, c.Node = time.Hour, time.Hour, 3*time.Hour, "a"
	c.Leases, c.Clock = g.store.Leases(), passingTime{g.clock}
	g.runner = g.node(t, c, g.counter)
	a, b := g.entity(t, "A"), g.entity(t, "B")
	g.write(t, a, moved(1)...)
	g.start(t)
	testkit.Eventually(t, patience, func() bool { return g.reached(t, a) == 1 }, "the first lease")
	g.write(t, b, moved(1)...)
	g.taps.signal()
	testkit.Eventually(t, patience, func() bool { return g.reached(t, b) == 1 }, "another partition's lease")
	require.Zero(t, g.watcher.failed(a)+g.watcher.failed(b))
}
