package projection

import (
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Status is where a projection is in its life.
type Status string

// The states of a projection.
const (
	Created Status = "created" // it is known and has never run
	Running Status = "running" // it follows the log
	Paused  Status = "paused"  // it stands still and is expected to go on
	Stopped Status = "stopped" // it stands still for good
	Faulted Status = "faulted" // it stands still at an event that it cannot digest
)

// Action is what is done to a projection.
type Action string

// The actions. Fault is the runner's, the others are operators'.
const (
	Start  Action = "start"
	Pause  Action = "pause"
	Resume Action = "resume"
	Stop   Action = "stop"
	Reset  Action = "reset" // forget what was read and read again from the beginning
	Fix    Action = "fix"   // try again what it stands at
	Skip   Action = "skip"  // pass over the one event that it stands at
	Fault  Action = "fault"
)

// transitions are all there are. Fix and skip also act on a running projection, of
// which single partitions may stand still.
var transitions = map[Action]map[Status]Status{
	Start:  {Created: Running, Stopped: Running},
	Pause:  {Running: Paused},
	Resume: {Paused: Running},
	Stop:   {Created: Stopped, Running: Stopped, Paused: Stopped, Faulted: Stopped},
	Reset:  {Created: Created, Running: Running, Paused: Paused, Stopped: Stopped, Faulted: Running},
	Fix:    {Running: Running, Paused: Paused, Faulted: Running},
	Skip:   {Running: Running, Paused: Paused, Faulted: Running},
	Fault:  {Running: Faulted, Paused: Faulted, Faulted: Faulted},
}

// Actions lists the operators' actions.
func Actions() []Action { return []Action{Start, Pause, Resume, Stop, Reset, Fix, Skip} }

// After is the state after an action. Faults: projection.action_unknown (invalid),
// projection.wrong_state (failed precondition).
func (s Status) After(a Action) (Status, error) {
	to, known := transitions[a]
	if !known {
		return s, fault.New(fault.Invalid, "projection.action_unknown", "there is no such action on a projection; use start, pause, resume, stop, reset, fix or skip")
	}
	next, allowed := to[s]
	if !allowed {
		return s, fault.New(fault.FailedPrecondition, "projection.wrong_state", "a projection that is %s cannot be treated with %s; %s", s, a, advice(s)).
			With("status", string(s))
	}
	return next, nil
}

func advice(s Status) string {
	switch s {
	case Created, Stopped:
		return "start it first"
	case Paused:
		return "resume it first"
	case Faulted:
		return "fix it, skip the event or reset it"
	default:
		return "pause or stop it first"
	}
}

// The two ways to write checkpoints. Read model and checkpoint share a transaction in
// both; they differ in how long events may gather before there is one.
const (
	Synchronous = "synchronous" // at once, as soon as there is an event
	Batched     = "batched"     // when so many events are there, or the first has waited so long
)

// Checkpointing says when a transaction begins.
type Checkpointing struct {
	Mode   string `json:"mode"`
	Events int    `json:"events,omitempty"`  // batched: this many are enough
	WaitMS int    `json:"wait_ms,omitempty"` // batched: an event waits no longer, in milliseconds
}

// What becomes of a projection that meets an event it cannot digest. In all cases the
// event goes to the dead letters.
const (
	// StopPartition stops the projection of that legal entity at the event; the others go
	// on. It is the default: a read model whose rows build on each other is wrong rather
	// than late if one event is missing, and the books of the others have nothing to do
	// with it.
	StopPartition = "stop_partition"
	// StopProjection stops it for all legal entities.
	StopProjection = "stop_projection"
	// SkipEvent passes over the event and goes on.
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

// DefaultSettings are those of a projection that nobody has set up.
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
	if s.Checkpoint.Mode == "" {
		s.Checkpoint.Mode = d.Checkpoint.Mode
	}
	if s.MaxAttempts == 0 {
		s.MaxAttempts = d.MaxAttempts
	}
	if s.RetryMS == 0 {
		s.RetryMS = d.RetryMS
	}
	if s.RetryMaxMS == 0 {
		s.RetryMaxMS = max(d.RetryMaxMS, s.RetryMS)
	}
	if s.OnPoison == "" {
		s.OnPoison = d.OnPoison
	}
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
		return invalid("checkpoint/wait_ms", "an event waits 1 to 60000 milliseconds for others; correct it")
	case s.MaxAttempts < 1 || s.MaxAttempts > maxAttempts:
		return invalid("max_attempts", "an event is tried 1 to 1000 times; correct it")
	case s.RetryMS < 1 || s.RetryMS > maxRetryMS:
		return invalid("retry_ms", "the first pause is from one millisecond to a day; correct it")
	case s.RetryMaxMS < s.RetryMS || s.RetryMaxMS > maxRetryMS:
		return invalid("retry_max_ms", "the longest pause is from the first one to a day; correct it")
	case !slices.Contains([]string{StopPartition, StopProjection, SkipEvent}, s.OnPoison):
		return invalid("on_poison", "an event that cannot be digested ends in stop_partition, stop_projection or skip; choose one")
	}
	return s, nil
}

// Pause is how long to wait after so many failed attempts in a row: the first pause,
// doubled with each further attempt, up to the longest.
func (s Settings) Pause(attempts int) time.Duration {
	pause, longest := time.Duration(s.RetryMS)*time.Millisecond, time.Duration(s.RetryMaxMS)*time.Millisecond
	for i := 1; i < attempts && pause < longest; i++ {
		pause *= 2
	}
	return min(pause, longest)
}

// Projection is one version of a projection as operators see it.
type Projection struct {
	Name    string
	Version int // of its read model; it grows with every rebuild
	// Role is what the version is there for; "" is Active. SelfSwitching shows it to
	// readers by itself once it has caught up.
	Role          Role
	SelfSwitching bool
	// Scope is the one partition that the version is about; 0: all.
	Scope event.PartitionID
	// Base is the version of the snapshot that it begins with; 0: the beginning of the log.
	Base int
	// ExpectedActive is of use only where a version is added: the one that readers must be shown
	// for that. 0: whichever.
	ExpectedActive int
	// Code is the version that its module declares for the handler that builds it; 0 is
	// Version.
	Code       int
	Status     Status
	Settings   Settings
	Definition []byte // of a projection made at run time; nil: built in
	CreatedAt  time.Time
	ChangedAt  time.Time
	ChangedBy  string
	// Revision grows with whatever is done to the projection or to one of its partitions,
	// so that nodes see it.
	Revision int64
}

// VersionNotFound is the fault of a version that does not follow the log, or not any more.
// version 0: there is none at all.
func VersionNotFound(name string, version int) *fault.Error {
	if version == 0 {
		return NotFound(name)
	}
	return fault.New(fault.NotFound, "projection.not_found", "projection %s has no version %d that follows the log; list its versions", shortName(name), version)
}

// NotFound is the fault of a name that no projection has.
func NotFound(name string) *fault.Error {
	return fault.New(fault.NotFound, "projection.not_found", "there is no projection %q; list them", name)
}

// CodeChanged says that somebody decided on what is not so any more.
const CodeChanged = "projection.changed"

// Changed is the fault of whoever decided on an earlier revision.
func Changed() *fault.Error {
	return fault.New(fault.Conflict, CodeChanged, "somebody else has just changed this projection; look at it and decide again")
}
