package appender_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// With leases that lock no row, one of the first ten to hundred races fails, now and then the first of
// three hundred.
func TestKeyLease_NoEventUnderDestroyedKey(t *testing.T) {
	t.Parallel()
	testErasureRaces(t, 400)
}

func TestDrillErasureRaces(t *testing.T) {
	t.Parallel()
	testErasureRaces(t, 1000)
}

// testErasureRaces lets appends about a person race with the person's erasure, many times. When the
// eraser has locked the key's row, every lease has ended, so all events of the person are committed.
func testErasureRaces(t *testing.T, races int64) {
	for name, keyStore := range map[string]func(t *testing.T, dsn string) string{
		"OneDatabase":   func(_ *testing.T, dsn string) string { return dsn },
		"KeyStoreApart": func(t *testing.T, _ string) string { return pgtest.KeyStoreDatabase(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			keysDSN := keyStore(t, dsn)
			r := &erasureRace{
				t: t, store: pgtest.Open(t, dsn, pgtest.WithKeyStore(keysDSN), pgtest.WithoutPhysicalPartitions),
				keys: superuserPool(t, keysDSN), log: superuserPool(t, dsn),
			}
			r.books = pgtest.NewPartitions(t, r.store, 3)
			var next atomic.Int64
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for i := next.Add(1); i <= races && !t.Failed(); i = next.Add(1) {
						r.run(int(i))
					}
				})
			}
			wg.Wait()
			for _, p := range r.books {
				pgtest.RequireVerified(t, r.store, p)
			}
			require.Positive(t, r.written.Load())
			t.Logf("%d events were written before %d erasures; the longest wait of an eraser was %s",
				r.written.Load(), races, time.Duration(r.longest.Load()))
		})
	}
}

func superuserPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["lock_timeout"] = fmt.Sprint(pgtest.WaitLimit.Milliseconds()) // far longer than any group is in flight
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

type erasureRace struct {
	t         *testing.T
	store     *postgres.Database
	keys, log *pgxpool.Pool
	books     []event.PartitionID
	written   atomic.Int64
	longest   atomic.Int64 // wait of an eraser for the key's row, in nanoseconds
}

// run appends about one person from two callers until they are refused, and erases
// the person at the same time.
func (r *erasureRace) run(i int) {
	ctx := context.Background()
	id := pgtest.KeyID(r.books[i%len(r.books)], fmt.Sprintf("employee:R-%d", i))
	var version int
	if err := r.keys.QueryRow(ctx, pgtest.MintKey, pgtest.KeyArguments(id)...).Scan(&version); err != nil {
		r.t.Errorf("mint: %v", err)
		return
	}
	var wg sync.WaitGroup
	begun := make(chan struct{}, 2)
	for caller := range 2 {
		wg.Go(func() {
			for n := 0; ; n++ {
				if n == i%3 { // how far the callers are when the erasure begins
					begun <- struct{}{}
				}
				_, err := r.store.Appender.Append(ctx, pgtest.Personal(id.Partition, string(id.Subject)))
				if err == nil {
					r.written.Add(1)
					continue
				}
				if code := fault.CodeOf(err); code != "pii.subject_erased" && code != "pii.key_moved" {
					r.t.Errorf("append: %v", err)
				}
				if n < i%3 {
					begun <- struct{}{}
				}
				break
			}
			// Requests without personal values succeed throughout.
			if _, err := r.store.Appender.Append(ctx, pgtest.Invoice(id.Partition, 1)); caller == 0 && err != nil {
				r.t.Errorf("append without personal values: %v", err)
			}
		})
	}
	<-begun
	atDestruction, err := r.erase(ctx, id)
	wg.Wait()
	if err != nil {
		r.t.Errorf("erase: %v", err)
		return
	}
	after, err := r.events(ctx, id)
	if err != nil || after != atDestruction {
		r.t.Errorf("%d events of a person, %d when the key was destroyed (%v)", after, atDestruction, err)
	}
}

// erase fences and destroys the key and returns how many events of the person were visible
// when the last lease had ended.
func (r *erasureRace) erase(ctx context.Context, id ports.SubjectKeyID) (events int, err error) {
	if _, err := r.keys.Exec(ctx, pgtest.FenceKey, pgtest.KeyArguments(id)...); err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, r.keys, func(tx pgx.Tx) error {
		started := time.Now()
		if _, err := tx.Exec(ctx, pgtest.LockKey, pgtest.KeyArguments(id)...); err != nil {
			return err
		}
		waited := int64(time.Since(started))
		for longest := r.longest.Load(); waited > longest && !r.longest.CompareAndSwap(longest, waited); longest = r.longest.Load() {
		}
		var err error
		if events, err = r.events(ctx, id); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, pgtest.DestroyKey, pgtest.KeyArguments(id)...)
		return err
	})
	return events, err
}

func (r *erasureRace) events(ctx context.Context, id ports.SubjectKeyID) (n int, err error) {
	err = r.log.QueryRow(ctx, `SELECT count(*) FROM backbone.event_pii_subjects WHERE partition_id = $1 AND subject_id = $2`,
		int32(id.Partition), string(id.Subject)).Scan(&n)
	return n, err
}
