package globallog

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// Checkpoints keeps the checkpoints, and the tree that they are of.
type Checkpoints interface {
	ports.Checkpoints
	ports.GlobalTree
}

// CheckpointObserver is notified of checkpoints.
type CheckpointObserver interface {
	// CheckpointSigned reports the size of the log that this node has signed.
	CheckpointSigned(size uint64)
	// CheckpointWitnessed reports that a witness signed, or did not. isRefused: since it has signed another log.
	CheckpointWitnessed(isSigned, isRefused bool)
	// CheckpointFailed reports that no checkpoint could be signed or exported. isRefused: since the global log is not
	// the one that was signed before.
	CheckpointFailed(isRefused bool)
}

// CheckpointerConfig is what a Checkpointer needs; all of it but Witnesses and Mirror is required.
type CheckpointerConfig struct {
	Log       Checkpoints
	Signers   func(origin string) ports.NoteSigner // signs under the name of the origin
	Opener    ports.CheckpointOpener
	Exports   ports.ExportStore
	Mirror    *Mirror         // that gets the exported checkpoints too
	Witnesses []ports.Witness // that sign checkpoints too
	LogName   string
	Logger    *slog.Logger
	Observer  CheckpointObserver
	Limits    CheckpointLimits
}

// CheckpointLimits bound how often checkpoints are made. Both must be positive.
type CheckpointLimits struct {
	Interval       time.Duration // between two checkpoints at least
	ExportInterval time.Duration // between two exported ones at least
}

// Checkpointer signs checkpoints of the global log as it grows, and exports some of them. Before each signature it
// proves that the log begins with the one that was signed last, by the database, by this process and, when the
// process began, by the newest export. Else it signs nothing.
type Checkpointer struct {
	CheckpointerConfig
	grown chan uint64 // the newest size

	last       *ports.SignedCheckpoint // the last one that is known; nil: none
	isRead     bool                    // the newest export was read
	exported   ports.SignedCheckpoint  // the last one that is known
	exportedAt time.Time

	witnessed []uint64 // size of the newest checkpoint that each witness has signed
}

// NewCheckpointer makes a Checkpointer. It does nothing until it runs.
func NewCheckpointer(c CheckpointerConfig) (*Checkpointer, error) {
	if err := fault.RequirePositive("globallog.CheckpointerConfig", c.Limits); err != nil {
		return nil, err
	}
	return &Checkpointer{CheckpointerConfig: c, grown: make(chan uint64, 1), witnessed: make([]uint64, len(c.Witnesses))}, nil
}

// Grown says that the global log has so many events. It does not wait, and only the last call counts.
func (c *Checkpointer) Grown(size uint64) {
	for {
		select {
		case c.grown <- size:
			return
		case <-c.grown:
		}
	}
}

// Run signs and exports checkpoints until ctx ends; then it exports the last one.
func (c *Checkpointer) Run(ctx context.Context) {
	defer c.leave(ctx)
	var size uint64
	for {
		select {
		case <-ctx.Done():
			return
		case size = <-c.grown:
		case <-c.exportDue():
		}
		if err := c.advance(ctx, size); err != nil && ctx.Err() == nil {
			c.Observer.CheckpointFailed(fault.KindOf(err) == fault.FailedPrecondition)
			c.Logger.ErrorContext(ctx, "there is no new checkpoint of the global log; it will be tried again", "code", fault.CodeOf(err))
			select {
			case c.grown <- size: // try again
			default: // with a newer size
			}
		}
		if ports.Sleep(ctx, c.Limits.Interval) != nil {
			return
		}
	}
}

// exportDue is ready when the last checkpoint is to be exported; nil if it was.
func (c *Checkpointer) exportDue() <-chan time.Time {
	if c.last == nil || !c.last.IsNewer(c.exported) {
		return nil
	}
	return time.After(time.Until(c.exportedAt.Add(c.Limits.ExportInterval)))
}

// advance signs the log of a size, unless it was signed, and exports the last checkpoint if that is due.
func (c *Checkpointer) advance(ctx context.Context, size uint64) error {
	if err := c.readLast(ctx); err != nil {
		return err
	}
	if c.last == nil || size > c.last.Size {
		if err := c.sign(ctx, size); err != nil {
			return err
		}
	}
	if time.Since(c.exportedAt) < c.Limits.ExportInterval {
		return nil
	}
	return c.export(ctx)
}

// leave exports the last checkpoint when the process ends.
func (c *Checkpointer) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	if err := c.export(ctx); err != nil {
		c.Logger.WarnContext(ctx, "the last checkpoint of the global log was not exported; the next start does it", "code", fault.CodeOf(err))
	}
}

