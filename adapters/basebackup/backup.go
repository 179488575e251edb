package basebackup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Names of files of a backup.
const (
	manifestFile = "backup_manifest"
	labelFile    = "backup_label"
	versionFile  = "PG_VERSION"
	walFolder    = "pg_wal"
)

// Backup is a complete base backup.
type Backup struct {
	Path    string    // folder
	Started time.Time // when PostgreSQL began to make it
	Bytes   int64     // of its files after they are unpacked; without a manifest, as they lie there
	base    string    // name of the archive with the data directory; "": Path is the data directory
}

// Format is plain or tar, as pg_basebackup calls it.
func (b Backup) Format() string {
	if b.base == "" {
		return "plain"
	}
	return "tar"
}

// Skipped is an entry of a folder of backups that is no complete backup.
type Skipped struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Newest returns the base backup in a folder that was begun last. The folder has a folder for each backup, or is itself
// the data directory that a tool restored from a backup. Other entries, and backups without backup_manifest, which
// pg_basebackup writes last, are skipped and returned. Faults:
//
//	drill.backup_missing     NotFound: the folder has no complete backup
//	drill.backup_damaged     Invalid: backup_manifest or backup_label of the newest cannot be understood
//	drill.backup_unreadable  FailedPrecondition: a folder cannot be read
func Newest(folder string) (Backup, []Skipped, error) {
	if exists(folder, versionFile) {
		b, reason, err := open(folder, false)
		if reason != "" {
			err = fault.New(fault.NotFound, "drill.backup_missing", "the folder of --backups is a data directory and no backup: %s. Name a folder with base backups, or one that a backup was restored to and never started", reason)
		}
		return b, nil, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return Backup{}, nil, unreadable(err)
	}
	var found []Backup
	var skipped []Skipped
	type unknown struct {
		name string
		err  error
	}
	var broken []unknown // backups that do not say when they were begun
	for _, entry := range entries {
		if entry.Type()&fs.ModeSymlink != 0 {
			skipped = append(skipped, Skipped{entry.Name(), "it is a link; name its target with --backups"})
		}
		if !entry.IsDir() {
			continue
		}
		b, reason, err := open(filepath.Join(folder, entry.Name()), true)
		switch {
		case fault.CodeOf(err) == "drill.backup_damaged":
			broken = append(broken, unknown{entry.Name(), err})
		case err != nil:
			return Backup{}, nil, err
		case reason != "":
			skipped = append(skipped, Skipped{entry.Name(), reason})
		default:
			found = append(found, b)
		}
	}
	newest := Backup{}
	if len(found) > 0 {
		newest = slices.MaxFunc(found, func(a, b Backup) int { return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.Path, b.Path)) })
	}
	for _, b := range broken {
		info, err := os.Stat(filepath.Join(folder, b.name))
		if err != nil || info.ModTime().After(newest.Started) {
			return Backup{}, nil, fmt.Errorf("%s: %w", filepath.Join(folder, b.name), b.err)
		}
		skipped = append(skipped, Skipped{b.name, "its backup_manifest cannot be understood"})
	}
	if len(found) == 0 {
		detail := "it has no folder with base.tar, or with PG_VERSION"
		if len(skipped) > 0 {
			detail = fmt.Sprintf("%d folders were skipped, such as %s: %s", len(skipped), skipped[0].Name, skipped[0].Reason)
		}
		return Backup{}, skipped, fault.New(fault.NotFound, "drill.backup_missing", "the folder of --backups has no complete base backup; %s. Make one with pg_basebackup, or name another folder", detail)
	}
	return newest, skipped, nil
}

