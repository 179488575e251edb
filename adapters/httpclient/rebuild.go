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
	// LegalEntities are those of which there are versions of their own.
	LegalEntities []ProjectionPart     `json:"legal_entities,omitempty"`
	Snapshots     []ProjectionSnapshot `json:"snapshots,omitempty"` // newest first
}

// Of is how the versions of a legal entity's own stand; "": those of all.
func (b ProjectionRebuild) Of(legalEntity string) (retained int, building *ProjectionBuilding) {
	if legalEntity == "" {
		return b.Retained, b.Building
	}
	for _, part := range b.LegalEntities {
		if part.LegalEntity == legalEntity {
			return part.Retained, part.Building
		}
	}
	return 0, nil
}

// ProjectionPart is how the versions of one legal entity alone stand.
type ProjectionPart struct {
	LegalEntity string              `json:"legal_entity"`
	Retained    int                 `json:"retained,omitempty"`
	Building    *ProjectionBuilding `json:"building,omitempty"`
}

// ProjectionSnapshot is a frozen copy of what readers were shown. Counts are decimal
// strings.
type ProjectionSnapshot struct {
	Version       int                      `json:"version"`
	LegalEntity   string                   `json:"legal_entity,omitempty"` // "": all
	Complete      bool                     `json:"complete"`
	Outdated      bool                     `json:"outdated"` // made by another handler or definition
	StartedAt     time.Time                `json:"started_at"`
	StartedBy     string                   `json:"started_by"`
	RowCount      string                   `json:"row_count"`
	LegalEntities []ProjectionSnapshotPart `json:"legal_entities"`
}

// ProjectionSnapshotPart is what a snapshot holds of a legal entity.
type ProjectionSnapshotPart struct {
	LegalEntity string     `json:"legal_entity"`
	Sequence    string     `json:"sequence"`
	RowCount    string     `json:"row_count"`
	Usable      bool       `json:"usable"`
	TakenAt     *time.Time `json:"taken_at,omitempty"`
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
	FromSnapshot    int       `json:"from_snapshot,omitempty"`
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

// RebuildOrder is what a rebuild is about.
type RebuildOrder struct {
	Switch       bool   `json:"switch"`                  // once it has caught up
	LegalEntity  string `json:"legal_entity,omitempty"`  // "": all
	FromSnapshot string `json:"from_snapshot,omitempty"` // version of a snapshot, or latest; "": from the beginning
}

// RebuildProjection begins to build a version beside the one that is shown.
func (c *Client) RebuildProjection(ctx context.Context, name string, o RebuildOrder) (ProjectionRebuild, error) {
	return c.onVersions(ctx, name, "rebuild", o)
}

func (c *Client) onVersions(ctx context.Context, name, step string, body any) (out ProjectionRebuild, err error) {
	_, err = c.do(ctx, request{method: http.MethodPost, path: projectionPath(name, step), body: body}, &out)
	return out, err
}

// SnapshotProjection begins to take a snapshot of what readers are shown, in one legal
// entity or, for "", in all.
func (c *Client) SnapshotProjection(ctx context.Context, name, legalEntity string) (ProjectionRebuild, error) {
	return c.onVersions(ctx, name, "snapshot", legalEntityBody(legalEntity))
}

// DropProjectionSnapshot removes a snapshot. legalEntity is the one that it is about.
func (c *Client) DropProjectionSnapshot(ctx context.Context, name, legalEntity string, version int) (ProjectionRebuild, error) {
	body := legalEntityBody(legalEntity)
	body["snapshot"] = version
	return c.onVersions(ctx, name, "drop", body)
}

// legalEntityBody names a legal entity if there is one.
func legalEntityBody(legalEntity string) map[string]any {
	body := map[string]any{}
	if legalEntity != "" {
		body["legal_entity"] = legalEntity
	}
	return body
}

// SwitchProjection shows readers the version that was built, or with back the one
// before, in one legal entity or, for "", in all.
func (c *Client) SwitchProjection(ctx context.Context, name, legalEntity string, back, force bool) (ProjectionRebuild, error) {
	step := "switch"
	if back {
		step = "rollback"
	}
	body := legalEntityBody(legalEntity)
	body["force"] = force
	return c.onVersions(ctx, name, step, body)
}

// RemoveProjectionVersion ends a rebuild, or with retained removes the version that is
// kept.
func (c *Client) RemoveProjectionVersion(ctx context.Context, name, legalEntity string, retained bool) (ProjectionRebuild, error) {
	step := "cancel"
	if retained {
		step = "drop"
	}
	return c.onVersions(ctx, name, step, legalEntityBody(legalEntity))
}

// CompareProjection compares two versions row by row, or what was built for one legal
// entity alone. examples 0 is the server's default.
func (c *Client) CompareProjection(ctx context.Context, name, legalEntity string, examples int) (ProjectionComparison, error) {
	body := legalEntityBody(legalEntity)
	body["examples"] = examples
	var out ProjectionComparison
	_, err := c.do(ctx, request{method: http.MethodPost, path: projectionPath(name, "compare"), body: body}, &out)
	return out, err
}
