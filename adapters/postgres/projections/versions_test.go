package projections_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// sumFixture is a projection whose rows build on each other: each has the sum of all
// sequences up to its own, so that a row that is missing, doubled or mixed in from
// another version shows in all that follow.
type sumFixture struct {
	store *postgres.Database
	dsn   string
	wrong map[int]bool // versions that forget every fifth event's own share
}

var sumsTables = []ports.ProjectionTable{{Schema: "test", Name: "sums", Key: []string{"sequence"}}}

const sumsName = "test.sums"

func newSumFixture(t *testing.T, options ...pgtest.Option) (*sumFixture, []event.PartitionID) {
	t.Helper()
	dsn := pgtest.Database(t)
	pgtest.Execute(t, dsn, `CREATE SCHEMA test; GRANT USAGE ON SCHEMA test TO backbone_app;
		CREATE TABLE test.sums (sequence bigint, partition_id integer, version integer, total numeric NOT NULL, note text NOT NULL,
			PRIMARY KEY (partition_id, version, sequence));
		GRANT SELECT, INSERT, UPDATE, DELETE ON test.sums TO backbone_app`)
	w := &sumFixture{store: pgtest.Open(t, dsn, options...), dsn: dsn, wrong: map[int]bool{}}
	_, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: sumsName, Version: 1, Status: projection.Running})
	require.NoError(t, err)
	return w, pgtest.NewPartitions(t, w.store, 2)
}

func (w *sumFixture) build(t *testing.T, version int) {
	t.Helper()
	p, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: sumsName, Version: version, Code: 1, Role: projection.Building, Status: projection.Running})
	require.NoError(t, err)
	require.Equal(t, projection.Building, p.Role)
}

func (w *sumFixture) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	for _, e := range b.Events {
		share := int64(e.Sequence)
		if w.wrong[b.Version] && e.Sequence%5 == 0 {
			share = 0
		}
		if _, err := tx.(pgx.Tx).Exec(ctx, `INSERT INTO test.sums (sequence, partition_id, version, total, note)
			SELECT $1, $2, $3, $4 + coalesce((SELECT total FROM test.sums WHERE partition_id = $2 AND version = $3 ORDER BY sequence DESC LIMIT 1), 0), 'x'`,
			int64(e.Sequence), int32(b.Partition), int32(b.Version), share); err != nil {
			return err
		}
	}
	return nil
}

func (w *sumFixture) work(version int, p event.PartitionID) ports.ProjectionWork {
	return ports.ProjectionWork{Projection: sumsName, Version: version, Partition: p}
}

// advance reads at most limit events; 0: all.
func (w *sumFixture) advance(t *testing.T, version int, p event.PartitionID, limit int) event.Sequence {
	t.Helper()
	c, _, err := w.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: w.work(version, p), Limit: limit}, w)
	require.NoError(t, err)
	return c.Sequence
}

func (w *sumFixture) write(t *testing.T, p event.PartitionID, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := w.store.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.NoError(t, err)
	}
}

func (w *sumFixture) compare(t *testing.T, p event.PartitionID, left, right int) ports.ProjectionDifference {
	t.Helper()
	d, err := w.store.ProjectionVersions.CompareProjection(t.Context(), w.comparison(p, left, right))
	require.NoError(t, err)
	return d
}

func (w *sumFixture) comparison(p event.PartitionID, left, right int) ports.ProjectionComparison {
	return ports.ProjectionComparison{
		Projection: sumsName, Partition: p, Left: left, Right: right, MaxBehind: 1000, Tables: sumsTables, Examples: 2,
		Handlers: map[int]ports.ProjectionHandler{left: w, right: w},
	}
}

func (w *sumFixture) swap(t *testing.T, from, to int, behind uint64) error {
	t.Helper()
	return w.store.ProjectionVersions.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: sumsName, From: from, To: to, MaxBehind: behind, Handler: w, By: "ada"})
}

func (w *sumFixture) rows(t *testing.T) map[int]int {
	t.Helper()
	rows, err := w.store.Pool().Query(t.Context(), "SELECT version, count(*) FROM test.sums GROUP BY version")
	require.NoError(t, err)
	out := map[int]int{}
	var version, n int
	_, err = pgx.ForEachRow(rows, []any{&version, &n}, func() error { out[version] = n; return nil })
	require.NoError(t, err)
	return out
}

