package memory

import (
	"context"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
)

// listener collects the partitions that grew until its goroutine reports them,
// so that an append never waits for a slow listener.
type listener struct {
	mu      sync.Mutex
	pending map[event.PartitionID]struct{}
	signal  chan struct{}
}

// Listen implements ports.WakeUps. It returns the context's error when ctx ends.
func (s *EventReader) Listen(ctx context.Context, wake func(event.PartitionID)) error {
	l := &listener{pending: map[event.PartitionID]struct{}{}, signal: make(chan struct{}, 1)}
	s.mu.Lock()
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.signal:
			for p := range l.take() {
				wake(p)
			}
		}
	}
}

func (l *listener) take() map[event.PartitionID]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = map[event.PartitionID]struct{}{}
	return taken
}

// wake tells the listeners that a partition grew; the caller holds the store's
// lock.
func (s *state) wake(p event.PartitionID) {
	for l := range s.listeners {
		l.mu.Lock()
		l.pending[p] = struct{}{}
		l.mu.Unlock()
		select {
		case l.signal <- struct{}{}:
		default: // a signal is waiting already
		}
	}
}
