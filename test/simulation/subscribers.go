package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/oracle"
)

var _ = takesPart("subscribers", 0.5, func(w *world, r *rand.Rand) part {
	order := []string{subscription.PerLegalEntity, subscription.PerStream, subscription.NoOrder}[r.IntN(3)]
	return &subscribers{
		world: w, order: order, number: 1 + r.IntN(3), received: oracle.NewReceiver(w.require, "subscriber by "+order, oracle.KeyOf(order)), leases: map[event.ID]lease{},
		breaker: []int{subscription.NoBreaker, 5}[r.IntN(2)],
	}
})

// subscribers share a subscription to movements. They are slow, fail, answer late or never, and
// lose answers.
type subscribers struct {
	world    *world
	order    string
	number   int // of consumers
	breaker  int
	owner    ports.Principal
	received *oracle.Receiver

	mu     sync.Mutex
	leases map[event.ID]lease // that consumers know of and have not answered
}

const subscriptionID = "movements"

// lease is a delivery of a message to one consumer.
type lease struct {
	attempt int
	ends    time.Time
}

// take requires that the lease of the delivery before has ended. Answers may come out of order, so the
// delivery may also be older than the one that is known.
func (s *subscribers) take(d *subscriptions.Delivery) {
	s.received.Deliver(&d.Event)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.leases[d.Event.ID]
	s.world.require(d.Attempt <= known.attempt || !time.Now().Before(known.ends), "one consumer has a message", "event %d of %s was delivered again while its lease ran until %s", d.Event.Sequence, d.Event.Scope.LegalEntity, known.ends)
	if d.Attempt > known.attempt {
		s.leases[d.Event.ID] = lease{d.Attempt, d.Deadline}
	}
}

// answer ends the leases of messages that a consumer is about to answer.
func (s *subscribers) answer(deliveries []subscriptions.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range deliveries {
		delete(s.leases, deliveries[i].Event.ID)
	}
}

func (s *subscribers) prepare(ctx context.Context) (err error) {
	if s.owner, err = s.world.enroll(ctx, "s-mirror", event.System, "module"); err != nil {
		return err
	}
	_, _, err = s.world.nodes[0].current().app.Subscriptions.Create(ctx, s.owner, subscription.Subscription{
		TenantID: tenantID, ID: subscriptionID, SubscriberType: "service", SubscriberID: "mirror", Filter: subscription.Filter{EventTypes: []string{movedType}},
		Settings: subscription.Settings{
			PartitionBy: s.order, MessageTimeout: 5 * time.Second, MaxRetries: 3, BreakerAfter: s.breaker, RetryFirst: 500 * time.Millisecond, RetryLongest: 4 * time.Second,
			Start: subscription.Start{From: subscription.Beginning},
		},
	})
	return err
}

func (s *subscribers) work() {
	for i := range s.number {
		r, name := s.world.random(fmt.Sprintf("consumer %d", i)), fmt.Sprintf("c%d", i)
		s.world.begin(func(ctx context.Context) {
			for pause(ctx, r, 300*time.Millisecond) == nil {
				_ = s.poll(ctx, r, name, 0.15) // another poll follows
			}
		})
	}
	r := s.world.random("operator of subscriptions")
	s.world.begin(func(ctx context.Context) {
		for pause(ctx, r, 6*time.Second) == nil {
			_ = s.world.request(ctx, r, func(ctx context.Context, n *run) error { return s.operate(ctx, r, n) })
		}
	})
}

// operate pauses, changes and resumes the subscription.
func (s *subscribers) operate(ctx context.Context, r *rand.Rand, n *run) error {
	c := subscriptions.Caller{Principal: s.owner}
	if r.Float64() < 0.4 {
		if _, err := n.app.Subscriptions.Pause(ctx, c, subscriptionID); err != nil {
			return err
		}
	}
	_, err := n.app.Subscriptions.Resume(ctx, c, subscriptionID)
	return err
}

