package appender

import (
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// add advances the row by an accepted event, whose action checkStates has allowed.
func (s *streamRow) add(e *event.Prepared) {
	s.version++
	s.last = e.Sequence
	if e.Action() != event.DescribeStream {
		s.content = s.version
	}
	if e.Change == nil {
		s.state = event.StreamActive
		return
	}
	s.state, _ = s.state.After(e.Change.Action)
	s.changed = true
	if e.Change.Action == event.DescribeStream {
		s.settings, s.access = e.Change.Settings, string(e.Change.Access)
	}
}

// checkAccess checks the caller's roles against the access lists of the streams it writes.
func (g *group) checkAccess(r *ports.AppendRequest) *fault.Error {
	if r.Roles == nil {
		return nil
	}
	for i := range r.Events {
		e := &r.Events[i]
		if access := g.streamOf(streamKey{r.Partition, e.Stream}).access; access != "" {
			if f := stream.CheckAccess([]byte(access), stream.RightFor(e.Action()), r.Roles); f != nil {
				return f
			}
		}
	}
	return nil
}

// checkStates checks that every staged event may be written to its stream. Ordinary events
// of active streams, nearly all of them, cost one map lookup each.
func (g *group) checkStates(r *ports.AppendRequest, v *verdict) {
	staged := g.events[v.first:]
	for i := range staged {
		e := &staged[i]
		if e.Change != nil {
			g.checkChanges(r, staged, v)
			return
		}
		if row := g.streamOf(streamKey{r.Partition, e.Stream}); row.state > event.StreamActive {
			v.err, v.holder = concurrency.ActionRefused(e.Stream, row.state, event.AppendToStream), row.last
			// A later event of the request may recreate the stream, which does not help this one.
			return
		}
	}
}

// checkChanges is checkStates for a request that changes streams: it checks each event
// against the state that the request's earlier events leave.
func (g *group) checkChanges(r *ports.AppendRequest, staged []event.Prepared, v *verdict) {
	states := map[streamKey]event.StreamState{}
	for i := range staged {
		e := &staged[i]
		k := streamKey{r.Partition, e.Stream}
		state, known := states[k]
		var last event.Sequence
		if !known {
			row := g.streamOf(k)
			state, last = row.state, row.last
		}
		next, allowed := state.After(e.Action())
		if !allowed {
			v.err, v.holder = concurrency.ActionRefused(e.Stream, state, e.Action()), last
			return
		}
		states[k] = next
	}
}
