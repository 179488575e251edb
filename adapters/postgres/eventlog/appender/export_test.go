package appender

import (
	"slices"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/ports"
)

// SameDatabase is sameDatabase.
var SameDatabase = sameDatabase

// Queued is how many requests wait for all appenders of a store.
func Queued(s *Engine) int {
	n := 0
	for _, a := range s.appenders {
		requests, _ := a.queue.depth()
		n += requests
	}
	return n
}

// LockWait is how long an appender waits for a lock.
func LockWait(s *Engine) time.Duration { return s.lockWait() }

// SetMaxWait sets how long requests of stalled partitions that arrive from now on wait for
// locks.
func SetMaxWait(s *Engine, d time.Duration) {
	for _, a := range s.appenders {
		a.queue.mu.Lock()
		a.queue.maxWait = d
		a.queue.mu.Unlock()
	}
}

// Deadlines lists the deadlines of the requests of stalled partitions.
func Deadlines(s *Engine) (until []time.Time) {
	for _, a := range s.appenders {
		a.queue.mu.Lock()
		for _, d := range a.queue.stalled {
			for _, w := range slices.Concat(d.nextGroup, d.later) {
				until = append(until, w.deadline)
			}
		}
		a.queue.mu.Unlock()
	}
	return until
}

// Gather calls gather and admits the requests for which may reports true.
func Gather(requests []*ports.AppendRequest, may func(*ports.AppendRequest) bool) (group, kept []*ports.AppendRequest) {
	var items []*queuedRequest
	for _, r := range requests {
		items = append(items, &queuedRequest{request: r})
	}
	taken, left := gather(nil, items, &pg.Limits{GroupEvents: 512, GroupBytes: 4 << 20, OversizeBytes: 512 << 10}, false, func(w *queuedRequest) bool { return may(w.request) }, func(*queuedRequest) {})
	for _, w := range taken {
		group = append(group, w.request)
	}
	for _, w := range left {
		kept = append(kept, w.request)
	}
	return group, kept
}
