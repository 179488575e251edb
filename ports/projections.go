package ports

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// ProjectionTx is the transaction a projection writes its read model in. Its
// concrete type belongs to the adapter; a module's adapter binds to it.
type ProjectionTx any

// ProjectionBatch holds the events that a handler applies in one transaction.
type ProjectionBatch struct {
	Projection string
	// Version is the version that owns the rows. Several versions of one projection may share
	// tables.
	Version   int
	Partition event.PartitionID
	Events    []event.Recorded // of the partition, in sequence order, at least one
}

// ProjectionHandler folds events into a read model.
type ProjectionHandler interface {
	// Apply writes the effects of the batch inside tx. It must not commit. An error rolls all
	// of them back; its code is stored and its text is not, since it may quote a value.
	Apply(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
}

// ProjectionResetter is a handler that can remove its rows.
type ProjectionResetter interface {
	// Reset removes inside tx the rows of the version in the partition. The batch has no
	// events.
	Reset(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
}

// Checkpoint is the position and the status of a projection in one partition.
type Checkpoint = projection.Checkpoint

// ProjectionWork names one version of a projection in one partition, and the lease under which
// a node works it.
type ProjectionWork struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	// Lease may be nil for work without one. The transaction locks the checkpoint first and
	// then reads the lease: if the term is another one, another node has taken over, and the
	// fault is projection.fenced (conflict). An expired lease that no node has taken is valid.
	Lease *Lease
	// LockWait is how long the transaction waits for a lock of another session, on the
	// checkpoint or on rows that the handler writes; 0 is the store's default. After that the
	// transaction is rolled back with fault projection.busy (unavailable).
	LockWait time.Duration
}

// ProjectionAdvance describes one transaction of a projection.
type ProjectionAdvance struct {
	ProjectionWork
	Types []string // the handler receives only these; none: all
	Limit int      // upper bound of the events of any type that the checkpoint advances over; 0: none
	Bytes int      // upper bound of the payloads that the handler receives, unless the first event has more; 0: none
}

// ProjectionFailure is an attempt that was rolled back.
type ProjectionFailure struct {
	ProjectionWork
	At     event.Sequence // the checkpoint before the attempt; if it has moved since, nothing is recorded
	Code   string
	Detail string        // never quotes a value of the event
	Pause  time.Duration // until the next attempt
	// Attempts and Since describe the failures in a row of the batch that the event was in, this
	// one included: how many, and when the first was. 0 uses those of the checkpoint.
	Attempts int
	Since    time.Time
}

// ProjectionOperation is an action of an operator on a projection in one partition.
type ProjectionOperation struct {
	ProjectionWork
	By     string // the operator
	Reason string
}

// Projections advances checkpoints and read models together.
type Projections interface {
	// Advance reads the events after the checkpoint, lets the handler apply them and moves
	// the checkpoint, all in one transaction that locks the checkpoint row. It returns the
	// new checkpoint and the number of events that it advanced over. 0 means that the
	// projection has caught up or is halted, in which case the handler is not called. A success
	// resolves the dead letters of these events.
	Advance(ctx context.Context, a ProjectionAdvance, h ProjectionHandler) (Checkpoint, int, error)
	// Checkpoints lists a projection's checkpoints by partition.
	Checkpoints(ctx context.Context, projection string, version int) ([]Checkpoint, error)
	// RecordFailure counts a failed attempt.
	RecordFailure(ctx context.Context, f ProjectionFailure) (Checkpoint, error)
	// Isolate counts a failed attempt at the one event after the checkpoint, and moves the
	// event to the dead letters. By the policy (projection.SkipEvent, StopPartition,
	// StopProjection) the checkpoint advances over it, halts, or halts with the whole
	// projection.
	Isolate(ctx context.Context, f ProjectionFailure, policy string) (Checkpoint, error)

	// Fix makes a halted partition try again. Fault projection.not_halted.
	Fix(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Skip advances over the event that a partition is halted at. Fault
	// projection.not_halted.
	Skip(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Reset lets the handler remove the rows of the partition, sets the checkpoint to 0 and
	// discards waiting dead letters, in one transaction.
	Reset(ctx context.Context, o ProjectionOperation, h ProjectionResetter) (Checkpoint, error)
}

// ProjectionRegister stores the versions of all projections.
type ProjectionRegister interface {
	// AddProjection registers a version with revision 1 and returns it, or the version that is
	// registered under this number already. A projection has at most one active version and, for
	// each scope, at most one that is building, retained or saving. It needs an active version
	// before one is built or saved. Faults: projection.not_found when these rules do not allow
	// the version, as when two callers start a rebuild at once; projection.wrong_expected_version
	// when a version other than ExpectedActive is active; those of projection.CheckLimits for
	// custom projections.
	AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error)
	// ListProjections lists the versions of all projections, by name and version. It lists a
	// dropped version only if it is the latest of its projection.
	ListProjections(ctx context.Context) ([]projection.Projection, error)
	// NamedProjections lists all versions of one projection, by version. The list is empty for
	// an unknown name.
	NamedProjections(ctx context.Context, name string) ([]projection.Projection, error)
	// ChangeProjection writes status, settings and ChangedBy, and raises the revision. Faults:
	// projection.not_found, projection.changed (conflict) if its revision is not p's.
	ChangeProjection(ctx context.Context, p projection.Projection) (projection.Projection, error)
}

// DeadLetter is an event that a reader of the log could not process. It holds no value of the
// event, which authorized callers read in the log.
type DeadLetter struct {
	Kind          string // of the reader, such as "projection"
	Name          string // of the reader
	Version       int    // of the reader, 0: it has none
	Partition     event.PartitionID
	Sequence      event.Sequence
	EventID       event.ID
	Code          string
	Detail        string
	Attempts      int
	FirstFailedAt time.Time
	LastFailedAt  time.Time
	// Status is waiting (the reader is halted at it), passed (the reader skipped it by its
	// settings), skipped (an operator skipped it), resolved (it was processed later) or
	// discarded.
	Status    string
	SettledAt time.Time // of skipped, resolved and discarded
	SettledBy string
	Reason    string
}

// The statuses of a dead letter.
const (
	LetterWaiting   = "waiting"
	LetterPassed    = "passed"
	LetterSkipped   = "skipped"
	LetterResolved  = "resolved"
	LetterDiscarded = "discarded"
)

// LetterOfProjection is the kind of the dead letters of projections.
const LetterOfProjection = "projection"

// DeadLetterQuery selects dead letters.
type DeadLetterQuery struct {
	Kind       string              // "": all
	Name       string              // "": all
	Partitions []event.PartitionID // none: all
	Statuses   []string            // none: all
	After      *DeadLetter         // the last one of the previous page; only its key is used
	Limit      int
}

// DeadLetters lists the events that readers could not process.
type DeadLetters interface {
	// ListDeadLetters lists a page by kind, name, version, partition and sequence.
	ListDeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error)
}

// WakeUps signals that a partition grew. A signal may be lost or repeated, so readers poll as
// well.
type WakeUps interface {
	// Listen calls wake until ctx ends. After a reconnect it wakes with partition 0, since any
	// partition may have grown.
	Listen(ctx context.Context, wake func(event.PartitionID)) error
}

// RecomputeRequest selects the rows of a custom projection to recompute: those to which an event
// contributed that is about an entity or holds sealed values of a person.
type RecomputeRequest struct {
	Partition event.PartitionID
	Entity    event.StreamID    // of a stream, or as events refer to it
	Subject   shredding.Subject // "": Entity
	DryRun    bool              // count the changes and roll them back
	By        string
}

// RowPosition is the state of the rows of a version in a partition.
type RowPosition struct {
	Sequence   event.Sequence // of the checkpoint
	Generation uint64         // of its rows
	Redactions uint64         // of the partition
}

// RowRecompute replaces the rows of some keys by recomputed ones. The recomputation has read the
// log up to ReadThrough without locking the checkpoint.
type RowRecompute struct {
	ProjectionWork
	Keys        []string
	Since       RowPosition // before the recomputation
	ReadThrough event.Sequence
	Types       []string // what the projection reads
	Limit       int      // upper bound of the events between ReadThrough and the checkpoint
	// Recovered are events that the version had skipped and the recomputation applied: their
	// dead letters are resolved.
	Recovered []event.Sequence
	DryRun    bool // roll everything back and count what would have changed
	By        string
}

// RowRecomputer replaces rows of custom projections.
type RowRecomputer interface {
	// RowPosition returns the state of the rows; begun is false if there is no checkpoint.
	RowPosition(ctx context.Context, w ProjectionWork) (at RowPosition, begun bool, err error)
	// RecomputeRows locks the checkpoint, applies the events between ReadThrough and it, and
	// replaces the rows of the keys, in one transaction. It calls begin for each attempt, which
	// returns the handler of these events and the function that returns the resulting rows.
	// The generation grows when a row has changed. Faults: projection.changed when the rows
	// were replaced or a value was redacted since, or the checkpoint is outside of ReadThrough
	// and Limit; projection.fenced, and those of the handler.
	RecomputeRows(ctx context.Context, r RowRecompute, begin func() (h ProjectionHandler, rows func() map[string]ProjectionRow)) (TargetChange, error)
}

// DiffRows compares the rows of keys before and after a recomputation. It returns the rows to
// write and the keys to remove.
func DiffRows(keys []string, before, after map[string]ProjectionRow) (rows []ProjectionRow, gone []string, d TableDifference) {
	d = TableDifference{Table: ProjectionRowTable.Schema + "." + ProjectionRowTable.Name, LeftRows: uint64(len(before)), RightRows: uint64(len(after))}
	for _, key := range keys {
		left, inLeft := before[key]
		right, inRight := after[key]
		switch {
		case inRight && !inLeft:
			d.OnlyRight++
			rows = append(rows, right)
		case inLeft && !inRight:
			d.OnlyLeft++
			gone = append(gone, key)
		case inRight && (left.Sequence != right.Sequence || !bytes.Equal(left.State, right.State)):
			d.Changed++
			rows = append(rows, right)
		}
	}
	return rows, gone, d
}

// ProjectionRow is the state of a key in a custom projection.
type ProjectionRow struct {
	Key      string
	State    json.RawMessage
	Sequence event.Sequence // of the event that changed it last
}

// ProjectionRowQuery selects rows of one version in one partition.
type ProjectionRowQuery struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	Key        string // "": all; else this one
	Prefix     string // of keys
	After      string // exclusive
	Limit      int
}

