package keystore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/postgres/keystore"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

func TestKeyStoreConformance(t *testing.T) {
	t.Parallel()
	conformance.RunKeyStore(t, conformance.KeyStoreHarness{
		New: func(t *testing.T) (conformance.NodeKeyStore, conformance.EraserKeyStore) {
			k := pgtest.OpenKeys(t, pgtest.KeyStoreDatabase(t))
			return k, conformance.EraserKeyStore{ErasureRegister: k.Erasures(), KeyRotation: k.Rotation(), KeyRecovery: k.Rotation()}
		},
	})
}

const keyTenant = "acme"

// activeKEK makes the next KEK of the tenant.
func activeKEK(t testing.TB, k *keystore.Store, epoch uint32) {
	t.Helper()
	require.NoError(t, k.Rotation().AddKEK(t.Context(), ports.KEK{TenantID: keyTenant, Epoch: epoch, KeyID: fmt.Sprint("kek-", epoch)}))
	require.NoError(t, k.Rotation().ActivateKEK(t.Context(), keyTenant, epoch))
}

func mintStandard(t testing.TB, k *keystore.Store, subject string) ports.SubjectKey {
	t.Helper()
	key, err := k.MintSubjectKey(t.Context(), keyTenant, ports.MintedKey{
		SubjectKeyID: ports.SubjectKeyID{Partition: 1, Subject: shredding.Subject(subject)}, Reference: uuid.NewString(),
		WrappedKey: ports.WrappedKey{Version: 1, Epoch: 1, Wrapped: []byte("wrapped")},
	})
	require.NoError(t, err)
	return key
}

// leaseKeys leases keys of partition 1 in version 1 and gives the ordinals it got.
func leaseKeys(t testing.TB, db interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, subjects ...string,
) []int32 {
	t.Helper()
	n := make([]int32, len(subjects))
	ones, classes := make([]int32, len(subjects)), make([]int16, len(subjects))
	for i := range subjects {
		n[i], ones[i] = int32(i), 1
	}
	rows, err := db.Query(t.Context(), `SELECT ordinal FROM keystore.lease($1, $2, $3, $4, $5)`, n, ones, subjects, classes, ones)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	require.NoError(t, err)
	return got
}

func fenceRow(t testing.TB, superuser *pgx.Conn, subject string) uuid.UUID {
	t.Helper()
	id := uuid.New()
	_, err := superuser.Exec(t.Context(), pgtest.FencedRequest, id, subject)
	require.NoError(t, err)
	_, err = superuser.Exec(t.Context(), `INSERT INTO keystore.subject_fences (fenced_at, request_id, partition_id, class, subject_id) VALUES (now(), $1, 1, 0, $2)`, id, subject)
	require.NoError(t, err)
	return id
}

// waitsForLock waits until a session of the name waits for a lock.
func waitsForLock(t *testing.T, superuser *pgx.Conn, name string) {
	t.Helper()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		var waits bool
		require.NoError(t, superuser.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock')`, name).Scan(&waits))
		return waits
	}, name, "waits for a lock")
}

func TestDestroyErasure_WaitsForLeases(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	k := pgtest.OpenKeys(t, dsn)
	activeKEK(t, k, 1)
	for _, s := range []string{"employee:E-1", "employee:E-2"} {
		mintStandard(t, k, s)
	}
	superuser, app := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	other := pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	lease, err := app.Begin(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1}, leaseKeys(t, lease, "employee:E-1", "employee:E-2", "employee:E-3"), "what was never minted is not leased")

	// The fence does not wait for the lease; later leases do not get the key.
	id := fenceRow(t, superuser, "employee:E-1")
	require.Equal(t, []int32{1}, leaseKeys(t, other, "employee:E-1", "employee:E-2"))
	destroyed := make(chan error, 1)
	go func() {
		_, _, err := k.Erasures().DestroyErasure(context.WithoutCancel(t.Context()), [16]byte(id), nil)
		destroyed <- err
	}()
	waitsForLock(t, superuser, "backbone eraser")
	// A lease never waits, not even for the key that the destruction holds or wants.
	require.Equal(t, []int32{1}, leaseKeys(t, other, "employee:E-1", "employee:E-2"))
	select {
	case err := <-destroyed:
		t.Fatal("destroyed under a lease", err)
	default:
	}
	require.NoError(t, lease.Commit(t.Context()))
	require.NoError(t, <-destroyed)
	require.Equal(t, []int32{1}, leaseKeys(t, other, "employee:E-1", "employee:E-2"))
}

