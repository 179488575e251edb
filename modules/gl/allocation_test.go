package gl_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const rentAllocation = `{"allocation_id": "rent", "description": "Rent by floor space", "source": {"account": "6000", "dimensions": {"department": "OPS"}},
	"targets": [{"dimensions": {"department": "ENG"}, "percent": 66.7}, {"dimensions": {"department": "FIN"}, "percent": 33.3}], "valid_to": "2025-06-30"}`

func TestAllocation(t *testing.T) {
	t.Parallel()
	f := newYearFixture(t)
	run := func(period string) string { return fmt.Sprintf(`{"allocation_id": "rent", "period": %q}`, period) }
	f.Refuse("gl.allocation.not_found", "gl_accountant", "gl.run_allocation", run("2025-03"))
	f.Refuse("gl.allocation.percent_mismatch", "gl_accountant", "gl.define_allocation",
		`{"allocation_id": "x", "description": "x", "source": {"account": "6000"}, "targets": [{"percent": 33.33}, {"percent": 66.66}]}`)
	f.Refuse("gl.allocation.validity_invalid", "gl_accountant", "gl.define_allocation",
		`{"allocation_id": "x", "description": "x", "source": {"account": "6000"}, "targets": [{"percent": 100}], "valid_from": "2025-03-01", "valid_to": "2025-02-28"}`)
	f.Refuse("gl.account.not_found", "gl_accountant", "gl.define_allocation",
		`{"allocation_id": "x", "description": "x", "source": {"account": "6000"}, "targets": [{"account": "6001", "percent": 100}]}`)
	f.Refuse("intent.forbidden", "controller", "gl.define_allocation", rentAllocation)
	f.Execute("gl_accountant", "gl.define_allocation", rentAllocation)
	f.Refuse("gl.period.undefined", "gl_accountant", "gl.run_allocation", run("1999-01"))
	f.Refuse("gl.allocation.source_empty", "gl_accountant", "gl.run_allocation", run("2025-03"))
	f.Refuse("gl.allocation.not_valid", "gl_accountant", "gl.run_allocation", run("2025-07"))

	for _, journal := range []string{
		entry("2025-03-10", "6000", "USD", "100.01", `{"department": "OPS"}`),
		entry("2025-03-11", "6000", "USD", "50", `{"department": "OPS", "project": "P-1"}`),
		entry("2025-03-12", "6000", "EUR", "10", `{"department": "OPS"}`), // 11 USD
		entry("2025-03-12", "6000", "USD", "7", `{"department": "ENG"}`),  // no part of the source
		entry("2025-02-12", "6000", "USD", "8", `{"department": "OPS"}`),  // of another period
	} {
		f.Execute("gl_accountant", "gl.post_journal", journal)
	}
	ran := f.Execute("gl_accountant", "gl.run_allocation", run("2025-03"))
	require.Len(t, ran.Events, 2)
	march := func() (out []string) {
		var rows []balanceRow
		f.ReportAsOf("gl/balances", "2025-03-31", map[string]string{"account": "6000", "from": "2025-03-01"}, &rows)
		for _, r := range rows {
			out = append(out, fmt.Sprint(r.Currency, " ", r.Dimensions, " ", r.Balance, " ", r.FunctionalBalance))
		}
		return out
	}
	require.ElementsMatch(t, []string{
		"USD map[department:ENG] 107.06 107.06", // 7 + 66.7 % of 150.01
		"USD map[department:FIN] 49.95 49.95",
		"EUR map[department:ENG] 6.67 7.34",
		"EUR map[department:FIN] 3.33 3.66",
	}, march())
	f.Refuse("gl.allocation.already_run", "gl_accountant", "gl.run_allocation", run("2025-03"))

	f.Execute("gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": "2025-03-31", "reason": "Other percents"}`, ran.Events[0].Stream.ID))
	f.Execute("gl_accountant", "gl.define_allocation", `{"allocation_id": "rent", "description": "Rent", "source": {"account": "6000", "dimensions": {"department": "OPS"}},
		"targets": [{"account": "6990", "percent": 100}]}`)
	f.Execute("gl_accountant", "gl.run_allocation", run("2025-03"))
	require.Equal(t, []string{"USD map[department:ENG] 7.00 7.00"}, march())

	// A softly closed period asks for an approval, as for any posting.
	f.period("soft", "2025-02")
	waiting := f.Pend("gl_accountant", "gl.run_allocation", run("2025-02"))
	_, err := f.Approve("cfo", waiting)
	require.NoError(t, err)
}