// TestRebuild_UnderLoad writes, follows with one version, builds another one,
// compares, switches back and forth and reads, all at once. At no time do the versions
// differ at the same event, no reader goes back, and at the end both are what a fold of
// the log from its beginning makes.
func TestRebuild_UnderLoad(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t, func(c *postgres.Config) { c.ReadPool = 12 })
	const events = 150
	w.write(t, partitions[0], 1, 60)
	w.build(t, 2)
	ctx, stop := context.WithCancel(t.Context())
	var writing, working sync.WaitGroup
	for _, p := range partitions {
		from := 1
		if p == partitions[0] {
			from = 61
		}
		writing.Go(func() {
			for n := from; n <= events; n++ {
				if _, err := w.store.Appender.Append(ctx, pgtest.Invoice(p, 1)); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
		for _, version := range []int{1, 2} {
			working.Go(func() {
				for ctx.Err() == nil {
					_, _, err := w.store.Projections.Advance(ctx, ports.ProjectionAdvance{ProjectionWork: w.work(version, p), Limit: 3 + 4*version}, w)
					if err != nil && ctx.Err() == nil {
						t.Errorf("version %d: %v", version, err)
						return
					}
				}
			})
		}
		working.Go(func() { // a reader, who sees one version and never less than before
			last := int64(0)
			for ctx.Err() == nil {
				// In one statement: between two statements the version that the first one found
				// active may be replaced, and still advances.
				var version int
				var n, top, total int64
				err := w.store.Pool().QueryRow(ctx, `SELECT v.version, count(s.sequence), coalesce(max(s.sequence), 0), coalesce(max(s.total), 0)
					FROM backbone.projections v LEFT JOIN test.sums s ON s.partition_id = $1 AND s.version = v.version
					WHERE v.name = $2 AND v.role = 'active' GROUP BY v.version`,
					int32(p), sumsName).Scan(&version, &n, &top, &total)
				if err != nil {
					continue
				}
				if n != top || total != top*(top+1)/2 || top < last {
					t.Errorf("version %d in %d shows %d rows up to %d with the sum %d, after %d", version, p, n, top, total, last)
					return
				}
				last = top
			}
		})
	}
	require.NoError(t, func() error {
		written := make(chan struct{})
		go func() { writing.Wait(); close(written) }()
		active, other, switched := 1, 2, 0
		for {
			for _, p := range partitions {
				if d, err := w.store.ProjectionVersions.CompareProjection(ctx, w.comparison(p, 1, 2)); err != nil && fault.CodeOf(err) != projection.CodeIncomparable {
					return err
				} else if d.Rows() != 0 {
					return fmt.Errorf("they differ: %+v", d)
				}
			}
			switch err := w.swap(t, active, other, 30); {
			case err == nil:
				active, other, switched = other, active, switched+1
			case fault.CodeOf(err) != projection.CodeVersionBehind:
				return err
			}
			select {
			case <-written:
				if switched < 2 {
					continue
				}
				return nil
			default:
			}
		}
	}())
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return w.rows(t)[1] == 2*events && w.rows(t)[2] == 2*events }, "both have caught up")
	stop()
	working.Wait()
	for _, p := range partitions {
		w.advance(t, 9, p, 0)
		for _, version := range []int{1, 2} {
			d := w.compare(t, p, 9, version)
			require.Zero(t, d.Rows())
			require.Equal(t, uint64(events), d.Tables[0].RightRows)
			require.Equal(t, event.Sequence(events), d.Sequence)
		}
	}
}

// beforeApply does something before the handler receives events.
type beforeApply struct {
	*sumFixture
	once sync.Once
	do   func()
}

func (m *beforeApply) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	m.once.Do(m.do)
	return m.sumFixture.Apply(ctx, tx, b)
}

// TestSwitchProjection_SeesConcurrentStart: a partition in which the active version has
// no checkpoint yet has nothing that a switch could hold, and readers must not go back
// there either.
func TestSwitchProjection_SeesConcurrentStart(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a, b := partitions[0], partitions[1]
	w.build(t, 2)
	w.write(t, a, 1, 2)
	w.advance(t, 1, a, 0)
	w.advance(t, 2, a, 1)
	w.write(t, b, 1, 2)
	w.advance(t, 2, b, 1)
	h := &beforeApply{sumFixture: w, do: func() { w.advance(t, 1, b, 0) }}
	require.NoError(t, w.store.ProjectionVersions.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: sumsName, From: 1, To: 2, MaxBehind: 30, Handler: h, By: "ada"}))
	require.Equal(t, map[int]int{1: 4, 2: 4}, w.rows(t), "readers see as many rows as before")
}

