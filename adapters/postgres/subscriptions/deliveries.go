package subscriptions

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/subscriptionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

const deliverTries = 3

// Deliver implements ports.Deliveries with a short transaction that begins by locking the
// cursor's row. After a deadlock or serialization failure it runs f again.
func (s *Store) Deliver(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(ctx context.Context, tx ports.DeliveryTx) error) (ran bool, err error) {
	var own error // of f; errors that are not the database's are returned unchanged
	for range deliverTries {
		own = nil
		ran, err = s.deliverOnce(ctx, uid, p, wait, func(ctx context.Context, tx ports.DeliveryTx) error {
			own = f(ctx, tx)
			return own
		})
		if !pg.IsSerializationFailure(err) {
			break
		}
	}
	if _, ofDatabase := errors.AsType[*pgconn.PgError](own); own != nil && !ofDatabase && !pg.IsUnavailable(own) {
		return ran, own
	}
	return ran, pg.Translate(ctx, err)
}

func (s *Store) deliverOnce(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(ctx context.Context, tx ports.DeliveryTx) error) (ran bool, err error) {
	if !wait {
		return s.deliverLocked(ctx, cursorKey{uid, p}, nil, f)
	}
	err = s.retryWhileLocked(ctx, cursorKey{uid, p}, func(locked func()) error {
		ran, err = s.deliverLocked(ctx, cursorKey{uid, p}, locked, f)
		return err
	})
	return ran, err
}

// deliverLocked runs f under the cursor's lock. It calls locked as soon as it has the lock;
// if locked is nil it does not wait for the lock.
func (s *Store) deliverLocked(ctx context.Context, k cursorKey, locked func(), f func(ctx context.Context, tx ports.DeliveryTx) error) (ran bool, err error) {
	uid, p, wait := k.subscription, k.partition, locked != nil
	err = pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		ran = false
		row, err := s.lockCursor(ctx, tx, k, wait)
		if wait && err == nil {
			locked()
		}
		if errors.Is(err, pgx.ErrNoRows) {
			if !wait { // locked by another session, or deleted
				exists, err := s.queries.SubscriptionCursorExists(ctx, tx, &subscriptionsdb.SubscriptionCursorExistsParams{Subscription: pg.UUID(uid), PartitionID: int32(p)})
				if err != nil || exists {
					return err
				}
			}
			return subscriptionNotFound()
		}
		if err != nil {
			return err
		}
		d := &deliveryTx{store: s, tx: tx, uid: uid, partition: p, row: row}
		if err := json.Unmarshal(row.Counts, &d.counts); err != nil {
			return err
		}
		// Read after the lock, which may have taken long to acquire.
		if d.now, err = s.storeTime(ctx, tx); err != nil {
			return err
		}
		ran = true
		if err := f(ctx, d); err != nil || d.parked == 0 {
			return err
		}
		return s.queries.CountParked(ctx, tx, &subscriptionsdb.CountParkedParams{Delta: d.parked, Subscription: pg.UUID(uid), PartitionID: int32(p)})
	})
	return ran && err == nil, err
}

func (s *Store) lockCursor(ctx context.Context, tx pgx.Tx, k cursorKey, wait bool) (subscriptionsdb.LockSubscriptionCursorRow, error) {
	row, err := s.queries.TryLockSubscriptionCursor(ctx, tx, &subscriptionsdb.TryLockSubscriptionCursorParams{Subscription: pg.UUID(k.subscription), PartitionID: int32(k.partition)})
	if wait && errors.Is(err, pgx.ErrNoRows) { // locked by another session, or deleted
		return s.waitForCursor(ctx, tx, k)
	}
	return subscriptionsdb.LockSubscriptionCursorRow(row), err
}

// deliveryTx implements ports.DeliveryTx.
type deliveryTx struct {
	store     *Store
	tx        pgx.Tx
	uid       event.ID
	partition event.PartitionID
	row       subscriptionsdb.LockSubscriptionCursorRow
	counts    subscription.Counts
	now       time.Time
	parked    int64 // messages that this transaction parks, less those that it unparks
	listed    bool  // parked messages were listed, so they may be unparked
}