// open reads what a folder says of the backup in it. reason is why it is no complete one.
func open(folder string, needsManifest bool) (b Backup, reason string, err error) {
	b = Backup{Path: folder}
	if _, err := os.ReadDir(folder); err != nil {
		return b, "", unreadable(err)
	}
	switch {
	case exists(folder, versionFile):
	case exists(folder, "base.tar"):
		b.base = "base.tar"
	case exists(folder, "base.tar.gz"):
		b.base = "base.tar.gz"
	default:
		return b, "it has neither PG_VERSION, nor base.tar or base.tar.gz", nil
	}
	hasManifest := exists(folder, manifestFile)
	switch {
	case exists(folder, "postmaster.pid"):
		return b, "it has a postmaster.pid, so a server runs on it, or did", nil
	case needsManifest && !hasManifest:
		return b, "it has no backup_manifest, so it is being made, or was not finished", nil
	case hasManifest:
		b.Started, b.Bytes, err = readManifest(filepath.Join(folder, manifestFile))
		return b, "", err
	case !exists(folder, labelFile):
		return b, "it has no backup_label", nil
	}
	if b.Started, err = readLabel(filepath.Join(folder, labelFile)); err != nil {
		return b, "", err
	}
	b.Bytes, err = sizeOf(folder)
	return b, "", err
}

func exists(folder, name string) bool {
	info, err := os.Stat(filepath.Join(folder, name))
	return err == nil && info.Mode().IsRegular()
}

// manifestTime is the form of times in a manifest, which are all in GMT.
const manifestTime = "2006-01-02 15:04:05 GMT"

// readManifest returns when the backup was begun, which is when backup_label was made, and the size of the files and of
// the WAL that the backup needs.
func readManifest(path string) (started time.Time, bytes int64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return started, 0, unreadable(err)
	}
	var manifest struct {
		Files []struct {
			Path         string
			Size         int64
			LastModified string `json:"Last-Modified"`
		}
		WAL []struct {
			Start string `json:"Start-LSN"`
			End   string `json:"End-LSN"`
		} `json:"WAL-Ranges"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return started, 0, damaged("backup_manifest is not whole").WithCause(err)
	}
	for _, f := range manifest.Files {
		bytes += f.Size
		if f.Path == labelFile {
			if started, err = time.Parse(manifestTime, f.LastModified); err != nil {
				return started, 0, damaged("backup_manifest does not say when the backup was made").WithCause(err)
			}
		}
	}
	for _, r := range manifest.WAL {
		start, startErr := parseLSN(r.Start)
		end, endErr := parseLSN(r.End)
		if err := errors.Join(startErr, endErr); err != nil {
			return started, 0, damaged("backup_manifest names no range of WAL").WithCause(err)
		}
		bytes += int64(end - start) //nolint:gosec // far below the limit
	}
	if started.IsZero() {
		return started, 0, damaged("backup_manifest has no backup_label")
	}
	return started, bytes, nil
}

// parseLSN reads a position in the WAL, such as 16/B374D848.
func parseLSN(text string) (uint64, error) {
	high, low, _ := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	if err != nil {
		return 0, err
	}
	l, err := strconv.ParseUint(low, 16, 32)
	return h<<32 | l, err
}

// readLabel returns the start of a backup without a manifest. Its zone is the log_timezone of the server.
func readLabel(path string) (time.Time, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, unreadable(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "START TIME: "); found {
			started, err := time.Parse("2006-01-02 15:04:05 MST", strings.TrimSpace(value))
			if err != nil {
				return started, damaged("backup_label has no readable START TIME").WithCause(err)
			}
			return started.UTC(), nil
		}
	}
	return time.Time{}, damaged("backup_label has no START TIME")
}

// sizeOf adds up the files of a folder.
func sizeOf(folder string) (bytes int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, unreadable(err)
}

func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "drill.backup_unreadable", "the backup cannot be read: %s. Run the drill as a user who may read all of it", err).WithCause(err)
}

func damaged(what string) *fault.Error {
	return fault.New(fault.Invalid, "drill.backup_damaged", "the backup is damaged: %s. Do not rely on it: take another backup now, then find out what happened to this one", what)
}
