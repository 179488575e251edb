package migrate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/fault"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestKeyStoreGrants lists every privilege of the key store: functions and nothing
// else, and none for both the server and the eraser.
func TestKeyStoreGrants(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.Database(t))
	require.ElementsMatch(t, strings.Fields(`
		backbone_app:schema:U backbone_eraser:schema:U backbone_owner:schema:U backbone_owner:schema_version():E
		backbone_app:lease():E backbone_app:key_states():E backbone_app:read():E backbone_app:mint():E backbone_app:active_kek():E
		backbone_app:secret():E backbone_app:save_secret():E backbone_app:report_node():E
		backbone_eraser:request_erasure():E backbone_eraser:erasure():E backbone_eraser:erasures():E backbone_eraser:erasure_steps():E backbone_eraser:move_erasure():E
		backbone_eraser:note_erasure_failure():E backbone_eraser:approve_erasure():E backbone_eraser:fence_erasure():E
		backbone_eraser:refuse_erasure():E backbone_eraser:destroy_erasure():E backbone_eraser:save_receipt():E backbone_eraser:receipts():E
		backbone_eraser:replay_erasure():E backbone_eraser:erasures_to_follow():E backbone_eraser:destroyed_fingerprints():E backbone_eraser:nodes_behind():E backbone_eraser:place_hold():E backbone_eraser:release_hold():E
		backbone_eraser:holds():E backbone_eraser:keks():E backbone_eraser:add_kek():E backbone_eraser:activate_kek():E
		backbone_eraser:wrapped_with():E backbone_eraser:sample_wrapped_with():E backbone_eraser:count_wrapped_with():E backbone_eraser:save_rewrapped():E backbone_eraser:close_kek():E
		backbone_eraser:export_lines():E backbone_eraser:open_scratch():E backbone_eraser:load_scratch():E backbone_eraser:scratch_keks_list():E
		backbone_eraser:sample_scratch():E backbone_eraser:restore_scratch():E
		backbone_eraser:all_holds():E backbone_eraser:erasure_journal():E backbone_eraser:contradictions():E
	`), pgtest.Joined(pgtest.Grants(t, conn, "keystore", "backbone_ks_owner")))
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'keystore'::regnamespace
		  AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)`), "functions without a fixed search_path")
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'keystore'::regnamespace AND pg_get_userbyid(c.relowner) <> 'backbone_ks_owner'
		UNION ALL SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'keystore'::regnamespace AND pg_get_userbyid(p.proowner) <> 'backbone_ks_owner'`),
		"things of another owner")
	require.Empty(t, pgtest.Column(t, conn, `SELECT rolname FROM pg_roles WHERE rolname = 'backbone_ks_owner' AND rolcanlogin`))
}