func (d *deliveryTx) Now() time.Time              { return d.now }
func (d *deliveryTx) Status() subscription.Status { return subscription.Status(d.row.Status) }
func (d *deliveryTx) Revision() int64             { return d.row.Revision }

func (d *deliveryTx) Cursor() ports.DeliveryCursor {
	return ports.DeliveryCursor{
		Partition: d.partition, ReadThrough: event.Sequence(d.row.ReadThrough), Checkpoint: event.Sequence(d.row.Checkpoint),
		Pending: int(d.row.Pending), Counts: d.counts, Parked: int(d.row.Parked + d.parked),
	}
}

func (d *deliveryTx) Open(ctx context.Context) ([]subscription.Message, error) {
	rows, err := d.store.queries.ListOpenMessages(ctx, d.tx, &subscriptionsdb.ListOpenMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition)})
	return messagesOf(rows), err
}

func (d *deliveryTx) ParkedKeys(ctx context.Context, keys []subscription.Key) (map[subscription.Key]event.Sequence, error) {
	parked := d.row.Parked + d.parked
	if parked == 0 || len(keys) == 0 {
		return nil, nil
	}
	first := make(map[subscription.Key]event.Sequence, min(len(keys), int(parked)))
	if parked < int64(len(keys)) {
		all, err := d.store.queries.ListAllParkedKeys(ctx, d.tx, &subscriptionsdb.ListAllParkedKeysParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition)})
		asked := make(map[subscription.Key]bool, len(keys))
		for _, k := range keys {
			asked[k] = true
		}
		for i := range all {
			if k := subscription.Key(all[i].OrderKey); asked[k] {
				first[k] = event.Sequence(all[i].First)
			}
		}
		return first, err
	}
	found, err := d.store.queries.ListParkedKeys(ctx, d.tx, &subscriptionsdb.ListParkedKeysParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), OrderKeys: keyBytes(keys)})
	if err != nil {
		return nil, err
	}
	for i := range found {
		first[subscription.Key(found[i].OrderKey)] = event.Sequence(found[i].First)
	}
	return first, nil
}

func (d *deliveryTx) Parked(ctx context.Context, q ports.ParkedQuery) ([]subscription.Message, error) {
	if d.row.Parked+d.parked == 0 {
		return []subscription.Message{}, nil
	}
	found, err := d.store.parkedMessages(ctx, d.tx, d.uid, []int32{int32(d.partition)}, d.partition, q)
	d.listed = d.listed || len(found) > 0
	return pg.Map(found, func(m *ports.ParkedMessage) subscription.Message { return m.Message }), err
}

func (d *deliveryTx) EventsAfter(ctx context.Context, after event.Sequence, limit, bytes int, types []string) ([]event.Recorded, error) {
	return d.store.events.EventsWithin(ctx, d.tx, d.partition, after, limit, bytes, types)
}

func (d *deliveryTx) Sizes(ctx context.Context, sequences []event.Sequence) (map[event.Sequence]int, error) {
	return d.store.events.PayloadSizes(ctx, d.tx, d.partition, sequences)
}