// ProjectionRows stores the rows of custom projections. A batch names projection, version and
// partition; its events are ignored.
type ProjectionRows interface {
	// LoadProjectionRows reads the existing rows of keys inside tx.
	LoadProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch, keys []string) (map[string]ProjectionRow, error)
	// StoreProjectionRows writes rows and removes the gone keys inside tx.
	StoreProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch, rows []ProjectionRow, gone []string) error
	// ForgetProjectionRows removes all rows of the batch's partition inside tx.
	ForgetProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
	// ListProjectionRows lists a page of committed rows by key, in the order of bytes, and the
	// sequence of their checkpoint.
	ListProjectionRows(ctx context.Context, q ProjectionRowQuery) ([]ProjectionRow, event.Sequence, error)
	// EndProjection drops all versions of a projection in one transaction. No node works them
	// afterwards, and SweepProjection removes their rows. Fault projection.not_found when no
	// version is live.
	EndProjection(ctx context.Context, projection, by string) error
}

// ProjectionRowTable is the table of these rows in a store that has tables.
var ProjectionRowTable = ProjectionTable{Schema: "backbone", Name: "projection_rows", Key: []string{"key"}, Shared: true}

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
	// Entity is the column that holds the entity's id. "": the rows are found by the
	// sequences of the entity's events, unless all rows of the table are the entity's.
	Entity string
	// Subject is the column with the subject of the sealed copies in a row, "" in rows without
	// copies. "": the table holds no copies of personal values.
	Subject string
}

