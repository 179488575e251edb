package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// GlobalLog keeps the global log.
type GlobalLog struct{ *state }

var (
	_ ports.GlobalLogWriter = (*GlobalLog)(nil)
	_ ports.GlobalOrder     = (*GlobalLog)(nil)
	_ ports.GlobalTree      = (*GlobalLog)(nil)
	_ ports.GlobalLogAudit  = (*GlobalLog)(nil)
	_ ports.Checkpoints     = (*GlobalLog)(nil)
)

// globalLog is the order of all events and the tree over it.
type globalLog struct {
	ranges []globallog.Range
	ends   map[event.PartitionID]event.Sequence
	edge   globallog.Edge
	leaves []event.Hash             // by position
	tiles  map[int][]globallog.Tile // complete ones, by level

	checkpoints []ports.SignedCheckpoint
}

// ExtendGlobalLog implements ports.GlobalLogWriter.
func (s *GlobalLog) ExtendGlobalLog(ctx context.Context, partitions []event.PartitionID, most int) ([]globallog.Range, error) {
	return get(ctx, s.state, func() ([]globallog.Range, error) {
		ranges := []globallog.Range{}
		g := &s.global
		for _, id := range partitions {
			p := s.partitions[id]
			if p == nil {
				continue
			}
			next := g.ends[id] + 1
			count := min(len(p.events)-int(next)+1, most)
			if count < 1 {
				continue
			}
			r := globallog.Range{First: globallog.Position(g.edge.Size()), Partition: id, Sequence: next, Count: uint64(count)}
			for sequence := next; sequence < r.NextSequence(); sequence++ {
				g.add(p.at(sequence).Checksum)
			}
			g.ends[id] = r.NextSequence() - 1
			g.ranges, ranges = append(g.ranges, r), append(ranges, r)
		}
		return ranges, nil
	})
}

func (g *globalLog) add(checksum event.Hash) {
	g.leaves = append(g.leaves, globallog.EntryHash(checksum))
	for _, tile := range g.edge.Append(checksum) {
		g.tiles[tile.Level] = append(g.tiles[tile.Level], tile)
	}
}

// GlobalEnds implements ports.GlobalEnds.
func (s *GlobalLog) GlobalEnds(ctx context.Context, before globallog.Position) (map[event.PartitionID]event.Sequence, error) {
	return get(ctx, s.state, func() (map[event.PartitionID]event.Sequence, error) {
		ends := make(map[event.PartitionID]event.Sequence, len(s.global.ends))
		for _, r := range s.global.ranges {
			if r.First < before {
				ends[r.Partition] = min(r.NextSequence()-1, r.Sequence+event.Sequence(before-r.First)-1)
			}
		}
		return ends, nil
	})
}

// GlobalSize implements ports.GlobalOrder.
func (s *GlobalLog) GlobalSize(ctx context.Context) (uint64, error) {
	return get(ctx, s.state, func() (uint64, error) { return s.global.edge.Size(), nil })
}

// GlobalPositions implements ports.GlobalOrder.
func (s *GlobalLog) GlobalPositions(ctx context.Context, events []ports.EventPosition) (map[ports.EventPosition]globallog.Position, error) {
	return get(ctx, s.state, func() (map[ports.EventPosition]globallog.Position, error) {
		positions := make(map[ports.EventPosition]globallog.Position, len(events))
		for _, e := range events {
			for _, r := range s.global.ranges {
				if p, ok := r.PositionOf(e.Sequence); ok && r.Partition == e.Partition {
					positions[e] = p
				}
			}
		}
		return positions, nil
	})
}

// GlobalRanges implements ports.GlobalOrder.
func (s *GlobalLog) GlobalRanges(ctx context.Context, q ports.GlobalRangeQuery) ([]globallog.Range, error) {
	return get(ctx, s.state, func() ([]globallog.Range, error) {
		ranges := []globallog.Range{}
		for _, r := range s.global.ranges {
			inDirection := r.End() > q.From
			if q.Direction == ports.Backward {
				inDirection = r.First <= q.From
			}
			if inDirection && slices.Contains(q.Partitions, r.Partition) {
				ranges = append(ranges, r)
			}
		}
		if q.Direction == ports.Backward {
			slices.Reverse(ranges)
		}
		return ranges[:min(len(ranges), q.Limit)], nil
	})
}