// TestRestoreKeys_RefusesForgedScratchTables replaces the scratch tables of the store's
// functions by relations of the eraser, whose code would run as the owner.
func TestRestoreKeys_RefusesForgedScratchTables(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	superuser, eraser := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_eraser", dsn))
	_, err := superuser.Exec(t.Context(), `INSERT INTO keystore.subject_fences (fenced_at, request_id, partition_id, class, subject_id) VALUES (now(), gen_random_uuid(), 1, 0, 'employee:E-1')`)
	require.NoError(t, err)
	_, err = eraser.Exec(t.Context(), `
		CREATE FUNCTION pg_temp.lift() RETURNS text LANGUAGE plpgsql AS $$ BEGIN UPDATE keystore.subject_fences SET lifted_at = now(); RETURN 'acme'; END $$;
		CREATE FUNCTION pg_temp.lift_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_temp.lift(); RETURN NEW; END $$;
		CREATE TEMPORARY VIEW scratch_keks AS SELECT pg_temp.lift() AS tenant_id, 1 AS epoch, 'k'::text AS kms_key_id, 'active'::text AS state,
			now() AS created_at, now() AS activated_at, now() AS drained_at, now() AS deleting_at, now() AS deleted_at;
		CREATE TEMPORARY TABLE scratch_subjects (created_at timestamptz, destroyed_at timestamptz, key_ref uuid, partition_id int, active_version int, class smallint, tenant_id text, subject_id text, state text);
		CREATE TEMPORARY TABLE scratch_keys (created_at timestamptz, partition_id int, version int, kek_epoch int, class smallint, tenant_id text, subject_id text, wrapped bytea, fingerprint bytea);
		CREATE TEMPORARY TABLE scratch_secrets (created_at timestamptz, secret_ref uuid, version int, kek_epoch int, tenant_id text, purpose text, wrapped bytea, fingerprint bytea);
		CREATE TRIGGER lift BEFORE INSERT ON scratch_subjects FOR EACH ROW EXECUTE FUNCTION pg_temp.lift_row();
		GRANT ALL ON scratch_keks, scratch_subjects, scratch_keys, scratch_secrets TO PUBLIC`)
	require.NoError(t, err)
	for _, call := range []string{
		`SELECT keystore.scratch_keks_list()`, `SELECT keystore.sample_scratch('acme', 1, 10)`, `SELECT keystore.restore_scratch('{}', '{}')`,
		`SELECT keystore.load_scratch(ARRAY['{"table":"data_subjects","row":{"partition_id":1}}'])`,
	} {
		_, err := eraser.Exec(t.Context(), call)
		require.Equal(t, "BK001", pgtest.SQLState(err), call)
	}
	require.Empty(t, pgtest.Column(t, superuser, `SELECT subject_id FROM keystore.subject_fences WHERE lifted_at IS NOT NULL`))
}

// TestMigrateKeyStore_AsOwnerOnly migrates as users with fewer and fewer rights.
func TestMigrateKeyStore_AsOwnerOnly(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t, nil, "empty")
	superuser := pgtest.Connect(t, dsn)
	// Where the cluster has the roles, this user gets as far as the key store.
	_, err := superuser.Exec(t.Context(), backbonesql.Roles)
	require.NoError(t, err)
	_, err = superuser.Exec(t.Context(), `DO $$ BEGIN CREATE ROLE test_migrator LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	require.NoError(t, err)
	migrator := signIn(t, dsn, "test_migrator")
	require.Equal(t, "store.key_store_owner", fault.CodeOf(migrate.KeyStore(t.Context(), migrator, nil)))
	require.NoError(t, migrate.KeyStore(t.Context(), dsn, nil))
	require.NoError(t, migrate.KeyStore(t.Context(), pgtest.As("backbone_owner", dsn), nil))

	// Without a pending migration a user needs only the right to read the version.
	_, err = superuser.Exec(t.Context(), `GRANT USAGE ON SCHEMA keystore TO test_migrator; GRANT EXECUTE ON FUNCTION keystore.schema_version() TO test_migrator`)
	require.NoError(t, err)
	require.NoError(t, migrate.KeyStore(t.Context(), migrator, nil))
	_, err = superuser.Exec(t.Context(), `DELETE FROM keystore.migrations WHERE version_id > 1`)
	require.NoError(t, err)
	err = migrate.KeyStore(t.Context(), migrator, nil)
	require.Equal(t, "store.key_store_owner", fault.CodeOf(err))
	require.Equal(t, fault.FailedPrecondition, fault.KindOf(err))
}

// signIn is the same database with another session user.
func signIn(t *testing.T, dsn, user string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	password := "test"
	_, err = pgtest.Connect(t, dsn).Exec(context.WithoutCancel(t.Context()), `ALTER ROLE `+pgx.Identifier{user}.Sanitize()+` PASSWORD '`+password+`'`)
	require.NoError(t, err)
	out := "host=" + config.Host + " user=" + user + " password=" + password + " dbname=" + config.Database
	return out + fmt.Sprintf(" port=%d sslmode=disable", config.Port)
}
