package exportdir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/conformance"
)

func open(t *testing.T) (*exportdir.Store, string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "outside", "exports")
	s, err := exportdir.Open(folder)
	require.NoError(t, err)
	return s, folder
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.RunExportStore(t, func(t *testing.T) conformance.ExportStoreHarness {
		store, folder := open(t)
		other, err := exportdir.Open(folder)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
				require.False(t, strings.HasPrefix(entry.Name(), "."), "%s is left", path)
				return err
			}))
		})
		return conformance.ExportStoreHarness{Store: store, Other: other}
	})
}

func TestPutIfAbsentMakesReadOnlyFiles(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	require.NoError(t, s.PutIfAbsent(t.Context(), "receipts/1.note", []byte("one")))
	info, err := os.Stat(filepath.Join(folder, "receipts", "1.note"))
	require.NoError(t, err)
	require.EqualValues(t, 0o400, info.Mode().Perm())
}

func TestOpenRemovesUnfinishedFiles(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	require.NoError(t, s.PutIfAbsent(t.Context(), "receipts/1.note", []byte("one")))
	old, fresh := filepath.Join(folder, "receipts", ".writing-1"), filepath.Join(folder, "receipts", ".writing-2")
	for _, path := range []string{old, fresh} {
		require.NoError(t, os.WriteFile(path, []byte("hal"), 0o600))
	}
	past := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(old, past, past))

	got, err := s.List(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []string{"receipts/1.note"}, got, "an unfinished file is no document")
	_, err = exportdir.Open(folder)
	require.NoError(t, err)
	require.NoFileExists(t, old)
	require.FileExists(t, fresh, "another process may be writing it")

	// A crash after the link, before the temporary name was removed.
	require.NoError(t, os.Link(filepath.Join(folder, "receipts", "1.note"), filepath.Join(folder, "receipts", ".writing-3")))
	require.NoError(t, s.PutIfAbsent(t.Context(), "receipts/1.note", []byte("one")))
}

// TestUnmountedFolder: a missing folder is an outage and not an empty store. It is not made
// again, because the documents in it would be hidden when the share is mounted.
func TestUnmountedFolder(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	require.NoError(t, s.PutIfAbsent(t.Context(), "receipts/1.note", []byte("one")))
	require.NoError(t, os.Rename(folder, folder+".gone"))
	_, err := s.List(t.Context(), "receipts/")
	require.Equal(t, "export.unavailable", fault.CodeOf(err))
	_, err = s.Get(t.Context(), "receipts/1.note")
	require.Equal(t, "export.unavailable", fault.CodeOf(err))
	require.Equal(t, "export.unavailable", fault.CodeOf(s.PutIfAbsent(t.Context(), "receipts/2.note", []byte("two"))))
	require.Equal(t, "export.unavailable", fault.CodeOf(s.Delete(t.Context(), "receipts/2.note")))
	require.NoDirExists(t, folder)

	_, err = exportdir.Open("")
	require.Equal(t, "export.folder_missing", fault.CodeOf(err))
}
