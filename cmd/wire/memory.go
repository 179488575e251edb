package wire

import (
	"os"
	"runtime/debug"
	"syscall"
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

// ForbidCoreDumps keeps keys and opened values out of files that the system writes
// when a process dies.
func ForbidCoreDumps() error {
	return syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
}
