package gl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func opening(amount string) string {
	return fmt.Sprintf(`{"date": "2026-03-01", "dimensions": {"department": "ENG"}, "lines": [
		{"account": "1000", "debit_credit": "debit", "amount": %s}, {"account": "2400", "debit_credit": "credit", "amount": %s}]}`, amount, amount)
}

func TestLoadOpeningBalances(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	first, data := b.journal(t, b.execute(t, "controller", "gl.load_opening_balances", opening("500.00")))
	require.Equal(t, "OB-2026-000001", data["journal_number"])
	require.Equal(t, "opening", data["journal_type"])
	require.Equal(t, "Opening balances", data["description"])
	require.Equal(t, "2026-03-01", first.EffectiveDate.String())

	f := b.refuse(t, "gl.journal.duplicate_opening", "controller", "gl.load_opening_balances", opening("1"))
	require.Equal(t, "OB-2026-000001", f.Attributes["journal_number"])
	b.execute(t, "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, first.Stream.ID))
	_, data = b.journal(t, b.execute(t, "controller", "gl.load_opening_balances", opening("501.00")))
	require.Equal(t, "OB-2026-000002", data["journal_number"])
	b.refuse(t, "gl.journal.duplicate_opening", "controller", "gl.load_opening_balances", opening("1"))
}

func TestLoadOpeningBalances_Refusals(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.refuse(t, "gl.account.control_account", "controller", "gl.load_opening_balances", strings.Replace(opening("5"), "2400", "2000", 1))
	b.refuse(t, "gl.journal.unbalanced", "controller", "gl.load_opening_balances", strings.Replace(opening("5"), `"amount": 5`, `"amount": 4`, 1))
	b.refuse(t, "gl.period.not_open", "controller", "gl.load_opening_balances", strings.Replace(opening("5"), "2026-03-01", "2026-02-01", 1))
	b.refuse(t, "intent.schema_invalid", "controller", "gl.load_opening_balances", strings.Replace(opening("5"), "date", "posting_date", 1))
	b.execute(t, "admin", "gl.configure_ledger", strings.Replace(exampleConfigureLedger, `"second_person": false`, `"second_person": true`, 1))
	waiting := b.pend(t, "controller", "gl.load_opening_balances", opening("2000000"))
	require.Len(t, waiting.Needs, 2, "second person and limit")
	b.mustApprove(t, "cfo", waiting)
}
