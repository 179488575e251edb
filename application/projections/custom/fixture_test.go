package custom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	posted = "shop.invoice.posted"
	// sums counts invoices and adds their amounts up, by vendor.
	sums = `{n: ((.state.n // 0) + 1), sum: ((.state.sum // 0) + (.event.data.amount | tonumber))}`
)

// customFixture is a store with the service on it.
type customFixture struct {
	store   *memory.Database
	clock   *testkit.Clock
	ids     *system.IDs
	service *custom.Service
	config  custom.Config // of the service

	decisions *administration.Projections
}

// untimedLimits are the limits of programs without the limit of time, so that no program fails
// because the machine is busy.
func untimedLimits() jq.Limits {
	limits := jq.DefaultLimits()
	limits.Time = time.Hour
	return limits
}

func newCustomFixture(t *testing.T) *customFixture {
	t.Helper()
	return newFixtureAt(t, testkit.NewClock(start), untimedLimits())
}

// newRunningFixture makes a fixture for nodes in simulated time, in which programs take none.
func newRunningFixture(t *testing.T) *customFixture {
	t.Helper()
	return newFixtureAt(t, testkit.NewRunningClock(start), jq.DefaultLimits())
}

func newFixtureAt(t *testing.T, clock *testkit.Clock, limits jq.Limits) *customFixture {
	t.Helper()
	g := &customFixture{clock: clock, ids: system.NewIDs()}
	g.store = memory.New(memory.Config{LogName: "x", Clock: g.clock})
	g.decisions = testkit.Must(conformance.NewAdministrativeLog(g.clock)).Projections()
	limits.Steps, limits.Work, limits.OutputBytes = 100_000, 8<<20, projection.MaxState+1024
	g.config = custom.Config{
		Compiler: jq.NewWithLimits(limits), Rows: g.store.ProjectionRows, Register: g.store.ProjectionVersions, Decisions: g.decisions, Entities: g.store.Directory, Events: g.store.Events, Recompute: custom.RecomputeConfig{RecomputeLimits: recomputeLimits},
		Await: func(context.Context, string, int, event.PartitionID, event.Sequence) (event.Sequence, error) {
			return 0, nil
		},
	}
	g.service = testkit.Must(custom.New(g.config))
	return g
}

func (g *customFixture) entity(t *testing.T, tenant, code string) ports.LegalEntity {
	t.Helper()
	le, err := g.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenant, Code: code})
	require.NoError(t, err)
	return le
}

// write appends an event with these data and gives its sequence.
func (g *customFixture) write(t require.TestingT, le ports.LegalEntity, typ, data string, tags ...string) event.Sequence {
	payload := fmt.Sprintf(`{"data":%s,"dimensions":{},"entity_refs":[{"entity_type":"vendor","entity_id":"V-1","role":"from"}]}`, data)
	keys := []string{event.EntityKey("vendor", "V-1")}
	for _, tag := range tags {
		keys = append(keys, event.TagKey(tag))
	}
	result, err := g.store.Appender.Append(context.Background(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{{
		Skeleton: event.Skeleton{
			ID: g.ids.NewID(start), Type: typ, SchemaVersion: 1, Stream: event.StreamID{Type: "shop", ID: "main"}, Tags: tags,
			Scope: event.Scope{TenantID: le.TenantID, LegalEntity: le.Code}, ActorType: event.Human, ActorID: "p-1", ActorName: "clerk",
		}, Payload: []byte(payload), Keys: keys,
	}}})
	require.NoError(t, err)
	return result.Events[0].Sequence
}

func definition(tenant, key, fold string, types ...string) projection.Definition {
	return projection.Definition{TenantID: tenant, Key: key, Fold: fold, Filter: projection.Filter{Types: types}}
}

func (g *customFixture) create(t require.TestingT, name string, d projection.Definition) projection.Projection {
	p, _, err := g.service.Create(context.Background(), custom.Creation{Name: name, Definition: d, By: "ada"})
	require.NoError(t, err)
	return p
}

// advance hands over what is new, in batches of a limit, to a handler made again.
func (g *customFixture) advance(t require.TestingT, p projection.Projection, le ports.LegalEntity, limit int) {
	for {
		d, h, _, err := g.service.Prepare(p)
		require.NoError(t, err)
		_, passed, err := g.store.Projections.Advance(context.Background(), ports.ProjectionAdvance{
			ProjectionWork: ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: le.Partition}, Types: d.EventTypes, Limit: limit,
		}, h)
		require.NoError(t, err)
		if passed == 0 {
			return
		}
	}
}

func (g *customFixture) rows(t require.TestingT, name string, le ports.LegalEntity) map[string]string {
	page, err := g.service.Rows(context.Background(), custom.RowsQuery{Name: name, Entity: le, Limit: 1000})
	require.NoError(t, err)
	out := map[string]string{}
	for _, r := range page.Rows {
		out[r.Key] = string(r.State)
	}
	return out
}

// heads are asked from the store.
type heads struct {
	store *memory.Database
	clock ports.Clock
}

func (h heads) Heads() (map[event.PartitionID]ports.Head, <-chan struct{}) {
	all, _ := h.store.Events.PartitionHeads(context.Background())
	return all, nil
}

func (h heads) LastRead() time.Time { return h.clock.Now() }

// recomputeLimits are limits that no test of another behaviour meets.
var recomputeLimits = custom.RecomputeLimits{MaxEvents: 10_000, MaxRead: 200_000}

// node runs a node until stop.
func (g *customFixture) node(t *testing.T) (r *projections.Runner, stop func()) {
	t.Helper()
	r, err := projections.New(projections.Config{
		Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Versions: g.store.ProjectionVersions, Custom: g.service, Heads: heads{g.store, g.clock}, Clock: g.clock, Limits: conformance.ProjectorLimits(nil),
	}, nil, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return r, stop
}

// within lets at most a time pass until a condition holds.
func within(t *testing.T, most time.Duration, condition func() bool, what string) {
	t.Helper()
	synctest.Wait()
	for step := 500 * time.Millisecond; !condition(); most -= step {
		require.GreaterOrEqual(t, most, step, what)
		<-time.After(step)
		synctest.Wait()
	}
}

const (
	soon   = 2 * time.Second       // the node reads the register once in a second, and the log twice
	halted = 15*time.Second + soon // five attempts, with 1, 2, 4 and 8 seconds between them
)

func (g *customFixture) operations() *projections.Operations {
	return projections.NewOperations(projections.OperationsConfig{
		Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Decisions: g.decisions, Letters: g.store.ProjectionVersions, Leases: g.store.Leases, Clock: g.clock, Custom: g.service,
	})
}

func decode(t require.TestingT, text string) (out map[string]any) {
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}
