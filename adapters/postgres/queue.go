package postgres

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Limits of a group. Requests above the oversize limit go alone: a few of a
// megabyte each in one group held up small callers for a second.
const (
	maxGroupEvents = 512
	maxGroupBytes  = 4 << 20
	oversizeBytes  = 512 << 10
)

// The states of a waiting request.
const (
	stateWaiting int32 = iota
	stateTaken
	stateAbandoned // the caller gave up before it was taken
)

// waiting is one request in the queue of an appender.
type waiting struct {
	request  *ports.AppendRequest
	intent   *encodedIntent
	bytes    int
	queuedAt time.Time
	state    atomic.Int32
	answer   chan answer // of capacity 1: the appender never waits for a caller
}

type answer struct {
	result ports.AppendResult
	err    error
}

func (w *waiting) oversize() bool {
	return w.bytes > oversizeBytes || len(w.request.Events) > maxGroupEvents
}

// queue is what waits for one appender, bounded in requests and bytes. A request
// that does not fit is refused at once.
type queue struct {
	mu           sync.Mutex
	items        []*waiting
	bytes        int
	maxRequests  int
	maxBytes     int
	onePartition bool
	closed       bool
	wake         chan struct{} // of capacity 1
}

func newQueue(maxRequests, maxBytes int, onePartition bool) *queue {
	return &queue{maxRequests: maxRequests, maxBytes: maxBytes, onePartition: onePartition, wake: make(chan struct{}, 1)}
}

func (q *queue) push(w *waiting) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fault.New(fault.Unavailable, codeShuttingDown, "the server is shutting down; try another node or try again").WithRetryAfter(time.Second)
	}
	// An empty queue takes any request, so that none is too large for ever.
	if len(q.items) > 0 && (len(q.items) >= q.maxRequests || q.bytes+w.bytes > q.maxBytes) {
		return fault.New(fault.Unavailable, codeQueueFull, "too many appends are waiting; try again").WithRetryAfter(retryAfter)
	}
	q.items = append(q.items, w)
	q.bytes += w.bytes
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
	return len(q.items), q.bytes
}

// take fills group with the next requests in order of arrival: one oversize
// request alone, or as many others as a group may hold; oversize ones are passed
// over then and come first next time. It waits for the first request and returns
// nil when the queue is closed and empty. Requests whose callers gave up are
// dropped.
func (q *queue) take(group []*waiting) []*waiting {
	for {
		q.mu.Lock()
		group = q.fill(group[:0])
		closed := q.closed && len(q.items) == 0
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

func (q *queue) fill(group []*waiting) []*waiting {
	events, bytes := 0, 0
	kept := q.items[:0]
	full := false
	for i, w := range q.items {
		switch {
		case full:
		case w.state.Load() == stateAbandoned:
			q.bytes -= w.bytes
			continue
		case q.onePartition && len(group) > 0 && group[0].request.Partition != w.request.Partition:
			// Passed over: it comes first next time.
		case w.oversize():
			if len(group) > 0 {
				break
			}
			// Alone when it is the first; nothing else joins it.
			full = true
			if w.state.CompareAndSwap(stateWaiting, stateTaken) {
				group = append(group, w)
			}
			q.bytes -= w.bytes
			continue
		case events+len(w.request.Events) > maxGroupEvents || bytes+w.bytes > maxGroupBytes:
			full = true
		default:
			q.bytes -= w.bytes
			if w.state.CompareAndSwap(stateWaiting, stateTaken) {
				group = append(group, w)
				events += len(w.request.Events)
				bytes += w.bytes
			}
			continue
		}
		kept = append(kept, q.items[i])
	}
	clear(q.items[len(kept):])
	q.items = kept
	return group
}
