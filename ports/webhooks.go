package ports

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// WebhookEndpoint is the address to which the events of a subscription are sent. Its secret is
// not stored with it, but derived from a secret of the tenant in the key store.
type WebhookEndpoint struct {
	Subscription  event.ID // UID of the subscription
	TenantID      string
	URL           string
	SecretNumber  int       // of the secret that signs, from 1
	PreviousUntil time.Time // until when the previous secret signs too; zero: it does not
	DisabledAt    time.Time // zero: it is not
	DisabledCode  string    // why
	HeaderNames   []string  // of the owner's own headers, in their order; nil: none
	Headers       []byte    // the headers, encrypted; nil: none
	// PersonalReason says why the endpoint gets personal values in clear, as its owner may read them;
	// "": it gets them masked.
	PersonalReason string
	Revision       int64 // changes with every change
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// WebhookEndpoints stores endpoints, at most one for a subscription.
type WebhookEndpoints interface {
	// WebhookEndpoint returns fault webhook.endpoint_not_found if there is none.
	WebhookEndpoint(ctx context.Context, subscription event.ID) (WebhookEndpoint, error)
	// WebhookEndpoints lists those of a tenant by subscription; tenant "" lists all, by
	// tenant and subscription.
	WebhookEndpoints(ctx context.Context, tenantID string) ([]WebhookEndpoint, error)
	// SaveWebhookEndpoint inserts an endpoint of revision 1, and replaces one whose
	// revision is the one before e.Revision; else fault webhook.endpoint_changed
	// (Conflict).
	SaveWebhookEndpoint(ctx context.Context, e WebhookEndpoint) error
	// DeleteWebhookEndpoint removes an endpoint and its attempts; an unknown one
	// changes nothing.
	DeleteWebhookEndpoint(ctx context.Context, subscription event.ID) error
}

// WebhookHost is a host that the webhooks of a tenant may send to.
type WebhookHost struct {
	TenantID string
	Host     string // small letters, with the port unless it is the scheme's own
	AddedBy  string // person id
	AddedAt  time.Time
}

// WebhookHosts stores the hosts that each tenant allows.
type WebhookHosts interface {
	// WebhookHosts lists those of a tenant, by host.
	WebhookHosts(ctx context.Context, tenantID string) ([]WebhookHost, error)
	// AddWebhookHost adds a host; one that is there stays as it is.
	AddWebhookHost(ctx context.Context, h WebhookHost) error
	// DeleteWebhookHost removes a host; an unknown one changes nothing.
	DeleteWebhookHost(ctx context.Context, tenantID, host string) error
}

// WebhookAttempt is the outcome of one attempt to deliver. It contains no value of an event and
// no text of an endpoint.
type WebhookAttempt struct {
	EventID   event.ID
	Partition event.PartitionID
	Sequence  event.Sequence
	Attempt   int // 1: the first
	At        time.Time
	Status    int    // of the answer; 0: there was none
	Code      string // "": success
	Duration  time.Duration
	Next      time.Time // of the next attempt at the earliest; zero: none
}

// WebhookAttempts stores the newest attempts for each endpoint.
type WebhookAttempts interface {
	// AddWebhookAttempts adds attempts and removes all but about the newest keep. Attempts of a
	// deleted endpoint are not stored.
	AddWebhookAttempts(ctx context.Context, subscription event.ID, attempts []WebhookAttempt, keep int) error
	// WebhookAttempts lists at most limit, the newest first.
	WebhookAttempts(ctx context.Context, subscription event.ID, limit int) ([]WebhookAttempt, error)
}

// Header is one header of a request.
type Header struct{ Name, Value string }

// WebhookRequest is one delivery.
type WebhookRequest struct {
	URL       string
	ID        string    // of the message, the same in every attempt
	Timestamp time.Time // of the attempt, in seconds
	Signature string    // of id, timestamp and body, one or several separated by blanks
	Headers   []Header  // of the endpoint's owner; [WebhookSender.CheckHeader] lets them through
	Body      []byte    // JSON
	Timeout   time.Duration
}

// WebhookAnswer is the answer of an endpoint. Its body is discarded.
type WebhookAnswer struct {
	Status     int
	RetryAfter time.Duration // that the endpoint asks for; 0: none
}

// WebhookSender sends deliveries.
type WebhookSender interface {
	// Check refuses an address that nothing may be sent to, as far as the address alone tells,
	// without resolving its name. Fault webhook.url_invalid (Invalid).
	Check(url string) error
	// CheckHeader refuses a header that an owner may not set: one that belongs to the
	// delivery or to the connection, or that is none. Fault webhook.header_invalid
	// (Invalid), which does not repeat the value.
	CheckHeader(h Header) error
	// Send makes one attempt. It follows no redirect, uses no proxy, and connects to no
	// address that is not allowed, whatever name leads there, and to none of a cloud's metadata
	// service at all. The faults are all Unavailable, but for the first two, which are Forbidden:
	//
	//	webhook.url_invalid      as Check
	//	webhook.header_invalid   as CheckHeader
	//	webhook.dns              the name does not exist, or leads to an address that is not allowed
	//	webhook.timeout, webhook.tls, webhook.connection
	Send(ctx context.Context, r WebhookRequest) (WebhookAnswer, error)
}
