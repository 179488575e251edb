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

// Deliver implements ports.Deliveries: a short transaction that begins with the
// cursor's row lock. A deadlock or serialization failure runs all of it again.
func (s *Store) Deliver(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(ctx context.Context, tx ports.DeliveryTx) error) (ran bool, err error) {
	var own error // of f; what is not the database's passes as it is
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
	err = s.deliverInTurn(ctx, cursorKey{uid, p}, func(had func()) error {
		ran, err = s.deliverLocked(ctx, cursorKey{uid, p}, had, f)
		return err
	})
	return ran, err
}

// deliverLocked runs f under the cursor's lock, and had when it has it; without had it
// does not wait for the lock.
func (s *Store) deliverLocked(ctx context.Context, k cursorKey, had func(), f func(ctx context.Context, tx ports.DeliveryTx) error) (ran bool, err error) {
	uid, p, wait := k.subscription, k.partition, had != nil
	err = pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		ran = false
		row, err := s.lockCursor(ctx, tx, k, wait)
		if wait && err == nil {
			had()
		}
		if errors.Is(err, pgx.ErrNoRows) && !wait {
			there, err := s.queries.SubscriptionCursorExists(ctx, tx, &subscriptionsdb.SubscriptionCursorExistsParams{Subscription: pg.UUID(uid), PartitionID: int32(p)})
			if err != nil || there {
				return err
			}
			return subscriptionNotFound()
		}
		if errors.Is(err, pgx.ErrNoRows) {
			return subscriptionNotFound()
		}
		if err != nil {
			return err
		}
		d := &deliveryTx{store: s, tx: tx, uid: uid, partition: p, row: row}
		if err := json.Unmarshal(row.Counts, &d.counts); err != nil {
			return err
		}
		// After the lock, which may have taken its time.
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
	if wait && errors.Is(err, pgx.ErrNoRows) { // held, or not there
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
	parked    int64 // messages that this transaction parks, less those that it takes back
	listed    bool  // parked messages were listed, and may be taken back
}

func (d *deliveryTx) Now() time.Time              { return d.now }
func (d *deliveryTx) Status() subscription.Status { return subscription.Status(d.row.Status) }
func (d *deliveryTx) Revision() int64             { return d.row.Revision }

func (d *deliveryTx) Cursor() ports.DeliveryCursor {
	return ports.DeliveryCursor{
		Partition: d.partition, ReadThrough: event.Sequence(d.row.ReadThrough), Checkpoint: event.Sequence(d.row.Checkpoint),
		Pending: int(d.row.Pending), Term: d.row.Term, Counts: d.counts, Parked: int(d.row.Parked + d.parked),
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
	out := make([]subscription.Message, len(found))
	for i := range found {
		out[i] = found[i].Message
	}
	d.listed = d.listed || len(out) > 0
	return out, err
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
	if err := d.takeBack(ctx, changed, done); err != nil {
		return err
	}
	queries := d.store.queries
	var open, parked []subscription.Message
	gone := make([]int64, 0, len(done))
	for _, n := range done {
		gone = append(gone, int64(n))
	}
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
		ReadThrough: int64(c.ReadThrough), Checkpoint: int64(c.Checkpoint), Pending: int32(c.Pending), Term: c.Term, Counts: counts, UpdatedAt: d.now,
		Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition),
	})
}

// takeBack removes from what is parked whatever changes or is done with.
func (d *deliveryTx) takeBack(ctx context.Context, changed []subscription.Message, done []event.Sequence) error {
	if !d.listed || len(changed)+len(done) == 0 {
		return nil
	}
	sequences := make([]int64, 0, len(changed)+len(done))
	for i := range changed {
		sequences = append(sequences, int64(changed[i].Sequence))
	}
	for _, n := range done {
		sequences = append(sequences, int64(n))
	}
	rows, err := d.store.queries.DeleteParked(ctx, d.tx, &subscriptionsdb.DeleteParkedParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), Sequences: sequences})
	d.parked -= rows
	return err
}

// epoch stands for no time in arrays, which hold no NULL.
var epoch = time.Unix(0, 0).UTC()

