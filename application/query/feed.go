package query

import (
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// mark is a reader's position in one partition.
type mark struct {
	Partition      event.PartitionID
	After          event.Sequence
	Until          event.Sequence // the pinned head; 0 in a feed
	ChecksumPrefix [8]byte        // of the event at Until, in a feed of the event at After
}

const marksVersion = 1

// encodeMarks writes u8 version ‖ uvarint lastServed ‖ per mark uvarint partition, after
// and until ‖ checksum prefix.
func encodeMarks(lastServed event.PartitionID, marks []mark) string {
	b := binary.AppendUvarint([]byte{marksVersion}, uint64(lastServed))
	for _, m := range marks {
		b = binary.AppendUvarint(b, uint64(m.Partition))
		b = binary.AppendUvarint(b, uint64(m.After))
		b = binary.AppendUvarint(b, uint64(m.Until))
		b = append(b, m.ChecksumPrefix[:]...)
	}
	return string(b)
}

func decodeMarks(text string) (lastServed event.PartitionID, marks []mark, ok bool) {
	b := []byte(text)
	if len(b) == 0 || b[0] != marksVersion {
		return 0, nil, false
	}
	b = b[1:]
	ok = true
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			ok, b = false, nil
			return 0
		}
		b = b[size:]
		return n
	}
	lastServed = event.PartitionID(number())
	for ok && len(b) > 0 {
		m := mark{Partition: event.PartitionID(number()), After: event.Sequence(number()), Until: event.Sequence(number())}
		if len(b) < len(m.ChecksumPrefix) {
			return 0, nil, false
		}
		b = b[copy(m.ChecksumPrefix[:], b):]
		marks = append(marks, m)
	}
	return lastServed, marks, ok
}

// FeedQuery asks for a page of the events of all legal entities of a tenant.
type FeedQuery struct {
	TenantID    string
	Readable    []string // legal entities the caller may see; empty: all of the tenant
	Cursor      string   // of the page before; "" or "0" is the start
	Count       int
	WithoutData bool
}

// Feed reads the logs of all legal entities that the caller may see as one stream. Its
// cursor is a vector of one position per legal entity. Each log has no gaps and grows at
// its end only, so a reader that follows the cursors gets every event once, in the order
// of its legal entity, including the events of new legal entities. Within a page events
// of different legal entities are in order of recording; across pages they are not. Every
// page has a cursor, also the last one. Faults: cursor.*.
func (s *Service) Feed(ctx context.Context, q FeedQuery) (Page, error) {
	if q.Count < 1 {
		return Page{}, fault.New(fault.Invalid, "request.parameter_invalid", "a page holds at least one event; correct the count").WithField("count")
	}
	var lastServed event.PartitionID
	marks := map[event.PartitionID]mark{}
	if q.Cursor != "" && q.Cursor != "0" {
		from, list, err := s.cursors.openMarks(q.Cursor, q.TenantID, []byte(allDigest))
		if err != nil {
			return Page{}, withFromField(err)
		}
		lastServed = from
		for _, m := range list {
			marks[m.Partition] = m
		}
	}
	entities, err := s.readableEntities(ctx, q.TenantID, q.Readable)
	if err != nil {
		return Page{}, err
	}
	backlogs, err := s.backlogs(ctx, entities, marks)
	if err != nil {
		return Page{}, err
	}
	page := Page{Events: []event.Recorded{}}
	shares, more := splitPage(backlogs, lastServed, q.Count)
	page.HasMore = more
	for bytes, i := 0, 0; i < len(shares); i++ {
		b := shares[i]
		if bytes >= feedBytes {
			page.HasMore = true
			break
		}
		events, err := s.readShare(ctx, b, q.WithoutData, feedBytes-bytes)
		if err != nil {
			return Page{}, err
		}
		if len(events) == 0 {
			continue
		}
		lastServed = b.mark.Partition
		marks[lastServed] = markOf(&events[len(events)-1])
		page.Events = append(page.Events, events...)
		page.HasMore = page.HasMore || len(events) < b.quota
		bytes += payloadBytes(events)
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return Page{}, err
	}
	page.Events = sight.Filter(page.Events)
	sortByRecording(page.Events, ports.Forward)
	// The cursor includes legal entities that the caller cannot see now and may see later.
	list := slices.SortedFunc(maps.Values(marks), func(a, b mark) int { return cmp.Compare(a.Partition, b.Partition) })
	page.NextCursor = s.cursors.SealText(q.TenantID, []byte(allDigest), encodeMarks(lastServed, list))
	return page, nil
}

