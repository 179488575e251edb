package gl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
)

// newPair is two legal entities, USMF and DEMF, with accounts for what they owe each other.
func newPair(t *testing.T) (us, de *ledgerFixture) {
	t.Helper()
	us = newLedger(t)
	de = us.otherLedger(t, "DEMF")
	profile := strings.Replace(exampleConfigureLedger, `"bank": "1000"`, `"bank": "1000", "due_from": "1910", "due_to": "2910"`, 1)
	for _, b := range []*ledgerFixture{us, de} {
		b.execute(t, "gl_accountant", "gl.define_account", `{"code": "1910", "name": "Due from affiliates", "type": "asset"}`)
		b.execute(t, "gl_accountant", "gl.define_account", `{"code": "2910", "name": "Due to affiliates", "type": "liability"}`)
		b.execute(t, "admin", "gl.configure_ledger", profile)
	}
	return us, de
}

// paidFor is a bill of DEMF that USMF paid.
func paidFor(amount string) string {
	return fmt.Sprintf(`{"counterparty": "DEMF", "description": "Insurance for 2026", "posting_date": "2026-03-15", "currency": "EUR", "amount": %s,
		"lines": [{"account": "1000", "debit_credit": "credit", "amount": %s}],
		"counterparty_lines": [{"account": "6000", "debit_credit": "debit", "amount": %s, "dimensions": {"department": "ENG"}}]}`, amount, amount, amount)
}

// journalLines writes the lines of an intent's journal as "debit 1910 100.00 EUR".
func (b *ledgerFixture) journalLines(t *testing.T, out pipeline.Outcome) []string {
	t.Helper()
	_, data := b.journal(t, out)
	require.Equal(t, "intercompany", data["journal_type"])
	var got []string
	for _, raw := range data["lines"].([]any) {
		l := raw.(map[string]any)
		got = append(got, fmt.Sprint(l["debit_credit"], " ", l["account"], " ", l["amount"], " ", l["currency"]))
	}
	return got
}

func TestIntercompany(t *testing.T) {
	t.Parallel()
	us, de := newPair(t)
	posted := us.execute(t, "gl_accountant", "gl.post_intercompany", paidFor("100.00"))
	require.Equal(t, []string{"credit 1000 100.00 EUR", "debit 1910 100.00 EUR"}, us.journalLines(t, posted))
	require.Equal(t, "gl.intercompany.initiated", posted.Events[1].Type)
	pair := posted.Events[1].Stream.ID
	mirror := fmt.Sprintf(`{"pair_id": %q, "initiator": "USMF"}`, pair)

	// A due side cannot be reversed alone, and nothing is refused here before it is refused there.
	reverse := fmt.Sprintf(`{"journal_id": %q, "reason": "x"}`, posted.Events[0].Stream.ID)
	us.refuse(t, "gl.intercompany.wrong_state", "gl_accountant", "gl.reverse_journal", reverse)
	f := us.refuse(t, "gl.intercompany.wrong_state", "gl_accountant", "gl.refuse_intercompany", fmt.Sprintf(`{"pair_id": %q, "reason": "x"}`, pair))
	require.Equal(t, []string{"refused"}, f.Attributes["allowed_states"])

	mirrored := de.execute(t, "module", "gl.mirror_intercompany", mirror)
	require.Equal(t, []string{"debit 6000 100.00 EUR", "credit 2910 100.00 EUR"}, de.journalLines(t, mirrored))
	require.Equal(t, posted.CorrelationID, mirrored.CorrelationID, "one process")
	e, data := de.journal(t, mirrored)
	require.Equal(t, posted.Events[1].ID, e.CausedBy)
	require.Equal(t, us.entity.Partition, e.CausedByPartition)
	require.Equal(t, "IC-2026-000001", data["journal_number"])
	require.Equal(t, "Insurance for 2026", data["description"])
	require.Equal(t, "2026-03-15", e.EffectiveDate.String())

	f = de.refuse(t, "gl.intercompany.wrong_state", "module", "gl.mirror_intercompany", mirror)
	require.Equal(t, "mirrored", f.Attributes["state"])
	de.refuse(t, "gl.intercompany.wrong_state", "module", "gl.refuse_intercompany", strings.Replace(mirror, "{", `{"reason": "x", `, 1))
	us.refuse(t, "gl.intercompany.wrong_state", "module", "gl.refuse_intercompany", fmt.Sprintf(`{"pair_id": %q, "reason": "x"}`, pair))
	us.refuse(t, "gl.intercompany.wrong_state", "gl_accountant", "gl.reverse_journal", reverse)
	de.refuse(t, "gl.intercompany.wrong_state", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "reason": "x"}`, e.Stream.ID))
}

// TestIntercompany_Refused: the counterparty's period is closed, so the pair is refused in
// both legal entities and the first side is reversed.
func TestIntercompany_Refused(t *testing.T) {
	t.Parallel()
	us, de := newPair(t)
	posted := us.execute(t, "gl_accountant", "gl.post_intercompany", paidFor("100.00"))
	pair := posted.Events[1].Stream.ID
	mirror := fmt.Sprintf(`{"pair_id": %q, "initiator": "USMF"}`, pair)
	de.period(t, "hard", "gl", "2026-03", "")
	de.refuse(t, "gl.period.hard_closed", "module", "gl.mirror_intercompany", mirror)

	there := de.execute(t, "gl_accountant", "gl.refuse_intercompany", strings.Replace(mirror, "{", `{"reason": "March is closed", `, 1))
	require.Equal(t, posted.CorrelationID, there.CorrelationID)
	here := us.execute(t, "gl_accountant", "gl.refuse_intercompany", fmt.Sprintf(`{"pair_id": %q, "reason": "March is closed in DEMF"}`, pair))
	require.Equal(t, posted.CorrelationID, here.CorrelationID)
	us.refuse(t, "gl.intercompany.wrong_state", "gl_accountant", "gl.refuse_intercompany", fmt.Sprintf(`{"pair_id": %q, "reason": "again"}`, pair))
	de.refuse(t, "gl.intercompany.wrong_state", "module", "gl.mirror_intercompany", mirror)
	us.execute(t, "gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "reason": "refused"}`, posted.Events[0].Stream.ID))
}

