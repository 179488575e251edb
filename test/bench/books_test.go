//go:build bench

package bench

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/cmd/cli"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/configs/demo"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
)

// booksCopies is how many legal entities share the events of the first one.
const booksCopies = 8

// bookFixtures makes the books when the first section needs them, and keeps them for the
// sections after it.
type bookFixtures struct {
	t       *testing.T // of the whole report
	options options
	cluster *embeddedpg.Cluster
	made    *books
	run     *node
}

// node is a server with projections.
type node struct {
	server  *wire.Server
	address string
	sent    *statementCounter // to PostgreSQL
}

// statementCounter counts statements, and the time that they take until their rows are read.
type statementCounter struct{ statements, nanoseconds atomic.Int64 }

type statementStart struct{}

func (s *statementCounter) begin(ctx context.Context) context.Context {
	return context.WithValue(ctx, statementStart{}, time.Now())
}

func (s *statementCounter) end(ctx context.Context) {
	if began, ok := ctx.Value(statementStart{}).(time.Time); ok {
		s.nanoseconds.Add(int64(time.Since(began)))
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.statements.Add(1)
	return s.begin(ctx)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *statementCounter) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	s.end(ctx)
}

// TraceBatchStart implements pgx.BatchTracer.
func (s *statementCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return s.begin(ctx)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (s *statementCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	s.statements.Add(1)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (s *statementCounter) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	s.end(ctx)
}

// books are the events of business transactions, invoices that are submitted, approved and
// posted: intentEntity has all of them, and booksCopies other legal entities have one equal
// part each. No node reads them before the first call of node.
type books struct {
	dsn    string
	server *wire.Server
	tokens map[string]string
	whole  partition
	parts  []partition
}

// partition is a legal entity with the number of its events.
type partition struct {
	ports.LegalEntity
	events int
}

func (s *bookFixtures) books(t *testing.T) *books {
	t.Helper()
	if s.made != nil {
		return s.made
	}
	b := &books{dsn: newDatabase(s.t, s.cluster, "books", func(ctx context.Context, dsn string) error { return wire.Migrate(ctx, dsn, nil, modules.BuiltIn()...) })}
	var address string
	b.server, address = serve(s.t, b.dsn, false)
	var err error
	b.tokens, err = cli.SetUpDemo(t.Context(), b.server.App, modules.BuiltIn(), nil, true, nil)
	require.NoError(t, err)
	registerVendors(t, newClients(s.t, 1, address, b.tokens["vendor_admin"])[0])
	clerks, approvers := newClients(s.t, intentClients, address, b.tokens["ap_clerk"]), newClients(s.t, intentClients, address, b.tokens["approver"])
	var number atomic.Int64
	drive(t, intentClients, s.options.period, func(_ context.Context, caller int) (int, error) {
		n := number.Add(1)
		answer, err := clerks[caller].want(http.StatusCreated, http.MethodPost, "/api/intents", fmt.Sprintf("bench-%d", n), submission(n))
		if err != nil {
			return 0, err
		}
		invoice, err := streamID(answer)
		if err != nil {
			return 0, err
		}
		body := fmt.Appendf(nil, `{"type":"ap.approve_invoice","legal_entity":%q,"payload":{"invoice_id":%q}}`, intentEntity, invoice)
		_, err = approvers[caller].want(http.StatusCreated, http.MethodPost, "/api/intents", fmt.Sprintf("bench-approve-%d", n), body)
		return 1, err
	})
	entities, err := b.server.App.Tenancy.LegalEntities(t.Context(), demo.Tenant)
	require.NoError(t, err)
	for _, le := range entities {
		if le.Code == intentEntity {
			b.whole = partition{LegalEntity: le}
		}
	}
	b.distribute(t)
	execute(t, b.dsn, "VACUUM ANALYZE", "CHECKPOINT")
	printLine("books of %d events, and again in %d legal entities", b.whole.events, len(b.parts))
	s.made = b
	return b
}

// distribute copies a part of the events of the first legal entity into each other one.
func (b *books) distribute(t *testing.T) {
	t.Helper()
	ctx, app := t.Context(), b.server.App
	heads, err := app.Store.Events.PartitionHeads(ctx)
	require.NoError(t, err)
	b.whole.events = int(heads[b.whole.Partition].Sequence)
	require.Positive(t, b.whole.events)
	ids := system.NewIDs()
	through := 0
	for i := range booksCopies {
		le, err := app.Tenancy.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: demo.Tenant, Code: fmt.Sprintf("COPY%d", i+1), Name: "Bench", TimeZone: "UTC", Status: "active"}, event.Actor{})
		require.NoError(t, err)
		part := partition{LegalEntity: le}
		for end := b.whole.events * (i + 1) / booksCopies; through < end; {
			page, err := app.Store.Audit.ChainPage(ctx, b.whole.Partition, event.Sequence(through), min(batchEvents, end-through))
			require.NoError(t, err)
			r := ports.AppendRequest{Partition: le.Partition}
			for _, e := range page {
				typ, err := app.Registry.Lookup(ctx, "", e.Type, e.SchemaVersion)
				require.NoError(t, err)
				p := event.Prepared{Skeleton: e.Skeleton, TypeNumber: typ.Number, Salt: e.Salt, Payload: e.Payload}
				p.Partition, p.Scope.LegalEntity, p.ID, p.CausedBy = le.Partition, le.Code, ids.NewID(time.Now()), event.ID{}
				p.OccurredAt = event.Micros(time.Now())
				r.Events = append(r.Events, p)
			}
			_, err = app.Store.Appender.Append(ctx, r)
			require.NoError(t, err)
			through += len(page)
			part.events += len(page)
		}
		b.parts = append(b.parts, part)
	}
}

// node starts a node that runs until the report ends, and waits until its projections have
// read the books.
func (s *bookFixtures) node(t *testing.T) *node {
	t.Helper()
	b := s.books(t)
	if s.run != nil {
		return s.run
	}
	s.run = &node{sent: &statementCounter{}}
	var stop func()
	s.run.server, s.run.address, stop = startNode(s.t, b.dsn, true, func(_ *configs.Config, o *wire.Options) { o.Tracer = s.run.sent })
	s.t.Cleanup(stop)
	awaitCaughtUp(t, s.run.server.App)
	return s.run
}

// awaitCaughtUp waits until the projections of a node have read all events of the legal entities.
func awaitCaughtUp(t *testing.T, app *wire.App) {
	t.Helper()
	entities, err := app.Tenancy.LegalEntities(t.Context(), demo.Tenant) // without the administrative log, which no projection reads
	require.NoError(t, err)
	var behind string // a projection with a log that it has not read
	caughtUp := func() bool {
		heads, err := app.Store.Events.PartitionHeads(t.Context())
		require.NoError(t, err)
		for _, p := range app.Catalog.Projections {
			version, err := app.Runner.Active(t.Context(), p.Name)
			require.NoError(t, err)
			checkpoints, err := app.Store.Projections.Checkpoints(t.Context(), p.Name, version)
			require.NoError(t, err)
			at := map[event.PartitionID]event.Sequence{}
			for _, c := range checkpoints {
				at[c.Partition] = c.Sequence
			}
			for _, le := range entities {
				if head := heads[le.Partition].Sequence; at[le.Partition] < head {
					behind = fmt.Sprintf("%s has read %d of %d events of %s", p.Name, at[le.Partition], head, le.Code)
					return false
				}
			}
		}
		return true
	}
	for started := time.Now(); !caughtUp(); <-time.After(20 * time.Millisecond) {
		require.Less(t, time.Since(started), 3*time.Minute, behind)
	}
}
