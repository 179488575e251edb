package simulation

import (
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
)

// receipt is a place in the log of a legal entity.
type receipt struct {
	partition event.PartitionID
	sequence  event.Sequence
}

// received is what a receiver of events got, and what it was promised.
type received struct {
	world *world
	name  string
	keyOf func(e *event.Recorded) string // events of one key come in order

	mu      sync.Mutex
	first   map[string]event.Sequence // of each key: the latest event that came for the first time
	seen    map[receipt]int           // deliveries
	settled map[receipt]bool          // done: the sender was told so, and confirmed it
	taken   map[receipt]bool          // accepted, whether or not the sender learned it
}

func newReceived(w *world, name string, keyOf func(e *event.Recorded) string) *received {
	return &received{world: w, name: name, keyOf: keyOf, first: map[string]event.Sequence{}, seen: map[receipt]int{}, settled: map[receipt]bool{}, taken: map[receipt]bool{}}
}

// deliver takes an event that was delivered. Events of one key come for the first time in their
// order, and never again after they are done.
func (r *received) deliver(e *event.Recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, key := receipt{e.Partition, e.Sequence}, r.keyOf(e)
	if r.seen[at]++; r.seen[at] == 1 {
		r.world.require(r.first[key] < e.Sequence, "subscribers get their order", "%s: %d of key %s after %d", r.name, e.Sequence, key, r.first[key])
		r.first[key] = e.Sequence
	}
	r.world.require(!r.settled[at], "what is done stays done", "%s: %d of key %s came again", r.name, e.Sequence, key)
}

// deliverAgain takes an event that comes until it is accepted. Events of one key come one after the
// other: an event comes for the first time after the one before it was accepted.
func (r *received) deliverAgain(e *event.Recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, key := receipt{e.Partition, e.Sequence}, r.keyOf(e)
	if r.seen[at]++; r.seen[at] > 1 {
		return
	}
	before := r.first[key]
	r.world.require(before < e.Sequence, "subscribers get their order", "%s: %d of key %s after %d", r.name, e.Sequence, key, before)
	r.world.require(before == 0 || r.taken[receipt{e.Partition, before}], "subscribers get their order", "%s: %d of key %s came before %d was accepted", r.name, e.Sequence, key, before)
	r.first[key] = e.Sequence
}

// accept says that the receiver has accepted an event.
func (r *received) accept(e *event.Recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[receipt{e.Partition, e.Sequence}] = true
}

// unaccepted counts the events that a filter selects and that were not accepted yet.
func (r *received) unaccepted(b *books, selects func(e *event.Recorded) bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, events := range b.partitions {
		for i := range events {
			if e := &events[i]; selects(e) && !r.taken[receipt{p, e.Sequence}] {
				n++
			}
		}
	}
	return n
}

// done says that an event is done.
func (r *received) done(p event.PartitionID, n event.Sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled[receipt{p, n}] = true
}

// complete requires that every event of the log that a filter selects was delivered.
func (r *received) complete(b *books, selects func(e *event.Recorded) bool) {
	for p, events := range b.partitions {
		for i := range events {
			if e := &events[i]; selects(e) {
				r.world.require(r.seen[receipt{p, e.Sequence}] > 0, "at least once", "%s: event %d of partition %d never came", r.name, e.Sequence, p)
			}
		}
	}
}

// keyOf returns the key of an event under an order of subscriptions.
func keyOf(order string) func(e *event.Recorded) string {
	return func(e *event.Recorded) string {
		key := e.Scope.LegalEntity
		switch order {
		case subscription.PerStream:
			key += "/" + e.Stream.Type + "/" + e.Stream.ID
		case subscription.NoOrder:
			key += "/" + e.ID.String()
		}
		return key
	}
}
