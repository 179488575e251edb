package exportdir

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	folderMode = 0o700
	fileMode   = 0o400

	// unfinished begins the names of files that are being written. No document's name
	// begins with a dot.
	unfinished = ".writing-"
	// abandonedAfter is the age from which such a file counts as left by a crash.
	abandonedAfter = time.Hour
)

// names are slash-separated paths of plain elements that begin with no dot.
var names = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)

const (
	maxName = 1000
	maxSize = 64 << 20 // of a document that is read
)

// Store implements ports.ExportStore. Several processes, also on several machines,
// may use one folder if its file system has hard links and its fsync is
// durable. Safe for concurrent use.
//
// Faults in addition to those of the port: export.name_invalid (Internal) and
// export.unavailable (Unavailable) when the folder cannot be read or written.
type Store struct{ folder string }

var _ ports.ExportStore = (*Store)(nil)

// Open makes the folder if it is absent and removes the unfinished files of crashes.
func Open(folder string) (*Store, error) {
	if folder == "" {
		return nil, fault.New(fault.Invalid, "export.folder_missing", "the export store has no folder; set erasure.export_directory")
	}
	s, err := At(folder)
	if err != nil {
		return nil, err
	}
	if err := makeFolder(s.folder); err != nil {
		return nil, unavailable(err)
	}
	return s, s.removeUnfinished(time.Now().Add(-abandonedAfter))
}

// At is Open for a folder that need not be there now: all calls fail while it is not.
func At(folder string) (*Store, error) {
	folder, err := filepath.Abs(folder)
	return &Store{folder: folder}, unavailable(err)
}

// removeUnfinished removes unfinished files that were written before a moment. If their
// writer is still alive, its os.Link fails and PutIfAbsent returns export.unavailable.
func (s *Store) removeUnfinished(before time.Time) error {
	return s.walk(s.folder, func(path string, entry fs.DirEntry) error {
		if !strings.HasPrefix(entry.Name(), unfinished) {
			return nil
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process cleared it
		}
		return err
	})
}

// PutIfAbsent implements ports.ExportStore. It writes and syncs the document under a
// temporary name, then links it to its own name, which fails if that exists.
func (s *Store) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	path, err := s.path(ctx, name)
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	if err := s.makeInside(folder); err != nil {
		return unavailable(err)
	}
	temporary, err := write(folder, content)
	if err != nil {
		return unavailable(err)
	}
	err = os.Link(temporary, path)
	removed := os.Remove(temporary)
	if errors.Is(err, fs.ErrExist) {
		stored, readErr := os.ReadFile(path)
		if readErr != nil {
			return unavailable(readErr)
		}
		if !bytes.Equal(stored, content) {
			return fault.New(fault.Conflict, "export.name_taken", "the export store has another document of this name already, and documents are never replaced; look who wrote it")
		}
		err = nil
	}
	// If another process linked the name first, it may not have synced yet.
	return unavailable(errors.Join(err, removed, syncFolder(folder)))
}

// write makes a synced file under a unique temporary name.
func write(folder string, content []byte) (path string, err error) {
	f, err := os.CreateTemp(folder, unfinished+"*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(fileMode), f.Sync(), f.Close())
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return f.Name(), err
}

// Get implements ports.ExportStore.
func (s *Store) Get(ctx context.Context, name string) ([]byte, error) {
	path, err := s.path(ctx, name)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.Size() > maxSize {
		return nil, fault.New(fault.TooLarge, "export.too_large", "a document of the export store has more than 64 MiB; find out who wrote it")
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.checkMounted(); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.NotFound, "export.not_found", "the export store has no document of this name; list the names")
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return content, nil
}

// List implements ports.ExportStore. The prefix is one of names, such as
// "receipts/".
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	if err := s.checkMounted(); err != nil {
		return nil, err
	}
	start := prefix[:max(strings.LastIndexByte(prefix, '/'), 0)]
	if start != "" && !names.MatchString(start) {
		return nil, invalidName()
	}
	out := []string{}
	err := s.walk(filepath.Join(s.folder, filepath.FromSlash(start)), func(path string, entry fs.DirEntry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		relative, err := filepath.Rel(s.folder, path)
		if err != nil {
			return err
		}
		if name := filepath.ToSlash(relative); strings.HasPrefix(name, prefix) && names.MatchString(name) && entry.Type().IsRegular() {
			out = append(out, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(out)
	return out, nil
}

// walk visits the files below a folder, which may be absent.
func (s *Store) walk(folder string, visit func(path string, entry fs.DirEntry) error) error {
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process removed it
			return nil
		case err != nil, entry.IsDir():
			return err
		}
		return visit(path, entry)
	})
	return unavailable(err)
}

// Delete implements ports.ExportStore.
func (s *Store) Delete(ctx context.Context, name string) error {
	path, err := s.path(ctx, name)
	if err != nil {
		return err
	}
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.checkMounted()
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	return unavailable(err)
}

// path returns where a document lies. It fails if ctx has ended.
func (s *Store) path(ctx context.Context, name string) (string, error) {
	if len(name) > maxName || !names.MatchString(name) {
		return "", invalidName()
	}
	if err := ctx.Err(); err != nil {
		return "", unavailable(err)
	}
	return filepath.Join(s.folder, filepath.FromSlash(name)), nil
}

// checkMounted fails if the folder is gone: an empty store would look the same as a share
// that is not mounted any more.
func (s *Store) checkMounted() error {
	info, err := os.Stat(s.folder)
	if err == nil && !info.IsDir() {
		err = fs.ErrInvalid
	}
	return unavailable(err)
}

// makeInside makes a folder inside the store, but never the store itself: if that is
// gone, the share is not mounted.
func (s *Store) makeInside(folder string) error {
	if err := s.checkMounted(); err != nil {
		return err
	}
	return makeFolder(folder)
}

// makeFolder makes a folder and those above it, each synced into its parent.
func makeFolder(folder string) error {
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(folder)
	if parent != folder {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(folder, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(parent)
}

func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func invalidName() error {
	return fault.New(fault.Internal, "export.name_invalid", "names in the export store are paths of letters, digits and . _ - without a leading dot; report this defect")
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	if f, ok := fault.As(err); ok {
		return f
	}
	return fault.New(fault.Unavailable, "export.unavailable", "the folder of the export store cannot be read or written; check that it is mounted, writable and not full").WithCause(err)
}
