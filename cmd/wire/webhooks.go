package wire

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/adapters/system"
	sender "github.com/erpbackbone/backbone/adapters/webhook"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// webhookRunner holds the operations on endpoints and the dispatcher that delivers to them.
type webhookRunner struct {
	service    *webhooks.Service
	dispatcher *webhooks.Dispatcher
}

// newSender makes the sender of production.
func newSender(c configs.Webhook) *sender.Sender {
	return sender.New(sender.Config{
		AllowPrivateNetworks: c.AllowPrivateNetworks, AllowedNetworks: c.Networks(), AllowHTTP: c.AllowHTTP,
		UserAgent: "Backbone/" + configs.Version, Clock: system.Clock{},
	})
}

// DeliverWith composes the delivery to endpoints, which Run does then. Call it before Run.
func (a *App) DeliverWith(s ports.WebhookSender) error {
	c := a.config.Webhook
	service, err := webhooks.NewService(webhooks.ServiceConfig{
		Endpoints: a.Store.Webhooks, Attempts: a.Store.Webhooks, Decisions: administration.NewWebhooks(a.administration), Entities: a.Store.Directory, Subscriptions: a.Store.Subscriptions, Principals: a.Principals, Secrets: a.vault, Clock: a.clock, IDs: a.ids, Timeout: c.Timeout, Overlap: c.SecretOverlap,
		Resume: func(ctx context.Context, owner ports.Principal, id string) error {
			_, err := a.Subscriptions.Resume(ctx, subscriptions.Caller{Principal: owner}, id)
			return err
		},
		MayDisclose: func(ctx context.Context, owner ports.Principal) error {
			return a.Tenancy.Authorize(ctx, owner, tenancy.Action{Name: "webhooks.disclose"})
		},
		Sender: s,
	})
	if err != nil {
		return err
	}
	dispatcher, err := webhooks.NewDispatcher(webhooks.Config{
		Service: service, Consumer: subscriptionConsumer{a.Subscriptions}, Encoder: ownerEncoder{a}, Leases: a.Store.Leases, Node: a.config.Node.ID + "/" + rand.Text()[:8],
		Logger: a.logger, Observer: a.metrics, Concurrency: c.Concurrency, Timing: webhooks.StandardTiming,
	})
	a.webhooks = &webhookRunner{service: service, dispatcher: dispatcher}
	return err
}

// formerWebhooks reads the endpoints of an earlier release, to be adopted into the administrative
// log of their tenant. What no subscription has is left out: it is deleted.
func (s *Stores) formerWebhooks(ctx context.Context, tenantID string) ([]ports.WebhookDecision, error) {
	endpoints, err := s.Webhooks.WebhookEndpoints(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	subs, err := s.Subscriptions.Subscriptions(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	ids := map[event.ID]string{}
	for _, s := range subs {
		ids[s.UID] = s.ID
	}
	var out []ports.WebhookDecision
	for _, e := range endpoints {
		if id := ids[e.Subscription]; id != "" {
			out = append(out, ports.WebhookDecision{Endpoint: e, SubscriptionID: id, Deleted: webhooks.IsDeleted(&e)})
		}
	}
	return out, nil
}

// subscriptionConsumer delivers messages from the persistent subscriptions. It implements
// webhooks.Consumer.
type subscriptionConsumer struct{ service *subscriptions.Service }

// Next implements webhooks.Consumer. It polls for one message at a time: the service delivers
// the next message of a key only after this one was answered.
func (d subscriptionConsumer) Next(ctx context.Context, owner ports.Principal, id string, wait time.Duration) (webhooks.Message, bool, error) {
	b, err := d.service.Poll(ctx, owner, subscriptions.Poll{ID: id, Limit: 1, Wait: wait})
	if err != nil || len(b.Deliveries) == 0 {
		return webhooks.Message{}, false, err
	}
	return webhooks.Message{Event: b.Deliveries[0].Event, Attempt: b.Deliveries[0].Attempt}, true, nil
}

// Acknowledge implements webhooks.Consumer.
func (d subscriptionConsumer) Acknowledge(ctx context.Context, owner ports.Principal, id string, m webhooks.Message) error {
	_, err := d.service.Acknowledge(ctx, owner, subscriptions.Acknowledgement{ID: id, LegalEntity: m.Event.Scope.LegalEntity, EventIDs: []event.ID{m.Event.ID}})
	return err
}

// Refuse implements webhooks.Consumer.
func (d subscriptionConsumer) Refuse(ctx context.Context, owner ports.Principal, id string, m webhooks.Message, code string) error {
	_, err := d.service.Refuse(ctx, owner, subscriptions.Refusal{
		ID: id, LegalEntity: m.Event.Scope.LegalEntity, EventIDs: []event.ID{m.Event.ID}, Action: subscription.RetryLater, Code: code,
	})
	return err
}

// Requeue implements webhooks.Consumer.
func (d subscriptionConsumer) Requeue(ctx context.Context, owner ports.Principal, id string, m webhooks.Message) error {
	return d.service.Requeue(ctx, owner, id, []subscriptions.Delivery{{Event: m.Event, Attempt: m.Attempt}})
}

// Pause implements webhooks.Consumer.
func (d subscriptionConsumer) Pause(ctx context.Context, owner ports.Principal, id string) error {
	_, err := d.service.Pause(ctx, subscriptions.Caller{Principal: owner, Automatic: true}, id)
	return err
}

// disclosingRole is the role with the right webhooks.disclose.
const disclosingRole = "compliance"

// ownerEncoder writes events as the owner of a subscription may see them.
type ownerEncoder struct{ app *App }

// EncodeFor implements webhooks.Encoder.
func (o ownerEncoder) EncodeFor(ctx context.Context, owner ports.Principal, e event.Recorded, reason string) ([]byte, error) {
	p := presenter{
		opener: o.app.vault, upcaster: o.app.Upcaster, entities: o.app.Store.Directory,
		reader: func(ctx context.Context, _ event.Scope) (module.Reader, error) {
			if reason == "" {
				return module.Masked{}, nil
			}
			// The role that allows the disclosure reads nothing itself; the owner's other roles
			// decide what is shown.
			owner.Roles = slices.DeleteFunc(slices.Clone(owner.Roles), func(role string) bool { return role == disclosingRole })
			return o.app.disclosures.Reader(ctx, owner, disclosure.Purpose{Operation: "webhook", Reason: reason})
		},
		visible: func(code string) bool {
			return len(owner.LegalEntities) == 0 || slices.Contains(owner.LegalEntities, code)
		},
	}
	out, err := p.Encode(ctx, []event.Recorded{e}, false)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}
