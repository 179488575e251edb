package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// SubscriptionStore is a store of subscriptions over its log.
type SubscriptionStore interface {
	ports.EventAppender
	ports.EventReader
	ports.LegalEntities
	ports.Installations
	ports.SharedEventTypes
	ports.LogPositions
	ports.Projections
	ports.Subscriptions
	ports.Deliveries
	ports.SubscriptionDeadLetters
}

// SubscriptionPromise is one behaviour of every store of subscriptions, checked with a
// new tenant; T fails by FailNow, as *testing.T does.
type SubscriptionPromise struct {
	Name  string
	Check func(t require.TestingT, d *SubscriptionFixture)
}

// SubscriptionPromises lists what RunSubscriptions checks.
func SubscriptionPromises() []SubscriptionPromise {
	return []SubscriptionPromise{
		{"first definition of an id is kept", firstDefinition},
		{"definition is read as written", wholeDefinition},
		{"change of another revision is refused", compareAndSet},
		{"tenant limit is enforced", subscriptionLimit},
		{"cursor is added once", openedOnce},
		{"failed transaction writes nothing", rollsBack},
		{"deliveries of one partition are serialized", excludes},
		{"other partitions and subscriptions do not block", otherPartitions},
		{"messages are read as written", wholeMessages},
		{"partial reads of open messages agree", partialReads},
		{"only due messages are found", dueOnly},
		{"reset keeps parked messages before it", clearKeeps},
		{"parked messages are paged and grouped", parkedPages},
		{"breaker opens once at its threshold", breakerOpens},
		{"failures of one delivery add up", breakerTwice},
		{"delivery whose context ends stores nothing", endedContexts},
		{"one of many opens the breaker", breakerRace},
		{"absent consumers are forgotten", consumersLeave},
		{"deleted subscription delivers nothing", deleted},
		{"events are read by sequence", eventsAt},
		{"parked messages are counted and block their keys", countedParked},
		{"read of the log ends at its byte limit", withinBytes},
		{"every change changes the delivery state", stateChanges},
	}
}

// RunSubscriptions checks ports.Subscriptions, ports.Deliveries and
// ports.SubscriptionDeadLetters on one empty store, whose only source of time is the clock:
// definitions, delivery transactions, dead letters, the breaker and consumers.
func RunSubscriptions(t *testing.T, newStore func(t *testing.T, clock ports.Clock) SubscriptionStore) {
	t.Helper()
	clock := NewClock()
	s := newStore(t, clock)
	for i, p := range SubscriptionPromises() {
		t.Run(p.Name, func(t *testing.T) { p.Check(t, NewSubscriptionFixture(t, s, clock, fmt.Sprintf("tenant-%d", i))) })
	}
}

// SubscriptionFixture is a tenant with two legal entities.
type SubscriptionFixture struct {
	Entitled map[string][]string // legal entities by person; none: all
	Store    SubscriptionStore
	Clock    *testkit.Clock
	Log      *AdministrativeLog // of decisions about subscriptions
	Tenant   string
	Entities []ports.LegalEntity
	typ      eventtype.Registration
	ids      *idSource
}

// subscriptionIDs are shared, since ids are unique in a log.
var subscriptionIDs = newIDSource()

// NewSubscriptionFixture makes a tenant in a store, which it bootstraps if necessary.
func NewSubscriptionFixture(t require.TestingT, s SubscriptionStore, clock *testkit.Clock, tenant string) *SubscriptionFixture {
	ctx := context.Background()
	d := &SubscriptionFixture{Store: s, Clock: clock, Log: testkit.Must(NewAdministrativeLog(clock)), Tenant: tenant, ids: subscriptionIDs}
	require.NoError(t, s.Bootstrap(ctx, ports.Installation{LogName: LogName, Deployment: Deployment, CreatedAt: clock.Now()}))
	all, _, err := s.SharedEventTypes(ctx)
	require.NoError(t, err)
	for _, r := range all {
		if r.Type == "conformance.ticket.opened" {
			d.typ = r
		}
	}
	if d.typ.Type == "" {
		d.typ, err = s.RegisterEventType(ctx, registration("conformance.ticket.opened", 1, clock.Now()))
		require.NoError(t, err)
	}
	for _, code := range []string{"AA", "BB"} {
		le, err := s.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: tenant, Code: code, Name: code, TimeZone: "UTC", Status: "active", CreatedAt: clock.Now()})
		require.NoError(t, err)
		d.Entities = append(d.Entities, le)
	}
	return d
}

