package httpclient

import (
	"context"
	"net/http"
	"net/url"
)

// LeftOut says where an answer stops before its end: reason depth, count,
// size, legal_entity, missing or cycle, at the last event that is shown there, if it is a
// single one.
type LeftOut struct {
	Reason  string `json:"reason"`
	EventID string `json:"event_id,omitempty"`
}

// Lineage is a chain of causes, root first, the event asked for last.
type Lineage struct {
	Events    []Event   `json:"lineage"`
	Truncated bool      `json:"truncated"`
	LeftOut   []LeftOut `json:"left_out"`
}

// Lineage reads an event's causes.
func (c *Client) Lineage(ctx context.Context, legalEntity, id string) (Lineage, error) {
	var out Lineage
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/events/" + url.PathEscape(id) + "/lineage", query: inEntity(legalEntity), repeatable: true}, &out)
	return out, err
}

// Descendants is the tree of what an event led to, level by level.
type Descendants struct {
	Events    []Descendant `json:"descendants"`
	Count     int          `json:"count"`
	Truncated bool         `json:"truncated"`
	LeftOut   []LeftOut    `json:"left_out"`
}

// Descendant is an effect and the id of the event that caused it.
type Descendant struct {
	Event  Event  `json:"event"`
	Parent string `json:"parent"`
	Depth  int    `json:"depth"`
}

// Descendants reads what an event led to.
func (c *Client) Descendants(ctx context.Context, legalEntity, id string) (Descendants, error) {
	var out Descendants
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/events/" + url.PathEscape(id) + "/descendants", query: inEntity(legalEntity), repeatable: true}, &out)
	return out, err
}

// Process is everything that happened under one correlation id.
type Process struct {
	CorrelationID string        `json:"correlation_id"`
	Events        []Event       `json:"events"`
	Steps         []ProcessStep `json:"steps"`
	DurationMS    float64       `json:"process_duration_ms"`
	Actors        []string      `json:"actors_involved"`
	Entities      []Entity      `json:"entities_involved"`
	Truncated     bool          `json:"truncated"`
	LeftOut       []LeftOut     `json:"left_out"`
}

// ProcessStep tells when an event was recorded, in milliseconds after the first one
// and after the one before it.
type ProcessStep struct {
	EventID         string  `json:"event_id"`
	SinceStartMS    float64 `json:"since_start_ms"`
	SincePreviousMS float64 `json:"since_previous_ms"`
}

// Process traces a business process through the legal entities that the caller sees.
func (c *Client) Process(ctx context.Context, correlationID string) (Process, error) {
	var out Process
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/events/process/" + url.PathEscape(correlationID), repeatable: true}, &out)
	return out, err
}
