package query

import (
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// GlobalOrder reads the one order of all events.
type GlobalOrder struct {
	service *Service
	global  ports.GlobalOrder
}

// NewGlobalOrder makes a GlobalOrder over the log of a Service.
func NewGlobalOrder(s *Service, global ports.GlobalOrder) *GlobalOrder {
	return &GlobalOrder{s, global}
}

// GlobalQuery asks for a page of the one order of all events.
type GlobalQuery struct {
	TenantID    string
	Readable    []string           // legal entities the caller may see; empty: all of the tenant
	From        globallog.Position // of the first event that may be on the page; globallog.End: the last one, backward only
	Direction   ports.Direction
	Count       int
	WithoutData bool
}

// GlobalPage is a page of events by position, with the way on.
type GlobalPage struct {
	Events  []event.Recorded // by position in the query's direction; between them are events that the caller does not see
	HasMore bool
	// Next is where the next page begins, also after the last page forward, for a later one.
	Next globallog.Position
	// NextCursor is the cursor of feeds that goes on after the last page forward: with it Feed has
	// every event that was not in the global log yet. "" otherwise.
	NextCursor string
}

// Read reads the events that are in the global log, in its order: of all legal entities that the caller may
// see, forward or backward. An event that was recorded lately is not in it yet. Faults: global_log.beyond_end for
// a position after the end.
func (s *GlobalOrder) Read(ctx context.Context, q GlobalQuery) (GlobalPage, error) {
	if q.Count < 1 {
		return GlobalPage{}, fault.New(fault.Invalid, "request.parameter_invalid", "a page holds at least one event; correct the count").WithField("count")
	}
	size, err := s.global.GlobalSize(ctx)
	if err != nil {
		return GlobalPage{}, err
	}
	end := globallog.Position(size)
	switch {
	case q.Direction == ports.Forward && q.From > end:
		return GlobalPage{}, ports.GlobalLogTooShort().WithField("from")
	case q.Direction == ports.Backward && size == 0:
		return GlobalPage{Events: []event.Recorded{}}, nil
	case q.Direction == ports.Backward:
		q.From = min(q.From, end-1)
	}
	entities, err := s.service.readableEntities(ctx, q.TenantID, q.Readable)
	if err != nil {
		return GlobalPage{}, err
	}
	query := ports.GlobalRangeQuery{From: q.From, Direction: q.Direction, Limit: q.Count + 1}
	for _, le := range entities {
		query.Partitions = append(query.Partitions, le.Partition)
	}
	ranges, err := s.global.GlobalRanges(ctx, query)
	if err != nil {
		return GlobalPage{}, err
	}
	pieces, more := cutRanges(ranges, q, end)
	page, err := s.readPieces(ctx, pieces, q)
	if err != nil {
		return GlobalPage{}, err
	}
	page.HasMore = page.HasMore || more
	if !page.HasMore && q.Direction == ports.Forward {
		page.Next = end
		page.NextCursor, err = s.cursorAt(ctx, q.TenantID, entities, end)
	}
	return page, err
}

// CursorAt is the cursor of feeds that goes on with the events from a position on. Faults: global_log.beyond_end for a position
// after the end.
func (s *GlobalOrder) CursorAt(ctx context.Context, tenantID string, readable []string, from globallog.Position) (string, error) {
	size, err := s.global.GlobalSize(ctx)
	if err != nil {
		return "", err
	}
	if uint64(from) > size {
		return "", ports.GlobalLogTooShort().WithField("position")
	}
	entities, err := s.service.readableEntities(ctx, tenantID, readable)
	if err != nil {
		return "", err
	}
	return s.cursorAt(ctx, tenantID, entities, from)
}

// cutRanges cuts ranges to what a page has, before an end, and reports whether events are left.
func cutRanges(ranges []globallog.Range, q GlobalQuery, end globallog.Position) (pieces []globallog.Range, more bool) {
	left := uint64(q.Count)
	for _, r := range ranges {
		if r.First >= end { // the log has grown since its size was read
			return pieces, false
		}
		if left == 0 {
			return pieces, true
		}
		r.Count = min(r.Count, uint64(end-r.First))
		skipped := uint64(0)
		if q.Direction == ports.Forward && r.First < q.From {
			skipped = uint64(q.From - r.First)
		}
		if q.Direction == ports.Backward && r.End() > q.From+1 {
			r.Count = uint64(q.From-r.First) + 1
		}
		taken := min(r.Count-skipped, left)
		if more = taken < r.Count-skipped; more && q.Direction == ports.Backward {
			skipped = r.Count - taken
		}
		left -= taken
		pieces = append(pieces, globallog.Range{First: r.First + globallog.Position(skipped), Partition: r.Partition, Sequence: r.Sequence + event.Sequence(skipped), Count: taken})
		if more {
			return pieces, true
		}
	}
	return pieces, false
}

// readPieces reads the events of a page. The page ends before the first event that its bytes do not allow.
func (s *GlobalOrder) readPieces(ctx context.Context, pieces []globallog.Range, q GlobalQuery) (GlobalPage, error) {
	found, err := s.eventsOf(ctx, pieces, q)
	if err != nil {
		return GlobalPage{}, err
	}
	page := GlobalPage{Events: []event.Recorded{}}
	bytes := 0
	for _, piece := range pieces {
		for i := range globallog.Position(piece.Count) {
			at, next := piece.First+i, piece.First+i+1
			if q.Direction == ports.Backward {
				at = piece.End() - 1 - i
				next = at - 1 // after position 0 there is no page
			}
			sequence, _ := piece.SequenceAt(at)
			e, isRead := found[ports.EventPosition{Partition: piece.Partition, Sequence: sequence}]
			bytes += len(e.Payload)
			switch {
			case len(page.Events) == 0 && !isRead:
				return page, fault.New(fault.Internal, "global_log.event_missing", "the global log has event %d of partition %d, and its log has not; verify the log", sequence, piece.Partition)
			case len(page.Events) > 0 && (!isRead || bytes > feedBytes):
				page.HasMore, page.Next = true, at
				return s.inSight(ctx, page)
			}
			page.Events, page.Next = append(page.Events, e), next
		}
	}
	return s.inSight(ctx, page)
}

// inSight leaves out the events that the caller does not see.
func (s *GlobalOrder) inSight(ctx context.Context, page GlobalPage) (GlobalPage, error) {
	sight, err := module.SightOf(ctx)
	page.Events = sight.Filter(page.Events)
	return page, err
}

// eventsOf reads the events of pieces, with one query for each partition: its pieces follow each other in its log
// too. Where the bytes of a page do not suffice, it reads the first ones in the query's direction.
func (s *GlobalOrder) eventsOf(ctx context.Context, pieces []globallog.Range, q GlobalQuery) (map[ports.EventPosition]event.Recorded, error) {
	parts := map[event.PartitionID]ports.EventQuery{}
	for _, piece := range pieces {
		part, known := parts[piece.Partition]
		if !known {
			part = ports.EventQuery{Partition: piece.Partition, From: piece.Sequence, Direction: q.Direction, WithoutData: q.WithoutData}
		}
		part.From, part.Until = min(part.From, piece.Sequence), max(part.Until, piece.NextSequence()-1)
		part.Limit += int(piece.Count)
		parts[piece.Partition] = part
	}
	found := map[ports.EventPosition]event.Recorded{}
	for p, part := range parts {
		part.Bytes = feedBytes / len(parts)
		events, err := s.service.events.Events(ctx, part)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			found[ports.EventPosition{Partition: p, Sequence: e.Sequence}] = e
		}
	}
	return found, nil
}

