package e2e

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	domain "github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/test/oracle"
	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	settleTime     = 5 * time.Minute // ends hangs only
	quietEvents    = 1000            // acknowledged before the first fault
	betweenFaults  = 300
	repeatsAllowed = 0.001
)

// prepareFleet makes the event type and the legal entities of writers and subscribers.
func prepareFleet(t *testing.T, f *fleet) {
	t.Helper()
	registerMachines(t, &dev{devFile: devFile{HTTP: f.nodes[0].server(), Tokens: f.tokens}})
	for _, code := range fleetEntities[1:] {
		f.as(t, "admin", http.StatusCreated, "/api/admin/legal-entities", fmt.Sprintf(`{"code":%q,"name":"Fleet","time_zone":"Europe/Berlin"}`, code))
	}
	connection, err := pgx.Connect(t.Context(), f.super)
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	rows, err := connection.Query(t.Context(), `SELECT code, partition_id FROM backbone.legal_entities WHERE code <> '_ADMIN'`)
	require.NoError(t, err)
	var code string
	var partition int32
	_, err = pgx.ForEachRow(rows, []any{&code, &partition}, func() error { f.partitions[code] = domain.PartitionID(partition); return nil })
	require.NoError(t, err)
}

// operations are what operators do to read models under load, each at least once.
var operations = []string{
	"an entity", "snapshot", "from a snapshot: begun", "from a snapshot: compared", "from a snapshot: switch", "from a snapshot: rollback", "from a snapshot: drop",
	"a legal entity: begun", "a legal entity: compared", "a legal entity: switch", "a legal entity: rollback", "a legal entity: drop",
	"a definition: changed", "a definition: switch", "a definition: rolled back",
}

// TestDrillFleet runs three nodes and their database, while writers append, subscribers read, and
// operators rebuild read models as a whole and in part. At first there are no faults, and no reader
// gets an event twice. Then one fault follows another: no acknowledged event is lost, and each reader
// gets every event in order.
func TestDrillFleet(t *testing.T) {
	f := newFleet(t)
	prepareFleet(t, f)
	r := subscribe(t, f)
	w := startWriters(t, f, r)
	o := operate(t, f)
	w.await(t, quietEvents/2)
	r.subscribeAtFeedCursor(t)
	w.await(t, quietEvents/2)
	for _, b := range append(r.late, r.group, r.ordered, r.clumsy, r.hook, r.all, r.stream) {
		_, repeats, _ := b.count()
		require.Zero(t, repeats, "%s got an event twice without a fault", b.name)
	}
	r.troubled.Store(true)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	anyEntity := func() string { return fleetEntities[random.IntN(len(fleetEntities))] }
	killNode := func() { f.restartNode(t, f.nodes[random.IntN(len(f.nodes))]) }
	killBackends := func() {
		var ended int
		f.query(t, `SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE usename = 'backbone_app' ORDER BY random() LIMIT 12) AS unlucky`, &ended)
		require.Positive(t, ended)
	}
	faults := []struct {
		name   string
		inject func()
	}{
		{"a node is killed", killNode},
		{"sessions end", killBackends},
		{"the last node gets no notifications", func() { f.blackhole.swallow(); f.requireFeedWithoutNotifications(t, f.nodes[2]) }},
		{"a node is lost and started again", func() { f.takeOverFanout(t, w, f.nodes[random.IntN(2)]) }},
		{"a session locks a head", func() { f.lockHead(t, w, anyEntity()) }},
		{"PostgreSQL is killed", func() { f.killDatabase(t) }},
		{"a session locks a checkpoint", func() { f.lockCheckpoint(t, w, "ap.vendors", anyEntity()) }},
		{"a node sleeps past its leases", func() { f.pauseNode(t, w, f.nodes[random.IntN(2)]) }},
		{"the last node gets notifications again", f.blackhole.forward},
		{"sessions end again", killBackends},
		{"a session locks a cursor", func() { f.lockCursor(t, w, anyEntity()) }},
		{"two nodes are killed", func() { killNode(); killNode() }},
		{"sessions end once more", killBackends},
	}
	for i, fault := range faults {
		w.await(t, betweenFaults)
		if i%4 == 2 {
			r.subscribeAtFeedCursor(t)
		}
		began := time.Now()
		fault.inject()
		t.Logf("after %d events %s (%s)", w.acknowledged.Load(), fault.name, time.Since(began).Round(time.Millisecond))
	}
	w.await(t, betweenFaults)
	f.requireFanoutShares(t, len(f.nodes))
	w.finish(t)
	o.stop(t, operations...)
	f.requireComplete(t, w, r)

	// A fault repeats at most the deliveries in flight of a subscriber that answers all of them.
	bounds := map[*deliveryLog]int{r.group: groupConsumers * pollLimit, r.ordered: pollLimit, r.clumsy: clumsyConsumers * pollLimit, r.hook: webhookWorkers}
	for _, b := range r.late {
		bounds[b] = pollLimit
	}
	for b, most := range bounds {
		_, _, lost := b.count()
		require.LessOrEqual(t, lost, most*len(faults), b.name)
	}
}

