package globallog

import (
	"golang.org/x/mod/sumdb/tlog"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// ReadHashes reads n hashes of a level of tiles from an index on: those of entries at level 0, above it the
// roots of the tiles below.
type ReadHashes func(level int, from, n uint64) ([]event.Hash, error)

// Remember returns a reader of the same hashes that reads each part once.
func Remember(read ReadHashes) ReadHashes {
	type part struct {
		level   int
		from, n uint64
	}
	known := map[part][]event.Hash{}
	return func(level int, from, n uint64) (hashes []event.Hash, err error) {
		key := part{level, from, n}
		hashes, isKnown := known[key]
		if !isKnown {
			if hashes, err = read(level, from, n); err == nil {
				known[key] = hashes
			}
		}
		return hashes, err
	}
}

// Root is the root of the tree over the first entries (RFC 6962 section 2.1); that of the empty tree is the hash of
// nothing.
func Root(size uint64, read ReadHashes) (event.Hash, error) {
	root, err := tlog.TreeHash(int64(size), newHashReader(size, read))
	return event.Hash(root), err
}

// ProveInclusion returns the hashes that lead from an entry to the root of the tree over the first entries, from
// the bottom up (RFC 6962 section 2.1.1). The position is before the size.
func ProveInclusion(size uint64, p Position, read ReadHashes) ([]event.Hash, error) {
	proof, err := tlog.ProveRecord(int64(size), int64(p), newHashReader(size, read))
	return fromTree(proof), err
}

// CheckInclusion checks a proof of ProveInclusion for the event with a checksum. Fault global_log.not_included
// (Invalid) if it does not prove that.
func CheckInclusion(proof []event.Hash, c Checkpoint, p Position, checksum event.Hash) error {
	if uint64(p) >= c.Size || tlog.CheckRecord(toTree(proof), int64(c.Size), tlog.Hash(c.Root), int64(p), tlog.Hash(EntryHash(checksum))) != nil {
		return fault.New(fault.Invalid, "global_log.not_included", "the proof does not show that the event is at position %d of the log: it was changed, or is of another event or checkpoint", p)
	}
	return nil
}

// ProveConsistency returns the hashes that show that the tree over the first entries begins with the earlier, smaller
// one (RFC 6962 section 2.1.2). There are none for an empty or equal one.
func ProveConsistency(size, earlier uint64, read ReadHashes) ([]event.Hash, error) {
	if earlier == 0 {
		return nil, nil
	}
	proof, err := tlog.ProveTree(int64(size), int64(earlier), newHashReader(size, read))
	return fromTree(proof), err
}

// CheckConsistency checks a proof of ProveConsistency. Fault global_log.inconsistent (Invalid) if it does not prove
// that the log of c begins with that of the earlier checkpoint.
func CheckConsistency(proof []event.Hash, c, earlier Checkpoint) error {
	isEmpty := earlier.Size == 0 && len(proof) == 0
	if c.Origin != earlier.Origin || !isEmpty && (earlier.Size == 0 || earlier.Size > c.Size ||
		tlog.CheckTree(toTree(proof), int64(c.Size), tlog.Hash(c.Root), int64(earlier.Size), tlog.Hash(earlier.Root)) != nil) {
		return fault.New(fault.Invalid, "global_log.inconsistent", "the log of %d events does not begin with the log of %d events that was signed before", c.Size, earlier.Size)
	}
	return nil
}

// hashReader gives tlog the hashes of a tree of a size out of tiles. It reads the part of a tile that exists at
// once and keeps it.
type hashReader struct {
	size  uint64
	read  ReadHashes
	tiles map[tileID][]event.Hash
}

type tileID struct {
	level int
	index uint64
}

func newHashReader(size uint64, read ReadHashes) hashReader {
	return hashReader{size, read, map[tileID][]event.Hash{}}
}

// ReadHashes implements tlog.HashReader.
func (r hashReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, stored := range indexes {
		height, n := tlog.SplitStoredHashIndex(stored)
		level, within := height/TileHeight, height%TileHeight // the hash is over 2^within hashes of a tile
		first := uint64(n) << within
		tile, err := r.tile(tileID{level, first / TileWidth})
		if err != nil {
			return nil, err
		}
		first %= TileWidth
		out[i] = tlog.Hash(subtree(tile[first : first+1<<within]))
	}
	return out, nil
}

func (r hashReader) tile(id tileID) ([]event.Hash, error) {
	if tile, isRead := r.tiles[id]; isRead {
		return tile, nil
	}
	first := id.index * TileWidth
	tile, err := r.read(id.level, first, min(TileWidth, r.size>>(TileHeight*id.level)-first))
	r.tiles[id] = tile
	return tile, err
}

func fromTree(hashes []tlog.Hash) []event.Hash {
	out := make([]event.Hash, len(hashes))
	for i, h := range hashes {
		out[i] = event.Hash(h)
	}
	return out
}

func toTree(hashes []event.Hash) []tlog.Hash {
	out := make([]tlog.Hash, len(hashes))
	for i, h := range hashes {
		out[i] = tlog.Hash(h)
	}
	return out
}
