package projections_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// entityFixture is a projection with rows of many entities: one by the entity's id and one by the
// event's sequence alone, for each event.
type entityFixture struct {
	store *postgres.Database
	dsn   string
	fails map[event.Sequence]bool
	gate  func() // in the middle of Apply
	mu    sync.Mutex
}

const itemsName = "test.items"

var (
	itemsTables = []ports.ProjectionTable{{Schema: "test", Name: "items", Key: []string{"item", "sequence"}}, {Schema: "test", Name: "marks", Key: []string{"sequence"}}}
	itemsTarget = ports.ProjectionTarget{Streams: []string{"item", "old_item"}, Tables: []ports.TargetTable{
		{ProjectionTable: itemsTables[0], Entity: "item", Subject: "subject"}, {ProjectionTable: itemsTables[1]},
	}}
)

func newEntityFixture(t *testing.T, options ...pgtest.Option) (*entityFixture, []event.PartitionID) {
	t.Helper()
	dsn := pgtest.Database(t)
	pgtest.Execute(t, dsn, `CREATE SCHEMA test; GRANT USAGE ON SCHEMA test TO backbone_app;
		CREATE TABLE test.items (sequence bigint, partition_id integer, version integer, item text, subject text NOT NULL DEFAULT '', note text NOT NULL,
			PRIMARY KEY (partition_id, version, item, sequence));
		CREATE TABLE test.marks (sequence bigint, partition_id integer, version integer, note text NOT NULL, PRIMARY KEY (partition_id, version, sequence));
		GRANT SELECT, INSERT, UPDATE, DELETE ON test.items, test.marks TO backbone_app`)
	w := &entityFixture{store: pgtest.Open(t, dsn, options...), dsn: dsn, fails: map[event.Sequence]bool{}}
	_, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: itemsName, Version: 1, Status: projection.Running})
	require.NoError(t, err)
	return w, pgtest.NewPartitions(t, w.store, 2)
}

func (w *entityFixture) write(t testing.TB, p event.PartitionID, streams ...event.StreamID) {
	t.Helper()
	for _, s := range streams {
		r := pgtest.Invoice(p, 1)
		r.Streams, r.Events[0].Stream = nil, s
		_, err := w.store.Appender.Append(t.Context(), r)
		require.NoError(t, err)
	}
}

func item(id string) event.StreamID { return event.StreamID{Type: "item", ID: id} }

