package httpclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// SubscriptionSettings say how messages are handed out. What is left out has the
// server's default.
type SubscriptionSettings struct {
	StartFrom          string            `json:"start_from,omitempty"` // "beginning", "end", "position", "time", "cursor"
	StartPositions     map[string]string `json:"start_positions,omitempty"`
	StartTime          string            `json:"start_time,omitempty"`
	StartCursor        string            `json:"start_cursor,omitempty"` // of a feed of all legal entities
	MessageTimeoutMs   int               `json:"message_timeout_ms,omitempty"`
	MaxRetryCount      *int              `json:"max_retry_count,omitempty"`
	BreakerAfter       *int              `json:"breaker_after,omitempty"`
	CheckpointAfter    int               `json:"checkpoint_after,omitempty"`
	MaxCheckpointCount int               `json:"max_checkpoint_count,omitempty"`
	ConsumerStrategy   string            `json:"consumer_strategy,omitempty"`
	PartitionBy        string            `json:"partition_by,omitempty"`
	RetryFirstMs       int               `json:"retry_first_ms,omitempty"`
	RetryLongestMs     int               `json:"retry_longest_ms,omitempty"`
}

// NewSubscription asks for a subscription.
type NewSubscription struct {
	ID             string               `json:"id"`
	SubscriberType string               `json:"subscriber_type"`
	SubscriberID   string               `json:"subscriber_id"`
	EventTypes     []string             `json:"event_types,omitempty"`
	LegalEntities  []string             `json:"legal_entities,omitempty"`
	Modules        []string             `json:"modules,omitempty"`
	StreamTypes    []string             `json:"stream_types,omitempty"`
	Tags           []string             `json:"tags,omitempty"`
	Settings       SubscriptionSettings `json:"settings"`
}