// Write appends n events on a stream of the i-th legal entity.
func (d *SubscriptionFixture) Write(t require.TestingT, i, n int, stream string, options ...option) []event.ID {
	b := &partition{suite: &suite{ids: d.ids, clock: d.Clock}, le: d.Entities[i]}
	var events []event.Prepared
	var out []event.ID
	for range n {
		e := b.event(d.typ, event.StreamID{Type: "ticket", ID: stream}, options...)
		events, out = append(events, e), append(out, e.ID)
	}
	_, err := d.Store.Append(context.Background(), ports.AppendRequest{Partition: d.Entities[i].Partition, Events: events})
	require.NoError(t, err)
	return out
}

func (d *SubscriptionFixture) definition(t require.TestingT, id string) subscription.Subscription {
	s := subscription.Subscription{
		UID: d.ids.next(), TenantID: d.Tenant, ID: id, SubscriberType: "service", SubscriberID: "suite", Status: subscription.Active,
		Owner: "person-1", Revision: 1, CreatedAt: d.Clock.Now(), UpdatedAt: d.Clock.Now(),
	}
	require.NoError(t, s.Check())
	return s
}

func (d *SubscriptionFixture) create(t require.TestingT, id string) subscription.Subscription {
	s, created, err := d.Store.CreateSubscription(context.Background(), d.definition(t, id), []ports.DeliveryCursor{{Partition: d.Entities[0].Partition}, {Partition: d.Entities[1].Partition}}, 0)
	require.NoError(t, err)
	require.True(t, created)
	return s
}

func (d *SubscriptionFixture) message(n event.Sequence, state subscription.State) subscription.Message {
	m := subscription.Message{
		Sequence: n, EventID: d.ids.next(), Key: subscription.Key{byte(n), 1}, State: state, Consumer: "c-1", Attempts: int(n),
		DeliveredAt: d.Clock.Now().Add(-time.Second), Code: "case.broken", Detail: "at line 3", ChangedAt: d.Clock.Now(),
	}
	if state == subscription.Leased || state == subscription.Retry {
		m.Due = d.Clock.Now().Add(time.Duration(n) * time.Minute)
	}
	return m
}

// in runs f in the i-th legal entity, which must succeed.
func (d *SubscriptionFixture) in(t require.TestingT, uid event.ID, i int, f func(ctx context.Context, tx ports.DeliveryTx) error) {
	ran, err := d.Store.Deliver(context.Background(), uid, d.Entities[i].Partition, true, f)
	require.NoError(t, err)
	require.True(t, ran)
}

func (d *SubscriptionFixture) save(t require.TestingT, uid event.ID, i int, messages ...subscription.Message) {
	d.in(t, uid, i, func(ctx context.Context, tx ports.DeliveryTx) error {
		c := tx.Cursor()
		for _, m := range messages {
			c.ReadThrough = max(c.ReadThrough, m.Sequence)
		}
		return tx.Save(ctx, c, messages, nil)
	})
}

func firstDefinition(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	first := d.create(t, "s")
	other := d.definition(t, "s")
	other.SubscriberID = "another"
	there, created, err := d.Store.CreateSubscription(ctx, other, []ports.DeliveryCursor{{Partition: d.Entities[0].Partition, ReadThrough: 9}}, 0)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, first, there)
	backlogs, err := d.Store.Backlogs(ctx, first.UID)
	require.NoError(t, err)
	require.Len(t, backlogs, 2)
	require.Zero(t, backlogs[0].ReadThrough+backlogs[1].ReadThrough)
	none, err := d.Store.Backlogs(ctx, other.UID)
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = d.Store.Subscription(ctx, d.Tenant+"-other", "s")
	require.Equal(t, "subscription.not_found", fault.CodeOf(err))
	for round := range races {
		made := make([]bool, 8)
		definitions := make([]subscription.Subscription, len(made))
		for i := range definitions {
			definitions[i] = d.definition(t, fmt.Sprint("contested-", round))
		}
		errs := race(len(made), func(i int) (err error) {
			_, made[i], err = d.Store.CreateSubscription(ctx, definitions[i], nil, 0)
			return err
		})
		winners := 0
		for i, m := range made {
			require.NoError(t, errs[i])
			if m {
				winners++
			}
		}
		require.Equal(t, 1, winners)
	}
}

