package httpclient

import (
	"context"
	"net/http"
)

// ProjectionRowsCommand says whose rows of a projection are folded anew.
type ProjectionRowsCommand struct {
	LegalEntity string            `json:"legal_entity,omitempty"`
	Entity      *ProjectionEntity `json:"entity,omitempty"`
	Subject     string            `json:"subject,omitempty"`
	Version     int               `json:"version,omitempty"`
	DryRun      bool              `json:"dry_run,omitempty"`
}

// ProjectionEntity is an entity by its stream.
type ProjectionEntity struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// ProjectionRowsRebuilt is what was folded anew. Counts are decimal strings.
type ProjectionRowsRebuilt struct {
	Name    string                 `json:"name"`
	DryRun  bool                   `json:"dry_run"`
	Rows    string                 `json:"rows"`
	Rebuilt []ProjectionRowsResult `json:"rebuilt"`
	LeftOut []int                  `json:"left_out"`
}

// ProjectionRowsResult is what was folded anew in one version and legal entity.
type ProjectionRowsResult struct {
	Version     int                         `json:"version"`
	LegalEntity string                      `json:"legal_entity"`
	Entities    string                      `json:"entities"`
	Sequence    string                      `json:"sequence"`
	Events      string                      `json:"events"`
	PassedOver  string                      `json:"passed_over"`
	Tables      []ProjectionTableDifference `json:"tables"`
}

// RebuildProjectionRows folds rows anew.
func (c *Client) RebuildProjectionRows(ctx context.Context, name string, command ProjectionRowsCommand) (ProjectionRowsRebuilt, error) {
	var out ProjectionRowsRebuilt
	_, err := c.do(ctx, request{method: http.MethodPost, path: projectionPath(name, "rebuild-rows"), body: command}, &out)
	return out, err
}
