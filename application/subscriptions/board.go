package subscriptions

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// board shows the polls of this node that wait behind something what other nodes did:
// one look at the store is for all of them.
type board struct {
	mu      sync.Mutex
	waiting map[event.ID]int // polls by subscription
	turn    chan struct{}    // holds a token while nobody looks; made with the first poll
	looked  time.Time
	shown   map[event.ID]ports.DeliveryState // replaced, never changed
}

// enter counts a poll in; leave must be called when it waits no more.
func (b *board) enter(uid event.ID) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[event.ID]int{}
		b.turn = make(chan struct{}, 1)
		b.turn <- struct{}{}
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

// fresh gives what is known of a subscription if that is not too old.
func (b *board) fresh(uid event.ID, age time.Duration) (state ports.DeliveryState, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.looked) > age {
		return state, false
	}
	state, known = b.shown[uid]
	return state, known
}

// state tells how a subscription stands. What others of this node have asked within half
// the time between two looks is not asked again.
func (s *Service) state(ctx context.Context, uid event.ID) (ports.DeliveryState, error) {
	b := &s.board
	age := s.config.Recheck / 2
	if known, ok := b.fresh(uid, age); ok {
		return known, nil
	}
	select {
	case <-b.turn:
		defer func() { b.turn <- struct{}{} }()
	case <-ctx.Done():
		return ports.DeliveryState{}, ctx.Err()
	}
	if known, ok := b.fresh(uid, age); ok {
		return known, nil
	}
	b.mu.Lock()
	uids := make([]event.ID, 0, len(b.waiting))
	for one := range b.waiting {
		uids = append(uids, one)
	}
	b.mu.Unlock()
	at := time.Now()
	shown, err := s.config.Store.DeliveryStates(ctx, uids)
	if err != nil {
		return ports.DeliveryState{}, err
	}
	for _, one := range uids {
		if _, there := shown[one]; !there {
			shown[one] = ports.DeliveryState{Revision: -1} // gone: not how anybody has seen it
		}
	}
	b.mu.Lock()
	b.looked, b.shown = at, shown
	b.mu.Unlock()
	return shown[uid], nil
}
