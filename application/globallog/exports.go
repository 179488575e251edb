package globallog

import (
	"bytes"
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// CheckpointFolder is the folder of the export store in which checkpoints are kept.
const CheckpointFolder = "checkpoints/"

// CheckpointName is the name of a checkpoint in the export store. Names have the order of checkpoints.
func CheckpointName(incarnation int, size uint64) string {
	return fmt.Sprintf("%s%06d/%020d", CheckpointFolder, incarnation, size)
}

// NewestExport reads the newest checkpoint of the export store, nil if there is none. Whether it is signed is for
// the caller.
func NewestExport(ctx context.Context, exports ports.ExportStore) (*ports.SignedCheckpoint, error) {
	names, err := exports.List(ctx, CheckpointFolder)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	note, err := exports.Get(ctx, names[len(names)-1])
	if err != nil {
		return nil, err
	}
	c, err := ParseSigned(note)
	return &c, err
}

// ParseSigned parses a signed checkpoint without checking its signatures. Fault global_log.checkpoint_malformed
// (Invalid).
func ParseSigned(note []byte) (ports.SignedCheckpoint, error) {
	end := bytes.Index(note, []byte("\n\n")) + 1
	c, err := globallog.ParseCheckpoint(note[:end])
	if err != nil {
		return ports.SignedCheckpoint{}, err
	}
	return ports.SignedCheckpoint{Incarnation: c.Incarnation(), Size: c.Size, Root: c.Root, Note: note}, nil
}
