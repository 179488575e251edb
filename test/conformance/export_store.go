package conformance

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// ExportStoreHarness is one export store, empty at first, as two processes see it.
type ExportStoreHarness struct {
	Store, Other ports.ExportStore
}

// The codes of export stores.
const (
	exportMissing = "export.not_found"
	exportTaken   = "export.name_taken"
	exportInvalid = "export.name_invalid"
)

var exportPromises = []struct {
	name  string
	check func(t *testing.T, h ExportStoreHarness)
}{
	{"document is read byte for byte", exportRead},
	{"store keeps no reference to slices of the caller", exportCopied},
	{"same bytes may be stored again", exportRepeated},
	{"other bytes of a taken name are refused", exportKept},
	{"missing document is not found", exportNotFound},
	{"names below a prefix are listed in order", exportListed},
	{"deleted document is gone for every process", exportDeleted},
	{"deleting keeps names that begin alike", exportDeletedAlone},
	{"deleting a missing document is no error", exportDeletedTwice},
	{"name of a deleted document is free", exportReplaced},
	{"invalid names are refused", exportNames},
	{"one of twenty writers wins a name", exportRace},
	{"concurrent writers of the same bytes all succeed", exportSameRace},
	{"cancelled call stores and deletes nothing", exportCancelled},
}

// RunExportStore checks ports.ExportStore. Each sub-test gets a new store.
func RunExportStore(t *testing.T, open func(t *testing.T) ExportStoreHarness) {
	t.Helper()
	for _, p := range exportPromises {
		t.Run(p.name, func(t *testing.T) { p.check(t, open(t)) })
	}
}

func (h ExportStoreHarness) put(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, h.Store.PutIfAbsent(t.Context(), name, []byte(content)))
}

// requireContent requires that another process reads the content.
func (h ExportStoreHarness) requireContent(t *testing.T, name, content string) {
	t.Helper()
	got, err := h.Other.Get(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, content, string(got))
}

// requireNames requires that another process lists the names.
func (h ExportStoreHarness) requireNames(t *testing.T, prefix string, names ...string) {
	t.Helper()
	got, err := h.Other.List(t.Context(), prefix)
	require.NoError(t, err)
	require.NotNil(t, got)
	require.ElementsMatch(t, names, got, "below %q", prefix)
	require.IsIncreasing(t, append([]string{""}, append(got, "~")...))
}

func exportRead(t *testing.T, h ExportStoreHarness) {
	var every bytes.Buffer
	for i := range 100_000 {
		every.WriteByte(byte(i))
	}
	for name, content := range map[string]string{
		"begun.json": `{"a": 1}`, "receipts/0000000001.note": "one\n", "keystore/7/part-00001.jsonl.gz": every.String(), "a/b/c/d/e-_F.9": "\x00\r\n", "empty": "",
	} {
		h.put(t, name, content)
		h.requireContent(t, name, content)
	}
}

func exportCopied(t *testing.T, h ExportStoreHarness) {
	content := []byte("one")
	require.NoError(t, h.Store.PutIfAbsent(t.Context(), "a", content))
	content[0] = 'X'
	h.requireContent(t, "a", "one")
	got, err := h.Store.Get(t.Context(), "a")
	require.NoError(t, err)
	got[0] = 'X'
	h.requireContent(t, "a", "one")
}

func exportRepeated(t *testing.T, h ExportStoreHarness) {
	for _, content := range []string{"one", ""} {
		h.put(t, "a/"+content+"1", content)
		h.put(t, "a/"+content+"1", content)
		require.NoError(t, h.Other.PutIfAbsent(t.Context(), "a/"+content+"1", []byte(content)))
	}
	h.requireNames(t, "", "a/1", "a/one1")
}

func exportKept(t *testing.T, h ExportStoreHarness) {
	h.put(t, "a/1", "one")
	h.put(t, "a/empty", "")
	for _, s := range []ports.ExportStore{h.Store, h.Other} {
		for name, content := range map[string]string{"a/1": "other", "a/empty": "one"} {
			err := s.PutIfAbsent(t.Context(), name, []byte(content))
			require.Equal(t, exportTaken, fault.CodeOf(err))
			require.Equal(t, fault.Conflict, fault.KindOf(err))
		}
		require.Equal(t, exportTaken, fault.CodeOf(s.PutIfAbsent(t.Context(), "a/1", nil)))
	}
	h.requireContent(t, "a/1", "one")
	h.requireContent(t, "a/empty", "")
}

func exportNotFound(t *testing.T, h ExportStoreHarness) {
	h.put(t, "a/10", "ten")
	for _, name := range []string{"a/1", "a", "b/10", "a/10.note"} {
		_, err := h.Store.Get(t.Context(), name)
		require.Error(t, err, name)
		if name != "a" { // a folder in some stores
			require.Equal(t, exportMissing, fault.CodeOf(err), name)
			require.Equal(t, fault.NotFound, fault.KindOf(err), name)
		}
	}
}

