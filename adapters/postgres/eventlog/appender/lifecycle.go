package appender

import (
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// streamChange is what a group changes of a stream beyond its version. It is never
// changed in place: rows that were copied before still point to it.
type streamChange struct {
	readableFrom    event.Version // 0: as it was
	metadataVersion event.Version // 0: metadata as they were
	settings        []byte
}

// add counts an event in. Its action has been found possible.
func (s *streamRow) add(e *event.Prepared) {
	s.version++
	s.last = e.Sequence
	if s.first == 0 {
		s.first = e.Sequence
	}
	if e.Change == nil {
		s.state = event.StreamActive
		return
	}
	s.state, _ = s.state.After(e.Change.Action)
	var change streamChange
	if s.change != nil {
		change = *s.change
	}
	switch e.Change.Action {
	case event.RecreateStream:
		change.readableFrom = s.version
	case event.DescribeStream:
		change.metadataVersion, change.settings = s.version, e.Change.Settings
		s.access = string(e.Change.Access)
	}
	s.change = &change
}

// fill writes the columns that only changed streams have.
func (s *streamChange) fill(c []*pg.Column, state event.StreamState) {
	if state == event.StreamActive {
		c[0].Null()
	} else {
		c[0].Text(state.String())
	}
	version := func(c *pg.Column, v event.Version) {
		if v == 0 {
			c.Null()
		} else {
			c.Int8(int64(v))
		}
	}
	version(c[1], s.readableFrom)
	c[2].JSON(s.settings)
	version(c[3], s.metadataVersion)
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
			// An event behind it may recreate the stream, but not for this one.
			return
		}
	}
}

// checkChanges is checkStates for a request that changes streams: each event finds
// its stream as the events before it leave it.
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
