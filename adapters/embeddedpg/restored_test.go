package embeddedpg_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
)

// restoredCopy puts the data directory of a stopped cluster into a new data folder.
func restoredCopy(t *testing.T, of string) (dir, data string) {
	t.Helper()
	dir = t.TempDir()
	data = filepath.Join(dir, "pg", "data")
	require.NoError(t, os.MkdirAll(filepath.Dir(data), 0o700))
	out, err := exec.Command("cp", "-r", filepath.Join(of, "pg", "data"), data).CombinedOutput()
	require.NoError(t, err, string(out))
	return dir, data
}

// TestStart_RestoredClusterObeysNothingItBrings starts a copy of a cluster that was told to run commands, load libraries,
// follow a primary and listen to the network, and whose superuser has another name.
func TestStart_RestoredClusterObeysNothingItBrings(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	original := copyOfCluster(t)
	cluster := start(t, embeddedpg.Config{DataDir: original})
	execute(t, cluster.SuperuserDSN("postgres"), "CREATE TABLE kept AS SELECT 'kept' AS value")
	execute(t, cluster.SuperuserDSN("postgres"), "SELECT pg_create_physical_replication_slot('standby')")
	execute(t, cluster.SuperuserDSN("postgres"), "CREATE ROLE other SUPERUSER LOGIN PASSWORD 'other'")
	ran := filepath.Join(t.TempDir(), "ran")
	execute(t, cluster.SuperuserDSN("postgres"), "CREATE FUNCTION run() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN COPY (SELECT 1) TO PROGRAM 'touch "+ran+"'; END $$")
	execute(t, cluster.SuperuserDSN("postgres"), "GRANT pg_execute_server_program TO other")
	execute(t, cluster.DSN("other", "other", "postgres"), "ALTER ROLE postgres RENAME TO acme")
	execute(t, cluster.DSN("other", "other", "postgres"), "ALTER DATABASE postgres SET session_preload_libraries = 'missing'")
	stop(t, cluster)

	dir, data := restoredCopy(t, original)
	require.NoError(t, os.WriteFile(filepath.Join(data, "postgresql.auto.conf"), []byte(fmt.Sprintf(
		"restore_command = 'touch %[1]s'\narchive_command = 'touch %[1]s'\narchive_cleanup_command = 'touch %[1]s'\narchive_mode = on\n"+
			"primary_conninfo = 'host=127.0.0.1 port=1'\nprimary_slot_name = 'standby'\nshared_preload_libraries = 'missing'\nlisten_addresses = '*'\n", ran)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte("host all all 0.0.0.0/0 trust\n"), 0o600))

	restored := start(t, embeddedpg.Config{DataDir: dir, Restored: true})
	dsn := restored.SuperuserDSN("postgres")
	require.Equal(t, "kept", query(t, dsn, "SELECT value FROM kept"))
	require.Equal(t, "false off 127.0.0.1 0 0", query(t, dsn, "SELECT concat_ws(' ', pg_is_in_recovery()::text, current_setting('archive_mode'), current_setting('listen_addresses'), current_setting('max_logical_replication_workers'), (SELECT count(*) FROM pg_replication_slots))"))
	require.Equal(t, "postgres", query(t, dsn, "SELECT string_agg(rolname, ' ') FROM pg_roles WHERE rolsuper OR pg_has_role(oid, 'pg_execute_server_program', 'USAGE') AND rolname <> 'pg_execute_server_program'"))
	connection, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	_, err = connection.Exec(t.Context(), "SELECT run()")
	require.ErrorContains(t, err, "superuser", "what the backup's superusers own runs without their rights")
	require.NoError(t, connection.Close(t.Context()))
	require.NoFileExists(t, ran)
	password := query(t, dsn, "SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'")
	require.Contains(t, password, "SCRAM-SHA-256")

	stop(t, restored)
	again := start(t, embeddedpg.Config{DataDir: dir, Restored: true}) // it is recovered once
	require.Equal(t, password, query(t, again.SuperuserDSN("postgres"), "SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'"))
}

func TestStart_RestoredClusterWithoutWAL(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir, data := restoredCopy(t, copyOfCluster(t))
	require.NoError(t, os.RemoveAll(filepath.Join(data, "pg_wal")))
	require.NoError(t, os.MkdirAll(filepath.Join(data, "pg_wal", "archive_status"), 0o700))
	_, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir, Restored: true, Settings: smallSettings()})
	f := requireFault(t, err, "drill.recovery_failed")
	require.Contains(t, f.Detail, "--restore-command")
}

// TestStart_RestoredClusterMakesNoTablespace replays WAL that makes a tablespace: it would lead to the folder of the original.
func TestStart_RestoredClusterMakesNoTablespace(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	original := copyOfCluster(t)
	cluster := start(t, embeddedpg.Config{DataDir: original})
	dsn := cluster.SuperuserDSN("postgres")
	folder := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(folder), 0o711)) // for the user of the server
	require.NoError(t, os.Chmod(folder, 0o777))
	place := filepath.Join(folder, "tablespace")
	execute(t, dsn, "COPY (SELECT 1) TO PROGRAM 'mkdir -m 700 "+place+"'")
	execute(t, dsn, "CHECKPOINT")
	execute(t, dsn, "CREATE TABLESPACE fast LOCATION '"+place+"'")
	execute(t, dsn, "CREATE TABLE t TABLESPACE fast AS SELECT 1")
	dir, data := restoredCopy(t, original) // of a running server: recovery begins at the checkpoint
	require.NoError(t, os.RemoveAll(filepath.Join(data, "pg_tblspc")))
	require.NoError(t, os.Mkdir(filepath.Join(data, "pg_tblspc"), 0o700))
	_, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir, Restored: true, Settings: smallSettings()})
	requireFault(t, err, "drill.recovery_failed")
	require.Equal(t, "1", query(t, dsn, "SELECT count(*)::text FROM t"))
}

// TestDiscard removes the folder of a killed process with the PostgreSQL that runs on it, and not that of a running one.
func TestDiscard(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := copyOfCluster(t)
	cluster := start(t, embeddedpg.Config{DataDir: dir})
	requireFault(t, embeddedpg.Discard(t.Context(), embeddedpg.Config{DataDir: dir}), "dev.data_directory_in_use")
	stop(t, cluster)
	require.NoError(t, embeddedpg.Discard(t.Context(), embeddedpg.Config{DataDir: dir}))
	require.NoDirExists(t, dir)
}
