package globallog_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
)

// checksum is that of an event in a test.
func checksum(n uint64) event.Hash {
	return sha256.Sum256(binary.BigEndian.AppendUint64(nil, n))
}

// TestEntryHash has the known answer of the frozen format.
func TestEntryHash(t *testing.T) {
	t.Parallel()
	sum, err := hex.DecodeString("63b29bc1f982232bc81692856ecc49919aefc76c68398a1b2e1a29072ac4415d")
	require.NoError(t, err)
	entry := globallog.EntryHash(event.Hash(sum))
	require.Equal(t, "025f1901e59958ff0d781282b7f9697beeee84613e8f2415d8fdd8002539515d", hex.EncodeToString(entry[:]))
}

// TestEdge grows a tree beside the one of sumdb, over the first tile of the third level: the roots are the same
// at every size, and the tiles are those that sumdb has.
func TestEdge(t *testing.T) {
	t.Parallel()
	const entries = globallog.TileWidth*globallog.TileWidth + 2*globallog.TileWidth + 3
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			out[i] = stored[index]
		}
		return out, nil
	})
	read := func(level int, from, n uint64) ([]event.Hash, error) {
		hashes := make([]event.Hash, n)
		for i := range hashes {
			hashes[i] = event.Hash(stored[tlog.StoredHashIndex(level*globallog.TileHeight, int64(from)+int64(i))])
		}
		return hashes, nil
	}
	edge, tiles := &globallog.Edge{}, map[[2]uint64]bool{}
	require.Equal(t, event.Hash(sha256.Sum256(nil)), edge.Root())
	for n := range uint64(entries) {
		sum := checksum(n)
		hashes, err := tlog.StoredHashes(int64(n), sum[:], reader)
		require.NoError(t, err)
		stored = append(stored, hashes...)
		for _, tile := range edge.Append(sum) {
			tiles[[2]uint64{uint64(tile.Level), tile.Index}] = true
			data, err := tlog.ReadTileData(tlog.Tile{H: globallog.TileHeight, L: tile.Level, N: int64(tile.Index), W: globallog.TileWidth}, reader)
			require.NoError(t, err)
			var got []byte
			for _, h := range tile.Hashes {
				got = append(got, h[:]...)
			}
			require.Equal(t, data, got)
			above, err := read(tile.Level+1, tile.Index, 1)
			require.NoError(t, err)
			require.Equal(t, above[0], tile.Root())
		}
		require.Equal(t, n+1, edge.Size())
		if n < 600 || n > entries-600 {
			root, err := tlog.TreeHash(int64(n+1), reader)
			require.NoError(t, err)
			require.Equal(t, event.Hash(root), edge.Root(), "size %d", n+1)
		}
		if n%777 == 0 || n%globallog.TileWidth == globallog.TileWidth-1 {
			root, err := globallog.Root(n+1, read)
			require.NoError(t, err)
			require.Equal(t, edge.Root(), root)
		}
	}
	require.Len(t, tiles, globallog.TileWidth+2+1)
}

// TestEdge_Clone: a copy grows without the original.
func TestEdge_Clone(t *testing.T) {
	t.Parallel()
	edge := &globallog.Edge{}
	for n := range uint64(300) {
		edge.Append(checksum(n))
	}
	before, clone := edge.Root(), edge.Clone()
	clone.Append(checksum(300))
	edge.Append(checksum(999))
	require.NotEqual(t, edge.Root(), clone.Root())
	require.NotEqual(t, before, clone.Root())
}

// TestRange finds events by sequence and by position, and those outside of the range are not found.
func TestRange(t *testing.T) {
	t.Parallel()
	r := globallog.Range{First: 100, Partition: 7, Sequence: 11, Count: 3}
	require.Equal(t, globallog.Position(103), r.End())
	require.Equal(t, event.Sequence(14), r.NextSequence())
	for s, want := range map[event.Sequence]globallog.Position{11: 100, 13: 102} {
		p, ok := r.PositionOf(s)
		require.True(t, ok)
		require.Equal(t, want, p)
		back, ok := r.SequenceAt(p)
		require.True(t, ok)
		require.Equal(t, s, back)
	}
	for _, s := range []event.Sequence{10, 14} {
		_, ok := r.PositionOf(s)
		require.False(t, ok)
	}
	for _, p := range []globallog.Position{99, 103} {
		_, ok := r.SequenceAt(p)
		require.False(t, ok)
	}
}

// TestTilePath has the examples of c2sp.org/tlog-tiles.
func TestTilePath(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0/x001/x234/067", globallog.TilePath(0, 1234067, globallog.TileWidth))
	require.Equal(t, "1/x001/067.p/8", globallog.TilePath(1, 1067, 8))
}
