package verify

import (
	"bytes"
	"cmp"
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
	Size        uint64 `json:"size"`                           // events
	Root        string `json:"root_hash"`                      // of the tree over them
	Signed      uint64 `json:"signed"`                         // events that the newest checkpoint in the database has; the others are not signed yet
	Compared    int    `json:"compared_checkpoints,omitempty"` // from outside of the database
	Forks       []Fork `json:"forks,omitempty"`
	FindingList        // their sequence is a position
}

// Anchors are what the global log is compared with besides the logs.
type Anchors struct {
	Kept     []globallog.Checkpoint // outside of the database; their signatures are for the caller
	IsSigned func(note []byte) bool // whether the log signed a checkpoint of the database; nil: it is not checked
}

// Fork is a checkpoint of an earlier incarnation with events that the log has not: it was restored from a backup since.
type Fork struct {
	Origin string `json:"origin"`
	Size   uint64 `json:"size"`
}

// Pages of what is read of the global log.
const (
	rangesPage      = 1000
	checksumsPage   = 10_000
	tilesPage       = 100
	checkpointsPage = 1000
)

// GlobalLog compares the global log with the logs of all partitions: its ranges have no gap and take each
// partition in order, and its tiles are those of the checksums of the events. Whether the checksums are right is
// for Run. What the global log does not have yet is no finding.
//
// It must have the root of each checkpoint in the database, and of those that were kept outside of it. One of an
// earlier incarnation that it has not is a fork.
func GlobalLog(ctx context.Context, store ports.GlobalLogAudit, anchors Anchors, progress Progress) (GlobalLogReport, error) {
	w := globalWalk{store: store, isSigned: anchors.IsSigned, ends: map[event.PartitionID]event.Sequence{}, tiles: map[int][]ports.StoredTile{}, complete: map[int]uint64{}}
	w.report.Findings = []Finding{}
	w.kept = slices.SortedFunc(slices.Values(anchors.Kept), func(a, b globallog.Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	w.report.Compared = len(w.kept)
	for _, c := range w.kept {
		w.incarnation = max(w.incarnation, c.Incarnation())
	}
	size, err := store.GlobalSize(ctx)
	if err != nil {
		return w.report, err
	}
	if err := w.readCheckpoints(ctx); err != nil {
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
	if progress != nil && size > 0 {
		progress("", size, size)
	}
	if w.report.Sound() {
		if err := w.findExtraTiles(ctx); err != nil {
			return w.report, err
		}
		if err := w.findExtraCheckpoints(ctx); err != nil {
			return w.report, err
		}
	}
	w.reportLacks()
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

	recorded    []ports.SignedCheckpoint // read from the database and not compared yet
	kept        []globallog.Checkpoint   // not compared yet, by size
	incarnation int                      // the newest one of which a checkpoint is right
	isSigned    func(note []byte) bool   // nil: it is not checked
	lacks       []lacking
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
			if err := w.compareRoot(ctx); err != nil {
				return err
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

// readCheckpoints reads the next checkpoints of the database.
func (w *globalWalk) readCheckpoints(ctx context.Context) (err error) {
	w.recorded, err = w.store.Checkpoints(ctx, 0, 0, checkpointsPage)
	return err
}

// compareRoot compares the root of the events so far with the checkpoints of as many.
func (w *globalWalk) compareRoot(ctx context.Context) (err error) {
	size := w.tree.Size()
	for len(w.recorded) > 0 && w.recorded[0].Size == size {
		next := w.recorded[0]
		w.requireRecorded(next)
		if w.recorded = w.recorded[1:]; len(w.recorded) == 0 {
			if w.recorded, err = w.store.Checkpoints(ctx, next.Size, next.Incarnation, checkpointsPage); err != nil {
				return err
			}
		}
	}
	for len(w.kept) > 0 && w.kept[0].Size <= size {
		if c := w.kept[0]; c.Size == size && c.Root != w.tree.Root() {
			w.lack(c, GlobalLogForked, "the log does not begin with the %d events of the checkpoint: it was recomputed, or is another log")
		}
		w.kept = w.kept[1:]
	}
	return nil
}

// requireRecorded demands that a checkpoint of the database has the root of the events, in its note too.
func (w *globalWalk) requireRecorded(c ports.SignedCheckpoint) {
	text, _, _ := bytes.Cut(c.Note, []byte("\n\n"))
	signed, err := globallog.ParseCheckpoint(append(slices.Clone(text), '\n'))
	if err != nil || signed.Size != c.Size || signed.Root != c.Root || signed.Incarnation() != c.Incarnation || c.Root != w.tree.Root() {
		w.add("the checkpoint of %d events in the database is not that of the events", c.Size)
		return
	}
	if !w.requireSigned(c) {
		return
	}
	w.incarnation = max(w.incarnation, c.Incarnation)
	w.report.Signed = max(w.report.Signed, c.Size)
}

// requireSigned demands that the log signed a checkpoint of the database, if its key is known.
func (w *globalWalk) requireSigned(c ports.SignedCheckpoint) bool {
	isSigned := w.isSigned == nil || w.isSigned(c.Note)
	if !isSigned {
		w.add("the checkpoint of %d events in the database is not signed with the key of the log", c.Size)
	}
	return isSigned
}

// lacking is a checkpoint that was kept outside and that the log has not.
type lacking struct {
	globallog.Checkpoint
	finding Finding
}

// lack notes that the log lacks a checkpoint that was kept outside.
func (w *globalWalk) lack(c globallog.Checkpoint, kind FindingKind, detail string) {
	w.lacks = append(w.lacks, lacking{c, Finding{Kind: kind, Sequence: event.Sequence(w.tree.Size()), Detail: fmt.Sprintf(detail, c.Size)}})
}

// reportLacks reports what the log lacks: findings, and forks before the newest incarnation of which a checkpoint is right.
func (w *globalWalk) reportLacks() {
	for _, l := range w.lacks {
		if l.Incarnation() < w.incarnation {
			w.report.Forks = append(w.report.Forks, Fork{l.Origin, l.Size})
		} else {
			w.report.add(l.finding)
		}
	}
}

// findExtraCheckpoints finds checkpoints of events that the global log does not have. It may have grown since.
func (w *globalWalk) findExtraCheckpoints(ctx context.Context) error {
	size, err := w.store.GlobalSize(ctx)
	if err != nil {
		return err
	}
	for _, c := range w.recorded {
		if w.requireSigned(c) && c.Size > size {
			w.add("the checkpoint of %d events in the database is of more events than the global log has", c.Size)
		}
	}
	for _, c := range w.kept {
		if c.Size > size {
			w.lack(c, GlobalLogCut, "the log is shorter than the %d events of the checkpoint: its end was cut off, or the database was restored to an earlier state")
		}
	}
	return nil
}
