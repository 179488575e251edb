package verify

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// GlobalLogReport is the result of verifying the global log.
type GlobalLogReport struct {
	Size        uint64 `json:"size"`      // events
	Root        string `json:"root_hash"` // of the tree over them
	FindingList        // their sequence is a position
}

// Pages of what is read of the global log.
const (
	rangesPage    = 1000
	checksumsPage = 10_000
	tilesPage     = 100
)

// GlobalLog compares the global log with the logs of all partitions: its ranges have no gap and take each
// partition in order, and its tiles are those of the checksums of the events. Whether the checksums are right is
// for Run. What the global log does not have yet is no finding.
func GlobalLog(ctx context.Context, store ports.GlobalLogAudit, progress Progress) (GlobalLogReport, error) {
	w := globalWalk{store: store, ends: map[event.PartitionID]event.Sequence{}, tiles: map[int][]ports.StoredTile{}, complete: map[int]uint64{}}
	w.report.Findings = []Finding{}
	size, err := store.GlobalSize(ctx)
	if err != nil {
		return w.report, err
	}
	for w.tree.Size() < size && w.report.Sound() {
		if progress != nil {
			progress("", w.tree.Size(), size)
		}
		if err := w.page(ctx, size); err != nil {
			return w.report, err
		}
	}
	if w.report.Sound() {
		if err := w.findExtraTiles(ctx); err != nil {
			return w.report, err
		}
	}
	root := w.tree.Root()
	w.report.Size, w.report.Root = w.tree.Size(), hex.EncodeToString(root[:])
	return w.report, nil
}

// globalWalk follows the global log from its beginning. It ends at the first damage of the order, after which
// no position is right.
type globalWalk struct {
	store    ports.GlobalLogAudit
	report   GlobalLogReport
	tree     globallog.Edge
	ends     map[event.PartitionID]event.Sequence
	tiles    map[int][]ports.StoredTile // read and not compared yet, by level
	complete map[int]uint64             // tiles that were compared, by level
}

func (w *globalWalk) add(detail string, args ...any) {
	w.report.add(Finding{Kind: GlobalLogMismatch, Sequence: event.Sequence(w.tree.Size()), Detail: fmt.Sprintf(detail, args...)})
}

// page follows a page of ranges, up to a size.
func (w *globalWalk) page(ctx context.Context, size uint64) error {
	next := globallog.Position(w.tree.Size())
	ranges, err := w.store.AllGlobalRanges(ctx, next, rangesPage)
	if err != nil {
		return err
	}
	if len(ranges) == 0 {
		w.add("the global log has a gap: no range has position %d", next)
	}
	for _, r := range ranges {
		switch {
		case uint64(r.First) >= size:
			return nil
		case r.First != next:
			w.add("the global log has a gap: after position %d there is a range from %d on", next, r.First)
			return nil
		case r.Sequence != w.ends[r.Partition]+1:
			w.add("the range at position %d begins with event %d of partition %d, and the range before ended with %d", r.First, r.Sequence, r.Partition, w.ends[r.Partition])
			return nil
		}
		if err := w.follow(ctx, r); err != nil || !w.report.Sound() {
			return err
		}
		next, w.ends[r.Partition] = r.End(), r.NextSequence()-1
	}
	return nil
}

// follow adds the events of a range to the tree.
func (w *globalWalk) follow(ctx context.Context, r globallog.Range) error {
	for sequence := r.Sequence; sequence < r.NextSequence(); {
		n := min(int(r.NextSequence()-sequence), checksumsPage)
		checksums, err := w.store.Checksums(ctx, r.Partition, sequence, n)
		if err != nil {
			return err
		}
		if len(checksums) < n {
			w.add("the global log has the events %d to %d of partition %d, and its log lacks %d of them", sequence, int(sequence)+n-1, r.Partition, n-len(checksums))
			return nil
		}
		for _, checksum := range checksums {
			for _, tile := range w.tree.Append(checksum) {
				if err := w.compare(ctx, tile); err != nil {
					return err
				}
			}
		}
		sequence += event.Sequence(n)
	}
	return nil
}

// compare compares a tile of the events with the stored one.
func (w *globalWalk) compare(ctx context.Context, want globallog.Tile) (err error) {
	if len(w.tiles[want.Level]) == 0 {
		if w.tiles[want.Level], err = w.store.GlobalTiles(ctx, want.Level, want.Index, tilesPage); err != nil {
			return err
		}
	}
	stored := w.tiles[want.Level]
	w.complete[want.Level]++
	switch {
	case len(stored) == 0 || stored[0].Index != want.Index:
		w.add("tile %d of level %d is missing", want.Index, want.Level)
		return nil
	case !slices.Equal(stored[0].Hashes, want.Hashes) || stored[0].StoredRoot != want.Root():
		w.add("tile %d of level %d is not that of the events", want.Index, want.Level)
	}
	w.tiles[want.Level] = stored[1:]
	return nil
}

// findExtraTiles finds tiles of events that the global log does not have. It may have grown since.
func (w *globalWalk) findExtraTiles(ctx context.Context) error {
	const levels = 64 / globallog.TileHeight
	for level := range levels {
		tiles, err := w.store.GlobalTiles(ctx, level, w.complete[level], tilesPage)
		if err != nil {
			return err
		}
		size, err := w.store.GlobalSize(ctx) // after the tiles
		if err != nil {
			return err
		}
		for range level + 1 {
			size /= globallog.TileWidth
		}
		for _, tile := range tiles {
			if tile.Index >= size {
				w.add("tile %d of level %d is of more events than the global log has", tile.Index, level)
			}
		}
	}
	return nil
}
