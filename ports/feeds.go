package ports

import "github.com/erpbackbone/backbone/domain/event"

// FeedMark is the position of a feed's cursor in one legal entity.
type FeedMark struct {
	Partition      event.PartitionID
	After          event.Sequence // the last event that the reader received
	ChecksumPrefix [8]byte        // beginning of the checksum of the event at After; it differs in another log
}