func (w *entityFixture) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	w.mu.Lock()
	gate, fails := w.gate, w.fails
	w.mu.Unlock()
	for _, e := range b.Events {
		for _, statement := range []string{
			`INSERT INTO test.items (sequence, partition_id, version, item, note) VALUES ($1, $2, $3, $4, 'noted') ON CONFLICT DO NOTHING`,
			`INSERT INTO test.marks (sequence, partition_id, version, note) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
		} {
			if _, err := tx.(pgx.Tx).Exec(ctx, statement, int64(e.Sequence), int32(b.Partition), int32(b.Version), e.Stream.ID); err != nil {
				return err
			}
		}
		if gate != nil {
			gate()
		}
		if fails[e.Sequence] {
			return fault.New(fault.Invalid, "test.unreadable", "no")
		}
	}
	return nil
}

func (w *entityFixture) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	for _, table := range []string{"test.items", "test.marks"} {
		if _, err := tx.(pgx.Tx).Exec(ctx, "DELETE FROM "+table+" WHERE partition_id = $1 AND version = $2", int32(b.Partition), int32(b.Version)); err != nil {
			return err
		}
	}
	return nil
}

func (w *entityFixture) work(version int, p event.PartitionID) ports.ProjectionWork {
	return ports.ProjectionWork{Projection: itemsName, Version: version, Partition: p}
}

func (w *entityFixture) advance(t testing.TB, version int, p event.PartitionID, limit int) {
	t.Helper()
	_, _, err := w.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: w.work(version, p), Limit: limit}, w)
	require.NoError(t, err)
}

func (w *entityFixture) rebuild(t testing.TB, version int, p event.PartitionID, id string, change ...func(*ports.TargetRebuild)) (ports.TargetChange, error) {
	t.Helper()
	r := ports.TargetRebuild{ProjectionWork: w.work(version, p), Target: itemsTarget, Entity: id, Limit: 1000, By: "ada"}
	for _, c := range change {
		c(&r)
	}
	return w.store.ProjectionTargets.RebuildTarget(context.Background(), r, w)
}

func (w *entityFixture) must(t testing.TB, version int, p event.PartitionID, id string, change ...func(*ports.TargetRebuild)) ports.TargetChange {
	t.Helper()
	c, err := w.rebuild(t, version, p, id, change...)
	require.NoError(t, err)
	return c
}

// dump gives all rows of a version.
func (w *entityFixture) dump(t testing.TB, version int) (rows []string) {
	t.Helper()
	for _, table := range itemsTables {
		found, err := w.store.Pool().Query(t.Context(), fmt.Sprintf("SELECT (to_jsonb(t) - 'version')::text FROM %s.%s AS t WHERE version = $1 ORDER BY 1", table.Schema, table.Name), version)
		require.NoError(t, err)
		texts, err := pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(t, err)
		rows = append(rows, texts...)
	}
	return rows
}

func differing(c ports.TargetChange) (out [][3]uint64) {
	for _, t := range c.Tables {
		out = append(out, [3]uint64{t.OnlyLeft, t.OnlyRight, t.Changed})
	}
	return out
}

func TestRebuildTarget_Entity(t *testing.T) {
	t.Parallel()
	w, partitions := newEntityFixture(t)
	a, b := partitions[0], partitions[1]
	for range 5 {
		w.write(t, a, item("A"), item("B"), event.StreamID{Type: "old_item", ID: "A"})
		w.write(t, b, item("A"))
	}
	for _, version := range []int{1, 2} {
		w.advance(t, version, a, 14)
		w.advance(t, version, b, 0)
	}
	right := w.dump(t, 1)
	for _, id := range []string{"A", "B", "unknown"} {
		c := w.must(t, 1, a, id)
		require.Equal(t, [][3]uint64{{}, {}}, differing(c), "nothing was wrong with %s", id)
		require.EqualValues(t, 14, c.Sequence)
	}
	require.Equal(t, right, w.dump(t, 1))

	damage := `UPDATE test.items SET note = 'wrong' WHERE version = 1 AND sequence = 1 AND partition_id = ` + fmt.Sprint(int32(a)) + `;
		DELETE FROM test.items WHERE version = 1 AND sequence = 3 AND partition_id = ` + fmt.Sprint(int32(a)) + `;
		INSERT INTO test.items (sequence, partition_id, version, item, note) VALUES (99, ` + fmt.Sprint(int32(a)) + `, 1, 'A', 'invented');
		DELETE FROM test.marks WHERE version = 1 AND sequence = 4 AND partition_id = ` + fmt.Sprint(int32(a)) + `;
		UPDATE test.marks SET note = 'wrong' WHERE version = 1 AND sequence IN (2, 7) AND partition_id = ` + fmt.Sprint(int32(a))
	pgtest.Execute(t, w.dsn, damage)
	wrong := w.dump(t, 1)
	rehearsed := w.must(t, 1, a, "A", func(r *ports.TargetRebuild) { r.DryRun = true })
	require.Equal(t, [][3]uint64{{1, 1, 1}, {0, 1, 1}}, differing(rehearsed))
	require.Equal(t, wrong, w.dump(t, 1), "it was only a rehearsal")
	c := w.must(t, 1, a, "A")
	require.Equal(t, rehearsed, c)
	require.Equal(t, 9, c.Events, "up to the checkpoint")
	require.Equal(t, [][3]uint64{{}, {0, 0, 1}}, differing(w.must(t, 1, a, "B")))
	require.Equal(t, right, w.dump(t, 1))
	require.Equal(t, right, w.dump(t, 2), "of no other version")
	w.advance(t, 1, a, 0)
	w.advance(t, 2, a, 0)
	require.Equal(t, w.dump(t, 2), w.dump(t, 1), "and it continues from where it stood")

	// There is one entity only: all rows are its.
	pgtest.Execute(t, w.dsn, `UPDATE test.marks SET note = 'wrong' WHERE version = 1`)
	_, err := w.rebuild(t, 1, b, "A", func(r *ports.TargetRebuild) {
		r.Target = ports.ProjectionTarget{Streams: []string{"item"}, ID: "A", Tables: []ports.TargetTable{{ProjectionTable: itemsTables[1]}}}
	})
	require.NoError(t, err)
	pgtest.Execute(t, w.dsn, `UPDATE test.marks SET note = 'wrong' WHERE version = 2 AND partition_id = `+fmt.Sprint(int32(a)))
	require.Equal(t, w.dump(t, 2), w.dump(t, 1))
}

func TestRebuildTarget_FailureKeepsRows(t *testing.T) {
	t.Parallel()
	w, partitions := newEntityFixture(t)
	p := partitions[0]
	w.write(t, p, item("A"), item("A"), item("A"), item("B"))
	w.advance(t, 1, p, 0)
	pgtest.Execute(t, w.dsn, `UPDATE test.items SET note = 'wrong' WHERE sequence = 1`)
	before := w.dump(t, 1)
	for name, c := range map[string]struct {
		code   string
		change func(*ports.TargetRebuild)
	}{
		"an event fails":     {"test.unreadable", func(*ports.TargetRebuild) { w.fails[3] = true }},
		"too many events":    {projection.CodeTargetTooLarge, func(r *ports.TargetRebuild) { r.Limit = 2 }},
		"not read so far":    {projection.CodeTargetBehind, func(r *ports.TargetRebuild) { r.MinCheckpoint = 5 }},
		"a version that was": {projection.CodeFenced, func(r *ports.TargetRebuild) { r.Version = 2 }},
	} {
		w.fails = map[event.Sequence]bool{}
		if name == "a version that was" {
			_, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: itemsName, Version: 2, Role: projection.Building, Status: projection.Running})
			require.NoError(t, err)
			require.NoError(t, w.store.ProjectionVersions.DropProjection(t.Context(), itemsName, 2, "ada"))
		}
		_, err := w.rebuild(t, 1, p, "A", c.change)
		require.Equal(t, c.code, fault.CodeOf(err), name)
		require.Equal(t, before, w.dump(t, 1), name)
	}
}

// batchRecorder records the batches that its handler receives.
type batchRecorder struct {
	ports.ProjectionHandler
	batches [][]event.Recorded
}

func (h *batchRecorder) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	h.batches = append(h.batches, b.Events)
	return h.ProjectionHandler.Apply(ctx, tx, b)
}

// TestRebuildTarget_PagesLargeEvents: whatever the events of an entity take together,
// no more than 16 MiB of them are in memory at once.
func TestRebuildTarget_PagesLargeEvents(t *testing.T) {
	t.Parallel()
	w, partitions := newEntityFixture(t)
	p := partitions[0]
	large := func(s event.StreamID, n byte) ports.AppendRequest {
		r := pgtest.Invoice(p, 1)
		e := &r.Events[0]
		r.Streams, e.Stream = nil, s
		e.Payload = []byte(`{"data":{"text":"` + strings.Repeat(string('a'+n), 5<<20) + `"}}`)
		e.PayloadHash, e.PayloadHashDone = event.HashPayload(e.Salt, e.Payload), true
		return r
	}
	streams := []event.StreamID{item("A"), {Type: "old_item", ID: "A"}, item("A"), item("A"), {Type: "old_item", ID: "A"}}
	for i, s := range streams {
		_, err := w.store.Appender.Append(t.Context(), large(s, byte(i)))
		require.NoError(t, err)
	}
	w.write(t, p, item("A"))
	w.advance(t, 1, p, 0)
	h := &batchRecorder{ProjectionHandler: w}
	c, err := w.store.ProjectionTargets.RebuildTarget(t.Context(), ports.TargetRebuild{ProjectionWork: w.work(1, p), Target: itemsTarget, Entity: "A", Limit: 1000}, h)
	require.NoError(t, err)
	require.Equal(t, len(streams)+1, c.Events)
	require.Equal(t, [][3]uint64{{}, {}}, differing(c))
	require.Len(t, h.batches, 2)
	next := event.Sequence(1)
	for _, batch := range h.batches {
		bytes := 0
		for _, e := range batch {
			require.Equal(t, next, e.Sequence)
			require.Equal(t, e.PayloadHash, event.HashPayload(e.Salt, e.Payload), "with its payload and salt")
			bytes, next = bytes+len(e.Payload), next+1
		}
		require.LessOrEqual(t, bytes, 16<<20)
	}
}

// An event that a version went on without is left out again, until it can be digested. A
// partition that is halted stays halted.
func TestRebuildTarget_SkippedEvents(t *testing.T) {
	t.Parallel()
	w, partitions := newEntityFixture(t)
	p := partitions[0]
	w.write(t, p, item("A"), item("A"), item("A"), item("A"))
	w.fails[2] = true
	w.advance(t, 1, p, 1)
	c, err := w.store.Projections.Isolate(t.Context(), ports.ProjectionFailure{ProjectionWork: w.work(1, p), At: 1, Code: "test.unreadable"}, projection.SkipEvent)
	require.NoError(t, err)
	require.EqualValues(t, 2, c.Sequence)
	w.advance(t, 1, p, 1)
	_, err = w.store.Projections.Isolate(t.Context(), ports.ProjectionFailure{ProjectionWork: w.work(1, p), At: 3, Code: "test.unreadable"}, projection.StopPartition)
	require.NoError(t, err)
	before := w.dump(t, 1)
	change := w.must(t, 1, p, "A")
	require.Equal(t, []any{2, 1}, []any{change.Events, change.PassedOver})
	require.Equal(t, [][3]uint64{{}, {}}, differing(change))
	require.Equal(t, before, w.dump(t, 1))

	w.fails = map[event.Sequence]bool{}
	change = w.must(t, 1, p, "A", func(r *ports.TargetRebuild) { r.DryRun = true })
	require.Equal(t, []any{3, 0}, []any{change.Events, change.PassedOver})
	letters := func() (out []string) {
		found, err := w.store.ProjectionVersions.ListDeadLetters(t.Context(), ports.DeadLetterQuery{Name: itemsName, Limit: 10})
		require.NoError(t, err)
		for _, l := range found {
			out = append(out, fmt.Sprintf("%d %s %s", l.Sequence, l.Status, l.SettledBy))
		}
		return out
	}
	require.Equal(t, []string{"2 passed ", "4 waiting "}, letters())
	change = w.must(t, 1, p, "A")
	require.Equal(t, [][3]uint64{{0, 1, 0}, {0, 1, 0}}, differing(change))
	require.Equal(t, []string{"2 resolved ada", "4 waiting "}, letters())
	list, err := w.store.Projections.Checkpoints(t.Context(), itemsName, 1)
	require.NoError(t, err)
	require.Equal(t, projection.Halted, list[0].Status)
	require.EqualValues(t, 3, list[0].Sequence)
}

// A session that ends in the middle leaves the rows as they were.
func TestRebuildTarget_SessionEnds(t *testing.T) {
	t.Parallel()
	w, partitions := newEntityFixture(t)
	p := partitions[0]
	w.write(t, p, item("A"), item("A"), item("A"))
	w.advance(t, 1, p, 0)
	pgtest.Execute(t, w.dsn, `UPDATE test.items SET note = 'wrong' WHERE sequence = 1; DELETE FROM test.marks WHERE sequence = 2`)
	before := w.dump(t, 1)
	ended := false
	w.gate = func() {
		if !ended {
			ended = true
			pgtest.Execute(t, w.dsn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`)
		}
	}
	_, err := w.rebuild(t, 1, p, "A")
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)
	require.True(t, ended)
	require.Equal(t, before, w.dump(t, 1))
	require.Equal(t, [][3]uint64{{0, 0, 1}, {0, 1, 0}}, differing(w.must(t, 1, p, "A")))
}

