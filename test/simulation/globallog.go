package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("global log", 1, func(w *world, _ *rand.Rand) part { return &globalOrder{world: w} })

// globalOrder is an auditor who keeps a copy of the global log and compares.
type globalOrder struct {
	world  *world
	ranges []globallog.Range
}

func (g *globalOrder) prepare(context.Context) error { return nil }

func (g *globalOrder) work() {
	r := g.world.random("global log")
	g.world.begin(func(ctx context.Context) {
		for pause(ctx, r, 5*time.Second) == nil {
			_ = g.read(ctx) // ctx has ended
		}
	})
}

// read requires that the global log continues what was there before.
func (g *globalOrder) read(ctx context.Context) error {
	heads, err := g.world.database.Events.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	q := ports.GlobalRangeQuery{Limit: 1 << 30}
	for p := range heads {
		q.Partitions = append(q.Partitions, p)
	}
	ranges, err := g.world.database.GlobalLog.GlobalRanges(ctx, q)
	if err != nil {
		return err
	}
	g.world.require(len(ranges) >= len(g.ranges) && slices.Equal(ranges[:len(g.ranges)], g.ranges), "positions do not change", "%d ranges, and %d before", len(ranges), len(g.ranges))
	g.ranges = ranges
	return nil
}

// settle waits until the global log has every event, and a node has signed it.
func (g *globalOrder) settle(ctx context.Context) error {
	return eventually(ctx, func() error {
		ends, err := g.world.database.GlobalLog.GlobalEnds(ctx, globallog.End)
		if err != nil {
			return err
		}
		books, err := g.world.readBooks(ctx)
		if err != nil {
			return err
		}
		for p, events := range books.partitions {
			if have := int(ends[p]); have < len(events) {
				return fmt.Errorf("the global log has %d of %d events of partition %d", have, len(events), p)
			}
		}
		size, err := g.world.database.GlobalLog.GlobalSize(ctx)
		if err != nil {
			return err
		}
		if newest, err := g.world.database.GlobalLog.NewestCheckpoint(ctx); err != nil || size > 0 && (newest == nil || newest.Size < size) {
			return fmt.Errorf("the newest checkpoint is not of all %d events: %w", size, err)
		}
		return nil
	})
}

// check requires that the global log is without gaps, has every event once and in order, and has the root of
// their checksums, as each checkpoint has that of the first ones.
func (g *globalOrder) check(b *books) {
	ctx, w := context.Background(), g.world
	if !w.require(g.read(ctx) == nil, "books", "the global log cannot be read") {
		return
	}
	checkpoints, err := w.database.GlobalLog.Checkpoints(ctx, 0, 0, 1<<30)
	if !w.require(err == nil, "books", "the checkpoints cannot be read: %v", err) {
		return
	}
	var next globallog.Position
	ends, tree := map[event.PartitionID]event.Sequence{}, globallog.Edge{}
	for _, r := range g.ranges {
		if !w.require(r.First == next && r.Sequence == ends[r.Partition]+1 && int(r.NextSequence())-1 <= len(b.partitions[r.Partition]), "positions have no gap", "range %+v after position %d and sequence %d", r, next, ends[r.Partition]) {
			return
		}
		for s := r.Sequence; s < r.NextSequence(); s++ {
			tree.Append(b.event(r.Partition, s).Checksum)
			if len(checkpoints) > 0 && checkpoints[0].Size == tree.Size() {
				w.require(checkpoints[0].Root == tree.Root(), "checkpoints are of the events", "that of %d events", tree.Size())
				checkpoints = checkpoints[1:]
			}
		}
		next, ends[r.Partition] = r.End(), r.NextSequence()-1
	}
	stored, err := globallog.Root(tree.Size(), func(level int, from, n uint64) ([]event.Hash, error) {
		return w.database.GlobalLog.GlobalHashes(ctx, level, from, n)
	})
	w.require(len(checkpoints) == 0, "checkpoints are of the events", "%d are of more events than there are", len(checkpoints))
	w.require(err == nil && stored == tree.Root(), "the tree is that of the events", "of %d events: %v", tree.Size(), err)
}
