package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Limits of `backbone dev`.
const (
	firstStart = 60 * time.Second
	laterStart = 10 * time.Second
	// recoveryStart ends hangs only, also after a crash of PostgreSQL.
	recoveryStart = 5 * time.Minute
)

var readyLine = regexp.MustCompile(`(?m)^Ready: (http://127\.0\.0\.1:\d+)$`)

// devFile is DIR/dev.json as a customer reads it.
type devFile struct {
	HTTP      string `json:"http"`
	DSN       string `json:"dsn"`
	EraserDSN string `json:"eraser_dsn"`
	Exports   string `json:"exports"`
	KMS       struct {
		Endpoint    string `json:"endpoint"`
		Credentials string `json:"credentials_file"`
	} `json:"kms"`
	Tenant        string            `json:"tenant"`
	LegalEntities []string          `json:"legal_entities"`
	Tokens        map[string]string `json:"tokens"`
	NATS          string            `json:"nats"`
}

// dev is a running `backbone dev`.
type dev struct {
	*process
	devFile
	took time.Duration // from the start to the ready line
}

// keys configures the same keys for another process on the same data.
func (d devFile) keys() []string {
	return []string{
		"BACKBONE_DATABASE_ERASER_DSN=" + d.EraserDSN, "BACKBONE_KMS_ENDPOINT=" + d.KMS.Endpoint,
		"BACKBONE_KMS_CREDENTIALS_FILE=" + d.KMS.Credentials, "BACKBONE_ERASURE_EXPORT_DIRECTORY=" + d.Exports,
	}
}

// startDev starts `backbone dev` and waits until it is ready.
func startDev(path, dataDir string, limit time.Duration, flags ...string) (*dev, error) {
	started := time.Now()
	p, err := launch(path, dataDir, nil, append([]string{"dev", "--data-dir", dataDir, "--http", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		return nil, err
	}
	found, err := p.awaitOutput(p.stdout, readyLine, limit)
	if err != nil {
		return nil, errors.Join(err, p.end())
	}
	d := &dev{process: p, took: time.Since(started)}
	text, err := os.ReadFile(filepath.Join(dataDir, "dev.json"))
	if err == nil {
		err = json.Unmarshal(text, &d.devFile)
	}
	if err == nil && d.HTTP != found[1] {
		err = fmt.Errorf("dev.json names %s, the ready line %s", d.HTTP, found[1])
	}
	return d, err
}

// seeded is the data folder and the output of the first start.
type seeded struct {
	dev
	dir        string
	postmaster int
	journals   int // events of type gl.journal.posted in all legal entities
	exitCode   int
	heads      map[string]string
}

// seed makes the demonstration's books once per run and stops the server again.
var seed = sync.OnceValues(func() (*seeded, error) {
	path, err := binary()
	if err != nil {
		return nil, err
	}
	s := &seeded{dir: filepath.Join(scratch, "seed"), heads: map[string]string{}}
	ctx, cancel := context.WithTimeout(context.Background(), recoveryStart)
	defer cancel()
	disabled := make(chan error, 1)
	go func() { disabled <- disableSync(ctx, s.dir) }()
	d, err := startDev(path, s.dir, recoveryStart) // whether it was fast enough is looked at elsewhere
	if err != nil {
		return nil, err
	}
	if err := <-disabled; err != nil {
		return nil, err
	}
	s.dev = *d
	if s.postmaster, err = postmaster(s.dir); err != nil {
		return nil, err
	}
	auditor := clientOf(d.devFile, "auditor")
	for _, entity := range d.LegalEntities {
		posted, err := auditor.events(url.Values{"stream_type": {"type"}, "stream_id": {"gl.journal.posted"}, "legal_entity": {entity}})
		if err != nil {
			return nil, err
		}
		s.journals += len(posted)
		if s.heads[entity], err = auditor.head(entity); err != nil {
			return nil, err
		}
	}
	s.exitCode, err = d.interrupt()
	return s, err
})

// copyOfBooks is a copy of the data folder with the demonstration's books, which is removed with the test.
func copyOfBooks(t *testing.T) string {
	t.Helper()
	needPostgres(t)
	s, err := seed()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(scratch, "books-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) }) // before the system writes all of it to the disk
	require.NoError(t, copyFolder(s.dir, dir))
	return dir
}

// configurePostgres adds lines to the settings of a data folder's PostgreSQL, which does not run.
func configurePostgres(t *testing.T, dataDir, lines string) {
	t.Helper()
	settings, err := os.OpenFile(filepath.Join(dataDir, "pg", "data", "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = settings.WriteString(lines)
	require.NoError(t, errors.Join(err, settings.Close()))
}

// copyFolder keeps owners and modes.
func copyFolder(from, to string) error {
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w: %s", from, err, out)
	}
	return nil
}

// startOn starts `backbone dev` on a data folder and stops it with the test.
func startOn(t *testing.T, dir string, limit time.Duration, flags ...string) *dev {
	t.Helper()
	d, err := startDev(program(t), dir, limit, flags...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.end()) })
	return d
}

// shared is the server of all tests that leave it alive. It ends with the run.
var shared = sync.OnceValues(func() (*dev, error) {
	path, err := binary()
	if err != nil {
		return nil, err
	}
	s, err := seed()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(scratch, "shared-")
	if err != nil {
		return nil, err
	}
	if err := copyFolder(s.dir, dir); err != nil {
		return nil, err
	}
	return startDev(path, dir, recoveryStart)
})

func sharedDev(t *testing.T) *dev {
	t.Helper()
	needPostgres(t)
	d, err := shared()
	require.NoError(t, err)
	return d
}

// postmaster is the process id of a data folder's PostgreSQL.
func postmaster(dataDir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "pg", "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

// disableSync turns fsync off, as soon as there is a server, in a data folder and its copies. The
// tests kill processes and never the machine, so that no write is lost.
func disableSync(ctx context.Context, dataDir string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := alterSystem(ctx, dataDir, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func alterSystem(ctx context.Context, dataDir string, statements ...string) error {
	dsn, err := superuserDSN(dataDir)
	if err != nil {
		return err
	}
	connection, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err = connection.Exec(ctx, statement); err != nil {
			break
		}
	}
	return errors.Join(err, connection.Close(ctx))
}

// superuser is the DSN of the superuser of a data folder's PostgreSQL.
func superuser(t *testing.T, dataDir string) string {
	t.Helper()
	dsn, err := superuserDSN(dataDir)
	require.NoError(t, err)
	return dsn
}

func superuserDSN(dataDir string) (string, error) {
	var state struct {
		Port              int    `json:"port"`
		SuperuserPassword string `json:"superuser_password"`
	}
	text, err := os.ReadFile(filepath.Join(dataDir, "postgres.json"))
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return "", err
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", state.SuperuserPassword),
		Host: fmt.Sprintf("127.0.0.1:%d", state.Port), Path: "/backbone", RawQuery: "sslmode=disable",
	}
	return u.String(), nil
}

// processGone reports whether a process has ended. One whose parent was killed may
// stay a zombie where no process reaps orphans; it has no command line any more.
func processGone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(line) == 0
}