func TestCompareProjection_FindsDifferences(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a, b := partitions[0], partitions[1]
	w.wrong[2] = true
	w.write(t, a, 1, 12)
	w.write(t, b, 1, 4)
	w.build(t, 2)
	w.advance(t, 1, a, 0)
	_, err := w.store.ProjectionVersions.CompareProjection(t.Context(), w.comparison(a, 1, 2))
	require.Equal(t, projection.CodeIncomparable, fault.CodeOf(err), "it has not begun")
	w.advance(t, 2, a, 7)
	w.advance(t, 1, b, 2)
	w.advance(t, 2, b, 4)
	require.Zero(t, w.compare(t, b, 1, 2).Rows(), "it is wrong from the fifth event on")
	d := w.compare(t, a, 1, 2)
	require.Equal(t, event.Sequence(12), d.Sequence, "the one behind was brought forward")
	require.Len(t, d.Tables, 1)
	table := d.Tables[0]
	require.Equal(t, []any{"test.sums", uint64(12), uint64(12), uint64(0), uint64(0), uint64(8)},
		[]any{table.Table, table.LeftRows, table.RightRows, table.OnlyLeft, table.OnlyRight, table.Changed})
	require.Len(t, table.Examples, 2)
	require.JSONEq(t, `{"sequence": 5}`, string(table.Examples[0].Key))
	require.Equal(t, []any{"both", []string{"total"}}, []any{table.Examples[0].Where, table.Examples[0].Columns})

	pgtest.Execute(t, w.dsn, `DELETE FROM test.sums WHERE version = 1 AND sequence = 2; DELETE FROM test.sums WHERE version = 2 AND sequence = 3`)
	table = w.compare(t, a, 1, 2).Tables[0]
	require.Equal(t, []uint64{1, 1, 8}, []uint64{table.OnlyLeft, table.OnlyRight, table.Changed})
	require.Equal(t, []string{"right", "left"}, []string{table.Examples[0].Where, table.Examples[1].Where})

	// 1.0 is not 1.00 to a reader.
	pgtest.Execute(t, w.dsn, `UPDATE test.sums SET total = total * 1.0 WHERE version = 1 AND sequence = 1`)
	require.Equal(t, uint64(9), w.compare(t, a, 1, 2).Tables[0].Changed)

	// What a version of another release lacks cannot be made good.
	w.write(t, a, 13, 13)
	w.advance(t, 2, a, 0)
	c := w.comparison(a, 1, 2)
	delete(c.Handlers, 1)
	_, err = w.store.ProjectionVersions.CompareProjection(t.Context(), c)
	require.Equal(t, projection.CodeIncomparable, fault.CodeOf(err))
}

func TestSwitchProjection_CatchesUp(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a := partitions[0]
	w.write(t, a, 1, 10)
	w.advance(t, 1, a, 0)
	w.build(t, 2)
	require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(w.swap(t, 1, 2, 5)))
	w.advance(t, 2, a, 4)
	require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(w.swap(t, 1, 2, 5)), "it lacks 6")
	w.advance(t, 2, a, 1)
	require.NoError(t, w.swap(t, 1, 2, 5))
	require.Equal(t, map[int]int{1: 10, 2: 10}, w.rows(t))
	require.Zero(t, w.compare(t, a, 1, 2).Rows())
	active, err := w.store.ProjectionVersions.ActiveProjection(t.Context(), sumsName)
	require.NoError(t, err)
	require.Equal(t, 2, active)
	require.Equal(t, projection.CodeChanged, fault.CodeOf(w.swap(t, 1, 2, 5)), "another caller was faster")
	_, err = w.store.ProjectionVersions.ActiveProjection(t.Context(), "no.such")
	require.Equal(t, "projection.not_found", fault.CodeOf(err))

	// With a third one built, the way back from it leads to the second, and the first is
	// removed.
	w.build(t, 3)
	p, err := w.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: sumsName, Version: 4, Role: projection.Building, Status: projection.Running})
	require.Equal(t, "projection.not_found", fault.CodeOf(err), "one rebuild at a time: %+v", p)
	require.NoError(t, w.swap(t, 2, 1, 5), "back while another is built")
	require.NoError(t, w.swap(t, 1, 2, 5))
	w.advance(t, 3, a, 9)
	require.NoError(t, w.swap(t, 2, 3, 5))
	require.Equal(t, map[int]projection.Role{1: projection.Dropping, 2: projection.Retained, 3: projection.Active}, w.roles(t))

	// A version that cannot continue becomes active only if it is forced.
	w.write(t, a, 11, 12)
	w.advance(t, 3, a, 0)
	_, err = w.store.Projections.Isolate(t.Context(), ports.ProjectionFailure{ProjectionWork: w.work(2, a), At: 10, Code: "x"}, projection.StopPartition)
	require.NoError(t, err)
	require.Equal(t, projection.CodeVersionHalted, fault.CodeOf(w.swap(t, 3, 2, 5)))
	require.NoError(t, w.store.ProjectionVersions.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: sumsName, From: 3, To: 2, Force: true, By: "ada"}))
	require.Equal(t, projection.Active, w.roles(t)[2])
}