func wholeDefinition(t require.TestingT, d *SubscriptionFixture) {
	predicate, err := event.ParsePredicate("$.lines[*].amount", "gt", "10.50")
	require.NoError(t, err)
	s := d.definition(t, "whole")
	s.Filter = subscription.Filter{
		EventTypes: []string{"a.b"}, LegalEntities: []string{"AA"}, Modules: []string{"ap"}, Divisions: []string{"north"}, Tags: []string{"x", "y"},
		Regions: []string{"emea"}, Sites: []string{"B-7"}, Custom: map[string][]string{"cost_center": {"CC-1", "CC-2"}},
		StreamTypes: []string{"ticket"}, Streams: []string{"ticket/T-1"}, Predicate: predicate,
	}
	s.Settings = subscription.Settings{
		Start:          subscription.Start{From: subscription.Position, Positions: map[string]event.Sequence{"AA": 7}},
		MessageTimeout: time.Minute, MaxRetries: subscription.NoRetries, BreakerAfter: 3, CheckpointAfter: 2, MaxInFlight: 9,
		ConsumerStrategy: subscription.Pinned, PartitionBy: "entity:vendor", RetryFirst: time.Second, RetryLongest: time.Hour,
	}
	s.ResetStart = &subscription.Start{From: subscription.AtCursor, Marks: map[event.PartitionID]event.Sequence{d.Entities[0].Partition: 3}}
	require.NoError(t, s.Check())
	made, created, err := d.Store.CreateSubscription(context.Background(), s, nil, 0)
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, s, made)
	list, err := d.Store.Subscriptions(context.Background(), d.Tenant)
	require.NoError(t, err)
	require.Equal(t, []subscription.Subscription{s}, list)
	all, err := d.Store.Subscriptions(context.Background(), "")
	require.NoError(t, err)
	require.Contains(t, all, s)
}

func compareAndSet(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	s.Status, s.Revision, s.Failures = subscription.Paused, 2, 4
	s.Settings.MaxRetries = 9
	s.ResetStart = &subscription.Start{From: subscription.AtTime, Time: d.Clock.Now()}
	s.LastFailure = subscription.Failure{Code: "x", At: d.Clock.Now()}
	require.NoError(t, d.Store.ChangeSubscription(ctx, s))
	require.Equal(t, "subscription.changed", fault.CodeOf(d.Store.ChangeSubscription(ctx, s)))
	there, err := d.Store.Subscription(ctx, d.Tenant, "s")
	require.NoError(t, err)
	require.Equal(t, s, there)
}

func openedOnce(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	d.save(t, s.UID, 0, d.message(3, subscription.Leased))
	require.NoError(t, d.Store.AddCursors(ctx, s.UID, []ports.DeliveryCursor{{Partition: d.Entities[0].Partition, ReadThrough: 1}}))
	backlogs, err := d.Store.Backlogs(ctx, s.UID)
	require.NoError(t, err)
	for _, b := range backlogs {
		if b.Partition == d.Entities[0].Partition {
			require.Equal(t, event.Sequence(3), b.ReadThrough)
		}
	}
}

func rollsBack(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	kept := d.message(1, subscription.Leased)
	d.save(t, s.UID, 0, kept)
	broken := errors.New("it broke")
	_, err := d.Store.Deliver(ctx, s.UID, d.Entities[0].Partition, true, func(ctx context.Context, tx ports.DeliveryTx) error {
		c := tx.Cursor()
		c.ReadThrough = 9
		require.NoError(t, tx.Save(ctx, c, []subscription.Message{d.message(2, subscription.Leased)}, []event.Sequence{1}))
		_, err := tx.Fail(ctx, 5, "x", 1)
		require.NoError(t, err)
		return broken
	})
	require.ErrorIs(t, err, broken)
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		require.Equal(t, event.Sequence(1), tx.Cursor().ReadThrough)
		open, err := tx.Open(ctx)
		require.NoError(t, err)
		require.Equal(t, []subscription.Message{kept}, open)
		return nil
	})
	there, err := d.Store.Subscription(ctx, d.Tenant, "s")
	require.NoError(t, err)
	require.Equal(t, subscription.Active, there.Status)
	require.Zero(t, there.Failures)
}

