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

// Projection is a projection and how it fares. Counts are decimal strings.
type Projection struct {
	Name          string                    `json:"name"`
	Version       int                       `json:"version"`
	LegalEntity   string                    `json:"legal_entity,omitempty"` // the only one that the version is about; "": all
	Current       bool                      `json:"current"`
	Role          string                    `json:"role"`
	Status        string                    `json:"status"`
	EventTypes    []string                  `json:"event_types"`
	Definition    json.RawMessage           `json:"definition,omitempty"` // of one that was created
	Settings      ProjectionSettings        `json:"settings"`
	CreatedAt     time.Time                 `json:"created_at"`
	ChangedAt     time.Time                 `json:"changed_at"`
	ChangedBy     string                    `json:"changed_by"`
	LagEvents     string                    `json:"lag_events"`
	LagSeconds    float64                   `json:"lag_seconds"`
	Faulted       int                       `json:"faulted"`
	Retrying      int                       `json:"retrying"`
	Processed     string                    `json:"processed"`
	Skipped       string                    `json:"skipped"`
	Failed        string                    `json:"failed"`
	LegalEntities []ProjectionInLegalEntity `json:"legal_entities,omitempty"`
}

// ProjectionInLegalEntity is how a projection fares in one legal entity.
type ProjectionInLegalEntity struct {
	LegalEntity   string    `json:"legal_entity"`
	Status        string    `json:"status"`
	Sequence      string    `json:"sequence"`
	Head          string    `json:"head"`
	LagEvents     string    `json:"lag_events"`
	LagSeconds    float64   `json:"lag_seconds"`
	Code          string    `json:"code,omitempty"`
	Attempts      int       `json:"attempts"`
	NextAttemptAt time.Time `json:"next_attempt_at,omitzero"`
	LastFailedAt  time.Time `json:"last_failed_at,omitzero"`
	LastEventAt   time.Time `json:"last_event_at,omitzero"`
	UpdatedAt     time.Time `json:"updated_at,omitzero"`
	Node          string    `json:"node,omitempty"`
	Processed     string    `json:"processed"`
	Skipped       string    `json:"skipped"`
	Failed        string    `json:"failed"`
}

// ProjectionSettings are how a projection is run. A zero member is the default.
type ProjectionSettings struct {
	BatchSize  int `json:"batch_size,omitempty"`
	Checkpoint struct {
		Mode   string `json:"mode,omitempty"`
		Events int    `json:"events,omitempty"`
		WaitMS int    `json:"wait_ms,omitempty"`
	} `json:"checkpoint,omitzero"`
	MaxAttempts    int    `json:"max_attempts,omitempty"`
	RetryMS        int    `json:"retry_ms,omitempty"`
	RetryMaxMS     int    `json:"retry_max_ms,omitempty"`
	OnPoison       string `json:"on_poison,omitempty"`
	SingleInstance bool   `json:"single_instance,omitempty"`
}

// ProjectionCommand is what is done to a projection.
type ProjectionCommand struct {
	Version     int    `json:"version,omitempty"`      // 0: the one that readers are shown
	LegalEntity string `json:"legal_entity,omitempty"` // "": all
	Reason      string `json:"reason,omitempty"`
}

func projectionPath(name string, more ...string) string {
	return strings.Join(append([]string{"/api/admin/projections", url.PathEscape(name)}, more...), "/")
}

