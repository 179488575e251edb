package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// DeliveryFixture is a subscriptions.Service over the tenant of a SubscriptionFixture.
type DeliveryFixture struct {
	*SubscriptionFixture
	Service *subscriptions.Service
	Person  ports.Principal
	Heads   *subscriptions.HeadWatcher
}

type issued struct{ ids *idSource }

func (i issued) NewID(time.Time) event.ID { return i.ids.next() }
func (i issued) NewSalt() event.Salt      { return event.Salt{} }

// allReadable lets every principal read its legal entities of the tenant, all if it names none.
type allReadable struct{ fixture *SubscriptionFixture }

func (e allReadable) Readable(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	all, err := e.fixture.Store.LegalEntities(ctx, e.fixture.Tenant)
	if err != nil || len(p.LegalEntities) == 0 {
		return all, err
	}
	var out []ports.LegalEntity
	for _, le := range all {
		for _, code := range p.LegalEntities {
			if le.Code == code {
				out = append(out, le)
			}
		}
	}
	return out, nil
}

// Sight implements subscriptions.Access.
func (allReadable) Sight(context.Context, ports.Principal) (module.Sight, error) {
	return module.FullSight(), nil
}

func (e allReadable) Visible(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error) {
	return e.Readable(ctx, p)
}

func (e allReadable) Owner(_ context.Context, tenantID, personID string) (ports.Principal, error) {
	return ports.Principal{TenantID: tenantID, PersonID: personID, LegalEntities: e.fixture.Entitled[personID]}, nil
}

// DeliveryLimits are limits of a subscriptions.Service that no test of another behaviour meets.
func DeliveryLimits() subscriptions.Limits {
	return subscriptions.Limits{
		ExpireInterval: 500 * time.Millisecond, MeasureInterval: 15 * time.Second, RecheckInterval: 500 * time.Millisecond, OrphanInterval: time.Hour, MaxBytes: 8 << 20, MaxPerTenant: 1000,
	}
}

// NewDeliveryFixture makes a service over d. change adapts its configuration; nil: no
// change.
func NewDeliveryFixture(d *SubscriptionFixture, change func(*subscriptions.Config)) *DeliveryFixture {
	c := &DeliveryFixture{SubscriptionFixture: d, Person: ports.Principal{TenantID: d.Tenant, PersonID: "person-1"}}
	c.Heads = testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: d.Store, Clock: d.Clock, Poll: 5 * time.Millisecond}))
	config := subscriptions.Config{
		Store: d.Store, Log: d.Store, Decisions: d.Log.Subscriptions(), Access: allReadable{d}, Heads: c.Heads, IDs: issued{d.ids}, Clock: d.Clock,
		Modules: func(context.Context, string) (func(string) string, error) {
			return func(string) string { return "conformance" }, nil
		},
		Limits: DeliveryLimits(),
	}
	if change != nil {
		change(&config)
	}
	c.Service = testkit.Must(subscriptions.New(config))
	return c
}

// Subscribe makes a subscription of the person's.
func (c *DeliveryFixture) Subscribe(t require.TestingT, id string, s subscription.Settings, f subscription.Filter) {
	_, created, err := c.Service.Create(context.Background(), c.Person, subscription.Subscription{
		ID: id, SubscriberType: "service", SubscriberID: "suite", Settings: s, Filter: f,
	})
	require.NoError(t, err)
	require.True(t, created)
}

// RunDeliveryRace lets producers write while consumers acknowledge, refuse, forget and park
// the messages delivered to them, and checks that every message is delivered in its order.
// The store's only source of time is the clock.
func RunDeliveryRace(t *testing.T, newStore func(t *testing.T, clock ports.Clock) SubscriptionStore, events int) {
	t.Helper()
	clock := NewClock()
	store := newStore(t, clock)
	for i, by := range []string{subscription.PerLegalEntity, subscription.PerStream, subscription.NoOrder, "$.id"} {
		for _, strategy := range []subscription.Strategy{subscription.RoundRobin, subscription.Pinned} {
			if by == subscription.NoOrder && strategy == subscription.Pinned {
				continue
			}
			t.Run(by+"/"+string(strategy), func(t *testing.T) {
				c := NewDeliveryFixture(NewSubscriptionFixture(t, store, clock, fmt.Sprintf("race-%d-%s", i, strategy)), nil)
				c.Subscribe(t, "race", subscription.Settings{
					PartitionBy: by, ConsumerStrategy: strategy, MaxRetries: 1000, BreakerAfter: subscription.NoBreaker, MaxInFlight: 40,
				}, subscription.Filter{})
				newDeliveryRace(c, by, events).run(t)
			})
		}
	}
}

