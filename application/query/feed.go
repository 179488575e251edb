package query

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// mark is where a reader stands in one partition.
type mark struct {
	Partition event.PartitionID
	After     event.Sequence
	Until     event.Sequence // the pinned head; 0 in a feed
	Witness   [8]byte        // beginning of the checksum of the event at Until, in a feed at After
}

const marksVersion = 1

// encodeMarks writes u8 version ‖ uvarint turn ‖ per mark uvarint partition, after and
// until ‖ witness.
func encodeMarks(turn event.PartitionID, marks []mark) string {
	b := binary.AppendUvarint([]byte{marksVersion}, uint64(turn))
	for _, m := range marks {
		b = binary.AppendUvarint(b, uint64(m.Partition))
		b = binary.AppendUvarint(b, uint64(m.After))
		b = binary.AppendUvarint(b, uint64(m.Until))
		b = append(b, m.Witness[:]...)
	}
	return string(b)
}

func decodeMarks(text string) (turn event.PartitionID, marks []mark, ok bool) {
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
	turn = event.PartitionID(number())
	for ok && len(b) > 0 {
		m := mark{Partition: event.PartitionID(number()), After: event.Sequence(number()), Until: event.Sequence(number())}
		if len(b) < len(m.Witness) {
			return 0, nil, false
		}
		b = b[copy(m.Witness[:], b):]
		marks = append(marks, m)
	}
	return turn, marks, ok
}

// FeedQuery asks for what happened in all legal entities of a tenant.
type FeedQuery struct {
	TenantID    string
	Readable    []string // legal entities the caller may see; empty: all of the tenant
	Cursor      string   // of the page before; "" or "0" is the start
	Count       int
	WithoutData bool
}

// Feed reads the logs of all legal entities that the caller may see as one stream.
// Its cursor is a vector of one position per legal entity. Each log has no gaps and
// grows at its end only, so whoever follows the cursors gets every event once, in
// the order of its legal entity, however many are written meanwhile, and those of
// new legal entities too. Between legal entities a page is in order of recording;
// over pages that order does not hold. A page always brings a cursor to come back
// with. Faults: cursor.*.
func (s *Service) Feed(ctx context.Context, q FeedQuery) (Page, error) {
	if q.Count < 1 {
		return Page{}, fault.New(fault.Invalid, "request.parameter_invalid", "a page holds at least one event; correct the count").WithField("count")
	}
	digest := []byte("$all")
	var turn event.PartitionID
	marks := map[event.PartitionID]mark{}
	if q.Cursor != "" && q.Cursor != "0" {
		text, err := s.cursors.OpenText(q.Cursor, q.TenantID, digest)
		if err != nil {
			return Page{}, ofFrom(err)
		}
		from, list, ok := decodeMarks(text)
		if !ok {
			return Page{}, ofFrom(malformedCursor())
		}
		turn = from
		for _, m := range list {
			marks[m.Partition] = m
		}
	}
	entities, err := s.readableEntities(ctx, q.TenantID, q.Readable)
	if err != nil {
		return Page{}, err
	}
	behind, err := s.backlogs(ctx, entities, marks)
	if err != nil {
		return Page{}, err
	}
	page := Page{Events: []event.Recorded{}}
	shares, more := share(behind, turn, q.Count)
	page.HasMore = more
	for bytes, i := 0, 0; i < len(shares); i++ {
		b := shares[i]
		if bytes >= feedBytes {
			page.HasMore = true
			break
		}
		events, err := s.following(ctx, b, q.WithoutData, feedBytes-bytes)
		if err != nil {
			return Page{}, err
		}
		if len(events) == 0 {
			continue
		}
		last := &events[len(events)-1]
		m := mark{Partition: b.at.Partition, After: last.Sequence}
		copy(m.Witness[:], last.Checksum[:])
		marks[m.Partition], turn = m, m.Partition
		page.Events = append(page.Events, events...)
		page.HasMore = page.HasMore || len(events) < b.quota
		bytes += payloadBytes(events)
	}
	sortByRecording(page.Events, ports.Forward)
	list := make([]mark, 0, len(marks))
	for _, m := range marks {
		list = append(list, m) // also those that the caller does not see now and may again
	}
	slices.SortFunc(list, func(a, b mark) int { return int(a.Partition) - int(b.Partition) })
	page.NextCursor = s.cursors.SealText(q.TenantID, digest, encodeMarks(turn, list))
	return page, nil
}