func (w *sumFixture) roles(t *testing.T) map[int]projection.Role {
	t.Helper()
	all, err := w.store.ProjectionVersions.ListProjections(t.Context())
	require.NoError(t, err)
	out := map[int]projection.Role{}
	for _, p := range all {
		out[p.Version] = p.Role
	}
	return out
}

// TestDropProjection_RemovesRows cancels while a worker is in the middle of a
// transaction and another node does not know it yet.
func TestDropProjection_RemovesRows(t *testing.T) {
	t.Parallel()
	w, partitions := newSumFixture(t)
	a, b := partitions[0], partitions[1]
	w.write(t, a, 1, 9)
	w.write(t, b, 1, 5)
	for _, p := range partitions {
		w.advance(t, 1, p, 0)
	}
	w.build(t, 2)
	w.advance(t, 2, a, 8)
	inside, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release) // or the store could not be closed
	worker := make(chan error, 1)
	go func() {
		_, _, err := w.store.Projections.Advance(context.Background(), ports.ProjectionAdvance{ProjectionWork: w.work(2, a)},
			pgtest.Applied(func(ctx context.Context, tx pgx.Tx, b ports.ProjectionBatch) error {
				close(inside)
				<-goOn
				return w.Apply(ctx, tx, b)
			}))
		worker <- err
	}()
	pgtest.Receive(t, inside, "the middle of the transaction")
	dropped := make(chan error, 1)
	go func() { dropped <- w.store.ProjectionVersions.DropProjection(context.Background(), sumsName, 2, "ada") }()
	watcher := pgtest.Connect(t, w.dsn)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		var waiting int
		require.NoError(t, watcher.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
		return waiting == 1
	}, "the worker comes to its end first")
	release()
	require.NoError(t, <-worker)
	require.NoError(t, <-dropped)
	for _, p := range partitions {
		_, _, err := w.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: w.work(2, p)}, w)
		require.Equal(t, projection.CodeFenced, fault.CodeOf(err), "no node starts it again")
	}
	removed := []int64{}
	for w.roles(t)[2] != projection.Dropped {
		n, err := w.store.ProjectionVersions.SweepProjection(t.Context(), sumsName, 2, sumsTables, 4)
		require.NoError(t, err)
		removed = append(removed, n)
	}
	require.Equal(t, []int64{4, 4, 1, 0}, removed)
	require.Equal(t, map[int]int{1: 14}, w.rows(t))
	require.Equal(t, projection.CodeChanged, fault.CodeOf(w.store.ProjectionVersions.DropProjection(t.Context(), sumsName, 2, "ada")))
	require.Equal(t, projection.CodeChanged, fault.CodeOf(w.store.ProjectionVersions.DropProjection(t.Context(), sumsName, 1, "ada")), "never the active one")
	w.build(t, 3)
}

// TestSweepProjection_IsBounded drops a version with rows in more legal entities than one step looks
// at, one of which has more rows than one step removes.
func TestSweepProjection_IsBounded(t *testing.T) {
	t.Parallel()
	w, _ := newSumFixture(t)
	for n := range 68 { // 70 with the first two
		_, err := w.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "swept", Code: fmt.Sprintf("X%d", n)})
		require.NoError(t, err)
	}
	w.build(t, 2)
	pgtest.Execute(t, w.dsn, `INSERT INTO test.sums (sequence, partition_id, version, total, note)
		SELECT n, h.partition_id, 2, 0, 'x' FROM backbone.partition_heads h CROSS JOIN generate_series(1, 2) n;
		INSERT INTO test.sums (sequence, partition_id, version, total, note)
		SELECT n, (SELECT partition_id FROM backbone.partition_heads ORDER BY partition_id OFFSET 1 LIMIT 1), 2, 0, 'x' FROM generate_series(3, 8) n`)
	require.NoError(t, w.store.ProjectionVersions.DropProjection(t.Context(), sumsName, 2, "ada"))
	removed := []int64{}
	for w.roles(t)[2] != projection.Dropped {
		n, err := w.store.ProjectionVersions.SweepProjection(t.Context(), sumsName, 2, sumsTables, 5)
		require.NoError(t, err)
		removed = append(removed, n)
	}
	require.Equal(t, []int64{63*2 + 5, 3 + 2, 5 * 2, 0}, removed, "64 legal entities at a time; from the second on, until it is empty")
	require.Empty(t, w.rows(t)[2])
}
