package httpclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Source says where a request comes from: system, channel, document.
type Source struct {
	System    string `json:"system"`
	Channel   string `json:"channel"`
	Reference string `json:"reference,omitempty"`
}

// Intent is what a module is asked to do.
type Intent struct {
	Type          string  `json:"type"`
	LegalEntity   string  `json:"legal_entity"`
	Payload       any     `json:"payload"`                  // encoded as JSON; json.RawMessage passes as it is
	EffectiveDate string  `json:"effective_date,omitempty"` // ISO date
	CorrelationID string  `json:"correlation_id,omitempty"`
	CausedBy      string  `json:"caused_by,omitempty"`
	Source        *Source `json:"source,omitempty"`
	DryRun        bool    `json:"dry_run,omitempty"`
}

// Outcome is what became of an intent.
type Outcome struct {
	IntentID      string          `json:"intent_id"`
	Status        string          `json:"status"`
	Events        []IntentEvent   `json:"events"`
	Rules         []Rule          `json:"rules"`
	CorrelationID string          `json:"correlation_id"`
	PlanHash      string          `json:"plan_hash"`
	Needs         []Need          `json:"needs"`
	Drafts        json.RawMessage `json:"drafts"`
	Replayed      bool            `json:"-"` // the idempotency key was known
}

// Rule is a rule that looked at an intent, and what it did.
type Rule struct {
	RuleID       string   `json:"rule_id"`
	RuleName     string   `json:"rule_name"`
	Result       string   `json:"result"`
	ActionsTaken []string `json:"actions_taken"`
}

// Approval is one person's decision on an intent.
type Approval struct {
	PersonID string    `json:"person_id"`
	Role     string    `json:"role"`
	Decision string    `json:"decision"`
	Comment  string    `json:"comment"`
	At       time.Time `json:"at"`
}

// IntentEvent is an event that an intent made.
type IntentEvent struct {
	ID            string `json:"id"`
	Type          string `json:"type"`
	Sequence      string `json:"sequence"`
	Stream        string `json:"stream"` // "type/id"
	StreamVersion uint64 `json:"stream_version"`
}

// Need says whose approval an intent waits for.
type Need struct {
	Roles  []string `json:"roles"`
	Reason string   `json:"reason"`
	RuleID string   `json:"rule_id"`
}

// StoredIntent is an intent as read back.
type StoredIntent struct {
	Outcome
	Type        string          `json:"type"`
	LegalEntity string          `json:"legal_entity"`
	Payload     json.RawMessage `json:"payload"`
	Actor       Actor           `json:"actor"`
	Approvals   []Approval      `json:"approvals"`
	Refusal     *struct {
		Code   string `json:"code"`
		Kind   string `json:"kind"`
		Detail string `json:"detail"`
	} `json:"refusal"`
	Revision int `json:"revision"`
}

// SubmitIntent sends an intent. With a key it may be sent again safely, and is
// when the connection breaks.
func (c *Client) SubmitIntent(ctx context.Context, in Intent, idempotencyKey string) (Outcome, error) {
	var out Outcome
	r := request{method: http.MethodPost, path: "/api/intents", body: in, header: keyHeader(idempotencyKey), repeatable: idempotencyKey != "" || in.DryRun}
	answer, err := c.do(ctx, r, &out)
	out.Replayed = answer.replayed
	return out, err
}

func keyHeader(key string) http.Header {
	if key == "" {
		return nil
	}
	return http.Header{"Idempotency-Key": {key}}
}

// GetIntent reads an intent; legalEntity "" searches all that the caller may see.
func (c *Client) GetIntent(ctx context.Context, legalEntity, id string) (StoredIntent, error) {
	var out StoredIntent
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/intents/" + url.PathEscape(id), query: inEntity(legalEntity), repeatable: true}, &out)
	return out, err
}

func inEntity(code string) url.Values {
	if code == "" {
		return nil
	}
	return url.Values{"legal_entity": {code}}
}

// Approve lets a waiting intent through. planHash "" accepts the plan as it is
// now.
func (c *Client) Approve(ctx context.Context, legalEntity, id, planHash, comment string) (Outcome, error) {
	body := struct {
		PlanHash string `json:"plan_hash,omitempty"`
		Comment  string `json:"comment,omitempty"`
	}{planHash, comment}
	var out Outcome
	_, err := c.do(ctx, request{method: http.MethodPost, path: "/api/intents/" + url.PathEscape(id) + "/approve", query: inEntity(legalEntity), body: body}, &out)
	return out, err
}

// Reject ends a waiting intent.
func (c *Client) Reject(ctx context.Context, legalEntity, id, reason string) (Outcome, error) {
	body := struct {
		Reason string `json:"reason"`
	}{reason}
	var out Outcome
	_, err := c.do(ctx, request{method: http.MethodPost, path: "/api/intents/" + url.PathEscape(id) + "/reject", query: inEntity(legalEntity), body: body}, &out)
	return out, err
}

