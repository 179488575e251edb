// Package stream has the metadata of a stream beside its events: Metadata limits which events
// are read and how long answers are cached, ACL says which roles may read and write. It also
// names the events that change a stream. application/streams edits metadata, the stores check
// access. Metadata never changes stored events.
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

// ActionOf returns the action of an event of the type on its stream.
func ActionOf(eventType string) event.StreamAction { return actions[eventType] }
