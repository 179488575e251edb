package subscriptions_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// orphanStore is a store in which a deletion was interrupted.
type orphanStore struct {
	subscriptions.Store
	ghost   event.ID
	removed chan event.ID
	listed  func() // is called when backlogs were read; may be nil
}

func (l *orphanStore) AllBacklogs(ctx context.Context) (map[event.ID][]ports.DeliveryBacklog, error) {
	out, err := l.Store.AllBacklogs(ctx)
	if err == nil {
		out[l.ghost] = []ports.DeliveryBacklog{{}}
	}
	return out, err
}

func (l *orphanStore) DeleteSubscription(ctx context.Context, uid event.ID) error {
	if uid == l.ghost {
		select {
		case l.removed <- uid:
		default: // reported already
		}
	}
	return l.Store.DeleteSubscription(ctx, uid)
}

func (l *orphanStore) Backlogs(ctx context.Context, uid event.ID) ([]ports.DeliveryBacklog, error) {
	out, err := l.Store.Backlogs(ctx, uid)
	if l.listed != nil {
		l.listed()
	}
	return out, err
}

// seriesObserver records which subscriptions have metric series.
type seriesObserver struct {
	subscriptions.Observer
	mu    sync.Mutex
	shown map[string]bool
}

func (s *seriesObserver) SubscriptionLag(_, id string, _ uint64, _ float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown[id] = true
}

func (s *seriesObserver) SubscriptionParked(string, string, int) {}

func (s *seriesObserver) SubscriptionGone(_, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.shown, id)
}

func (s *seriesObserver) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown[id]
}

func TestMeasure_RemovesDeletedSubscriptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := conformance.NewClock()
		fixture := conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t")
		store := &orphanStore{Store: fixture.Store, ghost: event.ID{9, 9}, removed: make(chan event.ID, 1)}
		observer := &seriesObserver{shown: map[string]bool{}}
		c := conformance.NewDeliveryFixture(fixture, func(config *subscriptions.Config) {
			config.Store, config.Observer = store, observer
		})
		other := conformance.NewDeliveryFixture(fixture, nil) // another node
		c.Subscribe(t, "stays", subscription.Settings{}, subscription.Filter{})
		c.Subscribe(t, "goes", subscription.Settings{}, subscription.Filter{})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Service.Run(ctx) })
		defer running.Wait()
		defer stop()
		pass(conformance.DeliveryLimits().MeasureInterval)
		require.Len(t, store.removed, 1, "what is left of a deletion goes")
		require.True(t, observer.has("goes"))
		require.NoError(t, other.Service.Delete(t.Context(), owner(other), "goes"))
		pass(conformance.DeliveryLimits().MeasureInterval)
		require.False(t, observer.has("goes"))
		require.True(t, observer.has("stays"))
	})
}

// A poll that began before a subscription was paused may end after the pause.
func TestChange_PartitionByWaitsForRunningPoll(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	fixture := conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t")
	store := &orphanStore{Store: fixture.Store}
	c := conformance.NewDeliveryFixture(fixture, func(config *subscriptions.Config) { config.Store = store })
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	sub, err := fixture.Store.Subscription(t.Context(), fixture.Tenant, "s")
	require.NoError(t, err)
	written := c.Write(t, 0, 1, "one")
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := fixture.Store.Deliver(context.WithoutCancel(t.Context()), sub.UID, fixture.Entities[0].Partition, true, func(ctx context.Context, tx ports.DeliveryTx) error {
			close(began)
			<-end
			m := subscription.Message{Sequence: 1, EventID: written[0], Key: subscription.Key{1}, State: subscription.Leased, Attempts: 1, Due: tx.Now().Add(time.Minute)}
			return tx.Save(ctx, tx.Cursor(), []subscription.Message{m}, nil)
		})
		ended <- err
	}()
	<-began
	_, err = c.Service.Pause(t.Context(), owner(c), "s")
	require.NoError(t, err)
	store.listed = sync.OnceFunc(func() { close(end) })
	_, err = c.Service.Change(t.Context(), owner(c), "s", subscription.Settings{PartitionBy: subscription.PerStream})
	require.Equal(t, "subscription.settings_in_use", fault.CodeOf(err))
	require.NoError(t, <-ended)
}

func TestRequeue_CountsNoAttempt(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{MaxRetries: 1, PartitionBy: subscription.PerStream, RetryFirst: time.Millisecond}, subscription.Filter{})
	written := c.Write(t, 0, 2, "one")
	for range 5 {
		list := poll(t, c, subscriptions.Poll{})
		require.Equal(t, written, ids(list))
		require.Equal(t, 1, list[0].Attempt)
		require.NoError(t, c.Service.Requeue(t.Context(), c.Person, "s", list))
		s := status(t, c)
		require.Equal(t, []int64{0, 0, 0}, []int64{int64(s.InFlight), s.Counts.Delivered, s.Counts.Retried})
	}
	// A message that was answered or delivered again cannot be requeued.
	first := poll(t, c, subscriptions.Poll{})
	require.Equal(t, 1, acknowledge(t, c, written[0]).Applied)
	require.Equal(t, 1, refuse(t, c, subscription.RetryLater, "x", written[1]).Applied)
	c.Clock.Advance(time.Second)
	second := poll(t, c, subscriptions.Poll{})
	require.Equal(t, written[1:], ids(second))
	require.NoError(t, c.Service.Requeue(t.Context(), c.Person, "s", first))
	require.Equal(t, 1, status(t, c).InFlight)
	require.NoError(t, c.Service.Requeue(t.Context(), c.Person, "s", second))
	require.Equal(t, 2, poll(t, c, subscriptions.Poll{})[0].Attempt, "the first attempt did fail")
	err := c.Service.Requeue(t.Context(), ports.Principal{TenantID: c.Tenant, PersonID: "person-2"}, "s", second)
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
}

func TestCreate_UnknownLegalEntityInPositions(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Write(t, 0, 3, "one")
	for _, at := range []subscription.Subscription{
		{Settings: subscription.Settings{Start: subscription.Start{From: subscription.Position, Positions: map[string]event.Sequence{"AB": 3}}}},
		{
			Settings: subscription.Settings{Start: subscription.Start{From: subscription.Position, Positions: map[string]event.Sequence{"AA": 3}}},
			Filter:   subscription.Filter{LegalEntities: []string{"BB"}},
		},
	} {
		at.ID, at.SubscriberType, at.SubscriberID = "s", "service", "suite"
		_, _, err := c.Service.Create(t.Context(), c.Person, at)
		require.Equal(t, "subscription.position_invalid", fault.CodeOf(err))
	}
}

func TestRefuse_PersonalDataInCode(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	written := c.Write(t, 0, 1, "one")
	poll(t, c, subscriptions.Poll{})
	for _, code := range []string{"de89370400440532013000", "failed.de89370400440532013000", "card_4111111111111111"} {
		_, err := c.Service.Refuse(t.Context(), c.Person, subscriptions.Refusal{ID: "s", EventIDs: written, Action: subscription.Park, Code: code})
		require.Equal(t, "subscription.reason_invalid", fault.CodeOf(err), code)
	}
	require.Equal(t, 1, refuse(t, c, subscription.Park, "http.status_503:retry-after", written[0]).Applied)
}
