//go:build bench

package bench

import (
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// options are the settings of the environment.
type options struct {
	period  time.Duration // of one measurement
	rounds  int
	events  int // in the store that is read
	lines   int // of journals, for the trial balance
	items   int // open ones, for aging
	growth  int // events of the large log of the growth section
	profile string
	dir     string
}

func readOptions(t *testing.T) options {
	t.Helper()
	o := options{period: 4 * time.Second, rounds: 3, events: 1_000_000, lines: 1_000_000, items: 100_000, growth: 1_000_000}
	if text := os.Getenv("BACKBONE_BENCH_SECONDS"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err, "BACKBONE_BENCH_SECONDS")
		o.period = time.Duration(seconds * float64(time.Second))
	}
	for name, target := range map[string]*int{"BACKBONE_BENCH_ROUNDS": &o.rounds, "BACKBONE_BENCH_EVENTS": &o.events, "BACKBONE_BENCH_LINES": &o.lines, "BACKBONE_BENCH_ITEMS": &o.items, "BACKBONE_BENCH_GROWTH": &o.growth} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.Atoi(text)
			require.NoError(t, err, name)
			require.Positive(t, n, name)
			*target = n
		}
	}
	o.profile = os.Getenv("BACKBONE_BENCH_PROFILE")
	o.dir = os.Getenv("BACKBONE_BENCH_DIR")
	return o
}

// profiled runs f under the CPU profiler if profiles are wanted. The profile sees
// this process only: the server's Go code and the load generator, not PostgreSQL.
func (o options) profiled(t *testing.T, name string, f func()) {
	t.Helper()
	if o.profile == "" {
		f()
		return
	}
	require.NoError(t, os.MkdirAll(o.profile, 0o755))
	file, err := os.Create(filepath.Join(o.profile, name+".pprof"))
	require.NoError(t, err)
	require.NoError(t, pprof.StartCPUProfile(file))
	defer func() {
		pprof.StopCPUProfile()
		require.NoError(t, file.Close())
	}()
	f()
}
