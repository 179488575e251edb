// Package query reads the log and the read models on behalf of callers.
//
// Service reads events by id, by stream, by selection and by cause; Feeds follows the
// growing log for live subscribers; Reports queries the read models that modules declare,
// on both time axes (as_of, known_at). CursorSealer signs the cursors of all of them, so
// that a client can neither forge one nor use it for another query. The HTTP API calls
// the package. It returns only events and rows that the caller may read, with personal values
// sealed, and never writes. What a service does not see (module.SightOf) is left out of pages.
//
// A paged query pins the head of each log on its first page; later pages end there.
package query

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Directory resolves legal entities.
type Directory interface {
	LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error)
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
	Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}

// Log is the store's read side.
type Log interface {
	ports.EventReader
	ports.EventSearcher
	ports.StreamReader
	ports.MatchReader
	ports.CausalityReader
}

// Config is what a Service needs.
type Config struct {
	Log       Log
	Directory Directory
	Cursors   *CursorSealer
	Clock     ports.Clock
	// SettleDelay is how long after a time an event may still be recorded with a time at or
	// before it, because clocks of nodes differ: twice the clock error of a node. Reads as of a
	// known_at time wait for it.
	SettleDelay time.Duration
}

// Service reads events.
type Service struct {
	events      Log
	directory   Directory
	cursors     *CursorSealer
	clock       ports.Clock
	settleDelay time.Duration
	scan        int // MaxScan
}

// New makes a Service.
func New(c Config) *Service {
	return &Service{events: c.Log, directory: c.Directory, cursors: c.Cursors, clock: c.Clock, settleDelay: c.SettleDelay, scan: MaxScan}
}

// ByID reads one event. One that the caller does not see is not found, as one that does not
// exist.
func (s *Service) ByID(ctx context.Context, le ports.LegalEntity, id event.ID) (event.Recorded, error) {
	sight, err := module.SightOf(ctx)
	if err != nil {
		return event.Recorded{}, err
	}
	return s.byID(ctx, sight, le.Partition, id)
}

func (s *Service) byID(ctx context.Context, sight module.Sight, p event.PartitionID, id event.ID) (event.Recorded, error) {
	found, err := s.events.EventByID(ctx, p, id)
	if err == nil && !sight.Sees(found.Type) {
		return event.Recorded{}, eventNotFound(id)
	}
	return found, err
}

// eventNotFound is the fault of the store, so that an event out of sight looks like none.
func eventNotFound(id event.ID) error {
	return fault.New(fault.NotFound, "event.not_found", "there is no event %s in this legal entity; check the id and the legal entity", id)
}

// StreamKind is the attribute that a Selection groups events by.
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

// Selection asks for a page of events.
type Selection struct {
	TenantID    string
	Kind        StreamKind
	StreamID    string
	LegalEntity string   // "" only for correlations
	Readable    []string // legal entities the caller may see; empty: all of the tenant
	// Administrative says that the caller may read the administrative log, so that a correlation
	// without LegalEntity is searched there too.
	Administrative bool
	Filter         ports.EventQuery
	Modules        []string // only events of these modules; empty: all
	ModuleTypes    []string // the event types of Modules; may grow from page to page
	Cursor         string
	Limit          int
}

// Page is a page of events.
type Page struct {
	Events     []event.Recorded
	HasMore    bool
	NextCursor string
}

// checksumPrefix reads the first bytes of the checksum of the event at a sequence, zero if
// there is no such event.
func (s *Service) checksumPrefix(ctx context.Context, p event.PartitionID, at event.Sequence) (w [8]byte, err error) {
	if at == 0 {
		return w, nil
	}
	events, err := s.events.Events(ctx, ports.EventQuery{Partition: p, After: at - 1, Until: at, Limit: 1, WithoutData: true})
	if err == nil && len(events) == 1 {
		copy(w[:], events[0].Checksum[:])
	}
	return w, err
}

func isReadable(codes []string, code string) bool {
	return len(codes) == 0 || slices.Contains(codes, code)
}

// ResolveKnownAt resolves known_at to a sequence: a time, "seq:<n>", or "" for the head.
// The text it returns is the known_at that a report states. Faults:
// report.known_at_in_future, report.known_at_invalid.
func (s *Service) ResolveKnownAt(ctx context.Context, p event.PartitionID, knownAt string) (event.Sequence, string, error) {
	head, err := s.events.Head(ctx, p)
	if err != nil {
		return 0, "", err
	}
	if knownAt == "" {
		return head.Sequence, formatSequence(head.Sequence), nil
	}
	if n, ok := parseSequence(knownAt); ok {
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
