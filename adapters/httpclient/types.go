package httpclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// NewEventType is a version of an event type as it is registered. Its members stand
// in the order in which files of types have them.
type NewEventType struct {
	Type               string                      `json:"type"`
	SchemaVersion      uint32                      `json:"schema_version"`
	Module             string                      `json:"module"`
	Description        string                      `json:"description,omitempty"`
	RetentionClass     eventtype.RetentionClass    `json:"retention_class,omitempty"`
	MinRetentionYears  int                         `json:"minimum_retention_years,omitempty"`
	DataSchema         json.RawMessage             `json:"data_schema"`
	RequiredDimensions []string                    `json:"required_dimensions,omitempty"`
	OptionalDimensions []string                    `json:"optional_dimensions,omitempty"`
	RequiredEntityRefs []eventtype.RequiredRef     `json:"required_entity_refs,omitempty"`
	PIIFields          []eventtype.PIIField        `json:"pii_fields,omitempty"`
	BusinessKeys       []eventtype.BusinessKeyRule `json:"business_keys,omitempty"`
	Upcasters          []eventtype.Upcaster        `json:"upcasters,omitempty"`
	Examples           []json.RawMessage           `json:"examples,omitempty"`
}

// ofRegistry is a version with what a check of it gave.
type ofRegistry struct {
	NewEventType
	Proof string `json:"proof,omitempty"`
}

// NewEventTypeOf takes out of a registration what was given to register it.
func NewEventTypeOf(r eventtype.Registration) NewEventType {
	return NewEventType{
		Type: r.Type, SchemaVersion: r.SchemaVersion, Module: r.Module, Description: r.Description, RetentionClass: r.RetentionClass,
		MinRetentionYears: r.MinRetentionYears, DataSchema: r.DataSchema, RequiredDimensions: r.RequiredDimensions,
		OptionalDimensions: r.OptionalDimensions, RequiredEntityRefs: r.RequiredEntityRefs, PIIFields: r.PIIFields,
		BusinessKeys: r.BusinessKeys, Examples: r.Examples, Upcasters: r.Upcasters,
	}
}

// Registration is the type as the registry knows it.
func (t NewEventType) Registration() eventtype.Registration {
	return eventtype.Registration{
		Type: t.Type, SchemaVersion: t.SchemaVersion, Module: t.Module, Description: t.Description, RetentionClass: t.RetentionClass,
		MinRetentionYears: t.MinRetentionYears, DataSchema: t.DataSchema, RequiredDimensions: t.RequiredDimensions,
		OptionalDimensions: t.OptionalDimensions, RequiredEntityRefs: t.RequiredEntityRefs, PIIFields: t.PIIFields,
		BusinessKeys: t.BusinessKeys, Examples: t.Examples, Upcasters: t.Upcasters,
	}
}

// EventTypeCheck is what registering a version would come to.
type EventTypeCheck struct {
	Type          string                 `json:"type"`
	SchemaVersion uint32                 `json:"schema_version"`
	Verdict       string                 `json:"verdict"`                 // "new_type", "new_version", "unchanged", "refused"
	ComparedWith  uint32                 `json:"compared_with,omitempty"` // 0: with nothing
	Compatible    *bool                  `json:"compatible,omitempty"`
	Differences   []eventtype.Difference `json:"differences"`
	Truncated     bool                   `json:"truncated,omitempty"`
	Findings      []fault.Violation      `json:"findings"`
	// Proof is how far stored events of earlier versions were looked at; nil if nothing is
	// to be proven.
	Proof *UpcastProof `json:"proof,omitempty"`
}

// UpcastProof is how far it is proven that stored events can be read in a version.
type UpcastProof struct {
	Examples   int             `json:"examples"`
	Events     int             `json:"events_scanned"`
	Partitions int             `json:"partitions"`
	Done       int             `json:"partitions_done"`
	Failures   []UpcastFailure `json:"failures"`
	Elsewhere  int             `json:"failures_elsewhere,omitempty"`
	Failed     bool            `json:"failed"`
	Complete   bool            `json:"complete"`
	NextCursor string          `json:"next_cursor,omitempty"` // sent along, the next check goes on
	Proof      string          `json:"proof,omitempty"`       // sent along, the version is registered
}

