package conformance

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// FeedStore is a store of subscriptions whose log can be followed.
type FeedStore interface {
	SubscriptionStore
	query.Log
	ports.CausalityReader
}

// listed finds legal entities in the list of a store.
type listed struct{ FeedStore }

func (l listed) LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error) {
	all, err := l.LegalEntities(ctx, tenantID)
	for _, le := range all {
		if le.Code == code {
			return le, err
		}
	}
	return ports.LegalEntity{}, err
}

// RunHandover lets readers follow a live feed while producers write, stop at any event, and
// continue with a subscription, made or reset, from the cursor of the feed: each reader gets
// every event once, in the order of its legal entity. A legal entity that is created while
// they read is delivered from its beginning.
func RunHandover(t *testing.T, newStore func(t *testing.T, clock ports.Clock) FeedStore, events int) {
	t.Helper()
	clock := NewClock()
	store := newStore(t, clock)
	cursors := query.NewCursorSealer([]byte("conformance"))
	c := NewDeliveryFixture(NewSubscriptionFixture(t, store, clock, "handover"), func(c *subscriptions.Config) { c.Cursors = cursors })
	feeds := query.NewFeeds(query.New(query.Config{Log: store, Directory: listed{store}, Cursors: cursors, Clock: clock}), store, nil)
	c.Subscribe(t, "reset", subscription.Settings{}, subscription.Filter{})

	var written atomic.Int64
	var producing sync.WaitGroup
	defer producing.Wait()
	for i := range 2 {
		producing.Go(func() {
			for range events / 2 {
				c.Write(t, i, 1, strconv.Itoa(i))
				written.Add(1)
			}
		})
	}
	const readers = 4
	var all sync.WaitGroup
	got := make([]map[event.PartitionID][]event.Sequence, readers)
	total := events
	for r := range readers {
		got[r] = map[event.PartitionID][]event.Sequence{}
		note := func(p event.PartitionID, n event.Sequence) { got[r][p] = append(got[r][p], n) }
		all.Go(func() {
			feed, err := feeds.All(query.AllQuery{TenantID: c.Tenant})
			if !okay(t, err) {
				return
			}
			_, err = feed.Start(t.Context())
			if !okay(t, err) {
				return
			}
			cursor := feed.Cursor()
			for read := 0; read < (r+1)*events/8; { // later readers stop later
				heads, err := store.PartitionHeads(t.Context())
				if !okay(t, err) {
					return
				}
				list, positions, _, err := feed.Read(t.Context(), heads, 1+r)
				if !okay(t, err) {
					return
				}
				for i := range list {
					note(list[i].Partition, list[i].Sequence)
					cursor = positions[i]
				}
				read += len(list)
			}
			id := fmt.Sprintf("reader-%d", r)
			start := subscription.Start{From: subscription.AtCursor, Cursor: cursor}
			if r == 0 {
				id = "reset"
				_, err = c.Service.Reset(t.Context(), subscriptions.Caller{Principal: c.Person}, id, start)
			} else {
				_, _, err = c.Service.Create(t.Context(), c.Person, subscription.Subscription{
					ID: id, SubscriberType: "service", SubscriberID: "suite", Settings: subscription.Settings{Start: start},
				})
			}
			if !okay(t, err) {
				return
			}
			for {
				done := written.Load() == int64(total) // before polling: the poll delivers all events up to here
				batch, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: id, Limit: 7})
				if !okay(t, err) || done && len(batch.Deliveries) == 0 {
					return
				}
				var ids []event.ID
				for _, d := range batch.Deliveries {
					note(d.Event.Partition, d.Event.Sequence)
					ids = append(ids, d.Event.ID)
				}
				if len(ids) > 0 {
					_, err = c.Service.Acknowledge(t.Context(), c.Person, subscriptions.Acknowledgement{ID: id, EventIDs: ids})
				}
				if !okay(t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	for r := range got {
		for _, le := range c.Entities {
			require.Equal(t, upTo(events/2), got[r][le.Partition], "reader %d in %s", r, le.Code)
		}
	}
	refusedCursors(t, c, feeds)
}

// okay reports an error without ending the goroutine, as only the test's own may.
func okay(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// refusedCursors tries cursors that are none, are of another tenant or of another
// question, and of a log that has lost its end.
func refusedCursors(t *testing.T, c *DeliveryFixture, feeds *query.Feeds) {
	t.Helper()
	ctx := context.Background()
	create := func(id, cursor string) error {
		_, _, err := c.Service.Create(ctx, c.Person, subscription.Subscription{
			ID: id, SubscriberType: "service", SubscriberID: "suite",
			Settings: subscription.Settings{Start: subscription.Start{From: subscription.AtCursor, Cursor: cursor}},
		})
		return err
	}
	feed, err := feeds.All(query.AllQuery{TenantID: c.Tenant, From: query.FromNow})
	require.NoError(t, err)
	_, err = feed.Start(ctx)
	require.NoError(t, err)
	at := feed.Cursor()
	require.NoError(t, create("now", at))
	require.NoError(t, create("now", at), "the same definition again")
	batch, err := c.Service.Poll(ctx, c.Person, subscriptions.Poll{ID: "now", Limit: 10})
	require.NoError(t, err)
	require.Empty(t, batch.Deliveries)
	made, err := c.Service.Get(ctx, subscriptions.Caller{Principal: c.Person}, "now")
	require.NoError(t, err)
	require.Equal(t, at, made.Settings.Start.Cursor)

	// A legal entity created after the cursor is read from its beginning.
	d := NewSubscriptionFixture(t, c.Store, c.Clock, "handover-2")
	le, err := c.Store.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: c.Tenant, Code: "CC", Name: "CC", TimeZone: "UTC", Status: "active", CreatedAt: c.Clock.Now()})
	require.NoError(t, err)
	c.Entities = append(c.Entities, le)
	c.Write(t, 2, 2, "late")
	batch, err = c.Service.Poll(ctx, c.Person, subscriptions.Poll{ID: "now", Limit: 10})
	require.NoError(t, err)
	require.Len(t, batch.Deliveries, 2)

	require.Equal(t, "subscription.settings_invalid", fault.CodeOf(create("none", "")))
	require.Equal(t, "cursor.malformed", fault.CodeOf(create("none", "?")))
	forged := "A" + at[1:]
	if forged == at {
		forged = "B" + at[1:]
	}
	require.Equal(t, "cursor.foreign", fault.CodeOf(create("none", forged)))
	other, err := feeds.All(query.AllQuery{TenantID: d.Tenant, From: query.FromNow})
	require.NoError(t, err)
	_, err = other.Start(ctx)
	require.NoError(t, err)
	d.Write(t, 0, 1, "one")
	err = create("none", other.Cursor())
	require.Equal(t, "cursor.foreign", fault.CodeOf(err), "of another tenant")
	f, _ := fault.As(err)
	require.Equal(t, "/settings/start_cursor", f.Field)
	_, err = c.Service.Reset(ctx, subscriptions.Caller{Principal: c.Person}, "now", subscription.Start{From: subscription.AtCursor, Cursor: other.Cursor()})
	require.Equal(t, "cursor.foreign", fault.CodeOf(err))
	require.Equal(t, "subscription.not_found", fault.CodeOf(func() error {
		_, err := c.Service.Get(ctx, subscriptions.Caller{Principal: c.Person}, "none")
		return err
	}()))
}
