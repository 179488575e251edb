package embeddedpg_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if made != "" {
		_ = os.RemoveAll(made)
	}
	os.Exit(code)
}

// made is a folder with a cluster that has stopped, which initdb makes once for the tests that are
// not about a first start.
var (
	made     string
	makeOnce sync.Once
)

// copyOfCluster gives the test a copy of that folder.
func copyOfCluster(t *testing.T) string {
	t.Helper()
	makeOnce.Do(func() {
		var err error
		made, err = os.MkdirTemp("", "embeddedpg-")
		require.NoError(t, err)
		cluster, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: made, Settings: smallSettings()})
		require.NoError(t, err)
		stop(t, cluster)
		// Each copy finds a port of its own.
		state := filepath.Join(made, "postgres.json")
		text, err := os.ReadFile(state)
		require.NoError(t, err)
		without := strings.Replace(string(text), fmt.Sprint(cluster.Port()), "0", 1)
		require.NotEqual(t, string(text), without)
		require.NoError(t, os.WriteFile(state, []byte(without), 0o600))
	})
	dir := t.TempDir()
	out, err := exec.Command("cp", "-a", made+"/.", dir).CombinedOutput() // with owners
	require.NoError(t, err, string(out))
	return dir
}

// smallSettings saves memory in clusters of tests without changing their durability.
func smallSettings() map[string]string {
	return map[string]string{"shared_buffers": "16MB", "max_connections": "20"}
}

func requirePostgres(t *testing.T) {
	t.Helper()
	if _, _, err := embeddedpg.FindBinaries(""); err != nil {
		if os.Getenv("BACKBONE_REQUIRE_POSTGRES") != "" {
			t.Fatal(err)
		}
		t.Skipf("no PostgreSQL server is installed: %v", err)
	}
}

func start(t *testing.T, config embeddedpg.Config) *embeddedpg.Cluster {
	t.Helper()
	if config.Settings == nil {
		config.Settings = smallSettings()
	}
	cluster, err := embeddedpg.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { stop(t, cluster) })
	return cluster
}

func stop(t *testing.T, cluster *embeddedpg.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, cluster.Stop(ctx))
}

func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close(context.Background())) }()
	var value string
	require.NoError(t, connection.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close(context.Background())) }()
	_, err = connection.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func requireFault(t *testing.T, err error, code string) fault.Error {
	t.Helper()
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Detail)
	require.Equal(t, fault.FailedPrecondition, f.Kind)
	return *f
}

func postmasterPID(t *testing.T, dataDir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dataDir, "pg", "data", "postmaster.pid"))
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	require.NoError(t, err)
	return pid
}

func processGone(pid int) func() bool {
	return func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || len(text) == 0
	}
}

func TestCluster_KeepsDataBetweenStarts(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a folder with spaces, 'quotes' and ü")
	first := start(t, embeddedpg.Config{DataDir: dir})
	execute(t, first.SuperuserDSN("postgres"), "CREATE TABLE kept AS SELECT 'still here' AS value")
	port := first.Port()
	stop(t, first)
	require.NoFileExists(t, filepath.Join(dir, "pg", "data", "postmaster.pid"), "a clean stop removes the server's lock file")

	second := start(t, embeddedpg.Config{DataDir: dir})
	for try := 0; second.Port() != port && try < 3; try++ { // another program took it
		port = second.Port()
		stop(t, second)
		second = start(t, embeddedpg.Config{DataDir: dir})
	}
	require.Equal(t, port, second.Port(), "a free port is kept")
	require.Equal(t, "still here", query(t, second.SuperuserDSN("postgres"), "SELECT value FROM kept"))
}

func TestCluster_IsPrivateAndDurable(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := t.TempDir()
	cluster := start(t, embeddedpg.Config{DataDir: dir})
	dsn := cluster.SuperuserDSN("postgres")
	for name, want := range map[string]string{
		"server_encoding": "UTF8", "lc_collate": "C", "listen_addresses": "127.0.0.1", "password_encryption": "scram-sha-256",
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "data_checksums": "on",
		"log_error_verbosity": "terse", "log_min_error_statement": "panic", "log_statement": "none",
		"log_parameter_max_length": "0", "log_parameter_max_length_on_error": "0", "TimeZone": "UTC",
		"shared_buffers": "16MB",
	} {
		require.Equal(t, want, query(t, dsn, "SHOW "+name), name)
	}

	_, err := pgx.Connect(t.Context(), cluster.DSN("postgres", "wrong", "postgres"))
	require.ErrorContains(t, err, "28P01", "a wrong password is refused")
	_, err = pgx.Connect(t.Context(), fmt.Sprintf("host='%s' port=%d user=postgres dbname=postgres password=wrong", filepath.Join(dir, "pg", "data"), cluster.Port()))
	require.ErrorContains(t, err, "28P01", "also on the unix socket")

	info, err := os.Stat(filepath.Join(dir, "postgres.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", postmasterPID(t, dir)))
	require.NoError(t, err)
	require.NotContains(t, string(status), "\nUid:\t0", "the server does not run as root")
	parsed, err := url.Parse(cluster.DSN("a user", "p/w@:", "db"))
	require.NoError(t, err)
	password, _ := parsed.User.Password()
	require.Equal(t, "p/w@:", password)
}

