package subscriptions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func counter(t require.TestingT) *conformance.DeliveryFixture {
	clock := conformance.NewClock()
	return conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t"), nil)
}

func poll(t require.TestingT, c *conformance.DeliveryFixture, q subscriptions.Poll) []subscriptions.Delivery {
	if q.ID == "" {
		q.ID = "s"
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	batch, err := c.Service.Poll(context.Background(), c.Person, q)
	require.NoError(t, err)
	return batch.Deliveries
}

func ids(list []subscriptions.Delivery) (out []event.ID) {
	for _, d := range list {
		out = append(out, d.Event.ID)
	}
	return out
}

func acknowledge(t require.TestingT, c *conformance.DeliveryFixture, list ...event.ID) subscriptions.AnswerResult {
	if len(list) == 0 {
		return subscriptions.AnswerResult{}
	}
	out, err := c.Service.Acknowledge(context.Background(), c.Person, subscriptions.Acknowledgement{ID: "s", EventIDs: list})
	require.NoError(t, err)
	return out
}

func refuse(t require.TestingT, c *conformance.DeliveryFixture, how subscription.Refusal, code string, list ...event.ID) subscriptions.AnswerResult {
	out, err := c.Service.Refuse(context.Background(), c.Person, subscriptions.Refusal{ID: "s", EventIDs: list, Action: how, Code: code, Reason: "for a test"})
	require.NoError(t, err)
	return out
}

func status(t require.TestingT, c *conformance.DeliveryFixture) subscriptions.Status {
	out, err := c.Service.Get(context.Background(), owner(c), "s")
	require.NoError(t, err)
	return out
}

func owner(c *conformance.DeliveryFixture) subscriptions.Caller {
	return subscriptions.Caller{Principal: c.Person}
}

func TestCreate_SameDefinitionTwice(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{Tags: []string{"b", "a"}})
	again := subscription.Subscription{ID: "s", SubscriberType: "service", SubscriberID: "suite", Filter: subscription.Filter{Tags: []string{"a", "b", "a"}}}
	_, created, err := c.Service.Create(t.Context(), c.Person, again)
	require.NoError(t, err)
	require.False(t, created)
	again.Filter.Tags = nil
	_, _, err = c.Service.Create(t.Context(), c.Person, again)
	require.Equal(t, "subscription.exists", fault.CodeOf(err))
	own := err
	stranger := ports.Principal{TenantID: c.Tenant, PersonID: "person-2"}
	for _, tags := range [][]string{{"a", "b"}, {"c"}} {
		again.Filter.Tags = tags
		_, _, err = c.Service.Create(t.Context(), stranger, again)
		require.Equal(t, own, err, "the answer tells neither the owner nor the definition")
	}
	_, err = c.Service.Poll(t.Context(), stranger, subscriptions.Poll{ID: "s"})
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	_, err = c.Service.Get(t.Context(), subscriptions.Caller{Principal: stranger}, "s")
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	_, err = c.Service.Get(t.Context(), subscriptions.Caller{Principal: stranger, Operator: true}, "s")
	require.NoError(t, err)
}

func TestAcknowledge_UnknownEventsAreIgnored(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream}, subscription.Filter{})
	c.Subscribe(t, "other", subscription.Settings{}, subscription.Filter{})
	written := c.Write(t, 0, 3, "one")
	require.Equal(t, written[:2], ids(poll(t, c, subscriptions.Poll{Limit: 2})))
	// Not handed out here, but to another subscription.
	require.Len(t, poll(t, c, subscriptions.Poll{ID: "other"}), 3)
	require.Equal(t, []subscriptions.Ignored{{EventID: written[2], Reason: subscription.NotOutstanding}}, acknowledge(t, c, written[2]).Ignored)
	require.Equal(t, 1, acknowledge(t, c, written[0], written[0]).Applied)
	require.Equal(t, []subscriptions.Ignored{{EventID: written[0], Reason: subscription.NotOutstanding}}, acknowledge(t, c, written[0]).Ignored)
	refuse(t, c, subscription.Park, "x", written[1])
	require.Equal(t, []subscriptions.Ignored{{EventID: written[1], Reason: subscription.AlreadyParked}}, acknowledge(t, c, written[1]).Ignored)
	one := subscriptions.Acknowledgement{ID: "s", LegalEntity: "AA", EventID: written[2], Sequence: 3}
	_, err := c.Service.Acknowledge(t.Context(), c.Person, one)
	require.Equal(t, "subscription.not_handed_out", fault.CodeOf(err))
	one.Sequence = 2
	_, err = c.Service.Acknowledge(t.Context(), c.Person, one)
	require.Equal(t, "subscription.answer_invalid", fault.CodeOf(err))
}