// deliveryRace is the model that deliveries are held against.
type deliveryRace struct {
	*DeliveryFixture
	nodes  []*subscriptions.Service // of the same store
	by     string
	events int

	mu       sync.Mutex
	order    map[string][]event.ID // by legal entity and key, in order of sequence
	index    map[event.ID]int
	settled  map[event.ID]bool      // acknowledged, or about to be
	finished map[event.ID]bool      // acknowledged, and the service applied it
	attempts map[event.ID]int       // of the newest known delivery
	parked   map[event.ID]bool      // also if it was replayed since
	deadline map[event.ID]time.Time // of the last known delivery
	excuse   map[event.ID]bool      // refused
	wrong    []string
}

func newDeliveryRace(c *DeliveryFixture, by string, events int) *deliveryRace {
	return &deliveryRace{
		DeliveryFixture: c, nodes: []*subscriptions.Service{c.Service, NewDeliveryFixture(c.SubscriptionFixture, nil).Service}, by: by, events: events, order: map[string][]event.ID{}, index: map[event.ID]int{},
		settled: map[event.ID]bool{}, finished: map[event.ID]bool{}, attempts: map[event.ID]int{}, parked: map[event.ID]bool{}, deadline: map[event.ID]time.Time{}, excuse: map[event.ID]bool{},
	}
}

func (c *deliveryRace) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { c.produce(t, i) })
	}
	for i := range 8 {
		all.Go(func() { c.consume(ctx, t, i) })
	}
	all.Wait()
	require.NoError(t, ctx.Err(), "not every event was delivered in time")
	require.Empty(t, c.wrong)
	require.Len(t, c.finished, c.events)
	status, err := c.Service.Get(t.Context(), subscriptions.Caller{Principal: c.Person}, "race")
	require.NoError(t, err)
	require.Zero(t, status.LagEvents)
	require.Zero(t, status.Parked)
	for _, p := range status.Progress {
		require.Equal(t, p.Head, p.ReadThrough)
		require.Equal(t, p.Head, p.Checkpoint)
	}
}

// produce writes one event after the other; each stream has one producer, and so its
// order is known.
func (c *deliveryRace) produce(t require.TestingT, i int) {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	for n := 0; n < c.events/4; n++ {
		c.Write(t, i%2, 1, fmt.Sprintf("%d-%d", i, r.IntN(3)))
	}
}

func (c *deliveryRace) consume(ctx context.Context, t require.TestingT, i int) {
	r := rand.New(rand.NewPCG(uint64(i), 8))
	node := c.nodes[i%len(c.nodes)]
	consumer := fmt.Sprintf("c-%d", i)
	for ctx.Err() == nil && !c.isFinished() {
		batch, err := node.Poll(ctx, c.Person, subscriptions.Poll{ID: "race", Consumer: consumer, Limit: 1 + r.IntN(20)})
		if err != nil {
			c.report("poll: %v", err)
			return
		}
		if len(batch.Deliveries) == 0 {
			if err := c.idle(ctx, r); err != nil {
				c.report("idle: %v", err)
				return
			}
			continue
		}
		c.checkOrder(batch.Deliveries)
		var done []event.ID
		for _, d := range batch.Deliveries {
			id := []event.ID{d.Event.ID}
			switch x := r.IntN(100); {
			case x < 6: // not answered
			case x < 14:
				c.record(c.excuse, id)
				_, err = node.Refuse(ctx, c.Person, subscriptions.Refusal{ID: "race", EventIDs: id, Action: subscription.RetryLater, Code: "case.busy"})
			case x < 16:
				c.record(c.excuse, id)
				c.record(c.parked, id)
				_, err = node.Refuse(ctx, c.Person, subscriptions.Refusal{ID: "race", EventIDs: id, Action: subscription.Park, Code: "case.broken"})
			default:
				done = append(done, id[0])
			}
			if err != nil {
				c.report("refuse: %v", err)
				return
			}
		}
		if len(done) > 0 {
			c.record(c.settled, done)
			answered, err := node.Acknowledge(ctx, c.Person, subscriptions.Acknowledgement{ID: "race", EventIDs: done})
			if err != nil {
				c.report("acknowledge: %v", err)
				return
			}
			for _, ignored := range answered.Ignored { // another consumer was faster, or it is parked
				done = slices.DeleteFunc(done, func(id event.ID) bool { return id == ignored.EventID })
			}
			c.record(c.finished, done)
		}
	}
}

