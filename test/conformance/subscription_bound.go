package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// sized gives an event a payload of so many bytes and more.
func sized(bytes int) option {
	return func(p *event.Prepared) {
		p.Payload = []byte(`{"data":{"id":"` + p.ID.String() + `","text":"` + strings.Repeat("x", bytes) + `"},"dimensions":{},"entity_refs":[]}`)
	}
}

// subscriptionLimit lets many make subscriptions at once: as many get one as the tenant may
// have, others of its ids find what is there, and one that is deleted makes room.
func subscriptionLimit(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	const most = 5
	var all sync.WaitGroup
	made := make([]bool, 4*most)
	errs := make([]error, len(made))
	for i := range made {
		s := d.definition(t, fmt.Sprintf("s-%d", i))
		all.Go(func() { _, made[i], errs[i] = d.Store.CreateSubscription(ctx, s, nil, most) })
	}
	all.Wait()
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
// as it is when the cursors are read, and others' stay as they are.
func stateChanges(t require.TestingT, d *SubscriptionFixture) {
	ctx := context.Background()
	s, other := d.create(t, "s"), d.create(t, "other")
	gone := d.ids.next()
	seen := map[ports.DeliveryState]bool{}
	look := func() (of, others ports.DeliveryState) {
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
	_, before := look()
	d.save(t, s.UID, 0, d.message(1, subscription.Leased))
	look()
	d.save(t, s.UID, 1, d.message(1, subscription.Leased))
	look()
	d.save(t, s.UID, 0, d.message(1, subscription.Retry))
	look()
	s.Revision++
	require.NoError(t, d.Store.ChangeSubscription(ctx, s))
	_, after := look()
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
	// One is handed out again: the later of its key holds the key back now.
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
		var given handed
		_, passed, err := d.Store.Advance(context.Background(), ports.ProjectionAdvance{ProjectionWork: work, Limit: 100, Bytes: step.bytes}, &given)
		require.NoError(t, err)
		require.Equal(t, step.passed, passed, "batches of projections too")
		require.Equal(t, handed(step.passed), given)
	}
}

// handed counts the events of a batch.
type handed int

func (h *handed) Apply(_ context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	*h = handed(len(b.Events))
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
			if by != subscription.PerStream { // there the first that is parked holds back the rest of its stream
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
