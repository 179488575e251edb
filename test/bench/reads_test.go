//go:build bench

package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
)

const (
	streamEvents = 1000 // of the streams that are read
	longShare    = 20   // every so many events belongs to one of them, so they lie scattered
	readCallers  = 8
	largestDump  = 2_000_000 // events that are exported to a file, some 2 KB each
)

// readFixture is the store that is read, with the results that queries must find.
type readFixture struct {
	server  *wire.Server
	entity  ports.LegalEntity
	ids     []event.ID
	streams []string

	processes []string // correlation ids, of as many events
	causes    causalChain
}

// readStep is one kind of read and the latency that it must stay below.
type readStep struct {
	name    string
	callers int
	limit   time.Duration
	step    func(ctx context.Context, caller int) (int, error)
}

// reportReads fills a store and measures reads, over the ports and over HTTP, and
// the verification of the whole log.
func reportReads(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	requireDiskSpace(t, o)
	dsn := newDatabase(t, cluster, "reads", func(ctx context.Context, dsn string) error { return wire.Migrate(ctx, dsn, nil, modules.BuiltIn()...) })
	server, address := serve(t, dsn, false)
	app := server.App
	token, err := app.Tenancy.Enroll(t.Context(), ports.Principal{
		TenantID: "bench", PersonID: "p-1", PrincipalID: "u-1", ActorType: event.Human, RoleLabel: "auditor", Roles: []string{"auditor"},
	})
	require.NoError(t, err)
	entity, err := app.Tenancy.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "bench", Code: "BENCH", Name: "Bench", TimeZone: "UTC", Status: "active"}, event.Actor{})
	require.NoError(t, err)
	l := &readFixture{server: server, entity: entity}
	l.load(t, o.events, figures)
	// What the server would do by itself within minutes; the figures should not
	// depend on when it happens to begin.
	execute(t, dsn, "VACUUM ANALYZE", "CHECKPOINT")
	l.size(t, dsn, figures)

	statements := newStatistics(t, cluster, o)
	statements.reset(t)
	o.profiled(t, "reads", func() { l.read(t, o, address, token, figures) })
	statements.write(t, "reads")
	l.offsets(t, o, address, token, figures, statements)
	l.replay(t, o, address, token, figures, statements)
	statements.reset(t)
	o.profiled(t, "verify", func() { l.verify(t, figures) })
	statements.write(t, "verify")
}

// size reports the disk space of the events.
func (l *readFixture) size(t *testing.T, dsn string, figures *table) {
	t.Helper()
	var bytes int64
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "SELECT pg_database_size(current_database())").Scan(&bytes))
	figures.addText("   size on disk", "%.1f GB, %d bytes an event", float64(bytes)/1e9, bytes/int64(len(l.ids)))
}

// load appends the events through the engine, in batches of 100.
func (l *readFixture) load(t *testing.T, total int, figures *table) {
	t.Helper()
	typ, err := l.server.App.Registry.Lookup(t.Context(), "", invoiceType, 0)
	require.NoError(t, err)
	v := newInvoices(typ.Number)
	for range max(1, total/longShare/streamEvents) {
		l.streams = append(l.streams, v.ids.NewID(time.Now()).String())
		l.processes = append(l.processes, v.ids.NewID(time.Now()).String())
	}
	batches := (total + batchEvents - 1) / batchEvents
	ids := make([][]event.ID, batches)
	var next, done atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	started := time.Now()
	for range readCallers {
		group.Go(func() error {
			for {
				batch := next.Add(1) - 1
				if batch >= int64(batches) {
					return nil
				}
				r := l.batch(v, batch)
				for _, e := range r.Events {
					ids[batch] = append(ids[batch], e.ID)
				}
				if _, err := l.server.App.Store.Appender.Append(ctx, r); err != nil {
					return err
				}
				n := done.Add(1)
				if n%int64(max(1, batches/chainLinks)) == 0 {
					if err := l.link(ctx, v); err != nil {
						return err
					}
				}
				if n%int64(max(1, batches/10)) == 0 {
					printLine("%d of %d events loaded in %s", n*batchEvents, total, time.Since(started).Round(time.Second))
				}
			}
		})
	}
	require.NoError(t, group.Wait())
	elapsed := time.Since(started)
	for range chainLinks { // of a small store
		require.NoError(t, l.link(t.Context(), v))
	}
	l.ids = append(l.ids, l.causes.all...)
	for _, some := range ids {
		l.ids = append(l.ids, some...)
	}
	figures.addText(fmt.Sprintf("Load: %d events in batches of 100, 8 callers", len(l.ids)), "%s", perSecond(float64(len(l.ids))/elapsed.Seconds(), "events"))
}

// batch is the n-th hundred of events; some belong to the streams that will be
// read.
func (l *readFixture) batch(v *invoices, n int64) ports.AppendRequest {
	now := time.Now()
	r := ports.AppendRequest{Partition: l.entity.Partition, Events: make([]event.Prepared, batchEvents)}
	for i := range r.Events {
		number := n*batchEvents + int64(i)
		r.Events[i] = v.prepare(l.entity, number, now)
		if number%longShare == 1 {
			r.Events[i].CorrelationID = l.processes[number/longShare%int64(len(l.processes))]
		}
		if number%longShare == 0 {
			stream := l.streams[number/longShare%int64(len(l.streams))]
			e := &r.Events[i]
			e.Payload = bytes.ReplaceAll(e.Payload, []byte(e.Stream.ID), []byte(stream))
			e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
			e.Stream.ID, e.Keys[0], e.BusinessKeys[0].Document = stream, event.EntityKey("invoice", stream), stream
		}
	}
	return r
}

