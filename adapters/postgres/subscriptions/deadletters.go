package subscriptions

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/subscriptionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// ParkedMessages implements ports.SubscriptionDeadLetters.
func (s *Store) ParkedMessages(ctx context.Context, uid event.ID, partitions []event.PartitionID, from event.PartitionID, q ports.ParkedQuery) ([]ports.ParkedMessage, error) {
	return s.parkedMessages(ctx, s.db.Reads, uid, pg.Partitions(partitions), from, q)
}

func (s *Store) parkedMessages(ctx context.Context, db subscriptionsdb.DBTX, uid event.ID, partitions []int32, from event.PartitionID, q ports.ParkedQuery) ([]ports.ParkedMessage, error) {
	var rows []subscriptionsdb.BackboneSubscriptionParked
	var err error
	if len(q.EventIDs) == 0 {
		rows, err = s.queries.ListParkedMessages(ctx, db, &subscriptionsdb.ListParkedMessagesParams{
			Subscription: pg.UUID(uid), Partitions: partitions, FromPartition: int32(from), After: int64(q.After), Code: q.Code, PageSize: pg.PageSize(q.Limit),
		})
	} else {
		rows, err = s.queries.ListParkedMessagesOf(ctx, db, &subscriptionsdb.ListParkedMessagesOfParams{
			Subscription: pg.UUID(uid), Partitions: partitions, FromPartition: int32(from), After: int64(q.After),
			EventIds: pg.UUIDs(q.EventIDs), Code: q.Code, PageSize: pg.PageSize(q.Limit),
		})
	}
	return pg.MapRows(ctx, rows, err, func(r *subscriptionsdb.BackboneSubscriptionParked) ports.ParkedMessage {
		return ports.ParkedMessage{Partition: event.PartitionID(r.PartitionID), Message: subscription.Message{
			Sequence: event.Sequence(r.Sequence), EventID: r.EventID.Bytes, Key: subscription.Key(r.OrderKey), State: subscription.ParkedState, Consumer: r.Consumer,
			Attempts: int(r.Attempts), DeliveredAt: pg.TimeOrZero(r.HandedAt), Code: r.Code, Detail: r.Detail, ChangedAt: r.ChangedAt.UTC(),
		}}
	})
}

// ParkedGroups implements ports.SubscriptionDeadLetters.
func (s *Store) ParkedGroups(ctx context.Context, uid event.ID, partitions []event.PartitionID) ([]ports.ParkedGroup, error) {
	rows, err := s.queries.CountParkedByCode(ctx, s.db.Reads, &subscriptionsdb.CountParkedByCodeParams{Subscription: pg.UUID(uid), Partitions: pg.Partitions(partitions)})
	return pg.MapRows(ctx, rows, err, func(r *subscriptionsdb.CountParkedByCodeRow) ports.ParkedGroup {
		return ports.ParkedGroup{Code: r.Code, Messages: int(r.Messages), First: r.First.UTC(), Last: r.Last.UTC()}
	})
}

// FormerDecisionsOf implements ports.SubscriptionDeadLetters.
func (s *Store) FormerDecisionsOf(ctx context.Context, tenantID, id string, partitions []event.PartitionID, limit int) ([]ports.ParkedDecision, error) {
	rows, err := s.queries.ListFormerDecisions(ctx, s.db.Reads, &subscriptionsdb.ListFormerDecisionsParams{
		TenantID: tenantID, Subscription: id, Partitions: pg.Partitions(partitions), PageSize: pg.PageSize(limit),
	})
	return pg.MapRows(ctx, rows, err, formerDecision)
}

// FormerDecisions implements ports.FormerDecisions.
func (s *Store) FormerDecisions(ctx context.Context, tenantID string, after ports.ParkedDecision, limit int) ([]ports.ParkedDecision, error) {
	rows, err := s.queries.PageFormerDecisions(ctx, s.db.Reads, &subscriptionsdb.PageFormerDecisionsParams{
		TenantID: tenantID, AfterPartition: int32(after.Partition), AfterSubscription: after.Subscription, AfterID: pg.UUID(after.ID), PageSize: pg.PageSize(limit),
	})
	return pg.MapRows(ctx, rows, err, formerDecision)
}

func formerDecision(r *subscriptionsdb.BackboneSubscriptionDecision) ports.ParkedDecision {
	return ports.ParkedDecision{
		ID: r.ID.Bytes, TenantID: r.TenantID, Subscription: r.Subscription, Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence),
		EventID: r.EventID.Bytes, Action: r.Action, Actor: r.Actor, Reason: r.Reason, Code: r.Code, At: r.At.UTC(),
	}
}
