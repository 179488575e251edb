package directory_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

const physicalPartitions = `SELECT count(*)::text FROM pg_inherits WHERE inhparent = 'backbone.events'::regclass`

func TestCreateLegalEntity_LimitsPhysicalPartitions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, func(c *postgres.Config) { c.PhysicalPartitions = 2 })
	books := pgtest.NewPartitions(t, s, 4)
	conn := pgtest.Connect(t, dsn)
	require.Equal(t, []string{"3"}, pgtest.Column(t, conn, physicalPartitions), "two and the default")
	for _, p := range books {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 2))
		require.NoError(t, err)
		require.Equal(t, 2, pgtest.RequireVerified(t, s, p))
		require.EqualValues(t, 5, p>>19, "the deployment number")
	}
	require.Equal(t, []string{"4"}, pgtest.Column(t, conn, `SELECT count(*)::text FROM backbone.events_default`))
	// The default partition holds rows now; an attachment would have to scan it.
	more := pgtest.Open(t, dsn, func(c *postgres.Config) { c.PhysicalPartitions = 8 })
	_, err := more.Directory.CreateLegalEntity(t.Context(), pgtest.LegalEntity("LATER"))
	require.NoError(t, err)
	require.Equal(t, []string{"3"}, pgtest.Column(t, conn, physicalPartitions))
}

// create creates a legal entity. Each call gives up after some seconds in which other sessions hold
// the tables that it attaches to.
func create(ctx context.Context, s *postgres.Database, code string) error {
	ctx, cancel := context.WithTimeout(ctx, pgtest.WaitLimit)
	defer cancel()
	for {
		if _, err := s.Directory.CreateLegalEntity(ctx, pgtest.LegalEntity(code)); fault.CodeOf(err) != "store.unavailable" {
			return err
		}
	}
}

// TestCreateLegalEntity_OpenReaderDelaysNoAppend: a reader that locks the tables delays
// the new legal entity only, never appends of other legal entities.
func TestCreateLegalEntity_OpenReaderDelaysNoAppend(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	reader := pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	tx, err := reader.Begin(t.Context())
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM backbone.events`).Scan(&n)) // locks every partition

	created := make(chan error, 1)
	go func() { created <- create(t.Context(), s, "NEW") }()
	observer := pgtest.Connect(t, dsn)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return pgtest.CountLockWaiters(t, observer) > 0 }, "the attachment waits")
	for range 50 {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"lock_timeout=100ms"}, pgtest.Column(t, observer, `SELECT setting FROM pg_proc, unnest(proconfig) setting
		WHERE proname = 'create_legal_entity' AND setting LIKE 'lock_timeout=%'`), "it blocks appends no longer than that")
	select {
	case err := <-created:
		t.Fatalf("the reader is still open: %v", err)
	default:
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-created)
	require.Equal(t, 50, pgtest.RequireVerified(t, s, p))
}

func TestCreateLegalEntity_ConcurrentCalls(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	pgtest.NewPartitions(t, s, 1)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = create(context.Background(), s, fmt.Sprintf("C%d", i%4)) })
	}
	wg.Wait()
	duplicates := 0
	for _, err := range errs {
		if err != nil {
			require.Equal(t, "legal_entity.duplicate", fault.CodeOf(err))
			duplicates++
		}
	}
	require.Equal(t, 4, duplicates)
	entities, err := s.Directory.LegalEntities(t.Context(), "demo")
	require.NoError(t, err)
	require.Len(t, entities, 5)
}

func TestCreateLegalEntity_DatabaseVerifiesGenesis(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pgtest.NewPartitions(t, pgtest.Open(t, dsn), 1)
	app := pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	create := func(p event.PartitionID, genesis event.Hash) error {
		_, err := app.Exec(t.Context(), `SELECT backbone.create_legal_entity($1, 'demo', 'X', '', 'UTC', 'active', now(), $2, 0)`, int32(p), genesis[:])
		return err
	}
	p := event.PartitionID(5<<19 | 77)
	require.Equal(t, "23514", pgtest.SQLState(create(p, event.GenesisChecksum("another.example.org", p))))
	require.Equal(t, "23514", pgtest.SQLState(create(6<<19|77, event.GenesisChecksum(pgtest.LogName, 6<<19|77))), "another deployment")
	require.NoError(t, create(p, event.GenesisChecksum(pgtest.LogName, p)))
}

func TestMigrate_RepeatedAndConcurrent(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t, nil, "empty")
	set := migrate.Set{Name: "shop", FS: fstest.MapFS{
		"00001_shop.sql": {Data: []byte("-- +goose Up\nCREATE SCHEMA shop;\nCREATE TABLE shop.orders (id int);\n")},
	}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var steps []string
	for range 3 {
		wg.Go(func() {
			if err := migrate.Run(context.Background(), dsn, func(step string) {
				mu.Lock()
				defer mu.Unlock()
				steps = append(steps, step)
			}, set); err != nil {
				t.Errorf("migrate: %v: %v", err, pgtest.Unwrapped(err))
			}
		})
	}
	wg.Wait()
	applied := map[string]int{}
	for _, step := range steps {
		if file, _, ran := strings.Cut(step, " ("); ran {
			applied[file]++
			require.Equal(t, 1, applied[file], "each file once: %v", steps)
		}
	}
	require.Contains(t, applied, "shop: 00001_shop.sql")
	require.Contains(t, applied, "backbone: 00001_directory.sql")
	conn := pgtest.Connect(t, dsn)
	require.Equal(t, []string{"backbone_owner"}, pgtest.Column(t, conn, `SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = 'shop.orders'::regclass`))
	// The owner alone can bring a database up to date as well.
	set.FS.(fstest.MapFS)["00002_shop.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE shop.orders ADD COLUMN x int;\n")}
	require.NoError(t, migrate.Run(t.Context(), pgtest.As("backbone_owner", dsn), nil, set))
	require.Equal(t, []string{"x"}, pgtest.Column(t, conn, `SELECT attname::text FROM pg_attribute WHERE attrelid = 'shop.orders'::regclass AND attname = 'x'`))
	// A file that fails names itself.
	set.FS.(fstest.MapFS)["00003_shop.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nSELECT 1/0;\n")}
	err := migrate.Run(t.Context(), dsn, nil, set)
	require.Equal(t, "store.migration_failed", fault.CodeOf(err))
	require.ErrorContains(t, err, "00003_shop.sql")
}

func TestOpen_RefusesBadAddress(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), pgtest.Config("postgres://user:s3cret@host:port/x"))
	require.Equal(t, "store.dsn_invalid", fault.CodeOf(err))
	require.NotContains(t, err.Error(), "s3cret")
	_, err = postgres.Open(t.Context(), pgtest.Config("postgres://user:s3cret@127.0.0.1:1/x"))
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	for e := err; e != nil; e = pgtest.Unwrapped(e) {
		require.NotContains(t, e.Error(), "s3cret")
		if _, ok := fault.As(e); !ok {
			break
		}
	}
}

func TestDeleteExpiredIdempotencyKeys(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 2)
	for i, lifetime := range []time.Duration{-time.Hour, time.Hour, -time.Minute} {
		r := pgtest.Invoice(p[i%2], 1)
		r.Idempotency.ExpiresAt = time.Now().Add(lifetime)
		_, err := s.Appender.Append(t.Context(), r)
		require.NoError(t, err)
	}
	deleted, err := s.Intents.DeleteExpiredIdempotencyKeys(t.Context(), time.Now())
	require.NoError(t, err)
	require.EqualValues(t, 2, deleted)
}
