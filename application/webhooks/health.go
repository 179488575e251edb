package webhooks

import (
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Health says what is wrong with the deliveries of this node, nil if nothing is or it
// does not run: that it has not found out for too long which endpoints there are and
// whose they are. Endpoints that fail, or are far behind, are healthy. Fault
// webhook.stalled.
func (d *Dispatcher) Health() error {
	looked := d.lastReconcile.Load()
	if looked == nil {
		return nil
	}
	if since := time.Since(*looked); since > d.Stall {
		return fault.New(fault.Unavailable, "webhook.stalled", "for %s nobody has looked after this node's webhooks; see that the database answers, then restart this node", since.Round(time.Second))
	}
	return nil
}

// recordReconcile notes a look that succeeded.
func (d *Dispatcher) recordReconcile() {
	now := time.Now() // by this process's own monotonic clock
	d.lastReconcile.Store(&now)
}
