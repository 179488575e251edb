package embeddedpg

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/erpbackbone/backbone/domain/fault"
)

// ended are the files of a data directory that speak of another server: its process, its standby or its recovery.
var ended = []string{"postmaster.pid", "postmaster.opts", "standby.signal", "recovery.signal"}

// socketPort names the socket, in the data directory, of a server that listens to no address.
const socketPort = 5432

// recover replays the WAL of a restored cluster and gives its superuser a password, which it keeps.
//
// Nothing that the cluster brings is obeyed: its postgresql.conf, postgresql.auto.conf, pg_hba.conf and pg_ident.conf are
// replaced, its replication slots and the settings of its roles and databases are removed. They could run commands, load
// libraries, or connect to the server that it is a copy of. Until the password is set, the server listens to no address.
//
// The superuser of a copy may have any name. A server in single-user mode needs none; it is used after recovery only,
// because the next start finds and ends a server that a killed one left, and knows no other process.
func (l *launch) recover(ctx context.Context) error {
	d := l.directory
	if err := l.isolate(); err != nil {
		return directoryError(d.root, err)
	}
	var err error
	if l.name, err = clusterName(d.clusterDir()); err != nil {
		return err
	}
	if err := l.writeConfiguration(); err != nil {
		return err
	}
	l.state.Port = socketPort
	process, logStart, err := l.run("")
	if err != nil {
		return err
	}
	l.state.Port = 0
	err = l.awaitReady(ctx, process)
	process.end(syscall.SIGINT, fastStopTime)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fault.New(fault.FailedPrecondition, "drill.recovery_failed",
			"PostgreSQL could not recover the backup: %s. If it lacks WAL, name the archive with --restore-command; else the backup is damaged: take another one now", logReason(d.logFile(), logStart, err)).WithCause(err)
	}
	if err := l.setPassword(ctx); err != nil {
		return err
	}
	return d.saveState(l.state)
}

// isolate removes what connects the cluster to the server that it is a copy of, and gives the files to the owner.
func (l *launch) isolate() error {
	dir := l.directory.clusterDir()
	for _, name := range ended {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	slots, err := filepath.Glob(filepath.Join(dir, "pg_replslot", "*"))
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if err := os.RemoveAll(slot); err != nil {
			return err
		}
	}
	empty := []string{"postgresql.auto.conf", "pg_ident.conf"}
	if l.config.RestoreCommand != "" {
		empty = append(empty, "recovery.signal")
	}
	for _, name := range empty {
		if err := replaceFile(filepath.Join(dir, name), nil, l.owner); err != nil {
			return err
		}
	}
	if l.owner != nil {
		if err := l.ownAll(dir); err != nil {
			return err
		}
	}
	// The WAL may make a tablespace, which leads to the folder of the original: recovery fails where it cannot be linked.
	links := filepath.Join(dir, "pg_tblspc")
	if err := os.MkdirAll(links, 0o700); err != nil {
		return err
	}
	return os.Chmod(links, 0o500) //nolint:gosec // a folder
}

// ownAll gives the files of a folder to the owner.
func (l *launch) ownAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return l.owner.own(path)
	})
}

// setPassword gives the superuser postgres the kept password, in single-user mode.
func (l *launch) setPassword(ctx context.Context) error {
	cmd, done, err := l.owner.command(l.installation.program("postgres"), l.directory.clusterDir(), func(dir string) []string {
		return []string{"--single", "-D", dir, "postgres"}
	})
	if err != nil {
		return directoryError(l.directory.root, err)
	}
	defer done()
	// One statement a line. The password needs no quoting, and is no argument of a process.
	// Functions, views and policies run with the rights of their owners: no role that owns something stays a superuser, or
	// may run programs or read files of the machine.
	cmd.Stdin = strings.NewReader(strings.Join([]string{
		"UPDATE pg_catalog.pg_authid SET rolname = '" + superuser + "_of_the_backup' WHERE rolname = '" + superuser + "'",
		"UPDATE pg_catalog.pg_authid SET rolsuper = false, rolreplication = false",
		"DELETE FROM pg_catalog.pg_auth_members WHERE roleid IN ('pg_execute_server_program'::regrole, 'pg_read_server_files'::regrole, 'pg_write_server_files'::regrole)",
		"CREATE ROLE " + superuser + " SUPERUSER LOGIN PASSWORD '" + l.state.SuperuserPassword + "'",
		"DELETE FROM pg_catalog.pg_db_role_setting",
	}, "\n") + "\n")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := runWithin(ctx, cmd); err != nil {
		return fault.New(fault.FailedPrecondition, "dev.postgres_start_failed",
			"PostgreSQL could not set the password of its superuser in %s: %s. Correct that and start again.", l.directory.root, lastLine(output.String())).WithCause(err)
	}
	return nil
}

// VerifyFiles compares a data directory with its backup_manifest by pg_verifybackup, but not the WAL, which a start
// replays and which a backup need not have. reason says what differs, "" if nothing does. isVerified is false if it has no
// manifest, or the programs no pg_verifybackup.
func VerifyFiles(ctx context.Context, binDir, dataDir string) (reason string, isVerified bool, err error) {
	if _, err := os.Stat(filepath.Join(dataDir, "backup_manifest")); err != nil {
		return "", false, nil //nolint:nilerr // there is nothing to compare it with
	}
	version, err := os.ReadFile(filepath.Join(dataDir, "PG_VERSION"))
	if err != nil {
		return "it has no PG_VERSION", true, nil //nolint:nilerr // every manifest has it
	}
	major, _ := strconv.Atoi(strings.TrimSpace(string(version))) // of another version the start says so
	found, err := findInstallation(binDir, major)
	if err != nil {
		return "", false, err
	}
	cmd := exec.Command(found.program("pg_verifybackup"), "--exit-on-error", "--no-parse-wal", "--quiet", dataDir)
	if _, err := os.Stat(cmd.Path); err != nil {
		return "", false, nil //nolint:nilerr // it comes with another package
	}
	cmd.Env, cmd.SysProcAttr = []string{"LC_ALL=C"}, &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer
	cmd.Stderr = &output
	err = runWithin(ctx, cmd)
	if failed := new(exec.ExitError); errors.As(err, &failed) && ctx.Err() == nil {
		_, reason, _ = strings.Cut(lastLine(output.String()), "error: ")
		return reason, true, nil
	}
	return "", err == nil, err
}

// Discard ends what a killed process left running on a data directory, and removes it. Fault dev.data_directory_in_use
// (FailedPrecondition) if a process works on it.
func Discard(ctx context.Context, config Config) error {
	d, err := openDirectory(config.DataDir)
	if err != nil {
		return err
	}
	if name, err := clusterName(d.clusterDir()); err == nil {
		if err := d.stopOrphans(ctx, name, config.logger()); err != nil {
			return errors.Join(err, d.release())
		}
	}
	return errors.Join(os.RemoveAll(d.root), d.release())
}
