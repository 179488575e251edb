package embeddedpg

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/erpbackbone/backbone/domain/fault"
)

// directory is a data directory whose lock this process holds.
type directory struct {
	root string // the caller's data directory, absolute
	lock *os.File
}

// state is stored next to the cluster between starts.
type state struct {
	Port              int    `json:"port"`
	SuperuserPassword string `json:"superuser_password"`
}

func (d *directory) pgDir() string         { return filepath.Join(d.root, "pg") }
func (d *directory) clusterDir() string    { return filepath.Join(d.pgDir(), "data") }
func (d *directory) ephemeralMark() string { return filepath.Join(d.pgDir(), "ephemeral") }
func (d *directory) logFile() string       { return filepath.Join(d.pgDir(), "postgresql.log") }
func (d *directory) stateFile() string     { return filepath.Join(d.root, "postgres.json") }

// openDirectory creates the data directory when it is missing and takes its
// lock. The lock belongs to the open file, so it ends with this process, even if the
// process is killed, and PostgreSQL does not inherit it.
func openDirectory(path string) (*directory, error) {
	if path == "" {
		return nil, errors.New("embeddedpg: no data directory given")
	}
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("embeddedpg: data directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, "PG_VERSION")); err == nil {
		return nil, fault.New(fault.FailedPrecondition, "dev.data_directory_foreign",
			"%s is itself a PostgreSQL cluster, which backbone did not make; nothing was changed. Choose another data directory.", root)
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, directoryError(root, err)
	}
	lock, err := os.OpenFile(filepath.Join(root, "backbone.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, directoryError(root, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("embeddedpg: locking the data directory: %w", err)
		}
		return nil, inUse(root, lockHolder(lock))
	}
	d := &directory{root: root, lock: lock}
	// The process id is for the message of a refused start; the lock does not depend on it.
	if err := errors.Join(lock.Truncate(0), writeAt(lock, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return nil, errors.Join(directoryError(root, err), d.release())
	}
	return d, nil
}

// unfinishedPrefix begins the names of folders in which clusters are made.
const unfinishedPrefix = "data.initializing"

// removeUnfinished removes the folders of killed starts. The initdb of one may still be writing
// there; the next start that makes a cluster removes what it leaves.
func (d *directory) removeUnfinished() {
	entries, _ := os.ReadDir(d.pgDir()) // if the folder cannot be read, the next step that needs it fails
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), unfinishedPrefix) {
			_ = os.RemoveAll(filepath.Join(d.pgDir(), entry.Name()))
		}
	}
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// release releases the lock. Closing the file alone would not release it while a child of this
// process has a copy of it, between fork and exec. The file stays: if it were deleted, two
// owners could lock two files of the same name.
func (d *directory) release() error {
	return errors.Join(syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN), d.lock.Close())
}

// lockHolder is the process id written into a lock file, or "unknown".
func lockHolder(lock *os.File) string {
	buffer := make([]byte, 32)
	n, _ := lock.ReadAt(buffer, 0)
	if text := strings.TrimSpace(string(buffer[:n])); text != "" {
		return text
	}
	return "unknown"
}

func inUse(root, pid string) error {
	return fault.New(fault.FailedPrecondition, "dev.data_directory_in_use",
		"The data directory %s is in use by process %s. Stop that process, or choose another data directory.", root, pid).
		With("pid", pid)
}

// directoryError explains why the data directory cannot be used.
func directoryError(root string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fault.New(fault.FailedPrecondition, "dev.data_directory_owner",
			"The data directory %s cannot be written by this user. Start as the user who owns it, or choose another data directory.", root).WithCause(err)
	}
	return fault.New(fault.FailedPrecondition, "dev.data_directory_unusable",
		"The data directory %s cannot be used: %s. Choose another data directory.", root, err).WithCause(err)
}

// major is the major version that made the cluster, 0 when there is none yet.
func (d *directory) major() (int, error) {
	if _, err := os.Stat(d.clusterDir()); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, directoryError(d.root, err)
	}
	text, err := os.ReadFile(filepath.Join(d.clusterDir(), "PG_VERSION"))
	if errors.Is(err, os.ErrPermission) {
		return 0, directoryError(d.root, err)
	}
	major, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		return 0, fault.New(fault.FailedPrecondition, "dev.data_directory_damaged",
			"%s has no readable PG_VERSION, so it is not a complete PostgreSQL cluster; nothing was changed. "+
				"Restore it from a backup, or choose another data directory.", d.clusterDir()).WithCause(errors.Join(err, parseErr))
	}
	return major, nil
}

// loadState reads the kept port and password. A directory without a cluster gets
// a new password; one with a cluster must have kept its own.
func (d *directory) loadState(hasCluster bool) (state, error) {
	text, err := os.ReadFile(d.stateFile())
	if errors.Is(err, os.ErrNotExist) && !hasCluster {
		password, err := newPassword()
		return state{SuperuserPassword: password}, err
	}
	var s state
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && s.SuperuserPassword == "" {
		err = errors.New("no superuser password")
	}
	if errors.Is(err, os.ErrPermission) {
		return s, directoryError(d.root, err)
	}
	if err != nil {
		return s, fault.New(fault.FailedPrecondition, "dev.data_directory_damaged",
			"%s is missing or not readable, and with it the password of the cluster beside it; nothing was changed. "+
				"Restore the file from a backup, or choose another data directory.", d.stateFile()).WithCause(err)
	}
	return s, nil
}

func (d *directory) saveState(s state) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(d.stateFile(), append(text, '\n'), nil)
}

// newPassword has 192 random bits and needs no escaping in a URL.
func newPassword() (string, error) {
	var raw [24]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(raw[:]), nil
}

// replaceFile writes a private file in one step, so that a killed process leaves
// the old one or the new one, and gives it to the owner.
func replaceFile(path string, content []byte, owner *owner) error {
	next := path + ".new"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	if err := owner.own(next); err != nil {
		return err
	}
	return os.Rename(next, path)
}