// ofFrom points a cursor's fault at the parameter of feeds.
func ofFrom(err error) error {
	if f, ok := fault.As(err); ok {
		return f.WithField("from")
	}
	return err
}

// backlog is what waits in one partition.
type backlog struct {
	at    mark
	size  event.Sequence
	quota int
}

// backlogs finds the legal entities in which something waits, by partition.
func (s *Service) backlogs(ctx context.Context, entities []ports.LegalEntity, marks map[event.PartitionID]mark) ([]backlog, error) {
	heads, err := s.heads(ctx, entities)
	if err != nil {
		return nil, err
	}
	var out []backlog
	for _, le := range entities {
		head, m := heads[le.Partition], marks[le.Partition]
		m.Partition = le.Partition
		switch {
		case head.Sequence < m.After:
			return nil, ofFrom(diverged())
		case head.Sequence > m.After:
			out = append(out, backlog{at: m, size: head.Sequence - m.After})
		case m.After > 0 && [8]byte(head.Checksum[:8]) != m.Witness:
			return nil, ofFrom(diverged())
		}
	}
	return out, nil
}

// sharers are the partitions with long backlogs among which a page is divided: asking
// for a share costs as much as reading some dozens of events.
const sharers = 8

// share divides a page among the partitions, beginning after the one that was last
// served, so that a busy one keeps none waiting for more than a turn. More says that
// something is left.
func share(behind []backlog, turn event.PartitionID, count int) (shares []backlog, more bool) {
	first := slices.IndexFunc(behind, func(b backlog) bool { return b.at.Partition > turn })
	if first > 0 {
		behind = slices.Concat(behind[first:], behind[:first])
	}
	for i, taken, least := 0, event.Sequence(0), event.Sequence(max(1, count/sharers)); i < len(behind); i++ {
		if taken += min(behind[i].size, least); taken >= event.Sequence(count) {
			more = i+1 < len(behind)
			behind = behind[:i+1]
		}
	}
	order := make([]*backlog, len(behind))
	for i := range behind {
		order[i] = &behind[i]
	}
	slices.SortStableFunc(order, func(a, b *backlog) int {
		switch {
		case a.size < b.size:
			return -1
		case a.size > b.size:
			return 1
		default:
			return 0
		}
	})
	for i, b := range order {
		fair := count / (len(order) - i)
		b.quota = fair
		if b.size < event.Sequence(fair) {
			b.quota = int(b.size)
		}
		count -= b.quota
		more = more || event.Sequence(b.quota) < b.size
	}
	return behind, more
}

// following reads a share. It begins with the event that was last shown, to see
// that the log is still the same.
func (s *Service) following(ctx context.Context, b backlog, withoutData bool, bytes int) ([]event.Recorded, error) {
	q := ports.EventQuery{Partition: b.at.Partition, After: b.at.After, Limit: b.quota, WithoutData: withoutData, Bytes: bytes}
	events, err := afterMark(ctx, s.events, q)
	if err != nil || b.at.After == 0 {
		return events, err
	}
	if len(events) == 0 || events[0].Sequence != b.at.After || [8]byte(events[0].Checksum[:8]) != b.at.Witness {
		return nil, ofFrom(diverged())
	}
	return events[1:], nil
}

// within gives the first of some events, as many as have so many bytes of payloads
// together, and one at least.
func within(events []event.Recorded, bytes int) []event.Recorded {
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