// idle moves the clock, replays dead letters now and then, and expires leases.
func (c *deliveryRace) idle(ctx context.Context, r *rand.Rand) error {
	c.Clock.Advance(time.Duration(1+r.IntN(20)) * time.Second)
	if r.IntN(4) == 0 {
		if _, err := c.Service.Replay(ctx, subscriptions.Caller{Principal: c.Person}, "race", subscriptions.DeadLetterQuery{Limit: 1 + r.IntN(5)}, ""); err != nil {
			return err
		}
	}
	return c.Service.ExpireLeases(ctx)
}

func (c *deliveryRace) isFinished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.finished) >= c.events
}

func (c *deliveryRace) record(in map[event.ID]bool, ids []event.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		in[id] = true
	}
}

func (c *deliveryRace) report(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// checkOrder checks a batch. Messages stay settled, so a message that was overtaken at the
// time of the check was overtaken at delivery too.
func (c *deliveryRace) checkOrder(batch []subscriptions.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	here := map[event.ID]bool{}
	for _, d := range batch {
		e := &d.Event
		before, known := c.deadline[e.ID]
		if d.Attempt > c.attempts[e.ID] { // else a later attempt was recorded first
			if known && !c.excuse[e.ID] && c.Clock.Now().Before(before) {
				c.wrong = append(c.wrong, fmt.Sprintf("event %d came again without a reason", e.Sequence))
			}
			c.deadline[e.ID], c.attempts[e.ID] = d.Deadline, d.Attempt
		}
		here[e.ID] = true
	}
	for _, d := range batch {
		for _, before := range c.before(&d.Event) {
			if !c.settled[before] && !here[before] && (c.by != subscription.PerLegalEntity || !c.parked[before]) {
				c.wrong = append(c.wrong, fmt.Sprintf("event %d of %s overtook another", d.Event.Sequence, d.Event.Stream))
			}
		}
	}
}

// before lists the events of the same key that come first.
func (c *deliveryRace) before(e *event.Recorded) (out []event.ID) {
	if c.by == subscription.NoOrder {
		return nil
	}
	le := c.Entities[0]
	if e.Partition == c.Entities[1].Partition {
		le = c.Entities[1]
	}
	// The events before an event never change, so they are read once.
	key := le.Code
	if c.by == subscription.PerStream {
		key = e.Stream.String()
	} else if c.by != subscription.PerLegalEntity {
		return nil // the key of every event is unique there
	}
	list := c.order[le.Code+key]
	if known, ok := c.index[e.ID]; ok {
		return list[:known]
	}
	events, err := c.Store.Events(context.Background(), ports.EventQuery{Partition: e.Partition, Limit: 100_000, WithoutData: true})
	if err != nil {
		c.wrong = append(c.wrong, err.Error())
		return nil
	}
	list = nil
	for i := range events {
		if c.by == subscription.PerStream && events[i].Stream != e.Stream {
			continue
		}
		c.index[events[i].ID] = len(list)
		list = append(list, events[i].ID)
	}
	c.order[le.Code+key] = list
	return list[:c.index[e.ID]]
}

// consumerCount is how many consumers share a subscription.
const consumerCount = 8

// RunConsumersTogether lets the consumers of one legal entity, on two nodes, meet while
// each of them holds another message: no consumer waits for another one.
// One key fails and holds back its own messages only.
func RunConsumersTogether(t *testing.T, newStore func(t *testing.T, clock ports.Clock) SubscriptionStore) {
	t.Helper()
	clock := NewClock()
	c := NewDeliveryFixture(NewSubscriptionFixture(t, newStore(t, clock), clock, "together"), nil)
	nodes := []*subscriptions.Service{c.Service, NewDeliveryFixture(c.SubscriptionFixture, nil).Service}
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream, BreakerAfter: subscription.NoBreaker}, subscription.Filter{})
	const rounds = 3
	bad := c.Write(t, 0, 2, "bad")
	for range rounds {
		for key := range consumerCount {
			c.Write(t, 0, 1, fmt.Sprint("key-", key))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	for range rounds {
		c.deliverConcurrently(ctx, t, nodes, bad)
	}
	there, err := c.Service.Get(ctx, subscriptions.Caller{Principal: c.Person}, "s")
	require.NoError(t, err)
	require.Equal(t, []int{0, 2, rounds * consumerCount}, []int{there.InFlight, there.Waiting, int(there.Counts.Acknowledged)}, "the key that fails is all that is left")
	clock.Advance(time.Hour)
	batch, err := nodes[1].Poll(ctx, c.Person, subscriptions.Poll{ID: "s", Limit: 1})
	require.NoError(t, err)
	require.Len(t, batch.Deliveries, 1)
	require.Equal(t, bad[0], batch.Deliveries[0].Event.ID, "in its order")
}

// deliverConcurrently lets every consumer poll one message, and acknowledge it when all of
// them have one. A consumer that gets a message of the bad key refuses it and polls again.
func (c *DeliveryFixture) deliverConcurrently(ctx context.Context, t *testing.T, nodes []*subscriptions.Service, bad []event.ID) {
	t.Helper()
	var mu sync.Mutex
	held := map[event.ID]bool{}
	all := make(chan struct{})
	var working sync.WaitGroup
	for i := range consumerCount {
		working.Go(func() {
			node, name := nodes[i%len(nodes)], fmt.Sprint("c", i)
			id := c.next(ctx, t, node, name, bad)
			mu.Lock()
			if held[id] = true; len(held) == consumerCount {
				close(all)
			}
			mu.Unlock()
			select {
			case <-all:
			case <-ctx.Done():
				return
			}
			answered, err := node.Acknowledge(ctx, c.Person, subscriptions.Acknowledgement{ID: "s", Consumer: name, EventIDs: []event.ID{id}})
			if err != nil || answered.Applied != 1 {
				t.Errorf("%s could not acknowledge: %v, %v", name, answered, err)
			}
		})
	}
	working.Wait()
	require.Len(t, held, consumerCount, "consumers that held different messages at the same time")
	require.NoError(t, ctx.Err())
}

// next polls until it gets a message that is not bad.
func (c *DeliveryFixture) next(ctx context.Context, t *testing.T, node *subscriptions.Service, consumer string, bad []event.ID) event.ID {
	for ctx.Err() == nil {
		batch, err := node.Poll(ctx, c.Person, subscriptions.Poll{ID: "s", Consumer: consumer, Limit: 1, Wait: 50 * time.Millisecond})
		if err != nil {
			t.Errorf("poll: %v", err)
			return event.ID{}
		}
		for _, d := range batch.Deliveries {
			if !slices.Contains(bad, d.Event.ID) {
				return d.Event.ID
			}
			if _, err := node.Refuse(ctx, c.Person, subscriptions.Refusal{ID: "s", Consumer: consumer, EventIDs: []event.ID{d.Event.ID}, Action: subscription.RetryLater}); err != nil {
				t.Errorf("refuse: %v", err)
			}
		}
	}
	return event.ID{}
}