func exportListed(t *testing.T, h ExportStoreHarness) {
	h.requireNames(t, "")
	for _, name := range []string{"receipts/2.note", "receipts/10.note", "top", "receipts-old/1", "receipts/1.note", "A", "receipts/deep/er/1"} {
		h.put(t, name, name)
	}
	receipts := []string{"receipts/1.note", "receipts/10.note", "receipts/2.note", "receipts/deep/er/1"}
	h.requireNames(t, "receipts/", receipts...)
	h.requireNames(t, "receipts", append(receipts, "receipts-old/1")...)
	h.requireNames(t, "", append(receipts, "receipts-old/1", "top", "A")...)
	h.requireNames(t, "receipts/1", "receipts/1.note", "receipts/10.note")
	h.requireNames(t, "receipts/deep/", "receipts/deep/er/1")
	for _, prefix := range []string{"nothing/", "receipts/3/", "RECEIPTS/", "a b"} {
		h.requireNames(t, prefix)
	}
}

func exportDeleted(t *testing.T, h ExportStoreHarness) {
	h.put(t, "a/1", "one")
	h.put(t, "a/2", "two")
	require.NoError(t, h.Store.Delete(t.Context(), "a/1"))
	_, err := h.Other.Get(t.Context(), "a/1")
	require.Equal(t, exportMissing, fault.CodeOf(err))
	h.requireNames(t, "", "a/2")
}

func exportDeletedAlone(t *testing.T, h ExportStoreHarness) {
	for _, name := range []string{"a/1", "a/10", "a/1-", "a/1.x", "a/11", "a/2"} {
		h.put(t, name, name)
	}
	require.NoError(t, h.Store.Delete(t.Context(), "a/1"))
	h.requireNames(t, "", "a/10", "a/1-", "a/1.x", "a/11", "a/2")
	require.NoError(t, h.Store.Delete(t.Context(), "a/1"))
	h.requireNames(t, "", "a/10", "a/1-", "a/1.x", "a/11", "a/2")
}

func exportDeletedTwice(t *testing.T, h ExportStoreHarness) {
	require.NoError(t, h.Store.Delete(t.Context(), "a/1"))
	h.put(t, "a/1", "one")
	require.NoError(t, h.Store.Delete(t.Context(), "a/1"))
	require.NoError(t, h.Other.Delete(t.Context(), "a/1"))
}

func exportReplaced(t *testing.T, h ExportStoreHarness) {
	for _, content := range []string{"one", "two", "two"} {
		h.put(t, "a/1", content)
		h.requireContent(t, "a/1", content)
		require.NoError(t, h.Other.Delete(t.Context(), "a/1"))
		h.requireNames(t, "")
	}
}

func exportNames(t *testing.T, h ExportStoreHarness) {
	for _, name := range []string{
		"", ".", "..", "../secret", "a/../../secret", "/etc/passwd", "a//b", "a/", "a b", ".hidden", "a/.writing-1", "ä", "a\x00b", "a\\b", "a\n", "a?b", "a%2Fb", strings.Repeat("n", 2000),
	} {
		_, err := h.Store.Get(t.Context(), name)
		require.Equal(t, exportInvalid, fault.CodeOf(err), "%q", name)
		require.Equal(t, fault.Internal, fault.KindOf(err), "%q", name)
		require.Equal(t, exportInvalid, fault.CodeOf(h.Store.PutIfAbsent(t.Context(), name, []byte("x"))), "%q", name)
		require.Equal(t, exportInvalid, fault.CodeOf(h.Store.Delete(t.Context(), name)), "%q", name)
	}
	for _, prefix := range []string{"../", "a/../", "a//", "a b/"} {
		_, err := h.Store.List(t.Context(), prefix)
		require.Equal(t, exportInvalid, fault.CodeOf(err), "%q", prefix)
	}
	h.requireNames(t, "")
}

func exportRace(t *testing.T, h ExportStoreHarness) {
	const writers, rounds = 20, 5
	for round := range rounds {
		name := fmt.Sprint("race/", round)
		content := func(i int) string { return fmt.Sprint("writer ", i) }
		errs := race(writers, func(i int) error {
			return []ports.ExportStore{h.Store, h.Other}[i%2].PutIfAbsent(t.Context(), name, []byte(content(i)))
		})
		h.requireContent(t, name, content(oneWinner(t, errs, exportTaken)))
	}
	got, err := h.Store.List(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, got, rounds)
}

func exportSameRace(t *testing.T, h ExportStoreHarness) {
	for _, err := range race(10, func(i int) error {
		return []ports.ExportStore{h.Store, h.Other}[i%2].PutIfAbsent(t.Context(), "race/same", []byte("same"))
	}) {
		require.NoError(t, err)
	}
	h.requireContent(t, "race/same", "same")
}

func exportCancelled(t *testing.T, h ExportStoreHarness) {
	h.put(t, "a/1", "one")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Store.Get(ended, "a/1")
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, fault.Unavailable, fault.KindOf(h.Store.PutIfAbsent(ended, "a/2", []byte("two"))))
	require.Equal(t, fault.Unavailable, fault.KindOf(h.Store.Delete(ended, "a/1")))
	h.requireNames(t, "", "a/1")
}