func TestDestroyErasure_WaitsForMint(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	k := pgtest.OpenKeys(t, dsn)
	activeKEK(t, k, 1)
	key := mintStandard(t, k, "employee:E-1")
	superuser, app := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	mint, err := app.Begin(t.Context())
	require.NoError(t, err)
	_, err = mint.Exec(t.Context(), `SELECT * FROM keystore.mint('acme', 1, 'employee:E-1', 0::smallint, $1, 2, 1, 'w', decode(repeat('02', 16), 'hex'))`, key.Reference)
	require.NoError(t, err)
	id := fenceRow(t, superuser, "employee:E-1")
	type outcome struct {
		keys []ports.DestroyedKey
		err  error
	}
	destroyed := make(chan outcome, 1)
	go func() {
		d, _, err := k.Erasures().DestroyErasure(context.WithoutCancel(t.Context()), [16]byte(id), nil)
		destroyed <- outcome{d.Keys, err}
	}()
	waitsForLock(t, superuser, "backbone eraser")
	require.NoError(t, mint.Commit(t.Context()))
	got := <-destroyed
	require.NoError(t, got.err)
	require.Len(t, got.keys, 1)
	require.Len(t, got.keys[0].Fingerprints, 2)
	require.Equal(t, []string{"0"}, pgtest.Column(t, superuser, `SELECT count(*)::text FROM keystore.data_subject_keys`))
}