// cursorAt is the cursor of feeds whose reader has the events before a position of the global log.
func (s *GlobalOrder) cursorAt(ctx context.Context, tenantID string, entities []ports.LegalEntity, before globallog.Position) (string, error) {
	heads, err := s.service.readHeads(ctx, entities)
	if err != nil {
		return "", err
	}
	marks, err := s.marksAt(ctx, heads, before)
	return s.service.cursors.SealText(tenantID, []byte(allDigest), encodeMarks(0, marks)), err
}

// marksAt marks what the global log has of partitions before a position. A log that the global log has wholly takes no
// query of its own.
func (s *GlobalOrder) marksAt(ctx context.Context, heads map[event.PartitionID]ports.Head, before globallog.Position) (marks []mark, err error) {
	ends, err := s.global.GlobalEnds(ctx, before)
	if err != nil {
		return nil, err
	}
	for p, head := range heads {
		m := mark{Partition: p, After: ends[p], ChecksumPrefix: [8]byte(head.Checksum[:8])}
		switch {
		case m.After == 0:
			continue
		case m.After != head.Sequence:
			if m.ChecksumPrefix, err = s.service.checksumPrefix(ctx, p, m.After); err != nil {
				return nil, err
			}
		}
		marks = append(marks, m)
	}
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(a.Partition, b.Partition) })
	return marks, nil
}
