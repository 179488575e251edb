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

// ProjectionBatch is what a handler gets at once.
type ProjectionBatch struct {
	Projection string
	// Version is the version that is built. Several versions of one projection may be
	// built in the same tables, beside each other.
	Version   int
	Partition event.PartitionID
	Events    []event.Recorded // of the partition, in sequence order, at least one
}

// ProjectionHandler folds events into a read model.
type ProjectionHandler interface {
	// Apply writes the effects of the batch inside tx. It must not commit. An error rolls
	// everything back; its code is kept and its text is not, since it may quote a value.
	Apply(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
}

// ProjectionResetter is a handler that can forget.
type ProjectionResetter interface {
	// Reset removes inside tx what the version wrote for the partition. The batch has no
	// events.
	Reset(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
}

// Checkpoint is how far a projection has read one partition, and how it fared.
type Checkpoint = projection.Checkpoint

// ProjectionWork names one version of a projection in one partition, and by what right
// somebody works it.
type ProjectionWork struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	// Lease is the one the work is done under; nil does it without. The transaction locks
	// the checkpoint first and then reads the lease: if its term is not this one, somebody
	// else has taken over, and the fault is projection.fenced (conflict). A lease that
	// expired and that nobody took is good.
	Lease *Lease
	// LockWait is how long the transaction waits for a lock that somebody else holds, on
	// the checkpoint or on what the handler writes; 0 is the store's own patience. When it
	// ends, nothing was done, and the fault is projection.busy (unavailable).
	LockWait time.Duration
}

// ProjectionAdvance is one step.
type ProjectionAdvance struct {
	ProjectionWork
	Types []string // hand over these only; none: all
	Limit int      // pass at most so many events, of whatever type; 0: all
	Bytes int      // of payloads that are handed over at once, unless the first event alone has more; 0: no bound
}

// ProjectionFailure is an attempt that was rolled back.
type ProjectionFailure struct {
	ProjectionWork
	At     event.Sequence // the checkpoint that it began at; if it has moved since, nothing is recorded
	Code   string
	Detail string        // never quotes a value of the event
	Pause  time.Duration // until the next attempt
	// Attempts and Since are of the batch that an event was isolated from: how often it
	// failed with this attempt, and when first. 0 counts what the checkpoint knows.
	Attempts int
	Since    time.Time
}

// ProjectionOperation is what an operator does to a projection in one partition.
type ProjectionOperation struct {
	ProjectionWork
	By     string // who
	Reason string
}

// Projections keeps checkpoints and read models in step.
type Projections interface {
	// Advance reads the events after the checkpoint, lets the handler apply them and moves
	// the checkpoint, all in one transaction that holds the checkpoint row. It returns the
	// new checkpoint and how many events it passed; 0 means caught up, or halted: then the
	// handler is not called, and the checkpoint says so. A success resolves the dead
	// letters of what it passed.
	Advance(ctx context.Context, a ProjectionAdvance, h ProjectionHandler) (Checkpoint, int, error)
	// Checkpoints lists a projection's checkpoints by partition.
	Checkpoints(ctx context.Context, projection string, version int) ([]Checkpoint, error)
	// RecordFailure counts an attempt that failed.
	RecordFailure(ctx context.Context, f ProjectionFailure) (Checkpoint, error)
	// Isolate counts an attempt that failed for the one event after the checkpoint, and
	// puts the event into the dead letters. By the policy (projection.SkipEvent,
	// StopPartition, StopProjection) the checkpoint passes it, halts, or halts with the
	// whole projection.
	Isolate(ctx context.Context, f ProjectionFailure, policy string) (Checkpoint, error)

	// Fix lets a halted partition try again. Fault projection.not_halted.
	Fix(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Skip passes over the event that a partition is halted at. Fault
	// projection.not_halted.
	Skip(ctx context.Context, o ProjectionOperation) (Checkpoint, error)
	// Reset lets the handler forget the partition and sets the checkpoint to 0, in one
	// transaction. What waited in the dead letters is discarded.
	Reset(ctx context.Context, o ProjectionOperation, h ProjectionResetter) (Checkpoint, error)

	// PartitionHeads lists the last sequence of every partition.
	PartitionHeads(ctx context.Context) (map[event.PartitionID]Head, error)
	// RecordedAt tells when events were recorded, in one query for all of them. Those that
	// do not exist are left out.
	RecordedAt(ctx context.Context, places []EventPosition) (map[EventPosition]time.Time, error)
}

// EventPosition is where an event is in the log.
type EventPosition struct {
	Partition event.PartitionID
	Sequence  event.Sequence
}

// ProjectionRegister knows the projections of an installation.
type ProjectionRegister interface {
	// AddProjection makes a projection known, with revision 1, unless it is: then nothing
	// changes. It returns what is known afterwards. Fault projection.not_found when another
	// version is building or active already, as this one would be, or when this one is
	// building and none is shown; projection.wrong_expected_version when another one than
	// Follows is. Of a tenant's own there are never more than projection.MayAdd allows.
	AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error)
	// ListProjections lists the versions of all projections, by name and version; of those
	// that were dropped only one that is the latest of its projection.
	ListProjections(ctx context.Context) ([]projection.Projection, error)
	// NamedProjections lists all versions of one projection, by version. Empty for one that
	// is not known.
	NamedProjections(ctx context.Context, name string) ([]projection.Projection, error)
	// ChangeProjection writes status, settings and who changed them, and gives the
	// projection the next revision. Faults: projection.not_found, projection.changed
	// (conflict) if its revision is not p's.
	ChangeProjection(ctx context.Context, p projection.Projection) (projection.Projection, error)
}

// DeadLetter is an event that a reader of the log could not digest. It holds no value
// of the event: whoever may read the event finds it in the log.
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
	// Status is waiting (the reader stands still at it), passed (the reader went on
	// without it by its settings), skipped (an operator let it go on), resolved (it was
	// digested later) or discarded.
	Status    string
	SettledAt time.Time // of skipped, resolved and discarded
	SettledBy string
	Reason    string
}

