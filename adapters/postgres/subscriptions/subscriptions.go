// Package subscriptions stores subscriptions and their deliveries in PostgreSQL, for
// application/subscriptions, application/webhooks and application/fanout.
//
// [Store] has the definitions, a cursor for each subscription and partition, and the
// messages that are in flight, waiting or parked. [Webhooks] has endpoints and the attempts
// to reach them, [Publishers] the position that a message broker has reached. Deliver
// serializes all changes of one subscription in one partition with the lock of its cursor
// row. The package decides neither what is delivered nor when.
package subscriptions

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/subscriptionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Store has subscriptions, their cursors and their messages.
type Store struct {
	db      *pg.Database
	queries *subscriptionsdb.Queries
	events  *eventlog.Reader
	cursors *cursorWaits
}

// New makes the store of subscriptions; events reads what is delivered.
func New(db *pg.Database, events *eventlog.Reader) *Store {
	return &Store{db: db, queries: subscriptionsdb.New(), events: events, cursors: newCursorWaits(db.Config.ReadPool)}
}

var (
	_ ports.Subscriptions           = (*Store)(nil)
	_ ports.Deliveries              = (*Store)(nil)
	_ ports.SubscriptionDeadLetters = (*Store)(nil)
)

func subscriptionNotFound() error {
	return fault.New(fault.NotFound, "subscription.not_found", "there is no such subscription; GET /api/subscriptions lists them")
}

func subscriptionOf(r *subscriptionsdb.BackboneSubscription) (subscription.Subscription, error) {
	var d subscription.Definition
	if err := json.Unmarshal(r.Definition, &d); err != nil {
		return subscription.Subscription{}, fault.New(fault.Internal, pg.CodeInternal, "the definition of a subscription cannot be read; delete it and make it again")
	}
	return subscription.Subscription{
		UID: r.Uid.Bytes, TenantID: r.TenantID, ID: r.ID, SubscriberType: r.SubscriberType, SubscriberID: r.SubscriberID,
		Filter: d.Filter, Settings: d.Settings, ResetStart: d.Moved, Status: subscription.Status(r.Status), Owner: r.Owner, Revision: r.Revision,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), Failures: int(r.Failures),
		LastFailure: subscription.Failure{Code: r.FailureCode.String, At: pg.TimeOrZero(r.FailedAt)},
	}, nil
}

// CreateSubscription implements ports.Subscriptions.
func (s *Store) CreateSubscription(ctx context.Context, sub subscription.Subscription, cursors []ports.DeliveryCursor, maxPerTenant int) (stored subscription.Subscription, created bool, err error) {
	definition, err := json.Marshal(sub.Definition())
	if err != nil {
		return sub, false, err
	}
	err = pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		if maxPerTenant > 0 {
			if err := s.queries.LockSubscriptionTenant(ctx, tx, sub.TenantID); err != nil {
				return err
			}
		}
		rows, err := s.queries.InsertSubscription(ctx, tx, &subscriptionsdb.InsertSubscriptionParams{
			Uid: pg.UUID(sub.UID), TenantID: sub.TenantID, ID: sub.ID, SubscriberType: sub.SubscriberType, SubscriberID: sub.SubscriberID,
			Definition: definition, Status: string(sub.Status), Owner: sub.Owner, Revision: sub.Revision, CreatedAt: sub.CreatedAt, UpdatedAt: sub.UpdatedAt,
		})
		if err != nil {
			return err
		}
		if created = rows > 0; !created {
			return nil
		}
		if maxPerTenant > 0 {
			// A statement of its own, which sees the commits before the lock was acquired.
			count, err := s.queries.CountSubscriptions(ctx, tx, sub.TenantID)
			if err != nil {
				return err
			}
			if count > int64(maxPerTenant) {
				return subscription.LimitReached(maxPerTenant)
			}
		}
		return s.insertCursors(ctx, tx, sub.UID, cursors)
	})
	if _, refused := fault.As(err); refused {
		return sub, false, err
	}
	if err != nil {
		return sub, false, pg.Translate(ctx, err)
	}
	stored, err = s.Subscription(ctx, sub.TenantID, sub.ID)
	return stored, created, err
}