// Subscription is a definition with its state.
type Subscription struct {
	NewSubscription
	Status          string    `json:"status"` // "active", "paused", "parked"
	Owner           string    `json:"owner"`
	FailuresInARow  int       `json:"failures_in_a_row"`
	LastFailureCode string    `json:"last_failure_code,omitempty"`
	LastFailureAt   time.Time `json:"last_failure_at,omitzero"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
	// Warnings say what is allowed and probably not meant.
	Warnings []SubscriptionWarning `json:"warnings,omitempty"`
}

// SubscriptionWarning is one of them.
type SubscriptionWarning struct {
	Code   string `json:"code"`
	Field  string `json:"field,omitempty"` // JSON pointer into the request
	Detail string `json:"detail"`
}

// SubscriptionStatus is a subscription with how far it is.
type SubscriptionStatus struct {
	Subscription Subscription         `json:"subscription"`
	LagEvents    int                  `json:"lag_events"`
	LagSeconds   float64              `json:"lag_seconds"`
	InFlight     int                  `json:"in_flight"`
	Waiting      int                  `json:"waiting"`
	Parked       int                  `json:"parked"`
	Statistics   map[string]int       `json:"statistics"`
	Cursors      []SubscriptionCursor `json:"cursors"`
}

// SubscriptionCursor is the progress in one legal entity. Sequences are decimal texts.
type SubscriptionCursor struct {
	LegalEntity string    `json:"legal_entity"`
	ReadThrough string    `json:"read_through"`
	Checkpoint  string    `json:"checkpoint"`
	Head        string    `json:"head"`
	LagEvents   int       `json:"lag_events"`
	LagSeconds  float64   `json:"lag_seconds"`
	InFlight    int       `json:"in_flight"`
	Waiting     int       `json:"waiting"`
	Parked      int       `json:"parked"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// ParkedMessage is a dead letter of a subscription.
type ParkedMessage struct {
	LegalEntity string          `json:"legal_entity"`
	Sequence    string          `json:"sequence"`
	EventID     string          `json:"event_id"`
	Consumer    string          `json:"consumer,omitempty"`
	Attempts    int             `json:"attempts"`
	Code        string          `json:"code"`
	Detail      string          `json:"detail,omitempty"`
	ParkedAt    time.Time       `json:"parked_at"`
	Event       json.RawMessage `json:"event,omitempty"`
}

// ParkedGroup counts dead letters with the same code.
type ParkedGroup struct {
	Code          string    `json:"code"`
	Messages      int       `json:"messages"`
	FirstParkedAt time.Time `json:"first_parked_at"`
	LastParkedAt  time.Time `json:"last_parked_at"`
}

// SettleParked says which dead letters to replay or to discard: those that are named,
// or All with a code or legal entity to narrow it.
type SettleParked struct {
	EventIDs    []string `json:"event_ids,omitempty"`
	All         bool     `json:"all,omitempty"`
	Code        string   `json:"code,omitempty"`
	LegalEntity string   `json:"legal_entity,omitempty"`
	Limit       int      `json:"limit,omitempty"` // of one step; 0: the server's
	Reason      string   `json:"reason,omitempty"`
}

// ResetSubscription is a position to move to.
type ResetSubscription struct {
	To        string            `json:"to"` // "beginning", "end", "position", "time", "cursor"
	Positions map[string]string `json:"positions,omitempty"`
	Time      string            `json:"time,omitempty"`
	Cursor    string            `json:"cursor,omitempty"`
}

const subscriptionsPath = "/api/subscriptions"

func subscriptionPath(id, rest string) string {
	return subscriptionsPath + "/" + url.PathEscape(id) + rest
}

// CreateSubscription makes a subscription; the same again changes nothing.
func (c *Client) CreateSubscription(ctx context.Context, s NewSubscription) (Subscription, error) {
	var out Subscription
	_, err := c.do(ctx, request{method: http.MethodPost, path: subscriptionsPath, body: s, repeatable: true}, &out)
	return out, err
}

// Subscriptions lists them by id.
func (c *Client) Subscriptions(ctx context.Context) ([]Subscription, error) {
	var out struct {
		Subscriptions []Subscription `json:"subscriptions"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: subscriptionsPath, repeatable: true}, &out)
	return out.Subscriptions, err
}

// Subscription reads one with its progress.
func (c *Client) Subscription(ctx context.Context, id string) (SubscriptionStatus, error) {
	var out SubscriptionStatus
	_, err := c.do(ctx, request{method: http.MethodGet, path: subscriptionPath(id, ""), repeatable: true}, &out)
	return out, err
}

// PauseSubscription stops handing out; ResumeSubscription goes on.
func (c *Client) PauseSubscription(ctx context.Context, id string) (Subscription, error) {
	return c.turnSubscription(ctx, id, "/pause")
}

// ResumeSubscription goes on after a pause or after the breaker opened.
func (c *Client) ResumeSubscription(ctx context.Context, id string) (Subscription, error) {
	return c.turnSubscription(ctx, id, "/resume")
}

func (c *Client) turnSubscription(ctx context.Context, id, verb string) (Subscription, error) {
	var out Subscription
	_, err := c.do(ctx, request{method: http.MethodPost, path: subscriptionPath(id, verb), repeatable: true}, &out)
	return out, err
}

// ResetSubscription moves a subscription to a position.
func (c *Client) ResetSubscription(ctx context.Context, id string, to ResetSubscription) (Subscription, error) {
	var out Subscription
	_, err := c.do(ctx, request{method: http.MethodPost, path: subscriptionPath(id, "/reset"), body: to}, &out)
	return out, err
}

// DeleteSubscription removes a subscription with all that is open and parked.
func (c *Client) DeleteSubscription(ctx context.Context, id string) error {
	var out struct{}
	_, err := c.do(ctx, request{method: http.MethodDelete, path: subscriptionPath(id, "")}, &out)
	return err
}

// Parked lists dead letters; next is the cursor of the page after, "" if there is none.
func (c *Client) Parked(ctx context.Context, id, code, cursor string, limit int) (page []ParkedMessage, next string, err error) {
	parameters := url.Values{}
	if code != "" {
		parameters.Set("code", code)
	}
	if cursor != "" {
		parameters.Set("cursor", cursor)
	}
	if limit > 0 {
		parameters.Set("limit", strconv.Itoa(limit))
	}
	var out struct {
		Messages   []ParkedMessage `json:"messages"`
		NextCursor string          `json:"next_cursor"`
	}
	_, err = c.do(ctx, request{method: http.MethodGet, path: subscriptionPath(id, "/parked"), query: parameters, repeatable: true}, &out)
	return out.Messages, out.NextCursor, err
}

// ParkedGroups counts dead letters by failure.
func (c *Client) ParkedGroups(ctx context.Context, id string) ([]ParkedGroup, error) {
	var out struct {
		Groups []ParkedGroup `json:"groups"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: subscriptionPath(id, "/parked/groups"), repeatable: true}, &out)
	return out.Groups, err
}

// ParkedMessage inspects one dead letter, with its event if the caller may read it.
func (c *Client) ParkedMessage(ctx context.Context, id, eventID string) (ParkedMessage, error) {
	var out ParkedMessage
	_, err := c.do(ctx, request{method: http.MethodGet, path: subscriptionPath(id, "/parked/"+url.PathEscape(eventID)), repeatable: true}, &out)
	return out, err
}

// ReplayParked hands dead letters out again, one bounded step; more says that the same
// question would find others.
func (c *Client) ReplayParked(ctx context.Context, id string, s SettleParked) (messages int, more bool, err error) {
	return c.settleParked(ctx, id, "/parked/replay", s)
}

// DiscardParked gives dead letters up, one bounded step.
func (c *Client) DiscardParked(ctx context.Context, id string, s SettleParked) (messages int, more bool, err error) {
	return c.settleParked(ctx, id, "/parked/discard", s)
}

func (c *Client) settleParked(ctx context.Context, id, verb string, s SettleParked) (messages int, more bool, err error) {
	var out struct {
		Messages int  `json:"messages"`
		HasMore  bool `json:"has_more"`
	}
	_, err = c.do(ctx, request{method: http.MethodPost, path: subscriptionPath(id, verb), body: s}, &out)
	return out.Messages, out.HasMore, err
}
