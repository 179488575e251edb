package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Names of the folders of drills begin so. Those that a user keeps get another name at the end, so that no drill removes them.
const (
	drillFolderPrefix = "backbone-drill-"
	keptDrillPrefix   = "backbone-kept-drill-"
	drillLock         = "drill.lock"
)

// drillReserve is the space for what PostgreSQL writes into the copy: WAL, and rows of the receipts.
const drillReserve = 512 << 20

// drillFolder is the folder of a running drill, for its user alone. A lock on a file in it tells it from one that a killed
// drill left.
type drillFolder struct {
	path string
	lock *os.File
	kept bool
}

// newDrillFolder makes a folder for a copy of a size. Fault drill.no_space (FailedPrecondition): the disk is too small.
func newDrillFolder(parent string, bytes int64, isKept bool) (*drillFolder, error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(parent, &disk); err != nil {
		return nil, workFolderUnusable(err)
	}
	need, free := uint64(bytes)+drillReserve, disk.Bavail*uint64(disk.Bsize) //nolint:gosec // neither is negative
	if free < need {
		return nil, fault.New(fault.FailedPrecondition, "drill.no_space",
			"the copy needs %d MB and %s has %d MB free; name a folder on a larger disk with --work", need>>20, parent, free>>20).WithNumbers(need, free)
	}
	path, err := os.MkdirTemp(parent, drillFolderPrefix)
	if err != nil {
		return nil, workFolderUnusable(err)
	}
	lock, err := lockDrillFolder(path)
	if err != nil {
		return nil, workFolderUnusable(errors.Join(err, os.RemoveAll(path)))
	}
	return &drillFolder{path, lock, isKept}, nil
}

func workFolderUnusable(err error) error {
	return fault.New(fault.FailedPrecondition, "drill.work_unusable", "no folder can be made for the copy: %s. Name another place with --work", err).WithCause(err)
}

// lockDrillFolder locks a folder until the file is closed or the process ends.
func lockDrillFolder(path string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(path, drillLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// at is a path in the folder.
func (f *drillFolder) at(elements ...string) string {
	return filepath.Join(append([]string{f.path}, elements...)...)
}

// end removes the folder, or gives a kept one, and the password in it, to the user of its PostgreSQL.
func (f *drillFolder) end() error {
	defer func() { _ = f.lock.Close() }()
	if !f.kept {
		return os.RemoveAll(f.path)
	}
	parent, name := filepath.Split(f.path)
	kept := filepath.Join(parent, keptDrillPrefix+strings.TrimPrefix(name, drillFolderPrefix))
	if err := os.Rename(f.path, kept); err != nil {
		return err
	}
	f.path = kept
	var copied syscall.Stat_t
	if err := syscall.Stat(f.at("pg"), &copied); err != nil { // the drill failed before
		return fmt.Errorf("%s has no copy: %w", f.path, err)
	}
	owner, group := int(copied.Uid), int(copied.Gid)
	if err := os.Lchown(f.at("postgres.json"), owner, group); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Lchown(f.path, owner, group)
}

// removeKilledDrills removes what drills of this user left that were killed, and the servers that still run on it.
func removeKilledDrills(ctx context.Context, parent string, out io.Writer) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return workFolderUnusable(err)
	}
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		if !strings.HasPrefix(entry.Name(), drillFolderPrefix) || !isOwnFolder(path) {
			continue
		}
		lock, err := lockDrillFolder(path)
		if err != nil {
			continue // a drill works there
		}
		err = embeddedpg.Discard(ctx, embeddedpg.Config{DataDir: path})
		_ = lock.Close()
		if err != nil {
			return fmt.Errorf("removing %s, which a killed drill left: %w", path, err)
		}
		fmt.Fprintf(out, "Removed %s, which a killed drill left.\n", path)
	}
	return nil
}

// isOwnFolder reports whether a path is a folder of this user, and no link, since other users may write to the folder of
// temporary files too.
func isOwnFolder(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}
