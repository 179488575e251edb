package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// BlindIndex stores by which hashes persons are found. Every change of a partition's part
// carries the position that it was computed from and is refused with blindindex.Moved when another node
// has changed it since.
type BlindIndex interface {
	// BlindIndexPositions returns how far the index has read partitions. One that it has not
	// begun is absent.
	BlindIndexPositions(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]BlindIndexPosition, error)
	// BeginBlindIndex deletes all entries of the partition and puts the index at the beginning of
	// its log, with the key. from is the zero position if it has not begun.
	BeginBlindIndex(ctx context.Context, p event.PartitionID, from BlindIndexPosition, key blindindex.Hash) (BlindIndexPosition, error)
	// AdvanceBlindIndex adds entries of events up to a sequence. Entries that are there change nothing.
	AdvanceBlindIndex(ctx context.Context, p event.PartitionID, from BlindIndexPosition, to event.Sequence, entries []blindindex.Entry) (BlindIndexPosition, error)
	// ForgetSubject deletes the entries of a person under key classes, if the index has read
	// the sequence; blindindex.Behind otherwise. No change that was computed before adds one again.
	ForgetSubject(ctx context.Context, p event.PartitionID, s shredding.Subject, classes []shredding.KeyClass, passed event.Sequence) error
	// CountBlindIndex counts these entries.
	CountBlindIndex(ctx context.Context, p event.PartitionID, s shredding.Subject, classes []shredding.KeyClass) (int64, error)
	// FindSubjects finds persons with all the hashes in the partitions together, and returns
	// their entries with these hashes: each once for a type, path and class of a partition.
	// They are by subject, partition, type, path and class.
	FindSubjects(ctx context.Context, q SubjectQuery) ([]blindindex.Entry, error)
	// ClearBlindIndex deletes everything. The nodes build it again.
	ClearBlindIndex(ctx context.Context) error
}

// BlindIndexPosition is how far the index has read a partition.
type BlindIndexPosition struct {
	Sequence event.Sequence
	Revision int64           // of the last change; 0: it has not begun
	Key      blindindex.Hash // tells the rules and the secret of the hashes
}

// SubjectQuery selects persons of the index.
type SubjectQuery struct {
	Partitions []event.PartitionID
	Kind       blindindex.Kind
	Hashes     []blindindex.Hash // different ones
	After      shredding.Subject // "": from the first
	Limit      int               // of persons
}