func TestAcknowledge_CoversEarlierMessages(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.NoOrder}, subscription.Filter{})
	written, other := c.Write(t, 0, 5, "one"), c.Write(t, 1, 2, "two")
	poll(t, c, subscriptions.Poll{Consumer: "a"})
	refuse(t, c, subscription.RetryLater, "x", written[1])
	out, err := c.Service.Acknowledge(t.Context(), c.Person, subscriptions.Acknowledgement{ID: "s", LegalEntity: "AA", EventID: written[3], Sequence: 4})
	require.NoError(t, err)
	require.Equal(t, 3, out.Applied, "but not what was refused")
	s := status(t, c)
	require.Equal(t, 3, s.InFlight)
	require.Equal(t, 1, s.Waiting)
	require.Equal(t, 2, acknowledge(t, c, other...).Applied, "another legal entity is not concerned")
	out, err = c.Service.Acknowledge(t.Context(), c.Person, subscriptions.Acknowledgement{ID: "s", Consumer: "b", EventIDs: written[4:]})
	require.NoError(t, err)
	require.Equal(t, subscription.OtherConsumer, out.Ignored[0].Reason)
}

func TestRefuse_BlocksOnlyItsKey(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream, MaxRetries: 2, BreakerAfter: subscription.NoBreaker}, subscription.Filter{})
	bad, good := c.Write(t, 0, 2, "bad"), c.Write(t, 0, 2, "good")
	first := poll(t, c, subscriptions.Poll{})
	require.Equal(t, slices.Concat(bad, good), ids(first))
	acknowledge(t, c, good...)
	for attempt := 1; attempt <= 3; attempt++ {
		refuse(t, c, subscription.RetryLater, "case.broken", bad[0])
		if attempt == 1 {
			refuse(t, c, subscription.RetryLater, "case.later", bad[1])
		}
		more := c.Write(t, 0, 1, "good")
		require.Equal(t, more, ids(poll(t, c, subscriptions.Poll{})), "other keys continue")
		acknowledge(t, c, more...)
		c.Clock.Advance(time.Duration(1<<(attempt-1))*time.Second - time.Millisecond)
		require.Empty(t, poll(t, c, subscriptions.Poll{}), "before its time")
		c.Clock.Advance(time.Millisecond)
		again := poll(t, c, subscriptions.Poll{Limit: 1})
		if attempt < 3 {
			require.Equal(t, bad[:1], ids(again))
			require.Equal(t, attempt+1, again[0].Attempt)
		} else {
			require.Empty(t, again, "its dead letter holds back the rest of the key")
		}
	}
	require.Equal(t, 1, status(t, c).Parked)
	groups, err := c.Service.DeadLetterGroups(t.Context(), owner(c), "s")
	require.NoError(t, err)
	require.Equal(t, "case.broken", groups[0].Code)
	out, err := c.Service.Replay(t.Context(), owner(c), "s", subscriptions.DeadLetterQuery{EventIDs: bad[:1], Limit: 10}, "")
	require.NoError(t, err)
	require.Equal(t, subscriptions.DeadLetterResult{Messages: 1}, out)
	require.Equal(t, bad, ids(poll(t, c, subscriptions.Poll{})), "in order again")
}

