package subscriptions

import (
	"context"
	"slices"
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
	query   ports.Lock       // around the query; made with the first poll
	readAt  time.Time
	states  map[event.ID]ports.DeliveryState // replaced, never changed
}

// register counts a waiting poll; leave must be called when it stops waiting.
func (c *stateCache) register(uid event.ID) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[event.ID]int{}
		c.query = ports.NewLock()
	}
	c.waiting[uid]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting[uid]--; c.waiting[uid] == 0 {
			delete(c.waiting, uid)
		}
	}
}

// cached returns the state of a subscription if it was read less than age ago.
func (c *stateCache) cached(uid event.ID, age time.Duration) (state ports.DeliveryState, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.readAt) > age {
		return state, false
	}
	state, known = c.states[uid]
	return state, known
}

// deliveryState returns the state of a subscription, which another poll of this node may have
// read up to half a recheck interval ago.
func (s *Service) deliveryState(ctx context.Context, uid event.ID) (ports.DeliveryState, error) {
	c := &s.states
	age := s.config.RecheckInterval / 2
	if known, ok := c.cached(uid, age); ok {
		return known, nil
	}
	if err := c.query.Acquire(ctx); err != nil {
		return ports.DeliveryState{}, err
	}
	defer c.query.Release()
	if known, ok := c.cached(uid, age); ok {
		return known, nil
	}
	c.mu.Lock()
	uids := make([]event.ID, 0, len(c.waiting))
	for one := range c.waiting {
		uids = append(uids, one)
	}
	c.mu.Unlock()
	slices.SortFunc(uids, event.ID.Compare)
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
	c.mu.Lock()
	c.readAt, c.states = at, states
	c.mu.Unlock()
	return states[uid], nil
}
