package subscriptions

import (
	"context"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
)

// kicks wakes the polls of this node that wait for a subscription.
type kicks struct {
	mu      sync.Mutex
	waiting map[event.ID]chan struct{}
	users   map[event.ID]int
}

// wait gives a channel that is closed at the next kick; done must be called when it
// is not looked at any more.
func (k *kicks) wait(uid event.ID) (kicked <-chan struct{}, done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting == nil {
		k.waiting, k.users = map[event.ID]chan struct{}{}, map[event.ID]int{}
	}
	c := k.waiting[uid]
	if c == nil {
		c = make(chan struct{})
		k.waiting[uid] = c
	}
	k.users[uid]++
	return c, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.users[uid]--; k.users[uid] <= 0 {
			delete(k.users, uid)
			delete(k.waiting, uid)
		}
	}
}

func (k *kicks) kick(uid event.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.waiting[uid]; c != nil {
		close(c)
		k.waiting[uid] = make(chan struct{})
	}
}

// place is a subscription in a partition.
type place struct {
	uid       event.ID
	partition event.PartitionID
}

// locks lets those of this node who want the same row lock wait here, where it costs
// no connection.
type locks struct {
	mu   sync.Mutex
	held map[place]*turn
}

type turn struct {
	token chan struct{}
	users int
}

func (l *locks) lock(ctx context.Context, at place) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[place]*turn{}
	}
	t := l.held[at]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		l.held[at] = t
	}
	t.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(l.held, at)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
