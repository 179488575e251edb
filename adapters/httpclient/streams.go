package httpclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// StreamRef names a stream of a legal entity.
type StreamRef struct{ LegalEntity, Type, ID string }

// StreamStatus is how a stream stands: active, deleted or tombstoned.
type StreamStatus struct {
	Stream          Stream          `json:"stream"`
	State           string          `json:"state"`
	Metadata        json.RawMessage `json:"metadata"`
	MetadataVersion int64           `json:"metadata_version,omitempty"` // of the event that set the metadata last; 0: none did
	ReadableFrom    int64           `json:"readable_from,omitempty"`    // version from which the stream is read; 0: the first
}

// StreamChange is what becomes of a stream, and the event that says so.
type StreamChange struct {
	Stream   Stream  `json:"stream"`
	State    string  `json:"state"`
	Event    Receipt `json:"event"`
	Replayed bool    `json:"-"`
}

// StreamOptions guard a change of a stream and say why it is made.
type StreamOptions struct {
	ExpectedVersion string // a number, no_stream, stream_exists, or "" for any
	Reason          string
	IdempotencyKey  string
}

func (s StreamRef) path() string {
	return "/api/streams/" + url.PathEscape(s.Type) + "/" + url.PathEscape(s.ID)
}

// StreamStatus tells how a stream stands.
func (c *Client) StreamStatus(ctx context.Context, s StreamRef) (StreamStatus, error) {
	var out StreamStatus
	_, err := c.do(ctx, request{method: http.MethodGet, path: s.path() + "/metadata", query: inEntity(s.LegalEntity), repeatable: true}, &out)
	return out, err
}

// DeleteStream deletes a stream, so that the next append begins it anew, or ends it
// for good.
func (c *Client) DeleteStream(ctx context.Context, s StreamRef, forGood bool, o StreamOptions) (StreamChange, error) {
	r := request{method: http.MethodDelete, path: s.path()}
	if forGood {
		r.query = url.Values{"hard": {"true"}}
	}
	return c.changeStream(ctx, s, r, o)
}

// SetStreamMetadata replaces a stream's metadata document.
func (c *Client) SetStreamMetadata(ctx context.Context, s StreamRef, metadata json.RawMessage, o StreamOptions) (StreamChange, error) {
	return c.changeStream(ctx, s, request{method: http.MethodPut, path: s.path() + "/metadata", body: metadata}, o)
}

func (c *Client) changeStream(ctx context.Context, s StreamRef, r request, o StreamOptions) (StreamChange, error) {
	if r.query == nil {
		r.query = url.Values{}
	}
	r.query.Set("legal_entity", s.LegalEntity)
	if o.Reason != "" {
		r.query.Set("reason", o.Reason)
	}
	r.header, r.repeatable = keyHeader(o.IdempotencyKey), o.IdempotencyKey != ""
	if o.ExpectedVersion != "" {
		if r.header == nil {
			r.header = http.Header{}
		}
		r.header.Set("Expected-Version", o.ExpectedVersion)
	}
	var out StreamChange
	answer, err := c.do(ctx, r, &out)
	out.Replayed = answer.replayed
	return out, err
}
