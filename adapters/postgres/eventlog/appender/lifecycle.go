package appender

import (
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// streamChange holds the lifecycle and metadata columns that a group changes in a stream's
// row. It is never changed in place, because copies of the row point to it.
type streamChange struct {
	readableFrom    event.Version // 0: unchanged
	metadataVersion event.Version // 0: metadata unchanged
	settings        []byte
}

// add advances the row by an accepted event, whose action checkStates has allowed.
func (s *streamRow) add(e *event.Prepared) {
	s.version++
	s.last = e.Sequence
	if s.first == 0 {
		s.first = e.Sequence
	}
	if e.Action() != event.DescribeStream {
		s.content = s.version
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

// fill adds the parameters that UpsertStreamVersions lacks and ChangeStreams has.
func (s *streamChange) fill(row *rowSet, state event.StreamState) {
	lifecycle := row.next()
	if state == event.StreamActive {
		lifecycle.Null()
	} else {
		lifecycle.Text(state.String())
	}
	version := func(c *pg.Column, v event.Version) {
		if v == 0 {
			c.Null()
		} else {
			c.Int8(int64(v))
		}
	}
	version(row.next(), s.readableFrom)
	row.next().JSON(s.settings)
	version(row.next(), s.metadataVersion)
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
