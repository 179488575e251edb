package gl_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/gl/adapters/plugin"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// TestRunDueReversals_OnPostgres posts many numbers of one series in one batch, on PostgreSQL.
func TestRunDueReversals_OnPostgres(t *testing.T) {
	t.Parallel()
	b := moduletest.NewOnPostgres(t, plugin.New())
	b.Execute("admin", "gl.configure_ledger", `{"functional_currency": "EUR", "default_dimensions": {"department": "OPS"}, "second_person": false}`)
	for _, account := range []string{"1000", "2100"} {
		b.Execute("gl_accountant", "gl.define_account", fmt.Sprintf(`{"code": %q, "name": "Account", "type": "asset"}`, account))
	}
	b.Execute("gl_accountant", "gl.define_dimension_value", `{"dimension": "department", "value": "OPS", "name": "Operations"}`)
	b.Execute("controller", "gl.define_fiscal_year", `{"label": "2026", "start": "2026-01-01", "end": "2026-12-31"}`)
	b.Execute("controller", "gl.open_period", `{"module": "gl", "period": "2026-01"}`)
	for i := range 5 {
		b.Execute("gl_accountant", "gl.post_journal", fmt.Sprintf(`{"description": "Accrual", "posting_date": "2026-01-1%d", "reversal_date": "2026-01-31", "lines": [
			{"account": "1000", "debit_credit": "debit", "amount": 5}, {"account": "2100", "debit_credit": "credit", "amount": 5}]}`, i))
	}
	require.Len(t, b.Execute("module", "gl.run_due_reversals", `{"through": "2026-01-31"}`).Events, 10)
	require.Empty(t, b.Execute("module", "gl.run_due_reversals", `{"through": "2026-01-31"}`).Events)
	var rows []struct {
		Number string `json:"journal_number"`
	}
	b.Report("gl/accounts/{account}/ledger", map[string]string{"account": "1000"}, &rows)
	var numbers []string
	for _, r := range rows {
		numbers = append(numbers, r.Number)
	}
	require.Equal(t, []string{"RV-2026-000001", "RV-2026-000002", "RV-2026-000003", "RV-2026-000004", "RV-2026-000005"}, numbers[5:])
}
