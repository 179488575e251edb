package query

import (
	"context"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// MaxScan bounds the events that are examined for one page and legal entity. A page that
// reaches it ends early, possibly empty, and its cursor continues from there.
const MaxScan = 10_000

// MaxPageBytes bounds the payloads of a page in bytes, unless its first event alone is
// larger. A page that reaches it ends early and continues with its cursor. A read of
// several legal entities divides it among them, with at least a megabyte for each; the
// page itself still has at most MaxPageBytes.
const MaxPageBytes = 16 << 20

func pageBytesPerEntity(entities int) int { return max(MaxPageBytes/max(entities, 1), 1<<20) }

// Events reads a page of a selection. The first page pins the head of the log and later
// pages end there, so the pages together are one consistent result. A page may have fewer
// events than the limit, or none, although HasMore is true; see MaxScan. Faults: query.*,
// cursor.*, request.*, legal_entity.not_found.
func (s *Service) Events(ctx context.Context, sel Selection) (Page, error) {
	q, err := sel.query()
	if err != nil {
		return Page{}, err
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return Page{}, err
	}
	selectsNothing := sel.matchesNothing(q)
	q.Types = sight.Limit(q.Types)
	selectsNothing = selectsNothing || !sight.IsFull() && len(q.Types) == 0
	if sel.Kind == ByCorrelation && sel.LegalEntity == "" {
		return s.searchAcrossEntities(ctx, sel, q, selectsNothing)
	}
	code := sel.LegalEntity
	if sel.Kind == ByScope && sel.StreamID != "" {
		if code != "" && code != sel.StreamID {
			return Page{}, fault.New(fault.Invalid, "query.scope_mismatch", "stream_id and legal_entity name different legal entities; give one").WithField("stream_id")
		}
		code = sel.StreamID
	}
	le, err := s.directory.LegalEntity(ctx, sel.TenantID, code)
	if err != nil {
		return Page{}, err
	}
	q.Partition = le.Partition
	digest := selectionDigest(sel)
	var pos Position
	if sel.Cursor != "" {
		if pos, err = s.cursors.Open(sel.Cursor, sel.TenantID, digest); err != nil {
			return Page{}, err
		}
		q.After, q.Until = pos.After, pos.Until
		now, err := s.checksumPrefix(ctx, le.Partition, pos.Until)
		if err != nil {
			return Page{}, err
		}
		if now != pos.ChecksumPrefix {
			return Page{}, divergedFault()
		}
	}
	if q.Until == 0 {
		head, err := s.events.Head(ctx, le.Partition)
		if err != nil {
			return Page{}, err
		}
		if q.Until = head.Sequence; q.Until == 0 {
			return Page{Events: []event.Recorded{}}, nil
		}
		pos.ChecksumPrefix = [8]byte(head.Checksum[:8])
	}
	if selectsNothing {
		return Page{Events: []event.Recorded{}}, nil
	}
	q.Limit, q.Bytes = sel.Limit+1, MaxPageBytes
	found, err := s.events.SearchEvents(ctx, q, s.scan)
	if err != nil {
		return Page{}, err
	}
	page := Page{Events: found.Events, HasMore: found.Stopped}
	next := Position{After: found.Reached, Until: q.Until, ChecksumPrefix: pos.ChecksumPrefix}
	if len(found.Events) > sel.Limit {
		page.Events, page.HasMore = found.Events[:sel.Limit], true
		next.After = page.Events[sel.Limit-1].Sequence
	}
	if page.HasMore {
		page.NextCursor = s.cursors.Seal(sel.TenantID, digest, next)
	}
	return page, nil
}

func divergedFault() error {
	return fault.New(fault.Conflict, "cursor.diverged", "the log is not the one that this cursor was made on, as after a failover that lost its end; start the query again without a cursor").WithField("cursor")
}

// query checks a selection and translates it to a store query, without partition and
// bounds.
func (sel *Selection) query() (ports.EventQuery, error) {
	q := sel.Filter
	name, rest, named := strings.Cut(sel.StreamID, ":")
	named = named && name != "" && rest != ""
	invalid := func(detail string) (ports.EventQuery, error) {
		return q, fault.New(fault.Invalid, "request.parameter_invalid", "%s", detail).WithField("stream_id")
	}
	switch sel.Kind {
	case ByEntity:
		q.Key = "entity:" + sel.StreamID
	case ByScope:
	case ByType:
		q.Types = []string{sel.StreamID}
	case ByCorrelation:
		q.CorrelationID = sel.StreamID
	case ByActor:
		q.ActorID = sel.StreamID
	case ByTag:
		q.Key = event.TagKey(sel.StreamID)
	case ByDimension:
		q.Dimension = ports.Dimension{Name: name, Value: rest}
	default:
		return q, fault.New(fault.Invalid, "query.stream_type_unknown", "stream_type is one of entity, scope, type, correlation, actor, tag, dimension; correct it").WithField("stream_type")
	}
	switch {
	case sel.StreamID == "" && sel.Kind != ByScope:
		return q, fault.New(fault.Invalid, "request.parameter_missing", "stream_id says what the events are gathered by; add it").WithField("stream_id")
	case sel.Kind == ByEntity && !named:
		return invalid("an entity is named by type and id, as in vendor:V-1042; correct stream_id")
	case sel.Kind == ByDimension && !named:
		return invalid("a dimension is given by name and value, as in department:OPS; correct stream_id")
	case sel.Limit < 1:
		return q, fault.New(fault.Invalid, "request.parameter_invalid", "a page holds at least one event; correct the limit").WithField("limit")
	}
	if err := checkRanges(&q); err != nil {
		return q, err
	}
	if len(sel.Modules) > 0 {
		q.Types = intersectTypes(q.Types, sel.ModuleTypes)
	}
	return q, nil
}

// intersectTypes returns the types that are in both lists; all of allowed if wanted is nil.
func intersectTypes(wanted, allowed []string) []string {
	if wanted == nil {
		return allowed
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(t string) bool { return !slices.Contains(allowed, t) })
}

// matchesNothing reports whether the filters by type and module exclude every type.
func (sel *Selection) matchesNothing(q ports.EventQuery) bool {
	return len(sel.Modules) > 0 && len(q.Types) == 0
}

// checkRanges refuses ranges that end before they begin. Upper bounds of times are
// exclusive.
func checkRanges(q *ports.EventQuery) error {
	field := ""
	switch {
	case !q.OccurredTo.IsZero() && !q.OccurredFrom.Before(q.OccurredTo):
		field = "to_date"
	case !q.RecordedTo.IsZero() && !q.RecordedFrom.Before(q.RecordedTo):
		field = "recorded_to"
	case q.EffectiveFrom != nil && q.EffectiveTo != nil && *q.EffectiveTo < *q.EffectiveFrom:
		field = "effective_to"
	case q.To != 0 && q.To < q.From:
		field = "to_sequence"
	default:
		return nil
	}
	return fault.New(fault.Invalid, "query.range_reversed", "this range ends before it begins; exchange its bounds or correct them").WithField(field)
}

// entitySearch is one legal entity's part of a search across several.
type entitySearch struct {
	at      mark
	q       ports.EventQuery
	found   []event.Recorded
	taken   int
	stopped bool // by MaxScan or the bytes
}

// searchAcrossEntities reads a correlation from every log that the caller may see, in order of
// recording, each up to the head that the first page pinned.
func (s *Service) searchAcrossEntities(ctx context.Context, sel Selection, q ports.EventQuery, selectsNothing bool) (Page, error) {
	digest := selectionDigest(sel)
	marks, err := s.pinnedMarks(ctx, &sel, digest)
	if err != nil || selectsNothing {
		return Page{Events: []event.Recorded{}}, err
	}
	parts := make([]*entitySearch, 0, len(marks))
	var all []event.Recorded
	var barrier *event.Recorded // events after it may be missing, because a legal entity was not read further
	for _, m := range marks {
		part := &entitySearch{at: m, q: q}
		part.q.Partition, part.q.After, part.q.Until, part.q.Limit = m.Partition, m.After, m.Until, sel.Limit+1
		part.q.Bytes = pageBytesPerEntity(len(marks))
		found, err := s.events.SearchEvents(ctx, part.q, s.scan)
		if err != nil {
			return Page{}, err
		}
		part.found, part.stopped = found.Events, found.Stopped
		if part.stopped {
			part.at.After = found.Reached
			at, err := s.eventAt(ctx, m.Partition, found.Reached)
			if err != nil {
				return Page{}, err
			}
			if barrier == nil || compareRecording(at, barrier, q.Direction) < 0 {
				barrier = at
			}
		}
		parts = append(parts, part)
		all = append(all, part.found...)
	}
	sortByRecording(all, q.Direction)
	page := Page{Events: []event.Recorded{}}
	taken := map[event.PartitionID]int{}
	for i := range truncateToBytes(all, MaxPageBytes) {
		if len(page.Events) == sel.Limit || barrier != nil && compareRecording(&all[i], barrier, q.Direction) > 0 {
			break
		}
		page.Events = append(page.Events, all[i])
		taken[all[i].Partition]++
	}
	var rest []mark
	for _, part := range parts {
		part.taken = taken[part.at.Partition]
		if next, more := part.next(sel.Limit); more {
			rest = append(rest, next)
		}
	}
	if page.HasMore = len(rest) > 0; page.HasMore {
		page.NextCursor = s.cursors.SealText(sel.TenantID, digest, encodeMarks(0, rest))
	}
	return page, nil
}

// next returns the mark that the next page starts from, and whether there is more.
func (a *entitySearch) next(limit int) (mark, bool) {
	switch m := a.at; {
	case a.taken < len(a.found): // events that did not fit on the page are read again
		m.After = a.q.After
		if a.taken > 0 {
			m.After = a.found[a.taken-1].Sequence
		}
		return m, true
	case a.stopped:
		return m, true
	default:
		return m, len(a.found) > limit
	}
}

// pinnedMarks returns the marks of the legal entities to search: those of the cursor that
// the caller still may see, or on the first page all that the caller may see.
func (s *Service) pinnedMarks(ctx context.Context, sel *Selection, digest []byte) ([]mark, error) {
	entities, err := s.readablePartitions(ctx, sel.TenantID, sel.Readable, sel.Administrative)
	if err != nil {
		return nil, err
	}
	if sel.Cursor == "" {
		heads, err := s.readHeads(ctx, entities)
		if err != nil {
			return nil, err
		}
		var marks []mark
		for _, le := range entities {
			if head := heads[le.Partition]; head.Sequence > 0 {
				marks = append(marks, mark{Partition: le.Partition, Until: head.Sequence, ChecksumPrefix: [8]byte(head.Checksum[:8])})
			}
		}
		return marks, nil
	}
	_, marks, err := s.cursors.openMarks(sel.Cursor, sel.TenantID, digest)
	if err != nil {
		return nil, err
	}
	seen := make(map[event.PartitionID]bool, len(entities))
	for _, le := range entities {
		seen[le.Partition] = true
	}
	marks = slices.DeleteFunc(marks, func(m mark) bool { return !seen[m.Partition] })
	for _, m := range marks {
		now, err := s.checksumPrefix(ctx, m.Partition, m.Until)
		if err != nil {
			return nil, err
		}
		if now != m.ChecksumPrefix {
			return nil, divergedFault()
		}
	}
	return marks, nil
}

// readableEntities lists the legal entities that the caller may see, by partition.
func (s *Service) readableEntities(ctx context.Context, tenantID string, codes []string) ([]ports.LegalEntity, error) {
	return s.readablePartitions(ctx, tenantID, codes, false)
}

// readablePartitions lists the legal entities that the caller may see, by partition, and with
// administrative set the administrative log of the tenant as well.
func (s *Service) readablePartitions(ctx context.Context, tenantID string, codes []string, administrative bool) ([]ports.LegalEntity, error) {
	list := s.directory.LegalEntities
	if administrative {
		list = s.directory.Partitions
	}
	entities, err := list(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	entities = slices.DeleteFunc(slices.Clone(entities), func(le ports.LegalEntity) bool { return !isReadable(codes, le.Code) })
	slices.SortFunc(entities, func(a, b ports.LegalEntity) int { return int(a.Partition) - int(b.Partition) })
	return entities, nil
}

// readHeads reads the heads of the logs of legal entities. Every legal entity of the
// directory has a log.
func (s *Service) readHeads(ctx context.Context, entities []ports.LegalEntity) (map[event.PartitionID]ports.Head, error) {
	partitions := make([]event.PartitionID, len(entities))
	for i := range entities {
		partitions[i] = entities[i].Partition
	}
	return s.events.Heads(ctx, partitions)
}

// eventAt reads the event at a sequence, without its data.
func (s *Service) eventAt(ctx context.Context, p event.PartitionID, n event.Sequence) (*event.Recorded, error) {
	events, err := s.events.Events(ctx, ports.EventQuery{Partition: p, After: n - 1, Until: n, Limit: 1, WithoutData: true})
	if err != nil {
		return nil, err
	}
	if len(events) != 1 {
		return nil, divergedFault()
	}
	return &events[0], nil
}
