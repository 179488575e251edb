package simulation

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"

	"github.com/stretchr/testify/require"
)

var (
	seed         = flag.Uint64("seed", 0, "run this seed only")
	start        = flag.String("start", "1", "the first seed, or random")
	seeds        = flag.Uint64("seeds", 30, "how many seeds to run")
	processes    = flag.Int("processes", 1, "how many processes share the seeds")
	untilFailure = flag.Bool("until-failure", false, "print each seed, and stop at the first that fails")
	trace        = flag.String("trace", "", "file that gets every call of a port")
	logs         = flag.Bool("logs", false, "print the logs of the nodes")
)

// TestSeeds runs seeds. Each prints what it takes to repeat it when it fails.
func TestSeeds(t *testing.T) {
	from, count := firstSeed(t), *seeds
	if *seed != 0 {
		from, count = *seed, 1
	}
	if *processes > 1 && count > 1 {
		share(t, from, count)
		return
	}
	deterministic(t)
	var o options
	if *logs {
		o.Logs = os.Stderr
	}
	total := outcome{}
	for s := from; s < from+count; s++ {
		if *trace != "" {
			file, err := os.Create(*trace)
			require.NoError(t, err)
			defer func() { require.NoError(t, file.Close()) }()
			o.Trace = file
		}
		if *untilFailure {
			fmt.Printf("seed %d\n", s) // before it runs, since it may not end
		}
		out := runSeed(t, s, o)
		total.Calls, total.Events, total.Digest = total.Calls+out.Calls, total.Events+out.Events, total.Digest*31+out.Digest
		if len(out.Violations) == 0 {
			continue
		}
		t.Errorf("seed %d with %v\n\t%s\nrepeat it: go test ./test/simulation -run TestSeeds -seed %d -logs", s, out.Parts, strings.Join(out.Violations, "\n\t"), s)
		if *untilFailure {
			rule, _, _ := strings.Cut(out.Violations[0], ": ")
			fmt.Printf("seed %d violates: %s\n", s, rule)
			break
		}
	}
	t.Logf("%d seeds from %d: %d calls of ports, %d events, digest %x", count, from, total.Calls, total.Events, total.Digest)
}

// runSeed runs one seed with its own source of secrets.
func runSeed(t *testing.T, s uint64, o options) outcome {
	t.Helper()
	cryptotest.SetGlobalRandom(t, s)
	return simulate(t, s, o)
}

// deterministic lets one goroutine run at a time, so that simulated time alone orders them.
func deterministic(t *testing.T) {
	before, collect := runtime.GOMAXPROCS(1), debug.SetGCPercent(2000)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(before)
		debug.SetGCPercent(collect)
	})
}

func firstSeed(t *testing.T) uint64 {
	t.Helper()
	if *start == "random" {
		first := rand.Uint64N(1 << 40)
		fmt.Printf("the first seed is %d\n", first)
		return first
	}
	n, err := strconv.ParseUint(*start, 10, 64)
	require.NoError(t, err, "-start is a number or random")
	return n
}

// shareSize is how many seeds a process runs before it says how far all are.
const shareSize = 100

// share runs seeds in several processes, which say how far they are.
func share(t *testing.T, from, count uint64) {
	next := make(chan uint64)
	var working sync.WaitGroup
	var mu sync.Mutex
	done := uint64(0)
	for range *processes {
		working.Go(func() {
			for first := range next {
				size := min(shareSize, from+count-first)
				var out bytes.Buffer
				c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSeeds$", "-test.timeout=20m", "-start", strconv.FormatUint(first, 10), "-seeds", strconv.FormatUint(size, 10))
				c.Stdout, c.Stderr = &out, &out
				err := c.Run()
				mu.Lock()
				if done += size; err != nil {
					t.Errorf("%v\n%s", err, out.String())
				}
				_, _ = io.WriteString(os.Stderr, fmt.Sprintf("%d of %d seeds\n", done, count)) // of progress only
				mu.Unlock()
			}
		})
	}
	for first := from; first < from+count; first += shareSize {
		next <- first
	}
	close(next)
	working.Wait()
}