// requireFeedWithoutNotifications requires that a feed continues at a node that gets no
// notifications.
func (f *fleet) requireFeedWithoutNotifications(t *testing.T, n *node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, n.server()+"/api/subscribe/streams/$all?from=now", nil)
	require.NoError(t, err)
	q.Header.Set("Authorization", "Bearer "+f.tokens["auditor"])
	a, err := (&http.Client{Transport: f.http.Transport}).Do(q)
	require.NoError(t, err)
	defer func() { _ = a.Body.Close() }()
	require.Equal(t, http.StatusOK, a.StatusCode)
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, 4<<20)
	events := 0
	for events < betweenFaults && lines.Scan() {
		if lines.Text() == "event: event" {
			events++
		}
	}
	require.Equal(t, betweenFaults, events, lines.Err())
}

// pauseNode stops a node until other nodes hold its leases, and continues it. Those of rare work, such as
// the expiry of intents, last for minutes and are not waited for.
func (f *fleet) pauseNode(t *testing.T, w *writers, n *node) {
	t.Helper()
	count := func(what string) (leases int) {
		t.Helper()
		f.query(t, `SELECT count(*) FROM backbone.leases WHERE name ~ '^(projection|publisher|webhook)/' AND `+what+` AND expires_at > statement_timestamp()`, &leases)
		return leases
	}
	its := fmt.Sprintf("holder LIKE '%s%%'", n.id)
	testkit.Eventually(t, settleTime, func() bool { return count(its) > 0 }, "leases of ", n.id)
	require.NoError(t, n.process.signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = n.process.signal(syscall.SIGCONT) })
	testkit.Eventually(t, settleTime, func() bool { return count(its) == 0 && count("NOT "+its) > 0 }, "leases of ", n.id, " are taken over")
	w.await(t, betweenFaults)
	require.NoError(t, n.process.signal(syscall.SIGCONT))
	testkit.Eventually(t, settleTime, func() bool { return count(its) > 0 }, n.id, " gets its share again")
}

// requireComplete waits until every reader has received everything, and holds what it received, and
// the logs, to the rules of the simulation.
func (f *fleet) requireComplete(t *testing.T, w *writers, r *readers) {
	t.Helper()
	j := judge(t, f.app)
	j.requireConfirmed(t, w.told)
	confirmed := map[string]bool{}
	for _, c := range w.told {
		for _, e := range c.answer.Events {
			confirmed[e.ID] = true
		}
	}
	delete(j.books, j.partitions["_ADMIN"]) // which goes on, and which readers do not get
	for _, log := range j.books {
		for i := range log {
			require.True(t, log[i].Type != machineType || confirmed[log[i].ID.String()], "no writer got an acknowledgement of %s", log[i].ID)
		}
	}

	every := func(*domain.Recorded) bool { return true }
	machines := func(e *domain.Recorded) bool { return e.Type == machineType }
	delivered, lost := 0, 0
	requireOf := func(selects func(e *domain.Recorded) bool, subscribers ...*deliveryLog) {
		t.Helper()
		for _, b := range subscribers {
			delivered += b.requireComplete(t, j.books, selects)
			_, _, again := b.count()
			lost += again
		}
	}
	requireOf(machines, r.group, r.clumsy, r.hook)
	requireOf(every, append(r.late, r.ordered, r.all)...)
	requireOf(func(e *domain.Recorded) bool {
		return e.Scope.LegalEntity == fleetStreamEntity && e.Stream == domain.StreamID{Type: "machine", ID: fleetStream}
	}, r.stream)
	for _, feed := range []*deliveryLog{r.all, r.stream} {
		_, repeats, _ := feed.count()
		require.Zero(t, repeats, "%s: a feed continues after its cursor", feed.name)
	}
	r.stop(t)
	require.Less(t, float64(lost), repeatsAllowed*float64(delivered), "%d repeats among %d deliveries", lost, delivered)

	// The broker has each event once, in the order of its legal entity.
	broker := newDeliveryLog(f, "broker", subscription.PerLegalEntity)
	total, _, _ := r.all.count()
	for _, m := range consume(t, f.broker.URL(), total) {
		e := placedEvent{event: event{ID: m.id, Sequence: m.sequence}}
		e.Scope.LegalEntity = strings.Split(m.subject, ".")[2]
		broker.recordFeedEvent(&e)
	}
	broker.requireComplete(t, j.books, every)

	f.requireReadModels(t, j.books)
}

