package ports

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
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

// webhookDigest separates these hashes from the other formats.
const webhookDigest = "backbone/webhook/v1"

// Digest is the SHA-256 of webhookDigest, a zero byte and the row as JSON: the fields in their
// order, times in UTC. The administrative log has it, so that an edit of the row contradicts the
// log.
func (e *WebhookEndpoint) Digest() event.Hash {
	row := *e
	row.HeaderNames, row.Headers = append([]string{}, row.HeaderNames...), append([]byte{}, row.Headers...)
	for _, t := range []*time.Time{&row.PreviousUntil, &row.DisabledAt, &row.CreatedAt, &row.UpdatedAt} {
		*t = event.Micros(*t)
	}
	text, _ := json.Marshal(row) // texts, numbers and times always encode
	return sha256.Sum256(append([]byte(webhookDigest+"\x00"), text...))
}

// WebhookEndpointChanged is the fault of a caller that lost a race.
func WebhookEndpointChanged() error {
	return fault.New(fault.Conflict, "webhook.endpoint_changed", "another request has changed the endpoint; read it and try again")
}

// WebhookHost is a host that the webhooks of a tenant may send to.
type WebhookHost struct {
	TenantID string
	Host     string // small letters, with the port unless it is the scheme's own
	Reason   string // "": none was given
	AddedBy  string // person id
	AddedAt  time.Time
}

// WebhookRecord is what the administrative log has of an endpoint.
type WebhookRecord struct {
	Version      event.Version // of its stream; 0: nothing was recorded
	Digest       event.Hash    // zero: there is none, or it was deleted
	SecretNumber int           // of the newest decision
}

// WebhookDecision is a decision about an endpoint.
type WebhookDecision struct {
	Endpoint       WebhookEndpoint // as it is from now on
	SubscriptionID string
	SecretSHA256   event.Hash // zero: unknown
	Deleted        bool
	Before         WebhookRecord // as it was when the decision was made
	By             Principal     // the zero value: this server
}

// WebhookDecisions decides where webhooks send. The decisions are events of the administrative
// log; what no event supports does not count, whatever a table says.
type WebhookDecisions interface {
	// Hosts lists the hosts that a tenant allows, by host.
	Hosts(ctx context.Context, tenantID string) ([]WebhookHost, error)
	// HostAllowed reports whether the newest decision about a host allows it.
	HostAllowed(ctx context.Context, tenantID, host string) (bool, error)
	// DecideHost allows or removes a host; a decision that changes nothing is not recorded.
	DecideHost(ctx context.Context, tenantID, host string, allowed bool, reason string, by Principal) error
	// Endpoint returns the newest decision about the endpoint of a subscription.
	Endpoint(ctx context.Context, tenantID string, subscription event.ID) (WebhookRecord, error)
	// DecideEndpoint records a decision before its row is written. Fault
	// webhook.endpoint_changed if another decision came after d.Before.
	DecideEndpoint(ctx context.Context, d WebhookDecision) error
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
