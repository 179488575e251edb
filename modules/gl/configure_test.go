package gl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

func TestPostJournal_Unconfigured(t *testing.T) {
	t.Parallel()
	b := newUnconfiguredLedger(t)
	b.refuse(t, "gl.ledger.not_configured", "gl_accountant", "gl.post_journal", examplePostJournal)
	b.refuse(t, "gl.ledger.not_configured", "ap_clerk", "ap.cause", cause("2026-03-15", "1"))
}

func TestConfigureLedger(t *testing.T) {
	t.Parallel()
	b := newUnconfiguredLedger(t)
	inEuro := strings.Replace(exampleConfigureLedger, `"functional_currency": "USD"`, `"functional_currency": "EUR"`, 1)
	b.execute(t, "admin", "gl.configure_ledger", inEuro)
	b.execute(t, "admin", "gl.configure_ledger", exampleConfigureLedger) // nothing posted yet
	b.execute(t, "controller", "gl.define_fiscal_year", exampleFiscalYear)
	b.execute(t, "admin", "gl.configure_ledger", exampleConfigureLedger)
	b.period(t, "open", "gl", "2026-03", "")
	b.execute(t, "admin", "gl.configure_ledger", inEuro)
	b.execute(t, "admin", "gl.configure_ledger", exampleConfigureLedger)
	for _, a := range exampleAccounts {
		b.execute(t, "gl_accountant", "gl.define_account", a)
	}
	b.execute(t, "gl_accountant", "gl.define_dimension_value", exampleDimensionValues[0])
	b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"))
	f := b.refuse(t, "gl.ledger.functional_currency_fixed", "admin", "gl.configure_ledger", inEuro)
	require.Equal(t, "USD", f.Attributes["functional_currency"])
	b.execute(t, "admin", "gl.configure_ledger", exampleConfigureLedger)
	for code, payload := range map[string]string{
		"money.currency_unsupported": `{"functional_currency": "XXX"}`,
		"money.scale":                `{"functional_currency": "USD", "tax_groups": {"S": {"rate": 19.0000001}}}`,
		"intent.schema_invalid":      `{"functional_currency": "USD", "posting_profile": {"bnak": "1000"}}`,
	} {
		b.refuse(t, code, "admin", "gl.configure_ledger", payload)
	}
}

func TestPostJournal_RoundingAccountMissing(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "admin", "gl.configure_ledger", strings.Replace(exampleConfigureLedger, `"rounding": "6990", `, "", 1))
	f := b.refuse(t, "gl.ledger.profile_missing", "gl_accountant", "gl.post_journal", `{
		"description": "x", "posting_date": "2026-03-15", "currency": "EUR", "dimensions": {"department": "ENG"}, "lines": [
		{"account": "6000", "debit_credit": "debit", "amount": 0.33}, {"account": "6000", "debit_credit": "debit", "amount": 0.33},
		{"account": "6000", "debit_credit": "debit", "amount": 0.33}, {"account": "1000", "debit_credit": "credit", "amount": 0.99}]}`)
	require.Equal(t, "rounding", f.Attributes["role"])
}

func TestChartAndDimensions(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.refuse(t, "gl.account.duplicate", "gl_accountant", "gl.define_account", exampleAccounts[0])
	b.refuse(t, "gl.account.not_found", "gl_accountant", "gl.define_account", `{"code": "7000", "name": "x", "type": "expense", "parent": "7"}`)
	b.refuse(t, "money.currency_unsupported", "gl_accountant", "gl.define_account", `{"code": "7000", "name": "x", "type": "expense", "currencies": ["QQQ"]}`)
	b.refuse(t, "gl.dimension_value.duplicate", "gl_accountant", "gl.define_dimension_value", exampleDimensionValues[0])
	b.refuse(t, "gl.account.not_found", "gl_accountant", "gl.block_account", `{"code": "9999", "reason": "x"}`)
	b.refuse(t, "gl.account.wrong_state", "gl_accountant", "gl.unblock_account", exampleBlockAccount)
	b.execute(t, "gl_accountant", "gl.block_account", exampleBlockAccount)
	b.refuse(t, "gl.account.wrong_state", "gl_accountant", "gl.block_account", exampleBlockAccount)
	b.execute(t, "gl_accountant", "gl.unblock_account", exampleBlockAccount)
	b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"))

	_, data := b.journal(t, b.execute(t, "gl_accountant", "gl.define_account", `{"code": "7000", "name": "x", "type": "income"}`))
	require.Equal(t, "credit", data["normal_side"])
	require.Equal(t, true, data["postable"])
	require.Equal(t, "none", data["control"])
}

// roles that exist, and who may submit which intent.
var (
	allRoles   = []string{"ap_clerk", "approver", "vendor_admin", "treasurer", "gl_accountant", "controller", "cfo", "admin", "auditor", "module", "importer"}
	submitters = map[string][]string{
		"gl.configure_ledger": {"admin"}, "gl.define_account": {"gl_accountant", "controller"},
		"gl.change_account": {"gl_accountant", "controller"},
		"gl.block_account":  {"gl_accountant", "controller"}, "gl.unblock_account": {"gl_accountant", "controller"},
		"gl.define_dimension_value": {"gl_accountant"}, "gl.define_fiscal_year": {"controller"},
		"gl.open_period": {"controller"}, "gl.close_period": {"controller"}, "gl.reopen_period": {"controller"},
		"gl.post_journal":             {"gl_accountant", "controller", "module"},
		"gl.load_opening_balances":    {"controller"},
		"gl.define_recurring_journal": {"gl_accountant"},
		"gl.run_recurring":            {"gl_accountant", "controller", "module"},
		"gl.post_intercompany":        {"gl_accountant", "controller"},
		"gl.mirror_intercompany":      {"gl_accountant", "controller", "module"},
		"gl.refuse_intercompany":      {"gl_accountant", "controller", "module"},
		"gl.run_due_reversals":        {"gl_accountant", "controller", "module"},
		"gl.reverse_journal":          {"gl_accountant", "controller", "module"}, "gl.set_exchange_rate": {"gl_accountant", "controller", "module"},
	}
)