func TestDrillOrphanedBackends(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := t.TempDir()
	cluster := start(t, embeddedpg.Config{DataDir: dir})
	execute(t, cluster.SuperuserDSN("postgres"), "CREATE TABLE kept AS SELECT 'committed' AS value")
	busy, err := pgx.Connect(t.Context(), cluster.SuperuserDSN("postgres"))
	require.NoError(t, err)
	backend := int(busy.PgConn().PID())
	go func() {
		// A query that does not notice the end of the server and writes nothing. It fails when
		// the next start ends it.
		_, _ = busy.Exec(context.Background(), "DO 'BEGIN LOOP END LOOP; END'")
	}()
	observer, err := pgx.Connect(t.Context(), cluster.SuperuserDSN("postgres"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var active bool
		err := observer.QueryRow(t.Context(), "SELECT state = 'active' FROM pg_stat_activity WHERE pid = $1", backend).Scan(&active)
		return err == nil && active
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(postmasterPID(t, dir), syscall.SIGKILL))
	<-cluster.Done()
	stop(t, cluster)
	require.False(t, processGone(backend)(), "a busy backend outlives its server")

	again := start(t, embeddedpg.Config{DataDir: dir})
	require.True(t, processGone(backend)())
	require.Equal(t, "committed", query(t, again.SuperuserDSN("postgres"), "SELECT value FROM kept"))
}

// memoryWaitHandler calls a function when a cluster logs that it waits for shared memory.
type memoryWaitHandler struct {
	slog.Handler
	onWait func()
}

func (h memoryWaitHandler) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "memory of an earlier PostgreSQL") {
		h.onWait()
	}
	return nil
}

// A process that ends loses its title before it releases the shared memory.
func TestDrillSharedMemoryOfKilledServer(t *testing.T) {
	requirePostgres(t)
	if runtime.GOOS != "linux" {
		t.Skip("shared memory is listed on Linux only")
	}
	t.Parallel()
	dir := t.TempDir()
	cluster := start(t, embeddedpg.Config{DataDir: dir})
	lock, err := os.ReadFile(filepath.Join(dir, "pg", "data", "postmaster.pid"))
	require.NoError(t, err)
	named := strings.Fields(strings.Split(string(lock), "\n")[6])
	require.Len(t, named, 2)
	id, err := strconv.Atoi(named[1])
	require.NoError(t, err)
	address, _, failure := syscall.Syscall(syscall.SYS_SHMAT, uintptr(id), 0, 0)
	require.Zero(t, failure)
	waited := 0
	detach := func() {
		waited++
		_, _, failure := syscall.Syscall(syscall.SYS_SHMDT, address, 0, 0)
		require.Zero(t, failure)
	}
	require.NoError(t, syscall.Kill(postmasterPID(t, dir), syscall.SIGKILL))
	<-cluster.Done()
	stop(t, cluster)

	again := start(t, embeddedpg.Config{DataDir: dir, Logger: slog.New(memoryWaitHandler{slog.NewTextHandler(io.Discard, nil), detach})})
	require.Equal(t, 1, waited)
	require.Equal(t, "1", query(t, again.SuperuserDSN("postgres"), "SELECT '1'"))
}

func TestStart_RemovesStaleLockFile(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := copyOfCluster(t)
	// An unrelated program has the process id of a killed server.
	other := exec.Command("sleep", "600")
	require.NoError(t, other.Start())
	defer func() {
		require.NoError(t, other.Process.Kill())
		require.Error(t, other.Wait())
	}()
	lock := filepath.Join(dir, "pg", "data", "postmaster.pid")
	require.NoError(t, os.WriteFile(lock, []byte(strconv.Itoa(other.Process.Pid)+"\n/elsewhere\n"), 0o644))

	start(t, embeddedpg.Config{DataDir: dir})
	require.False(t, processGone(other.Process.Pid)(), "the unrelated program is not ended")
}

