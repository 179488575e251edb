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
