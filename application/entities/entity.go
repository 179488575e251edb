// Package entities computes the state of an entity: now, or as of an effective date and a
// known_at time.
//
// Service folds all events of a legal entity that refer to the entity, starting from the
// newest usable snapshot, and saves new snapshots in the background. Consistency chooses
// between freshness and speed. The HTTP API calls it. It writes nothing but snapshots, and
// personal values in a state stay sealed.
package entities

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Consistency is how current an answer has to be.
type Consistency string

// The levels, strongest first. Without a usable snapshot every level folds the log, so an
// answer may be stronger than requested.
const (
	// Strong includes every event that was committed before the read.
	Strong Consistency = "strong"
	// Verified is correct as of a sequence that the answer states: the newest snapshot, after
	// one query has shown that no later event is back-dated before it, or the events that
	// were folded before the time limit.
	Verified Consistency = "verified"
	// Eventual is the newest snapshot, however old, without a check.
	Eventual Consistency = "eventual"
)

// ParseConsistency reads a level; "" is Strong.
func ParseConsistency(text string) (Consistency, bool) {
	switch c := Consistency(text); c {
	case "":
		return Strong, true
	case Strong, Verified, Eventual:
		return c, true
	default:
		return "", false
	}
}

// Log is the part of the log's read side that folds need.
type Log interface {
	Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error)
	ports.EventSearcher
}

// Positions resolves moments to sequences.
type Positions interface {
	// ResolveKnownAt returns the last sequence recorded by knownAt: an RFC 3339 time,
	// "seq:<n>", or "" for now. Faults: report.known_at_*, legal_entity.not_found.
	ResolveKnownAt(ctx context.Context, p event.PartitionID, knownAt string) (event.Sequence, string, error)
}

// Folds finds the fold of an entity type; module.Catalog implements it.
type Folds interface {
	EntityFold(entityType string) (module.EntityFold, bool)
}

// Background runs work after the answer. It may drop it.
type Background interface {
	// Do starts f unless a job with the same key is running or all workers are busy.
	Do(key string, f func(ctx context.Context)) bool
}

// Observer watches reads.
type Observer interface {
	// EntityRead reports the consistency that an answer has, the number of events folded, and
	// whether the time limit ended the fold.
	EntityRead(reached string, folded int, exhausted bool)
}

// Config is what a Service needs.
type Config struct {
	Log        Log
	Snapshots  *snapshots.Entities // nil: there are none
	Archived   *snapshots.Archived // states from which archived events are not needed; nil: there are none
	Positions  Positions
	Folds      Folds
	Background Background
	Clock      ports.Clock
	Logger     *slog.Logger // nil: no log
	Observer   Observer     // nil: none
	// ReadingID identifies the current upcasting of events. A snapshot that was folded under
	// another id is not used. nil: events are not upcast.
	ReadingID func(tenantID string) string
	Limits
	// Elapsed measures the duration of a read; nil: time.Since.
	Elapsed func(since time.Time) time.Duration
}

// Limits bound the folds of a Service; all are required.
type Limits struct {
	SnapshotEvery int           // a snapshot is taken when more events than this were folded beyond the newest
	FoldTimeout   time.Duration // for a fold
}

// Service reads entities.
type Service struct{ Config }

// New makes a Service.
func New(c Config) (*Service, error) {
	if err := fault.RequirePositive("entities.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Elapsed == nil {
		c.Elapsed = time.Since
	}
	return &Service{c}, nil
}

// Query asks for the state of an entity.
type Query struct {
	LegalEntity ports.LegalEntity
	Type, ID    string
	Consistency Consistency
	AsOf        *event.Date // only events that take effect on this day or before; nil: all
	KnownAt     string      // only events recorded then: RFC 3339 time or "seq:<n>"; "": all
}

