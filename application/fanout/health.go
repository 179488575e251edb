package fanout

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// verdict is the health of the loop at a moment.
type verdict struct {
	at  time.Time
	err error
}

// Health returns an error if the loop is blocked, if leases could not be renewed, or if
// events of a legal entity wait and none was published for too long; nil also while the
// dispatcher does not run. A publisher that only lags is healthy. Fault publisher.stalled.
func (d *Dispatcher) Health() error {
	v := d.verdict.Load()
	if v == nil {
		return nil
	}
	if since := time.Since(v.at); since > d.Stall {
		return fault.New(fault.Unavailable, "publisher.stalled", "the publisher's loop is blocked for %s; restart this node", since.Round(time.Second))
	}
	return v.err
}

// updateHealth checks the partitions of this node. It is called with every renewal.
func (d *Dispatcher) updateHealth(heads map[event.PartitionID]ports.Head) {
	now := time.Now()
	v := &verdict{at: now}
	defer func() { d.verdict.Store(v) }()
	if since := now.Sub(d.renewed); since > d.Stall {
		v.err = fault.New(fault.Unavailable, "publisher.stalled", "the publisher's leases could not be renewed for %s; see that the database answers", since.Round(time.Second))
		return
	}
	stuck, longest, code := 0, time.Duration(0), ""
	for _, s := range d.held {
		switch {
		case s.begun && heads[s.partition].Sequence <= s.through:
			s.waiting, s.code = time.Time{}, ""
			continue
		case s.waiting.IsZero():
			s.waiting = now
		}
		if since := now.Sub(s.waiting); since > d.Stall {
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
