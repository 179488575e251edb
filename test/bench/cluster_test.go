//go:build bench

package bench

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
)

// startCluster starts a private, durable cluster: with fsync, as `backbone dev` runs it.
func startCluster(t *testing.T, o options) *embeddedpg.Cluster {
	t.Helper()
	dir, err := os.MkdirTemp(o.dir, "backbone-bench-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // nothing in it is needed again
	config := embeddedpg.Config{DataDir: dir}
	if o.profile != "" {
		config.Settings = map[string]string{"shared_preload_libraries": "pg_stat_statements"}
	}
	cluster, err := embeddedpg.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, cluster.Stop(ctx))
	})
	printEnvironment(t, cluster, dir)
	return cluster
}

// newDatabase makes an empty, migrated database that is dropped with the test. It
// returns the DSN of the superuser.
func newDatabase(t *testing.T, cluster *embeddedpg.Cluster, name string, migrate func(ctx context.Context, dsn string) error) string {
	t.Helper()
	admin := cluster.SuperuserDSN("postgres")
	execute(t, admin, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8'")
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	dsn := cluster.SuperuserDSN(name)
	require.NoError(t, migrate(t.Context(), dsn))
	return dsn
}

// requireDiskSpace fails at once when the events will not fit on the cluster's disk.
func requireDiskSpace(t *testing.T, o options) {
	t.Helper()
	const eventBytes, rest = 3700, 6_000_000_000 // with indexes, as measured; the log of PostgreSQL and the other sections
	var disk syscall.Statfs_t
	require.NoError(t, syscall.Statfs(cmp.Or(o.dir, os.TempDir()), &disk))
	free, needed := int64(disk.Bavail)*disk.Bsize, int64(o.events)*eventBytes+rest
	require.Greater(t, free, needed, "%d events take %d GB and %d GB are free; set BACKBONE_BENCH_EVENTS lower or BACKBONE_BENCH_DIR to a larger disk",
		o.events, needed>>30, free>>30)
}

// asApp is the same database with the rights of the application's role.
func asApp(t *testing.T, dsn string) string {
	t.Helper()
	return asRole(t, dsn, "backbone_app")
}

func asRole(t *testing.T, dsn, role string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return u.String()
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // nothing is lost with it
	return conn
}

// execute also works while the test is being cleaned up.
func execute(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute) // VACUUM of ten million events
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	for _, statement := range statements {
		_, err := conn.Exec(ctx, statement)
		require.NoError(t, err, statement)
	}
	require.NoError(t, conn.Close(ctx))
}

func printEnvironment(t *testing.T, cluster *embeddedpg.Cluster, dir string) {
	t.Helper()
	conn := connect(t, cluster.SuperuserDSN("postgres"))
	setting := func(name string) (value string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW "+name).Scan(&value))
		return value
	}
	fmt.Printf("Machine: %d cores (%s), %s %s/%s, PostgreSQL %s\n",
		runtime.NumCPU(), processor(), runtime.Version(), runtime.GOOS, runtime.GOARCH, setting("server_version"))
	fmt.Printf("Settings: fsync %s, synchronous_commit %s, full_page_writes %s, shared_buffers %s, max_wal_size %s\n",
		setting("fsync"), setting("synchronous_commit"), setting("full_page_writes"), setting("shared_buffers"), setting("max_wal_size"))
	fmt.Printf("Disk: fdatasync of 8 KiB appended to a file takes %s (median)\n\n", latency(syncTime(t, dir)))
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // absent outside Linux
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// syncTime is what one commit costs the disk at least. The file is written in
// place beforehand, as PostgreSQL recycles the files of its log.
func syncTime(t *testing.T, dir string) time.Duration {
	t.Helper()
	const page, pages = 8192, 200
	file, err := os.Create(filepath.Join(dir, "sync-test"))
	require.NoError(t, err)
	defer os.Remove(file.Name())
	defer file.Close() // nothing in it is needed, the folder goes away
	content := make([]byte, page)
	var times []time.Duration
	for pass := range 2 {
		for i := range pages {
			content[0]++
			_, err := file.WriteAt(content, int64(i*page))
			require.NoError(t, err)
			before := time.Now()
			require.NoError(t, syscall.Fdatasync(int(file.Fd())))
			if pass == 1 {
				times = append(times, time.Since(before))
			}
		}
	}
	slices.Sort(times)
	return quantile(times, 0.5)
}

// cpuSeconds is processor time in seconds.
type cpuSeconds struct{ process, postgres, machine float64 }

// cpuMeter reads processor times: of this process, of PostgreSQL and of everything.
type cpuMeter struct{ postmaster int }

// newMeter finds the postmaster; without /proc the meter measures nothing.
func newMeter(t *testing.T, cluster *embeddedpg.Cluster) cpuMeter {
	t.Helper()
	var backend int
	conn := connect(t, cluster.SuperuserDSN("postgres"))
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	if fields := processFields(backend); len(fields) > 1 {
		parent, err := strconv.Atoi(fields[1])
		require.NoError(t, err)
		return cpuMeter{parent}
	}
	return cpuMeter{}
}

const ticksPerSecond = 100 // USER_HZ, the same on every Linux

// processFields are those of /proc/PID/stat after the command: state, parent, ...
func processFields(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)
}

func ticks(fields []string, indexes ...int) (seconds float64) {
	for _, i := range indexes {
		if i < len(fields) {
			n, _ := strconv.Atoi(fields[i]) // the kernel writes numbers
			seconds += float64(n) / ticksPerSecond
		}
	}
	return seconds
}

func (m cpuMeter) read() cpuSeconds {
	var e cpuSeconds
	e.process = ticks(processFields(os.Getpid()), 11, 12)
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		line, _, _ := strings.Cut(string(text), "\n")
		e.machine = ticks(strings.Fields(line), 1, 2, 3, 6, 7) // neither idle nor waiting for the disk
	}
	if m.postmaster == 0 {
		return e
	}
	// With its reaped children; the living ones are added.
	e.postgres = ticks(processFields(m.postmaster), 11, 12, 13, 14)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if fields := processFields(pid); len(fields) > 1 && fields[1] == strconv.Itoa(m.postmaster) {
			e.postgres += ticks(fields, 11, 12)
		}
	}
	return e
}

// spent reports the processor times since the last call.
func (m cpuMeter) spent(since cpuSeconds, elapsed time.Duration) string {
	now := m.read()
	share := func(a, b float64) float64 { return 100 * (b - a) / elapsed.Seconds() }
	return fmt.Sprintf("%.0f %% of a core here, %.0f %% in PostgreSQL, %.0f %% on the machine", share(since.process, now.process),
		share(since.postgres, now.postgres), share(since.machine, now.machine))
}
