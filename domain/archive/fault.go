package archive

import "github.com/erpbackbone/backbone/domain/fault"

// The codes of faults that callers act on.
const (
	CodeObjectDamaged    = "archive.object_damaged"
	CodeObjectMissing    = "archive.object_missing"
	CodeUnavailable      = "archive.unavailable"
	CodePayloadLost      = "archive.payload_lost"
	CodeContentChanged   = "archive.content_changed"
	CodeRedacting        = "archive.redacting"
	CodeTooYoung         = "archive.too_young"
	CodeProjectionBehind = "archive.projection_behind"
)

// ObjectDamaged is the fault of a file that is not the one that was archived.
func ObjectDamaged() *fault.Error {
	return fault.New(fault.Internal, CodeObjectDamaged, "a file of the archive is not the one that was archived; put the file from a copy of the archive in its place, and find out who changed it")
}

// ObjectMissing is the fault of a file that the archive does not have.
func ObjectMissing() *fault.Error {
	return fault.New(fault.Internal, CodeObjectMissing, "a file of the archive is missing; put the file from a copy of the archive in its place")
}

// NotConfigured is the fault of an archived payload on a node that has no archive.
func NotConfigured() *fault.Error {
	return fault.New(fault.FailedPrecondition, "archive.not_configured", "the payload is archived, and this node does not know where; have an operator set archive.directory or archive.bucket, as on the other nodes; tools take --config or --archive")
}

// Unavailable is the fault of an archive that does not answer.
func Unavailable() *fault.Error {
	return fault.New(fault.Unavailable, CodeUnavailable, "the payload is archived, and the archive cannot be reached; try again, or read without data")
}

// Empty is the fault of an archive without any file of a log that has some there.
func Empty() *fault.Error {
	return fault.New(fault.Unavailable, CodeUnavailable, "the payload is archived, and the archive has no file of this log; check that it is the right one, and mounted")
}

// ContentChanged is the fault of payloads that are not those of their manifest.
func ContentChanged() *fault.Error {
	return fault.New(fault.Conflict, CodeContentChanged, "the payloads are not those of the segment's manifest: one was redacted or moved since; run the command again, and if that does not help, backbone verify")
}

// TooYoung is the fault of a payload that the last two years need.
func TooYoung() *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeTooYoung, "payloads of the last two years stay in the database; name an earlier day")
}

// DecisionsStay is the fault of a payload that is a decision and no business event.
func DecisionsStay() *fault.Error {
	return fault.New(fault.FailedPrecondition, "archive.decisions_stay", "the backbone's own events stay in the database; archive those of legal entities")
}

// Busy is the fault of an archive that another run, or a redaction, works on.
func Busy() *fault.Error {
	return fault.New(fault.Unavailable, "archive.busy", "another run, or a redaction, works on the archive of the legal entity; try again in a few minutes")
}

// PayloadLost is the fault of a payload that is neither in the database nor in the file where it should be.
func PayloadLost() *fault.Error {
	return fault.New(fault.Internal, CodePayloadLost, "the payload of an event is neither in the database nor in its file; put the file from a copy of the archive in its place, and run backbone verify")
}

// Redacting is the fault of a payload that is about to be redacted.
func Redacting() *fault.Error {
	return fault.New(fault.Conflict, CodeRedacting, "a redaction of one of the payloads was requested; run the command again")
}

// HoldPlaced is the fault of a run that began before a legal hold whose payloads have to stay.
func HoldPlaced() *fault.Error {
	return fault.New(fault.Conflict, "archive.hold_placed", "a legal hold was placed since the run began; run the command again, so that its payloads stay")
}

// SnapshotMissing is the fault of an entity whose state would need an archived payload.
func SnapshotMissing() *fault.Error {
	return fault.New(fault.FailedPrecondition, "archive.snapshot_missing", "an entity of the payloads has no snapshot that includes them: it has changed since; run the command again")
}

// ProjectionBehind is the fault of a projection that would have to read an archived payload.
func ProjectionBehind() *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeProjectionBehind, "a projection has not read the payloads yet; look at `backbone projections`, and archive when it has")
}

// Overlapping is the fault of a range that is in the archive.
func Overlapping() *fault.Error {
	return fault.New(fault.Conflict, "archive.overlapping", "another run has archived a part of the range; run the command again")
}

// SegmentNotFound is the fault of a segment that is not in the archive.
func SegmentNotFound() *fault.Error {
	return fault.New(fault.NotFound, "archive.segment_not_found", "no segment of the archive has these events: they were restored, or never archived; list them with `backbone archive status`")
}