func excludes(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	d.in(t, s.UID, 0, func(context.Context, ports.DeliveryTx) error {
		ran, err := d.Store.Deliver(ctx, s.UID, d.Entities[0].Partition, false, func(context.Context, ports.DeliveryTx) error {
			return errors.New("a second delivery is inside")
		})
		require.NoError(t, err)
		require.False(t, ran)
		return nil
	})
	// Callers that wait for their turn overwrite nothing.
	errs := race(8, func(int) error {
		for range races {
			_, err := d.Store.Deliver(ctx, s.UID, d.Entities[0].Partition, true, func(ctx context.Context, tx ports.DeliveryTx) error {
				c := tx.Cursor()
				c.ReadThrough++
				c.Counts.Delivered++
				return tx.Save(ctx, c, nil, nil)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, errors.Join(errs...))
	d.in(t, s.UID, 0, func(_ context.Context, tx ports.DeliveryTx) error {
		require.Equal(t, event.Sequence(8*races), tx.Cursor().ReadThrough)
		require.Equal(t, int64(8*races), tx.Cursor().Counts.Delivered)
		return nil
	})
}

func otherPartitions(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	d.in(t, s.UID, 0, func(context.Context, ports.DeliveryTx) error {
		for _, c := range []struct {
			uid event.ID
			le  int
		}{{s.UID, 1}, {other.UID, 0}} {
			ran, err := d.Store.Deliver(ctx, c.uid, d.Entities[c.le].Partition, false, func(ctx context.Context, tx ports.DeliveryTx) error {
				return tx.Save(ctx, tx.Cursor(), []subscription.Message{d.message(1, subscription.Leased)}, nil)
			})
			require.NoError(t, err)
			require.True(t, ran)
		}
		return nil
	})
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		open, err := tx.Open(ctx)
		require.NoError(t, err)
		require.Empty(t, open)
		return nil
	})
}

// partialReads makes each read of a delivery that returns a part of the open messages.
func partialReads(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	leased, retry, parked := d.message(2, subscription.Leased), d.message(5, subscription.Retry), d.message(3, subscription.ParkedState)
	waiting := make([]subscription.Message, 4) // 4, 6, 7, 8; the keys of 6 and 8 are one
	for i, n := range []event.Sequence{4, 6, 7, 8} {
		waiting[i] = subscription.Message{Sequence: n, EventID: d.ids.next(), Key: subscription.Key{byte(n), 2}, State: subscription.Waiting, ChangedAt: d.Clock.Now()}
	}
	waiting[3].Key = waiting[1].Key
	d.save(t, s.UID, 0, append([]subscription.Message{leased, retry, parked}, waiting...)...)
	elsewhere, foreign := d.message(1, subscription.Leased), d.message(1, subscription.Leased)
	d.save(t, s.UID, 1, elsewhere)
	d.save(t, other.UID, 0, foreign)
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		named, err := tx.OpenByEvent(ctx, []event.ID{waiting[2].EventID, leased.EventID, parked.EventID, elsewhere.EventID, foreign.EventID, d.ids.next()})
		require.NoError(t, err)
		require.Equal(t, []subscription.Message{leased, waiting[2]}, named)
		none, err := tx.OpenByEvent(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, none)
		moving, err := tx.Delivered(ctx)
		require.NoError(t, err)
		require.Equal(t, []subscription.Message{leased, retry}, moving)
		n, err := tx.CountWaiting(ctx)
		require.NoError(t, err)
		require.Equal(t, 4, n)
		for _, c := range []struct {
			after event.Sequence
			but   []subscription.BlockedKey
			limit int
			want  []subscription.Message
		}{
			{0, nil, 10, waiting}, {0, nil, 2, waiting[:2]}, {4, nil, 10, waiting[1:]}, {8, nil, 10, waiting[:0]},
			{0, []subscription.BlockedKey{{Key: waiting[1].Key, After: 2}, {Key: leased.Key, After: 2}}, 10, []subscription.Message{waiting[0], waiting[2]}},
			{0, []subscription.BlockedKey{{Key: waiting[0].Key, After: 1}}, 1, waiting[1:2]},
			{0, []subscription.BlockedKey{{Key: leased.Key, After: 9}, {Key: waiting[1].Key, After: 7}}, 10, waiting[:3]},
			{0, []subscription.BlockedKey{{Key: waiting[1].Key, After: 7}, {Key: waiting[0].Key, After: 3}}, 10, waiting[1:3]},
		} {
			found, err := tx.Waiting(ctx, c.after, c.but, c.limit)
			require.NoError(t, err)
			require.Equal(t, c.want, found)
		}
		for _, want := range [][]event.Sequence{{2}, {2, 4}, {2, 4, 5}} {
			lowest, err := tx.LowestOpen(ctx, len(want))
			require.NoError(t, err)
			require.Equal(t, want, lowest)
		}
		return nil
	})
	first, second := d.Entities[0].Partition, d.Entities[1].Partition
	for _, c := range []struct {
		in     []event.PartitionID
		events []event.ID
		want   []event.PartitionID
	}{
		{nil, []event.ID{elsewhere.EventID, leased.EventID, waiting[0].EventID}, []event.PartitionID{min(first, second), max(first, second)}},
		{nil, []event.ID{parked.EventID}, []event.PartitionID{}},
		{nil, []event.ID{parked.EventID, waiting[1].EventID}, []event.PartitionID{first}},
		{[]event.PartitionID{second}, []event.ID{leased.EventID, elsewhere.EventID}, []event.PartitionID{second}},
		{[]event.PartitionID{second}, []event.ID{leased.EventID}, []event.PartitionID{}},
		{nil, []event.ID{foreign.EventID}, []event.PartitionID{}},
		{nil, nil, []event.PartitionID{}},
	} {
		found, err := d.Store.PartitionsWithOpen(ctx, s.UID, c.in, c.events)
		require.NoError(t, err)
		require.Equal(t, c.want, found)
	}
}

