package appender_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// openWithExternalKeyStore is a store with one appender behind a network, its key store in another
// database, one partition and one person.
func openWithExternalKeyStore(t *testing.T, n *network) (s *postgres.Database, dsn, keysDSN string, p event.PartitionID) {
	t.Helper()
	dsn, keysDSN = pgtest.Database(t), pgtest.KeyStoreDatabase(t)
	s = pgtest.Open(t, dsn, throughNetwork(n), pgtest.WithKeyStore(keysDSN))
	p = pgtest.NewPartitions(t, s, 1)[0]
	pgtest.KeyTables{DSN: keysDSN}.Mint(t, pgtest.KeyID(p, "employee:A-1"))
	openConnections(t, s, pgtest.Personal(p, "employee:A-1"))
	return s, dsn, keysDSN, p
}

// killLeaseSessions ends the sessions that hold leases and waits until they are gone.
func killLeaseSessions(t *testing.T, keysDSN string) (killed int) {
	conn := pgtest.Connect(t, keysDSN)
	err := conn.QueryRow(context.Background(), `SELECT count(*) FROM (SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'backbone leases' AND state = 'idle in transaction') k`).Scan(&killed)
	if err != nil {
		t.Errorf("kill: %v", err)
	}
	return killed
}

func TestExternalKeyStore_LeaseLostBeforeCommitIsTakenAgain(t *testing.T) {
	t.Parallel()
	n := &network{}
	s, _, keysDSN, p := openWithExternalKeyStore(t, n)
	killed := 0
	n.atWrite(func(*wire) { killed = killLeaseSessions(t, keysDSN) })
	result, err := s.Appender.Append(t.Context(), pgtest.Personal(p, "employee:A-1"))
	n.requireCut(t)
	require.NoError(t, err)
	require.Equal(t, 1, killed)
	require.EqualValues(t, 2, result.Head)
	require.Equal(t, 2, pgtest.RequireVerified(t, s, p), "the group without a lease was rolled back")
	requireNoLease(t, keysDSN, pgtest.KeyID(p, "employee:A-1"))
}

func TestExternalKeyStore_KeyDestroyedAfterLostLeaseIsRefused(t *testing.T) {
	t.Parallel()
	n := &network{}
	s, _, keysDSN, p := openWithExternalKeyStore(t, n)
	id := pgtest.KeyID(p, "employee:A-1")
	n.atWrite(func(*wire) {
		killLeaseSessions(t, keysDSN)
		pgtest.KeyTables{DSN: keysDSN}.Fence(t, id)
		pgtest.KeyTables{DSN: keysDSN}.Destroy(t, id)
	})
	_, err := s.Appender.Append(t.Context(), pgtest.Personal(p, "employee:A-1"))
	n.requireCut(t)
	require.Equal(t, "pii.subject_erased", fault.CodeOf(err))
	require.Equal(t, 1, pgtest.RequireVerified(t, s, p))
	got := appendInOneGroup(t, s, p, pgtest.Personal(p, "employee:A-1"), pgtest.Invoice(p, 1))
	require.Equal(t, "pii.subject_erased", fault.CodeOf(got[0].err))
	require.NoError(t, got[1].err)
}

// TestExternalKeyStore_MissingRowsAreRefused lets a trigger drop the row by which an erasure
// finds the event. The commit waits for the lease in the other database, so it is not sent.
func TestExternalKeyStore_MissingRowsAreRefused(t *testing.T) {
	t.Parallel()
	s, dsn, keysDSN, p := openWithExternalKeyStore(t, &network{})
	pgtest.Execute(t, dsn, `CREATE FUNCTION public.drop_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER drop_row BEFORE INSERT ON backbone.event_pii_subjects FOR EACH ROW EXECUTE FUNCTION public.drop_row()`)
	_, err := s.Appender.Append(t.Context(), pgtest.Personal(p, "employee:A-1"))
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, pg.CodeInternal, f.Code)
	require.Equal(t, "event_rows_persons", f.Attributes["constraint"], "which rows do not fit")
	require.ErrorContains(t, err, "nothing was written")
	require.Equal(t, 1, pgtest.RequireVerified(t, s, p))
	requireNoLease(t, keysDSN, pgtest.KeyID(p, "employee:A-1"))
	pgtest.Execute(t, dsn, `DROP TRIGGER drop_row ON backbone.event_pii_subjects`)
	_, err = s.Appender.Append(t.Context(), pgtest.Personal(p, "employee:A-1"))
	require.NoError(t, err)
	require.Equal(t, 2, pgtest.RequireVerified(t, s, p))
}

