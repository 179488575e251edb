package query

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// FromNow as the place to begin shows only what comes.
const FromNow = "now"

// HeadSource lists the heads of all partitions in one query.
type HeadSource interface {
	PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error)
}

// Feeds opens readers that follow the log. What many of them ask at the same time is
// asked of the store once.
type Feeds struct {
	service *Service
	heads   HeadSource
	tails   *tails

	mu       sync.Mutex
	entities map[string]knownEntities // by tenant
}

type knownEntities struct {
	list  []ports.LegalEntity
	heads int // partitions there were; with more of them the list is old
}

// NewFeeds makes Feeds over what a Service reads.
func NewFeeds(s *Service, heads HeadSource, clock ports.Clock) *Feeds {
	return &Feeds{service: s, heads: heads, tails: newTails(s.events, clock), entities: map[string]knownEntities{}}
}

// of lists the legal entities of a tenant, anew when partitions have joined.
func (f *Feeds) of(ctx context.Context, tenantID string, heads int) ([]ports.LegalEntity, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.entities[tenantID]; ok && known.heads >= heads {
		return known.list, nil
	}
	list, err := f.service.directory.LegalEntities(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	f.entities[tenantID] = knownEntities{list: list, heads: heads}
	return list, nil
}

// AllQuery asks to follow the legal entities of a tenant.
type AllQuery struct {
	TenantID      string
	Readable      []string // legal entities the caller may see; empty: all of the tenant
	LegalEntities []string // only these; empty: all that the caller may see, later ones too
	Types         []string // only events of these types; empty: all
	// Wants says whether events of a type are shown at all; nil: yes. It may learn of new
	// types as they come.
	Wants func(ctx context.Context, eventType string) (bool, error)
	From  string // a feed's cursor, "" or "0": the beginning, "now": the end
}

// AllFeed follows the logs of legal entities. Its cursors are those of [Service.Feed].
// It belongs to one goroutine.
type AllFeed struct {
	feeds *Feeds
	query AllQuery
	types map[string]bool

	turn  event.PartitionID
	marks []mark // by partition
	mine  map[event.PartitionID]bool
	heads int // partitions there were when mine was made
}

// All prepares to follow $all. Faults: cursor.*.
func (f *Feeds) All(q AllQuery) (*AllFeed, error) {
	a := &AllFeed{feeds: f, query: q}
	if len(q.Types) > 0 {
		a.types = make(map[string]bool, len(q.Types))
		for _, t := range q.Types {
			a.types[t] = true
		}
	}
	if q.From == "" || q.From == "0" || q.From == FromNow {
		return a, nil
	}
	text, err := f.service.cursors.OpenText(q.From, q.TenantID, []byte(allDigest))
	if err != nil {
		return nil, ofFrom(err)
	}
	var ok bool
	if a.turn, a.marks, ok = decodeMarks(text); !ok {
		return nil, ofFrom(malformedCursor())
	}
	slices.SortFunc(a.marks, func(a, b mark) int { return int(a.Partition) - int(b.Partition) })
	return a, nil
}

// Start compares the cursor with the log and gives the heads up to which everything
// counts as caught up. Faults: cursor.diverged.
func (a *AllFeed) Start(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	heads, err := a.feeds.heads.PartitionHeads(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.know(ctx, heads); err != nil {
		return nil, err
	}
	for p := range a.mine {
		head := heads[p]
		m := *a.at(p)
		if a.query.From == FromNow {
			m.After = head.Sequence
			copy(m.Witness[:], head.Checksum[:])
			*a.at(p) = m
			continue
		}
		if head.Sequence < m.After || head.Sequence == m.After && m.After > 0 && [8]byte(head.Checksum[:8]) != m.Witness {
			return nil, ofFrom(diverged())
		}
	}
	if a.query.From == FromNow {
		a.query.From = "" // it has a position
	}
	return heads, nil
}

// Entitle says which legal entities the caller may see from now on.
func (a *AllFeed) Entitle(_ context.Context, readable, _ []string) error {
	if !slices.Equal(a.query.Readable, readable) {
		a.query.Readable, a.mine = readable, nil
	}
	return nil
}

// know finds the partitions that are followed, again when some have joined.
func (a *AllFeed) know(ctx context.Context, heads map[event.PartitionID]ports.Head) error {
	if a.heads == len(heads) && a.mine != nil {
		return nil
	}
	entities, err := a.feeds.of(ctx, a.query.TenantID, len(heads))
	if err != nil {
		return err
	}
	a.mine, a.heads = make(map[event.PartitionID]bool, len(entities)), len(heads)
	for _, le := range entities {
		if readable(a.query.Readable, le.Code) && (len(a.query.LegalEntities) == 0 || slices.Contains(a.query.LegalEntities, le.Code)) {
			a.mine[le.Partition] = true
		}
	}
	return nil
}

// at finds a partition's mark, a new one at its beginning.
func (a *AllFeed) at(p event.PartitionID) *mark {
	i, found := slices.BinarySearchFunc(a.marks, p, func(m mark, p event.PartitionID) int { return int(m.Partition) - int(p) })
	if !found {
		a.marks = slices.Insert(a.marks, i, mark{Partition: p})
	}
	return &a.marks[i]
}

// Read gives at most count events that follow, with the cursor behind each, and tells
// whether more of what the heads promise is left. What the heads do not promise is
// not asked for: without growth it asks the store nothing. Faults: cursor.diverged.
func (a *AllFeed) Read(ctx context.Context, heads map[event.PartitionID]ports.Head, count int) (events []event.Recorded, cursors []string, more bool, err error) {
	if err := a.know(ctx, heads); err != nil {
		return nil, nil, false, err
	}
	var behind []backlog
	for p := range a.mine {
		if m := a.at(p); heads[p].Sequence > m.After {
			behind = append(behind, backlog{at: *m, size: heads[p].Sequence - m.After})
		}
	}
	if len(behind) == 0 {
		return nil, nil, false, nil
	}
	slices.SortFunc(behind, func(a, b backlog) int { return int(a.at.Partition) - int(b.at.Partition) })
	before, turn := slices.Clone(a.marks), a.turn
	shares, more := share(behind, a.turn, count)
	moved := false
	for bytes, i := 0, 0; i < len(shares); i++ {
		b := shares[i]
		if bytes >= feedBytes {
			more = true
			break
		}
		found, reached, err := a.share(ctx, b, heads[b.at.Partition], feedBytes-bytes)
		if err != nil {
			a.marks, a.turn = before, turn // nothing of the page is handed over
			return nil, nil, false, ofFrom(err)
		}
		*a.at(b.at.Partition), a.turn = reached, b.at.Partition
		more = more || reached.After < heads[b.at.Partition].Sequence
		moved = moved || reached.After > b.at.After
		events = append(events, found...)
		bytes += payloadBytes(found)
	}
	if !moved {
		return nil, nil, false, nil // a failover lost what the heads promise; waiting is all that helps
	}
	if len(events) == 0 {
		return nil, nil, more, nil
	}
	if len(shares) > 1 {
		sortByRecording(events, ports.Forward)
	}
	cursors = make([]string, len(events))
	reached := AllFeed{feeds: a.feeds, query: a.query, marks: before}
	for i := range events {
		*reached.at(events[i].Partition), reached.turn = markOf(&events[i]), events[i].Partition
		cursors[i] = reached.Cursor()
	}
	return events, cursors, more, nil
}

func markOf(e *event.Recorded) mark {
	m := mark{Partition: e.Partition, After: e.Sequence}
	copy(m.Witness[:], e.Checksum[:])
	return m
}

// share reads a partition's part of a page, up to the bytes that are left of it, and
// tells how far it came. Where much waits and little is wanted an index finds it.
func (a *AllFeed) share(ctx context.Context, b backlog, head ports.Head, bytes int) (found []event.Recorded, reached mark, err error) {
	if a.types == nil || b.size <= event.Sequence(tailEvents) {
		found, err = a.feeds.tails.following(ctx, b.at, b.quota)
		if err != nil || len(found) == 0 {
			return nil, b.at, err
		}
		found = within(found, bytes)
		reached = markOf(&found[len(found)-1])
		found, err = a.wanted(ctx, found)
		return found, reached, err
	}
	found, reached, err = a.search(ctx, b, head, bytes)
	if err == nil {
		found, err = a.wanted(ctx, found)
	}
	return found, reached, err
}

// wanted picks what the filters let through; what it is given stays as it is.
func (a *AllFeed) wanted(ctx context.Context, found []event.Recorded) ([]event.Recorded, error) {
	if a.types == nil && a.query.Wants == nil {
		return found, nil
	}
	var out []event.Recorded
	for i := range found {
		if a.types != nil && !a.types[found[i].Type] {
			continue
		}
		if a.query.Wants != nil {
			if wants, err := a.query.Wants(ctx, found[i].Type); err != nil {
				return nil, err
			} else if !wants {
				continue
			}
		}
		out = append(out, found[i])
	}
	return out, nil
}

// search finds a partition's next events of the types by their index.
func (a *AllFeed) search(ctx context.Context, b backlog, head ports.Head, bytes int) (found []event.Recorded, reached mark, err error) {
	s := a.feeds.service
	witness, err := s.witness(ctx, b.at.Partition, b.at.After)
	if err != nil {
		return nil, b.at, err
	}
	if witness != b.at.Witness {
		return nil, b.at, diverged()
	}
	q := ports.EventQuery{Partition: b.at.Partition, Types: a.query.Types, After: b.at.After, Until: head.Sequence, Limit: b.quota, Bytes: bytes}
	scan, err := s.events.SearchEvents(ctx, q, s.scan)
	if err != nil {
		return nil, b.at, err
	}
	switch {
	case len(scan.Events) == b.quota:
		return scan.Events, markOf(&scan.Events[len(scan.Events)-1]), nil
	case !scan.Stopped:
		reached = mark{Partition: b.at.Partition, After: head.Sequence}
		copy(reached.Witness[:], head.Checksum[:])
		return scan.Events, reached, nil
	default:
		reached = mark{Partition: b.at.Partition, After: scan.Reached}
		reached.Witness, err = s.witness(ctx, b.at.Partition, scan.Reached)
		return scan.Events, reached, err
	}
}

// Cursor goes on behind everything that has been read, also where nothing fitted. "" is
// no position yet: of a feed from now that has not started.
func (a *AllFeed) Cursor() string {
	if a.query.From == FromNow {
		return ""
	}
	list := make([]mark, 0, len(a.marks))
	for _, m := range a.marks {
		if m.After > 0 {
			list = append(list, m) // also those that the caller does not see now and may again
		}
	}
	return a.feeds.service.cursors.SealText(a.query.TenantID, []byte(allDigest), encodeMarks(a.turn, list))
}

// allDigest binds cursors to feeds of all legal entities.
const allDigest = "$all"

// StreamFollowQuery asks to follow one stream.
type StreamFollowQuery struct {
	Entity ports.LegalEntity
	Stream event.StreamID
	Roles  []string      // of the reader, for the stream's access list; nil: it does not apply
	From   event.Version // the first to be shown; 0 is the beginning
	Now    bool          // only what comes; From is not looked at
}

// StreamFeed follows one stream by version. It belongs to one goroutine.
type StreamFeed struct {
	feeds   *Feeds
	query   StreamFollowQuery
	reached event.Version
	at      mark // how far the partition has been looked through; 0: not yet
}

// Stream prepares to follow a stream, which need not be there yet.
func (f *Feeds) Stream(q StreamFollowQuery) *StreamFeed {
	s := &StreamFeed{feeds: f, query: q, at: mark{Partition: q.Entity.Partition}}
	if q.From > 0 {
		s.reached = q.From - 1
	}
	return s
}

// Start looks at where the stream is and gives the head up to which everything counts
// as caught up. Faults: feed.version_ahead, those of reading a stream.
func (s *StreamFeed) Start(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	p := s.query.Entity.Partition
	head, err := s.feeds.service.events.Head(ctx, p)
	if err != nil {
		return nil, err
	}
	page, err := s.page(ctx, 0, 1)
	if err != nil {
		return nil, err
	}
	switch {
	case s.query.Now:
		s.reached, s.query.Now = page.Version, false
	case s.reached > page.Version:
		return nil, fault.New(fault.Conflict, "feed.version_ahead",
			"the stream is at version %d and has never shown the one before from, unless a failover lost its end; begin at %d or earlier", page.Version, page.Version+1).WithField("from")
	}
	return map[event.PartitionID]ports.Head{p: head}, nil
}

// page reads by version; a stream that is not there yet is empty.
func (s *StreamFeed) page(ctx context.Context, from event.Version, count int) (StreamPage, error) {
	page, err := s.feeds.service.Stream(ctx, StreamQuery{Entity: s.query.Entity, Stream: s.query.Stream, Roles: s.query.Roles, From: from, Count: count, Bytes: feedBytes})
	if fault.CodeOf(err) == "stream.not_found" {
		return StreamPage{}, nil
	}
	return page, err
}

// Read gives at most count events that follow, with the version of each as its
// cursor. See [AllFeed.Read].
func (s *StreamFeed) Read(ctx context.Context, heads map[event.PartitionID]ports.Head, count int) (events []event.Recorded, cursors []string, more bool, err error) {
	head := heads[s.query.Entity.Partition]
	if head.Sequence <= s.at.After {
		return nil, nil, false, nil
	}
	if s.at.After == 0 || head.Sequence-s.at.After > event.Sequence(tailEvents) {
		events, more, err = s.catchUp(ctx, head, count)
	} else {
		events, more, err = s.goOn(ctx, head, count)
	}
	if err != nil {
		return nil, nil, false, err
	}
	for i := range events {
		s.reached = events[i].StreamVersion
		cursors = append(cursors, s.Cursor())
	}
	return events, cursors, more, nil
}

// catchUp reads by version. When nothing is left, everything up to the head, which
// was known before, has been shown.
func (s *StreamFeed) catchUp(ctx context.Context, head ports.Head, count int) ([]event.Recorded, bool, error) {
	page, err := s.page(ctx, s.reached+1, count)
	if err != nil {
		return nil, false, err
	}
	if !page.HasMore {
		s.at.After = head.Sequence
		copy(s.at.Witness[:], head.Checksum[:])
	}
	return page.Events, page.HasMore, nil
}

// goOn looks through what was added to the partition.
func (s *StreamFeed) goOn(ctx context.Context, head ports.Head, count int) ([]event.Recorded, bool, error) {
	added, err := s.feeds.tails.following(ctx, s.at, count)
	if err != nil || len(added) == 0 {
		return nil, false, err
	}
	var events []event.Recorded
	for i := range added {
		if e := &added[i]; e.Stream == s.query.Stream && e.StreamVersion > s.reached {
			events = append(events, *e)
		}
	}
	if slices.ContainsFunc(events, func(e event.Recorded) bool { return e.Type == stream.MetadataChanged }) {
		if _, _, err := s.feeds.service.admit(ctx, s.query.Entity, s.query.Stream, s.query.Roles); err != nil {
			return nil, false, err // the access list may be another one now
		}
	}
	s.at = markOf(&added[len(added)-1])
	return events, s.at.After < head.Sequence, nil
}

// Entitle says which roles the caller has from now on. Fault stream.access_denied if the
// stream's access list no longer lets them read.
func (s *StreamFeed) Entitle(ctx context.Context, _, roles []string) error {
	if s.query.Roles == nil || slices.Equal(s.query.Roles, roles) {
		return nil
	}
	s.query.Roles = append([]string{}, roles...) // not nil: a caller without roles is not the log itself
	_, _, err := s.feeds.service.admit(ctx, s.query.Entity, s.query.Stream, s.query.Roles)
	return err
}

// Cursor is the version that was shown last. "" is no position yet: of a feed from now
// that has not started.
func (s *StreamFeed) Cursor() string {
	if s.query.Now {
		return ""
	}
	return strings.TrimPrefix(seqText(event.Sequence(s.reached)), "seq:")
}
