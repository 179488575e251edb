package verify

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"

	"github.com/erpbackbone/backbone/domain/event"
)

// The events of an administrative log about endpoints of webhooks.
const (
	webhookCreated = "backbone.webhook.created"
	webhookChanged = "backbone.webhook.changed"
	webhookDeleted = "backbone.webhook.deleted"
)

// recordedWebhook is the data of an event about an endpoint.
type recordedWebhook struct {
	Subscription   string `json:"subscription_uid"`
	SubscriptionID string `json:"subscription_id"`
	Digest         string `json:"endpoint_sha256"`

	sequence event.Sequence
	deleted  bool
}

// webhooks compares the rows of endpoints with what the administrative log recorded. The key is
// the uid of the subscription.
type webhooks map[string]recordedWebhook

func (w webhooks) note(c *chain, e *event.Recorded) {
	if e.Type != webhookCreated && e.Type != webhookChanged && e.Type != webhookDeleted {
		return
	}
	recorded := recordedWebhook{sequence: e.Sequence, deleted: e.Type == webhookDeleted}
	if !decodeData(e, &recorded) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a webhook cannot be read")
		return
	}
	w[recorded.Subscription] = recorded
}

func (w webhooks) compare(ctx context.Context, c *chain, store Store) error {
	rows, err := store.WebhookEndpoints(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	left := maps.Clone(w)
	for i := range rows {
		uid := rows[i].Subscription.String()
		digest := rows[i].Digest()
		recorded, known := w[uid]
		delete(left, uid)
		switch {
		case !known:
			c.add(WebhookMismatch, 0, fmt.Sprintf("there is an endpoint of the subscription %s, and no event created it; nothing is sent to it", uid))
		case !recorded.deleted && recorded.Digest != hex.EncodeToString(digest[:]):
			c.add(WebhookMismatch, recorded.sequence, fmt.Sprintf("the endpoint of the subscription %s is not as it was recorded; nothing is sent to it", recorded.SubscriptionID))
		}
	}
	subscriptions, err := store.Subscriptions(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	for i := range subscriptions { // an endpoint goes with its subscription
		uid := subscriptions[i].UID.String()
		if recorded, missing := left[uid]; missing && !recorded.deleted {
			c.add(WebhookMismatch, recorded.sequence, fmt.Sprintf("the endpoint of the subscription %s was recorded and is not there", recorded.SubscriptionID))
		}
	}
	return nil
}