// Projections lists the projections, without their legal entities.
func (c *Client) Projections(ctx context.Context) ([]Projection, error) {
	var out struct {
		Projections []Projection `json:"projections"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/admin/projections"}, &out)
	return out.Projections, err
}

// Projection reads one with its legal entities.
func (c *Client) Projection(ctx context.Context, name string) (Projection, error) {
	var out Projection
	_, err := c.do(ctx, request{method: http.MethodGet, path: projectionPath(name)}, &out)
	return out, err
}

// OperateProjection does start, pause, resume, stop, reset, fix or skip.
func (c *Client) OperateProjection(ctx context.Context, name, action string, command ProjectionCommand) (Projection, error) {
	var out Projection
	_, err := c.do(ctx, request{method: http.MethodPost, path: projectionPath(name, url.PathEscape(action)), body: command}, &out)
	return out, err
}

// ConfigureProjection replaces the settings.
func (c *Client) ConfigureProjection(ctx context.Context, name string, s ProjectionSettings) (Projection, error) {
	var out Projection
	_, err := c.do(ctx, request{method: http.MethodPut, path: projectionPath(name, "settings"), body: s}, &out)
	return out, err
}

// DeadLetter is an event that a reader of the log could not digest.
type DeadLetter struct {
	Kind          string    `json:"kind"`
	Name          string    `json:"name"`
	Version       int       `json:"version"`
	LegalEntity   string    `json:"legal_entity"`
	Sequence      string    `json:"sequence"`
	EventID       string    `json:"event_id"`
	Code          string    `json:"code"`
	Detail        string    `json:"detail,omitempty"`
	Attempts      int       `json:"attempts"`
	FirstFailedAt time.Time `json:"first_failed_at"`
	LastFailedAt  time.Time `json:"last_failed_at"`
	Status        string    `json:"status"`
	SettledAt     time.Time `json:"settled_at,omitzero"`
	SettledBy     string    `json:"settled_by,omitempty"`
	Reason        string    `json:"reason,omitempty"`
}

// DeadLetterFilter chooses dead letters; a zero field chooses all.
type DeadLetterFilter struct {
	Kind     string
	Name     string
	Statuses []string
	Limit    int
	Cursor   string
}

// DeadLetters lists a page; next is "" on the last one.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) (page []DeadLetter, next string, err error) {
	parameters := url.Values{}
	for name, value := range map[string]string{"kind": f.Kind, "name": f.Name, "status": strings.Join(f.Statuses, ","), "cursor": f.Cursor} {
		if value != "" {
			parameters.Set(name, value)
		}
	}
	if f.Limit > 0 {
		parameters.Set("limit", strconv.Itoa(f.Limit))
	}
	var out struct {
		DeadLetters []DeadLetter `json:"dead_letters"`
		NextCursor  string       `json:"next_cursor"`
	}
	_, err = c.do(ctx, request{method: http.MethodGet, path: "/api/admin/dead-letters", query: parameters}, &out)
	return out.DeadLetters, out.NextCursor, err
}

// ProjectionTrial is what became of a definition, and what it made of events that are
// there: of those it looked at, Events counted.
type ProjectionTrial struct {
	Name      string `json:"name"`
	Version   int    `json:"version"`
	Shown     int    `json:"shown,omitempty"` // to readers, of a projection that is changed
	Unchanged bool   `json:"unchanged,omitempty"`
	DryRun    bool   `json:"dry_run"`
	LookedAt  int    `json:"looked_at"`
	Events    int    `json:"events"`
	Trial     []struct {
		LegalEntity string          `json:"legal_entity"`
		Events      int             `json:"events"`
		RowCount    int             `json:"row_count"`
		Rows        []ProjectionRow `json:"rows,omitempty"`
	} `json:"trial"`
	Warnings []struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
		Field  string `json:"field"`
	} `json:"warnings"`
}

// ProjectionRow is the state of a key.
type ProjectionRow struct {
	Key      string          `json:"key"`
	State    json.RawMessage `json:"state"`
	Sequence string          `json:"sequence"`
}

// ProjectionRows is a page of rows.
type ProjectionRows struct {
	Projection  string          `json:"projection"`
	Version     int             `json:"version"`
	LegalEntity string          `json:"legal_entity"`
	Sequence    string          `json:"sequence"`
	Rows        []ProjectionRow `json:"rows"`
	HasMore     bool            `json:"has_more"`
	NextCursor  string          `json:"next_cursor,omitempty"`
}

// ProjectionRowsQuery chooses rows; a zero field chooses all.
type ProjectionRowsQuery struct {
	LegalEntity string
	Key         string
	Prefix      string
	MinSequence string
	Limit       int
	Cursor      string
}

// CreateProjection makes a projection of a definition, or only tries it.
func (c *Client) CreateProjection(ctx context.Context, definition json.RawMessage, dryRun, untried bool) (ProjectionTrial, error) {
	var out ProjectionTrial
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: "/api/admin/projections", query: flags(map[string]bool{"dry_run": dryRun, "untried": untried}), body: definition,
	}, &out)
	return out, err
}

// ChangeProjection builds a version of a projection by another definition, or only tries
// it. With switchTo it is shown once it has caught up.
func (c *Client) ChangeProjection(ctx context.Context, name string, definition json.RawMessage, dryRun, untried, switchTo bool) (ProjectionTrial, error) {
	var out ProjectionTrial
	_, err := c.do(ctx, request{
		method: http.MethodPut, path: projectionPath(name), query: flags(map[string]bool{"dry_run": dryRun, "untried": untried, "switch": switchTo}), body: definition,
	}, &out)
	return out, err
}

// flags are the parameters that are set.
func flags(set map[string]bool) url.Values {
	parameters := url.Values{}
	for name, yes := range set {
		if yes {
			parameters.Set(name, "true")
		}
	}
	return parameters
}

// DeleteProjection deletes a projection of the tenant's own.
func (c *Client) DeleteProjection(ctx context.Context, name string) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, path: projectionPath(name)}, nil)
	return err
}

// ProjectionRows reads a page of rows.
func (c *Client) ProjectionRows(ctx context.Context, name string, q ProjectionRowsQuery) (ProjectionRows, error) {
	parameters := url.Values{}
	for parameter, value := range map[string]string{
		"legal_entity": q.LegalEntity, "key": q.Key, "prefix": q.Prefix, "min_sequence": q.MinSequence, "cursor": q.Cursor,
	} {
		if value != "" {
			parameters.Set(parameter, value)
		}
	}
	if q.Limit > 0 {
		parameters.Set("limit", strconv.Itoa(q.Limit))
	}
	var out ProjectionRows
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/api/projections/" + url.PathEscape(name), query: parameters}, &out)
	return out, err
}
