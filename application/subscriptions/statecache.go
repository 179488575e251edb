package subscriptions

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// stateCache lets all polls of this node that wait behind open messages share one query for
// changes that other nodes made.
type stateCache struct {
	mu      sync.Mutex
	waiting map[event.ID]int // polls by subscription
	query   chan struct{}    // holds a token while no query runs; made with the first poll
	readAt  time.Time
	states  map[event.ID]ports.DeliveryState // replaced, never changed
}

// register counts a waiting poll; leave must be called when it stops waiting.
func (b *stateCache) register(uid event.ID) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[event.ID]int{}
		b.query = make(chan struct{}, 1)
		b.query <- struct{}{}
	}
	b.waiting[uid]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.waiting[uid]--; b.waiting[uid] == 0 {
			delete(b.waiting, uid)
		}
	}
}

// cached returns the state of a subscription if it was read less than age ago.
func (b *stateCache) cached(uid event.ID, age time.Duration) (state ports.DeliveryState, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.readAt) > age {
		return state, false
	}
	state, known = b.states[uid]
	return state, known
}

// deliveryState returns the state of a subscription, which another poll of this node may have
// read up to half a recheck interval ago.
func (s *Service) deliveryState(ctx context.Context, uid event.ID) (ports.DeliveryState, error) {
	b := &s.states
	age := s.config.RecheckInterval / 2
	if known, ok := b.cached(uid, age); ok {
		return known, nil
	}
	select {
	case <-b.query:
		defer func() { b.query <- struct{}{} }()
	case <-ctx.Done():
		return ports.DeliveryState{}, ctx.Err()
	}
	if known, ok := b.cached(uid, age); ok {
		return known, nil
	}
	b.mu.Lock()
	uids := make([]event.ID, 0, len(b.waiting))
	for one := range b.waiting {
		uids = append(uids, one)
	}
	b.mu.Unlock()
	at := time.Now()
	states, err := s.config.Store.DeliveryStates(ctx, uids)
	if err != nil {
		return ports.DeliveryState{}, err
	}
	for _, one := range uids {
		if _, exists := states[one]; !exists {
			states[one] = ports.DeliveryState{Revision: -1} // deleted: differs from every state that a poll has seen
		}
	}
	b.mu.Lock()
	b.readAt, b.states = at, states
	b.mu.Unlock()
	return states[uid], nil
}
