package memory

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// EventReader reads and searches events, and reports new ones.
type EventReader struct{ *state }

// Audit reads the chain of a partition for a verification.
type Audit struct{ *state }

func eventNotFound(id event.ID) error {
	return fault.New(fault.NotFound, "event.not_found", "there is no event %s in this legal entity; check the id and the legal entity", id)
}

// EventByID implements ports.EventReader.
func (s *EventReader) EventByID(ctx context.Context, partitionID event.PartitionID, id event.ID) (event.Recorded, error) {
	return readPartition(ctx, s.state, partitionID, func(p *partition) (event.Recorded, error) {
		if p.byID[id] == 0 {
			return event.Recorded{}, eventNotFound(id)
		}
		return cloneRecorded(p.at(p.byID[id]), true), nil
	})
}

// TypesOf implements ports.EventReader.
func (s *EventReader) TypesOf(ctx context.Context, events []ports.Cause) (map[ports.Cause]string, error) {
	return get(ctx, s.state, func() (map[ports.Cause]string, error) {
		out := make(map[ports.Cause]string, len(events))
		for _, e := range events {
			if p := s.partitions[e.Partition]; p != nil && p.byID[e.ID] > 0 {
				out[e] = p.at(p.byID[e.ID]).Type
			}
		}
		return out, nil
	})
}

// EventsOfStream implements ports.EventReader. A limit of 0 reads to the end.
func (s *EventReader) EventsOfStream(ctx context.Context, id event.PartitionID, stream event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	out, _, err := s.ReadStream(ctx, ports.StreamQuery{Partition: id, Stream: stream, From: from, Limit: limit})
	return out, err
}

// candidates are the ascending sequences inside the query's bounds, through the
// key index when a key is asked for.
func (p *partition) candidates(q *ports.EventQuery) []event.Sequence {
	low, high := max(q.From, 1), event.Sequence(len(p.events))
	if q.Until != 0 {
		high = min(high, q.Until)
	}
	if q.To != 0 {
		high = min(high, q.To)
	}
	if q.Direction == ports.Forward {
		low = max(low, q.After+1)
	} else if q.After != 0 {
		high = min(high, q.After-1)
	}
	if q.Key != "" {
		return slices.DeleteFunc(slices.Clone(p.byKey[q.Key]), func(n event.Sequence) bool { return n < low || n > high })
	}
	out := make([]event.Sequence, 0, max(high+1, low)-low)
	for n := low; n <= high; n++ {
		out = append(out, n)
	}
	return out
}

func matches(q *ports.EventQuery, e *event.Recorded) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) &&
		same(q.CorrelationID, e.CorrelationID) && same(q.ActorID, e.ActorID) &&
		within(e.OccurredAt, q.OccurredFrom, q.OccurredTo) &&
		within(e.RecordedAt, q.RecordedFrom, q.RecordedTo) &&
		(q.EffectiveFrom == nil || e.EffectiveDate >= *q.EffectiveFrom) &&
		(q.EffectiveTo == nil || e.EffectiveDate <= *q.EffectiveTo) &&
		same(q.Division, e.Scope.Division) && same(q.Region, e.Scope.Region) && same(q.Site, e.Scope.Site) &&
		same(q.Source.System, e.Source.System) && same(q.Source.Channel, e.Source.Channel) && same(q.Source.Reference, e.Source.Reference) &&
		(q.SchemaVersion == 0 || q.SchemaVersion == e.SchemaVersion) &&
		hasDimension(q, e) && (q.Predicate == nil || q.Predicate.Matches(e.Payload))
}

func hasDimension(q *ports.EventQuery, e *event.Recorded) bool {
	if q.Dimension.Name == "" {
		return true
	}
	body, err := e.Body()
	value, found := body.Dimensions[q.Dimension.Name]
	return err == nil && found && value == q.Dimension.Value
}

// within reports from <= t < to; a zero bound is open.
func within(t, from, to time.Time) bool {
	return (from.IsZero() || !t.Before(from)) && (to.IsZero() || t.Before(to))
}

// Head implements ports.EventReader.
func (s *EventReader) Head(ctx context.Context, id event.PartitionID) (ports.Head, error) {
	return get(ctx, s.state, func() (ports.Head, error) {
		p, known := s.partitions[id]
		if !known {
			return ports.Head{}, unknownLegalEntity()
		}
		return p.head(), nil
	})
}

// Heads implements ports.EventReader.
func (s *EventReader) Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.Head, error) {
	return get(ctx, s.state, func() (map[event.PartitionID]ports.Head, error) {
		out := make(map[event.PartitionID]ports.Head, len(partitions))
		for _, id := range partitions {
			if p, known := s.partitions[id]; known {
				out[id] = p.head()
			}
		}
		return out, nil
	})
}

