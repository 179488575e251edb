package subscriptions

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// saveTries is how often the row of a decision is written while a breaker changes its revision.
const saveTries = 5

// recorded finds a subscription with find, together with the record that its next decision
// follows. A row that is not as it was recorded is restored: a write was cut off, or the row was
// edited. Fault subscription.unrecorded for a row that no record supports.
func (s *Service) recorded(ctx context.Context, c Caller, id string, find func(ctx context.Context, c Caller, id string) (subscription.Subscription, error)) (sub subscription.Subscription, record ports.SubscriptionRecord, err error) {
	record, err = s.config.Decisions.Subscription(ctx, c.Principal.TenantID, id) // before the row is read, so that the later of two callers fails
	if err != nil {
		return sub, record, err
	}
	if sub, err = find(ctx, c, id); err != nil || sub.IsRecorded(&record.Subscription) && !record.Deleted {
		return sub, record, err
	}
	if record.Version == 0 || record.Deleted || record.UID != sub.UID || record.Owner != sub.Owner {
		return sub, record, fault.New(fault.FailedPrecondition, "subscription.unrecorded",
			"the stored subscription is not the one that was recorded; have `backbone verify` run, delete it, and create it again")
	}
	s.config.Logger.WarnContext(ctx, "a subscription was not as it was recorded; it is restored", "subscription", id, "tenant", sub.TenantID)
	sub, err = s.write(ctx, &record.Subscription, false)
	return sub, record, err
}

// decide records a decision and then writes its row, whose definition and status are those of sub.
func (s *Service) decide(ctx context.Context, c Caller, action ports.SubscriptionAction, sub subscription.Subscription, record ports.SubscriptionRecord, positions map[event.PartitionID]event.Sequence) (subscription.Subscription, error) {
	sub.Revision++
	d := ports.SubscriptionDecision{Action: action, Subscription: sub, Positions: positions, Before: record.Version, By: c.Principal}
	if c.Automatic {
		d.By = ports.Principal{}
	}
	if err := s.config.Decisions.Decide(ctx, d); err != nil {
		return sub, err
	}
	return s.write(ctx, &sub, action == ports.SubscriptionResumed)
}

// write writes the row of a subscription as it was recorded last, which may be a later decision
// than the caller's: each caller writes after its decision, so the last row is that of the last record.
// An open breaker stays open, except in a resumption.
func (s *Service) write(ctx context.Context, sub *subscription.Subscription, resume bool) (subscription.Subscription, error) {
	for try := 1; ; try++ {
		row, err := s.config.Store.Subscription(ctx, sub.TenantID, sub.ID)
		if err != nil {
			return row, err
		}
		record, err := s.config.Decisions.Subscription(ctx, sub.TenantID, sub.ID)
		if err != nil {
			return row, err
		}
		if record.Deleted || record.UID != row.UID {
			return row, notFound()
		}
		row.SetDefinition(record.Definition())
		switch {
		case record.Status == subscription.Paused:
			row.Status = subscription.Paused
		case resume, row.Status == subscription.Paused:
			row.Status = subscription.Active
		}
		if resume {
			row.Failures = 0
		}
		row.Revision++
		err = s.config.Store.ChangeSubscription(ctx, row)
		if fault.CodeOf(err) == "subscription.changed" && try < saveTries {
			continue // a breaker or another decision was faster
		}
		if err != nil {
			return row, err
		}
		s.wakeUps.wake(row.UID)
		return s.config.Store.Subscription(ctx, sub.TenantID, sub.ID)
	}
}

// Recover writes the rows that decisions of a tenant lack, after a crash between the two. It leaves
// a row alone that no decision supports: verification reports it.
func (s *Service) Recover(ctx context.Context, tenantID string) error {
	records, err := s.config.Decisions.Subscriptions(ctx, tenantID)
	if err != nil {
		return err
	}
	all, err := s.config.Store.Subscriptions(ctx, tenantID)
	if err != nil {
		return err
	}
	rows := map[string]*subscription.Subscription{}
	for i := range all {
		rows[all[i].ID] = &all[i]
	}
	for i := range records {
		r, row := &records[i], rows[records[i].ID]
		switch {
		case r.Deleted:
			if row != nil && row.UID == r.UID {
				err = s.config.Store.DeleteSubscription(ctx, r.UID)
			}
		case row == nil:
			err = s.restore(ctx, tenantID, r.ID)
		case row.UID == r.UID && row.Revision < r.Revision:
			_, err = s.write(ctx, &r.Subscription, false)
		}
		if err != nil && fault.KindOf(err) != fault.NotFound { // not found: deleted since the records were read
			return err
		}
	}
	return nil
}

// restore creates the row of a subscription whose creation was cut off, if it is not deleted.
func (s *Service) restore(ctx context.Context, tenantID, id string) error {
	r, err := s.config.Decisions.Subscription(ctx, tenantID, id)
	if err != nil || r.Deleted {
		return err
	}
	owner, err := s.config.Access.Owner(ctx, r.TenantID, r.Owner)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	var entities []ports.LegalEntity
	if err == nil {
		if entities, err = s.config.Access.Readable(ctx, owner); err != nil {
			return err
		}
	}
	cursors, err := s.newCursors(ctx, &r.Subscription, entities, []ports.DeliveryBacklog{{}}) // as of the creation, not of now
	if err != nil {
		return err
	}
	_, _, err = s.insert(ctx, r.Subscription, cursors, 0)
	return err
}

// insert creates the row of a recorded creation. A deletion that was recorded in between has found
// no row to delete, so this row goes again: fault subscription.not_found.
func (s *Service) insert(ctx context.Context, sub subscription.Subscription, cursors []ports.DeliveryCursor, maxPerTenant int) (made subscription.Subscription, created bool, err error) {
	made, created, err = s.config.Store.CreateSubscription(ctx, sub, cursors, maxPerTenant)
	if err != nil || !created {
		return made, created, err
	}
	record, err := s.config.Decisions.Subscription(ctx, sub.TenantID, sub.ID)
	if err != nil || !record.Deleted && record.UID == sub.UID {
		return made, true, err
	}
	if err := s.config.Store.DeleteSubscription(ctx, sub.UID); err != nil {
		return made, true, err
	}
	return made, false, notFound()
}