func (d *deliveryTx) columns(messages []subscription.Message) *subscriptionsdb.SaveMessagesParams {
	p := &subscriptionsdb.SaveMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition)}
	at := func(t time.Time) time.Time {
		if t.IsZero() {
			return epoch
		}
		return t
	}
	for i := range messages {
		m := &messages[i]
		p.Sequences = append(p.Sequences, int64(m.Sequence))
		p.EventIds = append(p.EventIds, pg.UUID(m.EventID))
		p.OrderKeys = append(p.OrderKeys, m.Key[:])
		p.States = append(p.States, string(m.State))
		p.Consumers = append(p.Consumers, m.Consumer)
		p.Attempts = append(p.Attempts, int32(m.Attempts))
		p.Due = append(p.Due, at(m.Due))
		p.Handed = append(p.Handed, at(m.DeliveredAt))
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
	row, err := d.store.queries.FailSubscription(ctx, d.tx, &subscriptionsdb.FailSubscriptionParams{
		Failures: int32(failures), FailureCode: pg.OptionalText(code), FailedAt: pg.OptionalTime(d.now), Threshold: int32(threshold), Uid: pg.UUID(d.uid),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, subscriptionNotFound()
	}
	return err == nil && row.Status == string(subscription.Parked) && row.Failures-int32(failures) < int32(threshold), err
}

func (d *deliveryTx) Succeed(ctx context.Context) error {
	return d.store.queries.ClearSubscriptionFailures(ctx, d.tx, pg.UUID(d.uid))
}

func (d *deliveryTx) Record(ctx context.Context, decisions []ports.ParkedDecision) error {
	if len(decisions) == 0 {
		return nil
	}
	first := &decisions[0]
	p := &subscriptionsdb.InsertDecisionsParams{
		PartitionID: int32(d.partition), TenantID: d.row.TenantID, Subscription: d.row.ID, Action: first.Action, Actor: first.Actor, Reason: first.Reason, At: d.now,
	}
	for i := range decisions {
		p.Ids = append(p.Ids, pg.UUID(decisions[i].ID))
		p.Sequences = append(p.Sequences, int64(decisions[i].Sequence))
		p.EventIds = append(p.EventIds, pg.UUID(decisions[i].EventID))
		p.Codes = append(p.Codes, decisions[i].Code)
	}
	return d.store.queries.InsertDecisions(ctx, d.tx, p)
}

// What a delivery reads of the open messages where it does not need them all.

// PartitionsWithOpen implements ports.Deliveries.
func (s *Store) PartitionsWithOpen(ctx context.Context, uid event.ID, in []event.PartitionID, events []event.ID) ([]event.PartitionID, error) {
	partitions := partitionNumbers(in)
	if len(in) == 0 {
		cursors, err := s.queries.ListSubscriptionCursors(ctx, s.db.Reads, pg.UUID(uid))
		if err != nil {
			return nil, pg.Translate(ctx, err)
		}
		for i := range cursors {
			partitions = append(partitions, cursors[i].PartitionID)
		}
	}
	found, err := s.queries.ListPartitionsOfMessages(ctx, s.db.Reads, &subscriptionsdb.ListPartitionsOfMessagesParams{Subscription: pg.UUID(uid), Partitions: partitions, EventIds: uuids(events)})
	out := make([]event.PartitionID, len(found))
	for i, p := range found {
		out[i] = event.PartitionID(p)
	}
	return out, pg.Translate(ctx, err)
}

func (d *deliveryTx) OpenByEvent(ctx context.Context, events []event.ID) ([]subscription.Message, error) {
	rows, err := d.store.queries.ListOpenMessagesOf(ctx, d.tx, &subscriptionsdb.ListOpenMessagesOfParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition), EventIds: uuids(events)})
	return messagesOf(rows), err
}

func (d *deliveryTx) Delivered(ctx context.Context) ([]subscription.Message, error) {
	rows, err := d.store.queries.ListMovingMessages(ctx, d.tx, &subscriptionsdb.ListMovingMessagesParams{Subscription: pg.UUID(d.uid), PartitionID: int32(d.partition)})
	return messagesOf(rows), err
}

func (d *deliveryTx) Waiting(ctx context.Context, after event.Sequence, but []subscription.HeldKey, limit int) ([]subscription.Message, error) {
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
	subscriptionsdb.ListOpenMessagesRow | subscriptionsdb.ListOpenMessagesOfRow | subscriptionsdb.ListMovingMessagesRow | subscriptionsdb.ListWaitingMessagesRow
}

func messagesOf[R messageRow](rows []R) []subscription.Message {
	out := make([]subscription.Message, len(rows))
	for i := range rows {
		r := subscriptionsdb.ListOpenMessagesRow(rows[i])
		out[i] = subscription.Message{
			Sequence: event.Sequence(r.Sequence), EventID: r.EventID.Bytes, State: subscription.State(r.State), Consumer: r.Consumer, Attempts: int(r.Attempts),
			Due: pg.TimeOrZero(r.DueAt), DeliveredAt: pg.TimeOrZero(r.HandedAt), Code: r.Code, Detail: r.Detail, ChangedAt: r.ChangedAt.UTC(),
		}
		copy(out[i].Key[:], r.OrderKey)
	}
	return out
}
