package httpclient

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// WebhookEndpoint is where the events of a subscription are sent.
type WebhookEndpoint struct {
	URL                  string    `json:"url"`
	Secret               string    `json:"secret,omitempty"` // shown when it is made or replaced
	SecretNumber         int       `json:"secret_number"`
	PreviousSecretUntil  time.Time `json:"previous_secret_until,omitzero"`
	HeaderNames          []string  `json:"header_names"`
	RetryScheduleSeconds []int64   `json:"retry_schedule_seconds"`
	DisabledAt           time.Time `json:"disabled_at,omitzero"`
	DisabledCode         string    `json:"disabled_code,omitempty"`
	CreatedAt            time.Time `json:"created_at"`
	UpdatedAt            time.Time `json:"updated_at"`
}

// NewWebhookEndpoint says where to send. Headers that are nil stay as they are.
type NewWebhookEndpoint struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitzero"`
}

// WebhookAttempt is what came of an attempt to deliver.
type WebhookAttempt struct {
	EventID       string    `json:"event_id"`
	LegalEntity   string    `json:"legal_entity"`
	Sequence      string    `json:"sequence"`
	Attempt       int       `json:"attempt"`
	AttemptedAt   time.Time `json:"attempted_at"`
	Delivered     bool      `json:"delivered"`
	Status        int       `json:"status"` // 0: there was no answer
	Code          string    `json:"code"`   // "": taken
	DurationMs    int64     `json:"duration_ms"`
	NextAttemptAt time.Time `json:"next_attempt_at,omitzero"`
}

// Webhook is an endpoint in a list.
type Webhook struct {
	Subscription string          `json:"subscription"`
	SubscriberID string          `json:"subscriber_id"`
	Status       string          `json:"status"` // of the subscription
	Owner        string          `json:"owner"`
	URL          string          `json:"url"`
	HeaderNames  []string        `json:"header_names"`
	SecretNumber int             `json:"secret_number"`
	DisabledAt   time.Time       `json:"disabled_at,omitzero"`
	DisabledCode string          `json:"disabled_code,omitempty"`
	LastAttempt  *WebhookAttempt `json:"last_attempt,omitempty"`
}

// WebhookTest is what came of a test delivery.
type WebhookTest struct {
	Delivered  bool   `json:"delivered"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	DurationMs int64  `json:"duration_ms"`
}

// Webhooks lists the endpoints that the caller may look at.
func (c *Client) Webhooks(ctx context.Context) ([]Webhook, error) {
	var out struct {
		Webhooks []Webhook `json:"webhooks"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/webhooks", repeatable: true}, &out)
	return out.Webhooks, err
}

// WebhookEndpoint reads an endpoint, without its secret.
func (c *Client) WebhookEndpoint(ctx context.Context, id string) (WebhookEndpoint, error) {
	var out WebhookEndpoint
	_, err := c.do(ctx, request{method: http.MethodGet, path: subscriptionPath(id, "/endpoint"), repeatable: true}, &out)
	return out, err
}

// SetWebhookEndpoint makes or changes an endpoint. It is not repeated by itself: the
// answer to the first request is the only one that shows the secret.
func (c *Client) SetWebhookEndpoint(ctx context.Context, id string, e NewWebhookEndpoint) (WebhookEndpoint, error) {
	var out WebhookEndpoint
	_, err := c.do(ctx, request{method: http.MethodPut, path: subscriptionPath(id, "/endpoint"), body: e}, &out)
	return out, err
}

// DeleteWebhookEndpoint ends deliveries; the subscription stays.
func (c *Client) DeleteWebhookEndpoint(ctx context.Context, id string) error {
	var out struct{}
	_, err := c.do(ctx, request{method: http.MethodDelete, path: subscriptionPath(id, "/endpoint")}, &out)
	return err
}

// RotateWebhookSecret replaces the secret and shows the new one.
func (c *Client) RotateWebhookSecret(ctx context.Context, id string) (WebhookEndpoint, error) {
	var out WebhookEndpoint
	_, err := c.do(ctx, request{method: http.MethodPost, path: subscriptionPath(id, "/rotate-secret")}, &out)
	return out, err
}

// TestWebhook sends a test delivery.
func (c *Client) TestWebhook(ctx context.Context, id string) (WebhookTest, error) {
	var out WebhookTest
	_, err := c.do(ctx, request{method: http.MethodPost, path: subscriptionPath(id, "/test")}, &out)
	return out, err
}

// WebhookAttempts lists what came of the newest attempts.
func (c *Client) WebhookAttempts(ctx context.Context, id string, limit int) ([]WebhookAttempt, error) {
	var out struct {
		Attempts []WebhookAttempt `json:"attempts"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: subscriptionPath(id, "/attempts"), query: url.Values{"limit": {strconv.Itoa(limit)}}, repeatable: true}, &out)
	return out.Attempts, err
}
