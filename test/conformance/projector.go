package conformance

import (
	"time"

	"github.com/erpbackbone/backbone/application/projections"
)

// ProjectorLimits are limits of a projections.Runner that no test of another behaviour meets.
// change adapts them; nil: no change.
func ProjectorLimits(change func(*projections.Limits)) projections.Limits {
	l := projections.Limits{
		Batch: 500, Bytes: 16 << 20, Workers: 4, Refresh: time.Second, TTL: 10 * time.Second, Renew: 3 * time.Second, Stall: 30 * time.Second,
	}
	if change != nil {
		change(&l)
	}
	return l
}
