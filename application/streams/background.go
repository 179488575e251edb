package streams

import (
	"context"
	"sync"
	"time"
)

// Bounds of background work.
const (
	backgroundWorkers = 2
	backgroundTimeout = 30 * time.Second
)

// Background runs jobs that no request waits for, a few at a time. Jobs beyond that are
// dropped, because a later read requests them again. It must be closed.
type Background struct {
	ctx     context.Context
	end     context.CancelFunc
	slots   chan struct{}
	jobs    sync.WaitGroup
	mu      sync.Mutex
	running map[string]bool
	closed  bool
}

// NewBackground makes a Background.
func NewBackground() *Background {
	ctx, end := context.WithCancel(context.Background())
	return &Background{ctx: ctx, end: end, slots: make(chan struct{}, backgroundWorkers), running: map[string]bool{}}
}

// Do starts f and reports true, unless a job with the same key is running, all workers are
// busy, or Close was called.
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

// Close cancels the running jobs and waits for them.
func (b *Background) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.jobs.Wait()
}

// Wait returns when no job is running.
func (b *Background) Wait() { b.jobs.Wait() }
