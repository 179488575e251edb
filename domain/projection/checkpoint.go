package projection

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// The statuses of a checkpoint.
const (
	Reading  = "running"  // it follows the log
	Retrying = "retrying" // the last attempt failed and there will be another
	Halted   = "faulted"  // it is blocked until an operator fixes, skips or resets it
)

// Checkpoint is the position and the status of a projection in one partition.
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
	Term          uint64    // of the lease under which it last moved; 0: none
	Processed     uint64    // events that the handler received
	Skipped       uint64    // events that were skipped because they failed
	Failed        uint64    // attempts that were rolled back
	// Generation grows when the rows are replaced: pages of rows that were read before do
	// not fit pages that are read afterwards.
	Generation uint64
	// Redactions counts the redactions of the partition before its first row was computed.
	// Values that were redacted since may still be in the rows.
	Redactions uint64
}

// Advance moves the checkpoint to a sequence, which was recorded at last; the handler
// received processed of the events before it.
func (c *Checkpoint) Advance(to event.Sequence, processed int, last, at time.Time) {
	c.Sequence, c.LastEventAt = to, last
	c.Processed += uint64(processed)
	c.clear(at)
}

// clear ends a run of failures.
func (c *Checkpoint) clear(at time.Time) {
	c.Status, c.Error, c.Attempts, c.UpdatedAt = Reading, "", 0, at
	c.FirstFailedAt, c.LastFailedAt, c.NextAttemptAt = time.Time{}, time.Time{}, time.Time{}
}

// IsFailing reports whether the last attempt failed or an operator asked for another one.
func (c *Checkpoint) IsFailing() bool { return c.Status != Reading }

// Fail counts a failed attempt and schedules the next one after a pause.
func (c *Checkpoint) Fail(code string, pause time.Duration, at time.Time) {
	c.count(code, at)
	c.Status, c.NextAttemptAt = Retrying, at.Add(pause)
}

// Halt counts a failed attempt and stops until an operator acts. attempts and since count
// earlier failures of the event in a batch with other events.
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

// SkipEvent moves the checkpoint past one failed event.
func (c *Checkpoint) SkipEvent(to event.Sequence, recorded, at time.Time) {
	c.Sequence, c.LastEventAt = to, recorded
	c.Skipped++
	c.clear(at)
}

// Retry gives a halted partition its full number of attempts again. Fault
// projection.not_halted.
func (c *Checkpoint) Retry(at time.Time) error {
	if err := c.RequireHalted(); err != nil {
		return err
	}
	c.Status, c.Attempts, c.FirstFailedAt, c.UpdatedAt = Retrying, 0, time.Time{}, at
	return nil
}

// RequireHalted refuses to fix or skip in a partition that is not halted. Fault
// projection.not_halted.
func (c *Checkpoint) RequireHalted() error {
	if c.Status != Halted {
		return refuse(CodeNotHalted, "the projection is not halted at an event in this legal entity; look at its checkpoints")
	}
	return nil
}

// RequireHaltedAt refuses to skip an event that a partition is not halted at. Faults
// projection.not_halted, projection.changed.
func (c *Checkpoint) RequireHaltedAt(s event.Sequence) error {
	if err := c.RequireHalted(); err != nil {
		return err
	}
	if s != c.Sequence+1 {
		return Changed()
	}
	return nil
}

// Rewind starts again at the beginning of the log. The counters stay: they count work that
// was done.
func (c *Checkpoint) Rewind(at time.Time) {
	c.Sequence, c.LastEventAt = 0, time.Time{}
	c.Generation++
	c.clear(at)
}

// WithRowsOf is the checkpoint of a version whose rows were replaced by those of another
// version: it moves to the position of those rows and keeps the counters of its own work.
func (c Checkpoint) WithRowsOf(by Checkpoint) Checkpoint {
	by.Projection, by.Version, by.Partition, by.Term = c.Projection, c.Version, c.Partition, c.Term
	by.Processed, by.Skipped, by.Failed = c.Processed, c.Skipped, c.Failed
	by.Generation = c.Generation + 1
	return by
}
