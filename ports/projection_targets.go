package ports

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// ProjectionTarget declares which rows of a read model belong to one entity and which events
// write them, so that they can be recomputed alone.
type ProjectionTarget struct {
	// Streams are the types of the streams whose events write the rows. The rows of the
	// entity with an id are written by the events of all streams of these types with that
	// id, and by no other event.
	Streams []string
	// ID is the id of the only entity of the kind in a legal entity, which owns all rows of the
	// tables. "": there are many entities.
	ID     string
	Tables []TargetTable
}

// TargetTable is a table with rows of a target. It has a column sequence, which holds
// the sequence of the event that wrote the row.
type TargetTable struct {
	ProjectionTable
	// Entity names the column that holds the entity's id. A table without such a column has
	// "" here; its rows are found by the sequences of the entity's events, or are all of them the
	// entity's if the target has an ID.
	Entity string
	// Subject names the column that holds the person whose sealed values are copied into the
	// row; a row without copies has an empty text there. A table without copies of personal
	// values has "" here.
	Subject string
}

// ProjectionTargets is a handler that declares targets: groups of rows that can be recomputed
// one entity at a time. Applying an event again to rows that it has already changed must have no
// effect.
type ProjectionTargets interface {
	// Targets lists all targets. A table belongs to one of them only.
	Targets() []ProjectionTarget
}

// HoldsSealedCopies reports whether a handler declares a table with sealed copies of personal
// values. Such a handler receives "[REDACTED]" in place of the values of erased persons.
func HoldsSealedCopies(h ProjectionHandler) bool {
	declares, ok := h.(ProjectionTargets)
	return ok && slices.ContainsFunc(declares.Targets(), ProjectionTarget.Personal)
}

// Personal reports whether one of the tables holds sealed copies of personal values.
func (t ProjectionTarget) Personal() bool {
	return slices.ContainsFunc(t.Tables, func(t TargetTable) bool { return t.Subject != "" })
}

// Covers reports whether the rows of an entity belong to the target.
func (t ProjectionTarget) Covers(entity event.StreamID) bool {
	return slices.Contains(t.Streams, entity.Type) && (t.ID == "" || t.ID == entity.ID)
}

// TargetRebuild describes the recomputation of the rows of one entity.
type TargetRebuild struct {
	ProjectionWork
	Target        ProjectionTarget
	Entity        string         // its id
	Types         []string       // what the projection reads; none: all
	MinCheckpoint event.Sequence // the checkpoint must have reached it; 0: any
	Limit         int            // how many events the entity may have; 0: no bound
	DryRun        bool           // roll everything back and count what would have changed
	By            string
}

// TargetChange counts the changes of a recomputation.
type TargetChange struct {
	Sequence event.Sequence // of the checkpoint, up to which events were applied
	Events   int            // that were applied
	// PassedOver counts events that the version had skipped (dead letters) and that still
	// fail: the rows lack them as before.
	PassedOver int
	// Tables compares the rows before (left) with those afterwards (right).
	Tables []TableDifference
}

// Rows is the number of rows that changed.
func (c TargetChange) Rows() (n uint64) {
	for _, t := range c.Tables {
		n += t.OnlyLeft + t.OnlyRight + t.Changed
	}
	return n
}

// SubjectEntity is an entity whose rows hold sealed copies of a subject.
type SubjectEntity struct {
	Target int // index in the list of targets
	Entity string
}

// ProjectionTargetStore recomputes the rows of single entities, as after the erasure of a person
// whose values the rows copy.
type ProjectionTargetStore interface {
	// RebuildTarget removes the entity's rows, lets the handler apply the entity's events up to
	// the checkpoint and compares, all in one transaction that locks the checkpoint in any
	// status. A failing event rolls everything back, unless the version had skipped it: then
	// it is skipped again. If a skipped event succeeds now, its dead letter is resolved. Faults:
	// projection.target_behind if the checkpoint has not reached MinCheckpoint,
	// projection.target_too_large if the entity has more events than Limit or far more rows,
	// projection.fenced,
	// projection.busy, and those of the handler.
	RebuildTarget(ctx context.Context, r TargetRebuild, h ProjectionHandler) (TargetChange, error)
	// SubjectEntities lists entities whose rows, of any version, hold sealed copies of a
	// subject in a partition.
	SubjectEntities(ctx context.Context, p event.PartitionID, s shredding.Subject, targets []ProjectionTarget) ([]SubjectEntity, error)
	// CountCopies counts by version the rows that hold sealed copies of a subject in a
	// partition.
	CountCopies(ctx context.Context, p event.PartitionID, s shredding.Subject, targets []ProjectionTarget) (map[int]int64, error)
}
