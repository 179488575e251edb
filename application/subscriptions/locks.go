package subscriptions

import (
	"context"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// wakeUps wakes the polls of this node that wait for a subscription.
type wakeUps struct {
	mu          sync.Mutex
	waiting     map[event.ID]chan struct{}
	subscribers map[event.ID]int
}

// subscribe returns a channel that is closed at the next wake; done must be called when
// the poll stops waiting.
func (w *wakeUps) subscribe(uid event.ID) (woken <-chan struct{}, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting, w.subscribers = map[event.ID]chan struct{}{}, map[event.ID]int{}
	}
	c := w.waiting[uid]
	if c == nil {
		c = make(chan struct{})
		w.waiting[uid] = c
	}
	w.subscribers[uid]++
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.subscribers[uid]--; w.subscribers[uid] <= 0 {
			delete(w.subscribers, uid)
			delete(w.waiting, uid)
		}
	}
}

func (w *wakeUps) wake(uid event.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[uid]; c != nil {
		close(c)
		w.waiting[uid] = make(chan struct{})
	}
}

// lockKey is a subscription in a partition.
type lockKey struct {
	uid       event.ID
	partition event.PartitionID
}

// partitionLocks queues the callers of this node that need the same row lock: a caller that
// waits here needs no database connection.
type partitionLocks struct {
	mu   sync.Mutex
	held map[lockKey]*partitionLock
}

type partitionLock struct {
	ports.Lock
	waiters int
}

func (l *partitionLocks) lock(ctx context.Context, at lockKey) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[lockKey]*partitionLock{}
	}
	t := l.held[at]
	if t == nil {
		t = &partitionLock{Lock: ports.NewLock()}
		l.held[at] = t
	}
	t.waiters++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.waiters--; t.waiters == 0 {
			delete(l.held, at)
		}
	}
	if err := t.Acquire(ctx); err != nil {
		leave()
		return nil, err
	}
	return func() { t.Release(); leave() }, nil
}
