package exportdir_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/domain/fault"
)

func open(t *testing.T) (*exportdir.Store, string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "outside", "exports")
	s, err := exportdir.Open(folder)
	require.NoError(t, err)
	return s, folder
}

func TestPutIfAbsent(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	ctx := t.Context()
	require.NoError(t, s.PutIfAbsent(ctx, "receipts/2.note", []byte("two")))
	require.NoError(t, s.PutIfAbsent(ctx, "receipts/1.note", []byte("one")))
	require.NoError(t, s.PutIfAbsent(ctx, "receipts-old/1", nil))
	require.NoError(t, s.PutIfAbsent(ctx, "top", []byte("t")))

	require.NoError(t, s.PutIfAbsent(ctx, "receipts/1.note", []byte("one")), "the same bytes may be stored again")
	require.Equal(t, "export.name_taken", fault.CodeOf(s.PutIfAbsent(ctx, "receipts/1.note", []byte("other"))))
	require.Equal(t, "export.name_taken", fault.CodeOf(s.PutIfAbsent(ctx, "receipts/1.note", nil)))

	reopened, err := exportdir.Open(folder)
	require.NoError(t, err)
	for name, want := range map[string]string{"receipts/1.note": "one", "receipts/2.note": "two", "receipts-old/1": "", "top": "t"} {
		got, err := reopened.Get(ctx, name)
		require.NoError(t, err)
		require.Equal(t, want, string(got), name)
	}
	for prefix, want := range map[string][]string{
		"receipts/":   {"receipts/1.note", "receipts/2.note"},
		"receipts":    {"receipts-old/1", "receipts/1.note", "receipts/2.note"},
		"receipts/2":  {"receipts/2.note"},
		"":            {"receipts-old/1", "receipts/1.note", "receipts/2.note", "top"},
		"nothing/":    {},
		"receipts/3/": {},
	} {
		got, err := s.List(ctx, prefix)
		require.NoError(t, err, prefix)
		require.Equal(t, want, got, prefix)
	}
	_, err = s.Get(ctx, "receipts/3.note")
	require.Equal(t, "export.not_found", fault.CodeOf(err))
	require.NoError(t, s.Delete(ctx, "top"))
	require.NoError(t, s.Delete(ctx, "top"), "deleting a missing document is no error")
	_, err = s.Get(ctx, "top")
	require.Equal(t, fault.NotFound, fault.KindOf(err))

	info, err := os.Stat(filepath.Join(folder, "receipts", "1.note"))
	require.NoError(t, err)
	require.EqualValues(t, 0o400, info.Mode().Perm())
}

func TestNames(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	outside := filepath.Join(filepath.Dir(folder), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("x"), 0o600))
	for _, name := range []string{"", ".", "..", "../secret", "a/../../secret", "/etc/passwd", "a//b", "a/", "a b", ".hidden", "a/.writing-1", "ä", "a\x00b", "a\\b", string(make([]byte, 2000))} {
		_, err := s.Get(t.Context(), name)
		require.Equal(t, "export.name_invalid", fault.CodeOf(err), "%q", name)
		require.Equal(t, "export.name_invalid", fault.CodeOf(s.PutIfAbsent(t.Context(), name, []byte("x"))), "%q", name)
		require.Equal(t, "export.name_invalid", fault.CodeOf(s.Delete(t.Context(), name)), "%q", name)
	}
	_, err := s.List(t.Context(), "../")
	require.Equal(t, "export.name_invalid", fault.CodeOf(err))
}

// TestPutIfAbsentConcurrently: of many writers of one name, through two stores as of two
// processes, one succeeds and its content is stored.
func TestPutIfAbsentConcurrently(t *testing.T) {
	t.Parallel()
	one, folder := open(t)
	two, err := exportdir.Open(folder)
	require.NoError(t, err)
	const rounds, writers = 20, 6
	for round := range rounds {
		name := fmt.Sprintf("race/%d", round)
		var won atomic.Int32
		var winner atomic.Value
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				content := fmt.Sprintf("writer %d", w)
				err := []*exportdir.Store{one, two}[w%2].PutIfAbsent(context.Background(), name, []byte(content))
				if err == nil {
					won.Add(1)
					winner.Store(content)
					return
				}
				if fault.CodeOf(err) != "export.name_taken" {
					t.Errorf("unexpected: %v", err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, won.Load())
		got, err := one.Get(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, winner.Load(), string(got))
	}
	entries, err := os.ReadDir(filepath.Join(folder, "race"))
	require.NoError(t, err)
	require.Len(t, entries, rounds, "no unfinished file is left")
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
