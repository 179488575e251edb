package globallog

import (
	"context"
	"fmt"
	"log/slog"
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
	// MirrorFailed reports that the mirror could not be written. isRefused: since it has another log.
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

// Mirror copies the global log into a store for outsiders: checkpoints, each after the tiles of its tree, so that what is there proves
// itself without a server. Nothing in it is replaced.
type Mirror struct {
	MirrorConfig
	due  chan ports.SignedCheckpoint // the newest that was added
	last *ports.SignedCheckpoint     // in the store; nil: none is known
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
		m.Observer.MirrorFailed(fault.KindOf(err) == fault.Conflict)
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
// gets all of its tiles first. Fault export.name_taken if the mirror has another log.
func (m *Mirror) copy(ctx context.Context, next ports.SignedCheckpoint) (err error) {
	if m.last == nil {
		if m.last, err = NewestExport(ctx, m.Store); err != nil {
			return err
		}
	}
	var from uint64
	if m.last != nil && m.last.Incarnation == next.Incarnation {
		from = m.last.Size
	}
	level := 0
	for begin, end := from, next.Size; end > 0; begin, end = begin/globallog.TileWidth, end/globallog.TileWidth { // of the hashes of the level
		for index := begin / globallog.TileWidth; index*globallog.TileWidth < end; index++ {
			if err := m.copyTile(ctx, next.Incarnation, level, index, min(globallog.TileWidth, end-index*globallog.TileWidth)); err != nil {
				return err
			}
		}
		level++
	}
	if err := m.Store.PutIfAbsent(ctx, CheckpointName(next.Incarnation, next.Size), next.Note); err != nil {
		return err
	}
	m.last = &next
	return nil
}

func (m *Mirror) copyTile(ctx context.Context, incarnation, level int, index, width uint64) error {
	hashes, err := m.Tree.GlobalHashes(ctx, level, index*globallog.TileWidth, width)
	if err != nil {
		return err
	}
	content := make([]byte, 0, len(hashes)*len(event.Hash{}))
	for _, h := range hashes {
		content = append(content, h[:]...)
	}
	return m.Store.PutIfAbsent(ctx, TileName(incarnation, level, index, int(width)), content)
}