// The states of a dead letter.
const (
	LetterWaiting   = "waiting"
	LetterPassed    = "passed"
	LetterSkipped   = "skipped"
	LetterResolved  = "resolved"
	LetterDiscarded = "discarded"
)

// LetterOfProjection is the kind of the dead letters of projections.
const LetterOfProjection = "projection"

// DeadLetterQuery chooses dead letters.
type DeadLetterQuery struct {
	Kind       string              // "": all
	Name       string              // "": all
	Partitions []event.PartitionID // none: all
	Statuses   []string            // none: all
	After      *DeadLetter         // the last one of the page before; its key counts
	Limit      int
}

// DeadLetters shows what could not be digested.
type DeadLetters interface {
	// ListDeadLetters lists a page by kind, name, version, partition and sequence.
	ListDeadLetters(ctx context.Context, q DeadLetterQuery) ([]DeadLetter, error)
}

// WakeUps tells that a partition grew. A signal may be lost or repeated; readers
// poll as well.
type WakeUps interface {
	// Listen calls wake until ctx ends. It reconnects by itself and then wakes with
	// partition 0: whichever may have grown.
	Listen(ctx context.Context, wake func(event.PartitionID)) error
}

// RecomputeRequest says which rows of a tenant's own projection are folded anew: those to which an
// event contributed that is about an entity, or that holds sealed values of a person.
type RecomputeRequest struct {
	Partition event.PartitionID
	Entity    event.StreamID    // of a stream, or as events refer to it
	Subject   shredding.Subject // "": Entity
	DryRun    bool              // tell what would have changed
	By        string
}

// RowPosition is where a version of a projection stands in a partition.
type RowPosition struct {
	Sequence   event.Sequence // of the checkpoint
	Generation uint64         // of its rows
	Redactions uint64         // that there were in the partition
}

// RowRecompute replaces the rows of some keys by those of another fold, which has read the
// log up to Folded without the checkpoint.
type RowRecompute struct {
	ProjectionWork
	Keys        []string
	Since       RowPosition // before the fold began
	ReadThrough event.Sequence
	Types       []string // what the projection reads
	Limit       int      // of events between Folded and the checkpoint; with more of them nothing is done
	// Recovered are events that the version had gone on without and the fold did not: their
	// dead letters are resolved.
	Recovered []event.Sequence
	DryRun    bool // roll everything back and tell what would have changed
	By        string
}

// RowRecomputer folds rows of projections anew that were created at run time.
type RowRecomputer interface {
	// RowPosition tells where a version stands; begun is false where nobody has begun.
	RowPosition(ctx context.Context, w ProjectionWork) (at RowPosition, begun bool, err error)
	// RecomputeRows holds the checkpoint, hands over the events from Folded up to it, and
	// replaces the rows of the keys by those that there are then, in one transaction. begin
	// is called for each attempt and gives what the events are handed to and what has come
	// of them. The generation grows when a row has changed. Faults: projection.changed when
	// the rows were replaced meanwhile, something was redacted, or the checkpoint is not
	// where Folded and Limit say; projection.fenced, and what the handler says.
	RecomputeRows(ctx context.Context, r RowRecompute, begin func() (h ProjectionHandler, rows func() map[string]ProjectionRow)) (TargetChange, error)
}

// DiffRows compares the rows of keys before and after a fold, and gives those to be
// written and the keys to be removed.
func DiffRows(keys []string, before, after map[string]ProjectionRow) (rows []ProjectionRow, gone []string, d TableDifference) {
	d = TableDifference{Table: ProjectionRowTable.Schema + "." + ProjectionRowTable.Name, LeftRows: uint64(len(before)), RightRows: uint64(len(after))}
	for _, key := range keys {
		was, stood := before[key]
		is, stands := after[key]
		switch {
		case stands && !stood:
			d.OnlyRight++
			rows = append(rows, is)
		case stood && !stands:
			d.OnlyLeft++
			gone = append(gone, key)
		case stands && (was.Sequence != is.Sequence || !bytes.Equal(was.State, is.State)):
			d.Changed++
			rows = append(rows, is)
		}
	}
	return rows, gone, d
}