// TestRebuildTarget_DropWaits, and nothing comes after it.
func TestRebuildTarget_DropWaits(t *testing.T) {
	t.Parallel()
	w, partitions := newEntityFixture(t)
	p := partitions[0]
	w.write(t, p, item("A"), item("A"))
	w.advance(t, 1, p, 0)
	_, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: itemsName, Version: 2, Role: projection.Building, Status: projection.Running})
	require.NoError(t, err)
	w.advance(t, 2, p, 0)
	inside, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release) // or the store could not be closed
	var once sync.Once
	w.gate = func() {
		once.Do(func() { close(inside) })
		<-goOn
	}
	rebuilt, dropped := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := w.rebuild(t, 2, p, "A")
		rebuilt <- err
	}()
	pgtest.Receive(t, inside, "the middle of the transaction")
	go func() {
		dropped <- w.store.ProjectionVersions.DropProjection(context.Background(), itemsName, 2, "ada")
	}()
	watcher := pgtest.Connect(t, w.dsn)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return pgtest.CountLockWaiters(t, watcher) == 1 }, "the drop waits")
	release()
	require.NoError(t, <-rebuilt)
	require.NoError(t, <-dropped)
	_, err = w.rebuild(t, 2, p, "A")
	require.Equal(t, projection.CodeFenced, fault.CodeOf(err))
}

