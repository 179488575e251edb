package postgres

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
)

// What a delivery reads of the open messages where it does not need them all.

// Holding implements ports.Deliveries.
func (s *SubscriptionStore) Holding(ctx context.Context, uid event.ID, in []event.PartitionID, events []event.ID) ([]event.PartitionID, error) {
	partitions := partitionNumbers(in)
	if len(in) == 0 {
		cursors, err := s.queries.ListSubscriptionCursors(ctx, s.db.reads, uuid(uid))
		if err != nil {
			return nil, translate(ctx, err)
		}
		for i := range cursors {
			partitions = append(partitions, cursors[i].PartitionID)
		}
	}
	found, err := s.queries.ListPartitionsOfMessages(ctx, s.db.reads, &backbonedb.ListPartitionsOfMessagesParams{Subscription: uuid(uid), Partitions: partitions, EventIds: uuids(events)})
	out := make([]event.PartitionID, len(found))
	for i, p := range found {
		out[i] = event.PartitionID(p)
	}
	return out, translate(ctx, err)
}

func (d *deliveryTx) OpenOf(ctx context.Context, events []event.ID) ([]subscription.Message, error) {
	rows, err := d.store.queries.ListOpenMessagesOf(ctx, d.tx, &backbonedb.ListOpenMessagesOfParams{Subscription: uuid(d.uid), PartitionID: int32(d.partition), EventIds: uuids(events)})
	return messagesOf(rows), err
}

func (d *deliveryTx) Moving(ctx context.Context) ([]subscription.Message, error) {
	rows, err := d.store.queries.ListMovingMessages(ctx, d.tx, &backbonedb.ListMovingMessagesParams{Subscription: uuid(d.uid), PartitionID: int32(d.partition)})
	return messagesOf(rows), err
}

func (d *deliveryTx) Waiting(ctx context.Context, after event.Sequence, but []subscription.HeldKey, limit int) ([]subscription.Message, error) {
	keys, froms, last := make([]subscription.Key, len(but)), make([]int64, len(but)), int64(0)
	for i, k := range but {
		keys[i], froms[i] = k.Key, int64(k.After)
		last = max(last, froms[i])
	}
	rows, err := d.store.queries.ListWaitingMessages(ctx, d.tx, &backbonedb.ListWaitingMessagesParams{
		Subscription: uuid(d.uid), PartitionID: int32(d.partition), After: int64(after), But: keyBytes(keys), Froms: froms, LastFrom: last, PageSize: pageSize(limit),
	})
	return messagesOf(rows), err
}

func (d *deliveryTx) CountWaiting(ctx context.Context) (int, error) {
	n, err := d.store.queries.CountWaitingMessages(ctx, d.tx, &backbonedb.CountWaitingMessagesParams{Subscription: uuid(d.uid), PartitionID: int32(d.partition)})
	return int(n), err
}

func (d *deliveryTx) Lowest(ctx context.Context, limit int) ([]event.Sequence, error) {
	found, err := d.store.queries.ListLowestMessages(ctx, d.tx, &backbonedb.ListLowestMessagesParams{Subscription: uuid(d.uid), PartitionID: int32(d.partition), PageSize: pageSize(limit)})
	out := make([]event.Sequence, len(found))
	for i, n := range found {
		out[i] = event.Sequence(n)
	}
	return out, err
}

// keyBytes is never nil: no array at all would match nothing.
func keyBytes(keys []subscription.Key) [][]byte {
	out := make([][]byte, len(keys))
	for i := range keys {
		out[i] = keys[i][:]
	}
	return out
}

// messageRow is what every list of open messages gives.
type messageRow interface {
	backbonedb.ListOpenMessagesRow | backbonedb.ListOpenMessagesOfRow | backbonedb.ListMovingMessagesRow | backbonedb.ListWaitingMessagesRow
}

func messagesOf[R messageRow](rows []R) []subscription.Message {
	out := make([]subscription.Message, len(rows))
	for i := range rows {
		r := backbonedb.ListOpenMessagesRow(rows[i])
		out[i] = subscription.Message{
			Sequence: event.Sequence(r.Sequence), EventID: r.EventID.Bytes, State: subscription.State(r.State), Consumer: r.Consumer, Attempts: int(r.Attempts),
			Due: utcOrZero(r.DueAt), HandedAt: utcOrZero(r.HandedAt), Code: r.Code, Detail: r.Detail, ChangedAt: r.ChangedAt.UTC(),
		}
		copy(out[i].Key[:], r.OrderKey)
	}
	return out
}