// ProjectionTargets is a handler with a read model of which parts can be recomputed alone.
// Applying an event to rows that contain it changes nothing.
type ProjectionTargets interface {
	// Targets lists all parts. A table belongs to one of them only.
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
	Target ProjectionTarget
	Entity string         // its id
	Types  []string       // what the projection reads
	Passed event.Sequence // the checkpoint must have reached it; 0: any
	Limit  int            // upper bound of the events
	DryRun bool           // roll everything back and count what would have changed
	By     string
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

// ProjectionTargetStore recomputes parts of read models.
type ProjectionTargetStore interface {
	// RebuildTarget removes the entity's rows, lets the handler apply the entity's events up to
	// the checkpoint and compares, all in one transaction that locks the checkpoint in any
	// status. A failing event rolls everything back, unless the version had skipped it: then
	// it is skipped again. Faults: projection.target_behind, projection.target_too_large,
	// projection.fenced, and those of the handler.
	RebuildTarget(ctx context.Context, r TargetRebuild, h ProjectionHandler) (TargetChange, error)
	// SubjectEntities lists entities whose rows, of any version, hold sealed copies of a
	// subject in a partition.
	SubjectEntities(ctx context.Context, p event.PartitionID, s shredding.Subject, targets []ProjectionTarget) ([]SubjectEntity, error)
	// CountCopies counts by version the rows that hold sealed copies of a subject in a
	// partition.
	CountCopies(ctx context.Context, p event.PartitionID, s shredding.Subject, targets []ProjectionTarget) (map[int]int64, error)
}

// SnapshotPart is the part of a snapshot for one partition: a frozen copy of the active rows at
// one event.
type SnapshotPart struct {
	Projection string
	Version    int // of the snapshot
	Partition  event.PartitionID
	Sequence   event.Sequence // of the last event in the rows
	Rows       uint64         // of all tables
	TakenAt    time.Time      // zero: not yet copied
	// Usable means that no value was redacted in the partition since its first row was
	// computed. Unusable parts are not restored.
	Usable bool
}

// SnapshotCopy describes the copy of a part.
type SnapshotCopy struct {
	Projection string
	Version    int // of the snapshot
	Partition  event.PartitionID
	Tables     []ProjectionTable
	To         int // of RestorePart: the version that starts from it
	// Types are those that To reads; none: all. RestorePart counts the events of these types
	// up to the snapshot as processed, since the rows were computed from them.
	Types []string
}

// ProjectionSnapshots stores snapshots of projections: versions with the role saved, whose rows
// are in the same tables as those of other versions. One node copies a part in one transaction, which blocks
// neither readers nor writers of the projection.
type ProjectionSnapshots interface {
	// PlanSnapshot adds the missing parts of a snapshot that is being saved: one for each
	// partition of its scope in which the version to copy, of, has a checkpoint.
	PlanSnapshot(ctx context.Context, projection string, version, of int) error
	// SavePart copies the active rows of a partition with their checkpoint, both read at the
	// same time, into a snapshot that is being saved. done is false while another node copies
	// the part. A part whose rows may hold values that were redacted since stays empty and
	// unusable. Faults: projection.other_code when another handler built the active version
	// than the snapshot is of, projection.changed when the snapshot is not being saved.
	SavePart(ctx context.Context, c SnapshotCopy) (done bool, err error)
	// FinishSnapshot completes a snapshot, and drops all but the newest keep snapshots of its
	// scope. Fault projection.changed.
	FinishSnapshot(ctx context.Context, projection string, version, keep int, by string) error
	// RestorePart copies a part with its checkpoint into the building version To, unless To has
	// a checkpoint there or the part is not usable. done is false while another node copies
	// the part. Fault projection.changed when To is not building or the snapshot is gone.
	RestorePart(ctx context.Context, c SnapshotCopy) (done bool, err error)
	// SnapshotParts lists the parts of a projection's snapshots, of all projections for "",
	// by projection, version and partition.
	SnapshotParts(ctx context.Context, projection string) ([]SnapshotPart, error)
	// ForgetPart removes a partition with its rows from a snapshot. It waits for a node that
	// copies the part.
	ForgetPart(ctx context.Context, c SnapshotCopy) error
}
