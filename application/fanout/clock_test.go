package fanout_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestDispatcher_ClockJumps has two nodes whose clocks jump by two days back and forth, also
// while they rest after a failure: leases and pauses go by no clock that can jump.
func TestDispatcher_ClockJumps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const partitions, rounds, each = 4, 20, 5
		r := newFixture()
		var away atomic.Bool
		r.broker.fail = func([]ports.Message) (n int, p ports.Published, err error, broken bool) {
			if away.Load() {
				return 0, p, fault.New(fault.Unavailable, "publisher.unavailable", "away; wait"), true
			}
			return 0, p, nil, false
		}
		clocks := []*testkit.Clock{testkit.NewRunningClock(time.Now()), testkit.NewRunningClock(time.Now())}
		for i, c := range clocks {
			config := r.config(string(rune('a' + i)))
			config.Clock = c
			_, _ = run(t, config)
		}
		for round := range rounds {
			away.Store(round%4 == 1)
			for p := event.PartitionID(1); p <= partitions; p++ {
				r.log.write(p, each)
			}
			off := 48 * time.Hour
			if round%2 == 1 {
				off = -off
			}
			clocks[round%2].Set(time.Now().Add(off))
			if away.Load() {
				continue
			}
			pass(renewal + longestPause) // after a round that failed, and while a partition has no holder
			for p := event.PartitionID(1); p <= partitions; p++ {
				require.Equal(t, event.Sequence((round+1)*each), r.cursors.through(t, p), "partition %d", p)
			}
		}
		r.settled(t, 1, 2, 3, 4)
	})
}