func TestSubmitRoles(t *testing.T) {
	t.Parallel()
	b := newUnconfiguredLedger(t)
	for intentType, may := range submitters {
		for _, role := range allRoles {
			_, err := b.submit(role, intentType, `[]`)
			want := "intent.forbidden"
			for _, r := range may {
				if r == role {
					want = "intent.schema_invalid"
				}
			}
			require.Equal(t, want, fault.CodeOf(err), "%s by %s", intentType, role)
		}
	}
}

func TestSecondPerson(t *testing.T) {
	t.Parallel()
	b := newUnconfiguredLedger(t)
	strict := strings.Replace(exampleConfigureLedger, `"second_person": false`, `"second_person": true`, 1)
	waiting := b.pend(t, "admin", "gl.configure_ledger", strict)
	_, err := b.approve(t, "admin", waiting)
	require.Equal(t, "sod.same_person", fault.CodeOf(err))
	_, err = b.approve(t, "gl_accountant", waiting)
	require.Equal(t, "intent.forbidden", fault.CodeOf(err))
	_, err = b.approve(t, "admin:2", waiting)
	require.NoError(t, err)

	b.pend(t, "admin", "gl.configure_ledger", exampleConfigureLedger) // turning it off takes two as well
	waiting = b.pend(t, "controller", "gl.define_account", exampleAccounts[0])
	_, err = b.approve(t, "gl_accountant", waiting)
	require.Equal(t, "intent.forbidden", fault.CodeOf(err), "of the same or a higher role")
	waiting = b.pend(t, "gl_accountant", "gl.define_account", exampleAccounts[0])
	_, err = b.approve(t, "gl_accountant:2", waiting)
	require.NoError(t, err)
	b.execute(t, "gl_accountant", "gl.define_dimension_value", exampleDimensionValues[0])
	b.execute(t, "controller", "gl.define_fiscal_year", exampleFiscalYear)
	b.execute(t, "controller", "gl.open_period", exampleOpenPeriod)
	b.execute(t, "controller", "gl.open_period", `{"module": "gl", "period": "2026-03"}`)
	b.execute(t, "controller", "gl.close_period", exampleClosePeriod)
	b.pend(t, "controller", "gl.close_period", strings.Replace(exampleClosePeriod, "soft", "hard", 1))
	waiting = b.pend(t, "controller", "gl.reopen_period", exampleReopenPeriod)
	_, err = b.approve(t, "cfo", waiting)
	require.NoError(t, err)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	at := func(amount string) string { return twoLines(amount, amount, "USD", "2026-03-15") }
	b.execute(t, "gl_accountant", "gl.post_journal", at("10000.00"))
	b.execute(t, "controller", "gl.post_journal", at("1000000.00"))
	b.execute(t, "module", "gl.post_journal", at("2000000"))

	waiting := b.pend(t, "gl_accountant", "gl.post_journal", at("10000.01"))
	require.Equal(t, []string{"controller", "cfo"}, waiting.Needs[0].Roles)
	_, err := b.approve(t, "gl_accountant:2", waiting)
	require.Equal(t, "intent.forbidden", fault.CodeOf(err))
	out, err := b.approve(t, "controller", waiting)
	require.NoError(t, err)
	e, _ := b.journal(t, out)
	require.Contains(t, string(e.RulesEvaluated), `"rule_id":"gl.journal.limit","rule_name":"Journal over the preparer's limit","result":"fired"`)

	waiting = b.pend(t, "controller", "gl.post_journal", at("1000000.01"))
	_, err = b.approve(t, "controller:2", waiting)
	require.Equal(t, "intent.forbidden", fault.CodeOf(err))
	_, err = b.approve(t, "cfo", waiting)
	require.NoError(t, err)

	tight := strings.Replace(exampleConfigureLedger, `"limits": {"gl_accountant": 10000, "controller": 1000000, "cfo": null}`,
		`"limits": {"gl_accountant": 1, "controller": 2, "cfo": 3.50}`, 1)
	b.execute(t, "admin", "gl.configure_ledger", tight)
	require.Equal(t, []string{"cfo"}, b.pend(t, "controller", "gl.post_journal", at("3.50")).Needs[0].Roles)
	f := b.refuse(t, "gl.journal.over_limit", "controller", "gl.post_journal", at("3.51"))
	require.Equal(t, fault.Forbidden, f.Kind)
}

func TestPostJournal_LateAndOverLimit(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.period(t, "soft", "gl", "2026-03", "")
	waiting := b.pend(t, "gl_accountant", "gl.post_journal", twoLines("10000.01", "10000.01", "USD", "2026-03-15"))
	require.Len(t, waiting.Needs, 2)
	_, err := b.approve(t, "cfo", waiting)
	require.NoError(t, err, "one person may answer both")
	waiting = b.pend(t, "controller", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"))
	_, err = b.approve(t, "controller", waiting)
	require.Equal(t, "sod.same_person", fault.CodeOf(err), "who asks never lets it in")
	first, _ := b.journal(t, b.mustApprove(t, "controller:2", waiting))
	b.pend(t, "gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": "2026-03-15", "reason": "x"}`, first.Stream.ID))
}
