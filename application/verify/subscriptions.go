package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
)

// subscriptionEvents is the prefix of the events of an administrative log about subscriptions.
const subscriptionEvents = "backbone.subscription."

// recordedSubscription is the data of an event about a subscription.
type recordedSubscription struct {
	UID            string                  `json:"subscription_uid"`
	ID             string                  `json:"subscription_id"`
	Owner          string                  `json:"owner"`
	SubscriberType string                  `json:"subscriber_type"`
	SubscriberID   string                  `json:"subscriber_id"`
	Status         subscription.Status     `json:"status"`
	Definition     subscription.Definition `json:"definition"`
	CreatedAt      time.Time               `json:"created_at"`

	sequence event.Sequence
	deleted  bool
	before   *recordedSubscription // by the event before; nil: none
}

// subscriptions compares the rows of subscriptions with what the administrative log recorded. The
// key is the id.
type subscriptions map[string]recordedSubscription

func (s subscriptions) note(c *chain, e *event.Recorded) {
	action, found := strings.CutPrefix(e.Type, subscriptionEvents)
	if !found {
		return
	}
	recorded := recordedSubscription{sequence: e.Sequence, deleted: action == "deleted"}
	if !decodeData(e, &recorded) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a subscription cannot be read")
		return
	}
	if before, known := s[recorded.ID]; known {
		before.before = nil
		recorded.before = &before
	}
	s[recorded.ID] = recorded
}

func (s subscriptions) compare(ctx context.Context, c *chain, store Store) error {
	rows, err := store.Subscriptions(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	left := maps.Clone(s)
	for i := range rows {
		row := &rows[i]
		recorded, known := s[row.ID]
		delete(left, row.ID)
		switch {
		case known && recorded.is(row, c.entity.TenantID):
		case known && recorded.before != nil && recorded.before.is(row, c.entity.TenantID):
			c.add(SubscriptionMismatch, recorded.sequence, fmt.Sprintf("the subscription %s is as it was before this event; a node that was cut off in between repairs it when it starts", row.ID))
		case !known || recorded.deleted:
			c.add(SubscriptionMismatch, recorded.sequence, fmt.Sprintf("there is a subscription %s, and no event created it", row.ID))
		default:
			c.add(SubscriptionMismatch, recorded.sequence, fmt.Sprintf("the subscription %s is not as it was recorded", row.ID))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(left)) {
		if !s[id].deleted {
			c.add(SubscriptionMismatch, s[id].sequence, fmt.Sprintf("the subscription %s was recorded and is not there; a node that starts creates it again", id))
		}
	}
	return nil
}

// is reports whether a row is as it was recorded.
func (r *recordedSubscription) is(row *subscription.Subscription, tenantID string) bool {
	uid, _ := event.ParseID(r.UID) // another uid is a mismatch
	want := subscription.Subscription{
		UID: uid, TenantID: tenantID, ID: r.ID, Owner: r.Owner, SubscriberType: r.SubscriberType, SubscriberID: r.SubscriberID, Status: r.Status, CreatedAt: r.CreatedAt,
	}
	want.SetDefinition(r.Definition)
	return !r.deleted && row.IsRecorded(&want)
}
