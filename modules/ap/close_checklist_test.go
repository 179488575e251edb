package ap_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// The rows of accounts payable follow the ledger's in its checklist, and the one that blocks a
// hard close names what differs.
func TestCloseChecklist(t *testing.T) {
	t.Parallel()
	f := newControlFixture(t)
	submit := func(number, date string) string {
		return f.Execute("ap_clerk", "ap.submit_invoice", string(encode(t, documentPayload("V1", number, "10", object{
			"invoice_date": date, "due_date": date, "currency": "EUR", "lines": []object{{"line_number": 1, "amount": n("10"), "account": "6000"}},
		})))).Events[0].Stream.ID
	}
	read := func() (rows []gl.ChecklistRow) {
		f.ReportAsOf("gl/close-checklist", "2025-12-31", map[string]string{"period": "2025-03"}, &rows)
		return rows
	}
	for _, m := range []string{"gl", "ap"} {
		f.Execute("controller", "gl.open_period", string(encode(t, object{"module": m, "period": "2025-04"})))
	}
	undecided, later := submit("B-1", "2025-03-05"), submit("B-2", "2025-04-05")
	require.NotEqual(t, undecided, later)
	f.Execute("controller", "ap.hold_invoice", string(encode(t, object{"invoice_id": undecided, "kind": "MANUAL", "reason": "wait"})))
	f.Execute("ap_clerk", "past.post", `{}`)
	rows := read()
	require.Equal(t, "gl", rows[0].Module)
	require.Equal(t, []gl.ChecklistRow{
		{Module: "ap", Item: "drafts", State: "done", Blocking: "soft", IDs: []string{}},
		{Module: "ap", Item: "undecided_documents", State: "open", Count: 1, Blocking: "soft", IDs: []string{undecided}, NextStep: "ap/documents shows each one's next step"},
		{Module: "ap", Item: "open_holds", State: "open", Count: 1, Blocking: "soft", IDs: []string{undecided}, NextStep: "ap.release_hold, or correct the document"},
		{Module: "ap", Item: "subledger_difference", State: "open", Count: 1, Blocking: "hard", IDs: []string{"V1 EUR"}, NextStep: "gl/subledger-control by vendor shows the difference"},
	}, rows[len(rows)-4:])
	var own []gl.ChecklistRow
	f.ReportAsOf("ap/close-checklist", "2025-12-31", map[string]string{"period": "2025-03"}, &own)
	require.Equal(t, rows[len(rows)-4:], own)
}
