package ports

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// Clock tells the time.
type Clock interface{ Now() time.Time }

// IDSource makes ULIDs, strictly increasing within the process, and salts.
type IDSource interface {
	NewID(at time.Time) event.ID
	NewSalt() event.Salt
}
