package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/globallog"
)

// Witness signs checkpoints of a log that continue what it signed before (c2sp.org/tlog-witness).
type Witness interface {
	// VerifierKey is the key to check its signatures with.
	VerifierKey() string
	// AddCheckpoint returns the lines of signatures of the extension's checkpoint.
	//
	//	witness.size_differs  Conflict: the newest checkpoint that it signed has another size than the extension begins
	//	                      with: Actual, a uint64
	//	witness.inconsistent  FailedPrecondition: it has signed another log
	//	witness.unavailable   Unavailable: not reached, too slow, or it refuses
	AddCheckpoint(ctx context.Context, x globallog.Extension) (lines []byte, err error)
}

// WitnessState keeps the newest checkpoint of each log that a witness has signed. Faults:
// witness.folder_unusable (FailedPrecondition).
type WitnessState interface {
	// Newest returns the newest one; nil: none yet.
	Newest(origin string) (note []byte, err error)
	// Keep replaces it, durably before it returns.
	Keep(origin string, note []byte) error
}