// ProjectionRow is the state of a key in a projection that was created at run time.
type ProjectionRow struct {
	Key      string
	State    json.RawMessage
	Sequence event.Sequence // of the event that changed it last
}

// ProjectionRowQuery asks for rows of one version in one partition.
type ProjectionRowQuery struct {
	Projection string
	Version    int
	Partition  event.PartitionID
	Key        string // "": all; else this one
	Prefix     string // of keys
	After      string // exclusive
	Limit      int
}

// ProjectionRows keeps the rows of projections that were created at run time. A batch
// names projection, version and partition; its events do not count.
type ProjectionRows interface {
	// LoadProjectionRows gives inside tx those of the rows that exist, by key.
	LoadProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch, keys []string) (map[string]ProjectionRow, error)
	// StoreProjectionRows writes rows and removes the keys that are gone, inside tx.
	StoreProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch, rows []ProjectionRow, gone []string) error
	// ForgetProjectionRows removes all rows of the batch's partition inside tx.
	ForgetProjectionRows(ctx context.Context, tx ProjectionTx, b ProjectionBatch) error
	// ListProjectionRows lists a page of committed rows by key, in the order of bytes, and
	// the checkpoint that they are at.
	ListProjectionRows(ctx context.Context, q ProjectionRowQuery) ([]ProjectionRow, event.Sequence, error)
	// EndProjection begins to drop all versions of a projection in one transaction: nobody
	// works them any more, and SweepProjection removes their rows. Fault
	// projection.not_found when there is no version that is alive.
	EndProjection(ctx context.Context, projection, by string) error
}

// ProjectionRowTable is where a store with tables keeps the rows.
var ProjectionRowTable = ProjectionTable{Schema: "backbone", Name: "projection_rows", Key: []string{"key"}, Shared: true}

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

// HoldsSealedCopies tells whether a handler declares a table with sealed copies of personal
// values. It is handed events in which the values of erased persons read "[REDACTED]".
func HoldsSealedCopies(h ProjectionHandler) bool {
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

// SnapshotPart is what a snapshot of a projection holds of one partition: a frozen copy
// of the rows that readers were shown, at one event.
type SnapshotPart struct {
	Projection string
	Version    int // of the snapshot
	Partition  event.PartitionID
	Sequence   event.Sequence // the event that the rows are at
	Rows       uint64         // of all tables
	TakenAt    time.Time      // zero: it is not copied yet
	// Usable tells that nothing was redacted in the partition since its rows began to be
	// folded. What is not usable is not copied back.
	Usable bool
}

// SnapshotCopy asks to copy a part.
type SnapshotCopy struct {
	Projection string
	Version    int // of the snapshot
	Partition  event.PartitionID
	Tables     []ProjectionTable
	To         int // of RestorePart: the version that begins with it
	// Types are those that To reads; none: all. Of RestorePart: so many events up to the
	// snapshot's count as processed, since the rows are folded from them.
	Types []string
}

// ProjectionSnapshots keeps snapshots of projections: versions with the role saved, whose
// rows are beside those of other versions. A part is copied in one transaction, by one
// node at a time, and holds back nobody who reads or writes the projection.
type ProjectionSnapshots interface {
	// PlanSnapshot adds the parts that a snapshot that is being saved lacks: one for each
	// partition of its scope that the version of has begun with.
	PlanSnapshot(ctx context.Context, projection string, version, of int) error
	// SavePart copies what readers are shown of a partition into a snapshot that is being
	// saved; checkpoint and rows are of one moment. done is false while another node copies
	// it. A part that may hold what was redacted since its rows began to be folded stays
	// empty and is not usable. Faults: projection.other_code when what is shown was built by
	// another handler than the snapshot is of, projection.changed when it is not being saved.
	SavePart(ctx context.Context, c SnapshotCopy) (done bool, err error)
	// FinishSnapshot makes a snapshot usable that was being saved, and begins to drop older
	// ones of the same scope: keep are left. Fault projection.changed.
	FinishSnapshot(ctx context.Context, projection string, version, keep int, by string) error
	// RestorePart copies a part into the building version To, with its checkpoint, unless it
	// has begun there already or the part is not usable. done is false while another node
	// copies it. Fault projection.changed when To is not building or the snapshot is gone.
	RestorePart(ctx context.Context, c SnapshotCopy) (done bool, err error)
	// SnapshotParts lists the parts of a projection's snapshots, of all projections for "",
	// by projection, version and partition.
	SnapshotParts(ctx context.Context, projection string) ([]SnapshotPart, error)
	// ForgetPart removes a partition from a snapshot, rows and all. It waits for who copies
	// it.
	ForgetPart(ctx context.Context, c SnapshotCopy) error
}
