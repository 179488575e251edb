// Package query reads the log for people: events by id and by stream, pages with
// signed cursors, lineage across legal entities, and the read models that modules
// declare.
package query

import (
	"context"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// MaxLineageDepth bounds how many causes are followed; the event asked for comes on
// top.
const MaxLineageDepth = 50

// Directory resolves legal entities.
type Directory interface {
	LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error)
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}

// Service answers reads.
type Service struct {
	events    ports.EventReader
	causality ports.CausalityReader
	directory Directory
	cursors   *Cursors
}

// New makes a Service.
func New(events ports.EventReader, causality ports.CausalityReader, directory Directory, cursors *Cursors) *Service {
	return &Service{events: events, causality: causality, directory: directory, cursors: cursors}
}

// ByID reads one event.
func (s *Service) ByID(ctx context.Context, le ports.LegalEntity, id event.ID) (event.Recorded, error) {
	return s.events.EventByID(ctx, le.Partition, id)
}

// StreamKind is what a stream of events is gathered by.
type StreamKind string

// The stream kinds.
const (
	ByEntity      StreamKind = "entity"
	ByScope       StreamKind = "scope"
	ByType        StreamKind = "type"
	ByCorrelation StreamKind = "correlation"
	ByActor       StreamKind = "actor"
	ByTag         StreamKind = "tag"
)

// Selection is a question for a page of events.
type Selection struct {
	TenantID    string
	Kind        StreamKind
	StreamID    string
	LegalEntity string   // "" only for correlations
	Readable    []string // legal entities the caller may see; empty: all of the tenant
	Filter      ports.EventQuery
	Cursor      string
	Limit       int
}

// Page is a page of events.
type Page struct {
	Events     []event.Recorded
	HasMore    bool
	NextCursor string
}

