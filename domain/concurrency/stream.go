package concurrency

import (
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Codes of refusals by a stream's state.
const (
	CodeStreamNotFound   = "stream.not_found"
	CodeStreamDeleted    = "stream.deleted"
	CodeStreamNotDeleted = "stream.not_deleted"
	CodeStreamTombstoned = "stream.tombstoned"
)

// MaxMetadataRun bounds how many events before a stream's end an append looks at for one that is
// not a change of metadata, because it holds the partition's lock.
const MaxMetadataRun = 100

// AllowsIn is Allows for a stream in a state. All events after the version from, which is at most
// actual, are changes of metadata: an append may expect any version from there on, since nothing
// that it could have decided on was written since. A deleted stream meets NoStream and not
// StreamExists; a tombstoned stream meets neither.
func (e Expected) AllowsIn(state event.StreamState, from, actual event.Version) bool {
	switch {
	case state == event.StreamDeleted && e.mode == modeNoStream:
		return true
	case state == event.StreamDeleted && e.mode == modeStreamExists:
		return false
	case state == event.StreamTombstoned && e.mode != modeAny && e.mode != modeExact:
		return false
	case e.mode == modeNoStream:
		return from == 0
	case e.mode == modeExact:
		return from <= e.version && e.version <= actual
	default:
		return e.Allows(actual)
	}
}

// UnmetExpectation is the fault of an expectation that AllowsIn does not allow. The holder, if
// known, is the stream's last event; a caller that does not know it yet adds it to the fault.
func UnmetExpectation(want StreamExpectation, state event.StreamState, actual event.Version, holder *fault.Holder) *fault.Error {
	var f *fault.Error
	switch {
	case state == event.StreamTombstoned:
		f = StreamTombstoned(want.Stream)
	case state == event.StreamDeleted && want.Expected.mode == modeStreamExists:
		f = fault.New(fault.Conflict, CodeStreamDeleted, "stream %s is deleted and was expected to exist; append without that expectation to recreate it", want.Stream).
			WithNumbers(want.Expected.Value(), uint64(actual)).With("stream", want.Stream.String())
	default:
		return WrongExpectedVersion(want.Stream, want.Expected, actual, holder)
	}
	if holder != nil {
		f = f.WithHolder(*holder)
	}
	return f
}

// ActionRefused is the fault of an action that the stream's state does not allow.
func ActionRefused(stream event.StreamID, state event.StreamState, action event.StreamAction) *fault.Error {
	switch {
	case state == event.StreamTombstoned:
		return StreamTombstoned(stream)
	case action == event.RecreateStream:
		return fault.New(fault.Conflict, CodeStreamNotDeleted, "stream %s is %s, so there is nothing to recreate; append to it as it is", stream, state).
			With("stream", stream.String())
	case state == event.StreamDeleted:
		return StreamDeleted(stream)
	default:
		return fault.New(fault.NotFound, CodeStreamNotFound, "this legal entity has no stream %s; check type, id and legal entity", stream).
			With("stream", stream.String())
	}
}

// StreamDeleted is the conflict with a soft deletion.
func StreamDeleted(stream event.StreamID) *fault.Error {
	return fault.New(fault.Conflict, CodeStreamDeleted, "stream %s is deleted; append to it to recreate it", stream).With("stream", stream.String())
}

// StreamTombstoned refuses every action on a stream that was deleted for good.
func StreamTombstoned(stream event.StreamID) *fault.Error {
	return fault.New(fault.Gone, CodeStreamTombstoned, "stream %s was ended for good and takes no events any more; use another stream", stream).
		With("stream", stream.String())
}
