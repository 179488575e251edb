// Package globallog stores the global log: ranges of partitions, and the complete tiles of the tree over
// them. The database makes both from the events that it has, in the function extend_global_log of
// migration 52; the package calls it for application/globallog and reads what it made.
package globallog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/globallogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// Store implements ports.GlobalLogWriter, ports.GlobalOrder, ports.GlobalTree, ports.Checkpoints and
// ports.GlobalLogAudit.
type Store struct {
	db      *pg.Database
	queries *globallogdb.Queries
}

// New makes a Store over db.
func New(db *pg.Database) *Store { return &Store{db: db, queries: globallogdb.New()} }

var (
	_ ports.GlobalLogWriter = (*Store)(nil)
	_ ports.GlobalOrder     = (*Store)(nil)
	_ ports.GlobalTree      = (*Store)(nil)
	_ ports.GlobalLogAudit  = (*Store)(nil)
	_ ports.Checkpoints     = (*Store)(nil)
)

// ExtendGlobalLog implements ports.GlobalLogWriter.
func (s *Store) ExtendGlobalLog(ctx context.Context, partitions []event.PartitionID, most int) ([]globallog.Range, error) {
	rows, err := s.queries.ExtendGlobalLog(ctx, s.db.Reads, &globallogdb.ExtendGlobalLogParams{Partitions: numbers(partitions), Most: int64(most)})
	if pg.ViolatesConstraint(err, "log_ranges_pkey") {
		return nil, ports.GlobalLogMoved()
	}
	return pg.MapRows(ctx, rows, err, rangeOf)
}

// GlobalEnds implements ports.GlobalEnds.
func (s *Store) GlobalEnds(ctx context.Context, before globallog.Position) (map[event.PartitionID]event.Sequence, error) {
	rows, err := s.queries.GlobalEnds(ctx, s.db.Reads, int64(before))
	ends := make(map[event.PartitionID]event.Sequence, len(rows))
	for _, r := range rows {
		ends[event.PartitionID(r.PartitionID)] = event.Sequence(r.LastSequence)
	}
	return ends, pg.Translate(ctx, err)
}

// GlobalSize implements ports.GlobalOrder.
func (s *Store) GlobalSize(ctx context.Context) (uint64, error) {
	size, err := s.queries.GlobalSize(ctx, s.db.Reads)
	return uint64(size), pg.Translate(ctx, err)
}

// GlobalPositions implements ports.GlobalOrder. It asks for runs of sequences: a page of a log is one.
func (s *Store) GlobalPositions(ctx context.Context, events []ports.EventPosition) (map[ports.EventPosition]globallog.Position, error) {
	sorted := slices.SortedFunc(slices.Values(events), byPlace)
	var p globallogdb.RangesOfRunsParams
	for i, e := range sorted {
		if i > 0 && e.Partition == sorted[i-1].Partition && e.Sequence <= sorted[i-1].Sequence+1 {
			p.LastSequences[len(p.LastSequences)-1] = int64(e.Sequence)
			continue
		}
		p.Partitions, p.FirstSequences, p.LastSequences = append(p.Partitions, int32(e.Partition)), append(p.FirstSequences, int64(e.Sequence)), append(p.LastSequences, int64(e.Sequence))
	}
	rows, err := s.queries.RangesOfRuns(ctx, s.db.Reads, &p)
	positions := make(map[ports.EventPosition]globallog.Position, len(events))
	for _, row := range rows {
		r := rangeOf((*globallogdb.ExtendGlobalLogRow)(&row))
		first, _ := slices.BinarySearchFunc(sorted, ports.EventPosition{Partition: r.Partition, Sequence: r.Sequence}, byPlace)
		for _, e := range sorted[first:] {
			position, ok := r.PositionOf(e.Sequence)
			if !ok || e.Partition != r.Partition {
				break
			}
			positions[e] = position
		}
	}
	return positions, pg.Translate(ctx, err)
}

func byPlace(a, b ports.EventPosition) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
}

// GlobalRanges implements ports.GlobalOrder.
func (s *Store) GlobalRanges(ctx context.Context, q ports.GlobalRangeQuery) ([]globallog.Range, error) {
	p := globallogdb.GlobalRangesForwardParams{Position: int64(q.From), Partitions: numbers(q.Partitions), Most: int32(q.Limit)}
	if q.Direction == ports.Forward {
		rows, err := s.queries.GlobalRangesForward(ctx, s.db.Reads, &p)
		return pg.MapRows(ctx, rows, err, func(r *globallogdb.GlobalRangesForwardRow) globallog.Range {
			return rangeOf((*globallogdb.ExtendGlobalLogRow)(r))
		})
	}
	backward := globallogdb.GlobalRangesBackwardParams(p)
	rows, err := s.queries.GlobalRangesBackward(ctx, s.db.Reads, &backward)
	return pg.MapRows(ctx, rows, err, func(r *globallogdb.GlobalRangesBackwardRow) globallog.Range {
		return rangeOf((*globallogdb.ExtendGlobalLogRow)(r))
	})
}

func rangeOf(r *globallogdb.ExtendGlobalLogRow) globallog.Range {
	return globallog.Range{First: globallog.Position(r.FirstPosition), Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.FirstSequence), Count: uint64(r.Count)}
}

// GlobalHashes implements ports.GlobalTree.
func (s *Store) GlobalHashes(ctx context.Context, level int, from, n uint64) ([]event.Hash, error) {
	if n == 0 {
		return []event.Hash{}, ctx.Err()
	}
	hashes := make([]event.Hash, 0, n)
	if level > 0 {
		roots, err := s.queries.TileRoots(ctx, s.db.Reads, &globallogdb.TileRootsParams{Level: int16(level - 1), FromIndex: int64(from), ToIndex: int64(from + n)})
		if err != nil {
			return nil, pg.Translate(ctx, err)
		}
		for _, root := range roots {
			hashes = append(hashes, event.Hash(root))
		}
	} else {
		var err error
		if hashes, err = s.entryHashes(ctx, hashes, from, from+n); err != nil {
			return nil, pg.Translate(ctx, err)
		}
	}
	if uint64(len(hashes)) < n {
		return nil, ports.GlobalLogTooShort()
	}
	return hashes, nil
}

