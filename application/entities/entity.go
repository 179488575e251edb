// Package entities answers what an entity is now, or was on a day as known at a moment,
// by folding all events of a legal entity that refer to it.
package entities

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Consistency is how far an answer goes with the log.
type Consistency string

// The levels, strongest first. Without a usable snapshot each of them folds the log,
// so more may be reached than was asked for.
const (
	// Strong has every event that was committed before the read: the newest valid
	// snapshot and all that came after it.
	Strong Consistency = "strong"
	// Verified is right as of a sequence that the answer names: the newest snapshot, of
	// which one look has shown that no later event takes effect before something in it,
	// or what a read folded until its time was up.
	Verified Consistency = "verified"
	// Eventual is the newest snapshot however old, without looking on.
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

// Defaults of Config.
const (
	DefaultSnapshotEvery = 100
	DefaultFoldTimeout   = 500 * time.Millisecond
)

// Log is what is read of the log.
type Log interface {
	Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error)
	ports.EventSearcher
}

// Positions resolves moments to sequences.
type Positions interface {
	// ResolveKnownAt gives the last sequence that was recorded at a moment: an RFC 3339 time,
	// "seq:<n>", or "" for now. Faults: report.known_at_*, legal_entity.not_found.
	ResolveKnownAt(ctx context.Context, p event.PartitionID, knownAt string) (event.Sequence, string, error)
}

// Folds finds how a type of entity is folded: module.Catalog.
type Folds interface {
	EntityFold(entityType string) (module.EntityFold, bool)
}

// Background does work after an answer was given. It may drop it.
type Background interface {
	// Do runs f unless something runs under the key already or too much is to be done.
	Do(key string, f func(ctx context.Context)) bool
}

// Observer watches reads.
type Observer interface {
	// EntityRead reports what an answer reached, how many events were folded for it,
	// and that its time was up before the fold was complete.
	EntityRead(reached string, folded int, exhausted bool)
}

// Config is what a Service needs.
type Config struct {
	Log        Log
	Snapshots  ports.EntitySnapshots
	Positions  Positions
	Folds      Folds
	Background Background
	Clock      ports.Clock
	Logger     *slog.Logger // nil: no log
	Observer   Observer     // nil: nobody watches
	// ReadingID names how events of earlier versions are read; what was folded when it was
	// another is folded anew. nil: they are read as they are stored.
	ReadingID     func() string
	SnapshotEvery int           // a snapshot is taken when more events than this were folded beyond the newest; 0 is DefaultSnapshotEvery
	FoldTimeout   time.Duration // for a fold; 0 is DefaultFoldTimeout
	// Elapsed measures how long a read has taken; nil is the machine's clock.
	Elapsed func(since time.Time) time.Duration
}

// Service reads entities.
type Service struct{ Config }

// New makes a Service.
func New(c Config) *Service {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.SnapshotEvery <= 0 {
		c.SnapshotEvery = DefaultSnapshotEvery
	}
	if c.FoldTimeout <= 0 {
		c.FoldTimeout = DefaultFoldTimeout
	}
	if c.Elapsed == nil {
		c.Elapsed = time.Since
	}
	return &Service{c}
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

// Read folds an entity. Faults: entity.not_found (also if no event refers to it as of
// the day and moment asked for), report.known_at_invalid, report.known_at_in_future,
// legal_entity.not_found.
func (s *Service) Read(ctx context.Context, q Query) (State, error) {
	r := entityRead{service: s, query: q, key: event.EntityKey(q.Type, q.ID), startedAt: s.Clock.Now(), fold: s.foldOf(q.Type)}
	var err error
	var text string
	if r.known, text, err = s.Positions.ResolveKnownAt(ctx, q.LegalEntity.Partition, q.KnownAt); err != nil {
		return State{}, err
	}
	newest, err := s.Log.Events(ctx, ports.EventQuery{
		Partition: q.LegalEntity.Partition, Key: r.key, Direction: ports.Backward, Limit: 1, WithoutData: true, Until: r.headBound(),
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

// mergeFold is the fold of types that have none of their own: the members of the
// events' data, the later ones over the earlier.
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
		have := *state.(*map[string]json.RawMessage)
		for name, value := range members {
			have[name] = value
		}
		return nil
	},
}

// foldOf is the declared fold of a type, or mergeFold.
func (s *Service) foldOf(entityType string) entityFold {
	of := entityFold{mergeFold, "members/" + strconv.Itoa(mergeFold.Version)}
	if f, ok := s.Folds.EntityFold(entityType); ok {
		of = entityFold{f, strconv.Itoa(f.Version)}
	}
	if s.ReadingID != nil {
		of.name += "@" + s.ReadingID()
	}
	return of
}

// entityFold is a fold and the name that its snapshots bear.
type entityFold struct {
	module.EntityFold
	name string
}
