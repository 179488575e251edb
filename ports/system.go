package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// Clock tells the time.
type Clock interface{ Now() time.Time }

// Sleep waits for d and returns the context's error if that ends first. It uses the
// runtime's timers, which testing/synctest replaces.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Done() == nil { // as of context.WithoutCancel
		time.Sleep(d)
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// IDSource makes ULIDs, strictly increasing within the process, and salts.
type IDSource interface {
	NewID(at time.Time) event.ID
	NewSalt() event.Salt
}

// TryReceive takes a value from a channel without waiting, and reports whether there was one or the
// channel is closed. A select takes any case that is ready; a loop that has to take one of them
// first asks for it before it waits.
func TryReceive[T any](c <-chan T) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Lock is held by one caller at a time. Waiting for it ends with the caller's context, unlike waiting
// for a sync.Mutex, so a Lock may be held during calls of ports.
type Lock chan struct{}

// NewLock makes a free Lock.
func NewLock() Lock { return make(Lock, 1) }

// Acquire waits for the lock. It returns the context's error if that ends first.
func (l Lock) Acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release gives the lock back.
func (l Lock) Release() { <-l }
