package httpclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// NewErasure asks for the personal data of a person to be erased.
type NewErasure struct {
	Subject       string   `json:"subject"`                  // "type:id"
	LegalEntities []string `json:"legal_entities,omitempty"` // none: all that the caller may see
	Basis         string   `json:"basis"`
	Reason        string   `json:"reason"`
	DueOn         string   `json:"due_on,omitempty"` // ISO date
}

// Erasure is an erasure request and how far it is. Times that have not come are
// zero.
type Erasure struct {
	ID            string         `json:"id"`
	Subject       string         `json:"subject"`
	LegalEntities []string       `json:"legal_entities"`
	Basis         string         `json:"basis"`
	Reason        string         `json:"reason"`
	Status        string         `json:"status"`
	Preview       ErasurePreview `json:"preview"`
	RequestedBy   string         `json:"requested_by"`
	RequestedAt   time.Time      `json:"requested_at"`
	DueOn         string         `json:"due_on"`              // ISO date
	DaysLeft      *int           `json:"days_left,omitempty"` // nil once it has ended
	ApprovedBy    string         `json:"approved_by,omitempty"`
	ApprovedAt    time.Time      `json:"approved_at,omitzero"`
	Classes       []ErasureClass `json:"classes"`
	Steps         []ErasureStep  `json:"steps"`
	DestroyedAt   time.Time      `json:"destroyed_at,omitzero"`
	CompletedAt   time.Time      `json:"completed_at,omitzero"`
	EndedBy       string         `json:"ended_by,omitempty"`
	EndReason     string         `json:"end_reason,omitempty"`
}

// ErasurePreview counts what an erasure concerns.
type ErasurePreview struct {
	Events        int64              `json:"events"`
	Intents       int64              `json:"intents"`
	Types         []ErasureTypeCount `json:"types"`
	LegalEntities []string           `json:"legal_entities"`
	Projections   []string           `json:"projections"`
	Holds         []Hold             `json:"holds"`
	Retained      []RetainedClass    `json:"retained"`
	CountedAt     time.Time          `json:"counted_at,omitzero"`
	Scope         string             `json:"scope,omitempty"` // what an approval is bound to
}

// ErasureTypeCount counts the records of one type.
type ErasureTypeCount struct {
	Type        string `json:"type"`
	LegalEntity string `json:"legal_entity"`
	Intent      bool   `json:"intent,omitempty"`
	Events      int64  `json:"events"`
	Fields      int64  `json:"fields"`
}

// RetainedClass is a retention class that must still be kept.
type RetainedClass struct {
	Class string `json:"class"`
	Until string `json:"until"` // ISO date
}

// ErasureClass is what happens to the data under one retention class.
type ErasureClass struct {
	Class   string `json:"class"`
	Erased  bool   `json:"erased"`
	Refused string `json:"refused,omitempty"` // "legal_hold", "retention"
	Until   string `json:"until,omitempty"`   // ISO date
}