// PartitionHeads implements ports.HeadReader.
func (s *EventReader) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	return get(ctx, s.state, func() (map[event.PartitionID]ports.Head, error) {
		out := make(map[event.PartitionID]ports.Head, len(s.partitions))
		for id, p := range s.partitions {
			head := p.head()
			head.Administrative = p.legalEntity.IsAdministrative()
			out[id] = head
		}
		return out, nil
	})
}

// RecordedAt implements ports.LogPositions.
func (s *EventReader) RecordedAt(ctx context.Context, positions []ports.EventPosition) (map[ports.EventPosition]time.Time, error) {
	return get(ctx, s.state, func() (map[ports.EventPosition]time.Time, error) {
		out := make(map[ports.EventPosition]time.Time, len(positions))
		for _, at := range positions {
			if p := s.partitions[at.Partition]; p != nil && at.Sequence > 0 && at.Sequence <= event.Sequence(len(p.events)) {
				out[at] = p.at(at.Sequence).RecordedAt
			}
		}
		return out, nil
	})
}

// SequenceAt implements ports.EventReader.
func (s *EventReader) SequenceAt(ctx context.Context, id event.PartitionID, t time.Time) (event.Sequence, error) {
	return readPartition(ctx, s.state, id, func(p *partition) (event.Sequence, error) {
		// recorded_at never goes backwards, so the events are sorted by it.
		return event.Sequence(sort.Search(len(p.events), func(i int) bool { return p.events[i].RecordedAt.After(t) })), nil
	})
}

// Lineage implements ports.CausalityReader. maxDepth counts the causes that are
// followed; the event itself is always there.
func (s *EventReader) Lineage(ctx context.Context, partitionID event.PartitionID, id event.ID, maxDepth, bytes int) (chain []event.Recorded, truncated bool, err error) {
	err = s.read(ctx, partitionID, func(p *partition) error {
		if p.byID[id] == 0 {
			return eventNotFound(id)
		}
		for n := p.byID[id]; ; {
			e := p.at(n)
			chain = append(chain, cloneRecorded(e, true))
			cause := p.byID[e.CausedBy]
			// A cause is older than its effect; anything else would be a cycle.
			if e.CausedByPartition != 0 || cause == 0 || cause >= n {
				break
			}
			if len(chain) > maxDepth {
				truncated = true
				break
			}
			n = cause
		}
		kept := withinBytes(chain, bytes, nil)
		truncated = truncated || len(kept) < len(chain)
		chain = kept
		slices.Reverse(chain)
		return nil
	})
	return chain, truncated, err
}

// ChainPage implements ports.ChainReader. A limit of 0 reads to the end.
func (s *Audit) ChainPage(ctx context.Context, id event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	return s.reader().Events(ctx, ports.EventQuery{Partition: id, After: after, Limit: limit})
}

// Events implements ports.EventReader. A limit of 0 reads to the end.
func (s *EventReader) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	found, err := s.SearchEvents(ctx, q, 0)
	return found.Events, err
}

// SearchEvents implements ports.EventSearcher. A scan of 0 reads to the end. Its
// candidates are all events inside the bounds, or those with the key.
func (s *EventReader) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	return readPartition(ctx, s.state, q.Partition, func(p *partition) (ports.EventScan, error) {
		var out ports.EventScan
		candidates, found := p.candidates(&q), []*event.Recorded{}
		for i := range candidates {
			n := candidates[i]
			if q.Direction == ports.Backward {
				n = candidates[len(candidates)-1-i]
			}
			if full(len(found), q.Limit) {
				break
			}
			if scan > 0 && i >= scan {
				out.Stopped = true
				break
			}
			out.Reached = n
			if e := p.at(n); matches(&q, e) {
				found = append(found, e)
			}
		}
		out.Events = make([]event.Recorded, len(found))
		for i, e := range found {
			out.Events[i] = cloneRecorded(e, !q.WithoutData)
		}
		if kept := withinBytes(out.Events, q.Bytes, nil); len(kept) < len(out.Events) {
			out.Events, out.Stopped, out.Reached = kept, true, kept[len(kept)-1].Sequence
		}
		return out, nil
	})
}