// entryHashes appends the hashes of entries: those in complete tiles as they are stored, the others from the events.
func (s *Store) entryHashes(ctx context.Context, hashes []event.Hash, from, to uint64) ([]event.Hash, error) {
	tiles, err := s.queries.TileHashes(ctx, s.db.Reads, &globallogdb.TileHashesParams{FromIndex: int64(from / globallog.TileWidth), ToIndex: int64((to-1)/globallog.TileWidth + 1)})
	if err != nil {
		return nil, err
	}
	next := from
	for _, tile := range tiles {
		first := uint64(tile.Index) * globallog.TileWidth
		if first > next {
			break
		}
		for ; next < min(to, first+globallog.TileWidth); next++ {
			hashes = append(hashes, event.Hash(tile.Hashes[(next-first)*sha256.Size:]))
		}
	}
	if next == to {
		return hashes, nil
	}
	rest, err := s.queries.EntryHashes(ctx, s.db.Reads, &globallogdb.EntryHashesParams{FromPosition: int64(next), ToPosition: int64(to)})
	for ; len(rest) >= sha256.Size; rest = rest[sha256.Size:] {
		hashes = append(hashes, event.Hash(rest[:sha256.Size]))
	}
	return hashes, err
}

// NewestCheckpoint implements ports.Checkpoints.
func (s *Store) NewestCheckpoint(ctx context.Context) (*ports.SignedCheckpoint, error) {
	rows, err := s.queries.NewestCheckpoint(ctx, s.db.Reads)
	if err != nil || len(rows) == 0 {
		return nil, pg.Translate(ctx, err)
	}
	c := signedCheckpoint((*globallogdb.CheckpointsRow)(&rows[0]))
	return &c, nil
}

// RecordCheckpoint implements ports.Checkpoints.
func (s *Store) RecordCheckpoint(ctx context.Context, c ports.SignedCheckpoint) (bool, error) {
	isRecorded, err := s.queries.RecordCheckpoint(ctx, s.db.Reads, &globallogdb.RecordCheckpointParams{
		Incarnation: int32(c.Incarnation), Size: int64(c.Size), Root: c.Root[:], Note: string(c.Note),
	})
	if pg.ViolatesConstraint(err, "log_checkpoints_size") {
		return false, ports.GlobalLogTooShort()
	}
	return isRecorded, pg.Translate(ctx, err)
}

// Checkpoints implements ports.GlobalLogAudit.
func (s *Store) Checkpoints(ctx context.Context, after uint64, incarnation, limit int) ([]ports.SignedCheckpoint, error) {
	rows, err := s.queries.Checkpoints(ctx, s.db.Reads, &globallogdb.CheckpointsParams{Incarnation: int32(incarnation), Size: int64(after), Most: int32(limit)})
	return pg.MapRows(ctx, rows, err, signedCheckpoint)
}

func signedCheckpoint(r *globallogdb.CheckpointsRow) ports.SignedCheckpoint {
	return ports.SignedCheckpoint{Incarnation: int(r.Incarnation), Size: uint64(r.Size), Root: event.Hash(r.Root), Note: []byte(r.Note)}
}

// AllGlobalRanges implements ports.GlobalLogAudit.
func (s *Store) AllGlobalRanges(ctx context.Context, from globallog.Position, limit int) ([]globallog.Range, error) {
	rows, err := s.queries.AllGlobalRanges(ctx, s.db.Reads, &globallogdb.AllGlobalRangesParams{Position: int64(from), Most: int32(limit)})
	return pg.MapRows(ctx, rows, err, func(r *globallogdb.AllGlobalRangesRow) globallog.Range {
		return rangeOf((*globallogdb.ExtendGlobalLogRow)(r))
	})
}

// Checksums implements ports.GlobalLogAudit.
func (s *Store) Checksums(ctx context.Context, p event.PartitionID, from event.Sequence, n int) ([]event.Hash, error) {
	rows, err := s.queries.Checksums(ctx, s.db.Reads, &globallogdb.ChecksumsParams{PartitionID: int32(p), FirstSequence: int64(from), EndSequence: int64(from) + int64(n)})
	return pg.MapRows(ctx, rows, err, func(checksum *[]byte) (h event.Hash) { copy(h[:], *checksum); return h })
}

// GlobalTiles implements ports.GlobalLogAudit.
func (s *Store) GlobalTiles(ctx context.Context, level int, from uint64, limit int) ([]ports.StoredTile, error) {
	rows, err := s.queries.GlobalTiles(ctx, s.db.Reads, &globallogdb.GlobalTilesParams{Level: int16(level), FirstIndex: int64(from), Most: int32(limit)})
	return pg.MapRows(ctx, rows, err, func(r *globallogdb.GlobalTilesRow) (t ports.StoredTile) {
		t.Level, t.Index = level, uint64(r.Index)
		copy(t.StoredRoot[:], r.Root)
		for hashes := r.Hashes; len(hashes) >= len(event.Hash{}); hashes = hashes[32:] {
			t.Hashes = append(t.Hashes, event.Hash(hashes[:32]))
		}
		return t
	})
}

func numbers(partitions []event.PartitionID) []int32 {
	out := make([]int32, len(partitions))
	for i, p := range partitions {
		out[i] = int32(p)
	}
	return out
}
