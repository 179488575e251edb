package projection

import (
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// The codes of faults that services and stores report about projections.
const (
	CodeNotHalted          = "projection.not_halted"
	CodeFenced             = "projection.fenced"
	CodeBusy               = "projection.busy"
	CodeChanged            = "projection.changed"
	CodeInvalid            = "projection.definition_invalid"
	CodeExists             = "projection.exists"
	CodeUnreadable         = "projection.definition_unreadable"
	CodeBeingChanged       = "projection.being_changed"
	CodeWrongVersion       = "projection.wrong_expected_version"
	CodeRebuilding         = "projection.rebuilding"
	CodeNotBuilding        = "projection.not_building"
	CodeNotRetained        = "projection.not_retained"
	CodeVersionBehind      = "projection.version_behind"
	CodeVersionHalted      = "projection.version_halted"
	CodeIncomparable       = "projection.not_comparable"
	CodeOtherCode          = "projection.other_code"
	CodeNotRead            = "projection.not_read"
	CodeSnapshotNotFound   = "projection.snapshot_not_found"
	CodeSnapshotOutdated   = "projection.snapshot_outdated"
	CodeSnapshotInProgress = "projection.snapshot_under_way"
	CodeTargetUnsupported  = "projection.target_unsupported"
	CodeTargetBehind       = "projection.target_behind"
	CodeTargetTooLarge     = "projection.target_too_large"
	codeNotFound           = "projection.not_found"
	CodeTooMany            = "projection.too_many"
	codeTooManyBuilding    = "projection.too_many_building"
)

// refuse is a failed precondition. Every fault below names the next step.
func refuse(code, format string, args ...any) *fault.Error {
	return fault.New(fault.FailedPrecondition, code, format, args...)
}

// Fenced refuses work under a lease that another node has taken over.
func Fenced() *fault.Error {
	return fault.New(fault.Conflict, CodeFenced, "another node works this projection now; acquire the lease again first")
}

// Busy reports an attempt that did nothing because another session of the database holds a
// lock that it needs.
func Busy() *fault.Error {
	return fault.New(fault.Unavailable, CodeBusy,
		"another session of the database holds the projection's checkpoint or rows in this legal entity; try again, and end that session if it stays (backbone doctor --section contention names it)").
		WithRetryAfter(time.Second)
}

// Changed refuses a decision that was made on an earlier revision.
func Changed() *fault.Error {
	return fault.New(fault.Conflict, CodeChanged, "another caller has just changed this projection; read it again and decide again")
}

// NotFound reports a name that no projection has.
func NotFound(name string) *fault.Error {
	return fault.New(fault.NotFound, codeNotFound, "there is no projection %q; list them", name)
}

// VersionNotFound reports a version that does not exist or no longer follows the log. With
// version 0 the projection has no such version at all.
func VersionNotFound(name string, version int) *fault.Error {
	if version == 0 {
		return NotFound(name)
	}
	return fault.New(fault.NotFound, codeNotFound, "projection %s has no version %d that follows the log; list its versions", shortName(name), version)
}

// Exists refuses a second projection of one name.
func Exists(name string) *fault.Error {
	return fault.New(fault.Conflict, CodeExists, "there is a projection %q already; change it with `backbone projections change`, or choose another name", name)
}

// BeingChanged refuses a change while a version with another definition is being built.
func BeingChanged(name string) *fault.Error {
	return fault.New(fault.Conflict, CodeBeingChanged, "another version of projection %s is being built; look at its versions, and wait for it, switch to it or cancel it first", shortName(name))
}

// WrongVersion refuses to change a definition that another caller has changed. expected is
// the active version that the change was made for and active the one that there is; 0: none.
func WrongVersion(name string, expected, active int) *fault.Error {
	detail := fmt.Sprintf("readers are shown version %d of projection %s, not version %d, which this change was made for; read the definition again and decide again", active, shortName(name), expected)
	switch {
	case active == 0:
		detail = fmt.Sprintf("there is no projection %s, whose version %d this was made for; leave expected_version out to create it", shortName(name), expected)
	case expected == 0:
		detail = fmt.Sprintf("there is a projection %s already, whose version %d readers are shown; expected_version 0 is for a projection that does not exist yet, so read the definition and decide again", shortName(name), active)
	}
	return fault.New(fault.Conflict, CodeWrongVersion, "%s", detail).WithField("/expected_version").WithNumbers(expected, active)
}

// Rebuilding refuses a second rebuild at the same time.
func Rebuilding(name string) *fault.Error {
	return refuse(CodeRebuilding, "projection %s is being rebuilt already; wait for it, switch to it or cancel it", shortName(name))
}

// NotBuilding reports that no version is being built.
func NotBuilding(name string) *fault.Error {
	return refuse(CodeNotBuilding, "no version of projection %s is being built; rebuild it first, or roll back to a version that is kept", shortName(name))
}

// NotRetained reports that there is no version to go back to.
func NotRetained(name string) *fault.Error {
	return refuse(CodeNotRetained, "projection %s keeps no earlier version; rebuild it instead", shortName(name))
}

// VersionBehind refuses to activate a version that lacks too many events.
func VersionBehind(name string, version int, events uint64) *fault.Error {
	return refuse(CodeVersionBehind, "version %d of projection %s lacks %d events; wait until it has caught up, or force the switch", version, shortName(name), events)
}

// VersionHalted refuses to activate a version that is halted in a legal entity.
func VersionHalted(name string, version int) *fault.Error {
	return refuse(CodeVersionHalted, "version %d of projection %s is halted at an event; fix or skip it, or force the switch", version, shortName(name))
}

// Incomparable reports two versions that cannot be brought to the same event.
func Incomparable(name string) *fault.Error {
	return refuse(CodeIncomparable, "the versions of projection %s are not at the same event and cannot be brought there; wait until both have caught up and none is halted", shortName(name))
}

// OtherCode refuses to mix rows of two handlers.
func OtherCode(name string, version int) *fault.Error {
	return refuse(CodeOtherCode, "version %d of projection %s was built by another handler or definition than this release has, and their rows do not mix; rebuild the whole projection, without a snapshot", version, shortName(name))
}

// ForeignVersion refuses to recompute rows of a version that another release's handler built.
func ForeignVersion(name string, version int) *fault.Error {
	return refuse(CodeOtherCode, "version %d of projection %s was built by another release, and this one cannot recompute its rows; use a node of that release, or rebuild it and drop that version", version, name)
}

// NotRead refuses a legal entity that a definition does not read.
func NotRead(name string) *fault.Error {
	return refuse(CodeNotRead, "projection %s does not read this legal entity; choose another one", shortName(name)).WithField("legal_entity")
}

// SnapshotNotFound reports that there is no such complete snapshot.
func SnapshotNotFound(name string) *fault.Error {
	return fault.New(fault.NotFound, CodeSnapshotNotFound, "projection %s has no such snapshot that is complete; list them with its versions, take one, or rebuild without", shortName(name))
}

// SnapshotOutdated refuses a snapshot that may hold values that were redacted or erased since.
func SnapshotOutdated(name string, version int) *fault.Error {
	return refuse(CodeSnapshotOutdated, "snapshot %d of projection %s may hold values that were redacted since its rows were computed; choose a later one, or rebuild without", version, shortName(name))
}

// SnapshotInProgress refuses a second snapshot at the same time.
func SnapshotInProgress(name string) *fault.Error {
	return refuse(CodeSnapshotInProgress, "a snapshot of projection %s is being taken already; wait for it or drop it", shortName(name))
}

// TargetUnsupported refuses a stream type whose entities own no rows of the projection.
func TargetUnsupported(name, streamType string) *fault.Error {
	return refuse(CodeTargetUnsupported, "projection %s has no rows of %s that can be recomputed alone; rebuild the legal entity or the whole projection instead", name, streamType)
}

// TargetsUndeclared refuses a projection that does not declare which rows belong to which entity.
func TargetsUndeclared(name string) *fault.Error {
	return refuse(CodeTargetUnsupported, "projection %s does not say which rows belong to which entity; rebuild it as a whole instead", name)
}

// TargetBehind refuses a version that has not read the events in question.
func TargetBehind(name string, version int) *fault.Error {
	return refuse(CodeTargetBehind, "version %d of projection %s has not read the events that this is about; wait until it has", version, name)
}

// TargetTooLarge refuses a recomputation that would lock a checkpoint for too long.
func TargetTooLarge(limit int) *fault.Error {
	return refuse(CodeTargetTooLarge, "more than %d events or rows would be recomputed at once; rebuild the legal entity instead", limit).With("limit", limit)
}