func TestDrillKeyLeaseLost(t *testing.T) {
	t.Parallel()
	s, dsn, keysDSN, p := openWithExternalKeyStore(t, &network{})
	keys, err := url.Parse(keysDSN)
	require.NoError(t, err)
	pgtest.Execute(t, dsn, `CREATE FUNCTION public.lose_leases() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
			WHERE datname = '`+strings.TrimPrefix(keys.Path, "/")+`' AND application_name = 'backbone leases';
			RETURN NEW;
		END $$;
		CREATE TRIGGER lose_leases BEFORE INSERT ON backbone.event_pii_subjects FOR EACH ROW EXECUTE FUNCTION public.lose_leases()`)
	got := appendInOneGroup(t, s, p, pgtest.Invoice(p, 1), pgtest.Personal(p, "employee:A-1"), pgtest.Invoice(p, 1))
	require.Equal(t, "keys.unavailable", fault.CodeOf(got[1].err))
	require.Equal(t, fault.Unavailable, fault.KindOf(got[1].err))
	require.NoError(t, got[0].err)
	require.NoError(t, got[2].err)
	require.Equal(t, 4, pgtest.RequireVerified(t, s, p))
}

func TestExternalKeyStore_ConnectionLostAtCommitKeepsLease(t *testing.T) {
	t.Parallel()
	n := &network{}
	s, _, keysDSN, p := openWithExternalKeyStore(t, n)
	cut := make(chan struct{})
	var end func()
	n.atCommit(func(w *wire) {
		end = n.delay(t)
		w.loseAnswer()
		close(cut)
	})
	answered := send(context.Background(), s, pgtest.Personal(p, "employee:A-1"))
	pgtest.Receive(t, cut, "the commit")
	n.requireCut(t)
	// The outcome of the append is not known yet.
	_, err := pgtest.Connect(t, keysDSN).Exec(t.Context(), pgtest.LockKey+" NOWAIT", pgtest.KeyArguments(pgtest.KeyID(p, "employee:A-1"))...)
	require.Equal(t, "55P03", pgtest.SQLState(err), "the lease ended before the outcome was known")
	end()
	require.NoError(t, (<-answered).err)
	require.Equal(t, 2, pgtest.RequireVerified(t, s, p))
	requireNoLease(t, keysDSN, pgtest.KeyID(p, "employee:A-1"))
}

func TestExternalKeyStore_UnreachableStoreRefusesPersonalValuesOnly(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	// Two unreachable key stores: a port without a listener, and one that never answers.
	const refusing = "127.0.0.1:1"
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	p := pgtest.NewPartitions(t, pgtest.Open(t, dsn), 1)[0]
	for _, address := range []string{refusing, silent.Addr().String()} {
		s := pgtest.Open(t, dsn, pgtest.WithDefaultLimits, pgtest.SingleAppender, func(c *postgres.Config) { // one that is silent is not waited for long
			c.KeyStoreDSN = "postgres://backbone_app@" + address + "/keys?sslmode=disable"
		})
		for range 2 {
			got := appendInOneGroup(t, s, p, pgtest.Personal(p, "employee:U-1"), pgtest.Invoice(p, 1), pgtest.Personal(p, "employee:U-2"))
			for _, j := range []int{0, 2} {
				f, ok := fault.As(got[j].err)
				require.True(t, ok)
				require.Equal(t, "keys.unavailable", f.Code)
				require.Equal(t, fault.Unavailable, f.Kind)
				require.Positive(t, f.RetryAfter)
			}
			require.NoError(t, got[1].err)
		}
	}
}

func TestExternalKeyStore_Reconnects(t *testing.T) {
	t.Parallel()
	n := &network{}
	s, _, keysDSN, p := openWithExternalKeyStore(t, n)
	admin := pgtest.Connect(t, keysDSN)
	for range 3 {
		// All idle connections of the pool are broken, which the pool has not noticed.
		_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'backbone leases'`)
		require.NoError(t, err)
		_, err = s.Appender.Append(t.Context(), pgtest.Personal(p, "employee:A-1"))
		require.NoError(t, err)
	}
	require.Equal(t, 4, pgtest.RequireVerified(t, s, p))
}

func TestSameDatabase(t *testing.T) {
	t.Parallel()
	const log = "postgres://backbone_app:one@db.example:5432/books?sslmode=require"
	for other, same := range map[string]bool{
		log: true,
		"host=db.example port=5432 dbname=books user=backbone_eraser": true,
		"postgres://backbone_app:one@db.example:5432/keys":            false,
		"postgres://backbone_app:one@keys.example:5432/books":         false,
		"postgres://backbone_app:one@db.example:6432/books":           false,
		"postgres://[": false,
	} {
		require.Equal(t, same, appender.SameDatabase(other, log), other)
	}
}
