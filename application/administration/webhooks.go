package administration

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// The event types of webhooks.
const (
	WebhookHostAllowed = "backbone.webhook_host.allowed"
	WebhookHostRemoved = "backbone.webhook_host.removed"
	WebhookCreated     = "backbone.webhook.created"
	WebhookChanged     = "backbone.webhook.changed"
	WebhookDeleted     = "backbone.webhook.deleted"
)

const (
	webhookHostStream = "backbone.webhook_host" // by host
	webhookStream     = "backbone.webhook"      // by uid of the subscription
)

// Webhooks records where the webhooks of a tenant may send and what was decided about their
// endpoints. There is no table of allowed hosts: what no event allows is not allowed.
type Webhooks struct{ log *Log }

var _ ports.WebhookDecisions = (*Webhooks)(nil)

// NewWebhooks makes the decisions about webhooks.
func NewWebhooks(log *Log) *Webhooks {
	return &Webhooks{log: log}
}

// hostData is the data of WebhookHostAllowed and WebhookHostRemoved.
type hostData struct {
	Host   string `json:"host"`
	Reason string `json:"reason,omitempty"`
	// Of a host that an earlier release allowed:
	AddedBy string     `json:"added_by,omitempty"`
	AddedAt *time.Time `json:"added_at,omitempty"`
}

// webhookData is the data of WebhookCreated, WebhookChanged and WebhookDeleted. It has neither
// the secret nor the whole address, whose path or query may be one.
type webhookData struct {
	Subscription   string `json:"subscription_uid"`
	SubscriptionID string `json:"subscription_id"`
	Origin         string `json:"origin,omitempty"`
	PersonalReason string `json:"personal_data_reason,omitempty"`
	SecretNumber   int    `json:"secret_number"`
	SecretSHA256   string `json:"secret_sha256,omitempty"`
	DisabledCode   string `json:"disabled_code,omitempty"`
	Revision       int64  `json:"revision"`
	Digest         string `json:"endpoint_sha256,omitempty"`
}

// webhookServer is the actor of what a server decides by itself about an endpoint.
var webhookServer = event.Actor{Type: event.System, ID: "s-backbone-webhooks", Name: "webhooks"}

func hostStreamOf(host string) event.StreamID {
	return event.StreamID{Type: webhookHostStream, ID: host}
}

func webhookStreamOf(subscription event.ID) event.StreamID {
	return event.StreamID{Type: webhookStream, ID: subscription.String()}
}

// Hosts implements ports.WebhookDecisions.
func (w *Webhooks) Hosts(ctx context.Context, tenantID string) ([]ports.WebhookHost, error) {
	hosts := map[string]ports.WebhookHost{}
	err := w.log.Each(ctx, tenantID, []string{WebhookHostAllowed, WebhookHostRemoved}, func(e *event.Recorded) error {
		var data hostData
		if err := decode(e, &data); err != nil {
			return err
		}
		if e.Type == WebhookHostRemoved {
			delete(hosts, data.Host)
			return nil
		}
		h := ports.WebhookHost{TenantID: tenantID, Host: data.Host, AddedBy: cmp.Or(data.AddedBy, e.ActorID), AddedAt: e.RecordedAt, Reason: data.Reason}
		if data.AddedAt != nil {
			h.AddedAt = data.AddedAt.UTC()
		}
		hosts[data.Host] = h
		return nil
	})
	all := make([]ports.WebhookHost, 0, len(hosts))
	for _, h := range hosts {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b ports.WebhookHost) int { return cmp.Compare(a.Host, b.Host) })
	return all, err
}

// HostAllowed implements ports.WebhookDecisions.
func (w *Webhooks) HostAllowed(ctx context.Context, tenantID, host string) (bool, error) {
	e, err := w.log.Latest(ctx, tenantID, hostStreamOf(host))
	return e.Type == WebhookHostAllowed, err
}

// DecideHost implements ports.WebhookDecisions.
func (w *Webhooks) DecideHost(ctx context.Context, tenantID, host string, allowed bool, reason string, by ports.Principal) error {
	for try := 1; ; try++ {
		e, err := w.log.Latest(ctx, tenantID, hostStreamOf(host))
		if err != nil || allowed == (e.Type == WebhookHostAllowed) {
			return err
		}
		eventType := WebhookHostRemoved
		if allowed {
			eventType = WebhookHostAllowed
		}
		expected := concurrency.StreamExpectation{Stream: hostStreamOf(host), Expected: expectVersion(e.StreamVersion)}
		err = w.log.Record(ctx, tenantID, by.Actor(), expected, draft(eventType, hostStreamOf(host), hostData{Host: host, Reason: reason}))
		if fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion || try == saveTries {
			return err
		}
	}
}

// Endpoint implements ports.WebhookDecisions.
func (w *Webhooks) Endpoint(ctx context.Context, tenantID string, subscription event.ID) (r ports.WebhookRecord, err error) {
	e, err := w.log.Latest(ctx, tenantID, webhookStreamOf(subscription))
	if err != nil || e.StreamVersion == 0 {
		return r, err
	}
	var data webhookData
	if err := decode(&e, &data); err != nil {
		return r, err
	}
	r.Version, r.SecretNumber = e.StreamVersion, data.SecretNumber
	if e.Type != WebhookDeleted {
		digest, err := hex.DecodeString(data.Digest)
		if err != nil {
			return r, err
		}
		copy(r.Digest[:], digest)
	}
	return r, nil
}

