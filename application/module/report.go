package module

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
)

// CodeNotCaughtUp is the code of a read whose read model has not reached the sequence in time.
const CodeNotCaughtUp = "read.not_caught_up"

// CodeReportUnbound is the code of a read model without a source, and of any read in a pipeline
// without read models, such as the in-memory one of module tests.
const CodeReportUnbound = "report.unbound"

// MaxReportRows bounds the rows that State.Report returns.
const MaxReportRows = 100_000

// ReportRead asks State.Report for the rows of a read model.
type ReportRead struct {
	Path   string            // "gl/trial-balance": the module's own, or one that another module's contract offers
	Params map[string]string // declared parameters, path parameters included
	AsOf   event.Date        // effective axis, inclusive; 0 is today in the legal entity's zone
	// Items select the events that the rows are computed from, at least one item. An item too
	// many only makes the plan again; one too few lets a plan take effect on outdated rows.
	Items []concurrency.Item
}

// ReportRows reads the rows of a read model as values of T, which names their members by json
// tags. Members that T does not have are left out. See State.Report.
func ReportRows[T any](ctx context.Context, s State, r ReportRead) ([]T, error) {
	rows, err := s.Report(ctx, r)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(rows)
	if err != nil {
		return nil, fmt.Errorf("rows of read model %s: %w", r.Path, err)
	}
	out := make([]T, 0, len(rows))
	if err := json.Unmarshal(encoded, &out); err != nil {
		return nil, fmt.Errorf("rows of read model %s: %w", r.Path, err)
	}
	return out, nil
}
