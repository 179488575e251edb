// Package memory keeps the log, the directories, the registry and the read
// models in the process's memory. It makes the same promises as the PostgreSQL
// adapter except durability (test/conformance checks both with one body), so
// modules test decisions and projections on it without a database. One mutex
// guards the log; another one lets a single projection batch run at a time.
package memory

import (
	"crypto/rand"
	"io"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Config says what a store takes from outside. The zero value is usable.
type Config struct {
	Clock      ports.Clock // nil: the system's clock
	Random     io.Reader   // source of partition numbers; nil: crypto/rand
	LogName    string      // when set, the store is bootstrapped with this log name at once
	Deployment uint16      // 12 bits; used with LogName
	Keys       KeyLeases   // nil: sealed values are refused with pii.keys_missing
}

// Database is a log in memory, one object per concern. It is safe for concurrent use.
type Database struct {
	Appender            *Appender
	Events              *EventReader
	Audit               *Audit
	PersonalRecords     *PersonalRecords
	Snapshots           *Snapshots
	Intents             *Intents
	Registry            *Registry
	Directory           *Directory
	Projections         *Projections
	ProjectionVersions  *ProjectionVersions
	ProjectionRows      *ProjectionRows
	ProjectionSnapshots *ProjectionSnapshots
	ProjectionTargets   *ProjectionTargets
	ReadModels          *ReadModels
	Subscriptions       *SubscriptionStore
	Webhooks            *Webhooks
	Publishers          *Publishers
	Leases              *Leases
}

// The objects of a database share its state.
type (
	// Appender writes to the log.
	Appender struct{ *state }
	// EventReader reads and searches events, and reports new ones.
	EventReader struct{ heads }
	// Audit reads what a verification compares.
	Audit struct{ *state }
	// PersonalRecords finds the records that hold sealed values of a person.
	PersonalRecords struct{ *state }
	// Snapshots keeps states of entities and streams.
	Snapshots struct{ *state }
	// Intents reads intents and the outcomes of idempotency keys.
	Intents struct{ *state }
	// Registry keeps the registered event types and their history.
	Registry struct{ *state }
	// Directory keeps the installation, its legal entities and its principals.
	Directory struct{ *state }
	// Projections moves read models along the log.
	Projections struct{ heads }
	// ProjectionVersions keeps the register of projections, their versions and dead letters.
	ProjectionVersions struct{ *state }
	// ProjectionRows keeps the rows of custom projections.
	ProjectionRows struct{ *state }
	// ProjectionSnapshots keeps copies of the rows of versions.
	ProjectionSnapshots struct{ *state }
	// ProjectionTargets refuses to rebuild single entities: see its methods.
	ProjectionTargets struct{ *state }
	// ReadModels reads the committed rows that handlers wrote through a Tx.
	ReadModels struct{ *state }
	// SubscriptionStore keeps subscriptions, their deliveries and dead letters.
	SubscriptionStore struct{ *state }

	// heads reads the positions that readers of the log and projections both need.
	heads struct{ *state }
)

// state is what all objects of a database share.
type state struct {
	clock  ports.Clock
	random io.Reader
	keys   KeyLeases

	mu           sync.RWMutex
	installation *ports.Installation
	partitions   map[event.PartitionID]*partition
	principals   map[principalKey]ports.Principal
	types        []eventtype.Registration
	typeNumbers  map[string]int32
	generation   int64
	typeChanges  []eventtype.Change
	checkpoints  map[checkpointKey]ports.Checkpoint
	tables       map[string]map[string]any
	listeners    map[*listener]struct{}
	work         *Leases
	operated     projectionState
	snapshots    snapshots

	subs subscriptions

	advancing chan struct{} // holds one token: the right to run a projection batch
}

// New makes an empty database.
func New(c Config) *Database {
	s := &state{
		clock:       c.Clock,
		random:      c.Random,
		keys:        c.Keys,
		partitions:  map[event.PartitionID]*partition{},
		principals:  map[principalKey]ports.Principal{},
		typeNumbers: map[string]int32{},
		checkpoints: map[checkpointKey]ports.Checkpoint{},
		tables:      map[string]map[string]any{},
		listeners:   map[*listener]struct{}{},
		operated:    newProjectionState(),
		snapshots:   newSnapshots(),
		advancing:   make(chan struct{}, 1),
	}
	if s.clock == nil {
		s.clock = systemClock{}
	}
	if s.random == nil {
		s.random = rand.Reader
	}
	s.work = newLeases(s.clock)
	if c.LogName != "" {
		s.installation = &ports.Installation{LogName: c.LogName, Deployment: c.Deployment & maxDeployment, CreatedAt: s.now()}
	}
	return &Database{
		Appender:            &Appender{s},
		Events:              &EventReader{heads{s}},
		Audit:               &Audit{s},
		PersonalRecords:     &PersonalRecords{s},
		Snapshots:           &Snapshots{s},
		Intents:             &Intents{s},
		Registry:            &Registry{s},
		Directory:           &Directory{s},
		Projections:         &Projections{heads{s}},
		ProjectionVersions:  &ProjectionVersions{s},
		ProjectionRows:      &ProjectionRows{s},
		ProjectionSnapshots: &ProjectionSnapshots{s},
		ProjectionTargets:   &ProjectionTargets{s},
		ReadModels:          &ReadModels{s},
		Subscriptions:       &SubscriptionStore{s},
		Webhooks:            &Webhooks{},
		Publishers:          newPublishers(s.clock),
		Leases:              s.work,
	}
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (s *state) now() time.Time { return event.Micros(s.clock.Now()) }

// partition is one legal entity's log with everything that is checked under its
// lock. Posting lists hold ascending sequences.
type partition struct {
	legalEntity ports.LegalEntity
	genesis     event.Hash
	events      []event.Recorded // the event with sequence n is at n-1
	byID        map[event.ID]event.Sequence
	byStream    map[event.StreamID][]event.Sequence
	streams     map[event.StreamID]changedStream // those that are not as every stream begins
	byKey       map[string][]event.Sequence
	byType      map[string][]event.Sequence
	business    map[businessKey]fault.Holder
	idempotency map[string]idempotencyRow
	series      map[string]uint64 // last number taken
	intents     map[event.ID]intent.Intent
	// What holds sealed values of a person: fields by record and key class.
	eventSubjects  map[shredding.Subject]map[eventClass]int
	intentSubjects map[shredding.Subject]map[intentClass]int
}

type businessKey struct{ eventType, key string }

type idempotencyRow struct {
	outcome   ports.IdempotencyOutcome
	expiresAt time.Time
}

func newPartition(le ports.LegalEntity, genesis event.Hash) *partition {
	return &partition{
		legalEntity: le,
		genesis:     genesis,
		byID:        map[event.ID]event.Sequence{},
		byStream:    map[event.StreamID][]event.Sequence{},
		streams:     map[event.StreamID]changedStream{},
		byKey:       map[string][]event.Sequence{},
		byType:      map[string][]event.Sequence{},
		business:    map[businessKey]fault.Holder{},
		idempotency: map[string]idempotencyRow{},
		series:      map[string]uint64{},
		intents:     map[event.ID]intent.Intent{},

		eventSubjects:  map[shredding.Subject]map[eventClass]int{},
		intentSubjects: map[shredding.Subject]map[intentClass]int{},
	}
}

func (p *partition) head() ports.Head {
	h := ports.Head{Genesis: p.genesis, Checksum: p.genesis}
	if n := len(p.events); n > 0 {
		last := &p.events[n-1]
		h.Sequence, h.RecordedAt, h.Checksum = last.Sequence, last.RecordedAt, last.Checksum
	}
	return h
}

func (p *partition) at(n event.Sequence) *event.Recorded { return &p.events[n-1] }

func unknownLegalEntity() error {
	return fault.New(fault.NotFound, "legal_entity.not_found", "there is no such legal entity; create it first or check its code")
}

// reader is for the other objects: they read events as callers do.
func (s *state) reader() *EventReader { return &EventReader{heads{s}} }
