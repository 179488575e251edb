package globallog

import (
	"crypto/sha256"
	"math/bits"

	"github.com/erpbackbone/backbone/domain/event"
)

// Edge is the right edge of a tree: the incomplete tile of each level. It is all that a tree needs to grow, and
// what has its root. The zero value is the edge of the empty tree.
type Edge struct {
	size   uint64
	levels [][]event.Hash // by level, fewer than TileWidth hashes each
}

// Size is the number of entries.
func (e *Edge) Size() uint64 { return e.size }

// Append adds an entry and returns the tiles that it completes, from the bottom up.
func (e *Edge) Append(checksum event.Hash) (complete []Tile) {
	e.size++
	index, hash := e.size/TileWidth, EntryHash(checksum)
	for level := 0; ; level, index = level+1, index/TileWidth {
		if level == len(e.levels) {
			e.levels = append(e.levels, nil)
		}
		e.levels[level] = append(e.levels[level], hash)
		if len(e.levels[level]) < TileWidth {
			return complete
		}
		t := Tile{Level: level, Index: index - 1, Hashes: e.levels[level]}
		complete, e.levels[level], hash = append(complete, t), nil, t.Root()
	}
}

// Root is the root of the tree (RFC 6962 section 2.1); that of the empty tree is the hash of nothing.
func (e *Edge) Root() event.Hash {
	if e.size == 0 {
		return sha256.Sum256(nil)
	}
	// The tree joins its complete subtrees from the right, the smallest first.
	var root event.Hash
	joined := false
	for _, hashes := range e.levels {
		for rest := len(hashes); rest > 0; {
			width := 1 << bits.TrailingZeros(uint(rest))
			left := subtree(hashes[rest-width : rest])
			if joined {
				left = join(left, root)
			}
			root, joined, rest = left, true, rest-width
		}
	}
	return root
}

// Clone returns a copy that grows on its own.
func (e *Edge) Clone() *Edge {
	c := &Edge{size: e.size, levels: make([][]event.Hash, len(e.levels))}
	for i, hashes := range e.levels {
		c.levels[i] = append([]event.Hash(nil), hashes...)
	}
	return c
}
