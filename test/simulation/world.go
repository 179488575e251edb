package simulation

import (
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	logName  = "simulation.example.org"
	tenantID = "acme"
)

// world is one run of the simulation: everything outside the nodes.
type world struct {
	program
	seed     uint64
	logs     io.Writer // of the nodes; nil: discarded
	trace    io.Writer // of the calls; nil: none
	database *memory.Database
	keyStore *memory.KeyStore
	kms      *memory.KeyService
	exports  *memory.ExportStore
	nodes    []*node
	sender   ports.WebhookSender // nil: there are no webhooks
	broker   ports.Publisher     // nil: nothing is published
	poison   *poison             // nil: the handler has no defect

	entities []ports.LegalEntity
	writer   pipeline.Caller // of deposit
	parts    []part
	working  sync.WaitGroup
	underway context.Context // ends when the faults end

	mu         sync.Mutex
	state      weather
	ends       map[int64]bool // the times at which a call will go on, in nanoseconds
	line       []byte         // the newest of the trace
	digest     uint64
	calls      int
	events     int
	began      time.Time
	violations []violation
	broken     map[string]int // violations by rule
}

// weather is how often ports fail now.
type weather struct {
	failures float64 // the share of calls that fail
	delays   float64 // and that take seconds
}

type storeClock struct{}

// Now implements ports.Clock.
func (storeClock) Now() time.Time { return time.Now() }

// begin is when the simulation begins; bubbles begin in the year 2000.
var begin = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

// transactionLimit is shorter than that of production: the faults of a run last 15 seconds, in which a
// node has to freeze, lose its transaction to another one, and come back.
const transactionLimit = 5 * time.Second

func newWorld(p program, seed uint64) *world {
	_ = ports.Sleep(context.Background(), time.Until(begin)) // it does not end early
	w := &world{program: p, broken: map[string]int{}, ends: map[int64]bool{}, seed: seed, keyStore: memory.NewKeyStore(), kms: memory.NewKeyService(storeClock{}), exports: memory.NewExportStore(), began: time.Now()}
	w.keyStore.SetClock(storeClock{})
	w.database = memory.New(memory.Config{Clock: storeClock{}, Keys: w.keyStore, TransactionLimit: transactionLimit, Random: rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})})
	return w
}

func newLink(w *world, name string) *link {
	return &link{world: w, name: name, random: map[operation]*rand.Rand{}, arriving: map[instant]*arrivals{}}
}

func (w *world) now() time.Time { return time.Now() }

func (w *world) currentWeather() weather {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// stores are those that all nodes share.
func (w *world) stores() wire.Stores {
	d := w.database
	return wire.Stores{
		Appender: d.Appender, Events: d.Events, Audit: d.Audit, PersonalRecords: d.PersonalRecords, Snapshots: d.Snapshots, Intents: d.Intents, Registry: d.Registry, Directory: d.Directory,
		Projections: d.Projections, ProjectionVersions: d.ProjectionVersions, ProjectionRows: d.ProjectionRows, ProjectionSnapshots: d.ProjectionSnapshots, ProjectionTargets: d.ProjectionTargets,
		Subscriptions: d.Subscriptions, Webhooks: d.Webhooks, Publishers: d.Publishers, Leases: d.Leases, AccessLog: d.AccessLog, BlindIndex: d.BlindIndex, Papers: d.Papers, GlobalLog: d.GlobalLog, Redactions: d.Redactions,
		Chains: d.Chains(), Ping: func(context.Context) error { return nil }, Close: func() {},
	}
}

func (w *world) keys() wire.Keys {
	return wire.Keys{Store: w.keyStore, Erasures: w.keyStore.Erasures(), KEKs: w.keyStore.Rotation(), Exports: w.exports, DataKeys: w.kms, KMS: w.kms, Signer: w.kms, Close: func() {}}
}

// record adds a call to the digest by which two runs are compared. Calls of one instant add the same
// in any order.
func (w *world) record(node string, o operation, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	w.line = strconv.AppendInt(w.line[:0], int64(time.Since(w.began)), 10)
	for _, field := range [...]string{node, o.method, o.subject, strconv.FormatUint(o.request, 16), fault.CodeOf(err)} {
		w.line = append(append(w.line, ' '), field...)
	}
	w.line = append(w.line, '\n')
	h := fnv.New64a()
	_, _ = h.Write(w.line) // never fails
	w.digest += h.Sum64()
	if w.trace != nil {
		_, _ = w.trace.Write(w.line)
	}
}
