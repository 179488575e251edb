package archive_test

import (
	"context"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/archive"
	domain "github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const partition event.PartitionID = 7

// countingStore counts what is read.
type countingStore struct {
	ports.ExportStore
	reads int
}

func (s *countingStore) Get(ctx context.Context, name string) ([]byte, error) {
	s.reads++
	return s.ExportStore.Get(ctx, name)
}

func record(n event.Sequence, payload string) domain.Record {
	return domain.Record{Sequence: n, Payload: []byte(payload)}
}

// outcomes counts files that readers needed.
type outcomes map[string]int

func (o outcomes) ArchiveRead(outcome string) { o[outcome]++ }

// put stores a segment of a range.
func put(t *testing.T, store ports.ExportStore, first, last event.Sequence, records ...domain.Record) ports.ArchivedSegment {
	t.Helper()
	object, m, err := domain.Encode(partition, first, last, records)
	require.NoError(t, err)
	require.NoError(t, store.PutIfAbsent(t.Context(), m.Object, object))
	s := ports.ArchivedSegment{Partition: partition, First: first, Last: last, Records: len(records), Object: m.Object}
	_, err = hex.Decode(s.Digest[:], []byte(m.Digest))
	require.NoError(t, err)
	return s
}

func TestFiles_KeepWhatWasRead(t *testing.T) {
	t.Parallel()
	store := &countingStore{ExportStore: memory.NewExportStore()}
	counted := outcomes{}
	files := archive.NewFiles(store, counted)
	one, two := put(t, store, 1, 2, record(1, `{"a":1}`), record(2, `{"a":2}`)), put(t, store, 3, 3, record(3, `{"a":3}`))
	for range 3 {
		for _, s := range []ports.ArchivedSegment{one, two} {
			records, err := files.Records(t.Context(), s)
			require.NoError(t, err)
			require.Len(t, records, s.Records)
		}
	}
	require.Equal(t, 2, store.reads)
	require.Equal(t, outcomes{"read": 2, "kept": 4}, counted)
}

// TestFiles_Spare reads the other payloads of a file that a redaction has replaced, and for verification none.
func TestFiles_Spare(t *testing.T) {
	t.Parallel()
	store := memory.NewExportStore()
	files := archive.NewFiles(store, outcomes{})
	s := put(t, store, 1, 3, record(1, `{"a":1}`), record(2, `{"a":2}`))
	redacted := record(3, `{"a":"[REDACTED]"}`)
	redacted.Redactions = []event.Redaction{{Pointers: []string{"/a"}}}
	spare := put(t, store, 1, 3, record(1, `{"a":1}`), redacted)
	put(t, store, 1, 2, record(1, `{"a":1}`)) // of another range
	require.NoError(t, store.Delete(t.Context(), s.Object))
	records, err := files.Records(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, []domain.Record{record(1, `{"a":1}`)}, records, "nothing but skeletons vouches for a spare")
	_, err = files.FreshRecords(t.Context(), s)
	require.Equal(t, domain.CodeObjectMissing, fault.CodeOf(err))
	require.NoError(t, store.Delete(t.Context(), spare.Object))
	_, err = files.Records(t.Context(), s)
	require.Equal(t, domain.CodeObjectMissing, fault.CodeOf(err), "what was read of a spare is not kept")
}

func TestFiles_Faults(t *testing.T) {
	t.Parallel()
	store := memory.NewExportStore()
	s := put(t, store, 1, 1, record(1, `{}`))
	counted := outcomes{}
	changed := s
	changed.Digest[0]++
	_, err := archive.NewFiles(store, counted).Records(t.Context(), changed)
	require.Equal(t, domain.CodeObjectDamaged, fault.CodeOf(err))
	require.NoError(t, store.Delete(t.Context(), s.Object))
	_, err = archive.NewFiles(store, counted).Records(t.Context(), s)
	require.Equal(t, domain.CodeUnavailable, fault.CodeOf(err), "an empty archive is probably another one")
	put(t, store, 2, 2, record(2, `{}`))
	_, err = archive.NewFiles(store, counted).Records(t.Context(), s)
	require.Equal(t, domain.CodeObjectMissing, fault.CodeOf(err))
	require.Equal(t, outcomes{"damaged": 1, "unavailable": 1, "missing": 1}, counted)
}
