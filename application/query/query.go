// Package query reads the log for people: events by id and by stream, pages with
// signed cursors, lineage across legal entities, and the read models that modules
// declare.
package query

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Directory resolves legal entities.
type Directory interface {
	LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error)
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}

// Log is what is read.
type Log interface {
	ports.EventReader
	ports.EventSearcher
	ports.StreamReader
	ports.MatchReader
}

// Service answers reads.
type Service struct {
	events    Log
	causality ports.CausalityReader
	directory Directory
	cursors   *Cursors
	scan      int // MaxScan
	now       func() time.Time
	settle    time.Duration // see WithSettle
}

// Option is an optional part of a Service.
type Option func(*Service)

// WithClock asks another clock than the machine's how old events are.
func WithClock(c ports.Clock) Option { return func(s *Service) { s.now = c.Now } }

// WithSettle lets a stream as known at a moment wait until the moment is settled: so
// long after it an event may still be recorded with a time at or before it.
func WithSettle(d time.Duration) Option { return func(s *Service) { s.settle = d } }

// New makes a Service.
func New(events Log, causality ports.CausalityReader, directory Directory, cursors *Cursors, options ...Option) *Service {
	s := &Service{events: events, causality: causality, directory: directory, cursors: cursors, scan: MaxScan, now: time.Now}
	for _, o := range options {
		o(s)
	}
	return s
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
	ByDimension   StreamKind = "dimension"
)

// Selection is a question for a page of events.
type Selection struct {
	TenantID    string
	Kind        StreamKind
	StreamID    string
	LegalEntity string   // "" only for correlations
	Readable    []string // legal entities the caller may see; empty: all of the tenant
	Filter      ports.EventQuery
	Modules     []string // whose events; the types that are theirs are in ModuleTypes
	ModuleTypes []string // read when Modules is not empty; may grow from page to page
	Cursor      string
	Limit       int
}

// Page is a page of events.
type Page struct {
	Events     []event.Recorded
	HasMore    bool
	NextCursor string
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
