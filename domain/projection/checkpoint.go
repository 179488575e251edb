package projection

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// The states of a checkpoint: how a projection fares in one partition.
const (
	Reading  = "running"  // it follows the log
	Retrying = "retrying" // the last attempt failed and there will be another
	Halted   = "faulted"  // it stands still until an operator fixes, skips or resets it
)

// Checkpoint is how far a projection has read one partition, and how it fared.
type Checkpoint struct {
	Projection    string
	Version       int
	Partition     event.PartitionID
	Sequence      event.Sequence
	Status        string // Reading, Retrying or Halted
	Error         string // code of the last failure, "" after a success
	Attempts      int    // failures in a row at this sequence
	FirstFailedAt time.Time
	LastFailedAt  time.Time
	NextAttemptAt time.Time
	UpdatedAt     time.Time
	LastEventAt   time.Time // when the event at the sequence was recorded
	Term          uint64    // of the lease under which it moved last, 0: none
	Processed     uint64    // events that the handler was given
	Skipped       uint64    // events that were passed over because they failed
	Failed        uint64    // attempts that were rolled back
	// Generation grows when the rows are replaced by those of another fold: what was read
	// of them before does not fit what is read afterwards.
	Generation uint64
	// Redactions is how many of the partition's redactions there were when its rows began
	// to be folded. What was redacted since may still be in them.
	Redactions uint64
}

// Advance moves the checkpoint after events were passed, of which handed went to the
// handler; last is when the last one was recorded.
func (c *Checkpoint) Advance(to event.Sequence, handed int, last, at time.Time) {
	c.Sequence, c.LastEventAt = to, last
	c.Processed += uint64(handed)
	c.clear(at)
}

// clear ends a run of failures.
func (c *Checkpoint) clear(at time.Time) {
	c.Status, c.Error, c.Attempts, c.UpdatedAt = Reading, "", 0, at
	c.FirstFailedAt, c.LastFailedAt, c.NextAttemptAt = time.Time{}, time.Time{}, time.Time{}
}

// IsFailing tells whether the last attempt failed, or an operator has just asked for
// another one.
func (c *Checkpoint) IsFailing() bool { return c.Status != Reading }

// Fail counts an attempt that failed, after which there is another one.
func (c *Checkpoint) Fail(code string, pause time.Duration, at time.Time) {
	c.count(code, at)
	c.Status, c.NextAttemptAt = Retrying, at.Add(pause)
}

// Halt counts an attempt that failed, after which there is none until an operator asks
// for it. It may have failed before in a batch with others: so often, since then.
func (c *Checkpoint) Halt(code string, at time.Time, attempts int, since time.Time) {
	c.count(code, at)
	c.Attempts = max(c.Attempts, attempts)
	if !since.IsZero() && since.Before(c.FirstFailedAt) {
		c.FirstFailedAt = since
	}
	c.Status, c.NextAttemptAt = Halted, time.Time{}
}

func (c *Checkpoint) count(code string, at time.Time) {
	if c.Attempts == 0 {
		c.FirstFailedAt = at
	}
	c.Attempts++
	c.Failed++
	c.Error, c.LastFailedAt, c.UpdatedAt = code, at, at
}

// SkipEvent moves the checkpoint past one event that failed.
func (c *Checkpoint) SkipEvent(to event.Sequence, recorded, at time.Time) {
	c.Sequence, c.LastEventAt = to, recorded
	c.Skipped++
	c.clear(at)
}

// Retry lets a halted partition try again, with all its attempts. Fault
// projection.not_halted.
func (c *Checkpoint) Retry(at time.Time) error {
	if err := c.RequireHalted(); err != nil {
		return err
	}
	c.Status, c.Attempts, c.FirstFailedAt, c.UpdatedAt = Retrying, 0, time.Time{}, at
	return nil
}

// RequireHalted refuses to treat a partition that goes on by itself. Fault
// projection.not_halted.
func (c *Checkpoint) RequireHalted() error {
	if c.Status != Halted {
		return fault.New(fault.FailedPrecondition, CodeNotHalted,
			"the projection does not stand still at an event in this legal entity; look at its checkpoints")
	}
	return nil
}

// Rewind begins anew. What was counted stays: it counts work that was done.
func (c *Checkpoint) Rewind(at time.Time) {
	c.Sequence, c.LastEventAt = 0, time.Time{}
	c.Generation++
	c.clear(at)
}

// CodeNotHalted says that there is nothing to fix or to skip.
const CodeNotHalted = "projection.not_halted"

// CodeFenced says that somebody else has taken over.
const CodeFenced = "projection.fenced"

// Fenced is the fault of whoever works under a lease that somebody else has taken over.
func Fenced() *fault.Error {
	return fault.New(fault.Conflict, CodeFenced, "somebody else works this projection by now; take the lease again first")
}

// CodeBusy says that somebody else holds what an attempt needs.
const CodeBusy = "projection.busy"

// Busy is the fault of an attempt that did nothing, because a session of somebody else
// holds a lock that it needs.
func Busy() *fault.Error {
	return fault.New(fault.Unavailable, CodeBusy,
		"another session of the database holds the projection's checkpoint or rows in this legal entity; try again, and end that session if it stays (backbone doctor --section contention names it)").
		WithRetryAfter(time.Second)
}