// GlobalHashes implements ports.GlobalTree.
func (s *GlobalLog) GlobalHashes(ctx context.Context, level int, from, n uint64) ([]event.Hash, error) {
	return get(ctx, s.state, func() ([]event.Hash, error) {
		hashes := []event.Hash{}
		for i := from; i < from+n; i++ {
			switch {
			case level == 0 && i < uint64(len(s.global.leaves)):
				hashes = append(hashes, s.global.leaves[i])
			case level > 0 && i < uint64(len(s.global.tiles[level-1])):
				hashes = append(hashes, s.global.tiles[level-1][i].Root())
			default:
				return nil, ports.GlobalLogTooShort()
			}
		}
		return hashes, nil
	})
}

// AllGlobalRanges implements ports.GlobalLogAudit.
func (s *GlobalLog) AllGlobalRanges(ctx context.Context, from globallog.Position, limit int) ([]globallog.Range, error) {
	return get(ctx, s.state, func() ([]globallog.Range, error) {
		first, _ := slices.BinarySearchFunc(s.global.ranges, from, func(r globallog.Range, p globallog.Position) int { return cmp.Compare(r.First, p) })
		ranges := s.global.ranges[first:]
		return slices.Clone(ranges[:min(len(ranges), limit)]), nil
	})
}

// Checksums implements ports.GlobalLogAudit.
func (s *GlobalLog) Checksums(ctx context.Context, id event.PartitionID, from event.Sequence, n int) ([]event.Hash, error) {
	checksums := []event.Hash{}
	err := s.read(ctx, id, func(p *partition) error {
		for sequence := from; int(sequence) <= len(p.events) && len(checksums) < n; sequence++ {
			checksums = append(checksums, p.at(sequence).Checksum)
		}
		return nil
	})
	return checksums, err
}

// GlobalTiles implements ports.GlobalLogAudit.
func (s *GlobalLog) GlobalTiles(ctx context.Context, level int, from uint64, limit int) ([]ports.StoredTile, error) {
	return get(ctx, s.state, func() ([]ports.StoredTile, error) {
		tiles := []ports.StoredTile{}
		for i := from; i < uint64(len(s.global.tiles[level])) && len(tiles) < limit; i++ {
			tile := s.global.tiles[level][i]
			tiles = append(tiles, ports.StoredTile{Tile: tile, StoredRoot: tile.Root()})
		}
		return tiles, nil
	})
}

// NewestCheckpoint implements ports.Checkpoints.
func (s *GlobalLog) NewestCheckpoint(ctx context.Context) (*ports.SignedCheckpoint, error) {
	return get(ctx, s.state, func() (*ports.SignedCheckpoint, error) {
		if len(s.global.checkpoints) == 0 {
			return nil, nil
		}
		c := s.global.checkpoints[len(s.global.checkpoints)-1]
		return &c, nil
	})
}

// RecordCheckpoint implements ports.Checkpoints.
func (s *GlobalLog) RecordCheckpoint(ctx context.Context, c ports.SignedCheckpoint) (bool, error) {
	return get(ctx, s.state, func() (bool, error) {
		g := &s.global
		if n := len(g.checkpoints); n > 0 && !c.IsNewer(g.checkpoints[n-1]) {
			return false, nil
		}
		if c.Size > g.edge.Size() {
			return false, ports.GlobalLogTooShort()
		}
		g.checkpoints = append(g.checkpoints, c)
		return true, nil
	})
}

// Checkpoints implements ports.GlobalLogAudit.
func (s *GlobalLog) Checkpoints(ctx context.Context, after uint64, incarnation, limit int) ([]ports.SignedCheckpoint, error) {
	return get(ctx, s.state, func() ([]ports.SignedCheckpoint, error) {
		bySize := func(a, b ports.SignedCheckpoint) int {
			return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Incarnation, b.Incarnation))
		}
		found := []ports.SignedCheckpoint{}
		for _, c := range slices.SortedFunc(slices.Values(s.global.checkpoints), bySize) {
			if bySize(c, ports.SignedCheckpoint{Size: after, Incarnation: incarnation}) > 0 && len(found) < limit {
				found = append(found, c)
			}
		}
		return found, nil
	})
}