// sized makes the payload of an event a little longer than bytes.
func sized(bytes int) option {
	return func(p *event.Prepared) {
		p.Payload = []byte(`{"data":{"id":"` + p.ID.String() + `","text":"` + strings.Repeat("x", bytes) + `"},"dimensions":{},"entity_refs":[]}`)
	}
}

// subscriptionLimit creates many subscriptions at once: as many are created as the tenant may
// have, a known id returns the existing one, and a deletion makes room for another one.
func subscriptionLimit(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	const most = 5
	made := make([]bool, 4*most)
	definitions := make([]subscription.Subscription, len(made))
	for i := range definitions {
		definitions[i] = d.definition(t, fmt.Sprintf("s-%d", i))
	}
	errs := race(len(made), func(i int) (err error) {
		_, made[i], err = d.Store.CreateSubscription(ctx, definitions[i], nil, most)
		return err
	})
	count := 0
	for i := range made {
		if made[i] {
			count++
			require.NoError(t, errs[i])
			continue
		}
		require.Equal(t, "subscription.too_many", fault.CodeOf(errs[i]))
	}
	require.Equal(t, most, count)
	list, err := d.Store.Subscriptions(ctx, d.Tenant)
	require.NoError(t, err)
	require.Len(t, list, most)
	_, created, err := d.Store.CreateSubscription(ctx, d.definition(t, list[0].ID), nil, most)
	require.NoError(t, err, "what is there is no other one")
	require.False(t, created)
	require.NoError(t, d.Store.DeleteSubscription(ctx, list[0].UID))
	_, created, err = d.Store.CreateSubscription(ctx, d.definition(t, "room"), nil, most)
	require.NoError(t, err)
	require.True(t, created)
	_, created, err = d.Store.CreateSubscription(ctx, d.definition(t, "any"), nil, 0)
	require.NoError(t, err)
	require.True(t, created)
}

