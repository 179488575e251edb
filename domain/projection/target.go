package projection

import "github.com/erpbackbone/backbone/domain/fault"

// The faults of folding parts of a read model anew.
const (
	CodeTargetUnsupported = "projection.target_unsupported"
	CodeTargetBehind      = "projection.target_behind"
	CodeTargetTooLarge    = "projection.target_too_large"
)

// TargetUnsupported says that a projection has no rows that belong to entities of the
// type alone.
func TargetUnsupported(name, streamType string) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeTargetUnsupported,
		"projection %s has no rows of %s that can be folded anew on their own; rebuild the legal entity or the whole projection instead", name, streamType)
}

// TargetsUndeclared says that a projection does not declare any such rows.
func TargetsUndeclared(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeTargetUnsupported,
		"projection %s does not say which rows belong to which entity; rebuild it as a whole instead", name)
}

// TargetBehind says that a version has not read far enough.
func TargetBehind(name string, version int) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeTargetBehind, "version %d of projection %s has not read the events that this is about; wait until it has", version, name)
}

// TargetTooLarge refuses to hold a checkpoint for too long.
func TargetTooLarge(limit int) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeTargetTooLarge, "more than %d events or rows would be folded at once; rebuild the legal entity instead", limit).With("limit", limit)
}

// ForeignVersion says that another release's handler built a version.
func ForeignVersion(name string, version int) *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeOtherCode,
		"version %d of projection %s was built by another release, and this one cannot fold its rows; use a node of that release, or rebuild it and drop that version", version, name)
}
