package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
)

// Direction of a read.
type Direction bool

// The directions.
const (
	Forward  Direction = false
	Backward Direction = true
)

// EventReader reads the log. All results are complete up to the newest committed
// event at the time of the call; an empty result is an empty, non-nil slice.
type EventReader interface {
	// EventByID returns fault event.not_found if the partition has no such event.
	EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error)
	// TypesOf returns the types of events of any partitions, in one query for all of them. It
	// leaves out events that do not exist.
	TypesOf(ctx context.Context, events []Cause) (map[Cause]string, error)
	// EventsOfStream reads a stream by version, from the given one, ascending.
	EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error)
	// Events reads by query, ordered by sequence in the query's direction.
	Events(ctx context.Context, q EventQuery) ([]event.Recorded, error)
	// Head is the partition's last event; before the first one it is the genesis
	// (sequence 0). Fault legal_entity.not_found for an unknown partition.
	Head(ctx context.Context, p event.PartitionID) (Head, error)
	// Heads is Head for several partitions at once; unknown ones are left out.
	Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]Head, error)
	// SequenceAt is the last sequence recorded at or before t (0: none).
	SequenceAt(ctx context.Context, p event.PartitionID, t time.Time) (event.Sequence, error)
}

// HeadReader lists the heads of all partitions.
type HeadReader interface {
	// PartitionHeads lists the heads of all partitions in one query.
	PartitionHeads(ctx context.Context) (map[event.PartitionID]Head, error)
}

// LogPositions reads what readers of the log measure their lag with.
type LogPositions interface {
	HeadReader
	// RecordedAt returns when events were recorded, in one query for all of them. It leaves
	// out events that do not exist.
	RecordedAt(ctx context.Context, positions []EventPosition) (map[EventPosition]time.Time, error)
}

// EventPosition is the position of an event in the log.
type EventPosition struct {
	Partition event.PartitionID
	Sequence  event.Sequence
}

// Head is the end of a partition's chain.
type Head struct {
	Sequence   event.Sequence
	RecordedAt time.Time
	Checksum   event.Hash
	Genesis    event.Hash
	// Administrative says that the partition is a tenant's administrative log. Only
	// HeadReader sets it.
	Administrative bool
}

// WithoutAdministration returns the heads of legal entities alone.
func WithoutAdministration(heads map[event.PartitionID]Head) map[event.PartitionID]Head {
	books := make(map[event.PartitionID]Head, len(heads))
	for p, h := range heads {
		if !h.Administrative {
			books[p] = h
		}
	}
	return books
}

// EventQuery selects events of one partition. Zero values do not filter.
type EventQuery struct {
	Partition     event.PartitionID
	Key           string   // key index text: entity or tag
	Types         []string // any of these
	CorrelationID string
	ActorID       string
	After         event.Sequence // exclusive, in the direction of reading; 0: from the start (or from Until backwards)
	Until         event.Sequence // inclusive upper bound in both directions; 0: the head
	OccurredFrom  time.Time
	OccurredTo    time.Time // exclusive
	RecordedFrom  time.Time
	RecordedTo    time.Time // exclusive
	EffectiveFrom *event.Date
	EffectiveTo   *event.Date    // inclusive
	From          event.Sequence // inclusive lower bound in both directions
	To            event.Sequence // inclusive upper bound in both directions
	Division      string
	Region        string
	Site          string
	SchemaVersion uint32
	Source        event.Source // each part that is not empty
	Dimension     Dimension
	Predicate     *event.Predicate // over the stored data; sealed values are compared as they are stored
	Direction     Direction
	Limit         int
	WithoutData   bool // leave Payload nil
	OnlineOnly    bool // leave Payload nil where it is archived
	// Bytes bounds the payloads of what is answered: it ends before the event that exceeds
	// them, but not before the first. 0 is no bound.
	Bytes int
}

// Dimension is a value of a dimension. The zero value does not filter.
type Dimension struct{ Name, Value string }

// EventSearcher reads the log a bounded step at a time.
type EventSearcher interface {
	// SearchEvents is Events, except that it looks at no more than about scan
	// candidates: the events that the query's most selective index leads to, before
	// any other filter. It may stop earlier when looking takes long. A query that needs
	// no filter besides its index never stops early.
	SearchEvents(ctx context.Context, q EventQuery, scan int) (EventScan, error)
}

// EventScan is the result of a search and the position that it reached.
type EventScan struct {
	Events []event.Recorded
	// Stopped says that the scan, or the bytes of the query, ended before the limit or the
	// end of the query was reached: everything up to and with Reached, in the direction of
	// reading, has been looked at, and Reached as the next After goes on from there.
	Stopped bool
	Reached event.Sequence
}

// CausalityReader walks causes.
type CausalityReader interface {
	// Lineage returns the causes of an event inside its partition, root first and
	// the event itself last. truncated says that maxDepth cut it, or bytes of payloads, as
	// in EventQuery: what is nearest to the event stays, and the event itself always. A
	// cause in another partition ends the walk; the caller goes on there.
	Lineage(ctx context.Context, p event.PartitionID, id event.ID, maxDepth, bytes int) (chain []event.Recorded, truncated bool, err error)
	// Descendants returns the events of a partition that the given ones led to, level
	// by level, those of a level by sequence. Effects in another partition are not
	// among them; the caller goes on there. More says that the limit cut the answer;
	// the depth never counts as a cut. An event whose cause is in none of the levels
	// above is not there, and none comes twice.
	Descendants(ctx context.Context, q DescendantQuery) (found []Descendant, more bool, err error)
}

// DescendantQuery asks for effects inside one partition.
type DescendantQuery struct {
	Partition event.PartitionID
	Causes    []Cause
	// Stop is an event of the partition that is returned if it is reached and not gone
	// beyond: where a walk began, so that written circles end; 0 is none.
	Stop        event.Sequence
	MaxDepth    int // 1: only what the causes led to directly
	Limit       int
	Bytes       int  // of payloads, as in EventQuery, which cut the answer like the limit; 0 is no bound
	WithoutData bool // leave Payload nil
}

// Cause names an event of any partition.
type Cause struct {
	Partition event.PartitionID
	ID        event.ID
}

// Descendant is an effect of the event that its CausedBy names.
type Descendant struct {
	Event event.Recorded
	Depth int // 1: led to directly by one of the causes
}

// MatchReader reads by the items of append conditions.
type MatchReader interface {
	// Matches returns the events that match any of the items, by sequence. Work is
	// bounded: the answer holds all matches up to Through and says so; read on after
	// it. An event is there once and names every item it matches.
	Matches(ctx context.Context, q MatchQuery) (MatchPage, error)
}

// MatchQuery selects events of one partition.
type MatchQuery struct {
	Partition   event.PartitionID
	Items       []concurrency.Item // an item without types, tags and entities matches every event
	After       event.Sequence     // exclusive
	Until       event.Sequence     // inclusive; not beyond the head
	Limit       int                // at least 1
	Bytes       int                // of payloads, as in EventQuery; 0 is no bound
	WithoutData bool               // leave Payload nil
}

// MatchPage is what a MatchQuery found.
type MatchPage struct {
	Matches []Match
	Through event.Sequence // all matches up to here are in the page; Until when nothing is left
}

// Match is an event with the places, ascending, of the items that it matches.
type Match struct {
	Event event.Recorded
	Items []int
}

// ChainReader feeds verification: skeletons and payloads by ascending sequence.
type ChainReader interface {
	// ChainPage returns up to limit events after the sequence. A missing payload is
	// a nil Payload.
	ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error)
}
