package conformance

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

func wholeMessages(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	leased, retry, waiting := d.message(4, subscription.Leased), d.message(2, subscription.Retry), d.message(7, subscription.Waiting)
	waiting.DeliveredAt, waiting.Attempts, waiting.Consumer, waiting.Code, waiting.Detail = time.Time{}, 0, "", "", ""
	parked, later := d.message(3, subscription.ParkedState), d.message(6, subscription.ParkedState)
	later.Key = parked.Key
	d.save(t, s.UID, 0, leased, retry, waiting, later, parked)
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		require.Equal(t, d.Clock.Now().UTC(), tx.Now())
		open, err := tx.Open(ctx)
		require.NoError(t, err)
		require.Equal(t, []subscription.Message{retry, leased, waiting}, open)
		keys, err := tx.ParkedKeys(ctx, []subscription.Key{retry.Key, parked.Key, waiting.Key, parked.Key, {255}})
		require.NoError(t, err)
		require.Equal(t, map[subscription.Key]event.Sequence{parked.Key: 3}, keys)
		one, err := tx.ParkedKeys(ctx, []subscription.Key{parked.Key})
		require.NoError(t, err)
		require.Equal(t, keys, one)
		none, err := tx.ParkedKeys(ctx, []subscription.Key{retry.Key})
		require.NoError(t, err)
		require.Empty(t, none, "it is open")
		require.Equal(t, 2, tx.Cursor().Parked)
		dead, err := tx.Parked(ctx, ports.ParkedQuery{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []subscription.Message{parked, later}, dead)
		dead, err = tx.Parked(ctx, ports.ParkedQuery{EventIDs: []event.ID{later.EventID, leased.EventID}, Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []subscription.Message{later}, dead)
		leased.State, leased.Consumer, leased.Attempts, leased.Due = subscription.Retry, "c-2", 9, d.Clock.Now().Add(time.Hour)
		c := tx.Cursor()
		c.Checkpoint, c.Pending, c.Term, c.Counts.Retried = 1, 2, 5, 6
		return tx.Save(ctx, c, []subscription.Message{leased}, []event.Sequence{2})
	})
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		open, err := tx.Open(ctx)
		require.NoError(t, err)
		require.Equal(t, []subscription.Message{leased, waiting}, open)
		return nil
	})
	backlogs, err := d.Store.Backlogs(ctx, s.UID)
	require.NoError(t, err)
	for _, b := range backlogs {
		if b.Partition != d.Entities[0].Partition {
			require.Zero(t, b.InFlight+b.Waiting+b.Parked)
			continue
		}
		require.Equal(t, []int{0, 2, 2}, []int{b.InFlight, b.Waiting, b.Parked})
		require.Equal(t, event.Sequence(4), b.FirstOpen)
		require.Equal(t, leased.Due, b.NextDue)
		require.Equal(t, event.Sequence(7), b.ReadThrough)
		require.Equal(t, []int64{1, 2, 5, 6}, []int64{int64(b.Checkpoint), int64(b.Pending), b.Term, b.Counts.Retried})
	}
	all, err := d.Store.AllBacklogs(ctx)
	require.NoError(t, err)
	require.Equal(t, backlogs, all[s.UID])
}

func dueOnly(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	waiting := d.message(9, subscription.Waiting)
	d.save(t, s.UID, 0, d.message(1, subscription.Leased), waiting, d.message(8, subscription.ParkedState)) // due in a minute
	d.save(t, other.UID, 1, d.message(2, subscription.Retry))                                               // in two
	find := func(uid event.ID) *ports.DueDelivery {
		due, err := d.Store.Due(ctx, 1000)
		require.NoError(t, err)
		for i := range due {
			if due[i].UID == uid {
				return &due[i]
			}
		}
		return nil
	}
	require.Nil(t, find(s.UID))
	d.Clock.Advance(time.Minute)
	require.Equal(t, &ports.DueDelivery{UID: s.UID, Partition: d.Entities[0].Partition, Expired: true}, find(s.UID))
	require.Nil(t, find(other.UID))
	d.Clock.Advance(time.Minute)
	require.Equal(t, &ports.DueDelivery{UID: other.UID, Partition: d.Entities[1].Partition}, find(other.UID))
}

