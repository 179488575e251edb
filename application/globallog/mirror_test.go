package globallog_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// sumdbLog is a log whose tree sumdb keeps.
type sumdbLog struct {
	stored []tlog.Hash
	salt   byte // logs with different ones differ from the first event on
}

func (l *sumdbLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		out[i] = l.stored[index]
	}
	return out, nil
}

func (l *sumdbLog) checksum(n uint64) []byte {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte{l.salt}, n))
	return sum[:]
}

// GlobalHashes implements ports.GlobalTree.
func (l *sumdbLog) GlobalHashes(ctx context.Context, level int, from, n uint64) ([]event.Hash, error) {
	hashes := make([]event.Hash, n)
	for i := range hashes {
		hashes[i] = event.Hash(l.stored[tlog.StoredHashIndex(level*domain.TileHeight, int64(from)+int64(i))])
	}
	return hashes, ctx.Err()
}

// checkpoint grows the log to a size.
func (l *sumdbLog) checkpoint(t *testing.T, incarnation int, size uint64) ports.SignedCheckpoint {
	t.Helper()
	for n := int64(0); n < int64(size); n++ {
		if tlog.StoredHashCount(n) < int64(len(l.stored)) {
			continue
		}
		hashes, err := tlog.StoredHashes(n, l.checksum(uint64(n)), l)
		require.NoError(t, err)
		l.stored = append(l.stored, hashes...)
	}
	root, err := tlog.TreeHash(int64(size), l)
	require.NoError(t, err)
	c := domain.Checkpoint{Origin: domain.Origin("books.example.org", incarnation), Size: size, Root: event.Hash(root)}
	return ports.SignedCheckpoint{Incarnation: incarnation, Size: size, Root: event.Hash(root), Note: append(c.Text(), "\n— books.example.org AAAA\n"...)}
}

// flakyStore counts documents, and fails when a test wants it to.
type flakyStore struct {
	*memory.ExportStore
	mu      sync.Mutex
	puts    int
	failsAt int // the put that fails; 0: none
}

func (s *flakyStore) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	s.mu.Lock()
	s.puts++
	fails := s.puts == s.failsAt
	s.mu.Unlock()
	if fails {
		return fault.New(fault.Unavailable, "export.unavailable", "a test")
	}
	return s.ExportStore.PutIfAbsent(ctx, name, content)
}

// tiles reads the tiles of an incarnation as an outsider does, with sumdb.
type tiles struct {
	t           *testing.T
	store       ports.ExportStore
	incarnation int
}

func (r tiles) Height() int { return domain.TileHeight }

func (r tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (r tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(wanted))
	for i, tile := range wanted {
		var err error
		name := fmt.Sprintf("tiles/%06d/%s", r.incarnation, strings.TrimPrefix(tile.Path(), "tile/8/"))
		if data[i], err = r.store.Get(r.t.Context(), name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return data, nil
}

// requireProven demands that the mirror proves the first and the last event of a checkpoint that it has.
func requireProven(t *testing.T, store ports.ExportStore, l *sumdbLog, want ports.SignedCheckpoint) {
	t.Helper()
	c, err := globallog.NewestExport(t.Context(), store)
	require.NoError(t, err)
	require.Equal(t, want, *c)
	size := int64(want.Size)
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: tlog.Hash(want.Root)}, tiles{t, store, want.Incarnation})
	for _, n := range []int64{0, size / 2, size - 1} {
		proof, err := tlog.ProveRecord(size, n, reader)
		require.NoError(t, err)
		require.NoError(t, tlog.CheckRecord(proof, size, tlog.Hash(want.Root), n, tlog.RecordHash(l.checksum(uint64(n)))))
	}
}

type mirrorReports struct {
	mu              sync.Mutex
	sizes           []uint64
	failed, refused int
}

func (r *mirrorReports) Mirrored(size uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sizes = append(r.sizes, size)
}

func (r *mirrorReports) MirrorFailed(isRefused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isRefused {
		r.refused++
	} else {
		r.failed++
	}
}

// startMirror runs a mirror until stop.
func startMirror(t *testing.T, l *sumdbLog, store ports.ExportStore, reports *mirrorReports) (m *globallog.Mirror, stop func()) {
	t.Helper()
	m = globallog.NewMirror(globallog.MirrorConfig{Tree: l, Store: store, Logger: slog.New(slog.DiscardHandler), Observer: reports})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	return m, func() { cancel(); <-done }
}

