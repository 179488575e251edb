package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("broker", 0.4, func(w *world, r *rand.Rand) part {
	b := &broker{world: w, stored: map[event.PartitionID][]event.Sequence{}, ids: map[event.ID]bool{}, cursor: map[event.PartitionID]event.Sequence{}, random: w.random("broker"), trouble: 0.3 * r.Float64()}
	w.broker = b
	return b
})

// broker stores published events, drops those that it has, and fails.
type broker struct {
	world   *world
	trouble float64

	mu     sync.Mutex
	stored map[event.PartitionID][]event.Sequence
	ids    map[event.ID]bool
	cursor map[event.PartitionID]event.Sequence // the latest that was seen of the publisher's
	random *rand.Rand
	calm   bool
}

func (b *broker) prepare(context.Context) error { return nil }

func (b *broker) work() {}

// Publish implements ports.Publisher.
func (b *broker) Publish(ctx context.Context, messages []ports.Message) (out ports.Published, err error) {
	for i := range messages {
		if err := b.watchCursors(ctx); err != nil {
			return out, err
		}
		b.mu.Lock()
		luck, slow := b.random.Float64(), time.Duration(b.random.ExpFloat64()*float64(3*time.Millisecond))
		if b.calm {
			luck = 1
		}
		b.mu.Unlock()
		if err := ports.Sleep(ctx, slow); err != nil {
			return out, err
		}
		if luck < b.trouble/2 {
			return out, unreachableBroker()
		}
		duplicate := b.store(&messages[i])
		if luck < b.trouble {
			return out, unreachableBroker() // it was stored
		}
		out.Stored++
		if duplicate {
			out.Duplicates++
		}
	}
	return out, nil
}

// watchCursors requires that no cursor of the publisher goes back: brokers forget after a time which
// messages they have stored.
func (b *broker) watchCursors(ctx context.Context) error {
	cursors, err := b.world.database.Publishers.PublisherCursors(ctx, "")
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range cursors {
		b.world.require(c.PublishedThrough >= b.cursor[c.Partition], "cursors of publishers do not go back", "%s of partition %d: from %d to %d", c.Publisher, c.Partition, b.cursor[c.Partition], c.PublishedThrough)
		b.cursor[c.Partition] = c.PublishedThrough
	}
	return nil
}

func unreachableBroker() error {
	return fault.New(fault.Unavailable, "publisher.unavailable", "the broker does not answer; try again")
}

func (b *broker) store(m *ports.Message) (duplicate bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[m.ID] {
		return true
	}
	b.ids[m.ID] = true
	b.stored[m.Partition] = append(b.stored[m.Partition], m.Sequence)
	return false
}

func (b *broker) settle(ctx context.Context) error {
	b.mu.Lock()
	b.calm = true
	b.mu.Unlock()
	return eventually(ctx, func() error {
		books, err := b.world.readBooks(ctx)
		if err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, le := range b.world.entities {
			if have, want := len(b.stored[le.Partition]), len(books.partitions[le.Partition]); have < want {
				return fmt.Errorf("%d of %d events of %s were published", have, want, le.Code)
			}
		}
		return nil
	})
}

// check requires that the broker has every event of the books, in their order.
func (b *broker) check(books *books) {
	for _, le := range b.world.entities {
		for i, n := range b.stored[le.Partition] {
			if !b.world.require(n == event.Sequence(i+1), "the broker has the order of the log", "%s: event %d at place %d", le.Code, n, i+1) {
				break
			}
		}
		b.world.require(len(b.stored[le.Partition]) == len(books.partitions[le.Partition]), "the broker has every event", "%s: %d of %d", le.Code, len(b.stored[le.Partition]), len(books.partitions[le.Partition]))
	}
}
