package projection

import (
	"bytes"
	"cmp"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Status is the operating status of a projection.
type Status string

// The statuses of a projection.
const (
	Created Status = "created" // it is registered and has never run
	Running Status = "running" // it follows the log
	Paused  Status = "paused"  // an operator interrupted it
	Stopped Status = "stopped" // an operator ended it; only a start runs it again
	Faulted Status = "faulted" // it is halted at an event that it cannot process
)

// Action changes the status of a projection.
type Action string

// The actions. The runner takes Fault, operators take all other ones.
const (
	Start  Action = "start"
	Pause  Action = "pause"
	Resume Action = "resume"
	Stop   Action = "stop"
	Reset  Action = "reset" // remove the rows and read again from the beginning of the log
	Fix    Action = "fix"   // try the event again that it is halted at
	Skip   Action = "skip"  // continue after the event that it is halted at
	Fault  Action = "fault"
)

// transitions lists all allowed changes. Fix and skip also act on a running projection, of
// which single partitions may be halted.
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

// After is the status after an action. Faults: projection.action_unknown (invalid),
// projection.wrong_state (failed precondition).
func (s Status) After(a Action) (Status, error) {
	to, known := transitions[a]
	if !known {
		return s, fault.New(fault.Invalid, "projection.action_unknown", "there is no such action on a projection; use start, pause, resume, stop, reset, fix or skip")
	}
	next, allowed := to[s]
	if !allowed {
		return s, fault.New(fault.FailedPrecondition, "projection.wrong_state", "a projection that is %s does not allow %s; %s", s, a, advice(s)).
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

// Role is the use of one version of a projection.
type Role string

// The roles. A rebuild makes a building version; a switch makes it active and the active one
// retained; a rollback swaps the two. A dropped version stays registered, so that its number
// is not assigned again.
const (
	Building Role = "building" // it catches up; readers do not see it
	Active   Role = "active"   // readers see it
	Retained Role = "retained" // it was active before and follows the log for a rollback
	Saving   Role = "saving"   // a snapshot that is being copied
	Saved    Role = "saved"    // a complete snapshot, which a rebuild may start from
	Dropping Role = "dropping" // its rows are being removed
	Dropped  Role = "dropped"  // its rows are gone
)

// IsLive reports whether the version follows the log: the nodes that have its handler fold new
// events into it, whether readers see it or not.
func (r Role) IsLive() bool { return r == Building || r == Active || r == Retained }

// Projection is one version of a projection in the register.
type Projection struct {
	Name    string
	Version int // of its read model; it grows with every rebuild
	// Role "" is Active. A self-switching version becomes active once it has caught up.
	Role          Role
	SelfSwitching bool
	// Scope is the one partition that the version covers; 0: all.
	Scope event.PartitionID
	// Base is the version of the snapshot that it starts from; 0: the beginning of the log.
	Base int
	// ExpectedActive is used only to add a version: the version that must be active then;
	// 0: any.
	ExpectedActive int
	// Code is the version that its module declares for the handler that builds it; 0 is
	// Version.
	Code       int
	Status     Status
	Settings   Settings
	Definition []byte // of a custom projection; nil: a module declares the projection
	CreatedAt  time.Time
	ChangedAt  time.Time
	ChangedBy  string
	// Revision grows with each change of the projection or of one of its partitions, so that
	// nodes notice the change.
	Revision int64
}

// Reads reports whether a version covers a partition.
func (p Projection) Reads(id event.PartitionID) bool { return p.Scope == 0 || p.Scope == id }

// WithDefaults fills role and code in.
func (p Projection) WithDefaults() Projection {
	p.Role, p.Code = cmp.Or(p.Role, Active), cmp.Or(p.Code, p.Version)
	return p
}

// SameCode reports whether the same handler or definition builds two versions, so that one version
// may hold rows of both.
func SameCode(a, b Projection) bool {
	if len(a.Definition) > 0 || len(b.Definition) > 0 {
		return bytes.Equal(a.Definition, b.Definition)
	}
	return a.Code == b.Code
}
