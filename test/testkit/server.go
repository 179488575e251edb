package testkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	dsnVariable     = "BACKBONE_TEST_DSN"
	requireVariable = "BACKBONE_REQUIRE_POSTGRES"
	keeperVariable  = "BACKBONE_TESTKIT_KEEPER"

	// serverGeneration is part of the shared directory's name. Raise it when the
	// server's settings change, so that no old server is used.
	serverGeneration = 2

	// memoryNeeded is far more than the server's log and the databases of tests, of which each is
	// dropped with its test.
	memoryNeeded = 8 << 30 // bytes

	idleTime     = 30 * time.Second // between the last test binary's end and the server's
	idleCheck    = time.Second
	startTime    = 90 * time.Second
	stopTime     = 30 * time.Second
	pollInterval = 25 * time.Millisecond
)

// init turns a test binary that was started by [startKeeper] into the keeper of
// the shared server. It must happen before the testing package sees the process.
func init() {
	if dir := os.Getenv(keeperVariable); dir != "" {
		if err := keep(sharedDirectory(dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// sharedDirectory is where the test binaries of one user meet:
//
//	users.lock   held shared by every test binary that uses the server
//	start.lock   held by the binary that looks for or starts the server
//	keeper.lock  held by the keeper for as long as it lives
//	dsn          written by the keeper when the server is ready
//	keeper.log   the keeper's log
//	cluster/     the server's data directory
type sharedDirectory string

func (d sharedDirectory) users() string   { return filepath.Join(string(d), "users.lock") }
func (d sharedDirectory) start() string   { return filepath.Join(string(d), "start.lock") }
func (d sharedDirectory) keeper() string  { return filepath.Join(string(d), "keeper.lock") }
func (d sharedDirectory) dsn() string     { return filepath.Join(string(d), "dsn") }
func (d sharedDirectory) log() string     { return filepath.Join(string(d), "keeper.log") }
func (d sharedDirectory) cluster() string { return filepath.Join(string(d), "cluster") }

// server finds the PostgreSQL of this run once per process.
var server = sync.OnceValues(func() (string, error) {
	if dsn := os.Getenv(dsnVariable); dsn != "" {
		return dsn, nil
	}
	if _, _, err := embeddedpg.FindBinaries(""); err != nil {
		return "", err
	}
	return sharedServer()
})

// heldForLife keeps locked files open until this process ends, however it ends; a
// file that nothing refers to would be closed by the garbage collector.
var heldForLife []*os.File

// Server is the DSN of a superuser of the PostgreSQL that tests use. Tests that
// only want a database call [Database]. Roles are shared by the whole server.
func Server(t testing.TB) string {
	t.Helper()
	dsn, err := server()
	if err == nil {
		return dsn
	}
	var f *fault.Error
	if errors.As(err, &f) && f.Code == "dev.postgres_not_found" && os.Getenv(requireVariable) == "" {
		t.Skipf("no PostgreSQL for this test: %v", err)
	}
	t.Fatalf("testkit: PostgreSQL for tests: %v", err)
	return ""
}

// sharedServer registers this process as a user of the shared server and starts
// it when it does not run.
func sharedServer() (string, error) {
	dir := sharedDirectory(filepath.Join(TempFolder(), fmt.Sprintf("backbone-test-%d-%d", os.Geteuid(), serverGeneration)))
	if err := ensurePrivate(string(dir)); err != nil {
		return "", err
	}
	users, err := lockFile(dir.users(), syscall.LOCK_SH)
	if err != nil {
		return "", err
	}
	heldForLife = append(heldForLife, users)
	starting, err := lockFile(dir.start(), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer starting.Close() // closing releases the lock, there is nothing to lose
	if dsn, ok := running(dir); ok {
		return dsn, nil
	}
	return startKeeper(dir)
}

// TempFolder is the folder for temporary files: that in memory, if it is large enough and TMPDIR
// names no other. A test's database is some hundred files, which a file system on a disk takes ten
// times as long to make and remove. Programs may not be allowed to run there.
func TempFolder() string {
	const memory, isWritable = "/dev/shm", 2
	var space syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &space) != nil || space.Bavail*uint64(space.Bsize) < memoryNeeded || syscall.Access(memory, isWritable) != nil {
		return os.TempDir()
	}
	return memory
}

// ensurePrivate makes the shared folder. Its name is predictable for every user of the
// machine, so another user may have made it first.
func ensurePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm() != 0o700 {
		return fmt.Errorf("testkit: %s is not a private folder of this user; remove it", dir)
	}
	return nil
}

// lockFile opens a file and locks it as flock does: without LOCK_NB it waits for the lock.
func lockFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// running reports whether the server that the keeper announced answers. A server
// whose keeper was killed does not count: no process would stop it.
func running(dir sharedDirectory) (string, bool) {
	if lock, err := lockFile(dir.keeper(), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		_ = lock.Close() // closing releases the lock, there is nothing to lose
		return "", false
	}
	text, err := os.ReadFile(dir.dsn())
	if err != nil {
		return "", false
	}
	dsn := strings.TrimSpace(string(text))
	// A busy machine is given time: the keeper lives, so that no other one can start a server.
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	return dsn, ping(ctx, dsn) == nil
}

// startKeeper starts this binary again as the keeper and waits for its server. The keeper has
// a separate session, since it serves other test binaries after the end of this one.
func startKeeper(dir sharedDirectory) (string, error) {
	if err := os.Remove(dir.dsn()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	log, err := os.Create(dir.log())
	if err != nil {
		return "", err
	}
	defer log.Close() // the keeper has another descriptor
	keeper := exec.Command(self)
	keeper.Dir = "/"
	keeper.Env = append(os.Environ(), keeperVariable+"="+string(dir))
	// The keeper inherits no pipe: go test waits until its pipes are closed.
	keeper.Stdout, keeper.Stderr = log, log
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := keeper.Start(); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() {
		_ = keeper.Wait() // its log has the reason
		close(ended)
	}()
	timeout := time.After(startTime)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if dsn, ok := running(dir); ok {
			return dsn, nil
		}
		select {
		case <-ended:
			return "", keeperError(dir, "ended")
		case <-timeout:
			return "", keeperError(dir, "was not ready in time")
		case <-ticker.C:
		}
	}
}

func keeperError(dir sharedDirectory, what string) error {
	text, err := os.ReadFile(dir.log())
	return errors.Join(fmt.Errorf("the server's keeper %s: %s", what, strings.TrimSpace(string(text))), err)
}

// serverSettings load PL/pgSQL once and not in each of the thousands of sessions.
var serverSettings = map[string]string{"shared_preload_libraries": "plpgsql"}

// keep runs the shared server until no test has used it for idleTime, or it died.
func keep(dir sharedDirectory) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// Waits for a predecessor that is ending.
	lock, err := lockFile(dir.keeper(), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	heldForLife = append(heldForLife, lock)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	cluster, err := embeddedpg.Start(ctx, embeddedpg.Config{DataDir: dir.cluster(), Ephemeral: true, Logger: log, Settings: serverSettings})
	if err != nil {
		return err
	}
	next := dir.dsn() + ".new"
	err = errors.Join(
		os.WriteFile(next, []byte(cluster.SuperuserDSN("postgres")+"\n"), 0o600),
		os.Rename(next, dir.dsn()),
	)
	if err == nil {
		err = awaitIdle(dir, cluster.Done())
	}
	ctx, cancel = context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if err = errors.Join(err, cluster.Stop(ctx)); err != nil {
		return err // and leave the server's log to be read
	}
	return os.RemoveAll(dir.cluster())
}

// awaitIdle returns when no test binary has held the users' lock for the idle
// time, or the server died. A binary that registers at the last moment finds no
// announced server and starts another keeper, which waits for the end of this one.
func awaitIdle(dir sharedDirectory, died <-chan struct{}) error {
	ticker := time.NewTicker(idleCheck)
	defer ticker.Stop()
	lastUse := time.Now()
	for {
		select {
		case <-died:
			return errors.New("testkit: the test server died; its log is " + filepath.Join(dir.cluster(), "pg", "postgresql.log"))
		case <-ticker.C:
		}
		lock, err := lockFile(dir.users(), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			lastUse = time.Now()
			continue
		}
		if err != nil {
			return err
		}
		idle := time.Since(lastUse) >= idleTime
		if idle {
			err = os.Remove(dir.dsn())
		}
		if err = errors.Join(err, lock.Close()); err != nil || idle {
			return err
		}
	}
}
