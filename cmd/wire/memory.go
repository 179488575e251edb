package wire

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow to five times what is alive before it is collected.
// The server keeps little alive and allocates much: at Go's default of 100 the
// collector took an eighth of the processor under load.
const gcPercent = 400

// TuneMemory sets the collector for a server process, unless GOGC says otherwise.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
