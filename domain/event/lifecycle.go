package event

import "encoding/json"

// StreamState is the lifecycle state of a stream. The zero value is a stream without events.
type StreamState uint8

// The states. A deleted stream is recreated by the next append; a tombstoned one has ended for
// good. No state removes events from the log.
const (
	StreamAbsent StreamState = iota
	StreamActive
	StreamDeleted
	StreamTombstoned
)

var streamStates = [...]string{"absent", "active", "deleted", "tombstoned"}

// String gives the name that is stored and shown.
func (s StreamState) String() string {
	if int(s) < len(streamStates) {
		return streamStates[s]
	}
	return streamStates[StreamTombstoned] // an unknown state accepts no events
}

// ParseStreamState reads what is stored of a stream that exists; "" is active.
func ParseStreamState(stored string) StreamState {
	switch stored {
	case "", streamStates[StreamActive]:
		return StreamActive
	case streamStates[StreamDeleted]:
		return StreamDeleted
	default:
		return StreamTombstoned // an unknown state accepts no events
	}
}

// StreamAction is what an event does to the stream that it is written into.
type StreamAction uint8

// The actions. The zero value is an ordinary event.
const (
	AppendToStream StreamAction = iota
	DescribeStream              // sets the stream's metadata
	DeleteStream
	TombstoneStream
	RecreateStream // makes a deleted stream active again
)

// StreamActions lists every action, for tests that check a table is complete.
func StreamActions() []StreamAction {
	return []StreamAction{AppendToStream, DescribeStream, DeleteStream, TombstoneStream, RecreateStream}
}

// After gives the state that follows an action; false if the action is not possible
// in this state.
func (s StreamState) After(a StreamAction) (StreamState, bool) {
	switch s {
	case StreamAbsent:
		if a == AppendToStream || a == DescribeStream {
			return StreamActive, true
		}
	case StreamActive:
		switch a {
		case AppendToStream, DescribeStream:
			return StreamActive, true
		case DeleteStream:
			return StreamDeleted, true
		case TombstoneStream:
			return StreamTombstoned, true
		}
	case StreamDeleted:
		switch a {
		case RecreateStream:
			return StreamActive, true
		case TombstoneStream:
			return StreamTombstoned, true
		}
	}
	return s, false
}

// StreamChange is the change of state or metadata that an event makes to its stream. Only the
// log's own events have one.
type StreamChange struct {
	Action StreamAction
	// Settings and Access belong to DescribeStream: the part of the metadata that the log
	// applies, and the access list in it; nil: none.
	Settings json.RawMessage
	Access   json.RawMessage
}