// stateChanges changes a subscription in every way: its state is another one each time,
// as it is when the cursors are read, and the states of other subscriptions do not change.
func stateChanges(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	gone := d.ids.next()
	seen := map[ports.DeliveryState]bool{}
	states := func() (of, foreign ports.DeliveryState) {
		d.Clock.Advance(time.Second)
		all, err := d.Store.DeliveryStates(ctx, []event.ID{s.UID, other.UID, gone})
		require.NoError(t, err)
		require.Len(t, all, 2)
		backlogs, err := d.Store.Backlogs(ctx, s.UID)
		require.NoError(t, err)
		require.Equal(t, ports.HashCursors(backlogs), all[s.UID].CursorHash)
		require.False(t, seen[all[s.UID]], "this was another change")
		seen[all[s.UID]] = true
		return all[s.UID], all[other.UID]
	}
	_, before := states()
	for range 2 { // both cursors change from one common time to another
		for i := range 2 {
			d.in(t, s.UID, i, func(ctx context.Context, tx ports.DeliveryTx) error { return tx.Save(ctx, tx.Cursor(), nil, nil) })
		}
		states()
	}
	d.save(t, s.UID, 0, d.message(1, subscription.Leased))
	states()
	d.save(t, s.UID, 1, d.message(1, subscription.Leased))
	states()
	d.save(t, s.UID, 0, d.message(1, subscription.Retry))
	states()
	s.Revision++
	require.NoError(t, d.Store.ChangeSubscription(ctx, s))
	_, after := states()
	require.Equal(t, before, after)
}

func countedParked(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	d.save(t, other.UID, 0, d.message(1, subscription.ParkedState))
	list := []subscription.Message{d.message(1, subscription.Leased), d.message(2, subscription.Leased), d.message(3, subscription.Leased), d.message(4, subscription.Leased)}
	list[3].Key = list[1].Key
	d.save(t, s.UID, 0, list...)
	// counted are those of the first legal entity, in and outside of a transaction.
	counted := func(n int, keys map[subscription.Key]event.Sequence) {
		d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
			require.Equal(t, n, tx.Cursor().Parked)
			found, err := tx.ParkedKeys(ctx, []subscription.Key{list[0].Key, list[1].Key, list[2].Key})
			require.NoError(t, err)
			require.Len(t, found, len(keys))
			for k, first := range keys {
				require.Equal(t, first, found[k])
			}
			return nil
		})
		backlogs, err := d.Store.Backlogs(ctx, s.UID)
		require.NoError(t, err)
		for _, b := range backlogs {
			if b.Partition == d.Entities[0].Partition {
				require.Equal(t, n, b.Parked)
				require.Equal(t, len(list)-n, b.InFlight+b.Waiting)
			} else {
				require.Zero(t, b.Parked)
			}
		}
	}
	counted(0, nil)
	for _, i := range []int{1, 3} {
		list[i].State = subscription.ParkedState
		d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
			require.NoError(t, tx.Save(ctx, tx.Cursor(), list[i:i+1], nil))
			require.Equal(t, (i+1)/2, tx.Cursor().Parked, "seen where it was parked")
			return nil
		})
	}
	counted(2, map[subscription.Key]event.Sequence{list[1].Key: 2})
	// One is retried: the later message of its key blocks the key now.
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		dead, err := tx.Parked(ctx, ports.ParkedQuery{EventIDs: []event.ID{list[1].EventID}, Limit: 10})
		require.NoError(t, err)
		require.Len(t, dead, 1)
		dead[0].State = subscription.Retry
		return tx.Save(ctx, tx.Cursor(), dead, nil)
	})
	counted(1, map[subscription.Key]event.Sequence{list[1].Key: 4})
	list = list[:3] // the fourth is given up
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		dead, err := tx.Parked(ctx, ports.ParkedQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, dead, 1)
		return tx.Save(ctx, tx.Cursor(), nil, []event.Sequence{4})
	})
	counted(0, nil)
}

