package fanout

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// verdict is what the loop found out about itself, and when.
type verdict struct {
	at  time.Time
	err error
}

// Health says what is wrong with what this node publishes, nil if nothing is or it does
// not run: that its loop stands still, that its leases could not be renewed, or that
// events wait and nothing of their legal entity was published for too long. A publisher
// that is only behind is healthy. Fault publisher.stalled.
func (d *Dispatcher) Health() error {
	v := d.verdict.Load()
	if v == nil {
		return nil
	}
	if since := time.Since(v.at); since > d.Stall {
		return fault.New(fault.Unavailable, "publisher.stalled", "the publisher's loop has not gone round for %s; restart this node", since.Round(time.Second))
	}
	return v.err
}

// updateHealth looks at what is held. It is called with every renewal.
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