// Events reads a page. The first page pins the head it saw; later pages end
// there, so the same report printed twice is the same. Faults: query.*, cursor.*,
// request.*, legal_entity.not_found.
func (s *Service) Events(ctx context.Context, sel Selection) (Page, error) {
	q := sel.Filter
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
	default:
		return Page{}, fault.New(fault.Invalid, "query.stream_type_unknown", "stream_type is one of entity, scope, type, correlation, actor, tag").WithField("stream_type")
	}
	if sel.StreamID == "" && sel.Kind != ByScope {
		return Page{}, fault.New(fault.Invalid, "request.parameter_missing", "stream_id says what the events are gathered by; add it").WithField("stream_id")
	}
	if entityType, id, named := strings.Cut(sel.StreamID, ":"); sel.Kind == ByEntity && (!named || entityType == "" || id == "") {
		return Page{}, fault.New(fault.Invalid, "request.parameter_invalid", "an entity is named by type and id, as in vendor:V-1042; correct stream_id").WithField("stream_id")
	}
	if sel.Limit < 1 {
		return Page{}, fault.New(fault.Invalid, "request.parameter_invalid", "a page holds at least one event; correct the limit").WithField("limit")
	}
	if sel.Kind == ByCorrelation && sel.LegalEntity == "" {
		return s.acrossEntities(ctx, sel, q)
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
	digest := digestOf(sel)
	var pos Position
	if sel.Cursor != "" {
		if pos, err = s.cursors.Open(sel.Cursor, sel.TenantID, digest); err != nil {
			return Page{}, err
		}
		q.After, q.Until = pos.After, pos.Until
		now, err := s.witness(ctx, le.Partition, pos.Until)
		if err != nil {
			return Page{}, err
		}
		if now != pos.Witness {
			return Page{}, fault.New(fault.Conflict, "cursor.diverged", "the log is not the one that this cursor was made on, as after a failover that lost its end; start the query again without a cursor").WithField("cursor")
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
	}
	q.Limit = sel.Limit + 1
	events, err := s.events.Events(ctx, q)
	if err != nil {
		return Page{}, err
	}
	page := Page{Events: events}
	if len(events) > sel.Limit {
		page.Events, page.HasMore = events[:sel.Limit], true
		if sel.Cursor == "" {
			if pos.Witness, err = s.witness(ctx, le.Partition, q.Until); err != nil {
				return Page{}, err
			}
		}
		page.NextCursor = s.cursors.Seal(sel.TenantID, digest, Position{After: page.Events[sel.Limit-1].Sequence, Until: q.Until, Witness: pos.Witness})
	}
	return page, nil
}

// witness is the beginning of the checksum of the event at a sequence, zero if
// there is none.
func (s *Service) witness(ctx context.Context, p event.PartitionID, at event.Sequence) (w [8]byte, err error) {
	if at == 0 {
		return w, nil
	}
	events, err := s.events.Events(ctx, ports.EventQuery{Partition: p, After: at - 1, Until: at, Limit: 1, WithoutData: true})
	if err == nil && len(events) == 1 {
		copy(w[:], events[0].Checksum[:])
	}
	return w, err
}

// acrossEntities gathers a correlation from every legal entity the caller may
// see, in order of recording. A business process is small, so it is one page.
func (s *Service) acrossEntities(ctx context.Context, sel Selection, q ports.EventQuery) (Page, error) {
	if sel.Cursor != "" {
		return Page{}, malformedCursor()
	}
	entities, err := s.directory.LegalEntities(ctx, sel.TenantID)
	if err != nil {
		return Page{}, err
	}
	page := Page{Events: []event.Recorded{}}
	for _, le := range entities {
		if !readable(sel.Readable, le.Code) {
			continue
		}
		q.Partition, q.Limit = le.Partition, sel.Limit+1
		part, err := s.events.Events(ctx, q)
		if err != nil {
			return Page{}, err
		}
		page.Events = append(page.Events, part...)
	}
	sortByRecording(page.Events, q.Direction)
	if len(page.Events) > sel.Limit {
		page.Events, page.HasMore = page.Events[:sel.Limit], true
	}
	return page, nil
}

func readable(codes []string, code string) bool {
	if len(codes) == 0 {
		return true
	}
	for _, c := range codes {
		if c == code {
			return true
		}
	}
	return false
}

// Lineage is a chain of causes.
type Lineage struct {
	Events    []event.Recorded // root first, the event asked for last
	Truncated bool             // depth, a legal entity out of the caller's sight, or a cause that is in no log cut it
}

// Lineage follows an event's causes to the root, across legal entities that the
// caller may see.
func (s *Service) Lineage(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID) (Lineage, error) {
	entities, err := s.directory.LegalEntities(ctx, le.TenantID)
	if err != nil {
		return Lineage{}, err
	}
	codes := make(map[event.PartitionID]string, len(entities))
	for _, e := range entities {
		codes[e.Partition] = e.Code
	}
	var out Lineage
	partition := le.Partition
	for {
		chain, cut, err := s.causality.Lineage(ctx, partition, id, MaxLineageDepth-len(out.Events))
		if len(out.Events) > 0 && fault.KindOf(err) == fault.NotFound {
			out.Truncated = true // a raw append may name a cause that is in no log
			return out, nil
		}
		if err != nil {
			return Lineage{}, err
		}
		out.Events = append(chain, out.Events...)
		root := out.Events[0]
		if !hasCause(root) {
			return out, nil
		}
		code, known := codes[root.CausedByPartition]
		if cut || len(out.Events) > MaxLineageDepth || !known || !readable(readableCodes, code) {
			out.Truncated = true
			return out, nil
		}
		partition, id = root.CausedByPartition, root.CausedBy
	}
}

func hasCause(e event.Recorded) bool { return e.CausedBy != event.ID{} }

// Known resolves known_at to a sequence: a time, "seq:<n>", or "" for the head.
// The text that it returns is what a report repeats.
func (s *Service) Known(ctx context.Context, p event.PartitionID, knownAt string) (event.Sequence, string, error) {
	head, err := s.events.Head(ctx, p)
	if err != nil {
		return 0, "", err
	}
	if knownAt == "" {
		return head.Sequence, seqText(head.Sequence), nil
	}
	if n, ok := parseSeq(knownAt); ok {
		if n > head.Sequence {
			return 0, "", fault.New(fault.Invalid, "report.known_at_in_future", "known_at lies after the last event; ask for seq:%d or earlier", head.Sequence).WithField("known_at")
		}
		return n, knownAt, nil
	}
	t, err := time.Parse(time.RFC3339Nano, knownAt)
	if err != nil {
		return 0, "", fault.New(fault.Invalid, "report.known_at_invalid", "known_at is an RFC 3339 time or seq:<n>").WithField("known_at")
	}
	n, err := s.events.SequenceAt(ctx, p, t)
	return n, knownAt, err
}