func TestRefuse_ParkedMessageDoesNotBlockLegalEntity(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	written := c.Write(t, 0, 3, "one")
	poll(t, c, subscriptions.Poll{Limit: 1})
	require.Empty(t, poll(t, c, subscriptions.Poll{}), "the rest waits while it is out")
	refuse(t, c, subscription.Park, "x", written[0])
	require.Equal(t, written[1:], ids(poll(t, c, subscriptions.Poll{})))
	_, err := c.Service.Discard(t.Context(), owner(c), "s", subscriptions.DeadLetterQuery{Limit: 10}, " ")
	require.Equal(t, "subscription.reason_missing", fault.CodeOf(err))
	_, err = c.Service.Discard(t.Context(), owner(c), "s", subscriptions.DeadLetterQuery{Limit: 10}, "ask jane.doe@example.org")
	require.Equal(t, "pii.in_text", fault.CodeOf(err))
	out, err := c.Service.Discard(t.Context(), owner(c), "s", subscriptions.DeadLetterQuery{Limit: 10}, "corrected by hand")
	require.NoError(t, err)
	require.Equal(t, 1, out.Messages)
	decisions, _, err := c.Service.Decisions(t.Context(), owner(c), "s", 10)
	require.NoError(t, err)
	require.Len(t, decisions, 1)
	require.Equal(t, []string{"discard", "person-1", "corrected by hand", "x"}, []string{decisions[0].Action, decisions[0].Actor, decisions[0].Reason, decisions[0].Code})
}

// Decisions about messages are events, newest first, which outlive their subscription. A transaction
// that runs again records them once.
func TestDecisions_AreEvents(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.NoOrder, BreakerAfter: subscription.NoBreaker}, subscription.Filter{})
	c.Write(t, 0, 3, "one")
	taken := ids(poll(t, c, subscriptions.Poll{}))
	_, err := c.Service.Refuse(t.Context(), c.Person, subscriptions.Refusal{ID: "s", EventIDs: taken[:1], Action: subscription.Skip, Code: "crm.known", Reason: "it is known"})
	require.NoError(t, err)
	refuse(t, c, subscription.Park, "x", taken[1:]...)
	again := counterOver(c, twice{c.Store})
	_, err = again.Replay(t.Context(), owner(c), "s", subscriptions.DeadLetterQuery{Limit: 1}, "again")
	require.NoError(t, err)
	_, err = again.Discard(t.Context(), owner(c), "s", subscriptions.DeadLetterQuery{Limit: 10}, "corrected by hand")
	require.NoError(t, err)
	list := func(limit int) (out []string) {
		t.Helper()
		decisions, _, err := c.Service.Decisions(t.Context(), owner(c), "s", limit)
		require.NoError(t, err)
		for _, d := range decisions {
			require.Equal(t, c.Entities[0].Partition, d.Partition)
			out = append(out, fmt.Sprintf("%s %s %s %s: %s", d.Action, d.EventID, d.Actor, d.Code, d.Reason))
		}
		return out
	}
	want := []string{
		fmt.Sprintf("discard %s person-1 x: corrected by hand", taken[2]), fmt.Sprintf("replay %s person-1 x: again", taken[1]), fmt.Sprintf("skip %s person-1 : it is known", taken[0]),
	}
	require.Equal(t, want, list(10))
	require.Equal(t, want[:1], list(1))
	require.NoError(t, c.Service.Delete(t.Context(), owner(c), "s"))
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	require.Equal(t, want, list(10))
}

// twice runs what is done under a lock two times, as after a deadlock, and keeps the second.
type twice struct{ conformance.SubscriptionStore }

var errDeadlock = errors.New("a deadlock")

func (s twice) Deliver(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(context.Context, ports.DeliveryTx) error) (bool, error) {
	_, err := s.SubscriptionStore.Deliver(ctx, uid, p, wait, func(ctx context.Context, tx ports.DeliveryTx) error {
		if err := f(ctx, tx); err != nil {
			return err
		}
		return errDeadlock
	})
	if !errors.Is(err, errDeadlock) {
		return false, err
	}
	return s.SubscriptionStore.Deliver(ctx, uid, p, wait, f)
}

// counterOver is another node over a store.
func counterOver(c *conformance.DeliveryFixture, store conformance.SubscriptionStore) *subscriptions.Service {
	return conformance.NewDeliveryFixture(c.SubscriptionFixture, func(config *subscriptions.Config) { config.Store = store }).Service
}