func (d *deliveryTx) Save(ctx context.Context, c ports.DeliveryCursor, changed []subscription.Message, done []event.Sequence) error {
	counts, err := json.Marshal(c.Counts)
	if err != nil {
		return err
	}
	if err := d.unpark(ctx, changed, done); err != nil {
		return err
	}
	queries := d.store.queries
	var open, parked []subscription.Message
	gone := pg.Sequences(done)
	for i := range changed {
		if changed[i].State != subscription.ParkedState {
			open = append(open, changed[i])
			continue
		}
		parked = append(parked, changed[i])
		gone = append(gone, int64(changed[i].Sequence))
	}
	if len(open) > 0 {
		if err := queries.SaveMessages(ctx, d.tx, d.columns(open)); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		if err := queries.DeleteMessages(ctx, d.tx, &subscriptionsdb.DeleteMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), Sequences: gone}); err != nil {
			return err
		}
	}
	if len(parked) > 0 {
		all := d.columns(parked)
		added, err := queries.SaveParked(ctx, d.tx, &subscriptionsdb.SaveParkedParams{
			Subscription: all.Subscription, PartitionID: all.PartitionID, Sequences: all.Sequences, EventIds: all.EventIds, OrderKeys: all.OrderKeys,
			Consumers: all.Consumers, Attempts: all.Attempts, Handed: all.Handed, Codes: all.Codes, Details: all.Details, Changed: all.Changed,
		})
		if err != nil {
			return err
		}
		d.parked += added
	}
	return queries.SaveCursor(ctx, d.tx, &subscriptionsdb.SaveCursorParams{
		ReadThrough: int64(c.ReadThrough), Checkpoint: int64(c.Checkpoint), Pending: int32(c.Pending), Counts: counts, UpdatedAt: d.now,
		Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition),
	})
}

// unpark removes the parked messages that were changed or are done.
func (d *deliveryTx) unpark(ctx context.Context, changed []subscription.Message, done []event.Sequence) error {
	if !d.listed || len(changed)+len(done) == 0 {
		return nil
	}
	sequences := pg.Sequences(done)
	for i := range changed {
		sequences = append(sequences, int64(changed[i].Sequence))
	}
	rows, err := d.store.queries.DeleteParked(ctx, d.tx, &subscriptionsdb.DeleteParkedParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), Sequences: sequences})
	d.parked -= rows
	return err
}

// timeOrEpoch writes no time as 1970 into arrays, whose Go types hold no NULL.
func timeOrEpoch(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return t
}

func (d *deliveryTx) columns(messages []subscription.Message) *subscriptionsdb.SaveMessagesParams {
	p := &subscriptionsdb.SaveMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition)}
	for i := range messages {
		m := &messages[i]
		p.Sequences = append(p.Sequences, int64(m.Sequence))
		p.EventIds = append(p.EventIds, pg.UUID(m.EventID))
		p.OrderKeys = append(p.OrderKeys, m.Key[:])
		p.States = append(p.States, string(m.State))
		p.Consumers = append(p.Consumers, m.Consumer)
		p.Attempts = append(p.Attempts, int32(m.Attempts))
		p.Due = append(p.Due, timeOrEpoch(m.Due))
		p.Handed = append(p.Handed, timeOrEpoch(m.DeliveredAt))
		p.Codes = append(p.Codes, m.Code)
		p.Details = append(p.Details, m.Detail)
		p.Changed = append(p.Changed, m.ChangedAt)
	}
	return p
}

func (d *deliveryTx) Clear(ctx context.Context, parkedAfter event.Sequence) error {
	err := d.store.queries.ClearMessages(ctx, d.tx, &subscriptionsdb.ClearMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition)})
	if err != nil || d.row.Parked+d.parked == 0 {
		return err
	}
	rows, err := d.store.queries.ClearParked(ctx, d.tx, &subscriptionsdb.ClearParkedParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), ParkedAfter: int64(parkedAfter)})
	d.parked -= rows
	return err
}

