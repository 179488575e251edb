package subscriptions

import "time"

// SetIntervals shortens what no operator turns.
func (w *HeadWatcher) SetIntervals(minInterval, timeout time.Duration) {
	w.minInterval, w.timeout = minInterval, timeout
}

// SetStallAfter shortens the time until the health check fails.
func (s *Service) SetStallAfter(d time.Duration) { s.stallAfter = d }
