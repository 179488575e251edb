package globallog

import (
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/erpbackbone/backbone/domain/event"
)

const (
	// TileHeight is how many levels of the tree one tile spans (c2sp.org/tlog-tiles).
	TileHeight = 8
	// TileWidth is how many hashes a complete tile has.
	TileWidth = 1 << TileHeight
)

// Tile is a complete tile of the tree: at level 0 the hashes of 256 entries, at each level above the roots of
// 256 tiles of the level below.
type Tile struct {
	Level  int
	Index  uint64 // from 0, at its level
	Hashes []event.Hash
}

// Root is the root of the subtree that the tile spans.
func (t Tile) Root() event.Hash { return subtree(t.Hashes) }

// EntryHash is the hash of an entry at the bottom of the tree: SHA-256(0x00 ‖ checksum).
func EntryHash(checksum event.Hash) event.Hash { return event.Hash(tlog.RecordHash(checksum[:])) }

// subtree is the root over hashes, whose number is a power of two.
func subtree(hashes []event.Hash) event.Hash {
	if len(hashes) == 1 {
		return hashes[0]
	}
	half := len(hashes) / 2
	return join(subtree(hashes[:half]), subtree(hashes[half:]))
}

func join(left, right event.Hash) event.Hash {
	return event.Hash(tlog.NodeHash(tlog.Hash(left), tlog.Hash(right)))
}

// TilePath names a tile as c2sp.org/tlog-tiles does, without the "tile/" at the beginning: "0/x001/067". A width below
// TileWidth is that of a tile that is not full yet: "0/x001/067.p/12".
func TilePath(level int, index uint64, width int) string {
	path := tlog.Tile{H: TileHeight, L: level, N: int64(index), W: width}.Path()
	return strings.TrimPrefix(path, fmt.Sprintf("tile/%d/", TileHeight))
}