// withFromField names the parameter of feeds in a fault about a cursor.
func withFromField(err error) error {
	if f, ok := fault.As(err); ok {
		return f.WithField("from")
	}
	return err
}

// backlog is the unread part of one partition.
type backlog struct {
	mark  mark
	size  event.Sequence
	quota int
}

// backlogs lists the legal entities with unread events, by partition.
func (s *Service) backlogs(ctx context.Context, entities []ports.LegalEntity, marks map[event.PartitionID]mark) ([]backlog, error) {
	heads, err := s.readHeads(ctx, entities)
	if err != nil {
		return nil, err
	}
	var out []backlog
	for _, le := range entities {
		head, m := heads[le.Partition], marks[le.Partition]
		m.Partition = le.Partition
		switch {
		case head.Sequence < m.After:
			return nil, withFromField(divergedFault())
		case head.Sequence > m.After:
			out = append(out, backlog{mark: m, size: head.Sequence - m.After})
		case m.After > 0 && [8]byte(head.Checksum[:8]) != m.ChecksumPrefix:
			return nil, withFromField(divergedFault())
		}
	}
	return out, nil
}

// minShares is the number of long backlogs that a page is divided among. More shares
// would be fairer, but each costs a query, which takes as long as reading some dozens of
// events.
const minShares = 8

// splitPage divides a page among the partitions, starting after the one that was served
// last: a busy partition delays other partitions by one page at most. more is true if events
// remain unread.
func splitPage(backlogs []backlog, lastServed event.PartitionID, count int) (shares []backlog, more bool) {
	first := slices.IndexFunc(backlogs, func(b backlog) bool { return b.mark.Partition > lastServed })
	if first > 0 {
		backlogs = slices.Concat(backlogs[first:], backlogs[:first])
	}
	for i, taken, least := 0, event.Sequence(0), event.Sequence(max(1, count/minShares)); i < len(backlogs); i++ {
		if taken += min(backlogs[i].size, least); taken >= event.Sequence(count) {
			more = i+1 < len(backlogs)
			backlogs = backlogs[:i+1]
		}
	}
	order := make([]*backlog, len(backlogs))
	for i := range backlogs {
		order[i] = &backlogs[i]
	}
	slices.SortStableFunc(order, func(a, b *backlog) int { return cmp.Compare(a.size, b.size) })
	for i, b := range order {
		b.quota = int(min(b.size, event.Sequence(count/(len(order)-i))))
		count -= b.quota
		more = more || event.Sequence(b.quota) < b.size
	}
	return backlogs, more
}

// readShare reads a partition's share of a page. It also reads the last event before it,
// whose checksum shows whether the log is still the one that the cursor was made on.
func (s *Service) readShare(ctx context.Context, b backlog, withoutData bool, bytes int) ([]event.Recorded, error) {
	q := ports.EventQuery{Partition: b.mark.Partition, After: b.mark.After, Limit: b.quota, WithoutData: withoutData, Bytes: bytes}
	events, err := readFromMark(ctx, s.events, q)
	if err != nil || b.mark.After == 0 {
		return events, err
	}
	if len(events) == 0 || events[0].Sequence != b.mark.After || [8]byte(events[0].Checksum[:8]) != b.mark.ChecksumPrefix {
		return nil, withFromField(divergedFault())
	}
	return events[1:], nil
}

// truncateToBytes returns the first events whose payloads together fit into bytes, at
// least one.
func truncateToBytes(events []event.Recorded, bytes int) []event.Recorded {
	for i := range events {
		if bytes -= len(events[i].Payload); bytes < 0 && i > 0 {
			return events[:i:i]
		}
	}
	return events
}

func payloadBytes(events []event.Recorded) (n int) {
	for i := range events {
		n += len(events[i].Payload)
	}
	return n
}
