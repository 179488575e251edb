// Package stream is what a stream has besides its events: metadata that limit what
// is read of it and who reads and writes it, and the names of the events that
// change a stream. Metadata never touch facts.
package stream

import "github.com/erpbackbone/backbone/domain/event"

// The events that change a stream. Each is written into the stream that it is about.
const (
	MetadataChanged = "stream.metadata.changed"
	Deleted         = "stream.deleted"
	Tombstoned      = "stream.tombstoned"
	Recreated       = "stream.recreated"
)

// EventPrefix is the first part of their names.
const EventPrefix = "stream"

var actions = map[string]event.StreamAction{
	MetadataChanged: event.DescribeStream, Deleted: event.DeleteStream, Tombstoned: event.TombstoneStream, Recreated: event.RecreateStream,
}

// ActionOf tells what an event of the type does to its stream.
func ActionOf(eventType string) event.StreamAction { return actions[eventType] }