func TestPostIntercompany_OwedToTheCounterparty(t *testing.T) {
	t.Parallel()
	us, de := newPair(t)
	posted := us.execute(t, "controller", "gl.post_intercompany", strings.NewReplacer(
		`"account": "1000", "debit_credit": "credit"`, `"account": "1000", "debit_credit": "debit"`,
		`"account": "6000", "debit_credit": "debit"`, `"account": "6000", "debit_credit": "credit"`).Replace(paidFor("7")))
	require.Equal(t, []string{"debit 1000 7 EUR", "credit 2910 7 EUR"}, us.journalLines(t, posted))
	mirrored := de.execute(t, "gl_accountant", "gl.mirror_intercompany", fmt.Sprintf(`{"pair_id": %q, "initiator": "USMF"}`, posted.Events[1].Stream.ID))
	require.Equal(t, []string{"credit 6000 7 EUR", "debit 1910 7 EUR"}, de.journalLines(t, mirrored))
}

func TestIntercompany_Refusals(t *testing.T) {
	t.Parallel()
	us, de := newPair(t)
	for name, c := range map[string]struct{ code, payload string }{
		"unknown counterparty":    {"gl.intercompany.unknown_entity", strings.Replace(paidFor("5"), "DEMF", "FRMF", 1)},
		"own legal entity":        {"gl.intercompany.unknown_entity", strings.Replace(paidFor("5"), "DEMF", "USMF", 1)},
		"another amount":          {"gl.intercompany.amount_mismatch", strings.Replace(paidFor("5"), `"amount": 5`, `"amount": 6`, 1)},
		"sides do not offset":     {"gl.intercompany.amount_mismatch", strings.Replace(paidFor("5"), `"debit_credit": "debit"`, `"debit_credit": "credit"`, 1)},
		"amount 0":                {"gl.intercompany.amount_mismatch", paidFor("0")},
		"counterparty's decimals": {"money.scale", strings.Replace(paidFor("5"), `"amount": 5, "dimensions"`, `"amount": 5.001, "dimensions"`, 1)},
		"account here":            {"gl.account.not_found", strings.Replace(paidFor("5"), `"1000"`, `"1001"`, 1)},
		"blank text":              {"text.blank", strings.Replace(paidFor("5"), "Insurance for 2026", " ", 1)},
	} {
		t.Run(name, func(t *testing.T) { us.refuse(t, c.code, "gl_accountant", "gl.post_intercompany", c.payload) })
	}
	waiting := us.pend(t, "gl_accountant", "gl.post_intercompany", paidFor("20000"))
	require.Equal(t, "gl.journal.limit", waiting.Needs[0].RuleID)
	us.mustApprove(t, "controller", waiting)

	posted := us.execute(t, "gl_accountant", "gl.post_intercompany", strings.Replace(paidFor("5"), `"6000"`, `"6001"`, 1))
	mirror := fmt.Sprintf(`{"pair_id": %q, "initiator": "USMF"}`, posted.Events[1].Stream.ID)
	de.refuse(t, "gl.account.not_found", "gl_accountant", "gl.mirror_intercompany", mirror)
	de.refuse(t, "gl.intercompany.not_found", "gl_accountant", "gl.mirror_intercompany", `{"pair_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "initiator": "USMF"}`)
	us.refuse(t, "gl.intercompany.not_found", "gl_accountant", "gl.mirror_intercompany", mirror)
	de.refuse(t, "gl.intercompany.unknown_entity", "gl_accountant", "gl.mirror_intercompany", strings.Replace(mirror, "USMF", "FRMF", 1))
}

// TestIntercompany_Entitlement: who may see one legal entity only begins and mirrors no pair.
func TestIntercompany_Entitlement(t *testing.T) {
	t.Parallel()
	us, de := newPair(t)
	posted := us.execute(t, "gl_accountant", "gl.post_intercompany", paidFor("5"))
	here := us.caller("gl_accountant:here")
	here.Principal.LegalEntities = []string{"USMF"}
	us.persons["gl_accountant:here"] = here
	us.refuse(t, "gl.intercompany.unknown_entity", "gl_accountant:here", "gl.post_intercompany", paidFor("5"))
	here.Principal.LegalEntities = []string{"DEMF"}
	us.persons["gl_accountant:here"] = here
	_, err := de.submit("gl_accountant:here", "gl.mirror_intercompany", fmt.Sprintf(`{"pair_id": %q, "initiator": "USMF"}`, posted.Events[1].Stream.ID))
	require.Equal(t, "gl.intercompany.unknown_entity", fault.CodeOf(err))
	here.Principal.LegalEntities = []string{"DEMF", "USMF"}
	us.persons["gl_accountant:here"] = here
	_, err = de.submit("gl_accountant:here", "gl.mirror_intercompany", fmt.Sprintf(`{"pair_id": %q, "initiator": "USMF"}`, posted.Events[1].Stream.ID))
	require.NoError(t, err)
}
