// Package globallog is the one order of all events of an installation, and the tree of hashes over it.
//
// The log of a partition is a chain of its own. The global log joins all of them: it takes contiguous ranges
// of partitions, one after the other, and so gives each event a position. Its entries are the checksums of
// the events, and nothing else. A Merkle tree of RFC 6962 over the entries has one root for everything that
// was recorded; with it an event is proven to a reader who sees no other event.
package globallog

import "github.com/erpbackbone/backbone/domain/event"

// Position is the place of an event in the global log, from 0 without gaps.
type Position uint64

// End is after every position.
const End Position = 1<<63 - 1

// Range is a part of the global log: Count events of one partition, in order and without gaps.
type Range struct {
	First     Position // of the first event
	Partition event.PartitionID
	Sequence  event.Sequence // of the first event
	Count     uint64         // at least 1
}

// End is the position after the range.
func (r Range) End() Position { return r.First + Position(r.Count) }

// NextSequence is the sequence after the range.
func (r Range) NextSequence() event.Sequence { return r.Sequence + event.Sequence(r.Count) }

// PositionOf returns the position of an event of the range's partition, false for one outside of the range.
func (r Range) PositionOf(s event.Sequence) (p Position, ok bool) {
	if s < r.Sequence || s >= r.NextSequence() {
		return 0, false
	}
	return r.First + Position(s-r.Sequence), true
}

// SequenceAt returns the sequence of the event at a position, false for one outside of the range.
func (r Range) SequenceAt(p Position) (s event.Sequence, ok bool) {
	if p < r.First || p >= r.End() {
		return 0, false
	}
	return r.Sequence + event.Sequence(p-r.First), true
}
