package subscriptions

import (
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Health says what is wrong with the subscriptions of this node, nil if nothing is or it
// does not run: that what was handed out and not answered in time has not been looked
// at for too long. Subscribers that are far behind are healthy. Fault
// subscription.stalled.
func (s *Service) Health() error {
	swept := s.lastExpiry.Load()
	if swept == nil {
		return nil
	}
	if since := time.Since(*swept); since > max(s.stallAfter, 3*s.config.ExpireInterval) {
		return fault.New(fault.Unavailable, "subscription.stalled", "expired leases have not been looked for in %s; see that the database answers, then restart this node", since.Round(time.Second))
	}
	return nil
}

// recordExpiry notes a sweep that succeeded.
func (s *Service) recordExpiry() {
	now := time.Now() // by this process's own monotonic clock
	s.lastExpiry.Store(&now)
}