func (d *deliveryTx) Fail(ctx context.Context, failures int, code string, threshold int) (opened bool, err error) {
	opened, err = d.store.queries.FailSubscription(ctx, d.tx, &subscriptionsdb.FailSubscriptionParams{
		Failures: int32(failures), FailureCode: pg.OptionalText(code), FailedAt: pg.OptionalTime(d.now), Threshold: int32(threshold), Uid: pg.UUID(d.uid),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, subscriptionNotFound()
	}
	return opened, err
}

func (d *deliveryTx) Succeed(ctx context.Context) error {
	return d.store.queries.ClearSubscriptionFailures(ctx, d.tx, pg.UUID(d.uid))
}

// PartitionsWithOpen implements ports.Deliveries.
func (s *Store) PartitionsWithOpen(ctx context.Context, uid event.ID, in []event.PartitionID, events []event.ID) ([]event.PartitionID, error) {
	partitions := pg.Partitions(in)
	if len(in) == 0 {
		cursors, err := s.queries.ListSubscriptionCursors(ctx, s.db.Reads, pg.UUID(uid))
		if err != nil {
			return nil, pg.Translate(ctx, err)
		}
		partitions = pg.Map(cursors, func(c *subscriptionsdb.ListSubscriptionCursorsRow) int32 { return c.PartitionID })
	}
	found, err := s.queries.ListPartitionsOfMessages(ctx, s.db.Reads, &subscriptionsdb.ListPartitionsOfMessagesParams{Subscription: pg.UUID(uid), Partitions: partitions, EventIds: pg.UUIDs(events)})
	return pg.MapRows(ctx, found, err, func(p *int32) event.PartitionID { return event.PartitionID(*p) })
}

func (d *deliveryTx) OpenByEvent(ctx context.Context, events []event.ID) ([]subscription.Message, error) {
	rows, err := d.store.queries.ListOpenMessagesOf(ctx, d.tx, &subscriptionsdb.ListOpenMessagesOfParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), EventIds: pg.UUIDs(events)})
	return messagesOf(rows), err
}

func (d *deliveryTx) Delivered(ctx context.Context) ([]subscription.Message, error) {
	rows, err := d.store.queries.ListMovingMessages(ctx, d.tx, &subscriptionsdb.ListMovingMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition)})
	return messagesOf(rows), err
}

func (d *deliveryTx) Waiting(ctx context.Context, after event.Sequence, but []subscription.BlockedKey, limit int) ([]subscription.Message, error) {
	keys, froms, last := make([]subscription.Key, len(but)), make([]int64, len(but)), int64(0)
	for i, k := range but {
		keys[i], froms[i] = k.Key, int64(k.After)
		last = max(last, froms[i])
	}
	rows, err := d.store.queries.ListWaitingMessages(ctx, d.tx, &subscriptionsdb.ListWaitingMessagesParams{
		Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), After: int64(after), But: keyBytes(keys), Froms: froms, LastFrom: last, PageSize: pg.PageSize(limit),
	})
	return messagesOf(rows), err
}

func (d *deliveryTx) CountWaiting(ctx context.Context) (int, error) {
	n, err := d.store.queries.CountWaitingMessages(ctx, d.tx, &subscriptionsdb.CountWaitingMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition)})
	return int(n), err
}

func (d *deliveryTx) LowestOpen(ctx context.Context, limit int) ([]event.Sequence, error) {
	found, err := d.store.queries.ListLowestMessages(ctx, d.tx, &subscriptionsdb.ListLowestMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), PageSize: pg.PageSize(limit)})
	return pg.Map(found, func(n *int64) event.Sequence { return event.Sequence(*n) }), err
}

// keyBytes is never nil, because a NULL array would match nothing.
func keyBytes(keys []subscription.Key) [][]byte {
	return pg.Map(keys, func(k *subscription.Key) []byte { return k[:] })
}

// messageRow is a row of any query that lists open messages.
type messageRow interface {
	subscriptionsdb.ListOpenMessagesRow | subscriptionsdb.ListOpenMessagesOfRow | subscriptionsdb.ListMovingMessagesRow | subscriptionsdb.ListWaitingMessagesRow
}

func messagesOf[R messageRow](rows []R) []subscription.Message {
	return pg.Map(rows, func(row *R) subscription.Message {
		r := subscriptionsdb.ListOpenMessagesRow(*row)
		return subscription.Message{
			Sequence: event.Sequence(r.Sequence), EventID: r.EventID.Bytes, Key: subscription.Key(r.OrderKey), State: subscription.State(r.State), Consumer: r.Consumer,
			Attempts: int(r.Attempts), Due: pg.TimeOrZero(r.DueAt), DeliveredAt: pg.TimeOrZero(r.HandedAt), Code: r.Code, Detail: r.Detail, ChangedAt: r.ChangedAt.UTC(),
		}
	})
}
