package appender

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// The states of a request until it is answered. A stalled request is queued again.
const (
	stateQueued     int32 = iota
	stateTaken            // a group runs it
	stateAbandoned        // the caller gave up while no group ran it; nothing was written
	stateCallerGone       // the caller gave up while a group ran it, with append.outcome_unknown unless the answer came at once
)

// queuedRequest is one request in the queue of an appender.
type queuedRequest struct {
	request  *ports.AppendRequest
	intent   *encodedIntent
	bytes    int
	queuedAt time.Time
	deadline time.Time // until when it waits for locks of other sessions; zero: it has not waited for one
	state    atomic.Int32
	answer   chan answer // of capacity 1: the appender never waits for a caller
}

type answer struct {
	result ports.AppendResult
	err    error
}

func (w *queuedRequest) oversize(l *pg.Limits) bool {
	return w.bytes > l.OversizeBytes || len(w.request.Events) > l.GroupEvents
}

// queue holds the requests of one appender, bounded in requests and bytes, as a whole
// and per partition. A request that does not fit is refused at once. Requests that need a
// lock which another session holds wait in stalled partitions, so that they block neither the
// appender nor other partitions.
type queue struct {
	mu             sync.Mutex
	items          []*queuedRequest
	stalled        map[event.PartitionID]*stalledPartition
	suspects       map[event.PartitionID]bool // stalled, or were until none of their requests waited; requeue removes them
	load           load
	stalledLoad    load // the part of load in stalled partitions
	borrowedLoad   load // of nextGroup of all stalled partitions; load does not count it
	partitionLoads map[event.PartitionID]load
	limits         *pg.Limits
	limit          load                    // of the queue
	partitionLimit load                    // of one partition
	maxWait        time.Duration           // of a request for locks of other sessions
	startServing   func(*stalledPartition) // called with mu held; must not block
	closed         bool
	wake           chan struct{} // of capacity 1
}

// load is a number of requests and the bytes of their payloads.
type load struct{ requests, bytes int }

func (l load) plus(requests, bytes int) load { return load{l.requests + requests, l.bytes + bytes} }

func (l load) exceeds(limit load) bool { return l.requests > limit.requests || l.bytes > limit.bytes }

func newQueue(l *pg.Limits) *queue {
	return &queue{
		limits: l, maxWait: l.LockTimeout, limit: load{l.QueueRequests, l.QueueBytes}, partitionLimit: load{l.PartitionRequests, l.PartitionBytes},
		partitionLoads: map[event.PartitionID]load{}, wake: make(chan struct{}, 1),
		stalled: map[event.PartitionID]*stalledPartition{}, suspects: map[event.PartitionID]bool{},
	}
}

func (q *queue) push(w *queuedRequest) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fault.New(fault.Unavailable, codeShuttingDown, "the server is shutting down; try another node or try again").WithRetryAfter(time.Second)
	}
	// An empty queue takes any request, so that no request is refused for its size alone.
	// One partition may not fill the queue for the others.
	p := w.request.Partition
	total, own := q.load.plus(1, w.bytes), q.partitionLoads[p].plus(1, w.bytes)
	full := q.load.requests > 0 && (total.exceeds(q.limit) || own.requests > 1 && own.exceeds(q.partitionLimit))
	d := q.stalled[p]
	mustWait := d != nil || q.suspects[p]
	if mustWait && !full { // all stalled partitions together share the limit of one
		stalledLoad := q.stalledLoad.plus(1, w.bytes)
		full = q.stalledLoad.requests > 0 && stalledLoad.exceeds(q.partitionLimit)
	}
	if full {
		return fault.New(fault.Unavailable, codeQueueFull, "too many appends are waiting; try again").WithRetryAfter(pg.RetryAfter)
	}
	q.load, q.partitionLoads[p] = total, own
	if mustWait {
		if d == nil {
			d = q.isolate(p)
		}
		d.enqueue(q, w, time.Now())
		return nil
	}
	q.items = append(q.items, w)
	q.signal()
	return nil
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

func (q *queue) depth() (requests, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.load.requests, q.load.bytes
}

// waitForGroup fills group with the next requests in order of arrival: one oversize request
// alone, or as many smaller ones as a group may hold. An oversize request that is not the first is
// passed over and comes first next time; later requests, also of its own partition, overtake it.
// Requests whose callers gave up are dropped. waitForGroup blocks until there is a request, and
// returns nil when the queue is closed and empty and its stalled partitions have ended.
func (q *queue) waitForGroup(group []*queuedRequest) []*queuedRequest {
	for {
		q.mu.Lock()
		group = q.fill(group[:0])
		closed := q.closed && len(q.items) == 0 && len(q.stalled) == 0
		q.mu.Unlock()
		if len(group) > 0 {
			return group
		}
		if closed {
			return nil
		}
		<-q.wake
	}
}

// remove takes a request out of the loads.
func (q *queue) remove(w *queuedRequest) {
	p := w.request.Partition
	q.load = q.load.plus(-1, -w.bytes)
	if own := q.partitionLoads[p].plus(-1, -w.bytes); own.requests > 0 {
		q.partitionLoads[p] = own
	} else {
		delete(q.partitionLoads, p)
	}
}

func (q *queue) fill(group []*queuedRequest) []*queuedRequest {
	group, q.items = gather(group, q.items, q.limits, q.limits.OnePartitionPerGroup, (*queuedRequest).markTaken, q.remove)
	return group
}

// markTaken marks the request as run by a group. It reports false if the caller gave up.
func (w *queuedRequest) markTaken() bool { return w.state.CompareAndSwap(stateQueued, stateTaken) }

// isQueued reports whether no group runs the request and its caller still waits.
func (w *queuedRequest) isQueued() bool { return w.state.Load() == stateQueued }

// gather moves the next requests from items to group, within the limits of a group, and returns
// the rest as kept. It asks admit about each request that fits: one that is not admitted, because
// its caller gave up, leaves items and is in no group. It calls onRemoved for each request that
// leaves items.
func gather(group, items []*queuedRequest, limits *pg.Limits, onePartition bool, admit func(*queuedRequest) bool, onRemoved func(*queuedRequest)) (taken, kept []*queuedRequest) {
	events, bytes := 0, 0
	kept = items[:0]
	full := false
	for _, w := range items {
		switch {
		case full:
		case w.state.Load() == stateAbandoned:
			onRemoved(w)
			continue
		case onePartition && len(group) > 0 && group[0].request.Partition != w.request.Partition:
			// Passed over: it comes first next time.
		case w.oversize(limits):
			if len(group) > 0 {
				break // passed over: the switch ends and the request is kept
			}
			// It is alone in its group.
			onRemoved(w)
			if admit(w) {
				group, full = append(group, w), true
			}
			continue
		case events+len(w.request.Events) > limits.GroupEvents || bytes+w.bytes > limits.GroupBytes:
			full = true
		default:
			onRemoved(w)
			if admit(w) {
				group = append(group, w)
				events += len(w.request.Events)
				bytes += w.bytes
			}
			continue
		}
		kept = append(kept, w)
	}
	clear(items[len(kept):])
	return group, kept
}
