package ports

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// ProjectionTarget says which rows of a read model are those of one entity, and which
// events write them, so that they can be folded anew on their own.
type ProjectionTarget struct {
	// Streams are the types of the streams whose events write the rows. The rows of the
	// entity with an id are written by the events of all streams of these types with that
	// id, and by no other event.
	Streams []string
	// ID is that of the only entity there is of the kind in a legal entity: all rows of the
	// tables are its. "": there are many.
	ID     string
	Tables []TargetTable
}

// TargetTable is a table with rows of a target. It has a column sequence, which holds
// the sequence of the event that wrote the row.
type TargetTable struct {
	ProjectionTable
	// Entity is the column that holds the entity's id. "": the rows are found by the
	// sequences of the entity's events, unless all rows of the table are the entity's.
	Entity string
	// Subject is the column that says whose sealed copies a row holds, "" in rows without.
	// "": the table holds no copies of personal values.
	Subject string
}

// ProjectionTargets is a handler of whose read model parts can be folded anew on their
// own. Applying an event to rows that have it already changes nothing.
type ProjectionTargets interface {
	// Targets are all parts. One table belongs to one of them only.
	Targets() []ProjectionTarget
}

// KeepsCopies tells whether a handler declares a table with sealed copies of personal
// values. It is handed events in which the values of erased persons read "[REDACTED]".
func KeepsCopies(h ProjectionHandler) bool {
	declares, ok := h.(ProjectionTargets)
	return ok && slices.ContainsFunc(declares.Targets(), ProjectionTarget.Personal)
}

// Personal tells whether one of the tables holds sealed copies of personal values.
func (t ProjectionTarget) Personal() bool {
	return slices.ContainsFunc(t.Tables, func(t TargetTable) bool { return t.Subject != "" })
}

// Covers tells whether the rows of an entity are found and folded by the target.
func (t ProjectionTarget) Covers(entity event.StreamID) bool {
	return slices.Contains(t.Streams, entity.Type) && (t.ID == "" || t.ID == entity.ID)
}

// TargetRebuild folds the rows of one entity anew.
type TargetRebuild struct {
	ProjectionWork
	Target ProjectionTarget
	Entity string         // its id
	Types  []string       // what the projection reads
	Passed event.Sequence // which the checkpoint must have reached; 0: wherever it is
	Limit  int            // of events; more are refused
	DryRun bool           // roll everything back and tell what would have changed
	By     string
}

// TargetChange is what a rebuild of one entity's rows changed.
type TargetChange struct {
	Sequence event.Sequence // the checkpoint, up to which was folded
	Events   int            // that were folded
	// PassedOver are events that the version had gone on without (dead letters) and that
	// still cannot be digested: the rows lack them as before.
	PassedOver int
	// Tables compares the rows before (left) with those afterwards (right).
	Tables []TableDifference
}

// Rows is how many rows were not as the fold made them.
func (c TargetChange) Rows() (n uint64) {
	for _, t := range c.Tables {
		n += t.OnlyLeft + t.OnlyRight + t.Changed
	}
	return n
}

// SubjectEntity is an entity whose rows hold sealed copies of a subject.
type SubjectEntity struct {
	Target int // place in the list of targets
	Entity string
}

// ProjectionTargetStore folds parts of read models anew.
type ProjectionTargetStore interface {
	// RebuildTarget removes the entity's rows, lets the handler apply the entity's events
	// up to the checkpoint and compares, all in one transaction that holds the checkpoint,
	// whatever its status. Nothing is changed when an event fails, unless the version has
	// gone on without that event: then it is left out again. Faults:
	// projection.target_behind, projection.target_too_large, projection.fenced, and what
	// the handler says.
	RebuildTarget(ctx context.Context, r TargetRebuild, h ProjectionHandler) (TargetChange, error)
	// SubjectEntities lists entities whose rows, of whatever version, hold sealed copies of
	// a subject in a partition.
	SubjectEntities(ctx context.Context, p event.PartitionID, s shredding.Subject, targets []ProjectionTarget) ([]SubjectEntity, error)
	// CountCopies counts by version the rows that hold sealed copies of a subject in a
	// partition.
	CountCopies(ctx context.Context, p event.PartitionID, s shredding.Subject, targets []ProjectionTarget) (map[int]int64, error)
}
