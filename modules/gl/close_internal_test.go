package gl

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// CheckProblem compares the problem documents of refusals, see TestMain.
var CheckProblem func(testing.TB, error)

// checklistState is a state that has the close checklist only.
type checklistState struct {
	module.State
	rows []any
}

func (s checklistState) Report(context.Context, module.ReportRead) ([]any, error) { return s.rows, nil }

// TestCheckChecklist: an open item that blocks a hard close refuses it, whichever module added it;
// an item that informs does not.
func TestCheckChecklist(t *testing.T) {
	t.Parallel()
	p := periodContext{
		calendar: domain.NewCalendar(nil),
		span:     domain.PeriodSpan{Period: "2026-03", Start: event.MustDate("2026-03-01"), End: event.MustDate("2026-03-31")},
	}
	informs := contract.NewChecklistRow("stock", "counts", contract.BlocksNothing, "count", []string{"C-1"})
	done := contract.NewChecklistRow("stock", "transfers", contract.BlocksHardClose, "receive", nil)
	open := contract.NewChecklistRow("stock", "transfers", contract.BlocksHardClose, "receive", []string{"T-1", "T-2"})
	require.NoError(t, p.checkChecklist(t.Context(), checklistState{rows: []any{informs, done}}))
	err := p.checkChecklist(t.Context(), checklistState{rows: []any{informs, done, open}})
	CheckProblem(t, err)
	f, _ := fault.As(err)
	require.Equal(t, "gl.period.checklist_open", f.Code)
	require.Equal(t, []string{"stock/transfers"}, f.Attributes["items"])
	require.Contains(t, f.Detail, "stock/transfers (2): receive")
}
