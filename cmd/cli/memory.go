package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// gcPercent lets a small heap grow to five times the live memory before a collection. The server
// keeps little memory alive and allocates much: at Go's default of 100 the collector used an
// eighth of the processor under load. Above largeHeap a heap grows to twice the live memory only,
// so that a burst of large bodies does not leave the process with five times their memory.
const (
	gcPercent      = 400
	gcPercentLarge = 100
	largeHeap      = 192 << 20 // bytes
)

// TuneMemory sets how often the process collects garbage, unless GOGC is set.
func TuneMemory() {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := gcPercent
	debug.SetGCPercent(percent)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var tune func(*collected)
	tune = func(c *collected) {
		metrics.Read(live)
		if wanted := gcPercentFor(live[0].Value.Uint64()); wanted != percent {
			percent = wanted
			debug.SetGCPercent(percent)
		}
		runtime.SetFinalizer(c, tune) // for the next collection
	}
	runtime.SetFinalizer(&collected{}, tune)
}

// collected is garbage at once, so that its finalizer runs after each collection.
type collected struct{ _ *collected }

// gcPercentFor gives how much a heap may grow, in percent of its live bytes.
func gcPercentFor(live uint64) int {
	if live >= largeHeap {
		return gcPercentLarge
	}
	return int(min(max((largeHeap-live)*100/max(live, 1), gcPercentLarge), gcPercent))
}
