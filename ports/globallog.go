package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
)

// GlobalLogWriter makes the global log longer. It takes events from the log and accepts none from
// its caller.
type GlobalLogWriter interface {
	// ExtendGlobalLog takes what the partitions have recorded since into the global log, at most so many
	// events of each, in the given order, and returns the new ranges. The tiles that they complete are
	// stored in the same transaction. Fault global_log.moved (Conflict) if another caller did it at the
	// same time; nothing was done then.
	ExtendGlobalLog(ctx context.Context, partitions []event.PartitionID, most int) ([]globallog.Range, error)
	GlobalEnds
}

// GlobalEnds tells how far the global log has the partitions.
type GlobalEnds interface {
	// GlobalEnds returns the last sequence that the global log has of each partition before a position. It
	// leaves out partitions of which it has none there.
	GlobalEnds(ctx context.Context, before globallog.Position) (map[event.PartitionID]event.Sequence, error)
}

// GlobalOrder reads the global log.
type GlobalOrder interface {
	GlobalEnds
	// GlobalSize is the number of events in the global log, and the next position.
	GlobalSize(ctx context.Context) (uint64, error)
	// GlobalPositions returns the positions of events, in one query for all of them. It leaves out those
	// that the global log does not have.
	GlobalPositions(ctx context.Context, events []EventPosition) (map[EventPosition]globallog.Position, error)
	// GlobalRanges lists ranges by position in the query's direction.
	GlobalRanges(ctx context.Context, q GlobalRangeQuery) ([]globallog.Range, error)
}

// GlobalRangeQuery selects ranges of the global log.
type GlobalRangeQuery struct {
	Partitions []event.PartitionID
	From       globallog.Position // the first range is the one that has it or, of these partitions, the next in the direction of reading
	Direction  Direction
	Limit      int
}

// GlobalTree reads the tree over the global log.
type GlobalTree interface {
	// GlobalHashes returns n hashes of a level of tiles from an index on: those of entries at level 0,
	// above it the roots of the tiles below. Fault global_log.beyond_end (NotFound) if there are fewer.
	GlobalHashes(ctx context.Context, level int, from, n uint64) ([]event.Hash, error)
}

// SignedCheckpoint is a checkpoint of the global log with its signatures.
type SignedCheckpoint struct {
	Incarnation int // of the log, from 1
	Size        uint64
	Root        event.Hash
	Note        []byte // signed; its text is that of a globallog.Checkpoint of this size and root
}

// IsNewer reports whether the checkpoint is of a later incarnation than another one, or of more events.
func (c SignedCheckpoint) IsNewer(than SignedCheckpoint) bool {
	return c.Incarnation > than.Incarnation || c.Incarnation == than.Incarnation && c.Size > than.Size
}

// Checkpoints keeps the checkpoints of the global log.
type Checkpoints interface {
	// NewestCheckpoint returns the newest checkpoint of the last incarnation, nil if there is none.
	NewestCheckpoint(ctx context.Context) (*SignedCheckpoint, error)
	// RecordCheckpoint records a checkpoint, unless there is one as new or newer; it says whether it did. Fault
	// global_log.beyond_end (NotFound) if the global log has not so many events.
	RecordCheckpoint(ctx context.Context, c SignedCheckpoint) (isRecorded bool, err error)
}

// GlobalLogMoved is the fault of a caller that another one has preceded.
func GlobalLogMoved() *fault.Error {
	return fault.New(fault.Conflict, "global_log.moved", "another node makes the global log longer at the same time; try again")
}

// GlobalLogTooShort is the fault of a read beyond the end of the global log.
func GlobalLogTooShort() *fault.Error {
	return fault.New(fault.NotFound, "global_log.beyond_end", "the global log does not reach that far yet; try again later")
}

// GlobalLogAudit reads the rows of the global log that verification compares with the logs.
type GlobalLogAudit interface {
	GlobalSize(ctx context.Context) (uint64, error)
	// AllGlobalRanges lists the ranges of all partitions by position, from one on.
	AllGlobalRanges(ctx context.Context, from globallog.Position, limit int) ([]globallog.Range, error)
	// Checksums lists the checksums of the events of a partition that have one of n sequences, from one
	// on. There are fewer where events are missing.
	Checksums(ctx context.Context, p event.PartitionID, from event.Sequence, n int) ([]event.Hash, error)
	// GlobalTiles lists the stored tiles of a level by index, from one on.
	GlobalTiles(ctx context.Context, level int, from uint64, limit int) ([]StoredTile, error)
	// Checkpoints lists checkpoints by size and incarnation, after one of them.
	Checkpoints(ctx context.Context, after uint64, incarnation, limit int) ([]SignedCheckpoint, error)
}

// StoredTile is a tile with the root that is stored beside it.
type StoredTile struct {
	globallog.Tile
	StoredRoot event.Hash
}
