package embeddedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	pollInterval = 20 * time.Millisecond

	// How long stopOrphans waits for the effect of each signal before it sends the next one.
	fastStopTime      = 30 * time.Second // SIGINT: ends sessions, writes a checkpoint
	immediateStopTime = 10 * time.Second // SIGQUIT: the next start recovers from the log
	backendExitTime   = 5 * time.Second  // backends without postmaster notice by themselves
)

// clusterName marks every process of a cluster on its command line: PostgreSQL
// shows cluster_name there. It contains device and inode of the directory, so a
// copied data directory has another one. Every user may read it, even where root
// cannot read /proc/PID/cwd (containers without CAP_SYS_PTRACE).
func clusterName(dir string) (string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("embeddedpg: the identity of %s is not known on this system", dir)
	}
	return fmt.Sprintf("backbone-%x-%x", uint64(stat.Dev), stat.Ino), nil
}

// stopOrphans ends the processes of this cluster that a killed backbone left running: the
// server, or backends that outlived their server. Afterwards
// postmaster.pid does not exist or names no running process. The caller holds the data
// directory's lock, so no running backbone owns these processes.
func (d *directory) stopOrphans(ctx context.Context, name string, log *slog.Logger) error {
	lockFile := filepath.Join(d.clusterDir(), "postmaster.pid")
	pid, err := readPostmasterPID(lockFile)
	if err != nil || pid == 0 {
		return err
	}
	if processExists(pid) && isServer(pid, name) {
		log.Warn("stopping the PostgreSQL of an earlier run that was killed", "pid", pid)
		if err := stopProcess(ctx, pid, func() bool { return !isServer(pid, name) }); err != nil {
			return err
		}
	}
	// Backends of a killed server end by themselves, except those that are busy.
	// While one lives, starting a second server would damage the data.
	gone := func() bool { return len(clusterProcesses(name)) == 0 }
	if err := waitUntil(ctx, backendExitTime, gone); err != nil {
		for _, backend := range clusterProcesses(name) {
			log.Warn("ending a PostgreSQL backend that outlived its server", "pid", backend)
			_ = syscall.Kill(backend, syscall.SIGQUIT)
		}
		if err := waitUntil(ctx, immediateStopTime, gone); err != nil {
			return fault.New(fault.FailedPrecondition, "dev.data_directory_in_use",
				"PostgreSQL processes %v of an earlier run still work in %s and do not end. End them, then start again.",
				clusterProcesses(name), d.clusterDir()).WithCause(err)
		}
	}
	// A process that ends loses its title before its shared memory, and PostgreSQL refuses to
	// start while the memory is attached. If it stays attached, PostgreSQL reports that itself.
	if detached := func() bool { return !isMemoryAttached(lockFile) }; !detached() {
		log.Info("waiting until the shared memory of an earlier PostgreSQL is released")
		if err := waitUntil(ctx, immediateStopTime, detached); err != nil && ctx.Err() != nil {
			return err
		}
	}
	if pid, err = readPostmasterPID(lockFile); err != nil || pid == 0 || !processExists(pid) {
		return err // PostgreSQL itself replaces a stale lock file
	}
	if d.isForeignServer(pid) {
		return inUse(d.root, strconv.Itoa(pid))
	}
	// An unrelated program has the process id by now; PostgreSQL would take that program for its
	// server and refuse to start.
	log.Warn("removing a stale postmaster.pid", "pid", pid)
	return os.Remove(lockFile)
}

// isForeignServer reports whether a process is a PostgreSQL server in this cluster that another
// program started. In doubt it returns true.
func (d *directory) isForeignServer(pid int) bool {
	program, _, _ := strings.Cut(commandLine(pid), " ")
	switch filepath.Base(program) {
	case "postgres", "postmaster", "postgres:":
	default:
		return false
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return true
	}
	ours, err := os.Stat(d.clusterDir())
	return err != nil || os.SameFile(theirs, ours)
}

// readPostmasterPID reads the first line of postmaster.pid; 0 when there is no
// such file or it is empty (a machine that lost power).
func readPostmasterPID(path string) (int, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("embeddedpg: reading postmaster.pid: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 1 {
		return 0, nil //nolint:nilerr // an unreadable number names no process; PostgreSQL itself decides what to do with the file
	}
	return pid, nil
}

// isMemoryAttached reports whether a process has the shared memory that postmaster.pid names
// in its seventh line, by key and id. False where the system does not list such memory.
func isMemoryAttached(lockFile string) bool {
	text, err := os.ReadFile(lockFile)
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 7 {
		return false
	}
	named := strings.Fields(lines[6])
	list, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil || len(named) != 2 {
		return false
	}
	const key, id, attached = 0, 1, 6
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) > attached && sameWord(f[key], named[0]) && f[id] == named[1] {
			return f[attached] != "0"
		}
	}
	return false
}

// sameWord compares 32-bit keys, which PostgreSQL writes unsigned and the system signed.
func sameWord(signed, unsigned string) bool {
	s, err := strconv.ParseInt(signed, 10, 32)
	u, otherErr := strconv.ParseUint(unsigned, 10, 64)
	return err == nil && otherErr == nil && uint32(s) == uint32(u) //nolint:gosec // the same bits
}

// processExists reports whether a process exists, of any user.
func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// isServer reports whether a process is the server that this package started for
// the cluster of that name.
func isServer(pid int, name string) bool {
	return strings.Contains(commandLine(pid)+" ", "cluster_name="+name+" ")
}

// clusterProcesses lists the processes of a cluster, by their titles. It is empty
// where there is no /proc.
func clusterProcesses(name string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if line := commandLine(pid); strings.HasPrefix(line, "postgres: "+name+": ") || isServer(pid, name) {
			out = append(out, pid)
		}
	}
	return out
}

// commandLine is a process's title with blanks between the arguments; empty if
// it has ended.
func commandLine(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return string(bytes.ReplaceAll(bytes.TrimRight(text, "\x00 "), []byte{0}, []byte{' '}))
}

// stopProcess ends a server: by a fast shutdown, then by an immediate one.
func stopProcess(ctx context.Context, pid int, gone func() bool) error {
	steps := []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, fastStopTime}, {syscall.SIGQUIT, immediateStopTime}}
	var err error
	for _, step := range steps {
		if killErr := syscall.Kill(pid, step.signal); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
			return fmt.Errorf("embeddedpg: stopping PostgreSQL process %d: %w", pid, killErr)
		}
		if err = waitUntil(ctx, step.wait, gone); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fault.New(fault.FailedPrecondition, "dev.data_directory_in_use",
		"PostgreSQL process %d of an earlier run does not end. End it, then start again.", pid).WithCause(err)
}

// waitUntil polls a condition, because the end of other processes sends no signal to this one.
func waitUntil(ctx context.Context, limit time.Duration, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
