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
	temporary     = ".tmp-" // names a file that was never finished
)

// directory is the folder of the keys. Files in it appear whole or not at all.
type directory struct {
	path string
	lock *os.File
	// unfinished is called when a file is written and synced but not yet in its
	// place; tests crash there.
	unfinished func()
}

// openDirectory makes the folder if needed and takes it for this process alone.
func openDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(path, directoryMode); err != nil {
		return nil, fmt.Errorf("make the key folder: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("look at the key folder: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fault.New(fault.FailedPrecondition, "kmsd.keys_exposed",
			"the key folder %s is open to others (mode %04o); make it 0700, and if others had access, rotate its keys", path, info.Mode().Perm())
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
	d := &directory{path: path, lock: lock, unfinished: func() {}}
	if err := d.removeUnfinished(); err != nil {
		_ = d.close()
		return nil, err
	}
	return d, nil
}

// close gives the lock back. Closing the file alone would not while a child that this
// process is just starting still has a copy of it, between fork and exec.
func (d *directory) close() error {
	return errors.Join(syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN), d.lock.Close())
}

// removeUnfinished drops what a crash left between writing and renaming: nobody
// was ever told that such a file exists.
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

// write puts a file in place so that it is there whole after a crash, or not at
// all: temporary file, sync, rename, sync of the folder.
func (d *directory) write(name string, content []byte) error {
	file, err := os.CreateTemp(d.path, temporary+"*") // CreateTemp makes it 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		d.unfinished()
		err = os.Rename(file.Name(), filepath.Join(d.path, name))
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return d.sync()
}

// read gives a file's content and refuses one that others may read.
func (d *directory) read(name string) ([]byte, error) {
	path := filepath.Join(d.path, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, fault.New(fault.FailedPrecondition, "kmsd.keys_exposed",
			"%s is no plain file of mode 0600; set its mode, and if others had access, rotate the key", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}

// remove unlinks a file for good; one that is gone already is fine.
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
	err = folder.Sync()
	if closeErr := folder.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("sync the key folder: %w", err)
	}
	return nil
}
