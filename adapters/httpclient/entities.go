package httpclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// EntityQuery names an entity and what is to be read of it. "" is the server's
// default.
type EntityQuery struct {
	LegalEntity, Type, ID string
	Consistency           string // strong, verified, eventual
	AsOf                  string // ISO date
	KnownAt               string // RFC 3339 time or seq:<n>
}

// EntityState is the folded state of an entity. Sequences are decimal texts.
type EntityState struct {
	Entity struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	} `json:"entity"`
	LegalEntity  string          `json:"legal_entity"`
	State        json.RawMessage `json:"state"`
	Version      string          `json:"version"`
	AsOfSequence string          `json:"as_of_sequence"`
	HeadVersion  string          `json:"head_version"`
	EventCount   int             `json:"event_count"`
	Consistency  string          `json:"consistency"`
	AsOf         string          `json:"as_of,omitempty"`
	KnownAt      string          `json:"known_at,omitempty"`
	Snapshot     *EntitySnapshot `json:"snapshot"`
	EventsFolded int             `json:"events_folded"`
}

// EntitySnapshot is where a fold began.
type EntitySnapshot struct {
	Version          string `json:"version"`
	AsOfSequence     string `json:"as_of_sequence"`
	EventCount       int    `json:"event_count"`
	EffectiveThrough string `json:"effective_through"`
	CreatedAt        string `json:"created_at"`
	SizeBytes        int    `json:"size_bytes"`
}

// Entity reads the state of an entity.
func (c *Client) Entity(ctx context.Context, q EntityQuery) (EntityState, error) {
	values := url.Values{"legal_entity": {q.LegalEntity}}
	for name, value := range map[string]string{"consistency": q.Consistency, "as_of": q.AsOf, "known_at": q.KnownAt} {
		if value != "" {
			values.Set(name, value)
		}
	}
	var out EntityState
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: "/api/entities/" + url.PathEscape(q.Type) + "/" + url.PathEscape(q.ID), query: values, repeatable: true,
	}, &out)
	return out, err
}
