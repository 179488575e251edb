package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/oracle"
)

var _ = takesPart("endpoint", 0.4, func(w *world, r *rand.Rand) part {
	order := []string{subscription.PerLegalEntity, subscription.PerStream}[r.IntN(2)]
	e := &endpoint{world: w, order: order, received: oracle.NewReceiver(w.require, "endpoint by "+order, oracle.KeyOf(order)), random: w.random("endpoint"), trouble: 0.3 * r.Float64()}
	w.sender = e
	return e
})

// endpoint receives movements by webhook. It is slow, fails, and its owner changes the subscription
// under deliveries.
type endpoint struct {
	world    *world
	order    string
	trouble  float64
	owner    ports.Principal
	received *oracle.Receiver

	mu     sync.Mutex
	random *rand.Rand // of the answers, by one delivery at a time
	calm   bool
	pace   time.Duration // of every answer, if not 0
	proven bool          // that a change interrupts no delivery
}

const webhookID = "webhook"

func (e *endpoint) prepare(ctx context.Context) (err error) {
	admin, err := e.world.enroll(ctx, "p-admin", event.Human, "admin")
	if err != nil {
		return err
	}
	if e.owner, err = e.world.enroll(ctx, "s-webhook", event.System, "module"); err != nil {
		return err
	}
	n := e.world.nodes[0].current()
	if err := n.services.Webhooks.AllowHost(ctx, admin, "hooks.example.org", "the shop"); err != nil {
		return err
	}
	_, _, err = n.app.Subscriptions.Create(ctx, e.owner, subscription.Subscription{
		TenantID: tenantID, ID: webhookID, SubscriberType: subscription.Webhook, SubscriberID: "shop", Filter: subscription.Filter{EventTypes: []string{movedType}},
		Settings: subscription.Settings{PartitionBy: e.order, MessageTimeout: 5 * time.Second, RetryFirst: time.Second, RetryLongest: 4 * time.Second, MaxRetries: 100, Start: subscription.Start{From: subscription.Beginning}},
	})
	if err != nil {
		return err
	}
	_, _, err = n.services.Webhooks.Set(ctx, e.owner, webhookID, webhooks.EndpointSettings{URL: "https://hooks.example.org/movements"})
	return err
}

func (e *endpoint) work() {
	r := e.world.random("owner of the webhook")
	e.world.begin(func(ctx context.Context) {
		for pause(ctx, r, 5*time.Second) == nil {
			_ = e.world.request(ctx, r, func(ctx context.Context, n *run) error {
				if r.Float64() < 0.5 {
					_, err := n.services.Webhooks.Rotate(ctx, e.owner, webhookID)
					return err
				}
				_, _, err := n.services.Webhooks.Set(ctx, e.owner, webhookID, webhooks.EndpointSettings{URL: fmt.Sprintf("https://hooks.example.org/movements/%d", r.IntN(3))})
				return err
			})
		}
	})
}

// Check implements ports.WebhookSender.
func (*endpoint) Check(string) error { return nil }

// CheckHeader implements ports.WebhookSender.
func (*endpoint) CheckHeader(ports.Header) error { return nil }

// Send implements ports.WebhookSender.
func (e *endpoint) Send(ctx context.Context, r ports.WebhookRequest) (ports.WebhookAnswer, error) {
	id, err := event.ParseID(r.ID)
	if err != nil {
		return ports.WebhookAnswer{}, err
	}
	delivered, err := e.world.eventByID(ctx, id)
	if err != nil {
		return ports.WebhookAnswer{}, err
	}
	e.received.DeliverAgain(&delivered)
	e.mu.Lock()
	luck, slow := e.random.Float64(), time.Duration(e.random.ExpFloat64()*float64(100*time.Millisecond))
	if e.calm {
		luck = 1
	}
	if e.pace > 0 {
		slow = e.pace
	}
	e.mu.Unlock()
	if err := ports.Sleep(ctx, slow); err != nil {
		return ports.WebhookAnswer{}, fault.New(fault.Unavailable, "webhook.timeout", "the endpoint did not answer")
	}
	switch {
	case luck < e.trouble/3:
		return ports.WebhookAnswer{}, fault.New(fault.Unavailable, "webhook.connection", "the endpoint broke the connection")
	case luck < e.trouble*2/3:
		return ports.WebhookAnswer{Status: 500}, nil
	case luck < e.trouble:
		return ports.WebhookAnswer{Status: 503, RetryAfter: time.Second}, nil
	}
	e.received.Accept(&delivered)
	return ports.WebhookAnswer{Status: 204}, nil
}

func (e *endpoint) settle(ctx context.Context) error {
	e.mu.Lock()
	e.calm = true
	e.mu.Unlock()
	// What a request of the owner left half done, the owner's next request repairs.
	r := e.world.random("settling owner")
	err := eventually(ctx, func() error {
		return e.world.request(ctx, r, func(ctx context.Context, n *run) error {
			_, _, err := n.services.Webhooks.Set(ctx, e.owner, webhookID, webhooks.EndpointSettings{URL: "https://hooks.example.org/movements"})
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := e.awaitAll(ctx); err != nil || e.proven {
		return err
	}
	e.proven = true
	return e.proveUninterrupted(ctx, r)
}

// proveUninterrupted changes the endpoint while it receives a movement, which ends all the same: an
// interrupted delivery would cost the movement an attempt.
func (e *endpoint) proveUninterrupted(ctx context.Context, r *rand.Rand) error {
	le := e.world.entities[0]
	before := e.world.head(le)
	e.setPace(2500 * time.Millisecond) // it is changed at least once while it answers
	defer e.setPace(0)
	if err := e.world.deposit(ctx, r, le, "to the webhook"); err != nil {
		return err
	}
	b, err := e.world.readBooks(ctx)
	if err != nil {
		return err
	}
	at := before + 1
	for !selectsMovements(b.event(le.Partition, at)) {
		at++
	}
	sends := func() int { return e.received.Deliveries(le.Partition, at) }
	for sends() == 0 {
		if err := ports.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	err = e.world.request(ctx, r, func(ctx context.Context, n *run) error {
		_, _, err := n.services.Webhooks.Set(ctx, e.owner, webhookID, webhooks.EndpointSettings{URL: "https://hooks.example.org/moved"})
		return err
	})
	if err == nil {
		err = e.awaitAll(ctx)
	}
	if err == nil {
		e.world.require(sends() == 1, "a change interrupts no delivery", "event %d was sent %d times", at, sends())
	}
	return err
}

func (e *endpoint) setPace(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pace = d
}

// awaitAll waits until the endpoint has accepted every movement.
func (e *endpoint) awaitAll(ctx context.Context) error {
	return eventually(ctx, func() error {
		b, err := e.world.readBooks(ctx)
		if err != nil {
			return err
		}
		if n := e.received.Unaccepted(b.partitions, selectsMovements); n > 0 {
			return fmt.Errorf("%d movements did not reach the endpoint", n)
		}
		return nil
	})
}

func (e *endpoint) check(b *books) { e.received.Complete(b.partitions, selectsMovements) }
