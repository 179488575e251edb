package embeddedpg_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

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
	execute(t, cluster.DSN("other", "other", "postgres"), "ALTER ROLE postgres RENAME TO acme")
	execute(t, cluster.DSN("other", "other", "postgres"), "ALTER DATABASE postgres SET session_preload_libraries = 'missing'")
	stop(t, cluster)

	dir, data := restoredCopy(t, original)
	ran := filepath.Join(t.TempDir(), "ran")
	require.NoError(t, os.WriteFile(filepath.Join(data, "postgresql.auto.conf"), []byte(fmt.Sprintf(
		"restore_command = 'touch %[1]s'\narchive_command = 'touch %[1]s'\narchive_cleanup_command = 'touch %[1]s'\narchive_mode = on\n"+
			"primary_conninfo = 'host=127.0.0.1 port=1'\nprimary_slot_name = 'standby'\nshared_preload_libraries = 'missing'\nlisten_addresses = '*'\n", ran)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte("host all all 0.0.0.0/0 trust\n"), 0o600))

	restored := start(t, embeddedpg.Config{DataDir: dir, Restored: true})
	dsn := restored.SuperuserDSN("postgres")
	require.Equal(t, "kept", query(t, dsn, "SELECT value FROM kept"))
	require.Equal(t, "false off 127.0.0.1 0 0", query(t, dsn, "SELECT concat_ws(' ', pg_is_in_recovery()::text, current_setting('archive_mode'), current_setting('listen_addresses'), current_setting('max_logical_replication_workers'), (SELECT count(*) FROM pg_replication_slots))"))
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