// ErasureStep is one status on the way.
type ErasureStep struct {
	Step     string    `json:"step"`
	Done     bool      `json:"done"`
	At       time.Time `json:"at,omitzero"`
	Attempts int       `json:"attempts,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// NewHold asks for a person's data to be kept.
type NewHold struct {
	Subject       string   `json:"subject"`
	LegalEntities []string `json:"legal_entities,omitempty"` // none: all of the tenant
	Reason        string   `json:"reason"`
	Until         string   `json:"until,omitempty"` // ISO date, the last day
}

// Hold is a legal hold.
type Hold struct {
	ID          string    `json:"id"`
	Subject     string    `json:"subject"`
	LegalEntity string    `json:"legal_entity,omitempty"` // "": all of the tenant
	Reason      string    `json:"reason"`
	PlacedBy    string    `json:"placed_by"`
	PlacedAt    time.Time `json:"placed_at"`
	Until       string    `json:"until,omitempty"`
	ReleasedBy  string    `json:"released_by,omitempty"`
	ReleasedAt  time.Time `json:"released_at,omitzero"`
}

const (
	erasuresPath = "/api/erasure-requests"
	holdsPath    = "/api/legal-holds"
)

func erasurePath(id, verb string) string {
	path := erasuresPath + "/" + url.PathEscape(id)
	if verb != "" {
		path += "/" + verb
	}
	return path
}

// RequestErasure asks for an erasure. With a key it may be sent again safely.
func (c *Client) RequestErasure(ctx context.Context, e NewErasure, idempotencyKey string) (Erasure, error) {
	var out Erasure
	_, err := c.do(ctx, request{method: http.MethodPost, path: erasuresPath, body: e, header: keyHeader(idempotencyKey), repeatable: idempotencyKey != ""}, &out)
	return out, err
}

// ApproveErasure lets an erasure begin, if it still has the scope of the preview that
// was seen. Approving again changes nothing.
func (c *Client) ApproveErasure(ctx context.Context, id, scope string) (Erasure, error) {
	body := struct {
		Scope string `json:"scope,omitempty"`
	}{scope}
	var out Erasure
	_, err := c.do(ctx, request{method: http.MethodPost, path: erasurePath(id, "approve"), body: body, repeatable: true}, &out)
	return out, err
}

// RejectErasure ends a request as the second person.
func (c *Client) RejectErasure(ctx context.Context, id, reason string) (Erasure, error) {
	return c.endErasure(ctx, id, "reject", reason)
}

// WithdrawErasure takes a request back.
func (c *Client) WithdrawErasure(ctx context.Context, id, reason string) (Erasure, error) {
	return c.endErasure(ctx, id, "withdraw", reason)
}

func (c *Client) endErasure(ctx context.Context, id, verb, reason string) (Erasure, error) {
	body := struct {
		Reason string `json:"reason"`
	}{reason}
	var out Erasure
	_, err := c.do(ctx, request{method: http.MethodPost, path: erasurePath(id, verb), body: body, repeatable: true}, &out)
	return out, err
}

// Erasure reads a request.
func (c *Client) Erasure(ctx context.Context, id string) (Erasure, error) {
	var out Erasure
	_, err := c.do(ctx, request{method: http.MethodGet, path: erasurePath(id, ""), repeatable: true}, &out)
	return out, err
}

// Erasures lists requests, newest first. No statuses: all; limit 0: the server's.
func (c *Client) Erasures(ctx context.Context, statuses []string, limit int) ([]Erasure, error) {
	parameters := url.Values{}
	if len(statuses) > 0 {
		parameters.Set("status", strings.Join(statuses, ","))
	}
	if limit > 0 {
		parameters.Set("limit", strconv.Itoa(limit))
	}
	var out struct {
		Requests []Erasure `json:"erasure_requests"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: erasuresPath, query: parameters, repeatable: true}, &out)
	return out.Requests, err
}

// ErasureCertificate gives the certificate's bytes as they were signed.
func (c *Client) ErasureCertificate(ctx context.Context, id string) ([]byte, error) {
	var out json.RawMessage
	answer, err := c.do(ctx, request{method: http.MethodGet, path: erasurePath(id, "certificate"), repeatable: true}, &out)
	return answer.body, err
}

// PlaceHold keeps a person's data from being erased.
func (c *Client) PlaceHold(ctx context.Context, h NewHold) ([]Hold, error) {
	var out struct {
		Holds []Hold `json:"legal_holds"`
	}
	_, err := c.do(ctx, request{method: http.MethodPost, path: holdsPath, body: h}, &out)
	return out.Holds, err
}

// ReleaseHold ends a hold.
func (c *Client) ReleaseHold(ctx context.Context, id string) (Hold, error) {
	var out Hold
	_, err := c.do(ctx, request{method: http.MethodPost, path: holdsPath + "/" + url.PathEscape(id) + "/release", repeatable: true}, &out)
	return out, err
}

// Holds lists the holds in force on a person.
func (c *Client) Holds(ctx context.Context, subject string) ([]Hold, error) {
	var out struct {
		Holds []Hold `json:"legal_holds"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: holdsPath, query: url.Values{"subject": {subject}}, repeatable: true}, &out)
	return out.Holds, err
}