func TestReplay_LimitsEachCall(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.NoOrder, BreakerAfter: subscription.NoBreaker}, subscription.Filter{})
	c.Write(t, 0, 5, "one")
	c.Write(t, 1, 5, "two")
	refuse(t, c, subscription.Park, "x", ids(poll(t, c, subscriptions.Poll{}))...)
	for _, want := range []subscriptions.DeadLetterResult{{Messages: 4, HasMore: true}, {Messages: 4, HasMore: true}, {Messages: 2}} {
		out, err := c.Service.Replay(t.Context(), owner(c), "s", subscriptions.DeadLetterQuery{Code: "x", Limit: 4}, "")
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
	require.Len(t, poll(t, c, subscriptions.Poll{}), 10)
}

func TestBreaker_StopsDelivery(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.NoOrder, BreakerAfter: 3}, subscription.Filter{})
	c.Write(t, 0, 6, "one")
	got := ids(poll(t, c, subscriptions.Poll{Limit: 4}))
	refuse(t, c, subscription.RetryLater, "x", got[:2]...)
	acknowledge(t, c, got[2]) // not in a row
	refuse(t, c, subscription.RetryLater, "x", got[3])
	require.Equal(t, subscription.Active, status(t, c).Status)
	c.Clock.Advance(time.Minute)
	// One consumer that goes away with three messages is one failure.
	require.Len(t, poll(t, c, subscriptions.Poll{Limit: 3}), 3)
	c.Clock.Advance(time.Minute)
	require.NoError(t, c.Service.ExpireLeases(t.Context()))
	require.Equal(t, 2, status(t, c).Failures)
	c.Clock.Advance(time.Minute)
	refuse(t, c, subscription.RetryLater, "y", ids(poll(t, c, subscriptions.Poll{Limit: 1}))...)
	require.Equal(t, subscription.Parked, status(t, c).Status)
	require.Equal(t, "y", status(t, c).LastFailure.Code)
	c.Clock.Advance(time.Hour)
	require.Empty(t, poll(t, c, subscriptions.Poll{}))
	_, err := c.Service.Resume(t.Context(), owner(c), "s")
	require.NoError(t, err)
	require.Len(t, poll(t, c, subscriptions.Poll{}), 5)
}

func TestPoll_PinnedKeysStayWithConsumer(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream, ConsumerStrategy: subscription.Pinned}, subscription.Filter{})
	streams := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	consumers := []string{"c-1", "c-2", "c-3"}
	for _, name := range consumers {
		poll(t, c, subscriptions.Poll{Consumer: name})
	}
	has := map[string]string{}
	for range 3 {
		for _, stream := range streams {
			c.Write(t, 0, 1, stream)
		}
		for _, name := range consumers {
			got := poll(t, c, subscriptions.Poll{Consumer: name})
			for _, d := range got {
				if had := has[d.Event.Stream.ID]; had != "" {
					require.Equal(t, had, name)
				}
				has[d.Event.Stream.ID] = name
			}
			acknowledge(t, c, ids(got)...)
		}
	}
	require.Len(t, has, len(streams))
	// One consumer stops polling: its keys move, and those of other consumers stay.
	c.Clock.Advance(20 * time.Second)
	for _, name := range consumers[:2] {
		poll(t, c, subscriptions.Poll{Consumer: name})
	}
	c.Clock.Advance(20 * time.Second)
	for _, stream := range streams {
		c.Write(t, 0, 1, stream)
	}
	seen := 0
	for range 2 {
		for _, name := range consumers[:2] {
			got := poll(t, c, subscriptions.Poll{Consumer: name})
			for _, d := range got {
				if had := has[d.Event.Stream.ID]; had != "c-3" {
					require.Equal(t, had, name)
				}
			}
			seen += len(got)
			acknowledge(t, c, ids(got)...)
		}
	}
	require.Equal(t, len(streams), seen)
}

