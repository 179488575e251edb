package query

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// FromNow as a start position delivers new events only. FromPosition and a position of the global log, such as
// "position:4200", delivers what it has from there on in its order, and then what it does not have yet.
const (
	FromNow      = "now"
	FromPosition = "position:"
)

// Feeds opens readers that follow the log. Reads that many readers need at the same time
// are sent to the store once.
type Feeds struct {
	service *Service
	heads   ports.HeadReader
	global  *GlobalOrder // nil: no feed begins at a position
	tails   *tailCache

	reading  ports.Lock
	entities map[string]cachedEntities // by tenant
}

type cachedEntities struct {
	list           []ports.LegalEntity
	partitionCount int // when the list was read; the list is stale once there are more
}

// NewFeeds makes Feeds over the log of a Service, and its global order, which may be nil.
func NewFeeds(s *Service, heads ports.HeadReader, global *GlobalOrder) *Feeds {
	return &Feeds{service: s, heads: heads, global: global, tails: newTailCache(s.events, s.clock), reading: ports.NewLock(), entities: map[string]cachedEntities{}}
}

// entitiesOf lists the legal entities of a tenant and its administrative log. It reads the list again when the number
// of partitions has grown.
func (f *Feeds) entitiesOf(ctx context.Context, tenantID string, partitionCount int) ([]ports.LegalEntity, error) {
	if err := f.reading.Acquire(ctx); err != nil {
		return nil, err
	}
	defer f.reading.Release()
	if cached, ok := f.entities[tenantID]; ok && cached.partitionCount >= partitionCount {
		return cached.list, nil
	}
	list, err := f.service.directory.Partitions(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	f.entities[tenantID] = cachedEntities{list: list, partitionCount: partitionCount}
	return list, nil
}

// AllQuery asks to follow the legal entities of a tenant.
type AllQuery struct {
	TenantID string
	Readable []string // legal entities the caller may see; empty: all of the tenant
	// Filter selects events; without legal entities those of all that the caller may see, including
	// new ones.
	Filter subscription.Filter
	// ModuleOf names the module of an event type; needed if Filter names modules. It is called per
	// event, so it may take new types into account.
	ModuleOf func(ctx context.Context, eventType string) (string, error)
	From     string // a cursor of a feed, "" or "0" for the beginning, FromNow, or FromPosition with a position
}

// AllFeed follows the logs of legal entities. Its cursors are those of [Service.Feed].
// It belongs to one goroutine.
type AllFeed struct {
	feeds *Feeds
	query AllQuery

	lastServed     event.PartitionID
	marks          []mark                     // by partition
	partitions     map[event.PartitionID]bool // that are followed; nil: unknown
	partitionCount int                        // of all partitions, when partitions was filled in
	position       *globallog.Position        // the next one to read in the global order; nil: the logs are read
}

// All prepares to follow $all. Faults: cursor.*.
func (f *Feeds) All(q AllQuery) (*AllFeed, error) {
	a := &AllFeed{feeds: f, query: q}
	if q.From == "" || q.From == "0" || q.From == FromNow {
		return a, nil
	}
	if text, isPosition := strings.CutPrefix(q.From, FromPosition); isPosition && f.global != nil {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return nil, fault.New(fault.Invalid, "request.parameter_invalid", "a position is a number, such as position:4200; the first is 0").WithField("from")
		}
		position := globallog.Position(n)
		a.position = &position
		return a, nil
	}
	var err error
	if a.lastServed, a.marks, err = f.service.cursors.openMarks(q.From, q.TenantID, []byte(allDigest)); err != nil {
		return nil, withFromField(err)
	}
	slices.SortFunc(a.marks, func(a, b mark) int { return int(a.Partition) - int(b.Partition) })
	return a, nil
}

