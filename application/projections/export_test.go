package projections

import "time"

// SetInterval changes how often rebuilds are advanced.
func (r *Rebuilds) SetInterval(d time.Duration) { r.interval = d }
