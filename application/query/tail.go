package query

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Bounds of what a node keeps of the end of one partition.
const (
	tailEvents = 512
	tailBytes  = 2 << 20
	// tailAge bounds how long a redaction takes to be seen by whoever reads the end.
	tailAge = 2 * time.Second
)

// tails keep the newest events of busy partitions for a moment, so that however many
// follow the end of the log, the store is asked once for what was added to it.
type tails struct {
	events ports.EventReader
	clock  ports.Clock

	mu          sync.Mutex
	byPartition map[event.PartitionID]*tail
	swept       time.Time
}

// tail is a part of a partition's log without gaps.
type tail struct {
	turn  chan struct{} // holds a token while nobody reads or looks
	run   []event.Recorded
	bytes int
	begun time.Time // when the oldest of it was read
}

func newTails(events ports.EventReader, clock ports.Clock) *tails {
	return &tails{events: events, clock: clock, byPartition: map[event.PartitionID]*tail{}}
}

func (t *tails) of(p event.PartitionID) *tail {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(t.clock.Now())
	one := t.byPartition[p]
	if one == nil {
		one = &tail{turn: make(chan struct{}, 1)}
		one.turn <- struct{}{}
		t.byPartition[p] = one
	}
	return one
}

// sweep lets go of what has become too old, also in partitions that nobody asks for any
// more: whoever reads everything once would otherwise leave the end of each behind.
func (t *tails) sweep(now time.Time) {
	if now.Sub(t.swept) <= tailAge {
		return
	}
	t.swept = now
	for _, one := range t.byPartition {
		select {
		case <-one.turn:
			one.expire(now)
			one.turn <- struct{}{}
		default: // somebody reads it, and looks at its age
		}
	}
}

// expire drops a run that is too old as a whole. Were its age that of its newest part,
// a partition that keeps growing would show what was redacted long ago.
func (t *tail) expire(now time.Time) {
	if now.Sub(t.begun) > tailAge {
		t.run, t.bytes = nil, 0
	}
}

// following gives at most limit events after a mark, with their payloads. They are
// shared: nobody may change them. Several that ask for the same wait for one read.
func (t *tails) following(ctx context.Context, at mark, limit int) ([]event.Recorded, error) {
	one := t.of(at.Partition)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-one.turn:
	}
	now := t.clock.Now()
	one.expire(now)
	n := len(one.run)
	if n > 0 && at.After < one.run[0].Sequence { // far behind: an own read, which holds nobody up
		one.turn <- struct{}{}
		events, err := t.read(ctx, at, limit)
		return behindMark(events, at), err
	}
	defer func() { one.turn <- struct{}{} }()
	if n > 0 && at.After <= one.run[n-1].Sequence {
		i := int(at.After - one.run[0].Sequence)
		if [8]byte(one.run[i].Checksum[:8]) != at.Witness {
			one.run, one.bytes = nil, 0
			return nil, diverged()
		}
		if i+1 < n {
			end := min(i+1+limit, n)
			return one.run[i+1 : end : end], nil
		}
	}
	events, err := t.read(ctx, at, max(limit, tailEvents/2))
	if err != nil {
		one.run, one.bytes = nil, 0
		return nil, err
	}
	if n > 0 && at.After == one.run[n-1].Sequence {
		events = behindMark(events, at)
		one.add(events)
	} else {
		one.run, one.bytes, one.begun = nil, 0, now
		one.add(events)
		events = behindMark(events, at)
	}
	end := min(limit, len(events))
	return events[:end:end], nil
}

// behindMark leaves out the event at the mark.
func behindMark(events []event.Recorded, at mark) []event.Recorded {
	if at.After > 0 && len(events) > 0 {
		return events[1:]
	}
	return events
}

// read asks the store. Unless the mark is the beginning, the first event is the one
// at the mark, whose checksum shows that the log is still the same.
func (t *tails) read(ctx context.Context, at mark, limit int) ([]event.Recorded, error) {
	events, err := afterMark(ctx, t.events, ports.EventQuery{Partition: at.Partition, After: at.After, Limit: limit, Bytes: feedBytes})
	if err != nil || at.After == 0 {
		return events, err
	}
	if len(events) == 0 || events[0].Sequence != at.After || [8]byte(events[0].Checksum[:8]) != at.Witness {
		return nil, diverged()
	}
	return events, nil
}

// add appends to the run. What has been handed out of it stays as it is: it ends
// before, and when the run has grown to twice its bounds, its newest part moves.
func (t *tail) add(events []event.Recorded) {
	for i := range events {
		t.bytes += len(events[i].Payload)
	}
	t.run = append(t.run, events...)
	if len(t.run) <= 2*tailEvents && t.bytes <= 2*tailBytes {
		return
	}
	first, bytes := len(t.run), 0
	for first > 0 && len(t.run)-first < tailEvents {
		size := len(t.run[first-1].Payload)
		if bytes > 0 && bytes+size > tailBytes {
			break
		}
		first, bytes = first-1, bytes+size
	}
	t.run, t.bytes = append([]event.Recorded(nil), t.run[first:]...), bytes
}

// feedBytes bounds the payloads of one page of a feed, unless one event has more.
const feedBytes = 8 << 20

// afterMark reads the log after a sequence, with the event at it before the others
// unless that is the beginning. However large that one is, one that follows comes too.
func afterMark(ctx context.Context, events ports.EventReader, q ports.EventQuery) ([]event.Recorded, error) {
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