func clearKeeps(t require.TestingT, d *SubscriptionFixture) {
	s := d.create(t, "s")
	before, after := d.message(2, subscription.ParkedState), d.message(5, subscription.ParkedState)
	d.save(t, s.UID, 0, d.message(1, subscription.Leased), before, d.message(3, subscription.Retry), d.message(4, subscription.Waiting), after)
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error { return tx.Clear(ctx, 4) })
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		open, err := tx.Open(ctx)
		require.NoError(t, err)
		require.Empty(t, open)
		dead, err := tx.Parked(ctx, ports.ParkedQuery{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []subscription.Message{before}, dead)
		return nil
	})
}

func parkedPages(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	d.save(t, other.UID, 0, d.message(1, subscription.ParkedState))
	partitions := []event.PartitionID{d.Entities[0].Partition, d.Entities[1].Partition}
	wanted := map[event.ID]bool{}
	for i := range partitions {
		for n := event.Sequence(1); n <= 3; n++ {
			m := d.message(n, subscription.ParkedState)
			if n == 3 {
				m.Code = "timeout"
			}
			d.save(t, s.UID, i, m, d.message(n+10, subscription.Leased))
			wanted[m.EventID] = true
		}
	}
	var from event.PartitionID
	var after event.Sequence
	for pages := 0; ; pages++ {
		require.Less(t, pages, 10)
		page, err := d.Store.ParkedMessages(ctx, s.UID, partitions, from, ports.ParkedQuery{After: after, Limit: 2})
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 2)
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			require.True(t, wanted[m.EventID], "twice, or not parked")
			delete(wanted, m.EventID)
			require.True(t, m.Partition > from || m.Sequence > after)
			from, after = m.Partition, m.Sequence
		}
	}
	require.Empty(t, wanted)
	byCode, err := d.Store.ParkedMessages(ctx, s.UID, partitions[:1], 0, ports.ParkedQuery{Code: "timeout", Limit: 10})
	require.NoError(t, err)
	require.Len(t, byCode, 1)
	require.Equal(t, event.Sequence(3), byCode[0].Sequence)
	groups, err := d.Store.ParkedGroups(ctx, s.UID, partitions)
	require.NoError(t, err)
	now := d.Clock.Now()
	require.Equal(t, []ports.ParkedGroup{{Code: "case.broken", Messages: 4, First: now, Last: now}, {Code: "timeout", Messages: 2, First: now, Last: now}}, groups)
}

func decisionsStay(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	var ids []event.ID
	for n := event.Sequence(1); n <= 3; n++ {
		id := d.ids.next()
		ids = append(ids, id)
		d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
			return tx.Record(ctx, []ports.ParkedDecision{{ID: id, Sequence: n, EventID: id, Action: "discard", Actor: "person-1", Reason: "a test", Code: "x"}})
		})
	}
	require.NoError(t, d.Store.DeleteSubscription(ctx, s.UID))
	got, err := d.Store.Decisions(ctx, d.Tenant, "s", []event.PartitionID{d.Entities[0].Partition}, 2)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, ports.ParkedDecision{
		ID: ids[2], TenantID: d.Tenant, Subscription: "s", Partition: d.Entities[0].Partition, Sequence: 3, EventID: ids[2],
		Action: "discard", Actor: "person-1", Reason: "a test", Code: "x", At: d.Clock.Now(),
	}, got[0])
	require.Equal(t, ids[1], got[1].ID)
}

