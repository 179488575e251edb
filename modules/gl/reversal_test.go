package gl_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReverseJournal(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	first, was := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("100.00", "100.00", "EUR", "2026-03-10")))
	// A newer rate must not matter: rates are copied.
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", `{"from": "EUR", "to": "USD", "date": "2026-03-11", "rate": 2}`)
	out := b.execute(t, "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, first.Stream.ID))
	second, data := b.journal(t, out)
	require.Equal(t, "RV-2026-000001", data["journal_number"])
	require.Equal(t, "reversal", data["journal_type"])
	require.Equal(t, first.Stream.ID, data["reverses_journal_id"])
	require.Equal(t, first.ID, second.CausedBy)
	for i, l := range data["lines"].([]any) {
		line, original := l.(map[string]any), was["lines"].([]any)[i].(map[string]any)
		require.NotEqual(t, original["debit_credit"], line["debit_credit"])
		for _, same := range []string{"account", "amount", "currency", "amount_in_reporting_currency", "exchange_rate", "rate_date", "dimensions"} {
			require.Equal(t, original[same], line[same], same)
		}
	}
	require.Len(t, out.Events, 2)
	require.Equal(t, "gl.journal.reversed", out.Events[1].Type)
	require.Equal(t, first.Stream, out.Events[1].Stream)

	b.refuse(t, "gl.journal.already_reversed", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, first.Stream.ID))
	b.refuse(t, "gl.journal.is_reversal", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, second.Stream.ID))
	b.refuse(t, "gl.journal.not_found", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, ids{}.NewID(now)))
	b.refuse(t, "gl.journal.not_found", "gl_accountant", "gl.reverse_journal", `{"journal_number": "GJ-2026-000002", "reason": "x"}`)
	b.refuse(t, "gl.journal.already_reversed", "gl_accountant", "gl.reverse_journal", `{"journal_number": "GJ-2026-000001", "reason": "x"}`)
	b.refuse(t, "intent.schema_invalid", "gl_accountant", "gl.reverse_journal", `{"reason": "x"}`)
	b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-10"))
	b.execute(t, "gl_accountant", "gl.reverse_journal", `{"journal_number": "GJ-2026-000002", "reason": "x"}`)
}

// TestReversalDate reverses journals without giving a date: the reversal of a journal with a
// future date gets that date, because it cannot precede the journal; any other gets today.
func TestReversalDate(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	first, _ := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-25")))
	b.refuse(t, "gl.journal.reversal_date_invalid", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, first.Stream.ID))
	second, _ := b.journal(t, b.execute(t, "gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "reason": "x"}`, first.Stream.ID)))
	require.Equal(t, "2026-03-25", second.EffectiveDate.String())

	first, _ = b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-10")))
	second, _ = b.journal(t, b.execute(t, "gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "reason": "x"}`, first.Stream.ID)))
	require.Equal(t, "2026-03-20", second.EffectiveDate.String(), "today")
}

func TestReverseJournal_BlockedAccount(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	first, _ := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-10")))
	b.execute(t, "gl_accountant", "gl.block_account", exampleBlockAccount)
	b.execute(t, "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, first.Stream.ID))
}

func TestSubledgerJournal(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	out := b.execute(t, "ap_clerk", "ap.cause", cause("2026-03-15", "5.00"))
	e, err := b.store.Events.EventByID(t.Context(), b.entity.Partition, out.Events[1].ID)
	require.NoError(t, err)
	require.Equal(t, out.Events[0].ID, e.CausedBy)
	out.Events = out.Events[1:]
	_, data := b.journal(t, out)
	require.Equal(t, "SL-2026-000001", data["journal_number"])
	require.Equal(t, "ap", data["source_module"])
	require.Equal(t, e.CausedBy.String(), data["source_event_id"], "the planner knew the id of the causing event")
	control := data["lines"].([]any)[1].(map[string]any)
	require.Equal(t, map[string]any{"vendor": "V-1"}, control["dimensions"])

	b.refuse(t, "gl.journal.owned_by_module", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, e.Stream.ID))
	b.refuse(t, "gl.account.control_account", "ap_clerk", "ap.cause", `{"date": "2026-03-15", "account": "2000", "control": "2000", "currency": "USD", "amount": 5}`)
	b.refuse(t, "gl.account.control_account", "ap_clerk", "ap.cause", `{"date": "2026-03-15", "account": "6000", "control": "1000", "currency": "USD", "amount": 5}`)

	undone := b.execute(t, "ap_clerk", "ap.undo", fmt.Sprintf(`{"undo": %q, "date": "2026-03-16"}`, e.Stream.ID))
	require.Len(t, undone.Events, 3)
	b.refuse(t, "gl.journal.already_reversed", "ap_clerk", "ap.undo", fmt.Sprintf(`{"undo": %q, "date": "2026-03-16"}`, e.Stream.ID))
}

func TestReverseJournal_ClosingJournal(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	id := ids{}.NewID(now).String()
	data := fmt.Sprintf(`{"journal_number": "M-1", "journal_type": "closing", "journal_id": %q, "description": "x", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 1, "currency": "USD"},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 1, "currency": "USD"}]}`, id)
	require.NoError(t, b.rawOn("gl.journal.posted", "gl.journal", id, data, map[string]string{"department": "ENG"}))
	b.refuse(t, "gl.journal.is_closing", "gl_accountant", "gl.reverse_journal", fmt.Sprintf(exampleReverse, id))
}
