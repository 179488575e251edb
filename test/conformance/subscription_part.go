package conformance

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// partialReads asks for everything that a delivery reads of the open messages without
// reading them all.
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
	elsewhere, others := d.message(1, subscription.Leased), d.message(1, subscription.Leased)
	d.save(t, s.UID, 1, elsewhere)
	d.save(t, other.UID, 0, others)
	d.in(t, s.UID, 0, func(ctx context.Context, tx ports.DeliveryTx) error {
		named, err := tx.OpenByEvent(ctx, []event.ID{waiting[2].EventID, leased.EventID, parked.EventID, elsewhere.EventID, others.EventID, d.ids.next()})
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
			but   []subscription.HeldKey
			limit int
			want  []subscription.Message
		}{
			{0, nil, 10, waiting}, {0, nil, 2, waiting[:2]}, {4, nil, 10, waiting[1:]}, {8, nil, 10, waiting[:0]},
			{0, []subscription.HeldKey{{Key: waiting[1].Key, After: 2}, {Key: leased.Key, After: 2}}, 10, []subscription.Message{waiting[0], waiting[2]}},
			{0, []subscription.HeldKey{{Key: waiting[0].Key, After: 1}}, 1, waiting[1:2]},
			{0, []subscription.HeldKey{{Key: leased.Key, After: 9}, {Key: waiting[1].Key, After: 7}}, 10, waiting[:3]},
			{0, []subscription.HeldKey{{Key: waiting[1].Key, After: 7}, {Key: waiting[0].Key, After: 3}}, 10, waiting[1:3]},
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
		{nil, []event.ID{others.EventID}, []event.PartitionID{}},
		{nil, nil, []event.PartitionID{}},
	} {
		found, err := d.Store.PartitionsWithOpen(ctx, s.UID, c.in, c.events)
		require.NoError(t, err)
		require.Equal(t, c.want, found)
	}
}
