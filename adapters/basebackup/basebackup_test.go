package basebackup_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/basebackup"
	"github.com/erpbackbone/backbone/domain/fault"
)

// manifest is that of a backup with one file and 16 bytes of WAL.
func manifest(started string) string {
	return fmt.Sprintf(`{"PostgreSQL-Backup-Manifest-Version":1,"Files":[{"Path":"backup_label","Size":200,"Last-Modified":%q}],
		"WAL-Ranges":[{"Timeline":1,"Start-LSN":"0/FFFFFFF8","End-LSN":"1/8"}]}`, started+" GMT")
}

// write makes files of a folder, and the folders on the way.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

func TestNewest(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	_, _, err := basebackup.Newest(folder)
	require.Equal(t, "drill.backup_missing", fault.CodeOf(err))
	write(t, folder, map[string]string{
		"zebra/base.tar": "", "zebra/backup_manifest": manifest("2026-11-27 02:00:00"),
		"apple/PG_VERSION": "15\n", "apple/backup_manifest": manifest("2026-11-28 02:00:00"),
		"running/PG_VERSION": "15\n", "running/postmaster.pid": "1\n", "running/backup_manifest": manifest("2026-11-29 02:00:00"),
		"unfinished/base.tar.gz": "", "wal/000000010000000000000001": "", "notes.txt": "",
	})
	newest, skipped, err := basebackup.Newest(folder)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(folder, "apple"), newest.Path)
	require.Equal(t, time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC), newest.Started)
	require.EqualValues(t, 216, newest.Bytes)
	require.Equal(t, "plain", newest.Format())
	names := []string{}
	for _, s := range skipped {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"running", "unfinished", "wal"}, names)

	write(t, folder, map[string]string{"cut/PG_VERSION": "15\n", "cut/backup_manifest": manifest("2026-11-28 02:00:00")[:50]})
	_, _, err = basebackup.Newest(folder)
	require.Equal(t, "drill.backup_damaged", fault.CodeOf(err), "a damaged one is not passed over")
	require.ErrorContains(t, err, filepath.Join(folder, "cut"))
	before := newest.Started.Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(folder, "cut"), before, before))
	require.NoError(t, os.Symlink(filepath.Join(folder, "apple"), filepath.Join(folder, "latest")))
	newest, skipped, err = basebackup.Newest(folder)
	require.NoError(t, err, "an older one is")
	require.Equal(t, filepath.Join(folder, "apple"), newest.Path)
	require.Len(t, skipped, 5)
}

func TestNewest_restoredDirectory(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, folder, map[string]string{"PG_VERSION": "15\n"})
	_, _, err := basebackup.Newest(folder)
	require.Equal(t, "drill.backup_missing", fault.CodeOf(err))
	write(t, folder, map[string]string{"backup_label": "START WAL LOCATION: 0/2000028\nSTART TIME: 2026-11-28 02:00:00 UTC\n"})
	b, _, err := basebackup.Newest(folder)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC), b.Started)
	require.EqualValues(t, 69, b.Bytes)
	write(t, folder, map[string]string{"postmaster.pid": "1\n"})
	_, _, err = basebackup.Newest(folder)
	require.Equal(t, "drill.backup_missing", fault.CodeOf(err), "the folder of a server is no backup")
}

// packed is a tar archive of entries.
func packed(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(e.Name))
		}
		require.NoError(t, w.WriteHeader(&e))
		if e.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(e.Name))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func compressed(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestCopyTo_tar(t *testing.T) {
	t.Parallel()
	base := compressed(t, packed(t, tar.Header{Name: "base/1", Typeflag: tar.TypeDir}, tar.Header{Name: "base/1/2", Typeflag: tar.TypeReg}, tar.Header{Name: "pg_wal", Typeflag: tar.TypeDir}))
	wal := compressed(t, packed(t, tar.Header{Name: "000000010000000000000001", Typeflag: tar.TypeReg}))
	for name, c := range map[string]struct{ base, wal, code string }{
		"sound":           {base: string(base), wal: string(wal)},
		"cut off":         {string(base[:len(base)-9]), string(wal), "drill.backup_damaged"},
		"WAL is cut off":  {string(base), string(wal[:len(wal)/2]), "drill.backup_damaged"},
		"no archive":      {"x", string(wal), "drill.backup_damaged"},
		"tablespace":      {string(compressed(t, packed(t, tar.Header{Name: "pg_tblspc/16385", Linkname: "/data", Typeflag: tar.TypeSymlink}))), string(wal), "drill.backup_linked"},
		"tablespace map":  {string(compressed(t, packed(t, tar.Header{Name: "tablespace_map", Typeflag: tar.TypeReg}))), string(wal), "drill.backup_linked"},
		"out of the copy": {string(compressed(t, packed(t, tar.Header{Name: "../x", Typeflag: tar.TypeReg}))), string(wal), "drill.backup_damaged"},
	} {
		folder, to := t.TempDir(), filepath.Join(t.TempDir(), "data")
		write(t, folder, map[string]string{"b/base.tar.gz": c.base, "b/pg_wal.tar.gz": c.wal, "b/backup_manifest": manifest("2026-11-28 02:00:00")})
		b, _, err := basebackup.Newest(folder)
		require.NoError(t, err)
		copied := int64(0)
		err = b.CopyTo(t.Context(), to, func(done int64) { copied = done })
		require.Equal(t, c.code, fault.CodeOf(err), "%s: %v", name, err)
		if c.code != "" {
			continue
		}
		require.Positive(t, copied)
		for _, file := range []string{"base/1/2", "pg_wal/000000010000000000000001", "backup_manifest"} {
			info, err := os.Stat(filepath.Join(to, file))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
		}
	}
}

func TestCopyTo_plain(t *testing.T) {
	t.Parallel()
	folder, elsewhere := t.TempDir(), t.TempDir()
	write(t, elsewhere, map[string]string{"000000010000000000000001": "wal"})
	write(t, folder, map[string]string{"b/PG_VERSION": "15\n", "b/base/1/2": "rows", "b/backup_manifest": manifest("2026-11-28 02:00:00")})
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(folder, "b", "pg_wal")))
	b, _, err := basebackup.Newest(folder)
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "data")
	require.NoError(t, b.CopyTo(t.Context(), to, func(int64) {}))
	content, err := os.ReadFile(filepath.Join(to, "pg_wal", "000000010000000000000001"))
	require.NoError(t, err)
	require.Equal(t, "wal", string(content))

	require.NoError(t, os.Symlink(elsewhere, filepath.Join(folder, "b", "base", "16385")))
	err = b.CopyTo(t.Context(), filepath.Join(t.TempDir(), "data"), func(int64) {})
	require.Equal(t, "drill.backup_linked", fault.CodeOf(err))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.CopyTo(ctx, filepath.Join(t.TempDir(), "data"), func(int64) {}), context.Canceled)
}
