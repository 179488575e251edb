package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

// Store is what RunEventStore checks: the log, its directories and registry, and its read models.
// Subscriptions, publisher cursors, webhooks, leases and keys have suites of their own. An adapter
// whose objects implement single ports embeds them in one struct for the suite, as MemoryStore
// does.
type Store interface {
	ports.EventAppender
	ports.IdempotencyReader
	ports.EventReader
	ports.LogPositions
	ports.EventSearcher
	ports.StreamReader
	ports.CausalityReader
	ports.MatchReader
	ports.IntentReader
	ports.ChainReader
	ports.LegalEntities
	ports.Installations
	ports.SharedEventTypes
	ports.RegistryAudit
	ports.Projections
	ports.ProjectionRegister
	ports.ProjectionVersions
	ports.ProjectionRows
	ports.RowRecomputer
	ports.DeadLetters
	ports.WakeUps
	ports.PersonalRecords
	ports.EntitySnapshots
	ports.StreamSnapshots
	ports.ProjectionSnapshots
}

// ReadModel is a table of texts that a projection of the suite writes through
// the adapter's transaction.
type ReadModel interface {
	// Put writes a row inside the transaction, replacing an earlier one.
	Put(ctx context.Context, tx ports.ProjectionTx, p event.PartitionID, key, value string) error
	// Committed lists the partition's committed rows.
	Committed(ctx context.Context, p event.PartitionID) (map[string]string, error)
}

// EventStoreHarness makes the stores under test.
type EventStoreHarness struct {
	// New returns an empty store that has not been bootstrapped: the suite checks that state
	// and then bootstraps it under LogName, on which every genesis checksum depends. The clock is
	// the store's only source of time, since sub-tests demand times to the microsecond; the store
	// must accept that it does not move, jumps in both directions and is far from the machine's.
	// The suite calls New a few times in all, not once per sub-test: sub-tests make their own
	// legal entities.
	New func(t *testing.T, clock ports.Clock) Store
	// ReadModel returns the read model of a store made by New. It is empty at first.
	ReadModel func(t *testing.T, s Store) ReadModel
	// Keys returns the key store of a store made by New. It is empty at first. Sub-tests seal
	// events with its keys; RunKeyStore checks the key store itself.
	Keys func(t *testing.T, s Store) *KeyRegister
	// Leases returns the leases of a store made by New. Sub-tests fence projections with them;
	// RunLeases checks the leases themselves.
	Leases func(s Store) ports.Leases
	// ConditionRaces is how often writers race for an append condition. Stores that let two of them
	// win do so in few of the races.
	ConditionRaces int
}

// LogName is the log name of every store that the suite bootstraps.
const LogName = "conformance.example.org"

// Deployment is the deployment number of every store that the suite bootstraps.
const Deployment = 5

// NewClock returns a clock that stands at a Monday morning until a sub-test moves it.
func NewClock() *testkit.Clock { return testkit.NewClock(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)) }

// promise is one sub-test, named for the behaviour it checks.
type promise struct {
	name  string
	check func(t *testing.T, s *suite)
}

// RunEventStore checks the ports that Store is composed of: appends with their demands and
// side rows, reads and searches, the chain, projections with their versions and rows,
// snapshots, the directory and the registry of event types. The sub-tests share one store,
// and a clock that some of them move, so they run one after another.
func RunEventStore(t *testing.T, h EventStoreHarness) {
	t.Helper()
	t.Run("Installation", func(t *testing.T) { runInstallation(t, h) })
	runPromises(t, h, []promiseGroup{
		{"Append", appendPromises},
		{"Expectation", expectationPromises},
		{"Condition", conditionPromises},
		{"BusinessKey", businessKeyPromises},
		{"Series", seriesPromises},
		{"Idempotency", idempotencyPromises},
		{"Intent", intentPromises},
		{"Personal", personalPromises},
		{"Rollback", rollbackPromises},
		{"Read", readPromises},
		{"Search", searchPromises},
		{"Feed", feedPromises},
		{"Causality", slices.Concat(causalityPromises, descendantPromises)},
		{"Match", matchPromises},
		{"Chain", chainPromises},
		{"Time", timePromises},
		{"Cancellation", cancellationPromises},
		{"Projection", slices.Concat(projectionPromises, failurePromises, rowPromises)},
		{"ProjectionRegister", registerPromises},
		{"ProjectionVersions", slices.Concat(versionPromises, partitionPromises, limitPromises)},
		{"ProjectionSnapshots", projectionSnapshotPromises},
		{"WakeUp", wakeUpPromises},
		{"Snapshot", snapshotPromises},
		{"AsOf", asOfPromises},
		{"LegalEntity", legalEntityPromises},
		{"Registry", slices.Concat(registryPromises, historyPromises)},
		{"Lifecycle", lifecyclePromises},
		{"Race", racePromises},
		{"Model", modelPromises},
	})
}

