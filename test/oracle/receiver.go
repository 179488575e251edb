package oracle

import (
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
)

// place is a place in the log of a legal entity.
type place struct {
	partition event.PartitionID
	sequence  event.Sequence
}

// Receiver is what a receiver of events got, and what it was promised.
type Receiver struct {
	require Require
	name    string
	keyOf   func(e *event.Recorded) string // events of one key come in order

	mu      sync.Mutex
	first   map[string]event.Sequence // of each key: the latest event that came for the first time
	seen    map[place]int             // deliveries
	settled map[place]bool            // done: the sender was told so, and confirmed it
	taken   map[place]bool            // accepted, whether or not the sender learned it
}

// NewReceiver returns a receiver that got nothing yet.
func NewReceiver(require Require, name string, keyOf func(e *event.Recorded) string) *Receiver {
	return &Receiver{require: require, name: name, keyOf: keyOf, first: map[string]event.Sequence{}, seen: map[place]int{}, settled: map[place]bool{}, taken: map[place]bool{}}
}

// Deliver takes an event that was delivered. Events of one key come for the first time in their
// order, and never again after they are done.
func (r *Receiver) Deliver(e *event.Recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, key := place{e.Partition, e.Sequence}, r.keyOf(e)
	if r.seen[at]++; r.seen[at] == 1 {
		r.require(r.first[key] < e.Sequence, "subscribers get their order", "%s: %d of key %s after %d", r.name, e.Sequence, key, r.first[key])
		r.first[key] = e.Sequence
	}
	r.require(!r.settled[at], "what is done stays done", "%s: %d of key %s came again", r.name, e.Sequence, key)
}

// DeliverAgain takes an event that comes until it is accepted. Events of one key come one after the
// other: an event comes for the first time after the one before it was accepted.
func (r *Receiver) DeliverAgain(e *event.Recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, key := place{e.Partition, e.Sequence}, r.keyOf(e)
	if r.seen[at]++; r.seen[at] > 1 {
		return
	}
	before := r.first[key]
	r.require(before < e.Sequence, "subscribers get their order", "%s: %d of key %s after %d", r.name, e.Sequence, key, before)
	r.require(before == 0 || r.taken[place{e.Partition, before}], "subscribers get their order", "%s: %d of key %s came before %d was accepted", r.name, e.Sequence, key, before)
	r.first[key] = e.Sequence
}

// Accept says that the receiver has accepted an event.
func (r *Receiver) Accept(e *event.Recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[place{e.Partition, e.Sequence}] = true
}

// Done says that an event is done.
func (r *Receiver) Done(p event.PartitionID, n event.Sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled[place{p, n}] = true
}

// Deliveries counts how often an event came.
func (r *Receiver) Deliveries(p event.PartitionID, n event.Sequence) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[place{p, n}]
}

// Unaccepted counts the events that a filter selects and that were not accepted yet.
func (r *Receiver) Unaccepted(b Books, selects func(e *event.Recorded) bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, events := range b {
		for i := range events {
			if e := &events[i]; selects(e) && !r.taken[place{p, e.Sequence}] {
				n++
			}
		}
	}
	return n
}

// Complete requires that every event of the log that a filter selects was delivered.
func (r *Receiver) Complete(b Books, selects func(e *event.Recorded) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, events := range b {
		for i := range events {
			if e := &events[i]; selects(e) {
				r.require(r.seen[place{p, e.Sequence}] > 0, "at least once", "%s: event %d of partition %d never came", r.name, e.Sequence, p)
			}
		}
	}
}

// KeyOf returns the key of an event under an order of subscriptions.
func KeyOf(order string) func(e *event.Recorded) string {
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
