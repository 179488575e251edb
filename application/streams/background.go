// Package snapshot keeps states that clients store for their streams, and does the
// work of taking snapshots beside the requests.
package streams

import (
	"context"
	"sync"
	"time"
)

// Bounds of work beside the requests.
const (
	backgroundWorkers = 2
	backgroundTimeout = 30 * time.Second
)

// Background does work that nobody waits for: a little at a time, and what is too
// much is dropped, because a later read asks for it again. It must be closed.
type Background struct {
	ctx     context.Context
	end     context.CancelFunc
	slots   chan struct{}
	jobs    sync.WaitGroup
	mu      sync.Mutex
	running map[string]bool
	closed  bool
}

// NewBackground is ready at once.
func NewBackground() *Background {
	ctx, end := context.WithCancel(context.Background())
	return &Background{ctx: ctx, end: end, slots: make(chan struct{}, backgroundWorkers), running: map[string]bool{}}
}

// Do runs f, unless something runs under the key already, too much is under way, or
// Close was called; it tells whether it does.
func (b *Background) Do(key string, f func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.running[key] {
		return false
	}
	select {
	case b.slots <- struct{}{}:
	default:
		return false
	}
	b.running[key] = true
	b.jobs.Go(func() {
		defer func() {
			b.mu.Lock()
			delete(b.running, key)
			b.mu.Unlock()
			<-b.slots
		}()
		ctx, cancel := context.WithTimeout(b.ctx, backgroundTimeout)
		defer cancel()
		f(ctx)
	})
	return true
}

// Close ends what is under way and waits for it.
func (b *Background) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.jobs.Wait()
}

// Wait returns when nothing is under way.
func (b *Background) Wait() { b.jobs.Wait() }