func (l *readFixture) read(t *testing.T, o options, address, token string, figures *table) {
	store, partition := l.server.App.Store, l.entity.Partition
	anyID := func() event.ID { return l.ids[rand.IntN(len(l.ids))] }
	anyStream := func() string { return l.streams[rand.IntN(len(l.streams))] }
	expected := min(streamEvents, max(1, len(l.ids)/longShare))
	var events atomic.Int64
	enough := func(n int) (int, error) {
		if n < expected {
			return 0, fmt.Errorf("a stream has %d events instead of %d", n, expected)
		}
		events.Store(int64(n))
		return 1, nil
	}
	many, alone := newClients(t, readCallers, address, token), newClients(t, 1, address, token)[0]
	size := fmt.Sprintf("at %d events", len(l.ids))

	steps := []readStep{
		{"Get by id, 8 readers", readCallers, 5 * time.Millisecond, func(ctx context.Context, _ int) (int, error) {
			id := anyID()
			e, err := store.Events.EventByID(ctx, partition, id)
			if err == nil && (e.ID != id || len(e.Payload) == 0) {
				err = fmt.Errorf("another event than %s", id)
			}
			return 1, err
		}},
		{"Get by id over HTTP, 8 clients", readCallers, 5 * time.Millisecond, func(_ context.Context, caller int) (int, error) {
			_, err := many[caller].want(http.StatusOK, http.MethodGet, "/api/events/"+anyID().String()+"?legal_entity="+l.entity.Code, "", nil)
			return 1, err
		}},
		{fmt.Sprintf("Stream of %d events, 1 reader", expected), 1, 50 * time.Millisecond, func(ctx context.Context, _ int) (int, error) {
			got, err := store.Events.EventsOfStream(ctx, partition, event.StreamID{Type: "ap.invoice", ID: anyStream()}, 1, streamEvents)
			if err != nil {
				return 0, err
			}
			return enough(len(got))
		}},
		{fmt.Sprintf("Entity's %d events, 1 reader", expected), 1, 50 * time.Millisecond, func(ctx context.Context, _ int) (int, error) {
			got, err := store.Events.Events(ctx, ports.EventQuery{Partition: partition, Key: event.EntityKey("invoice", anyStream()), Limit: streamEvents})
			if err != nil {
				return 0, err
			}
			return enough(len(got))
		}},
		{fmt.Sprintf("Entity's %d events over HTTP, 1 client", expected), 1, 50 * time.Millisecond, func(context.Context, int) (int, error) {
			path := "/api/events?stream_type=entity&stream_id=invoice:" + anyStream() + "&legal_entity=" + l.entity.Code + "&limit=1000"
			answer, err := alone.want(http.StatusOK, http.MethodGet, path, "", nil)
			if err != nil {
				return 0, err
			}
			return enough(countEvents(answer))
		}},
	}
	steps = append(steps, l.causalitySteps(address, token, t)...)
	for _, s := range steps {
		drive(t, s.callers, min(o.period, time.Second), s.step)
		got := drive(t, s.callers, o.period, s.step)
		printLine("%s %s: %s", s.name, size, perSecond(got.rate(), "reads"))
		figures.addLimit(s.name+", "+size+": p99", got.quantile(0.99), s.limit)
		figures.addText("   p50, rate", "%s, %s", latency(got.quantile(0.5)), perSecond(got.rate(), "reads"))
	}
}

// verify recomputes every hash of the log, and reads it once without; then the same
// from an export file.
func (l *readFixture) verify(t *testing.T, figures *table) {
	t.Helper()
	app := l.server.App
	raw := l.readChain(t)
	started := time.Now()
	reports, err := verify.Run(t.Context(), app.Store.Chains, l.entity.TenantID, []string{l.entity.Code}, nil)
	require.NoError(t, err)
	elapsed := time.Since(started)
	require.Len(t, reports, 1)
	require.True(t, reports[0].Sound(), "%+v", reports[0].Findings)
	rate := float64(reports[0].Events) / elapsed.Seconds()
	raw = (raw + l.readChain(t)) / 2
	figures.add(figure{name: "Verify: payload hashes and chain", value: perSecond(rate, "events"), ratio: fmt.Sprintf("%.2f of reading alone", rate/raw)})
	figures.addText("   raw read rate, before and after", "%s", perSecond(raw, "events"))
	if reports[0].Events > largestDump {
		figures.addText("Export to a file", "not measured above %d events", largestDump)
		return
	}
	l.dump(t, reports[0], figures)
}

// dump exports the log to a file and verifies that.
func (l *readFixture) dump(t *testing.T, want verify.EntityReport, figures *table) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	started := time.Now()
	out := bufio.NewWriterSize(file, 1<<20)
	summary, err := verify.Export(t.Context(), l.server.App.Store.Chains, l.entity, started, out, nil)
	require.NoError(t, err)
	require.NoError(t, out.Flush())
	figures.addText("Export to a file", "%s", perSecond(float64(summary.Events)/time.Since(started).Seconds(), "events"))
	_, err = file.Seek(0, io.SeekStart)
	require.NoError(t, err)
	started = time.Now()
	report, _, err := verify.Dump(file)
	require.NoError(t, err)
	require.Equal(t, want, report)
	figures.addText("Verify that file", "%s", perSecond(float64(report.Events)/time.Since(started).Seconds(), "events"))
}

// readChain reads the log as verification does and returns events per second.
func (l *readFixture) readChain(t *testing.T) float64 {
	t.Helper()
	started := time.Now()
	n, after := 0, event.Sequence(0)
	for {
		page, err := l.server.App.Store.Audit.ChainPage(t.Context(), l.entity.Partition, after, 1000)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		n += len(page)
		after = page[len(page)-1].Sequence
	}
	require.Equal(t, len(l.ids), n)
	return float64(n) / time.Since(started).Seconds()
}