// export exports the last checkpoint, if it was not.
func (c *Checkpointer) export(ctx context.Context) error {
	if c.last == nil || !c.last.IsNewer(c.exported) {
		return nil
	}
	if err := c.Exports.PutIfAbsent(ctx, CheckpointName(c.last.Incarnation, c.last.Size), c.last.Note); err != nil {
		return err
	}
	c.exported, c.exportedAt = *c.last, time.Now()
	if c.Mirror != nil {
		c.Mirror.Add(*c.last)
	}
	return nil
}

// sign signs and records the log of a size. It must begin with that of the last checkpoint.
func (c *Checkpointer) sign(ctx context.Context, size uint64) (err error) {
	next := ports.SignedCheckpoint{Incarnation: 1, Size: size}
	if c.last != nil {
		next.Incarnation = c.last.Incarnation
	}
	if next.Root, err = globallog.Root(size, hashesOf(ctx, c.Log)); err != nil {
		return err
	}
	text := textOf(next, c.LogName)
	if c.last != nil {
		proof, err := globallog.ProveConsistency(size, c.last.Size, hashesOf(ctx, c.Log))
		if err != nil {
			return err
		}
		if err := globallog.CheckConsistency(proof, text, textOf(*c.last, c.LogName)); err != nil {
			return forked(c.last.Size).WithCause(err)
		}
	}
	if next.Note, err = c.Signers(text.Origin).SignNote(ctx, text.Text()); err != nil {
		return err
	}
	next.Note = c.cosigned(ctx, next)
	isRecorded, err := c.Log.RecordCheckpoint(ctx, next)
	if err != nil {
		return err
	}
	if !isRecorded { // another node was first, and its note counts
		return c.readLast(ctx)
	}
	c.last = &next
	c.Observer.CheckpointSigned(size)
	return nil
}

// readLast learns of the newest checkpoint in the database and, once, of the newest export.
func (c *Checkpointer) readLast(ctx context.Context) error {
	recorded, err := c.Log.NewestCheckpoint(ctx)
	if err != nil {
		return err
	}
	if recorded != nil {
		if err := c.learn(ctx, *recorded); err != nil {
			return err
		}
	}
	if c.isRead {
		return nil
	}
	exported, err := NewestExport(ctx, c.Exports)
	if err != nil {
		return err
	}
	if exported != nil {
		if err := c.learn(ctx, *exported); err != nil {
			return err
		}
		c.exported = *exported
		if c.Mirror != nil {
			c.Mirror.Add(*c.last) // the last process may have ended before it was mirrored
		}
	}
	c.isRead = true
	return nil
}

// learn takes a checkpoint for the last one if it is newer. It must have the signature of the log, and the log
// must have its root.
func (c *Checkpointer) learn(ctx context.Context, next ports.SignedCheckpoint) error {
	if c.last != nil && !next.IsNewer(*c.last) {
		return nil
	}
	if err := requireSigned(ctx, next, c.LogName, c.Signers, c.Opener); err != nil {
		return err
	}
	root, err := globallog.Root(next.Size, hashesOf(ctx, c.Log))
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return fault.New(fault.FailedPrecondition, "global_log.set_back", "the log is shorter than the %d events that were signed: it was set back, or cut; see how to restore, and run `backbone verify` with the exported checkpoints", next.Size)
	case err != nil:
		return err
	case root != next.Root:
		return forked(next.Size)
	}
	c.last = &next
	return nil
}

// textOf is what the signature of a checkpoint must cover.
func textOf(c ports.SignedCheckpoint, logName string) globallog.Checkpoint {
	return globallog.Checkpoint{Origin: globallog.Origin(logName, c.Incarnation), Size: c.Size, Root: c.Root}
}

// requireSigned demands that a checkpoint has the signature of the log. Fault global_log.checkpoint_forged
// (FailedPrecondition) and those of the signer.
func requireSigned(ctx context.Context, c ports.SignedCheckpoint, logName string, signers func(origin string) ports.NoteSigner, opener ports.CheckpointOpener) error {
	want := textOf(c, logName)
	key, err := signers(want.Origin).VerifierKey(ctx)
	if err != nil {
		return err
	}
	text, _, err := opener.OpenCosigned(c.Note, key)
	if err != nil || !bytes.Equal(text, want.Text()) {
		return fault.New(fault.FailedPrecondition, "global_log.checkpoint_forged", "the checkpoint of %d events is not one that the log signed; keep the database as it is, and run `backbone verify` with the exported checkpoints", c.Size)
	}
	return nil
}

func forked(size uint64) *fault.Error {
	return fault.New(fault.FailedPrecondition, "global_log.forked", "the log does not begin with the %d events that were signed; keep the database as it is, and run `backbone verify` with the exported checkpoints", size)
}
