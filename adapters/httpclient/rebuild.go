package httpclient

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// ProjectionRebuild is how the versions of a projection stand to each other.
type ProjectionRebuild struct {
	Name     string              `json:"name"`
	Active   int                 `json:"active"`
	Retained int                 `json:"retained,omitempty"`
	Dropping []int               `json:"dropping"`
	Building *ProjectionBuilding `json:"building,omitempty"`
}

// ProjectionBuilding is how far a version that is built has come. Counts are decimal
// strings.
type ProjectionBuilding struct {
	Version         int       `json:"version"`
	Status          string    `json:"status"`
	StartedAt       time.Time `json:"started_at"`
	StartedBy       string    `json:"started_by"`
	Switch          bool      `json:"switch"`
	DoneEvents      string    `json:"done_events"`
	TotalEvents     string    `json:"total_events"`
	EventsPerSecond float64   `json:"events_per_second"`
	SecondsLeft     float64   `json:"seconds_left,omitempty"`
	CaughtUp        bool      `json:"caught_up"`
	Faulted         int       `json:"faulted"`
}

// ProjectionComparison is in what two versions differ. Counts are decimal strings.
type ProjectionComparison struct {
	Name          string                 `json:"name"`
	Left          int                    `json:"left"`
	Right         int                    `json:"right"`
	Rows          string                 `json:"rows"`
	LegalEntities []ProjectionDifference `json:"legal_entities"`
	NotCompared   []string               `json:"not_compared"`
	OnlyLeft      []string               `json:"only_left,omitempty"`  // legal entities that only this version reads
	OnlyRight     []string               `json:"only_right,omitempty"` // and this one
}

// ProjectionDifference is in what they differ in one legal entity.
type ProjectionDifference struct {
	LegalEntity string                      `json:"legal_entity"`
	Sequence    string                      `json:"sequence"`
	Tables      []ProjectionTableDifference `json:"tables"`
}

// ProjectionTableDifference is in what they differ in a table.
type ProjectionTableDifference struct {
	Table     string                    `json:"table"`
	LeftRows  string                    `json:"left_rows"`
	RightRows string                    `json:"right_rows"`
	OnlyLeft  string                    `json:"only_left"`
	OnlyRight string                    `json:"only_right"`
	Changed   string                    `json:"changed"`
	Examples  []ProjectionRowDifference `json:"examples,omitempty"`
}

// ProjectionRowDifference is a row that differs.
type ProjectionRowDifference struct {
	Key     json.RawMessage `json:"key"`
	In      string          `json:"in"`
	Columns []string        `json:"columns,omitempty"`
}

// ProjectionRebuild reads how the versions stand.
func (c *Client) ProjectionRebuild(ctx context.Context, name string) (ProjectionRebuild, error) {
	var out ProjectionRebuild
	_, err := c.do(ctx, request{method: http.MethodGet, path: projectionPath(name, "rebuild")}, &out)
	return out, err
}

// RebuildProjection begins to build a version beside the one that is shown.
func (c *Client) RebuildProjection(ctx context.Context, name string, switchTo bool) (ProjectionRebuild, error) {
	var out ProjectionRebuild
	_, err := c.do(ctx, request{method: http.MethodPost, path: projectionPath(name, "rebuild"), body: map[string]bool{"switch": switchTo}}, &out)
	return out, err
}

// SwitchProjection shows readers the version that was built, or with back the one
// before.
func (c *Client) SwitchProjection(ctx context.Context, name string, back, force bool) (ProjectionRebuild, error) {
	step := "switch"
	if back {
		step = "rollback"
	}
	var out ProjectionRebuild
	_, err := c.do(ctx, request{method: http.MethodPost, path: projectionPath(name, step), body: map[string]bool{"force": force}}, &out)
	return out, err
}

// RemoveProjectionVersion ends a rebuild, or with retained removes the version that is
// kept.
func (c *Client) RemoveProjectionVersion(ctx context.Context, name string, retained bool) (ProjectionRebuild, error) {
	step := "cancel"
	if retained {
		step = "drop"
	}
	var out ProjectionRebuild
	_, err := c.do(ctx, request{method: http.MethodPost, path: projectionPath(name, step)}, &out)
	return out, err
}

// CompareProjection compares two versions row by row. examples 0 is the server's
// default.
func (c *Client) CompareProjection(ctx context.Context, name string, examples int) (ProjectionComparison, error) {
	var out ProjectionComparison
	_, err := c.do(ctx, request{method: http.MethodPost, path: projectionPath(name, "compare"), body: map[string]int{"examples": examples}}, &out)
	return out, err
}