func breakerOpens(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	fail := func(i, n int) (opened bool) {
		d.in(t, s.UID, i, func(ctx context.Context, tx ports.DeliveryTx) (err error) {
			opened, err = tx.Fail(ctx, n, "x", 3)
			return err
		})
		return opened
	}
	require.False(t, fail(0, 2))
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error { return tx.Succeed(ctx) })
	require.False(t, fail(0, 2))
	require.True(t, fail(1, 1), "failures of all legal entities count together")
	require.False(t, fail(0, 1), "it is open already")
	there, err := d.Store.Subscription(ctx, d.Tenant, "s")
	require.NoError(t, err)
	require.Equal(t, subscription.Parked, there.Status)
	s.Revision++
	require.Equal(t, "subscription.changed", fault.CodeOf(d.Store.ChangeSubscription(ctx, s)), "who has not seen it does not undo it")
	require.Equal(t, subscription.Failure{Code: "x", At: d.Clock.Now()}, there.LastFailure)
	d.in(t, s.UID, 0, func(_ context.Context, tx ports.DeliveryTx) error {
		require.Equal(t, subscription.Parked, tx.Status())
		return nil
	})
	never := d.create(t, "never")
	d.in(t, never.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		opened, err := tx.Fail(ctx, 1000, "x", 0)
		require.False(t, opened)
		return err
	})
}

// breakerRace counts failures in both legal entities at once.
func breakerRace(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	for round := range races {
		s := d.create(t, fmt.Sprint("s-", round))
		opened := make([]bool, 2)
		for _, err := range race(len(opened), func(i int) error {
			_, err := d.Store.Deliver(ctx, s.UID, d.Entities[i].Partition, true, func(ctx context.Context, tx ports.DeliveryTx) (err error) {
				opened[i], err = tx.Fail(ctx, 1, "x", 1+round%2)
				runtime.Gosched()
				return err
			})
			return err
		}) {
			require.NoError(t, err)
		}
		require.NotEqual(t, opened[0], opened[1], "it opens once, and somebody is told")
		there, err := d.Store.Subscription(ctx, d.Tenant, s.ID)
		require.NoError(t, err)
		require.Equal(t, []any{subscription.Parked, 2, s.Revision + 1}, []any{there.Status, there.Failures, there.Revision})
	}
}

func consumersLeave(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	_, err := d.Store.Consumers(ctx, s.UID, "a", time.Minute)
	require.NoError(t, err)
	both, err := d.Store.Consumers(ctx, s.UID, "b", 3*time.Minute)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, both)
	d.Clock.Advance(2 * time.Minute)
	rest, err := d.Store.Consumers(ctx, s.UID, "c", time.Minute)
	require.NoError(t, err)
	require.Equal(t, []string{"b", "c"}, rest)
}

func deleted(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	d.save(t, s.UID, 0, d.message(1, subscription.Leased))
	d.save(t, other.UID, 0, d.message(1, subscription.Leased))
	require.NoError(t, d.Store.DeleteSubscription(ctx, s.UID))
	require.NoError(t, d.Store.DeleteSubscription(ctx, s.UID))
	for _, wait := range []bool{true, false} {
		_, err := d.Store.Deliver(ctx, s.UID, d.Entities[0].Partition, wait, func(context.Context, ports.DeliveryTx) error { return nil })
		require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	}
	_, err := d.Store.Subscription(ctx, d.Tenant, "s")
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	d.Clock.Advance(time.Hour)
	due, err := d.Store.Due(ctx, 1000)
	require.NoError(t, err)
	left := false
	for _, x := range due {
		require.NotEqual(t, s.UID, x.UID)
		left = left || x.UID == other.UID
	}
	require.True(t, left)
	again := d.create(t, "s")
	require.NotEqual(t, s.UID, again.UID)
	backlogs, err := d.Store.Backlogs(ctx, again.UID)
	require.NoError(t, err)
	require.Zero(t, backlogs[0].InFlight+backlogs[1].InFlight)
}

func eventsAt(t require.TestingT, d *SubscriptionFixture) {
	ids := d.Write(t, 0, 5, "one")
	got, err := d.Store.EventsAt(context.Background(), d.Entities[0].Partition, []event.Sequence{2, 4, 99})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, []event.ID{ids[1], ids[3]}, []event.ID{got[0].ID, got[1].ID})
	require.NotEmpty(t, got[0].Payload)
	s := d.create(t, "s")
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		after, err := tx.EventsAfter(ctx, 3, 1, 0, nil)
		require.NoError(t, err)
		require.Len(t, after, 1)
		require.Equal(t, ids[3], after[0].ID)
		require.NotEmpty(t, after[0].Payload)
		return nil
	})
}
