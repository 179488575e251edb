package memory

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Events implements ports.EventReader. A limit of 0 reads to the end.
func (s *Store) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	found, err := s.SearchEvents(ctx, q, 0)
	return found.Events, err
}

// SearchEvents implements ports.EventSearcher. A scan of 0 reads to the end. Its
// candidates are all events inside the bounds, or those with the key.
func (s *Store) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	out := ports.EventScan{Events: []event.Recorded{}}
	err := s.read(ctx, q.Partition, func(p *partition) error {
		if p == nil {
			return nil
		}
		candidates := p.candidates(&q)
		for i := range candidates {
			n := candidates[i]
			if q.Direction == ports.Backward {
				n = candidates[len(candidates)-1-i]
			}
			if full(len(out.Events), q.Limit) {
				break
			}
			if scan > 0 && i >= scan {
				out.Stopped = true
				break
			}
			out.Reached = n
			if e := p.at(n); selects(&q, e) {
				out.Events = append(out.Events, cloneRecorded(e, !q.WithoutData))
			}
		}
		if kept := withinBytes(out.Events, q.Bytes, nil); len(kept) < len(out.Events) {
			out.Events, out.Stopped, out.Reached = kept, true, kept[len(kept)-1].Sequence
		}
		return nil
	})
	return out, err
}

// selectsMore answers the filters that need more than the oldest columns.
func selectsMore(q *ports.EventQuery, e *event.Recorded) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	if !same(q.Division, e.Scope.Division) || !same(q.Region, e.Scope.Region) || !same(q.Site, e.Scope.Site) ||
		!same(q.Source.System, e.Source.System) || !same(q.Source.Channel, e.Source.Channel) || !same(q.Source.Reference, e.Source.Reference) ||
		(q.SchemaVersion != 0 && q.SchemaVersion != e.SchemaVersion) {
		return false
	}
	if q.Dimension.Name != "" {
		body, err := e.Body()
		if value, there := body.Dimensions[q.Dimension.Name]; err != nil || !there || value != q.Dimension.Value {
			return false
		}
	}
	return q.Predicate == nil || q.Predicate.Matches(e.Payload)
}

// ReadStream implements ports.StreamReader. A limit of 0 reads to the end.
func (s *Store) ReadStream(ctx context.Context, q ports.StreamQuery) (out []event.Recorded, more bool, err error) {
	out = []event.Recorded{}
	err = s.read(ctx, q.Partition, func(p *partition) error {
		if p == nil {
			return nil
		}
		sequences := p.byStream[q.Stream]
		last := event.Version(len(sequences))
		v := max(q.From, 1)
		if q.Direction == ports.Backward && (q.From == 0 || q.From > last) {
			v = last
		}
		for v >= 1 && v <= last && !full(len(out), q.Limit) {
			e := p.at(sequences[v-1])
			if (q.Until == 0 || e.Sequence <= q.Until) && (q.EffectiveTo == nil || e.EffectiveDate <= *q.EffectiveTo) {
				out = append(out, cloneRecorded(e, !q.WithoutData))
			}
			if q.Direction == ports.Backward {
				v--
			} else {
				v++
			}
		}
		kept := withinBytes(out, q.Bytes, nil)
		out, more = kept, len(kept) < len(out)
		return nil
	})
	return out, more, err
}