func TestKeyLease_SkipsLockedKey(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	k := pgtest.OpenKeys(t, dsn)
	activeKEK(t, k, 1)
	mintStandard(t, k, "employee:E-1")
	superuser, app := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	tx, err := superuser.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE keystore.data_subjects SET state = 'destroyed', active_version = 0, destroyed_at = now()`)
	require.NoError(t, err)
	require.Empty(t, leaseKeys(t, app, "employee:E-1"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []int32{0}, leaseKeys(t, app, "employee:E-1"))
	_, err = superuser.Exec(t.Context(), `UPDATE keystore.data_subjects SET active_version = 2`)
	require.NoError(t, err)
	require.Empty(t, leaseKeys(t, app, "employee:E-1"), "another version")
}

func TestActivateKEK_WaitsForMints(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	k := pgtest.OpenKeys(t, dsn)
	activeKEK(t, k, 1)
	require.NoError(t, k.Rotation().AddKEK(t.Context(), ports.KEK{TenantID: keyTenant, Epoch: 2, KeyID: "kek-2"}))
	superuser, app := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	mint, err := app.Begin(t.Context())
	require.NoError(t, err)
	_, err = mint.Exec(t.Context(), `SELECT * FROM keystore.mint('acme', 1, 'employee:E-1', 0::smallint, gen_random_uuid(), 1, 1, 'w', decode(repeat('00', 16), 'hex'))`)
	require.NoError(t, err)
	activated := make(chan error, 1)
	go func() { activated <- k.Rotation().ActivateKEK(context.WithoutCancel(t.Context()), keyTenant, 2) }()
	waitsForLock(t, superuser, "backbone eraser")
	// A mint that comes later does not slip in under the old epoch.
	late := make(chan error, 1)
	go func() {
		_, err := k.MintSubjectKey(context.WithoutCancel(t.Context()), keyTenant, ports.MintedKey{
			SubjectKeyID: ports.SubjectKeyID{Partition: 1, Subject: "employee:E-2"}, Reference: uuid.NewString(),
			WrappedKey: ports.WrappedKey{Version: 1, Epoch: 2, Wrapped: []byte("w")},
		})
		late <- err
	}()
	require.Equal(t, "keys.epoch_closed", fault.CodeOf(<-late), "not active yet")
	require.NoError(t, mint.Commit(t.Context()))
	require.NoError(t, <-activated)
	n, err := k.Rotation().CountWrappedWith(t.Context(), keyTenant, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "the mint in flight is counted")
}

// TestErasure_SecondPersonIsRequiredInSQL tries to erase with one person, or with the
// server's role, by SQL statements.
func TestErasure_SecondPersonIsRequiredInSQL(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	k := pgtest.OpenKeys(t, dsn)
	activeKEK(t, k, 1)
	key := mintStandard(t, k, "employee:E-1")
	superuser, app, eraser := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_app", dsn)), pgtest.Connect(t, pgtest.As("backbone_eraser", dsn))

	functions := pgtest.Column(t, superuser, `
		SELECT format('keystore.%I(%s)', p.proname, (SELECT string_agg('NULL::' || format_type(a.type, NULL), ', ' ORDER BY a.n)
			FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, n)))
		FROM pg_proc p WHERE p.pronamespace = 'keystore'::regnamespace AND NOT has_function_privilege('backbone_app', p.oid, 'EXECUTE')`)
	require.Greater(t, len(functions), 25)
	for _, f := range functions {
		_, err := app.Exec(t.Context(), "SELECT "+f)
		require.Equal(t, "42501", pgtest.SQLState(err), "app: %s", f)
	}
	tables := pgtest.Column(t, superuser, `SELECT format('keystore.%I', relname) FROM pg_class WHERE relnamespace = 'keystore'::regnamespace AND relkind = 'r'`)
	require.Greater(t, len(tables), 11)
	for _, role := range []*pgx.Conn{app, eraser} {
		for _, table := range tables {
			for _, attack := range []string{"SELECT FROM " + table, "DELETE FROM " + table, "INSERT INTO " + table + " DEFAULT VALUES", "TRUNCATE " + table, "ALTER TABLE " + table + " ADD x int"} {
				_, err := role.Exec(t.Context(), attack)
				require.Equal(t, "42501", pgtest.SQLState(err), attack)
			}
		}
		_, err := role.Exec(t.Context(), "CREATE FUNCTION keystore.x() RETURNS int LANGUAGE sql AS 'SELECT 1'")
		require.Equal(t, "42501", pgtest.SQLState(err))
	}

	id := uuid.New()
	step := func(statement string, args ...any) error {
		_, err := eraser.Exec(t.Context(), statement, args...)
		return err
	}
	const refused = "BK001"
	scope := make([]byte, 32)
	require.NoError(t, step(`SELECT keystore.request_erasure($1, 'acme', 'employee:E-1', '{1}', false, 'gdpr_art_17', '', 'p-officer', now(), now()::date)`, id))
	fenceIt := `SELECT keystore.fence_erasure($1, $2, '{0}', NULL)`
	require.Equal(t, refused, pgtest.SQLState(step(fenceIt, id, 1)))
	require.Equal(t, refused, pgtest.SQLState(step(`SELECT keystore.destroy_erasure($1)`, id)))
	require.NoError(t, step(`SELECT keystore.move_erasure($1, 1, 'previewed', '{1}', $2, '{}', NULL, NULL, NULL, NULL, NULL, NULL)`, id, scope))
	for _, to := range []string{"approved", "fenced", "destroyed"} {
		require.Equal(t, refused, pgtest.SQLState(step(`SELECT keystore.move_erasure($1, 2, $3, '{1}', $2, '{}', NULL, NULL, NULL, NULL, NULL, NULL)`, id, scope, to)))
	}
	approve := `SELECT keystore.approve_erasure($1, $2, $3, now())`
	for _, person := range []any{"p-officer", "", nil} {
		require.Equal(t, refused, pgtest.SQLState(step(approve, id, person, scope)))
	}
	require.Equal(t, refused, pgtest.SQLState(step(approve, id, "p-controller", []byte(strings.Repeat("x", 32)))))
	// Even a writer of the tables is held by the constraints.
	for requester, want := range map[string]string{"p-officer": "pii_deletion_approvals_two_persons", "p-other": "pii_deletion_approvals_request"} {
		_, err := superuser.Exec(t.Context(), `INSERT INTO keystore.pii_deletion_approvals VALUES ($1, 3, now(), now(), $2, 'p-officer', $3)`, id, requester, scope)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, step(approve, id, "p-controller", scope))
	_, err := superuser.Exec(t.Context(), `UPDATE keystore.pii_deletion_log SET requester_person = 'p-controller' WHERE request_id = $1`, id)
	require.Error(t, err, "the requester is bound")
	// An approval of three days ago is none.
	_, err = superuser.Exec(t.Context(), `UPDATE keystore.pii_deletion_approvals SET stored_at = stored_at - interval '72 hours'`)
	require.NoError(t, err)
	require.ErrorContains(t, step(fenceIt, id, 3), "approval_expired")
	_, err = superuser.Exec(t.Context(), `UPDATE keystore.pii_deletion_approvals SET stored_at = stored_at + interval '71 hours'`)
	require.NoError(t, err)
	require.NoError(t, step(fenceIt, id, 3))
	require.Equal(t, []string{"requested", "previewed", "approved", "fenced"}, pgtest.Column(t, superuser, `SELECT state FROM keystore.pii_deletion_steps ORDER BY revision`))
	keys, err := k.SubjectKeys(t.Context(), []ports.SubjectKeyID{key.SubjectKeyID})
	require.NoError(t, err)
	require.Equal(t, shredding.KeyFenced, keys[0].State)
}

func TestErasureTransitions_MatchDomain(t *testing.T) {
	t.Parallel()
	superuser := pgtest.Connect(t, pgtest.KeyStoreDatabase(t))
	for _, from := range shredding.ErasureStates() {
		for _, to := range shredding.ErasureStates() {
			var may bool
			require.NoError(t, superuser.QueryRow(t.Context(), `SELECT keystore.erasure_can_become($1, $2)`, string(from), string(to)).Scan(&may))
			require.Equal(t, from.CanBecome(to), may, "%s to %s", from, to)
		}
	}
}

// TestKeyStorePlans looks at what a lease and a read touch, on tables that have no
// statistics and on large ones.
func TestKeyStorePlans(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	k := pgtest.OpenKeys(t, dsn)
	activeKEK(t, k, 1)
	mintStandard(t, k, "employee:E-1")
	superuser, app, eraser := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_app", dsn)), pgtest.Connect(t, pgtest.As("backbone_eraser", dsn))
	scans := func() string {
		_, err := superuser.Exec(t.Context(), `SELECT pg_stat_clear_snapshot()`)
		require.NoError(t, err)
		return strings.Join(pgtest.Column(t, superuser, `SELECT relname || ' ' || seq_scan || ' ' || coalesce(seq_tup_read, 0) FROM pg_stat_user_tables
			WHERE schemaname = 'keystore' AND relname IN ('data_subjects', 'data_subject_keys', 'subject_fences') ORDER BY 1`), ", ")
	}
	use := func() {
		for range 7 { // plans are kept from the sixth call on
			require.Equal(t, []int32{0}, leaseKeys(t, app, "employee:E-1", "employee:E-none"))
			_, err := app.Exec(t.Context(), `SELECT * FROM keystore.read('{0,1}', '{1,1}', '{employee:E-1,employee:E-none}', '{0,0}')`)
			require.NoError(t, err)
			_, err = app.Exec(t.Context(), `SELECT * FROM keystore.key_states('{0,1}', '{1,1}', '{employee:E-1,employee:E-none}', '{0,0}')`)
			require.NoError(t, err)
		}
		_, err := app.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, err)
		_, err = app.Exec(t.Context(), `SELECT 1`)
		require.NoError(t, err)
	}
	epochRows := func() (n int64) {
		require.NoError(t, superuser.QueryRow(t.Context(), `SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'data_subject_keys_epoch'`).Scan(&n))
		return n
	}
	before := scans()
	use()
	require.Equal(t, before, scans(), "fresh tables are not scanned")
	_, err := superuser.Exec(t.Context(), `
		INSERT INTO keystore.data_subjects (created_at, key_ref, partition_id, active_version, class, tenant_id, subject_id, state)
			SELECT now(), gen_random_uuid(), 1, 1, 0, 'acme', 'customer:C-' || n, 'active' FROM generate_series(1, 10000) n;
		INSERT INTO keystore.data_subject_keys (created_at, partition_id, version, kek_epoch, class, tenant_id, subject_id, wrapped, fingerprint)
			SELECT now(), 1, 1, 1, 0, 'acme', 'customer:C-' || n, 'w', decode(repeat('00', 16), 'hex') FROM generate_series(1, 10000) n;
		INSERT INTO keystore.subject_fences (fenced_at, request_id, partition_id, class, subject_id)
			SELECT now(), gen_random_uuid(), 1, 0, 'customer:C-' || n FROM generate_series(1, 10000) n`)
	require.NoError(t, err)
	for _, statistics := range []string{"SELECT 1", "ANALYZE keystore.data_subjects; ANALYZE keystore.data_subject_keys; ANALYZE keystore.subject_fences"} {
		_, err = superuser.Exec(t.Context(), statistics)
		require.NoError(t, err)
		_, err = superuser.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, err)
		before = scans()
		use()
		require.Equal(t, before, scans(), "large tables are not scanned")
		read := epochRows()
		for range 7 {
			_, err = eraser.Exec(t.Context(), `SELECT * FROM keystore.wrapped_with('acme', 1, 10)`)
			require.NoError(t, err)
		}
		_, err = eraser.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, err)
		_, err = eraser.Exec(t.Context(), `SELECT 1`)
		require.NoError(t, err)
		require.InDelta(t, 70, epochRows()-read, 10, "a page of a rotation is not the whole epoch")
	}
}

// TestErasurePlans looks at what the polls and lists of erasures touch when many have
// ended, on sessions that are older than the rows.
func TestErasurePlans(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	superuser, eraser := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_eraser", dsn))
	use := func() {
		for range 7 { // plans are kept from the sixth call on
			for _, call := range []string{
				`SELECT count(*) FROM keystore.erasures('', '{previewed}', 1000)`,
				`SELECT count(*) FROM keystore.erasures('', '{requested,approved,fenced,destroyed,receipted,announced,evicted,rebuilt,verified}', 1000)`,
				`SELECT count(*) FROM keystore.erasures('acme', '{}', 10)`,
				`SELECT count(*) FROM keystore.erasures('', '{completed}', 10)`,
				`SELECT count(*) FROM keystore.erasure_steps('acme', '00000000-0000-0000-0000-000000000001')`,
				`SELECT count(*) FROM keystore.receipts(900, 10)`,
				`SELECT count(*) FROM keystore.holds('acme', 'customer:C-1', now()::date)`,
			} {
				_, err := eraser.Exec(t.Context(), call)
				require.NoError(t, err)
			}
		}
		_, err := eraser.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, err)
		_, err = eraser.Exec(t.Context(), `SELECT 1`)
		require.NoError(t, err)
	}
	touched := func() (rows int64) {
		_, err := superuser.Exec(t.Context(), `SELECT pg_stat_clear_snapshot()`)
		require.NoError(t, err)
		require.NoError(t, superuser.QueryRow(t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
			WHERE schemaname = 'keystore' AND relname IN ('pii_deletion_log', 'pii_deletion_steps', 'erasure_receipts', 'legal_holds')`).Scan(&rows))
		return rows
	}
	use()
	_, err := superuser.Exec(t.Context(), `
		INSERT INTO keystore.pii_deletion_log (request_id, requested_at, updated_at, due_on, revision, all_entities, tenant_id, subject_id, basis, reason, requester_person, state, partitions)
			SELECT gen_random_uuid(), now() - n * interval '1 minute', now(), now(), 11, false, 'acme', 'customer:C-' || n, 'gdpr_art_17', '', 'p-officer', 'completed', '{1}' FROM generate_series(1, 5000) n;
		INSERT INTO keystore.pii_deletion_steps (request_id, revision, done_at, attempts, state) SELECT request_id, 11, now(), 0, 'completed' FROM keystore.pii_deletion_log;
		INSERT INTO keystore.erasure_receipts (number, destroyed_at, generation, request_id, tenant_id, keys)
			SELECT row_number() OVER (), now(), 1, request_id, 'acme', '[]' FROM keystore.pii_deletion_log;
		INSERT INTO keystore.legal_holds (hold_id, placed_at, partition_id, tenant_id, subject_id, reason, placed_by)
			SELECT gen_random_uuid(), now(), 0, 'acme', subject_id, 'x', 'p-officer' FROM keystore.pii_deletion_log`)
	require.NoError(t, err)
	for _, statistics := range []string{"SELECT 1", "ANALYZE keystore.pii_deletion_log, keystore.pii_deletion_steps, keystore.erasure_receipts, keystore.legal_holds"} {
		_, err = superuser.Exec(t.Context(), statistics)
		require.NoError(t, err)
		_, err = superuser.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, err)
		before := touched()
		use()
		require.Less(t, touched()-before, int64(7*100), "what has ended is not read")
	}
}

