package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// SubscriptionStore is a store of subscriptions over its log.
type SubscriptionStore interface {
	ports.EventAppender
	ports.EventReader
	ports.LegalEntities
	ports.Installations
	ports.EventTypes
	ports.Projections
	ports.Subscriptions
	ports.Deliveries
	ports.SubscriptionDeadLetters
}

// SubscriptionPromise is something that every store of subscriptions keeps, checked
// with a tenant of its own; T fails by FailNow, as *testing.T does.
type SubscriptionPromise struct {
	Name  string
	Check func(t require.TestingT, d *SubscriptionFixture)
}

// SubscriptionPromises are all of them.
func SubscriptionPromises() []SubscriptionPromise {
	return []SubscriptionPromise{
		{"TheFirstDefinitionOfAnIDStays", firstDefinition},
		{"ADefinitionComesBackAsItWas", wholeDefinition},
		{"AChangeFromAnotherRevisionIsRefused", compareAndSet},
		{"ATenantHasNoMoreThanItMayHave", subscriptionLimit},
		{"ACursorIsOpenedOnce", openedOnce},
		{"WhatFailsLeavesNothing", rollsBack},
		{"TwoAreNeverInTheSamePlace", excludes},
		{"OthersAreNotInTheWay", otherPlaces},
		{"MessagesComeBackAsTheyWere", wholeMessages},
		{"PartsOfWhatIsOpenAreWhatTheySay", partialReads},
		{"WhatIsDueIsFoundAndNothingElse", dueOnly},
		{"AResetKeepsParkedMessagesBeforeIt", clearKeeps},
		{"ParkedMessagesComeInPagesAndGroups", parkedPages},
		{"DecisionsOutliveTheirSubscription", decisionsStay},
		{"TheBreakerOpensAtItsThresholdOnce", breakerOpens},
		{"OneOfManyOpensTheBreaker", breakerRace},
		{"ConsumersAreForgottenWhenTheyStayAway", consumersLeave},
		{"ADeletedSubscriptionHandsOutNothing", deleted},
		{"EventsAreReadBySequence", eventsAt},
		{"ParkedMessagesAreCountedAndHoldTheirKeys", countedParked},
		{"ReadingTheLogEndsAtItsBytes", withinBytes},
		{"EveryChangeIsSeenInTheState", stateChanges},
	}
}

// RunSubscriptions runs the suite on one empty store, whose only source of time is
// the clock.
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
	Store    SubscriptionStore
	Clock    *Clock
	Tenant   string
	Entities []ports.LegalEntity
	typ      eventtype.Registration
	ids      *idSource
}

// subscriptionIDs are shared, since ids are unique in a log.
var subscriptionIDs = newIDSource()

// NewSubscriptionFixture makes a tenant in a store, which it bootstraps if nobody has.
func NewSubscriptionFixture(t require.TestingT, s SubscriptionStore, clock *Clock, tenant string) *SubscriptionFixture {
	ctx := context.Background()
	d := &SubscriptionFixture{Store: s, Clock: clock, Tenant: tenant, ids: subscriptionIDs}
	require.NoError(t, s.Bootstrap(ctx, ports.Installation{LogName: LogName, Deployment: Deployment, CreatedAt: clock.Now()}))
	all, _, err := s.EventTypes(ctx)
	require.NoError(t, err)
	for _, r := range all {
		if r.Type == "conformance.desk.opened" {
			d.typ = r
		}
	}
	if d.typ.Type == "" {
		d.typ, err = s.RegisterEventType(ctx, registration("conformance.desk.opened", 1, clock.Now()))
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
	b := &book{suite: &suite{ids: d.ids, clock: d.Clock}, le: d.Entities[i]}
	var events []event.Prepared
	var out []event.ID
	for range n {
		e := b.event(d.typ, event.StreamID{Type: "desk", ID: stream}, options...)
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
		StreamTypes: []string{"desk"}, Predicate: predicate,
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
			require.Equal(t, int64(1), b.Term)
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
		require.NoError(t, tx.Record(ctx, []ports.ParkedDecision{{ID: d.ids.next(), Sequence: 1, EventID: kept.EventID, Action: "skip", Actor: "p"}}))
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
	decisions, err := d.Store.Decisions(ctx, d.Tenant, "s", []event.PartitionID{d.Entities[0].Partition}, 10)
	require.NoError(t, err)
	require.Empty(t, decisions)
}

func excludes(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s := d.create(t, "s")
	d.in(t, s.UID, 0, func(context.Context, ports.DeliveryTx) error {
		ran, err := d.Store.Deliver(ctx, s.UID, d.Entities[0].Partition, false, func(context.Context, ports.DeliveryTx) error {
			return errors.New("somebody else is here")
		})
		require.NoError(t, err)
		require.False(t, ran)
		return nil
	})
	// Many who wait their turn: none overwrites another.
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

func otherPlaces(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	d.in(t, s.UID, 0, func(context.Context, ports.DeliveryTx) error {
		for _, place := range []struct {
			uid event.ID
			le  int
		}{{s.UID, 1}, {other.UID, 0}} {
			ran, err := d.Store.Deliver(ctx, place.uid, d.Entities[place.le].Partition, false, func(ctx context.Context, tx ports.DeliveryTx) error {
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
