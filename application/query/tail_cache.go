package query

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Bounds of the cached end of one partition.
const (
	tailEvents = 512
	tailBytes  = 2 << 20
	// tailAge bounds how long readers may still get a payload that was redacted.
	tailAge = 2 * time.Second
)

// tailCache holds the newest events of busy partitions for tailAge. Readers that follow
// the end of a log share one query for the events added to it.
type tailCache struct {
	events ports.EventReader
	clock  ports.Clock

	mu          sync.Mutex
	byPartition map[event.PartitionID]*partitionTail
	lastSweep   time.Time
}

// partitionTail is a run of a partition's newest events, without gaps.
type partitionTail struct {
	ports.Lock
	events []event.Recorded
	bytes  int       // of payloads
	readAt time.Time // when the oldest of the events was read
}

func newTailCache(events ports.EventReader, clock ports.Clock) *tailCache {
	return &tailCache{events: events, clock: clock, byPartition: map[event.PartitionID]*partitionTail{}}
}

func (t *tailCache) tailOf(p event.PartitionID) *partitionTail {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropExpired(t.clock.Now())
	tail := t.byPartition[p]
	if tail == nil {
		tail = &partitionTail{Lock: ports.NewLock()}
		t.byPartition[p] = tail
	}
	return tail
}

// dropExpired drops expired tails of all partitions. Without it a reader that reads every
// log once would leave the tail of each in memory.
func (t *tailCache) dropExpired(now time.Time) {
	if now.Sub(t.lastSweep) <= tailAge {
		return
	}
	t.lastSweep = now
	for _, tail := range t.byPartition {
		select {
		case tail.Lock <- struct{}{}:
			tail.expire(now)
			tail.Release()
		default: // a reader has the lock and checks the age itself
		}
	}
}

// expire drops all events once the oldest is too old. By the age of the newest, a
// partition that keeps growing would never drop a redacted payload.
func (t *partitionTail) expire(now time.Time) {
	if now.Sub(t.readAt) > tailAge {
		t.events, t.bytes = nil, 0
	}
}

// readAfter returns at most limit events after a mark, with their payloads. Callers share
// the events and must not change them. Concurrent calls for one partition wait for one
// query.
func (t *tailCache) readAfter(ctx context.Context, at mark, limit int) ([]event.Recorded, error) {
	tail := t.tailOf(at.Partition)
	if err := tail.Acquire(ctx); err != nil {
		return nil, err
	}
	now := t.clock.Now()
	tail.expire(now)
	count := len(tail.events)
	if count > 0 && at.After < tail.events[0].Sequence { // before the tail: read without the lock, so that other readers do not wait
		tail.Release()
		events, err := t.read(ctx, at, limit)
		return dropMarkedEvent(events, at), err
	}
	defer tail.Release()
	if count > 0 && at.After <= tail.events[count-1].Sequence {
		i := int(at.After - tail.events[0].Sequence)
		if [8]byte(tail.events[i].Checksum[:8]) != at.ChecksumPrefix {
			tail.events, tail.bytes = nil, 0
			return nil, divergedFault()
		}
		if i+1 < count {
			end := min(i+1+limit, count)
			return tail.events[i+1 : end : end], nil
		}
	}
	events, err := t.read(ctx, at, max(limit, tailEvents/2))
	if err != nil {
		tail.events, tail.bytes = nil, 0
		return nil, err
	}
	if count > 0 && at.After == tail.events[count-1].Sequence {
		events = dropMarkedEvent(events, at)
		tail.add(events)
	} else {
		tail.events, tail.bytes, tail.readAt = nil, 0, now
		tail.add(events)
		events = dropMarkedEvent(events, at)
	}
	end := min(limit, len(events))
	return events[:end:end], nil
}

// dropMarkedEvent removes the event at the mark.
func dropMarkedEvent(events []event.Recorded, at mark) []event.Recorded {
	if at.After > 0 && len(events) > 0 {
		return events[1:]
	}
	return events
}

// read queries the store. Unless the mark is the beginning, the first event is the one at
// the mark, whose checksum proves that the log is still the same.
func (t *tailCache) read(ctx context.Context, at mark, limit int) ([]event.Recorded, error) {
	events, err := readFromMark(ctx, t.events, ports.EventQuery{Partition: at.Partition, After: at.After, Limit: limit, Bytes: feedBytes})
	if err != nil || at.After == 0 {
		return events, err
	}
	if len(events) == 0 || events[0].Sequence != at.After || [8]byte(events[0].Checksum[:8]) != at.ChecksumPrefix {
		return nil, divergedFault()
	}
	return events, nil
}

// add appends to the tail. Slices returned earlier stay valid: they end before the new
// events, and trimming, at twice the bounds, copies the newest events to a new array.
func (t *partitionTail) add(events []event.Recorded) {
	for i := range events {
		t.bytes += len(events[i].Payload)
	}
	t.events = append(t.events, events...)
	if len(t.events) <= 2*tailEvents && t.bytes <= 2*tailBytes {
		return
	}
	first, bytes := len(t.events), 0
	for first > 0 && len(t.events)-first < tailEvents {
		size := len(t.events[first-1].Payload)
		if bytes > 0 && bytes+size > tailBytes {
			break
		}
		first, bytes = first-1, bytes+size
	}
	t.events, t.bytes = append([]event.Recorded(nil), t.events[first:]...), bytes
}

// feedBytes bounds the payloads of one page of a feed, except of a single event.
const feedBytes = 8 << 20

// readFromMark reads the log from the event at q.After on, or from the beginning if that is
// 0. However large the event at q.After is, at least one later event is read too.
func readFromMark(ctx context.Context, events ports.EventReader, q ports.EventQuery) ([]event.Recorded, error) {
	if q.After == 0 {
		return events.Events(ctx, q)
	}
	q.After, q.Limit = q.After-1, q.Limit+1
	found, err := events.Events(ctx, q)
	if err != nil || len(found) != 1 || q.Bytes == 0 {
		return found, err
	}
	q.Bytes, q.Limit = 0, 2
	return events.Events(ctx, q)
}
