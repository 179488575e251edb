package globallog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// TileName is the name of a tile in a mirror: the tiles of an incarnation have the names of c2sp.org/tlog-tiles below
// its folder. A width below 256 is that of the last tile of a level, which later checkpoints have a wider one of.
func TileName(incarnation, level int, index uint64, width int) string {
	return fmt.Sprintf("tiles/%06d/%s", incarnation, globallog.TilePath(level, index, width))
}

// MirrorObserver is notified of what a mirror has.
type MirrorObserver interface {
	// Mirrored reports the events of the newest checkpoint in the mirror.
	Mirrored(size uint64)
	// MirrorFailed reports that the mirror could not be written. isRefused: since it, or the database, has another log.
	MirrorFailed(isRefused bool)
}

// MirrorConfig is what a Mirror needs; all of it is required.
type MirrorConfig struct {
	Tree     ports.GlobalTree
	Store    ports.ExportStore
	Logger   *slog.Logger
	Observer MirrorObserver
}

// mirrorRetry is the pause after a failure.
const mirrorRetry = 10 * time.Second

// Mirror copies the global log into a store for outsiders: checkpoints, each after the hashes of its tree, so that what is there proves
// itself without a server. Nothing in it is replaced, and nothing is written that is not of the tree which was signed.
type Mirror struct {
	MirrorConfig
	due         chan ports.SignedCheckpoint // the newest that was added
	incarnation int                         // whose tiles are in the store; 0: it was not looked at yet
	complete    []uint64                    // by level, how many complete tiles the store has, as far as is known
}

// NewMirror makes a Mirror. It does nothing until it runs.
func NewMirror(c MirrorConfig) *Mirror {
	return &Mirror{MirrorConfig: c, due: make(chan ports.SignedCheckpoint, 1)}
}

// Add asks for a checkpoint to be mirrored. It does not wait, and only the last call counts.
func (m *Mirror) Add(c ports.SignedCheckpoint) {
	for {
		select {
		case m.due <- c:
			return
		case <-m.due:
		}
	}
}

// Run mirrors checkpoints until ctx ends. What is left begins again at the next start.
func (m *Mirror) Run(ctx context.Context) {
	for {
		var next ports.SignedCheckpoint
		select {
		case <-ctx.Done():
			return
		case next = <-m.due:
		}
		err := m.copy(ctx, next)
		if err == nil {
			m.Observer.Mirrored(next.Size)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		m.Observer.MirrorFailed(fault.KindOf(err) == fault.Conflict || fault.KindOf(err) == fault.FailedPrecondition)
		m.Logger.ErrorContext(ctx, "the mirror of the global log was not written; it will be tried again", "code", fault.CodeOf(err))
		select {
		case m.due <- next: // try again
		default: // with a newer one
		}
		if ports.Sleep(ctx, mirrorRetry) != nil {
			return
		}
	}
}

// copy writes the tiles of a checkpoint that the mirror lacks, and then the checkpoint. A mirror that was begun on a long log
// gets all of its tiles first. Faults: global_log.mirror_differs (Conflict) and export.name_taken, if the mirror has
// another log; global_log.forked (FailedPrecondition), if the database has another one than was signed.
func (m *Mirror) copy(ctx context.Context, next ports.SignedCheckpoint) error {
	if err := m.requireTree(ctx, next, forked(next.Size)); err != nil {
		return err
	}
	if m.incarnation == 0 {
		if err := m.resume(ctx, next); err != nil {
			return err
		}
	}
	if m.incarnation != next.Incarnation {
		m.incarnation, m.complete = next.Incarnation, nil
	}
	level := 0
	for hashes := next.Size; hashes > 0; hashes /= globallog.TileWidth {
		if level == len(m.complete) {
			m.complete = append(m.complete, 0)
		}
		for index := m.complete[level]; index*globallog.TileWidth < hashes; index++ {
			width := min(globallog.TileWidth, hashes-index*globallog.TileWidth)
			if err := m.copyTile(ctx, next, level, index, width); err != nil {
				return err
			}
			if width == globallog.TileWidth {
				m.complete[level] = index + 1
			}
		}
		level++
	}
	return m.Store.PutIfAbsent(ctx, CheckpointName(next.Incarnation, next.Size), next.Note)
}

// requireTree demands that the database has the tree of a checkpoint.
func (m *Mirror) requireTree(ctx context.Context, c ports.SignedCheckpoint, differs *fault.Error) error {
	root, err := globallog.Root(c.Size, hashesOf(ctx, m.Tree))
	if err == nil && root != c.Root {
		return differs
	}
	return err
}

// resume finds what the mirror has by its newest checkpoint, which must be of this log. Without the tiles of that, as where
// only checkpoints were copied, all are written again, and what is there is compared.
func (m *Mirror) resume(ctx context.Context, next ports.SignedCheckpoint) error {
	last, err := NewestExport(ctx, m.Store)
	switch {
	case err != nil || last == nil || last.Size == 0:
		return err
	case logNameOf(last.Note) != logNameOf(next.Note) || last.Incarnation > next.Incarnation:
		return mirrorDiffers()
	case last.Incarnation < next.Incarnation:
		return nil // the log was restored, and does not have all that the mirror has
	}
	if err := m.requireTree(ctx, *last, mirrorDiffers()); err != nil {
		return err
	}
	index := (last.Size - 1) / globallog.TileWidth
	if _, err := m.Store.Get(ctx, TileName(last.Incarnation, 0, index, int(last.Size-index*globallog.TileWidth))); err != nil {
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		return err
	}
	m.incarnation, m.complete = last.Incarnation, nil
	for tiles := last.Size / globallog.TileWidth; tiles > 0; tiles /= globallog.TileWidth {
		m.complete = append(m.complete, tiles)
	}
	return nil
}

// logNameOf is the name of the log in the first line of a checkpoint, which ends with "/" and the incarnation.
func logNameOf(note []byte) string {
	origin, _, _ := strings.Cut(string(note), "\n")
	return origin[:max(strings.LastIndexByte(origin, '/'), 0)]
}

func mirrorDiffers() *fault.Error {
	return fault.New(fault.Conflict, "global_log.mirror_differs", "the mirror has checkpoints of another log; name its own folder or bucket for each installation, and if it is this one's, compare with a backup")
}

// copyTile copies a tile. The hash of a complete one must be that in the tile above, from which the root follows.
func (m *Mirror) copyTile(ctx context.Context, c ports.SignedCheckpoint, level int, index, width uint64) error {
	hashes, err := m.Tree.GlobalHashes(ctx, level, index*globallog.TileWidth, width)
	if err != nil {
		return err
	}
	if width == globallog.TileWidth {
		above, err := m.Tree.GlobalHashes(ctx, level+1, index, 1)
		if err != nil {
			return err
		}
		if (globallog.Tile{Level: level, Index: index, Hashes: hashes}).Root() != above[0] {
			return forked(c.Size)
		}
	}
	content := make([]byte, 0, len(hashes)*len(event.Hash{}))
	for _, h := range hashes {
		content = append(content, h[:]...)
	}
	return m.Store.PutIfAbsent(ctx, TileName(c.Incarnation, level, index, int(width)), content)
}