func TestListenEvictions_Reconnects(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	k := pgtest.OpenKeys(t, dsn)
	superuser := pgtest.Connect(t, dsn)
	ctx, cancel := context.WithCancel(t.Context())
	lost, received, ended := make(chan struct{}, 10), make(chan string, 10), make(chan error, 1)
	go func() {
		ended <- k.ListenEvictions(ctx, func(ref string) { received <- ref }, func() { lost <- struct{}{} })
	}()
	pgtest.Receive(t, lost, "it listens")
	_, err := superuser.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'backbone evictions'`)
	require.NoError(t, err)
	pgtest.Receive(t, lost, "it noticed")
	pgtest.Receive(t, lost, "it listens again")
	_, err = superuser.Exec(t.Context(), `SELECT pg_notify('keystore_evict', 'reference')`)
	require.NoError(t, err)
	require.Equal(t, "reference", pgtest.Receive(t, received, "the reference"))
	cancel()
	require.ErrorIs(t, pgtest.Receive(t, ended, "the end"), context.Canceled)
}

func TestKeyStoreFaults(t *testing.T) {
	t.Parallel()
	dsn := pgtest.KeyStoreDatabase(t)
	limits := keystore.Limits{PoolSize: 1, LockTimeout: time.Second}
	_, err := keystore.Open(t.Context(), keystore.Config{DSN: dsn, Limits: keystore.Limits{PoolSize: 1}})
	require.ErrorContains(t, err, "LockTimeout")
	_, err = keystore.Open(t.Context(), keystore.Config{DSN: "postgres://user:s3cret@host:port/x", Limits: limits})
	require.Equal(t, "store.dsn_invalid", fault.CodeOf(err))
	require.NotContains(t, fmt.Sprint(err, pgtest.Unwrapped(err)), "s3cret")
	_, err = keystore.Open(t.Context(), keystore.Config{DSN: "postgres://user@127.0.0.1:1/x", Limits: limits})
	require.Equal(t, "keys.unavailable", fault.CodeOf(err))
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	k := pgtest.OpenKeys(t, dsn)
	_, err = k.SubjectKeys(t.Context(), []ports.SubjectKeyID{{Partition: 1, Subject: "employee:E-1"}})
	require.NoError(t, err)
	pgtest.Execute(t, dsn, `DO $$ BEGIN EXECUTE 'ALTER SCHEMA keystore RENAME TO elsewhere'; END $$`)
	_, err = k.SubjectKeys(t.Context(), []ports.SubjectKeyID{{Partition: 1, Subject: "employee:E-1"}})
	require.Equal(t, "store.not_migrated", fault.CodeOf(err))
}