// UpcastFailure is an event, or an example, that cannot be read in a version.
type UpcastFailure struct {
	EventID       string `json:"event_id,omitempty"`
	LegalEntity   string `json:"legal_entity,omitempty"`
	Sequence      string `json:"sequence,omitempty"`
	Example       *int   `json:"example,omitempty"`
	SchemaVersion uint32 `json:"schema_version"`
	Code          string `json:"code"`
	Pointer       string `json:"pointer"`
}

// EventTypeChange is one change of a version in the registry's log.
type EventTypeChange struct {
	Number         string    `json:"number"`
	Type           string    `json:"type"`
	Event          string    `json:"event"`
	SchemaVersion  uint32    `json:"schema_version"`
	DocumentSHA256 string    `json:"document_sha256"`
	Actor          string    `json:"actor"`
	Reason         string    `json:"reason,omitempty"`
	At             time.Time `json:"at"`
	Checksum       string    `json:"checksum"`
}

const eventTypesPath = "/api/event-types"

func eventTypePath(name, verb string) string {
	return eventTypesPath + "/" + url.PathEscape(name) + "/" + verb
}

// EventTypes lists all versions of all types.
func (c *Client) EventTypes(ctx context.Context) ([]eventtype.Registration, error) {
	var out struct {
		Types []eventtype.Registration `json:"event_types"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: eventTypesPath, repeatable: true}, &out)
	return out.Types, err
}

// RegisterEventType registers a version, with the proof that a check gave or "". With a
// key it may be sent again safely.
func (c *Client) RegisterEventType(ctx context.Context, t NewEventType, proof, idempotencyKey string) (eventtype.Registration, error) {
	var out struct {
		Type eventtype.Registration `json:"event_type"`
	}
	_, err := c.do(ctx, request{method: http.MethodPost, path: eventTypesPath, body: ofRegistry{t, proof}, header: keyHeader(idempotencyKey), repeatable: idempotencyKey != ""}, &out)
	return out.Type, err
}

// CheckEventType asks what registering a version would find. It goes on behind the
// cursor of the check before, if that was not complete; "" begins.
func (c *Client) CheckEventType(ctx context.Context, t NewEventType, cursor string) (EventTypeCheck, error) {
	var out EventTypeCheck
	_, err := c.do(ctx, request{method: http.MethodPost, path: eventTypesPath + "/check", body: ofRegistry{t, cursor}, repeatable: true}, &out)
	return out, err
}

// DeprecateEventType takes no more events of a version, or of all when it is 0.
func (c *Client) DeprecateEventType(ctx context.Context, name string, version uint32, reason string) ([]eventtype.Registration, error) {
	return c.changeEventType(ctx, name, "deprecate", version, reason)
}

// ReactivateEventType takes events of a version, or of all when it is 0, again.
func (c *Client) ReactivateEventType(ctx context.Context, name string, version uint32, reason string) ([]eventtype.Registration, error) {
	return c.changeEventType(ctx, name, "reactivate", version, reason)
}

func (c *Client) changeEventType(ctx context.Context, name, verb string, version uint32, reason string) ([]eventtype.Registration, error) {
	body := struct {
		SchemaVersion uint32 `json:"schema_version,omitempty"`
		Reason        string `json:"reason,omitempty"`
	}{version, reason}
	var out struct {
		Versions []eventtype.Registration `json:"versions"`
	}
	_, err := c.do(ctx, request{method: http.MethodPost, path: eventTypePath(name, verb), body: body, repeatable: true}, &out)
	return out.Versions, err
}

// EventTypeHistory lists who changed what of a type, of all types when the name is
// empty, oldest first.
func (c *Client) EventTypeHistory(ctx context.Context, name string) ([]EventTypeChange, error) {
	var out struct {
		Changes []EventTypeChange `json:"changes"`
	}
	path := eventTypesPath + "/history"
	if name != "" {
		path = eventTypePath(name, "history")
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: path, repeatable: true}, &out)
	return out.Changes, err
}