// requireReadModels compares the rows after all faults with those of projections that were
// reset and have read the whole log.
func (f *fleet) requireReadModels(t *testing.T, books oracle.Books) {
	t.Helper()
	f.removeLeftovers(t)
	testkit.Eventually(t, settleTime, func() bool { return f.unreadEvents(t) == 0 }, "projections at the heads")
	kept := f.readModels(t)
	require.NotEmpty(t, kept["ap.documents"])
	require.NotEmpty(t, kept["gl.journal_lines"])
	require.NotEmpty(t, kept["backbone.projection_rows"])
	f.requireCustomProjection(t, books)
	var projections string
	f.query(t, `SELECT string_agg(DISTINCT projection, ' ') FROM backbone.projection_checkpoints`, &projections)
	admin := f.client(f.nodes[1], "admin")
	for name := range strings.FieldsSeq(projections) {
		admin.succeed(t, "projections", "reset", path.Base(name)) // the API names it without the tenant
	}
	testkit.Eventually(t, settleTime, func() bool { return f.unreadEvents(t) == 0 }, "projections at the heads again")
	rebuilt := f.readModels(t)
	require.Equal(t, slices.Sorted(maps.Keys(kept)), slices.Sorted(maps.Keys(rebuilt)))
	rows := 0
	for table := range kept {
		require.Equal(t, kept[table], rebuilt[table], table)
		rows += len(kept[table])
	}
	t.Logf("%d rows of %d tables equal those of a rebuild", rows, len(kept))
	requireBooksAgree(t, &dev{devFile: devFile{HTTP: f.nodes[0].server(), Tokens: f.tokens}}, "USMF")
}

// unreadEvents counts the events that projections have not read, over all legal entities.
func (f *fleet) unreadEvents(t *testing.T) (events int) {
	t.Helper()
	f.query(t, `SELECT coalesce(sum(h.head - coalesce(c.sequence, 0)), 0)
		FROM (SELECT partition_id, max(sequence) AS head FROM backbone.events JOIN backbone.legal_entities l USING (partition_id) WHERE l.code <> '_ADMIN' GROUP BY partition_id) AS h
		CROSS JOIN (SELECT DISTINCT projection, version FROM backbone.projection_checkpoints) AS p
		LEFT JOIN backbone.projection_checkpoints c USING (projection, version, partition_id)`, &events)
	return events
}

// readModels are all rows of all tables of the modules, as text.
func (f *fleet) readModels(t *testing.T) map[string][]string {
	t.Helper()
	ctx := t.Context()
	connection, err := pgx.Connect(ctx, f.super)
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	rows, err := connection.Query(ctx, `SELECT schemaname || '.' || tablename FROM pg_tables WHERE (schemaname IN ('ap', 'gl') OR schemaname = 'backbone' AND tablename = 'projection_rows') AND tablename NOT LIKE '%migration%' AND tablename NOT LIKE 'goose%'`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	out := map[string][]string{}
	for _, table := range tables {
		rows, err := connection.Query(ctx, `SELECT r::text FROM `+table+` r ORDER BY 1`)
		require.NoError(t, err)
		if out[table], err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			require.NoError(t, err)
		}
	}
	return out
}