// Start checks the cursor against the log and returns the heads that the reader has to
// reach to count as caught up. Faults: cursor.diverged.
func (a *AllFeed) Start(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	heads, err := a.feeds.heads.PartitionHeads(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.refreshPartitions(ctx, heads); err != nil {
		return nil, err
	}
	if a.position != nil {
		a.query.From = "" // the marks are the position now
		return heads, a.markPosition(ctx, heads)
	}
	for p := range a.partitions {
		head := heads[p]
		m := a.markFor(p)
		if a.query.From == FromNow {
			m.After, m.ChecksumPrefix = head.Sequence, [8]byte(head.Checksum[:8])
			continue
		}
		if head.Sequence < m.After || head.Sequence == m.After && m.After > 0 && [8]byte(head.Checksum[:8]) != m.ChecksumPrefix {
			return nil, withFromField(divergedFault())
		}
	}
	if a.query.From == FromNow {
		a.query.From = "" // the marks are the position now
	}
	return heads, nil
}

// markPosition marks what the global log has before the first position to read.
func (a *AllFeed) markPosition(ctx context.Context, heads map[event.PartitionID]ports.Head) error {
	size, err := a.feeds.global.global.GlobalSize(ctx)
	if err != nil {
		return err
	}
	if uint64(*a.position) > size {
		return ports.GlobalLogTooShort().WithField("from")
	}
	followed := maps.Clone(heads)
	maps.DeleteFunc(followed, func(p event.PartitionID, _ ports.Head) bool { return !a.partitions[p] })
	a.marks, err = a.feeds.global.marksAt(ctx, followed, *a.position)
	return err
}

// readPositions reads a page in the global order. more is true: after its end the logs are read.
func (a *AllFeed) readPositions(ctx context.Context, count int) (events []event.Recorded, cursors []string, more bool, err error) {
	page, err := a.feeds.global.Read(ctx, GlobalQuery{TenantID: a.query.TenantID, Readable: a.query.Readable, From: *a.position, Direction: ports.Forward, Count: count})
	if err != nil {
		return nil, nil, false, err
	}
	found := slices.DeleteFunc(page.Events, func(e event.Recorded) bool { return !a.partitions[e.Partition] })
	if found, err = a.filter(ctx, found); err != nil {
		return nil, nil, false, err
	}
	for i := range found {
		*a.markFor(found[i].Partition), a.lastServed = markOf(&found[i]), found[i].Partition
		events, cursors = append(events, found[i]), append(cursors, a.Cursor())
	}
	if *a.position = page.Next; !page.HasMore {
		a.position = nil
	}
	return events, cursors, true, nil
}

// UpdateAccess replaces the legal entities that the caller may see.
func (a *AllFeed) UpdateAccess(_ context.Context, readable, _ []string) error {
	if !slices.Equal(a.query.Readable, readable) {
		a.query.Readable, a.partitions = readable, nil
	}
	return nil
}

// refreshPartitions lists the partitions to follow, again when partitions were added.
func (a *AllFeed) refreshPartitions(ctx context.Context, heads map[event.PartitionID]ports.Head) error {
	if a.partitionCount == len(heads) && a.partitions != nil {
		return nil
	}
	entities, err := a.feeds.entitiesOf(ctx, a.query.TenantID, len(heads))
	if err != nil {
		return err
	}
	a.partitions, a.partitionCount = make(map[event.PartitionID]bool, len(entities)), len(heads)
	for _, le := range entities {
		if isReadable(a.query.Readable, le.Code) && a.asksFor(le) {
			a.partitions[le.Partition] = true
		}
	}
	return nil
}

// asksFor says whether the query is about a legal entity. The administrative log is followed
// only by who names it.
func (a *AllFeed) asksFor(le ports.LegalEntity) bool {
	return a.query.Filter.Covers(le.Code) && (!le.IsAdministrative() || len(a.query.Filter.LegalEntities) > 0)
}

// markFor returns a partition's mark, at the beginning of the log if it has none.
func (a *AllFeed) markFor(p event.PartitionID) *mark {
	i, found := slices.BinarySearchFunc(a.marks, p, func(m mark, p event.PartitionID) int { return int(m.Partition) - int(p) })
	if !found {
		a.marks = slices.Insert(a.marks, i, mark{Partition: p})
	}
	return &a.marks[i]
}

// Read returns at most count of the next events, with the cursor after each, and whether
// more events up to heads remain. It reads no further than heads: if the log has not grown
// since the last call, it sends no query. Faults: cursor.diverged.
func (a *AllFeed) Read(ctx context.Context, heads map[event.PartitionID]ports.Head, count int) (events []event.Recorded, cursors []string, more bool, err error) {
	if err := a.refreshPartitions(ctx, heads); err != nil {
		return nil, nil, false, err
	}
	if a.position != nil {
		return a.readPositions(ctx, count)
	}
	var backlogs []backlog
	for p := range a.partitions {
		if m := a.markFor(p); heads[p].Sequence > m.After {
			backlogs = append(backlogs, backlog{mark: *m, size: heads[p].Sequence - m.After})
		}
	}
	if len(backlogs) == 0 {
		return nil, nil, false, nil
	}
	slices.SortFunc(backlogs, func(a, b backlog) int { return int(a.mark.Partition) - int(b.mark.Partition) })
	before, lastServed := slices.Clone(a.marks), a.lastServed
	shares, more := splitPage(backlogs, a.lastServed, count)
	moved := false
	for bytes, i := 0, 0; i < len(shares); i++ {
		b := shares[i]
		if bytes >= feedBytes {
			more = true
			break
		}
		found, reached, err := a.readShare(ctx, b, heads[b.mark.Partition], feedBytes-bytes)
		if err != nil {
			a.marks, a.lastServed = before, lastServed // the page is dropped as a whole
			return nil, nil, false, withFromField(err)
		}
		*a.markFor(b.mark.Partition), a.lastServed = reached, b.mark.Partition
		more = more || reached.After < heads[b.mark.Partition].Sequence
		moved = moved || reached.After > b.mark.After
		events = append(events, found...)
		bytes += payloadBytes(found)
	}
	if !moved {
		return nil, nil, false, nil // a failover lost events below the heads; more come with the next growth
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
		*reached.markFor(events[i].Partition), reached.lastServed = markOf(&events[i]), events[i].Partition
		cursors[i] = reached.Cursor()
	}
	return events, cursors, more, nil
}

func markOf(e *event.Recorded) mark {
	return mark{Partition: e.Partition, After: e.Sequence, ChecksumPrefix: [8]byte(e.Checksum[:8])}
}

// readShare reads a partition's share of a page, of at most bytes of payloads, and returns
// the mark it reached. A long backlog that is filtered by type is searched by the index
// of types.
func (a *AllFeed) readShare(ctx context.Context, b backlog, head ports.Head, bytes int) (found []event.Recorded, reached mark, err error) {
	if len(a.query.Filter.EventTypes) == 0 || b.size <= event.Sequence(tailEvents) {
		found, err = a.feeds.tails.readAfter(ctx, b.mark, b.quota)
		if err != nil || len(found) == 0 {
			return nil, b.mark, err
		}
		found = truncateToBytes(found, bytes)
		reached = markOf(&found[len(found)-1])
		found, err = a.filter(ctx, found)
		return found, reached, err
	}
	if found, reached, err = a.searchByType(ctx, b, head, bytes); err == nil {
		found, err = a.filter(ctx, found)
	}
	return found, reached, err
}

// filter returns the events that pass the query's filters. found is shared with other
// readers and not changed.
func (a *AllFeed) filter(ctx context.Context, found []event.Recorded) ([]event.Recorded, error) {
	sight, err := module.SightOf(ctx)
	if err != nil {
		return nil, err
	}
	found = sight.Filter(found)
	filter := &a.query.Filter
	if filter.SelectsAll() {
		return found, nil
	}
	moduleOf := func(eventType string) string {
		name, failed := a.query.ModuleOf(ctx, eventType)
		err = errors.Join(err, failed)
		return name
	}
	var out []event.Recorded
	for i := range found {
		if filter.Matches(&found[i], moduleOf) {
			out = append(out, found[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// searchByType finds a partition's next events of the query's types by their index.
func (a *AllFeed) searchByType(ctx context.Context, b backlog, head ports.Head, bytes int) (found []event.Recorded, reached mark, err error) {
	s := a.feeds.service
	prefix, err := s.checksumPrefix(ctx, b.mark.Partition, b.mark.After)
	if err != nil {
		return nil, b.mark, err
	}
	if prefix != b.mark.ChecksumPrefix {
		return nil, b.mark, divergedFault()
	}
	q := ports.EventQuery{Partition: b.mark.Partition, Types: a.query.Filter.EventTypes, After: b.mark.After, Until: head.Sequence, Limit: b.quota, Bytes: bytes}
	scan, err := s.events.SearchEvents(ctx, q, s.scan)
	if err != nil {
		return nil, b.mark, err
	}
	switch {
	case len(scan.Events) == b.quota:
		return scan.Events, markOf(&scan.Events[len(scan.Events)-1]), nil
	case !scan.Stopped:
		return scan.Events, mark{Partition: b.mark.Partition, After: head.Sequence, ChecksumPrefix: [8]byte(head.Checksum[:8])}, nil
	default:
		reached = mark{Partition: b.mark.Partition, After: scan.Reached}
		reached.ChecksumPrefix, err = s.checksumPrefix(ctx, b.mark.Partition, scan.Reached)
		return scan.Events, reached, err
	}
}

// Cursor is the position after everything read, including events that the filters left
// out. It is "" for a feed from now or from a position that has not started, which has no cursor yet.
func (a *AllFeed) Cursor() string {
	if a.query.From == FromNow || strings.HasPrefix(a.query.From, FromPosition) {
		return ""
	}
	// The cursor includes legal entities that the caller cannot see now and may see later.
	list := slices.DeleteFunc(slices.Clone(a.marks), func(m mark) bool { return m.After == 0 })
	return a.feeds.service.cursors.SealText(a.query.TenantID, []byte(allDigest), encodeMarks(a.lastServed, list))
}

// allDigest binds cursors to feeds of all legal entities.
const allDigest = "$all"

// StreamFollowQuery asks to follow one stream.
type StreamFollowQuery struct {
	Entity  ports.LegalEntity
	Stream  event.StreamID
	Roles   []string      // of the reader, checked against the stream's access list; nil: no check
	From    event.Version // the first version to deliver; 0: the beginning
	OnlyNew bool          // only new events; From is ignored
}

// StreamFeed follows one stream by version. It belongs to one goroutine.
type StreamFeed struct {
	feeds       *Feeds
	query       StreamFollowQuery
	lastVersion event.Version // delivered last
	scanned     mark          // position in the partition up to which the stream was read; 0: none yet
}

// Stream prepares to follow a stream, which need not exist yet.
func (f *Feeds) Stream(q StreamFollowQuery) *StreamFeed {
	s := &StreamFeed{feeds: f, query: q, scanned: mark{Partition: q.Entity.Partition}}
	if q.From > 0 {
		s.lastVersion = q.From - 1
	}
	return s
}

// Start checks the position against the stream and returns the head that the reader has to
// reach to count as caught up. Faults: feed.version_ahead, those of reading a stream.
func (s *StreamFeed) Start(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	p := s.query.Entity.Partition
	head, err := s.feeds.service.events.Head(ctx, p)
	if err != nil {
		return nil, err
	}
	page, err := s.readPage(ctx, 0, 1)
	if err != nil {
		return nil, err
	}
	switch {
	case s.query.OnlyNew:
		s.lastVersion, s.query.OnlyNew = page.Version, false
	case s.lastVersion > page.Version:
		return nil, fault.New(fault.Conflict, "feed.version_ahead",
			"the stream is at version %d and has never shown the one before from, unless a failover lost its end; begin at %d or earlier", page.Version, page.Version+1).WithField("from")
	}
	return map[event.PartitionID]ports.Head{p: head}, nil
}

// readPage reads by version; a stream that does not exist yet is empty.
func (s *StreamFeed) readPage(ctx context.Context, from event.Version, count int) (StreamPage, error) {
	page, err := s.feeds.service.Stream(ctx, StreamQuery{Entity: s.query.Entity, Stream: s.query.Stream, Roles: s.query.Roles, From: from, Count: count, Bytes: feedBytes})
	if fault.CodeOf(err) == "stream.not_found" {
		return StreamPage{}, nil
	}
	return page, err
}

// Read returns at most count of the next events, with the version of each as its cursor.
// See [AllFeed.Read].
func (s *StreamFeed) Read(ctx context.Context, heads map[event.PartitionID]ports.Head, count int) (events []event.Recorded, cursors []string, more bool, err error) {
	head := heads[s.query.Entity.Partition]
	if head.Sequence <= s.scanned.After {
		return nil, nil, false, nil
	}
	if s.scanned.After == 0 || head.Sequence-s.scanned.After > event.Sequence(tailEvents) {
		events, more, err = s.readByVersion(ctx, head, count)
	} else {
		events, more, err = s.readTail(ctx, head, count)
	}
	if err != nil {
		return nil, nil, false, err
	}
	for i := range events {
		s.lastVersion = events[i].StreamVersion
		cursors = append(cursors, s.Cursor())
	}
	return events, cursors, more, nil
}

// readByVersion reads the stream by version. When nothing remains, the stream is read up
// to head, because head was read before the stream.
func (s *StreamFeed) readByVersion(ctx context.Context, head ports.Head, count int) ([]event.Recorded, bool, error) {
	page, err := s.readPage(ctx, s.lastVersion+1, count)
	if err != nil {
		return nil, false, err
	}
	if !page.HasMore {
		s.scanned.After, s.scanned.ChecksumPrefix = head.Sequence, [8]byte(head.Checksum[:8])
	}
	return page.Events, page.HasMore, nil
}

// readTail picks the stream's events from those added to the partition.
func (s *StreamFeed) readTail(ctx context.Context, head ports.Head, count int) ([]event.Recorded, bool, error) {
	added, err := s.feeds.tails.readAfter(ctx, s.scanned, count)
	if err != nil || len(added) == 0 {
		return nil, false, err
	}
	var events []event.Recorded
	for i := range added {
		if e := &added[i]; e.Stream == s.query.Stream && e.StreamVersion > s.lastVersion {
			events = append(events, *e)
		}
	}
	if slices.ContainsFunc(events, func(e event.Recorded) bool { return e.Type == stream.MetadataChanged }) {
		if _, _, err := s.feeds.service.checkReadAccess(ctx, s.query.Entity, s.query.Stream, s.query.Roles); err != nil {
			return nil, false, err // the access list may have changed
		}
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return nil, false, err
	}
	if len(events) > 0 && !sight.IsFull() {
		_, owned, err := sight.Stream(ctx, s.feeds.service.events, s.query.Entity.Partition, s.query.Stream)
		if err != nil {
			return nil, false, err
		}
		events = sight.FilterStream(events, owned)
	}
	s.scanned = markOf(&added[len(added)-1])
	return events, s.scanned.After < head.Sequence, nil
}

// UpdateAccess replaces the caller's roles. Fault stream.access_denied if none of them may
// read the stream.
func (s *StreamFeed) UpdateAccess(ctx context.Context, _, roles []string) error {
	if s.query.Roles == nil || slices.Equal(s.query.Roles, roles) {
		return nil
	}
	s.query.Roles = append([]string{}, roles...) // not nil, which would skip the check
	_, _, err := s.feeds.service.checkReadAccess(ctx, s.query.Entity, s.query.Stream, s.query.Roles)
	return err
}

// Cursor is the version delivered last. It is "" for a feed of new events that has not
// started, which has no position yet.
func (s *StreamFeed) Cursor() string {
	if s.query.OnlyNew {
		return ""
	}
	return strconv.FormatUint(uint64(s.lastVersion), 10)
}
