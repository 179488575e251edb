// Package memory keeps the log, the directories, the registry and the read models in the
// process's memory, so that modules can test decisions and projections without a database.
// test/conformance checks it with the same suites as the PostgreSQL adapter. Production does not
// use it.
//
// A Database has one object per concern, named like those of postgres.Database; they share
// one state under one lock. A KeyStore is a separate key store, and DataKeys stands for a
// key service. A handler of a projection gets a Tx.
//
// It differs from PostgreSQL where the suites do not look:
//
//   - Nothing is durable, and nothing is fast at finding rows: most reads scan.
//   - An append that holds the lock runs to its end, whatever happens to its ctx, so the outcome
//     is always known: there is no append.outcome_unknown, and the store is never unavailable.
//   - One caller at a time writes a read model, of any projection and partition; appends and reads
//     go on while its handler runs. A handler that calls Advance waits for itself.
//   - Rows of single entities cannot be rebuilt (see ProjectionTargets), and a switch of one
//     partition moves the rows of custom projections only.
package memory

import (
	"context"
	"crypto/rand"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Config says what a database takes from outside. The zero value is usable.
type Config struct {
	Clock      ports.Clock // nil: the system's clock
	Random     io.Reader   // source of partition numbers; nil: crypto/rand
	LogName    string      // when set, the log is bootstrapped with this name at once
	Deployment uint16      // 12 bits; used with LogName
	Keys       KeyLeases   // the key store; nil: sealed values are refused with pii.keys_missing
	// TransactionLimit is how long a caller may write a read model or deliver while another one waits,
	// before its transaction is ended; 0: as long as it likes.
	TransactionLimit time.Duration
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
	Redactions          *Redactions
	AccessLog           *AccessLog
	BlindIndex          *BlindIndex
	Papers              *Papers
	GlobalLog           *GlobalLog
}

// state is what all objects of a database share.
type state struct {
	clock  ports.Clock
	random io.Reader
	keys   KeyLeases

	mu           sync.Mutex
	installation *ports.Installation
	partitions   map[event.PartitionID]*partition
	types        []eventtype.Registration // built-in ones
	// typeDocuments are those of types, which take long to make.
	typeDocuments [][]byte
	typeNames     map[string]ports.EventTypeName
	listeners     map[*listener]struct{}
	// typeListeners get a signal when event types change.
	typeListeners map[chan struct{}]struct{}

	checkpoints   map[checkpointKey]ports.Checkpoint
	tables        map[string]map[string]any
	projections   map[projectionKey]projection.Projection
	letters       map[letterKey]ports.DeadLetter
	snapshotParts map[checkpointKey]ports.SnapshotPart
	snapshotMACs  map[checkpointKey][]byte
	readModels    *writeLock // held while a handler runs, which mu is not

	entitySnapshots map[entityKey][]ports.EntitySnapshot
	streamSnapshots map[streamSnapshotKey][]ports.StreamSnapshot

	redactionRequests map[event.ID]*ports.RedactionRequest

	accesses map[event.PartitionID][]disclosure.Access // by time and id

	index   map[blindindex.Entry]bool
	indexed map[event.PartitionID]ports.BlindIndexPosition

	papers map[paperKey]storedPaper

	global globalLog

	subscriptions map[event.ID]*subscriptionRecord
	endpoints     map[event.ID]ports.WebhookEndpoint
	attempts      map[event.ID][]ports.WebhookAttempt // by time
	publishers    map[publisherKey]ports.PublisherCursor

	leases map[ports.LeaseResource]ports.Lease
	nodes  map[string]map[string]time.Time // by work; "" is all work
}

// New makes an empty database.
func New(c Config) *Database {
	s := &state{
		clock:           c.Clock,
		random:          c.Random,
		keys:            c.Keys,
		partitions:      map[event.PartitionID]*partition{},
		typeNames:       map[string]ports.EventTypeName{},
		listeners:       map[*listener]struct{}{},
		typeListeners:   map[chan struct{}]struct{}{},
		checkpoints:     map[checkpointKey]ports.Checkpoint{},
		tables:          map[string]map[string]any{},
		projections:     map[projectionKey]projection.Projection{},
		letters:         map[letterKey]ports.DeadLetter{},
		snapshotParts:   map[checkpointKey]ports.SnapshotPart{},
		snapshotMACs:    map[checkpointKey][]byte{},
		readModels:      newWriteLock(c.TransactionLimit),
		entitySnapshots: map[entityKey][]ports.EntitySnapshot{},
		streamSnapshots: map[streamSnapshotKey][]ports.StreamSnapshot{},
		subscriptions:   map[event.ID]*subscriptionRecord{},
		endpoints:       map[event.ID]ports.WebhookEndpoint{},
		attempts:        map[event.ID][]ports.WebhookAttempt{},
		publishers:      map[publisherKey]ports.PublisherCursor{},
		leases:          map[ports.LeaseResource]ports.Lease{},
		nodes:           map[string]map[string]time.Time{},

		redactionRequests: map[event.ID]*ports.RedactionRequest{},

		accesses: map[event.PartitionID][]disclosure.Access{},
		index:    map[blindindex.Entry]bool{},
		indexed:  map[event.PartitionID]ports.BlindIndexPosition{},
		papers:   map[paperKey]storedPaper{},
		global:   globalLog{ends: map[event.PartitionID]event.Sequence{}, tiles: map[int][]globallog.Tile{}},
	}
	if s.clock == nil {
		s.clock = systemClock{}
	}
	if s.random == nil {
		s.random = rand.Reader
	}
	if c.LogName != "" {
		s.installation = &ports.Installation{LogName: c.LogName, Deployment: c.Deployment & maxDeployment, CreatedAt: s.now()}
	}
	return &Database{
		Appender: &Appender{s, s.clock}, Events: &EventReader{s}, Audit: &Audit{s}, PersonalRecords: &PersonalRecords{s},
		Snapshots: &Snapshots{s}, Intents: &Intents{s}, Registry: &Registry{s}, Directory: &Directory{s},
		Projections: &Projections{s}, ProjectionVersions: &ProjectionVersions{s}, ProjectionRows: &ProjectionRows{s},
		ProjectionSnapshots: &ProjectionSnapshots{s}, ProjectionTargets: &ProjectionTargets{}, ReadModels: &ReadModels{s},
		Subscriptions: &SubscriptionStore{s}, Webhooks: &Webhooks{s}, Publishers: &Publishers{s}, Leases: &Leases{s},
		Redactions: &Redactions{s}, AccessLog: &AccessLog{s}, BlindIndex: &BlindIndex{s}, Papers: &Papers{s}, GlobalLog: &GlobalLog{s},
	}
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (s *state) now() time.Time { return event.Micros(s.clock.Now()) }

// do runs f with the lock held, unless the caller gave up before.
func (s *state) do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil { // the caller gave up while it waited for the lock
		return err
	}
	return f()
}

// get is do for an f with a result.
func get[T any](ctx context.Context, s *state, f func() (T, error)) (out T, err error) {
	err = s.do(ctx, func() error { out, err = f(); return err })
	return out, err
}

// read runs f with the lock held and the partition; an unknown one is empty.
func (s *state) read(ctx context.Context, id event.PartitionID, f func(p *partition) error) error {
	return s.do(ctx, func() error {
		p := s.partitions[id]
		if p == nil {
			p = &partition{}
		}
		return f(p)
	})
}

// readPartition is read for an f with a result.
func readPartition[T any](ctx context.Context, s *state, id event.PartitionID, f func(p *partition) (T, error)) (out T, err error) {
	err = s.read(ctx, id, func(p *partition) error { out, err = f(p); return err })
	return out, err
}

// reader is for the other objects: they read events as callers do.
func (s *state) reader() *EventReader { return &EventReader{s} }

// list gives the values that keep accepts, in the order of compare; equal ones keep theirs.
func list[T any](values iter.Seq[T], keep func(T) bool, compare func(a, b T) int) []T {
	out := []T{}
	for v := range values {
		if keep(v) {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, compare)
	return out
}

// all is a condition of list that every value meets.
func all[T any](T) bool { return true }

// first cuts a page off; a limit of 0 is none.
func first[T any](values []T, limit int) []T {
	if full(len(values), limit) {
		return values[:limit]
	}
	return values
}

func full(n, limit int) bool { return limit > 0 && n >= limit }

// partition is one legal entity's log with everything that is checked under the lock. Slices of
// sequences are ascending.
type partition struct {
	legalEntity ports.LegalEntity
	genesis     event.Hash
	events      []event.Recorded // the event with sequence n is at n-1
	byID        map[event.ID]event.Sequence
	byStream    map[event.StreamID][]event.Sequence
	streams     map[event.StreamID]changedStream // those with a state of their own or metadata
	byKey       map[string][]event.Sequence      // by tags and entity references, see event.TagKey and EntityKey
	business    map[businessKey]fault.Holder
	idempotency map[string]idempotencyRow
	series      map[string]uint64 // last number taken
	intents     map[event.ID]intent.Intent
	redactions  []ports.Redaction
	// The records with sealed values of a person: pointers to them by record and key class.
	eventSubjects  map[shredding.Subject]map[eventClass][]string
	intentSubjects map[shredding.Subject]map[intentClass][]string
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
		business:    map[businessKey]fault.Holder{},
		idempotency: map[string]idempotencyRow{},
		series:      map[string]uint64{},
		intents:     map[event.ID]intent.Intent{},

		eventSubjects:  map[shredding.Subject]map[eventClass][]string{},
		intentSubjects: map[shredding.Subject]map[intentClass][]string{},
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