func TestStart_OtherMajorVersionIsRefused(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := copyOfCluster(t)
	version := filepath.Join(dir, "pg", "data", "PG_VERSION")
	original, err := os.ReadFile(version)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(version, []byte("9\n"), 0o600))

	_, err = embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir})
	f := requireFault(t, err, "dev.data_directory_version")
	require.Equal(t, 9, f.Expected)

	require.NoError(t, os.Remove(version))
	_, err = embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir})
	requireFault(t, err, "dev.data_directory_damaged")

	require.NoError(t, os.WriteFile(version, original, 0o644))
	start(t, embeddedpg.Config{DataDir: dir}) // nothing was harmed
}

func TestStart_DirectoryInUseIsRefused(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := copyOfCluster(t)
	cluster := start(t, embeddedpg.Config{DataDir: dir})
	_, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir})
	requireFault(t, err, "dev.data_directory_in_use")
	stop(t, cluster)

	_, err = embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir, Ephemeral: true})
	requireFault(t, err, "dev.data_directory_in_use")
	require.DirExists(t, filepath.Join(dir, "pg", "data"), "a kept cluster is never deleted")

	_, err = embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: filepath.Join(dir, "pg", "data")})
	requireFault(t, err, "dev.data_directory_foreign")
}

func TestStart_TakenPort(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	first := start(t, embeddedpg.Config{DataDir: copyOfCluster(t)})
	dir := copyOfCluster(t)
	_, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir, Port: first.Port()})
	requireFault(t, err, "dev.port_in_use")

	// Another program has taken the port of the last start: Start finds another one.
	for try := 1; ; try++ {
		second := start(t, embeddedpg.Config{DataDir: dir})
		taken := second.Port()
		stop(t, second)
		third, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: copyOfCluster(t), Port: taken, Settings: smallSettings()})
		if fault.CodeOf(err) == "dev.port_in_use" && try < 3 {
			continue // another program has been faster
		}
		require.NoError(t, err)
		t.Cleanup(func() { stop(t, third) })
		require.Equal(t, taken, third.Port())
		require.NotEqual(t, taken, start(t, embeddedpg.Config{DataDir: dir}).Port())
		return
	}
}

func TestStart_EphemeralClusterIsRecreated(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := t.TempDir()
	first := start(t, embeddedpg.Config{DataDir: dir, Ephemeral: true})
	require.Equal(t, "off", query(t, first.SuperuserDSN("postgres"), "SHOW fsync"))
	execute(t, first.SuperuserDSN("postgres"), "CREATE TABLE gone (id int)")
	stop(t, first)
	second := start(t, embeddedpg.Config{DataDir: dir, Ephemeral: true})
	require.Equal(t, "true", query(t, second.SuperuserDSN("postgres"), "SELECT (to_regclass('gone') IS NULL)::text"))
	stop(t, second)
	_, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir})
	requireFault(t, err, "dev.data_directory_in_use")
}

func TestStart_FailureNamesCauseAndReleasesDirectory(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := copyOfCluster(t)
	_, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir, Settings: map[string]string{"shared_buffers": "lots"}})
	f := requireFault(t, err, "dev.postgres_start_failed")
	require.Contains(t, f.Detail, "shared_buffers")

	_, err = embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: dir, Settings: map[string]string{"Listen_Addresses": "*"}})
	require.ErrorContains(t, err, "listen_addresses")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = embeddedpg.Start(cancelled, embeddedpg.Config{DataDir: t.TempDir()})
	require.ErrorIs(t, err, context.Canceled)

	start(t, embeddedpg.Config{DataDir: dir})
}

// Not parallel: Linux does not run a program that is open for writing, and a child that another
// test forks has it open until its exec.
func TestFindBinaries(t *testing.T) {
	_, _, err := embeddedpg.FindBinaries(t.TempDir())
	f := requireFault(t, err, "dev.postgres_not_found")
	require.Contains(t, f.Detail, "apt-get install -y --no-install-recommends postgresql")

	old := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(old, "initdb"), nil, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(old, "postgres"), []byte("#!/bin/sh\necho 'postgres (PostgreSQL) 13.4'\n"), 0o755))
	_, _, err = embeddedpg.FindBinaries(old)
	f = requireFault(t, err, "dev.postgres_not_found")
	require.Equal(t, 13, f.Actual)

	requirePostgres(t)
	dir, major, err := embeddedpg.FindBinaries("")
	require.NoError(t, err)
	require.GreaterOrEqual(t, major, embeddedpg.MinimumMajor)
	again, sameMajor, err := embeddedpg.FindBinaries(filepath.Dir(dir))
	require.NoError(t, err, "the folder above bin is accepted too")
	require.Equal(t, dir, again)
	require.Equal(t, major, sameMajor)
}
