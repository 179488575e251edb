package memory

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// writeLock is held by the one caller that writes, such as read models. As a database ends the transaction
// of a process that has stopped, a caller that holds the lock longer than limit loses it to the next
// one, and commits nothing.
type writeLock struct {
	limit time.Duration // 0: none
	first chan struct{} // holds a token of the caller that is next: the others come after it, in their order

	mu       sync.Mutex
	turns    uint64 // callers that have held it
	holder   uint64 // the turn of the one that holds it; 0: it is free
	since    time.Time
	released chan struct{} // closed when the holder gives it back
}

func newWriteLock(limit time.Duration) *writeLock {
	return &writeLock{limit: limit, first: make(chan struct{}, 1), released: make(chan struct{})}
}

// acquire waits for the lock, for at most wait if it is positive: projection.busy.
func (l *writeLock) acquire(ctx context.Context, wait time.Duration) (turn uint64, err error) {
	var over <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-over:
		return 0, projection.Busy()
	case l.first <- struct{}{}:
	}
	defer func() { <-l.first }()
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		turn, released, rest := l.take()
		if turn != 0 {
			return turn, nil
		}
		var ended <-chan time.Time
		if l.limit > 0 {
			t := time.NewTimer(rest)
			defer t.Stop()
			ended = t.C
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-released:
		case <-ended:
		case <-over:
			return 0, projection.Busy()
		}
	}
}

// take takes the lock if it is free or its holder has had it too long; else it tells when the holder
// gives it back, and in which time that has to be.
func (l *writeLock) take() (turn uint64, released <-chan struct{}, rest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rest = l.limit - time.Since(l.since); l.holder != 0 && (l.limit == 0 || rest > 0) {
		return 0, l.released, rest
	}
	l.turns++
	l.holder, l.since = l.turns, time.Now()
	return l.holder, nil, 0
}

// check refuses a caller that has lost the lock.
func (l *writeLock) check(turn uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != turn {
		return fault.New(fault.Unavailable, "store.unavailable", "the transaction lasted too long and was ended; try again")
	}
	return nil
}

func (l *writeLock) release(turn uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == turn {
		l.holder = 0
		close(l.released)
		l.released = make(chan struct{})
	}
}