// poll takes a batch and answers it; a share of the events is refused, parked or left without an
// answer.
func (s *subscribers) poll(ctx context.Context, r *rand.Rand, consumer string, trouble float64) error {
	var batch subscriptions.Batch
	err := s.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
		batch, err = n.app.Subscriptions.Poll(ctx, s.owner, subscriptions.Poll{ID: subscriptionID, Consumer: consumer, Limit: 1 + r.IntN(10), Wait: time.Duration(r.IntN(3000)) * time.Millisecond})
		if err == nil {
			for i := range batch.Deliveries {
				s.take(&batch.Deliveries[i])
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := range batch.Deliveries {
		d := &batch.Deliveries[i]
		if err := pause(ctx, r, 100*time.Millisecond); err != nil {
			return err
		}
		switch luck := r.Float64(); {
		case luck >= trouble:
			if err := s.acknowledge(ctx, r, consumer, d); err != nil && trouble == 0 {
				return err
			}
		case luck < trouble/3:
			return nil // the rest of the batch gets no answer
		default:
			// Later events of the key are refused too, as the order asks for.
			return s.refuse(ctx, r, consumer, batch.Deliveries[i:], luck < trouble/2)
		}
	}
	return nil
}

func (s *subscribers) acknowledge(ctx context.Context, r *rand.Rand, consumer string, d *subscriptions.Delivery) error {
	return s.world.request(ctx, r, func(ctx context.Context, n *run) error {
		result, err := n.app.Subscriptions.Acknowledge(ctx, s.owner, subscriptions.Acknowledgement{ID: subscriptionID, Consumer: consumer, LegalEntity: d.Event.Scope.LegalEntity, EventIDs: []event.ID{d.Event.ID}})
		if err == nil && result.Applied == 1 {
			s.received.Done(d.Event.Partition, d.Event.Sequence)
		}
		return err
	})
}

func (s *subscribers) refuse(ctx context.Context, r *rand.Rand, consumer string, deliveries []subscriptions.Delivery, park bool) error {
	s.answer(deliveries)
	byEntity := map[string][]event.ID{}
	for i := range deliveries {
		e := &deliveries[i].Event
		byEntity[e.Scope.LegalEntity] = append(byEntity[e.Scope.LegalEntity], e.ID)
	}
	action := subscription.RetryLater
	if park {
		action = subscription.Park
	}
	for _, le := range s.world.entities {
		if len(byEntity[le.Code]) == 0 {
			continue
		}
		err := s.world.request(ctx, r, func(ctx context.Context, n *run) error {
			_, err := n.app.Subscriptions.Refuse(ctx, s.owner, subscriptions.Refusal{ID: subscriptionID, Consumer: consumer, LegalEntity: le.Code, EventIDs: byEntity[le.Code], Action: action, Code: "mirror.failed"})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func selectsMovements(e *event.Recorded) bool { return e.Type == movedType }

// settle takes everything that is left, and replays what was parked.
func (s *subscribers) settle(ctx context.Context) error {
	r := s.world.random("settling consumer")
	c := subscriptions.Caller{Principal: s.owner}
	return eventually(ctx, func() error {
		err := s.world.request(ctx, r, func(ctx context.Context, n *run) error {
			_, err := n.app.Subscriptions.Resume(ctx, c, subscriptionID)
			if err == nil {
				_, err = n.app.Subscriptions.Replay(ctx, c, subscriptionID, subscriptions.DeadLetterQuery{Limit: 100}, "repaired")
			}
			return err
		})
		if err != nil && fault.CodeOf(err) != "subscription.no_dead_letters" {
			return err
		}
		if err := s.poll(ctx, r, "c0", 0); err != nil {
			return err
		}
		return s.requireDone(ctx)
	})
}

// requireDone requires that the server keeps no message of the subscription and has read all logs.
func (s *subscribers) requireDone(ctx context.Context) error {
	d := s.world.database
	sub, err := d.Subscriptions.Subscription(ctx, tenantID, subscriptionID)
	if err != nil {
		return err
	}
	backlogs, err := d.Subscriptions.Backlogs(ctx, sub.UID)
	if err != nil {
		return err
	}
	heads, err := d.Events.PartitionHeads(ctx)
	for _, b := range backlogs {
		if b.FirstOpen > 0 || b.ReadThrough < heads[b.Partition].Sequence {
			return fmt.Errorf("partition %d is read through %d of %d, and %d is open", b.Partition, b.ReadThrough, heads[b.Partition].Sequence, b.FirstOpen)
		}
	}
	return err
}

func (s *subscribers) check(b *books) { s.received.Complete(b.partitions, selectsMovements) }