// TestMirror grows a log over the first tile of the third level. What is in the mirror proves itself at each size, also to
// the next process and after a new incarnation, and no tile is written twice but the last ones of a level, which grow.
func TestMirror(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, store, reports := &sumdbLog{}, &flakyStore{ExportStore: memory.NewExportStore()}, &mirrorReports{}
		var last ports.SignedCheckpoint
		for _, step := range []struct {
			size uint64
			puts int // documents
		}{
			{1, 2}, {255, 2}, {256, 3}, {300, 3}, {domain.TileWidth*domain.TileWidth + 600, 255 + 3 + 2 + 1 + 1},
		} {
			m, stop := startMirror(t, l, store, reports)
			before := store.puts
			last = l.checkpoint(t, 1, step.size)
			m.Add(last)
			synctest.Wait()
			require.Equal(t, step.puts, store.puts-before, "%d", step.size)
			requireProven(t, store, l, last)
			stop()
		}
		require.Equal(t, []uint64{1, 255, 256, 300, domain.TileWidth*domain.TileWidth + 600}, reports.sizes)

		restored := &sumdbLog{salt: 1}
		m, stop := startMirror(t, restored, store, reports)
		m.Add(restored.checkpoint(t, 1, last.Size+1))
		synctest.Wait()
		require.Equal(t, 1, reports.refused, "another log in the place of this one is refused")
		m.Add(restored.checkpoint(t, 1, last.Size+300_000))
		synctest.Wait()
		pass(10 * time.Second)
		require.Equal(t, 2, reports.refused)
		requireProven(t, store, l, last)
		stop()
		m, stop = startMirror(t, restored, store, reports)
		defer stop()
		next := restored.checkpoint(t, 2, 400)
		m.Add(next)
		synctest.Wait()
		requireProven(t, store, restored, next)
		require.Zero(t, reports.failed)
	})
}

// TestMirror_Failures lets each document fail once: a checkpoint is there only after its tiles, and each of them comes.
func TestMirror_Failures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &sumdbLog{}
		c := l.checkpoint(t, 1, 3*domain.TileWidth+5)
		for failsAt := 1; ; failsAt++ {
			store, reports := &flakyStore{ExportStore: memory.NewExportStore(), failsAt: failsAt}, &mirrorReports{}
			m, stop := startMirror(t, l, store, reports)
			m.Add(c)
			synctest.Wait()
			if reports.failed == 0 {
				stop()
				require.Equal(t, 7, failsAt, "five tiles and a checkpoint")
				return
			}
			require.Empty(t, testkit.Must(store.List(t.Context(), globallog.CheckpointFolder)))
			pass(10 * time.Second)
			requireProven(t, store, l, c)
			require.Equal(t, 1, reports.failed)
			stop()
		}
	})
}

// TestMirror_Refuses writes no checkpoint whose tiles do not have its root, or would not be in the mirror.
func TestMirror_Refuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		try := func(l *sumdbLog, store ports.ExportStore, c ports.SignedCheckpoint) (refused int) {
			t.Helper()
			reports := &mirrorReports{}
			m, stop := startMirror(t, l, store, reports)
			defer stop()
			m.Add(c)
			synctest.Wait()
			require.Zero(t, reports.failed)
			return reports.refused
		}
		l := &sumdbLog{}
		first, second := l.checkpoint(t, 1, 1000), l.checkpoint(t, 1, 2000)
		other := &sumdbLog{salt: 1}
		foreign := other.checkpoint(t, 1, 2000)

		copied := memory.NewExportStore() // the export folder, or a copy of it
		require.NoError(t, copied.PutIfAbsent(t.Context(), globallog.CheckpointName(1, 1000), first.Note))
		require.Zero(t, try(l, copied, second))
		requireProven(t, copied, l, second)
		require.Equal(t, 1, try(other, copied, other.checkpoint(t, 1, 2300)), "of another log")
		renamed := other.checkpoint(t, 2, 2300)
		renamed.Note = bytes.ReplaceAll(renamed.Note, []byte("books"), []byte("other"))
		require.Equal(t, 1, try(other, copied, renamed), "of another installation")

		empty := memory.NewExportStore()
		require.Equal(t, 1, try(other, empty, first), "the database was set back and went on otherwise")
		require.Equal(t, 1, try(l, empty, foreign))
		l.stored[tlog.StoredHashIndex(0, 3)][0] ^= 1
		require.Equal(t, 1, try(l, empty, second), "a superuser changed a tile, and not those above")
		require.Empty(t, testkit.Must(empty.List(t.Context(), "")))
	})
}
