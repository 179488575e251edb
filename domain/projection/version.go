package projection

import (
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Role is what one version of a projection is there for.
type Role string

// The roles. A rebuild makes a building version; a switch makes it active and the
// active one retained; going back makes the two change places. A version that was
// dropped stays known, so that its number is never given again.
const (
	Building Role = "building" // it catches up and nobody is shown it
	Active   Role = "active"   // readers are shown it
	Retained Role = "retained" // it was active before, and follows the log so that it can be again
	Saving   Role = "saving"   // a snapshot that is being copied
	Saved    Role = "saved"    // a snapshot: nobody writes it or is shown it, and a rebuild may begin with it
	Dropping Role = "dropping" // its rows are being removed
	Dropped  Role = "dropped"  // nothing is left of it
)

// IsLive tells whether the version follows the log.
func (r Role) IsLive() bool { return r == Building || r == Active || r == Retained }

// WithDefaults gives what was left out its meaning.
func (p Projection) WithDefaults() Projection {
	if p.Role == "" {
		p.Role = Active
	}
	if p.Code == 0 {
		p.Code = p.Version
	}
	return p
}

// Progress is how far a version that is built beside another has come, in events of
// the partitions it reads.
type Progress struct {
	Done  uint64
	Total uint64
}

// Remaining is how many events it lacks.
func (p Progress) Remaining() uint64 {
	if p.Done >= p.Total {
		return 0
	}
	return p.Total - p.Done
}

// Sample is a progress as it was at a time.
type Sample struct {
	At   time.Time
	Done uint64
}

// Pace tells from two samples how many events are read per second, and how long what is
// left takes at that pace; known is false while nothing moves.
func (p Progress) Pace(from, to Sample) (perSecond float64, left time.Duration, known bool) {
	seconds := to.At.Sub(from.At).Seconds()
	if p.Remaining() == 0 {
		known = true
	}
	if seconds <= 0 || to.Done <= from.Done {
		return 0, 0, known
	}
	perSecond = float64(to.Done-from.Done) / seconds
	return perSecond, time.Duration(float64(p.Remaining()) / perSecond * float64(time.Second)), true
}

// The faults of rebuilding.
const (
	CodeRebuilding    = "projection.rebuilding"
	CodeNotBuilding   = "projection.not_building"
	CodeNotRetained   = "projection.not_retained"
	CodeVersionBehind = "projection.version_behind"
	CodeVersionHalted = "projection.version_halted"
	CodeIncomparable  = "projection.not_comparable"
)

// Rebuilding refuses a second rebuild at the same time.
func Rebuilding(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeRebuilding, "projection %s is being rebuilt already; wait for it, switch to it or cancel it", shortName(name))
}

// NotBuilding says that there is no rebuild.
func NotBuilding(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeNotBuilding, "no version of projection %s is being built; rebuild it first, or roll back to a version that is kept", shortName(name))
}

// NotRetained says that there is no version to go back to.
func NotRetained(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeNotRetained, "projection %s keeps no earlier version; rebuild it instead", shortName(name))
}

// VersionBehind refuses to show a version that lacks too much.
func VersionBehind(name string, version int, events uint64) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeVersionBehind, "version %d of projection %s lacks %d events; wait until it has caught up, or force the switch", version, shortName(name), events)
}

// VersionHalted refuses to show a version that cannot go on somewhere.
func VersionHalted(name string, version int) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeVersionHalted, "version %d of projection %s stands still at an event; fix or skip it, or force the switch", version, shortName(name))
}

// Incomparable says why two versions cannot be brought to the same event.
func Incomparable(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeIncomparable,
		"the versions of projection %s are not at the same event and cannot be brought there; wait until both have caught up and stand still nowhere", shortName(name))
}