// RunAppends checks appends one by one, with and without sealed values. It is for a store of which
// RunEventStore has checked everything, with its keys elsewhere: only appends read them.
func RunAppends(t *testing.T, h EventStoreHarness) {
	t.Helper()
	runPromises(t, h, []promiseGroup{
		{"Append", appendPromises},
		{"Expectation", expectationPromises},
		{"BusinessKey", businessKeyPromises},
		{"Series", seriesPromises},
		{"Idempotency", idempotencyPromises},
		{"Intent", intentPromises},
		{"Personal", personalPromises},
		{"Rollback", rollbackPromises},
		{"Cancellation", cancellationPromises},
	})
}

// RunConditionRaces runs the races for an append condition alone, for as many of them as RunEventStore has no
// time for.
func RunConditionRaces(t *testing.T, h EventStoreHarness) {
	t.Helper()
	raceCondition(t, newSuite(t, h))
}

type promiseGroup struct {
	name     string
	promises []promise
}

func runPromises(t *testing.T, h EventStoreHarness, groups []promiseGroup) {
	t.Helper()
	s := newSuite(t, h)
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for _, p := range group.promises {
				t.Run(p.name, func(t *testing.T) { p.check(t, s) })
			}
		})
	}
}

// suite is one store with what every sub-test needs.
type suite struct {
	store     Store
	clock     *testkit.Clock
	readModel ReadModel
	keys      *KeyRegister
	leases    ports.Leases
	ids       *idSource
	types     ports.EventTypes // of tenants, over the administrative logs
	opened    eventtype.Registration
	changed   eventtype.Registration
	closed    eventtype.Registration

	conditionRaces int

	mu    sync.Mutex
	count int
}

func newSuite(t *testing.T, h EventStoreHarness) *suite {
	t.Helper()
	clock := NewClock()
	s := &suite{store: h.New(t, clock), clock: clock, ids: newIDSource(), conditionRaces: h.ConditionRaces}
	s.readModel, s.keys, s.leases = h.ReadModel(t, s.store), h.Keys(t, s.store), h.Leases(s.store)
	ctx := context.Background()
	require.NoError(t, s.store.Bootstrap(ctx, ports.Installation{LogName: LogName, Deployment: Deployment, CreatedAt: clock.Now()}))
	s.types = s.newTypes(t)
	s.opened = s.register(t, "conformance.case.opened")
	s.changed = s.register(t, "conformance.case.changed")
	s.closed = s.register(t, "conformance.case.closed")
	return s
}

// newTypes makes the registries of another node.
func (s *suite) newTypes(t *testing.T) ports.EventTypes {
	t.Helper()
	return typestest.New(t, typestest.Store{Appender: s.store, Events: s.store, Idempotency: s.store, Entities: s.store, Chains: s.store, Types: s.store}, LogName, s.clock)
}

func (s *suite) register(t *testing.T, name string) eventtype.Registration {
	t.Helper()
	r, err := s.store.RegisterEventType(context.Background(), registration(name, 1, s.clock.Now()))
	require.NoError(t, err)
	return r
}

func registration(name string, version uint32, at time.Time) eventtype.Registration {
	return eventtype.Registration{
		Type: name, SchemaVersion: version, Module: "conformance",
		DataSchema:     []byte(`{"type":"object"}`),
		RetentionClass: eventtype.Standard,
		Description:    "an event of the conformance suite",
		Active:         true, RegisteredAt: at, RegisteredBy: "suite",
	}
}

// unique returns a name that no other sub-test of this store uses.
func (s *suite) unique(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return fmt.Sprintf("%s-%d", prefix, s.count)
}

// idSource makes strictly increasing ids without looking at any clock, so that
// they are the same in every run.
type idSource struct {
	mu   sync.Mutex
	last uint64
}

func newIDSource() *idSource { return &idSource{} }

func (s *idSource) next() event.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	var id ulid.ULID
	_ = id.SetTime(uint64(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC).UnixMilli()) + s.last) // far from the 48-bit limit
	return id
}
