package kmsd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	directoryMode = 0o700
	fileMode      = 0o600
	temporary     = ".tmp-" // prefix of a file that is not renamed yet
)

// directory is the folder of the keys.
type directory struct {
	path string
	lock *os.File
	// beforeRename is called when a file is written and synced but not yet renamed; tests
	// crash there.
	beforeRename func()
}

// openDirectory makes the folder if needed and locks it for this process.
func openDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(path, directoryMode); err != nil {
		return nil, fmt.Errorf("make the key folder: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("stat the key folder: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fault.New(fault.FailedPrecondition, "kmsd.keys_exposed",
			"the key folder %s is open to other users (mode %04o); make it 0700, and if another user had access, rotate its keys", path, info.Mode().Perm())
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the key folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fault.New(fault.FailedPrecondition, "kmsd.keys_in_use", "another server uses the key folder %s; stop it or choose another folder", path)
		}
		return nil, fmt.Errorf("lock the key folder: %w", err)
	}
	d := &directory{path: path, lock: lock, beforeRename: func() {}}
	if err := d.removeUnfinished(); err != nil {
		_ = d.close()
		return nil, err
	}
	return d, nil
}

// close releases the lock. Closing the file alone does not release it as long as a child
// process between fork and exec still has a copy of the descriptor.
func (d *directory) close() error {
	return errors.Join(syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN), d.lock.Close())
}

// removeUnfinished removes the files that a crash left between writing and renaming. No
// caller was told that they exist.
func (d *directory) removeUnfinished() error {
	names, err := d.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, temporary) {
			if err := d.remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *directory) names() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list the key folder: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// write replaces a file atomically, so that after a crash it is there completely or not
// at all: temporary file, sync, rename, sync of the folder.
func (d *directory) write(name string, content []byte) error {
	file, err := os.CreateTemp(d.path, temporary+"*") // CreateTemp makes it 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		d.beforeRename()
		err = os.Rename(file.Name(), filepath.Join(d.path, name))
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return d.sync()
}

// read returns a file's content. It refuses a file that other users may read.
func (d *directory) read(name string) ([]byte, error) {
	path := filepath.Join(d.path, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, fault.New(fault.FailedPrecondition, "kmsd.keys_exposed",
			"%s is no plain file of mode 0600; set its mode, and if another user had access, rotate the key", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}

// remove unlinks a file durably. A file that is not there is no error.
func (d *directory) remove(name string) error {
	if err := os.Remove(filepath.Join(d.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return d.sync()
}

// sync makes names in the folder durable.
func (d *directory) sync() error {
	folder, err := os.Open(d.path)
	if err != nil {
		return fmt.Errorf("sync the key folder: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("sync the key folder: %w", err)
	}
	return nil
}
