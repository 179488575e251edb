//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sample is the result of one measurement.
type sample struct {
	count     int // of what step counts
	elapsed   time.Duration
	latencies []time.Duration // of the steps, sorted
}

func (s sample) rate() float64 { return float64(s.count) / s.elapsed.Seconds() }

func (s sample) quantile(q float64) time.Duration { return quantile(s.latencies, q) }

// drive lets callers repeat step, each one step at a time, for the period. A step returns how
// much it did. The first error ends the measurement.
func drive(t *testing.T, callers int, period time.Duration, step func(ctx context.Context, caller int) (int, error)) sample {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		count     int
		latencies []time.Duration
		err       error
	}
	results := make([]result, callers)
	var running sync.WaitGroup
	started := time.Now()
	for caller := range callers {
		running.Go(func() {
			pprof.Do(ctx, loadLabels, func(ctx context.Context) {
				r := &results[caller]
				r.latencies = make([]time.Duration, 0, 4096)
				for before := time.Now(); before.Sub(started) < period; {
					n, err := step(ctx, caller)
					now := time.Now()
					if err != nil {
						r.err = err
						cancel()
						return
					}
					r.count += n
					r.latencies = append(r.latencies, now.Sub(before))
					before = now
				}
			})
		})
	}
	running.Wait()
	s := sample{elapsed: time.Since(started)}
	for _, r := range results {
		if !errors.Is(r.err, context.Canceled) { // a cancelled caller is not the cause
			require.NoError(t, r.err)
		}
		s.count += r.count
		s.latencies = append(s.latencies, r.latencies...)
	}
	slices.Sort(s.latencies)
	return s
}

// loadLabels mark the load generator in profiles:
// go tool pprof -tagignore=load reports the server alone.
var loadLabels = pprof.Labels("side", "load")

// variant is one side of a comparison.
type variant struct {
	name    string
	measure func(period time.Duration) sample
	samples []sample
}

// takeTurns warms every variant up and then measures them round by round. The
// statistics are those of the last round.
func takeTurns(t *testing.T, o options, statements *statistics, variants ...*variant) {
	t.Helper()
	for _, v := range variants {
		v.measure(min(o.period, time.Second))
	}
	for round := range o.rounds {
		for _, v := range variants {
			statements.reset(t)
			s := v.measure(o.period)
			statements.write(t, v.name)
			v.samples = append(v.samples, s)
			printLine("round %d: %s: %s", round+1, v.name, perSecond(s.rate(), "events"))
		}
	}
}

func (v *variant) rate() float64 {
	var rates []float64
	for _, s := range v.samples {
		rates = append(rates, s.rate())
	}
	return median(rates)
}

// ratio to another variant, round by round.
func (v *variant) ratio(to *variant) float64 {
	var ratios []float64
	for i, s := range v.samples {
		ratios = append(ratios, s.rate()/to.samples[i].rate())
	}
	return median(ratios)
}

// latencies of all rounds.
func (v *variant) latencies() []time.Duration {
	var all []time.Duration
	for _, s := range v.samples {
		all = append(all, s.latencies...)
	}
	slices.Sort(all)
	return all
}

// printLine reports progress.
func printLine(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }
