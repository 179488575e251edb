package embeddedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	portTries   = 3        // another program may take a free port before PostgreSQL does
	logFileSize = 16 << 20 // bytes; the next start renames a larger log
	progressLog = 5 * time.Second
)

// launch is the state of one start.
type launch struct {
	config    Config
	directory *directory
	settings  map[string]string
	log       *slog.Logger

	owner        *owner
	installation installation
	name         string // marks the cluster's processes
	state        state
}

// serverProcess is a started server; exited is closed when it was reaped.
type serverProcess struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// prepare ends orphaned processes, makes the cluster if there is none, and writes its
// configuration.
func (l *launch) prepare(ctx context.Context) (err error) {
	d := l.directory
	if l.owner, err = chooseOwner(d.pgDir()); err != nil {
		return err
	}
	if err := os.MkdirAll(d.pgDir(), 0o700); err != nil {
		return directoryError(d.root, err)
	}
	if err := l.owner.own(d.pgDir()); err != nil {
		return directoryError(d.root, err)
	}
	if err := l.checkKind(); err != nil {
		return err
	}
	if _, err := os.Stat(d.clusterDir()); err == nil {
		if l.name, err = clusterName(d.clusterDir()); err != nil {
			return err
		}
		if err := d.stopOrphans(ctx, l.name, l.log); err != nil {
			return err
		}
	}
	if l.config.Ephemeral {
		if err := os.RemoveAll(d.clusterDir()); err != nil {
			return directoryError(d.root, err)
		}
	}
	made, err := d.major()
	if err != nil {
		return err
	}
	if l.installation, err = findInstallation(l.config.BinDir, made); err != nil {
		return err
	}
	if made != 0 && made != l.installation.major {
		return fault.New(fault.FailedPrecondition, "dev.data_directory_version",
			"The data directory %s was made by PostgreSQL %d, and the one found is %d (%s); nothing was changed. "+
				"Install PostgreSQL %d beside it (on Debian: apt-get install postgresql-%d), or choose another data directory.",
			d.root, made, l.installation.major, l.installation.dir, made, made).
			WithNumbers(made, l.installation.major)
	}
	if l.state, err = d.loadState(made != 0 && !l.config.Restored); err != nil {
		return err
	}
	if made == 0 {
		if err := l.initialize(ctx); err != nil {
			return err
		}
	}
	if _, err := os.Stat(d.stateFile()); l.config.Restored && errors.Is(err, os.ErrNotExist) {
		if err := l.recover(ctx); err != nil {
			return err
		}
	}
	if l.name, err = clusterName(d.clusterDir()); err != nil {
		return err
	}
	return l.writeConfiguration()
}

// checkKind refuses to start a kept cluster as ephemeral, which would delete it, and an
// ephemeral cluster as kept.
func (l *launch) checkKind() error {
	d := l.directory
	_, markErr := os.Stat(d.ephemeralMark())
	_, clusterErr := os.Stat(d.clusterDir())
	marked, exists := markErr == nil, clusterErr == nil
	switch {
	case l.config.Ephemeral && exists && !marked:
		return fault.New(fault.FailedPrecondition, "dev.data_directory_in_use",
			"%s holds a cluster that is to be kept, and an ephemeral one was asked for; nothing was changed. Choose another data directory.", d.root)
	case !l.config.Ephemeral && marked:
		return fault.New(fault.FailedPrecondition, "dev.data_directory_in_use",
			"%s holds an ephemeral cluster of tests. Choose another data directory.", d.root)
	case l.config.Ephemeral && !marked:
		return os.WriteFile(d.ephemeralMark(), nil, 0o600)
	}
	return nil
}

// initialize makes the cluster in a temporary folder and renames the folder when it
// is complete, so that a killed start leaves no incomplete cluster. The initdb of a killed start
// may still be running, so each start uses a new folder.
func (l *launch) initialize(ctx context.Context) error {
	d := l.directory
	// The password is kept before the cluster that needs it exists.
	if err := d.saveState(l.state); err != nil {
		return directoryError(d.root, err)
	}
	d.removeUnfinished() // an initdb that still writes there fails and ends
	next, err := os.MkdirTemp(d.pgDir(), unfinishedPrefix)
	if err != nil {
		return directoryError(d.root, err)
	}
	passwordFile := filepath.Join(d.pgDir(), "password.initializing")
	defer os.Remove(passwordFile) //nolint:errcheck // readable by the owner only, and replaced by the next start
	err = errors.Join(
		l.owner.own(next),
		replaceFile(passwordFile, []byte(l.state.SuperuserPassword+"\n"), l.owner),
	)
	if err != nil {
		return directoryError(d.root, err)
	}
	cmd, done, err := l.owner.command(l.installation.program("initdb"), next, func(dir string) []string {
		arguments := []string{
			"--pgdata", dir, "--username", superuser, "--pwfile", dir + "/../" + filepath.Base(passwordFile),
			"--encoding", "UTF8", "--locale", "C", "--auth", "scram-sha-256",
		}
		if l.config.Ephemeral {
			return append(arguments, "--no-sync")
		}
		return append(arguments, "--data-checksums")
	})
	if err != nil {
		return directoryError(d.root, err)
	}
	defer done()
	l.log.Info("creating the PostgreSQL cluster", "directory", d.root, "major", l.installation.major)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := runWithin(ctx, cmd); err != nil {
		return fault.New(fault.FailedPrecondition, "dev.postgres_start_failed",
			"initdb could not create a cluster in %s: %s. Correct that and start again.", d.root, lastLine(output.String())).WithCause(err)
	}
	if err := os.Rename(next, d.clusterDir()); err != nil {
		return directoryError(d.root, err)
	}
	d.removeUnfinished()
	return syncDirectory(d.pgDir())
}

// runWithin runs a program and ends its process group when the context ends.
func runWithin(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	return errors.Join(cmd.Wait(), ctx.Err())
}

func syncDirectory(path string) error {
	open, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(open.Sync(), open.Close())
}

func (l *launch) writeConfiguration() error {
	dir := l.directory.clusterDir()
	err := errors.Join(
		replaceFile(filepath.Join(dir, "postgresql.conf"), []byte(configurationFile(l.settings)), l.owner),
		replaceFile(filepath.Join(dir, "pg_hba.conf"), []byte(accessFile), l.owner),
	)
	if err != nil {
		return directoryError(l.directory.root, err)
	}
	return nil
}

// start runs the server and waits until it accepts connections.
func (l *launch) start(ctx context.Context) (*serverProcess, error) {
	var last error
	for try := range portTries {
		port, err := choosePort(l.config.Port, l.state.Port, try)
		if err != nil {
			return nil, err
		}
		l.state.Port = port
		process, err := l.startOnce(ctx)
		if err == nil {
			if err = l.directory.saveState(l.state); err == nil {
				return process, nil
			}
			process.kill()
			return nil, directoryError(l.directory.root, err)
		}
		last = err
		if ctx.Err() != nil || isPortFree(port) {
			break // the port was not the reason
		}
	}
	return nil, last
}

func (l *launch) startOnce(ctx context.Context) (*serverProcess, error) {
	d := l.directory
	process, logStart, err := l.run("127.0.0.1")
	if err != nil {
		return nil, err
	}
	if err = l.awaitReady(ctx, process); err == nil {
		err = l.connect(ctx)
	}
	if err != nil {
		process.kill()
		return nil, fault.New(fault.FailedPrecondition, "dev.postgres_start_failed",
			"PostgreSQL did not start in %s: %s. The whole log is %s; correct what it says and start again.",
			d.root, logReason(d.logFile(), logStart, err), d.logFile()).WithCause(err)
	}
	return process, nil
}

// run runs the server, which listens on addresses. logStart is where its log begins.
func (l *launch) run(addresses string) (process *serverProcess, logStart int64, err error) {
	d := l.directory
	output, err := l.openLog()
	if err != nil {
		return nil, 0, directoryError(d.root, err)
	}
	defer output.Close() // the server has its own descriptor
	if logStart, err = output.Seek(0, io.SeekEnd); err != nil {
		return nil, 0, directoryError(d.root, err)
	}
	// On the command line these settings override postgresql.auto.conf, so ALTER SYSTEM cannot
	// open the cluster to the network.
	cmd, done, err := l.owner.command(l.installation.program("postgres"), d.clusterDir(), func(dir string) []string {
		return []string{
			"-D", dir, "-p", strconv.Itoa(l.state.Port), "-c", "cluster_name=" + l.name, "-c", "listen_addresses=" + addresses,
			"-c", "unix_socket_directories=.", "-c", "unix_socket_permissions=0700",
		}
	})
	if err != nil {
		return nil, 0, directoryError(d.root, err)
	}
	defer done()
	// A file, not a pipe: the server must be able to log after backbone has ended.
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return nil, 0, fault.New(fault.FailedPrecondition, "dev.postgres_start_failed",
			"%s could not be run: %s. Check that every user may execute it, then start again.", cmd.Path, err).WithCause(err)
	}
	process = &serverProcess{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the status is read from ProcessState
		close(process.exited)
	}()
	return process, logStart, nil
}

// kill ends a server that never became usable.
func (p *serverProcess) kill() { p.end(syscall.SIGQUIT, immediateStopTime) }

// end ends the server by a signal, or by killing it if it does not end within a time.
func (p *serverProcess) end(signal syscall.Signal, limit time.Duration) {
	_ = p.cmd.Process.Signal(signal) // fails only when it has ended
	select {
	case <-p.exited:
	case <-time.After(limit):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// awaitReady waits until postmaster.pid has the status ready.
func (l *launch) awaitReady(ctx context.Context, process *serverProcess) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	lastNote := time.Now()
	for !l.reportsReady(process.cmd.Process.Pid) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-process.exited:
			return fmt.Errorf("the server ended: %s", process.cmd.ProcessState)
		case <-ticker.C:
		}
		if time.Since(lastNote) >= progressLog {
			lastNote = time.Now()
			l.log.Info("waiting for PostgreSQL, which may be recovering", "log", l.directory.logFile())
		}
	}
	return nil
}

// connect connects once with the kept password.
func (l *launch) connect(ctx context.Context) error {
	connection, err := pgx.Connect(ctx, dsn(l.state.Port, superuser, l.state.SuperuserPassword, "postgres"))
	if err != nil {
		return err
	}
	return connection.Close(ctx)
}

// reportsReady reads the status that the server keeps in the eighth line.
func (l *launch) reportsReady(pid int) bool {
	text, err := os.ReadFile(filepath.Join(l.directory.clusterDir(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && strings.TrimSpace(lines[0]) == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// openLog opens the server's log for appending and renames one larger than logFileSize.
func (l *launch) openLog() (*os.File, error) {
	path := l.directory.logFile()
	if info, err := os.Stat(path); err == nil && info.Size() > logFileSize {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := l.owner.own(path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// logReason finds the line in which the server names the reason of its end, in the log since
// the start; without one it returns the error.
func logReason(path string, from int64, otherwise error) string {
	text, err := os.ReadFile(path)
	if err != nil || int64(len(text)) < from {
		return otherwise.Error()
	}
	before := ""
	for line := range strings.Lines(string(text[from:])) {
		line = strings.TrimRight(strings.TrimSpace(line), ".")
		if strings.Contains(line, "FATAL:") || strings.Contains(line, "PANIC:") {
			if strings.Contains(line, "contains errors") { // the line before names the error
				return before + "; " + line
			}
			return line
		}
		before = line
	}
	return otherwise.Error()
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimRight(strings.TrimSpace(lines[len(lines)-1]), ".")
}