// TestRebuildTarget_UnderLoad recomputes entities in two versions while events
// about them come in, both versions follow, readers are switched, and one is reset. In the
// end both are what a fold of the log from its beginning makes.
func TestRebuildTarget_UnderLoad(t *testing.T) {
	t.Parallel()
	w, partitions := newEntityFixture(t, func(c *postgres.Config) { c.ReadPool = 12 })
	p := partitions[0]
	const events, items = 120, 4
	_, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: itemsName, Version: 2, Role: projection.Building, Status: projection.Running})
	require.NoError(t, err)
	id := func(n int) string { return string(rune('A' + n%items)) }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working, writing sync.WaitGroup
	writing.Go(func() {
		for n := range events {
			w.write(t, p, item(id(n*n)))
		}
	})
	loop := func(f func(n int) error) {
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := f(n)
				switch {
				case err == nil, ctx.Err() != nil:
				case fault.CodeOf(err) == projection.CodeChanged, fault.KindOf(err) == fault.Unavailable, fault.CodeOf(err) == projection.CodeVersionBehind:
				default:
					t.Errorf("%+v", err)
					return
				}
			}
		})
	}
	for _, version := range []int{1, 2} {
		loop(func(n int) error {
			_, _, err := w.store.Projections.Advance(ctx, ports.ProjectionAdvance{ProjectionWork: w.work(version, p), Limit: 1 + n%3}, w)
			return err
		})
		loop(func(n int) error {
			_, err := w.rebuild(t, version, p, id(n), func(r *ports.TargetRebuild) { r.DryRun = n%3 == 0 })
			return err
		})
	}
	loop(func(n int) error {
		from, to := 1+n%2, 2-n%2
		return w.store.ProjectionVersions.SwitchProjection(ctx, ports.ProjectionSwitch{Projection: itemsName, From: from, To: to, MaxBehind: 1000, Handler: w, By: "ada"})
	})
	writing.Wait()
	_, err = w.store.Projections.Reset(t.Context(), ports.ProjectionOperation{ProjectionWork: w.work(2, p), By: "ada"}, w)
	require.NoError(t, err)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return len(w.dump(t, 1)) == 2*events && len(w.dump(t, 2)) == 2*events }, "both have caught up")
	stop()
	working.Wait()
	w.advance(t, 9, p, 0)
	require.Len(t, w.dump(t, 9), 2*events)
	require.Equal(t, w.dump(t, 9), w.dump(t, 1))
	require.Equal(t, w.dump(t, 9), w.dump(t, 2))
}