func withinBytes(t require.TestingT, d *SubscriptionFixture) {
	const large = 100_000
	d.Write(t, 0, 2, "one")
	d.Write(t, 0, 3, "one", sized(large))
	d.Write(t, 0, 2, "one")
	s := d.create(t, "s")
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		read := func(after event.Sequence, limit, bytes int) (out []event.Sequence) {
			events, err := tx.EventsAfter(ctx, after, limit, bytes, nil)
			require.NoError(t, err)
			for i := range events {
				require.NotEmpty(t, events[i].Payload)
				out = append(out, events[i].Sequence)
			}
			return out
		}
		require.Equal(t, []event.Sequence{1, 2, 3}, read(0, 100, 2*large))
		require.Equal(t, []event.Sequence{1, 2, 3, 4}, read(0, 100, 2*large+2000))
		require.Equal(t, []event.Sequence{1, 2}, read(0, 2, 2*large+2000))
		require.Equal(t, []event.Sequence{1, 2}, read(0, 100, large))
		require.Equal(t, []event.Sequence{3}, read(2, 100, large), "one always comes")
		require.Equal(t, []event.Sequence{6, 7}, read(5, 100, large))
		require.Equal(t, []event.Sequence{1, 2, 3, 4, 5, 6, 7}, read(0, 100, 0), "no bound")
		require.Empty(t, read(7, 100, large))
		// Payloads of other types are not brought, and do not count.
		events, err := tx.EventsAfter(ctx, 0, 100, large, []string{"another.type"})
		require.NoError(t, err)
		require.NotEmpty(t, events)
		sizes, err := tx.Sizes(ctx, []event.Sequence{2, 3, 99})
		require.NoError(t, err)
		require.Len(t, sizes, 2)
		require.Less(t, sizes[2], 1000)
		require.InDelta(t, large, sizes[3], 1000)
		return nil
	})
	events, err := d.Store.Events(context.Background(), ports.EventQuery{Partition: d.Entities[0].Partition, After: 1, Limit: 100, Bytes: 2 * large})
	require.NoError(t, err)
	require.Len(t, events, 2, "a read of the log too")
	work := ports.ProjectionWork{Projection: "bytes-" + d.Tenant, Version: 1, Partition: d.Entities[0].Partition}
	for _, step := range []struct{ bytes, passed int }{{2 * large, 3}, {large / 2, 1}, {2 * large, 3}} {
		var applied eventCount
		_, passed, err := d.Store.Advance(context.Background(), ports.ProjectionAdvance{ProjectionWork: work, Limit: 100, Bytes: step.bytes}, &applied)
		require.NoError(t, err)
		require.Equal(t, step.passed, passed, "batches of projections too")
		require.Equal(t, eventCount(step.passed), applied)
	}
}

// eventCount is a projection that counts the events of its last batch.
type eventCount int

func (n *eventCount) Apply(_ context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	*n = eventCount(len(b.Events))
	return nil
}

// RunDeliveryBytes checks that no poll answers more than its bytes, whether messages are
// new, tried again or replayed, in one legal entity or in several, and that everything
// comes all the same.
func RunDeliveryBytes(t *testing.T, newStore func(t *testing.T, clock ports.Clock) SubscriptionStore) {
	t.Helper()
	const bound, large = 1 << 20, 300_000 // three fit
	clock := NewClock()
	store := newStore(t, clock)
	for _, by := range []string{subscription.PerLegalEntity, subscription.PerStream, subscription.NoOrder} {
		t.Run(by, func(t *testing.T) {
			c := NewDeliveryFixture(NewSubscriptionFixture(t, store, clock, "bytes-"+by), func(c *subscriptions.Config) { c.MaxBytes = bound })
			c.Write(t, 0, 2, "small")
			c.Write(t, 0, 7, "large", sized(large))
			c.Write(t, 1, 1, "huge", sized(2*bound))
			c.Write(t, 1, 4, "large", sized(large))
			c.Write(t, 1, 3, "small")
			c.Subscribe(t, "s", subscription.Settings{PartitionBy: by, BreakerAfter: subscription.NoBreaker, MaxRetries: 3}, subscription.Filter{})
			const events = 17
			// take polls until nothing is left and answers every batch.
			take := func(answer func(ids []event.ID)) {
				seen := map[event.ID]bool{}
				for polls := 0; ; polls++ {
					require.Less(t, polls, 2*events)
					batch, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: "s", Limit: 1000})
					require.NoError(t, err)
					bytes := 0
					var ids []event.ID
					for _, d := range batch.Deliveries {
						bytes += len(d.Event.Payload)
						require.False(t, seen[d.Event.ID], "twice")
						seen[d.Event.ID] = true
						ids = append(ids, d.Event.ID)
					}
					require.True(t, bytes <= bound || len(batch.Deliveries) == 1, "%d bytes in %d events", bytes, len(batch.Deliveries))
					if len(ids) == 0 {
						break
					}
					require.Equal(t, len(seen) < events, batch.HasMore)
					answer(ids)
				}
				require.Len(t, seen, events)
			}
			if by != subscription.PerStream { // where the first parked message blocks the rest of its stream
				take(func(ids []event.ID) {
					_, err := c.Service.Refuse(t.Context(), c.Person, subscriptions.Refusal{ID: "s", EventIDs: ids, Action: subscription.Park, Code: "case.large"})
					require.NoError(t, err)
				})
				settled, err := c.Service.Replay(t.Context(), subscriptions.Caller{Principal: c.Person}, "s", subscriptions.DeadLetterQuery{Limit: 1000}, "")
				require.NoError(t, err)
				require.Equal(t, subscriptions.DeadLetterResult{Messages: events}, settled)
			}
			take(func(ids []event.ID) {
				_, err := c.Service.Acknowledge(t.Context(), c.Person, subscriptions.Acknowledgement{ID: "s", EventIDs: ids})
				require.NoError(t, err)
			})
		})
	}
}

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
		c.Checkpoint, c.Pending, c.Counts.Retried = 1, 2, 6
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
		require.Equal(t, []int64{1, 2, 6}, []int64{int64(b.Checkpoint), int64(b.Pending), b.Counts.Retried})
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