// State is the answer.
type State struct {
	State       json.RawMessage // a JSON object; personal values are sealed copies
	Version     event.Sequence  // of the last event that was folded
	AsOf        event.Sequence  // everything recorded up to here that the query wants is in it
	Head        event.Sequence  // of the newest event that refers to the entity
	EventCount  int             // events in the state, those of the snapshot too
	Folded      int             // events that this read folded
	Reached     Consistency
	KnownAt     string // as asked, "" if nothing was asked
	Snapshot    *ports.EntitySnapshot
	PartitionID event.PartitionID
}

func notFoundFault() error {
	return fault.New(fault.NotFound, "entity.not_found", "no event of this legal entity refers to such an entity; check type, id and legal entity")
}

func notYetFault() error {
	return fault.New(fault.NotFound, "entity.not_found", "the entity exists, but no event refers to it as of this day and moment; ask for a later as_of or known_at")
}

// Read folds an entity. A caller that does not see all event types (module.SightOf) gets the
// state from those events that it sees; for an entity without any it is not found. Faults: entity.not_found (also if no event refers to it as of
// the day and moment asked for), report.known_at_invalid, report.known_at_in_future,
// legal_entity.not_found.
func (s *Service) Read(ctx context.Context, q Query) (State, error) {
	r := entityRead{service: s, query: q, key: event.EntityKey(q.Type, q.ID), startedAt: s.Clock.Now(), fold: s.foldOf(q)}
	var err error
	var text string
	if r.known, text, err = s.Positions.ResolveKnownAt(ctx, q.LegalEntity.Partition, q.KnownAt); err != nil {
		return State{}, err
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return State{}, err
	}
	if r.types = sight.Limit(nil); r.isLimited() && len(r.types) == 0 {
		return State{}, notFoundFault()
	}
	newest, err := s.Log.Events(ctx, ports.EventQuery{
		Partition: q.LegalEntity.Partition, Key: r.key, Types: r.types, Direction: ports.Backward, Limit: 1, WithoutData: true, Until: r.headBound(),
	})
	if err != nil {
		return State{}, err
	}
	if len(newest) == 0 {
		return State{}, notFoundFault()
	}
	if r.known == 0 {
		return State{}, notYetFault()
	}
	r.head = newest[0].Sequence
	out, err := r.read(ctx)
	if err != nil {
		return State{}, err
	}
	if out.EventCount == 0 {
		return State{}, notYetFault()
	}
	out.Head, out.PartitionID = r.head, q.LegalEntity.Partition
	if q.KnownAt != "" {
		out.KnownAt = text
	}
	if s.Observer != nil {
		s.Observer.EntityRead(string(out.Reached), out.Folded, r.exhausted)
	}
	if r.exhausted {
		s.Logger.WarnContext(ctx, "an entity took too long to fold; what was folded in time was answered",
			"entity_type", q.Type, "legal_entity", q.LegalEntity.Code, "folded", out.Folded, "as_of_sequence", uint64(out.AsOf))
	}
	return out, nil
}

// mergeFold is the fold of types without a declared one: it merges the members of the events'
// data, later events over earlier ones.
var mergeFold = module.EntityFold{
	Version: 1,
	New:     func(string) any { return &map[string]json.RawMessage{} },
	Apply: func(state any, _ event.Recorded, data []byte) error {
		if !isObject(data) {
			return nil
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(data, &members); err != nil {
			return err
		}
		maps.Copy(*state.(*map[string]json.RawMessage), members)
		return nil
	},
}

// foldOf is the declared fold of the entity's type, else mergeFold.
func (s *Service) foldOf(q Query) entityFold {
	of := entityFold{mergeFold, "members/" + strconv.Itoa(mergeFold.Version)}
	if f, ok := s.Folds.EntityFold(q.Type); ok {
		of = entityFold{f, strconv.Itoa(f.Version)}
	}
	if s.ReadingID != nil {
		of.name += "@" + s.ReadingID(q.LegalEntity.TenantID)
	}
	return of
}

// entityFold is a fold and the name that identifies its snapshots.
type entityFold struct {
	module.EntityFold
	name string
}