func TestCountCopies_ByVersion(t *testing.T) {
	t.Parallel()
	w, partitions := newEntityFixture(t)
	a, b := partitions[0], partitions[1]
	w.write(t, a, item("A"), item("B"), item("A"))
	for _, version := range []int{1, 2} {
		w.advance(t, version, a, 0)
	}
	const ada shredding.Subject = "person:ada"
	pgtest.Execute(t, w.dsn, `UPDATE test.items SET subject = 'person:ada' WHERE item = 'A' OR version = 2`)
	targets := []ports.ProjectionTarget{{Streams: []string{"x"}, Tables: []ports.TargetTable{{ProjectionTable: itemsTables[1]}}}, itemsTarget}
	counts, err := w.store.ProjectionTargets.CountCopies(t.Context(), a, ada, targets)
	require.NoError(t, err)
	require.Equal(t, map[int]int64{1: 2, 2: 3}, counts)
	found, err := w.store.ProjectionTargets.SubjectEntities(t.Context(), a, ada, targets)
	require.NoError(t, err)
	require.ElementsMatch(t, []ports.SubjectEntity{{Target: 1, Entity: "A"}, {Target: 1, Entity: "B"}}, found)
	for _, of := range []struct {
		p event.PartitionID
		s shredding.Subject
	}{{b, ada}, {a, "person:bo"}, {a, ""}} {
		counts, err = w.store.ProjectionTargets.CountCopies(t.Context(), of.p, of.s, targets)
		require.NoError(t, err)
		require.Empty(t, counts)
		found, err = w.store.ProjectionTargets.SubjectEntities(t.Context(), of.p, of.s, targets)
		require.NoError(t, err)
		require.Empty(t, found)
	}
}