// breakerTwice counts failures twice in one delivery, and once more when the breaker is open and
// its threshold is raised.
func breakerTwice(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	var opened []bool
	fail := func(ctx context.Context, tx ports.DeliveryTx, n, threshold int) error {
		o, err := tx.Fail(ctx, n, "x", threshold)
		opened = append(opened, o)
		return err
	}
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		opened = nil
		return errors.Join(fail(ctx, tx, 9, 0), tx.Succeed(ctx), fail(ctx, tx, 2, 3), fail(ctx, tx, 1, 3), fail(ctx, tx, 1, 3))
	})
	require.Equal(t, []bool{false, false, true, false}, opened)
	there, err := d.Store.Subscription(ctx, d.Tenant, "s")
	require.NoError(t, err)
	require.Equal(t, []any{subscription.Parked, 4, s.Revision + 1}, []any{there.Status, there.Failures, there.Revision})
	d.in(t, s.UID, 1, func(ctx context.Context, tx ports.DeliveryTx) error {
		opened = nil
		return fail(ctx, tx, 6, 10)
	})
	require.Equal(t, []bool{false}, opened, "it is open already")
}

// endedContexts delivers with a context that has ended, and with one that ends during the delivery.
func endedContexts(t require.TestingT, d *SubscriptionFixture) {
	s := d.create(t, "s")
	for _, wait := range []bool{true, false} {
		ran, err := d.Store.Deliver(cancelled(), s.UID, d.Entities[0].Partition, wait, func(context.Context, ports.DeliveryTx) error {
			return errors.New("it ran")
		})
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, ran)

		ctx, cancel := context.WithCancel(context.Background())
		ran, err = d.Store.Deliver(ctx, s.UID, d.Entities[0].Partition, wait, func(ctx context.Context, tx ports.DeliveryTx) error {
			c := tx.Cursor()
			c.ReadThrough = 1
			err := tx.Save(ctx, c, nil, nil)
			cancel()
			return err
		})
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, ran)
		d.in(t, s.UID, 0, func(_ context.Context, tx ports.DeliveryTx) error {
			require.Zero(t, tx.Cursor().ReadThrough, "nothing of it was stored")
			return nil
		})
	}
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
	require.Equal(t, "subscription.changed", fault.CodeOf(d.Store.ChangeSubscription(ctx, s)), "a change of the older revision does not close it")
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
		require.NotEqual(t, opened[0], opened[1], "it opens once, and one caller learns of it")
		there, err := d.Store.Subscription(ctx, d.Tenant, s.ID)
		require.NoError(t, err)
		require.Equal(t, []any{subscription.Parked, 2, s.Revision + 1}, []any{there.Status, there.Failures, there.Revision})
	}
}

func consumersLeave(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	_, err := d.Store.RegisterConsumer(ctx, s.UID, "a", time.Minute)
	require.NoError(t, err)
	both, err := d.Store.RegisterConsumer(ctx, s.UID, "b", 3*time.Minute)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, both)
	d.Clock.Advance(2 * time.Minute)
	rest, err := d.Store.RegisterConsumer(ctx, s.UID, "c", time.Minute)
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
