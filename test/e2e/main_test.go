package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

// scratch has the data folders of this run, and programs what it builds.
var scratch, programs string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var errData, errPrograms error
	scratch, errData = makeFolder(testkit.TempFolder())
	programs, errPrograms = makeFolder(os.TempDir())
	if err := errors.Join(errData, errPrograms); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// For what natsServer builds.
	if err := os.Setenv("PATH", filepath.Join(programs, "bin")+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Tests wait for other processes most of the time; -parallel overrides this.
	if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := errors.Join(endAll(), dropInstalled(), os.RemoveAll(scratch), os.RemoveAll(programs)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// makeFolder makes a folder that the user of PostgreSQL can read too.
func makeFolder(parent string) (string, error) {
	folder, err := os.MkdirTemp(parent, "backbone-e2e-")
	if err != nil {
		return "", err
	}
	return folder, os.Chmod(folder, 0o755) //nolint:gosec // nothing in it is secret
}

// binary builds cmd/backbone once per run.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programs, "backbone")
	args, cgo := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", path}, "CGO_ENABLED=0"
	if raceDetector {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	build := exec.Command("go", append(args, "github.com/erpbackbone/backbone/cmd/backbone")...)
	build.Env = append(os.Environ(), cgo)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cmd/backbone: %w\n%s", err, out)
	}
	return path, nil
})

// natsServer builds nats-server once per run, where programs that are started find it.
var natsServer = sync.OnceValue(func() error {
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(programs, "bin", "nats-server"), "github.com/nats-io/nats-server/v2")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building nats-server: %w\n%s", err, out)
	}
	return nil
})

// program is the path of the binary under test.
func program(t *testing.T) string {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	return path
}

// findPostgres looks for PostgreSQL once per run, since it starts each server that it finds.
var findPostgres = sync.OnceValue(func() error {
	_, _, err := embeddedpg.FindBinaries("")
	return err
})

// needPostgres skips where no PostgreSQL is installed, unless make test demands it.
func needPostgres(t *testing.T) {
	t.Helper()
	err := findPostgres()
	if fault.CodeOf(err) == "dev.postgres_not_found" && os.Getenv("BACKBONE_REQUIRE_POSTGRES") == "" {
		t.Skipf("PostgreSQL is not installed on this machine: %v", err)
	}
	require.NoError(t, err)
}

// repository is a path inside the repository.
func repository(t *testing.T, path ...string) string {
	t.Helper()
	return filepath.Join(append([]string{testkit.RepoRoot(t)}, path...)...)
}