// DecideEndpoint implements ports.WebhookDecisions.
func (w *Webhooks) DecideEndpoint(ctx context.Context, d ports.WebhookDecision) error {
	eventType, actor := WebhookChanged, webhookServer
	switch {
	case d.Deleted:
		eventType = WebhookDeleted
	case d.Before.Digest == (event.Hash{}):
		eventType = WebhookCreated
	}
	if d.By.PersonID != "" {
		actor = d.By.Actor()
	}
	stream := webhookStreamOf(d.Endpoint.Subscription)
	err := w.log.Record(ctx, d.Endpoint.TenantID, actor, concurrency.StreamExpectation{Stream: stream, Expected: expectVersion(d.Before.Version)},
		draft(eventType, stream, endpointData(d)))
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		err = ports.WebhookEndpointChanged()
	}
	return err
}

func endpointData(d ports.WebhookDecision) webhookData {
	e := &d.Endpoint
	data := webhookData{Subscription: e.Subscription.String(), SubscriptionID: d.SubscriptionID, SecretNumber: e.SecretNumber, Revision: e.Revision}
	if d.Deleted {
		return data
	}
	digest := e.Digest()
	data.Digest, data.PersonalReason, data.DisabledCode = hex.EncodeToString(digest[:]), e.PersonalReason, e.DisabledCode
	if u, err := url.Parse(e.URL); err == nil {
		data.Origin = u.Scheme + "://" + u.Host
	}
	if d.SecretSHA256 != (event.Hash{}) {
		data.SecretSHA256 = hex.EncodeToString(d.SecretSHA256[:])
	}
	return data
}

// AdoptWebhooks takes over the hosts and endpoints of an earlier release.
func AdoptWebhooks(hosts func(ctx context.Context, tenantID string) ([]ports.WebhookHost, error), endpoints func(ctx context.Context, tenantID string) ([]ports.WebhookDecision, error)) Adoption {
	return Adoption{Concern: "webhooks", Drafts: func(ctx context.Context, tenantID string) (drafts []event.Draft, err error) {
		allowed, err := hosts(ctx, tenantID)
		if err != nil {
			return nil, err
		}
		for _, h := range allowed {
			at := event.Micros(h.AddedAt)
			drafts = append(drafts, draft(WebhookHostAllowed, hostStreamOf(h.Host), hostData{Host: h.Host, AddedBy: h.AddedBy, AddedAt: &at}))
		}
		all, err := endpoints(ctx, tenantID)
		for _, d := range all {
			eventType := WebhookCreated
			if d.Deleted {
				eventType = WebhookDeleted
			}
			drafts = append(drafts, draft(eventType, webhookStreamOf(d.Endpoint.Subscription), endpointData(d)))
		}
		return drafts, err
	}}
}

func decode(e *event.Recorded, to any) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

func registerWebhooks(r *module.Registrar) {
	const host = `{"host":"hooks.example.org","reason":"The receiver of the vendor portal."}`
	r.EventType(builtin(WebhookHostAllowed, "The webhooks of the tenant may send to this host.", webhookHostSchema, host))
	r.EventType(builtin(WebhookHostRemoved, "The webhooks of the tenant send to this host no more.", webhookHostSchema, host))
	const endpoint = `{"subscription_uid":"01M7YGST5B2MDDN003W0A63V58","subscription_id":"machine-hook","origin":"https://hooks.example.org","secret_number":1,` +
		`"secret_sha256":"` + exampleHash + `","revision":1,"endpoint_sha256":"123cf7f2916be9c7bb1af0da600e90662cf4758e52b2243bf6d006753955487c"}`
	r.EventType(builtin(WebhookCreated, "A subscription was given an endpoint. The digest covers its whole row.", webhookSchema, endpoint))
	r.EventType(builtin(WebhookChanged, "The address, headers, disclosure, secret or state of an endpoint changed.", webhookSchema, endpoint))
	r.EventType(builtin(WebhookDeleted, "An endpoint was deleted. Nothing is sent to it any more.", webhookSchema,
		`{"subscription_uid":"01M7YGST5B2MDDN003W0A63V58","subscription_id":"machine-hook","secret_number":1,"revision":2}`))
}

const webhookHostSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["host"],
  "properties": {
    "host": {"type": "string", "minLength": 1, "maxLength": 300, "description": "with the port unless it is the scheme's own"},
    "reason": {"type": "string", "maxLength": 500},
    "added_by": {"type": "string", "maxLength": 512, "description": "pseudonymous id, of a host that an earlier release allowed"},
    "added_at": {"type": "string", "format": "date-time", "description": "of a host that an earlier release allowed"}
  }
}`

const webhookSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["subscription_uid", "subscription_id", "secret_number", "revision"],
  "properties": {
    "subscription_uid": {"type": "string", "minLength": 26, "maxLength": 26},
    "subscription_id": {"type": "string", "maxLength": 100},
    "origin": {"type": "string", "maxLength": 2000, "description": "scheme, host and port of the address"},
    "personal_data_reason": {"type": "string", "maxLength": 500, "description": "why personal values are sent in clear; absent: they are masked"},
    "secret_number": {"type": "integer", "minimum": 1},
    "secret_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the secret that signs; absent for an endpoint of an earlier release"},
    "disabled_code": {"type": "string", "maxLength": 100},
    "revision": {"type": "integer", "minimum": 1},
    "endpoint_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the row; absent when it is deleted"}
  }
}`