// NewEvent is an event to append. ExpectedVersion is a number, "no_stream",
// "stream_exists", "any", or nil.
type NewEvent struct {
	Type                string            `json:"type"`
	SchemaVersion       uint32            `json:"schema_version,omitempty"`
	OccurredAt          *time.Time        `json:"occurred_at,omitempty"`
	EffectiveDate       string            `json:"effective_date,omitempty"`
	Scope               Scope             `json:"scope"`
	Stream              Stream            `json:"stream"`
	ExpectedVersion     any               `json:"expected_version,omitempty"`
	CausedBy            string            `json:"caused_by,omitempty"`
	CausedByLegalEntity string            `json:"caused_by_legal_entity,omitempty"`
	CorrelationID       string            `json:"correlation_id,omitempty"`
	Data                any               `json:"data"`
	Dimensions          map[string]string `json:"dimensions,omitempty"`
	Entities            []Entity          `json:"entities,omitempty"`
	Tags                []string          `json:"tags,omitempty"`
	Source              *Source           `json:"source,omitempty"`
}

// Scope places an event in the organisation.
type Scope struct {
	TenantID    string            `json:"tenant_id,omitempty"` // of events that are read
	LegalEntity string            `json:"legal_entity"`
	Division    string            `json:"division,omitempty"`
	Region      string            `json:"region,omitempty"`
	Site        string            `json:"site,omitempty"`
	Custom      map[string]string `json:"custom,omitempty"`
}

// Stream names a stream; Version is set on events that are read.
type Stream struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Version uint64 `json:"version,omitempty"`
}

// Entity is what an event is about.
type Entity struct {
	Type string `json:"entity_type"`
	ID   string `json:"entity_id"`
	Role string `json:"role"`
}

// Receipt tells where an event went.
type Receipt struct {
	ID            string    `json:"id"`
	Sequence      string    `json:"sequence"`
	StreamVersion uint64    `json:"stream_version"`
	RecordedAt    time.Time `json:"recorded_at"`
	Checksum      string    `json:"checksum"`
}

// Append writes a batch of raw events, all or nothing.
func (c *Client) Append(ctx context.Context, events []NewEvent, idempotencyKey string) (receipts []Receipt, replayed bool, err error) {
	body := struct {
		Events []NewEvent `json:"events"`
	}{events}
	var out struct {
		Events []Receipt `json:"events"`
	}
	r := request{method: http.MethodPost, path: "/api/events", body: body, header: keyHeader(idempotencyKey), repeatable: idempotencyKey != ""}
	answer, err := c.do(ctx, r, &out)
	return out.Events, answer.replayed, err
}

// Event is an event as read.
type Event struct {
	ID                  string            `json:"id"`
	Type                string            `json:"type"`
	SchemaVersion       uint32            `json:"schema_version"`
	Sequence            string            `json:"sequence"`
	Stream              Stream            `json:"stream"`
	OccurredAt          time.Time         `json:"occurred_at"`
	RecordedAt          time.Time         `json:"recorded_at"`
	EffectiveDate       string            `json:"effective_date"`
	Scope               Scope             `json:"scope"`
	Actor               Actor             `json:"actor"`
	CausedBy            string            `json:"caused_by"`
	CausedByLegalEntity string            `json:"caused_by_legal_entity"`
	IntentID            string            `json:"intent_id"`
	CorrelationID       string            `json:"correlation_id"`
	Data                json.RawMessage   `json:"data"`
	Dimensions          map[string]string `json:"dimensions"`
	Entities            []Entity          `json:"entities"`
	Metadata            Metadata          `json:"metadata"`
}

// Actor says who did it.
type Actor struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Metadata is what the log adds to an event.
type Metadata struct {
	RulesEvaluated []Rule            `json:"rules_evaluated"`
	PII            map[string]string `json:"pii"`
	Tags           []string          `json:"tags"`
	Source         Source            `json:"source"`
	Checksum       string            `json:"checksum"`
	PayloadHash    string            `json:"payload_hash"`
}

// EventPage is a page of events.
type EventPage struct {
	Events     []Event `json:"events"`
	HasMore    bool    `json:"has_more"`
	NextCursor string  `json:"next_cursor"`
}

// Events reads a page: stream_type, stream_id, legal_entity and the filters of
// GET /api/events, under their names in the API.
func (c *Client) Events(ctx context.Context, parameters url.Values) (EventPage, error) {
	var out EventPage
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/events", query: parameters, repeatable: true}, &out)
	return out, err
}

// Event reads one event; legalEntity "" searches all that the caller may see.
func (c *Client) Event(ctx context.Context, legalEntity, id string) (Event, error) {
	var out struct {
		Event Event `json:"event"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/events/" + url.PathEscape(id), query: inEntity(legalEntity), repeatable: true}, &out)
	return out.Event, err
}

// ReadModel asks a read model by its path, "ap/open-items" or
// "gl/accounts/2000/ledger", and decodes the report into out.
func (c *Client) ReadModel(ctx context.Context, path string, parameters url.Values, out any) error {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/" + strings.Join(parts, "/"), query: parameters, repeatable: true}, out)
	return err
}