// ReadStream implements ports.StreamReader. A limit of 0 reads to the end.
func (s *EventReader) ReadStream(ctx context.Context, q ports.StreamQuery) (out []event.Recorded, more bool, err error) {
	out = []event.Recorded{}
	err = s.read(ctx, q.Partition, func(p *partition) error {
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

// Descendants implements ports.CausalityReader. A limit of 0 reads to the end.
func (s *EventReader) Descendants(ctx context.Context, q ports.DescendantQuery) (found []ports.Descendant, more bool, err error) {
	found = []ports.Descendant{}
	err = s.read(ctx, q.Partition, func(p *partition) error {
		effects, bytes := p.effects(q.Partition), 0
		level := map[event.Sequence]bool{}
		for _, c := range q.Causes {
			for _, n := range effects[c] {
				level[n] = true
			}
		}
		for depth := 1; depth <= q.MaxDepth && len(level) > 0; depth++ {
			next := map[event.Sequence]bool{}
			for n := event.Sequence(1); n <= event.Sequence(len(p.events)); n++ {
				if !level[n] {
					continue
				}
				e := cloneRecorded(p.at(n), !q.WithoutData)
				bytes += len(e.Payload)
				if more = full(len(found), q.Limit) || q.Bytes > 0 && bytes > q.Bytes && len(found) > 0; more {
					return nil
				}
				found = append(found, ports.Descendant{Event: e, Depth: depth})
				if n != q.Stop {
					for _, effect := range effects[ports.Cause{Partition: q.Partition, ID: e.ID}] {
						next[effect] = true
					}
				}
			}
			level = next
		}
		return nil
	})
	return found, more, err
}

// effects lists the events of this partition by their cause.
func (p *partition) effects(own event.PartitionID) map[ports.Cause][]event.Sequence {
	out := map[ports.Cause][]event.Sequence{}
	for i := range p.events {
		e := &p.events[i]
		if e.CausedBy == (event.ID{}) {
			continue
		}
		c := ports.Cause{Partition: own, ID: e.CausedBy}
		if e.CausedByPartition != 0 {
			c.Partition = e.CausedByPartition
		}
		out[c] = append(out[c], e.Sequence)
	}
	return out
}

// Matches implements ports.MatchReader.
func (s *EventReader) Matches(ctx context.Context, q ports.MatchQuery) (ports.MatchPage, error) {
	return readPartition(ctx, s.state, q.Partition, func(p *partition) (ports.MatchPage, error) {
		page, bytes := ports.MatchPage{Matches: []ports.Match{}, Through: max(q.After, q.Until)}, 0
		lists := make([][][]event.Sequence, len(q.Items))
		for i := range q.Items {
			for _, key := range q.Items[i].Keys() {
				lists[i] = append(lists[i], p.byKey[key])
			}
		}
		for n := q.After + 1; n <= min(q.Until, event.Sequence(len(p.events))); n++ {
			items := p.matching(q.Items, lists, n)
			if len(items) == 0 {
				continue
			}
			e := cloneRecorded(p.at(n), !q.WithoutData)
			bytes += len(e.Payload)
			if found := len(page.Matches); full(found, max(q.Limit, 1)) || q.Bytes > 0 && bytes > q.Bytes && found > 0 {
				page.Through = page.Matches[found-1].Event.Sequence
				break
			}
			page.Matches = append(page.Matches, ports.Match{Event: e, Items: items})
		}
		return page, nil
	})
}

// matching gives the indexes of the items that the event matches.
func (p *partition) matching(items []concurrency.Item, lists [][][]event.Sequence, n event.Sequence) []int {
	var out []int
	for i := range items {
		if p.hasType(n, items[i].Types) && inAll(lists[i], n) {
			out = append(out, i)
		}
	}
	return out
}

// withinBytes cuts events off where their payloads add up to more than the bytes; the first
// event stays however large it is. With types given only their payloads count. 0 bytes are
// no bound.
func withinBytes(events []event.Recorded, bytes int, types []string) []event.Recorded {
	total := 0
	for i := range events {
		if len(types) == 0 || slices.Contains(types, events[i].Type) {
			total += len(events[i].Payload)
		}
		if bytes > 0 && i > 0 && total > bytes {
			return events[:i]
		}
	}
	return events
}

// listener collects the partitions that grew until its goroutine reports them,
// so that an append never waits for a slow listener.
type listener struct {
	mu      sync.Mutex
	pending map[event.PartitionID]struct{}
	signal  chan struct{}
}

// Listen implements ports.WakeUps. It returns the context's error when ctx ends.
func (s *EventReader) Listen(ctx context.Context, wake func(event.PartitionID)) error {
	l := &listener{pending: map[event.PartitionID]struct{}{}, signal: make(chan struct{}, 1)}
	s.mu.Lock()
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.signal:
			for p := range l.take() {
				wake(p)
			}
		}
	}
}

func (l *listener) take() map[event.PartitionID]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = map[event.PartitionID]struct{}{}
	return taken
}

// wake notifies the listeners that a partition grew. It is called with the lock held.
func (s *state) wake(p event.PartitionID) {
	for l := range s.listeners {
		l.mu.Lock()
		l.pending[p] = struct{}{}
		l.mu.Unlock()
		select {
		case l.signal <- struct{}{}:
		default: // a signal is waiting already
		}
	}
}