func TestPoll_MaxInFlight(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.NoOrder, MaxInFlight: 5}, subscription.Filter{})
	c.Write(t, 0, 4, "one")
	c.Write(t, 1, 4, "two")
	got := poll(t, c, subscriptions.Poll{})
	require.Len(t, got, 5)
	require.Empty(t, poll(t, c, subscriptions.Poll{}))
	acknowledge(t, c, ids(got)[:2]...)
	require.Len(t, poll(t, c, subscriptions.Poll{}), 2)
	c.Clock.Advance(time.Minute)
	require.Len(t, poll(t, c, subscriptions.Poll{}), 1, "what timed out waits for its next attempt, and makes room")
	c.Clock.Advance(time.Minute)
	require.Len(t, poll(t, c, subscriptions.Poll{}), 5)
}

func TestReset(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.NoOrder}, subscription.Filter{})
	early := c.Write(t, 0, 3, "one")
	c.Clock.Advance(time.Minute)
	noon := c.Clock.Now()
	late := c.Write(t, 0, 3, "one")
	elsewhere := c.Write(t, 1, 2, "two")
	all := slices.Concat(early, late)
	reset := func(to subscription.Start) {
		_, err := c.Service.Reset(t.Context(), owner(c), "s", to)
		require.NoError(t, err)
	}
	for range 2 {
		require.ElementsMatch(t, slices.Concat(all, elsewhere), ids(poll(t, c, subscriptions.Poll{})))
		reset(subscription.Start{From: subscription.Beginning})
	}
	poll(t, c, subscriptions.Poll{})
	refuse(t, c, subscription.Park, "x", early[0], late[2])
	reset(subscription.Start{From: subscription.Position, Positions: map[string]event.Sequence{"AA": 5}})
	require.Equal(t, all[4:], ids(poll(t, c, subscriptions.Poll{})), "the other legal entity stays as it is")
	require.Equal(t, 1, status(t, c).Parked, "a dead letter behind the position comes again, one before it is kept")
	require.Equal(t, 0, acknowledge(t, c, early[1]).Applied, "what was handed out before the reset is gone")
	reset(subscription.Start{From: subscription.AtTime, Time: noon})
	require.ElementsMatch(t, slices.Concat(late, elsewhere), ids(poll(t, c, subscriptions.Poll{})))
	reset(subscription.Start{From: subscription.End})
	require.Empty(t, poll(t, c, subscriptions.Poll{}))
	_, err := c.Service.Reset(t.Context(), owner(c), "s", subscription.Start{From: subscription.Position, Positions: map[string]event.Sequence{"AA": 8}})
	require.Equal(t, "subscription.position_invalid", fault.CodeOf(err))
	more := c.Write(t, 0, 1, "one")
	require.Equal(t, more, ids(poll(t, c, subscriptions.Poll{})))
}

func TestPoll_NewLegalEntityJoins(t *testing.T) {
	t.Parallel()
	for _, from := range []subscription.Origin{subscription.Beginning, subscription.End} {
		c := counter(t)
		c.Write(t, 0, 2, "one")
		c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.NoOrder, Start: subscription.Start{From: from}}, subscription.Filter{})
		c.Subscribe(t, "named", subscription.Settings{}, subscription.Filter{LegalEntities: []string{"AA"}})
		acknowledge(t, c, ids(poll(t, c, subscriptions.Poll{}))...)
		c.Clock.Advance(time.Second)
		le, err := c.Store.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: c.Tenant, Code: "CC", TimeZone: "UTC", Status: "active", CreatedAt: c.Clock.Now()})
		require.NoError(t, err)
		c.Entities = append(c.Entities, le)
		written := c.Write(t, 2, 2, "new")
		require.Equal(t, written, ids(poll(t, c, subscriptions.Poll{})), from)
		require.NotContains(t, ids(poll(t, c, subscriptions.Poll{ID: "named"})), written[0])
	}
}

func TestPoll_RequiresReadAccess(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Write(t, 0, 1, "one")
	written := c.Write(t, 1, 1, "two")
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	c.Person.LegalEntities = []string{"BB"} // less than when it was made
	require.Equal(t, written, ids(poll(t, c, subscriptions.Poll{})))
	require.Len(t, status(t, c).Progress, 1)
	_, _, err := c.Service.Create(t.Context(), c.Person, subscription.Subscription{
		ID: "x", SubscriberType: "service", SubscriberID: "suite", Filter: subscription.Filter{LegalEntities: []string{"AA"}},
	})
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
}

