package projection

import (
	"cmp"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// The two ways to write checkpoints. Read model and checkpoint share a transaction in
// both; they differ in how long the runner collects events before it starts one.
const (
	Synchronous = "synchronous" // as soon as there is an event
	Batched     = "batched"     // after a number of events, or after the first of them has waited
)

// Checkpointing decides when a transaction starts.
type Checkpointing struct {
	Mode   string `json:"mode"`
	Events int    `json:"events,omitempty"`  // batched: this many are enough
	WaitMS int    `json:"wait_ms,omitempty"` // batched: an event waits no longer, in milliseconds
}

// The policies for an event that a projection cannot process. In all cases the event goes
// to the dead letters.
const (
	// StopPartition halts the projection in that legal entity and continues in all other
	// ones. It is the default: a read model whose rows build on each other is wrong rather
	// than late if one event is missing, and other legal entities have separate books.
	StopPartition = "stop_partition"
	// StopProjection halts it in all legal entities.
	StopProjection = "stop_projection"
	// SkipEvent continues after the event.
	SkipEvent = "skip"
)

// Settings are how a projection is run. A zero field is the default.
type Settings struct {
	BatchSize      int           `json:"batch_size,omitempty"` // events of one transaction; 0: the node's configuration
	Checkpoint     Checkpointing `json:"checkpoint"`
	MaxAttempts    int           `json:"max_attempts"`    // at the same event before it goes to the dead letters
	RetryMS        int           `json:"retry_ms"`        // before the second attempt; it doubles from there
	RetryMaxMS     int           `json:"retry_max_ms"`    // at most between two attempts
	OnPoison       string        `json:"on_poison"`       // stop_partition, stop_projection or skip
	SingleInstance bool          `json:"single_instance"` // one node works all legal entities
}

// DefaultSettings are those of a projection that no operator has configured.
func DefaultSettings() Settings {
	return Settings{
		Checkpoint: Checkpointing{Mode: Synchronous}, MaxAttempts: 5, RetryMS: 1000, RetryMaxMS: 60_000, OnPoison: StopPartition,
	}
}

// Limits of the settings.
const (
	maxBatch    = 10_000
	maxAttempts = 1_000
	maxWaitMS   = 60_000
	maxRetryMS  = 24 * 3600 * 1000
)

// Complete fills the defaults in and checks the settings. Fault
// projection.settings_invalid with the field.
func (s Settings) Complete() (Settings, error) {
	d := DefaultSettings()
	s.Checkpoint.Mode = cmp.Or(s.Checkpoint.Mode, d.Checkpoint.Mode)
	s.MaxAttempts = cmp.Or(s.MaxAttempts, d.MaxAttempts)
	s.RetryMS = cmp.Or(s.RetryMS, d.RetryMS)
	s.RetryMaxMS = cmp.Or(s.RetryMaxMS, max(d.RetryMaxMS, s.RetryMS))
	s.OnPoison = cmp.Or(s.OnPoison, d.OnPoison)
	invalid := func(field, detail string) (Settings, error) {
		return s, fault.New(fault.Invalid, "projection.settings_invalid", "%s", detail).WithField("/settings/" + field)
	}
	switch c := s.Checkpoint; {
	case s.BatchSize < 0 || s.BatchSize > maxBatch:
		return invalid("batch_size", "a batch has 1 to 10000 events; 0 takes the node's configuration")
	case c.Mode != Synchronous && c.Mode != Batched:
		return invalid("checkpoint/mode", "checkpoints are synchronous or batched; choose one")
	case c.Mode == Synchronous && (c.Events != 0 || c.WaitMS != 0):
		return invalid("checkpoint", "synchronous checkpoints do not wait; leave events and wait_ms out")
	case c.Mode == Batched && (c.Events < 1 || c.Events > maxBatch):
		return invalid("checkpoint/events", "batched checkpoints wait for 1 to 10000 events; correct it")
	case c.Mode == Batched && (c.WaitMS < 1 || c.WaitMS > maxWaitMS):
		return invalid("checkpoint/wait_ms", "an event waits 1 to 60000 milliseconds for further events; correct it")
	case s.MaxAttempts < 1 || s.MaxAttempts > maxAttempts:
		return invalid("max_attempts", "an event is tried 1 to 1000 times; correct it")
	case s.RetryMS < 1 || s.RetryMS > maxRetryMS:
		return invalid("retry_ms", "the first pause is from one millisecond to a day; correct it")
	case s.RetryMaxMS < s.RetryMS || s.RetryMaxMS > maxRetryMS:
		return invalid("retry_max_ms", "the longest pause is from the first one to a day; correct it")
	case !slices.Contains([]string{StopPartition, StopProjection, SkipEvent}, s.OnPoison):
		return invalid("on_poison", "an event that cannot be processed ends in stop_partition, stop_projection or skip; choose one")
	}
	return s, nil
}

// Pause is the time to wait after a number of failed attempts in a row: the first pause,
// doubled with each further attempt, up to the longest.
func (s Settings) Pause(attempts int) time.Duration {
	pause, longest := time.Duration(s.RetryMS)*time.Millisecond, time.Duration(s.RetryMaxMS)*time.Millisecond
	for i := 1; i < attempts && pause < longest; i++ {
		pause *= 2
	}
	return min(pause, longest)
}
