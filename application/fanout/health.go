package fanout

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// healthStatus is the result of a health check and its time.
type healthStatus struct {
	at  time.Time
	err error
}

// Health returns an error if the loop is blocked, if leases could not be renewed, or if
// events of a legal entity wait and none was published for too long; nil also while the
// dispatcher does not run. A publisher that only lags is healthy. Fault publisher.stalled.
func (d *Dispatcher) Health() error {
	v := d.health.Load()
	if v == nil {
		return nil
	}
	if since := time.Since(v.at); since > d.StallAfter {
		return fault.New(fault.Unavailable, "publisher.stalled", "the publisher's loop is blocked for %s; restart this node", since.Round(time.Second))
	}
	return v.err
}

// updateHealth checks the partitions of this node. It is called with every renewal.
func (d *Dispatcher) updateHealth(heads map[event.PartitionID]ports.Head) {
	now := time.Now()
	v := &healthStatus{at: now}
	defer func() { d.health.Store(v) }()
	if since := now.Sub(d.renewedAt); since > d.StallAfter {
		v.err = fault.New(fault.Unavailable, "publisher.stalled", "the publisher's leases could not be renewed for %s; see that the database answers", since.Round(time.Second))
		return
	}
	stuck, longest, code := 0, time.Duration(0), ""
	for _, s := range d.held {
		switch {
		case s.begun && heads[s.partition].Sequence <= s.through:
			s.waitingSince, s.code = time.Time{}, ""
			continue
		case s.waitingSince.IsZero():
			s.waitingSince = now
		}
		if since := now.Sub(s.waitingSince); since > d.StallAfter {
			stuck++
			if since > longest {
				longest, code = since, s.code
			}
		}
	}
	switch {
	case stuck == 0:
	case code == "":
		v.err = fault.New(fault.Unavailable, "publisher.stalled", "events of %d legal entities wait and none was published for %s; restart this node", stuck, longest.Round(time.Second))
	default:
		v.err = fault.New(fault.Unavailable, "publisher.stalled", "events of %d legal entities wait and none was published for %s, the last failure is %s; see that the broker answers, and `backbone fanout status`",
			stuck, longest.Round(time.Second), code)
	}
}