func TestPoll_WaitsForEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := counter(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { c.Heads.Run(ctx) })
		c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream}, subscription.Filter{})
		wait := func(q subscriptions.Poll) <-chan []subscriptions.Delivery {
			out := make(chan []subscriptions.Delivery, 1)
			q.ID, q.Limit, q.Wait = "s", 10, subscriptions.MaxWait
			running.Go(func() {
				batch, err := c.Service.Poll(ctx, c.Person, q)
				if err == nil {
					out <- batch.Deliveries
				}
				close(out)
			})
			return out
		}
		got := wait(subscriptions.Poll{})
		written := c.Write(t, 0, 2, "one")
		first := <-got
		if len(first) == 1 { // it was read between the two
			first = append(first, poll(t, c, subscriptions.Poll{})...)
		}
		require.Equal(t, written, ids(first))
		// An answer wakes who waits for the key.
		more := c.Write(t, 0, 1, "one")
		got = wait(subscriptions.Poll{})
		acknowledge(t, c, written...)
		require.Equal(t, more, ids(<-got))
		// So do a refusal whose time comes, and the end of the service.
		refuse(t, c, subscription.RetryLater, "x", more...)
		got = wait(subscriptions.Poll{})
		c.Clock.Advance(time.Second)
		require.NoError(t, c.Service.ExpireLeases(t.Context()))
		require.Equal(t, more, ids(<-got))
		begun := time.Now()
		require.Empty(t, <-wait(subscriptions.Poll{}))
		require.Equal(t, subscriptions.MaxWait, time.Since(begun), "a poll waits no longer")
		got = wait(subscriptions.Poll{})
		c.Service.Close()
		require.Empty(t, <-got)
	})
}

// A poll while other sessions write misses no event that the filter selects.
func TestPoll_FiltersAgreeWithModel(t *testing.T) {
	t.Parallel()
	predicate, err := event.ParsePredicate("$.id", "gt", "01")
	require.NoError(t, err)
	nothing, err := event.ParsePredicate("$.missing", "exists", "")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		c := counter(t)
		some := func(name string, from ...string) []string {
			if out := rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, 2, rapid.ID[string]).Draw(t, name); len(out) > 0 {
				return out
			}
			return nil
		}
		f := subscription.Filter{
			LegalEntities: some("legal entities", "AA", "BB"), Modules: some("modules", "conformance", "other"),
			StreamTypes: some("stream types", "ticket", "case"), EventTypes: some("event types", "conformance.ticket.opened"),
			Predicate: rapid.SampledFrom([]*event.Predicate{nil, nil, predicate, nothing}).Draw(t, "predicate"),
		}
		by := rapid.SampledFrom([]string{subscription.PerLegalEntity, subscription.PerStream, subscription.NoOrder}).Draw(t, "by")
		c.Subscribe(t, "s", subscription.Settings{PartitionBy: by}, f)
		passes := len(f.Modules) == 0 || slices.Contains(f.Modules, "conformance")
		passes = passes && (len(f.StreamTypes) == 0 || slices.Contains(f.StreamTypes, "ticket")) && f.Predicate != nothing
		var want, got []event.ID
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for i, code := range []string{"AA", "BB"} {
				written := c.Write(t, i, rapid.IntRange(1, 5).Draw(t, "events"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "stream"))
				if passes && (len(f.LegalEntities) == 0 || slices.Contains(f.LegalEntities, code)) {
					want = append(want, written...)
				}
			}
			list := ids(poll(t, c, subscriptions.Poll{Limit: rapid.IntRange(1, 4).Draw(t, "limit")}))
			got = append(got, list...)
			acknowledge(t, c, list...)
		}
		for {
			list := ids(poll(t, c, subscriptions.Poll{}))
			if len(list) == 0 {
				break
			}
			got = append(got, list...)
			acknowledge(t, c, list...)
		}
		require.ElementsMatch(t, want, got)
		require.Zero(t, status(t, c).InFlight)
	})
}

