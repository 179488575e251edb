package ports

import "github.com/erpbackbone/backbone/domain/event"

// FeedMark is the position of a live feed's cursor in one partition. A subscription can continue
// from the cursor.
type FeedMark struct {
	Partition event.PartitionID
	After     event.Sequence // the last event that the reader received
	// ChecksumPrefix is the beginning of the checksum of the event at After. A log that was set
	// back and written again has another event there, so its checksum shows that the cursor does
	// not fit.
	ChecksumPrefix [8]byte
}