func (s *Store) insertCursors(ctx context.Context, db subscriptionsdb.DBTX, uid event.ID, cursors []ports.DeliveryCursor) error {
	if len(cursors) == 0 {
		return nil
	}
	p := subscriptionsdb.InsertSubscriptionCursorsParams{Subscription: pg.UUID(uid), UpdatedAt: s.db.Now()}
	for _, c := range cursors {
		p.Partitions = append(p.Partitions, int32(c.Partition))
		p.ReadThrough = append(p.ReadThrough, int64(c.ReadThrough))
	}
	return s.queries.InsertSubscriptionCursors(ctx, db, &p)
}

// Subscription implements ports.Subscriptions.
func (s *Store) Subscription(ctx context.Context, tenantID, id string) (subscription.Subscription, error) {
	row, err := s.queries.GetSubscription(ctx, s.db.Reads, &subscriptionsdb.GetSubscriptionParams{TenantID: tenantID, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return subscription.Subscription{}, subscriptionNotFound()
	}
	if err != nil {
		return subscription.Subscription{}, pg.Translate(ctx, err)
	}
	return subscriptionOf(&row)
}

// Subscriptions implements ports.Subscriptions.
func (s *Store) Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error) {
	rows, err := s.queries.ListSubscriptions(ctx, s.db.Reads, tenantID)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make([]subscription.Subscription, len(rows))
	for i := range rows {
		if out[i], err = subscriptionOf(&rows[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ChangeSubscription implements ports.Subscriptions.
func (s *Store) ChangeSubscription(ctx context.Context, sub subscription.Subscription) error {
	definition, err := json.Marshal(sub.Definition())
	if err != nil {
		return err
	}
	rows, err := s.queries.ChangeSubscription(ctx, s.db.Reads, &subscriptionsdb.ChangeSubscriptionParams{
		Definition: definition, Status: string(sub.Status), Revision: sub.Revision, ExpectedRevision: sub.Revision - 1, UpdatedAt: s.db.Now(),
		Failures: int32(sub.Failures), FailureCode: pg.OptionalText(sub.LastFailure.Code), FailedAt: pg.OptionalTime(sub.LastFailure.At), Uid: pg.UUID(sub.UID),
	})
	if err != nil {
		return pg.Translate(ctx, err)
	}
	if rows == 0 {
		return subscription.Changed()
	}
	return nil
}

// DeleteSubscription implements ports.Subscriptions. It deletes the definition first, so that no
// further poll delivers. A poll in flight may add a row after its partition was
// cleared; that row's UID is never used again, so no subscription sees it.
func (s *Store) DeleteSubscription(ctx context.Context, uid event.ID) error {
	if err := s.queries.DeleteSubscription(ctx, s.db.Reads, pg.UUID(uid)); err != nil {
		return pg.Translate(ctx, err)
	}
	cursors, err := s.queries.ListSubscriptionCursors(ctx, s.db.Reads, pg.UUID(uid))
	if err != nil {
		return pg.Translate(ctx, err)
	}
	for i := range cursors {
		one := []int32{cursors[i].PartitionID}
		err := pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
			// Waits for the row lock of a poll in flight.
			if err := s.queries.DeleteSubscriptionCursors(ctx, tx, &subscriptionsdb.DeleteSubscriptionCursorsParams{Subscription: pg.UUID(uid), Partitions: one}); err != nil {
				return err
			}
			if err := s.queries.DeleteSubscriptionMessages(ctx, tx, &subscriptionsdb.DeleteSubscriptionMessagesParams{Subscription: pg.UUID(uid), Partitions: one}); err != nil {
				return err
			}
			_, err := s.queries.DeleteSubscriptionParked(ctx, tx, &subscriptionsdb.DeleteSubscriptionParkedParams{Subscription: pg.UUID(uid), Partitions: one})
			return err
		})
		if err != nil {
			return pg.Translate(ctx, err)
		}
	}
	return pg.Translate(ctx, s.queries.DeleteSubscriptionConsumers(ctx, s.db.Reads, pg.UUID(uid)))
}

// RemoveOrphanedMessages implements ports.Deliveries. No session parks messages of a deleted
// subscription, so no lock is needed.
func (s *Store) RemoveOrphanedMessages(ctx context.Context) (removed int, err error) {
	left, err := s.queries.ListParkedRemains(ctx, s.db.Reads)
	for _, r := range left {
		var rows int64
		if rows, err = s.queries.DeleteSubscriptionParked(ctx, s.db.Reads, &subscriptionsdb.DeleteSubscriptionParkedParams{Subscription: r.Subscription, Partitions: []int32{r.PartitionID}}); err != nil {
			break
		}
		removed += int(rows)
	}
	return removed, pg.Translate(ctx, err)
}

// AddCursors implements ports.Deliveries.
func (s *Store) AddCursors(ctx context.Context, uid event.ID, cursors []ports.DeliveryCursor) error {
	return pg.Translate(ctx, s.insertCursors(ctx, s.db.Reads, uid, cursors))
}

// Backlogs implements ports.Deliveries.
func (s *Store) Backlogs(ctx context.Context, uid event.ID) ([]ports.DeliveryBacklog, error) {
	cursors, err := s.queries.ListSubscriptionCursors(ctx, s.db.Reads, pg.UUID(uid))
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	partitions := pg.Map(cursors, func(c *subscriptionsdb.ListSubscriptionCursorsRow) int32 { return c.PartitionID })
	counts, err := s.queries.CountSubscriptionMessages(ctx, s.db.Reads, &subscriptionsdb.CountSubscriptionMessagesParams{Subscription: pg.UUID(uid), Partitions: partitions})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	all := pg.Map(cursors, func(r *subscriptionsdb.ListSubscriptionCursorsRow) subscriptionsdb.ListAllSubscriptionCursorsRow {
		return subscriptionsdb.ListAllSubscriptionCursorsRow(*r)
	})
	found, err := backlogsOf(all, pg.Map(counts, func(r *subscriptionsdb.CountSubscriptionMessagesRow) subscriptionsdb.CountAllMessagesRow {
		return subscriptionsdb.CountAllMessagesRow(*r)
	}))
	return found[uid], err
}

// DeliveryStates implements ports.Deliveries.
func (s *Store) DeliveryStates(ctx context.Context, uids []event.ID) (map[event.ID]ports.DeliveryState, error) {
	rows, err := s.queries.ListSubscriptionStates(ctx, s.db.Reads, pg.UUIDs(uids))
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make(map[event.ID]ports.DeliveryState, len(rows))
	for _, r := range rows {
		out[r.Uid.Bytes] = ports.DeliveryState{Revision: r.Revision, CursorHash: r.Moved}
	}
	return out, nil
}

// AllBacklogs implements ports.Deliveries.
func (s *Store) AllBacklogs(ctx context.Context) (map[event.ID][]ports.DeliveryBacklog, error) {
	cursors, err := s.queries.ListAllSubscriptionCursors(ctx, s.db.Reads)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	counts, err := s.queries.CountAllMessages(ctx, s.db.Reads)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	return backlogsOf(cursors, counts)
}

func backlogsOf(cursors []subscriptionsdb.ListAllSubscriptionCursorsRow, counts []subscriptionsdb.CountAllMessagesRow) (map[event.ID][]ports.DeliveryBacklog, error) {
	type place struct {
		subscription event.ID
		partition    int32
	}
	open := make(map[place]*subscriptionsdb.CountAllMessagesRow, len(counts))
	for i := range counts {
		open[place{counts[i].Subscription.Bytes, counts[i].PartitionID}] = &counts[i]
	}
	out := map[event.ID][]ports.DeliveryBacklog{}
	for i := range cursors {
		c := &cursors[i]
		b := ports.DeliveryBacklog{DeliveryCursor: ports.DeliveryCursor{
			Partition: event.PartitionID(c.PartitionID), ReadThrough: event.Sequence(c.ReadThrough), Checkpoint: event.Sequence(c.Checkpoint),
			Pending: int(c.Pending), UpdatedAt: c.UpdatedAt.UTC(), Parked: int(c.Parked),
		}}
		if err := json.Unmarshal(c.Counts, &b.Counts); err != nil {
			return nil, fault.New(fault.Internal, pg.CodeInternal, "the counts of a subscription cannot be read; delete it and make it again")
		}
		if n := open[place{c.Subscription.Bytes, c.PartitionID}]; n != nil {
			b.FirstOpen, b.InFlight, b.Waiting = event.Sequence(n.First), int(n.InFlight), int(n.Waiting)
			if n.NextDue.Unix() != 0 {
				b.NextDue = n.NextDue.UTC()
			}
		}
		out[c.Subscription.Bytes] = append(out[c.Subscription.Bytes], b)
	}
	return out, nil
}

// Due implements ports.Deliveries.
func (s *Store) Due(ctx context.Context, limit int) ([]ports.DueDelivery, error) {
	now, err := s.storeTime(ctx, s.db.Reads)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	rows, err := s.queries.ListDueMessages(ctx, s.db.Reads, &subscriptionsdb.ListDueMessagesParams{Now: now, Scan: pg.PageSize(limit)})
	return pg.MapRows(ctx, rows, err, func(r *subscriptionsdb.ListDueMessagesRow) ports.DueDelivery {
		return ports.DueDelivery{UID: r.Subscription.Bytes, Partition: event.PartitionID(r.PartitionID), Expired: r.Expired}
	})
}

// RegisterConsumer implements ports.Deliveries.
func (s *Store) RegisterConsumer(ctx context.Context, uid event.ID, consumer string, within time.Duration) ([]string, error) {
	now, err := s.storeTime(ctx, s.db.Reads)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	// If another session locks the consumer's row, the row stays as it is.
	if _, err := pg.QueryWithLockTimeout[struct{}](ctx, s.db, pg.ShortLockWait, subscriptionsdb.SaveConsumer, pg.UUID(uid), consumer, now.Add(within)); err != nil && !pg.IsLockTimeout(err) {
		return nil, pg.Translate(ctx, err)
	}
	all, err := s.queries.ListConsumers(ctx, s.db.Reads, &subscriptionsdb.ListConsumersParams{Subscription: pg.UUID(uid), Now: now})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	active := make([]string, 0, len(all))
	for _, c := range all {
		if c.Active {
			active = append(active, c.Consumer)
		}
	}
	if len(active) < len(all) {
		err = s.queries.DeleteGoneConsumers(ctx, s.db.Reads, &subscriptionsdb.DeleteGoneConsumersParams{Subscription: pg.UUID(uid), Now: now})
	}
	return active, pg.Translate(ctx, err)
}

// EventsAt implements ports.Deliveries.
func (s *Store) EventsAt(ctx context.Context, p event.PartitionID, sequences []event.Sequence) ([]event.Recorded, error) {
	return s.events.BySequence(ctx, p, pg.Sequences(sequences), true)
}

// storeTime returns the time of the database's clock, so that all nodes agree on when a
// lease ends. Tests inject a clock, which is used instead.
func (s *Store) storeTime(ctx context.Context, db subscriptionsdb.DBTX) (time.Time, error) {
	if s.db.Config.Limits.MaxClockSkew < 0 {
		return s.db.Now(), nil
	}
	now, err := s.queries.StoreClock(ctx, db)
	return now.UTC(), err
}