func TestPoll_CancelledPollHoldsNoLock(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Service.Poll(ctx, c.Person, subscriptions.Poll{ID: "s", Wait: subscriptions.MaxWait})
	require.ErrorIs(t, err, context.Canceled)
	written := c.Write(t, 0, 1, "one")
	require.Equal(t, written, ids(poll(t, c, subscriptions.Poll{})))
}

// TestOperators_OfOtherLegalEntities gives operators of one legal entity the subscriptions of
// others, and one that both share.
func TestOperators_OfOtherLegalEntities(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Write(t, 0, 1, "one")
	c.Write(t, 1, 1, "two")
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{LegalEntities: []string{"AA"}})
	c.Subscribe(t, "shared", subscription.Settings{}, subscription.Filter{})
	poll(t, c, subscriptions.Poll{})
	refuse(t, c, subscription.Park, "x", c.Write(t, 0, 1, "one")...)
	operator := func(codes ...string) subscriptions.Caller {
		return subscriptions.Caller{Principal: ports.Principal{TenantID: c.Tenant, PersonID: "o", LegalEntities: codes}, Operator: true}
	}
	ctx, all := t.Context(), subscriptions.DeadLetterQuery{Limit: 10}
	toEnd := subscription.Start{From: subscription.End}
	parts := map[string]func(by subscriptions.Caller, id string) error{ // concern the caller's legal entities
		"get": func(by subscriptions.Caller, id string) error { _, err := c.Service.Get(ctx, by, id); return err },
		"reset": func(by subscriptions.Caller, id string) error {
			_, err := c.Service.Reset(ctx, by, id, toEnd)
			return err
		},
		"parked": func(by subscriptions.Caller, id string) error {
			_, err := c.Service.DeadLetters(ctx, by, id, all)
			return err
		},
		"groups": func(by subscriptions.Caller, id string) error {
			_, err := c.Service.DeadLetterGroups(ctx, by, id)
			return err
		},
		"replay": func(by subscriptions.Caller, id string) error {
			_, err := c.Service.Replay(ctx, by, id, all, "x")
			return err
		},
		"discard": func(by subscriptions.Caller, id string) error {
			_, err := c.Service.Discard(ctx, by, id, all, "x")
			return err
		},
		"decisions": func(by subscriptions.Caller, id string) error {
			_, _, err := c.Service.Decisions(ctx, by, id, 10)
			return err
		},
	}
	wholes := map[string]func(by subscriptions.Caller, id string) error{ // concern all legal entities
		"pause":  func(by subscriptions.Caller, id string) error { _, err := c.Service.Pause(ctx, by, id); return err },
		"resume": func(by subscriptions.Caller, id string) error { _, err := c.Service.Resume(ctx, by, id); return err },
		"change": func(by subscriptions.Caller, id string) error {
			_, err := c.Service.Change(ctx, by, id, subscription.Settings{})
			return err
		},
		"delete": func(by subscriptions.Caller, id string) error { return c.Service.Delete(ctx, by, id) },
	}
	before := status(t, c)
	for name, do := range parts {
		require.Equal(t, "subscription.not_found", fault.CodeOf(do(operator("BB"), "s")), name)
		require.NoError(t, do(operator("BB"), "shared"), name)
	}
	for name, do := range wholes {
		require.Equal(t, "subscription.not_found", fault.CodeOf(do(operator("BB"), "s")), name)
		require.Equal(t, "subscription.affects_others", fault.CodeOf(do(operator("BB"), "shared")), name)
	}
	require.Equal(t, before, status(t, c), "nothing was changed")
	list, err := c.Service.List(ctx, operator("BB"))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "shared", list[0].ID)

	// A filter without legal entities covers those of the owner.
	c.Entitled = map[string][]string{c.Person.PersonID: {"AA"}}
	_, err = c.Service.Get(ctx, operator("BB"), "shared")
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	list, err = c.Service.List(ctx, operator("BB"))
	require.NoError(t, err)
	require.Empty(t, list)
	for _, id := range []string{"s", "shared"} {
		for _, name := range []string{"pause", "resume", "change", "delete"} {
			require.NoError(t, wholes[name](operator("AA"), id), name)
		}
	}
}
