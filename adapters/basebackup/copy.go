package basebackup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// chunk is what is copied between two looks at the context.
const chunk = 8 << 20

// CopyTo copies the data directory of the backup into a folder, which it makes, with a manifest beside it. Modes and
// owners are not kept: all files are for the caller alone. progress is called with the bytes copied so far. Faults:
//
//	drill.backup_damaged     Invalid: an archive is cut off or changed
//	drill.backup_linked      FailedPrecondition: a part of the backup lies elsewhere, such as a tablespace
//	drill.backup_unreadable  FailedPrecondition
func (b Backup) CopyTo(ctx context.Context, folder string, progress func(done int64)) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder) // so that no name in an archive leads out of the folder
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	c := copying{ctx: ctx, root: root, progress: progress}
	if b.base == "" {
		return c.folder(b.Path, ".")
	}
	entries, err := os.ReadDir(b.Path)
	if err != nil {
		return unreadable(err)
	}
	for _, entry := range entries {
		if tablespaceArchive.MatchString(entry.Name()) {
			return linked(entry.Name())
		}
	}
	if err := c.archive(filepath.Join(b.Path, b.base), "."); err != nil {
		return err
	}
	wal := filepath.Join(b.Path, strings.Replace(b.base, "base", walFolder, 1))
	if _, err := os.Stat(wal); err == nil { // else it is in the base archive, or comes from an archive of WAL
		if err := c.archive(wal, walFolder); err != nil {
			return err
		}
	}
	if exists(b.Path, manifestFile) {
		return c.file(filepath.Join(b.Path, manifestFile), manifestFile)
	}
	return nil
}

// tablespaceArchive is the name of an archive of pg_basebackup with a tablespace, and not with the data directory.
var tablespaceArchive = regexp.MustCompile(`^[0-9]+\.tar(\.[a-z0-9]+)?$`)

// leadsElsewhere reports whether PostgreSQL would follow a file of a data directory to the folder of a tablespace, which is
// that of the original.
func leadsElsewhere(name string, size int64) bool {
	return name == "tablespace_map" && size > 0 || strings.HasPrefix(name, "pg_tblspc/")
}

// copying is a copy in progress.
type copying struct {
	ctx      context.Context
	root     *os.Root
	progress func(done int64)
	done     int64
}

// folder copies what is in a folder into a folder of the copy.
func (c *copying) folder(from, to string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return unreadable(err)
		}
		relative, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := path.Join(to, filepath.ToSlash(relative))
		info, err := entry.Info()
		switch {
		case err != nil:
			return unreadable(err)
		case leadsElsewhere(target, info.Size()):
			return linked(target)
		case entry.IsDir():
			return c.root.MkdirAll(target, 0o700)
		case entry.Type().IsRegular():
			return c.file(name, target)
		case target == walFolder: // a link, as of initdb --waldir
			resolved, err := filepath.EvalSymlinks(name)
			if err != nil {
				return unreadable(err)
			}
			return c.folder(resolved, target)
		case entry.Type()&fs.ModeSymlink != 0:
			return linked(target)
		}
		return nil // a socket
	})
}

func linked(name string) error {
	return fault.New(fault.FailedPrecondition, "drill.backup_linked",
		"%s of the backup leads to another folder, as tablespaces do, and the drill writes to no other folder than its own. Restore this backup by hand, or move the tablespace into the data directory", name)
}

func (c *copying) file(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return unreadable(err)
	}
	defer func() { _ = in.Close() }()
	return c.write(to, in, unreadable)
}

// write copies a file. failed explains that it cannot be read.
func (c *copying) write(name string, in io.Reader, failed func(error) error) error {
	out, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	from := reading{in: in}
	for err == nil {
		if err = c.ctx.Err(); err != nil {
			break
		}
		var n int64
		n, err = io.CopyN(out, &from, chunk)
		c.done += n
		c.progress(c.done)
	}
	if errors.Is(err, io.EOF) && from.failure == nil {
		return out.Close()
	}
	if from.failure != nil {
		err = failed(from.failure)
	}
	return errors.Join(err, out.Close())
}

// reading tells failures of the source from those of the copy.
type reading struct {
	in      io.Reader
	failure error
}

func (r *reading) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failure = err
	}
	return n, err
}

// archive unpacks a tar archive into a folder of the copy.
func (c *copying) archive(name, to string) error {
	file, err := os.Open(name)
	if err != nil {
		return unreadable(err)
	}
	defer func() { _ = file.Close() }()
	broken := func(err error) error {
		return damaged(filepath.Base(name) + " is cut off or was changed").WithCause(err)
	}
	var in io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return broken(err)
		}
	}
	for entries := tar.NewReader(in); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return broken(err)
		}
		if !filepath.IsLocal(entry.Name) {
			return broken(fmt.Errorf("%s is no name in a data directory", entry.Name))
		}
		target := path.Join(to, entry.Name)
		if leadsElsewhere(target, entry.Size) {
			return linked(target)
		}
		switch entry.Typeflag {
		case tar.TypeDir:
			err = c.root.MkdirAll(target, 0o700)
		case tar.TypeReg:
			if err = c.root.MkdirAll(path.Dir(target), 0o700); err == nil {
				err = c.write(target, entries, broken)
			}
		default:
			err = linked(target)
		}
		if err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // up to the checksum at the end
		return broken(err)
	}
	return nil
}
