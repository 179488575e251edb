package gl_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
)

// TestPeriodMatrix runs the table in testdata/period_matrix.txt: what a posting or
// a reversal meets, by module and by the states of both modules' periods.
func TestPeriodMatrix(t *testing.T) {
	t.Parallel()
	readMatrix(t, "period_matrix.txt", 40, matrixRow)
}

// TestPeriodStepMatrix runs the table in testdata/period_steps.txt: what opening, closing and
// reopening a period meet, for each role.
func TestPeriodStepMatrix(t *testing.T) {
	t.Parallel()
	readMatrix(t, "period_steps.txt", 80, stepRow)
}

// readMatrix runs each row of a table in testdata as a test.
func readMatrix(t *testing.T, name string, count int, run func(t *testing.T, moduleName, step, ledgerState, apState, want string)) {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	rows := 0
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		text := strings.TrimSpace(scanner.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		f := strings.Fields(text)
		require.Len(t, f, 5, text)
		rows++
		t.Run(strings.Join(f, "_"), func(t *testing.T) {
			t.Parallel()
			run(t, f[0], f[1], f[2], f[3], f[4])
		})
	}
	require.NoError(t, scanner.Err())
	require.Equal(t, count, rows)
}

func stepRow(t *testing.T, moduleName, step, ledgerState, apState, want string) {
	b := newLedger(t)
	b.bringTo(t, "2026-04", ledgerState, apState)
	intentType, payload := "gl."+step+"_period", fmt.Sprintf(`{"module": %q, "period": "2026-04"}`, moduleName)
	switch step {
	case "soft", "hard":
		intentType, payload = "gl.close_period", strings.Replace(payload, "}", fmt.Sprintf(`, "level": %q}`, step), 1)
	case "reopen":
		payload = strings.Replace(payload, "}", `, "reason": "a late bill"}`, 1)
	}
	for _, role := range []string{"ap_clerk", "approver", "vendor_admin", "treasurer", "gl_accountant", "cfo", "admin", "auditor", "module", "importer"} {
		b.refuse(t, "intent.forbidden", role, intentType, payload)
	}
	if want == "passes" {
		b.execute(t, "controller", intentType, payload)
		return
	}
	b.refuse(t, want, "controller", intentType, payload)
}

func matrixRow(t *testing.T, moduleName, step, ledgerState, apState, want string) {
	b := newLedger(t)
	// The original is in March, which stays open; the step under test is in April.
	var original string
	if moduleName == "gl" {
		e, _ := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("5", "5", "USD", "2026-03-15")))
		original = e.Stream.ID
	} else {
		original = b.execute(t, "ap_clerk", "ap.cause", cause("2026-03-15", "5")).Events[1].Stream.ID
	}
	b.bringTo(t, "2026-04", ledgerState, apState)

	var out pipeline.Outcome
	var err error
	switch moduleName + " " + step {
	case "gl post":
		out, err = b.submit("gl_accountant", "gl.post_journal", twoLines("5", "5", "USD", "2026-04-15"))
	case "gl reverse":
		out, err = b.submit("gl_accountant", "gl.reverse_journal", fmt.Sprintf(`{"journal_id": %q, "posting_date": "2026-04-15", "reason": "x"}`, original))
	case "ap post":
		out, err = b.submit("ap_clerk", "ap.cause", cause("2026-04-15", "5"))
	case "ap reverse":
		out, err = b.submit("ap_clerk", "ap.undo", fmt.Sprintf(`{"undo": %q, "date": "2026-04-15"}`, original))
	default:
		t.Fatalf("unknown step %s %s", moduleName, step)
	}
	switch want {
	case "passes":
		require.NoError(t, err)
		require.Equal(t, intent.Executed, out.Status)
	case "late": // the subledger's own policy decides; the ledger's asks for approval
		require.NoError(t, err)
		if moduleName == "gl" {
			require.Equal(t, intent.PendingApproval, out.Status)
			require.Equal(t, []string{"controller", "cfo"}, out.Needs[0].Roles)
			out, err = b.approve(t, "cfo", out)
			require.NoError(t, err)
		}
		e, eventErr := b.store.Events.EventByID(t.Context(), b.entity.Partition, out.Events[0].ID)
		require.NoError(t, eventErr)
		require.Equal(t, []string{"period:2026-04", "fy:2026", "late_posting"}, e.Tags[:3])
	default:
		require.Equal(t, want, fault.CodeOf(err), "%v", err)
	}
}

func cause(date, amount string) string {
	return fmt.Sprintf(`{"date": %q, "account": "6000", "control": "2000", "currency": "USD", "amount": %s}`, date, amount)
}

// bringTo moves a period that was not opened into the states.
func (b *ledgerFixture) bringTo(t testing.TB, period, ledgerState, apState string) {
	t.Helper()
	if ledgerState == "not_open" {
		return
	}
	b.period(t, "open", "gl", period, "")
	if apState != "not_open" {
		b.period(t, "open", "ap", period, "")
	}
	for moduleName, state := range map[string]string{"ap": apState, "gl": ledgerState} {
		if moduleName == "ap" && apState == ledgerState {
			continue // the ledger's close takes it along
		}
		switch state {
		case "soft_closed":
			b.period(t, "soft", moduleName, period, "")
		case "hard_closed":
			b.period(t, "hard", moduleName, period, "")
		}
	}
}

func TestHardClose_FirstOpenDate(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	for _, p := range []string{"2026-04", "2026-05"} {
		b.period(t, "open", "gl", p, "")
	}
	b.period(t, "hard", "gl", "2026-03", "")
	b.period(t, "soft", "gl", "2026-04", "")
	f := b.refuse(t, "gl.period.hard_closed", "controller", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"))
	require.Equal(t, "2026-05-01", f.Attributes["first_open_date"])
	f = b.refuse(t, "gl.period.hard_closed", "ap_clerk", "ap.cause", cause("2026-03-15", "1"))
	require.Nil(t, f.Attributes["first_open_date"], "accounts payable has no open period")
}

func TestPeriodSteps(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	refuse := func(code, step, moduleName, period string) fault.Error {
		t.Helper()
		switch step {
		case "open":
			return b.refuse(t, code, "controller", "gl.open_period", fmt.Sprintf(`{"module": %q, "period": %q}`, moduleName, period))
		case "reopen":
			return b.refuse(t, code, "controller", "gl.reopen_period", fmt.Sprintf(`{"module": %q, "period": %q, "reason": "x"}`, moduleName, period))
		default:
			return b.refuse(t, code, "controller", "gl.close_period", fmt.Sprintf(`{"module": %q, "period": %q, "level": %q}`, moduleName, period, step))
		}
	}
	refuse("gl.period.undefined", "open", "gl", "2027-01")
	refuse("gl.period.ledger_closed", "open", "ap", "2026-04")
	f := refuse("gl.period.wrong_state", "open", "gl", "2026-03")
	require.Equal(t, "open", f.Attributes["state"])
	require.Equal(t, []string{"not_open"}, f.Attributes["allowed_states"])
	refuse("gl.period.wrong_state", "soft", "gl", "2026-04")
	refuse("gl.period.wrong_state", "reopen", "gl", "2026-03")

	closed := b.period(t, "soft", "gl", "2026-03", "")
	require.Len(t, closed.Events, 2, "closing the ledger takes accounts payable along")
	require.Equal(t, "ap:2026-03", closed.Events[1].Stream.ID)
	refuse("gl.period.wrong_state", "soft", "gl", "2026-03")
	refuse("gl.period.ledger_closed", "reopen", "ap", "2026-03")
	b.period(t, "reopen", "gl", "2026-03", "late invoices")
	b.period(t, "reopen", "ap", "2026-03", "late invoices")
	b.period(t, "hard", "ap", "2026-03", "")
	refuse("gl.period.hard_closed", "reopen", "ap", "2026-03")
	refuse("gl.period.hard_closed", "open", "ap", "2026-03")
	refuse("gl.period.hard_closed", "soft", "ap", "2026-03")
	closed = b.period(t, "hard", "gl", "2026-03", "")
	require.Len(t, closed.Events, 1, "accounts payable was closed already")
	refuse("gl.period.hard_closed", "reopen", "gl", "2026-03")
}

func TestHardClose_Order(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "admin", "gl.configure_ledger", strings.Replace(exampleConfigureLedger, `"orderly_close": false`, `"orderly_close": true`, 1))
	for _, p := range []string{"2026-04", "2026-12"} {
		b.period(t, "open", "gl", p, "")
	}
	f := b.refuse(t, "gl.period.out_of_order", "controller", "gl.close_period", `{"module": "gl", "period": "2026-04", "level": "hard"}`)
	require.Equal(t, "2026-03", f.Attributes["period"])
	b.period(t, "soft", "gl", "2026-04", "")
	b.period(t, "hard", "gl", "2026-03", "")
	b.period(t, "hard", "gl", "2026-04", "")
	b.refuse(t, "gl.period.year_open", "controller", "gl.close_period", `{"module": "gl", "period": "2026-12", "level": "hard"}`)
}

func TestHardClose_PendingIntents(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	waiting := b.pend(t, "gl_accountant", "gl.post_journal", twoLines("20000", "20000", "USD", "2026-03-15"))
	f := b.refuse(t, "gl.period.pending_intents", "controller", "gl.close_period", `{"module": "gl", "period": "2026-03", "level": "hard"}`)
	require.Equal(t, 1, f.Attributes["waiting"])
	require.Equal(t, []string{waiting.IntentID.String()}, f.Attributes["intent_ids"])
	require.Contains(t, f.Detail, waiting.IntentID.String())
	_, err := b.intake.Reject(t.Context(), b.caller("controller:2"), pipeline.Decision{LegalEntity: b.entity, Intent: waiting.IntentID, Comment: "not this month"})
	require.NoError(t, err)
	b.period(t, "hard", "gl", "2026-03", "")
}

func TestApprove_PeriodIsClosed(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	waiting := b.pend(t, "gl_accountant", "gl.post_journal", twoLines("20000", "20000", "USD", "2026-03-15"))
	b.period(t, "soft", "gl", "2026-03", "")
	_, err := b.approve(t, "controller", waiting)
	require.Equal(t, "intent.plan_changed", fault.CodeOf(err), "late posting was not what was approved")
	_, err = b.approve(t, "controller", waiting)
	require.NoError(t, err)
}

func TestFiscalYears(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	year := func(label, start, end, more string) string {
		return fmt.Sprintf(`{"label": %q, "start": %q, "end": %q%s}`, label, start, end, more)
	}
	for _, c := range []struct{ code, payload string }{
		{"gl.fiscal_year.duplicate", year("2026", "2027-01-01", "2027-12-31", "")},
		{"gl.fiscal_year.overlap", year("2027", "2026-12-31", "2027-12-31", "")},
		{"gl.fiscal_year.overlap", year("2027", "2027-01-02", "2027-12-31", "")},
		{"gl.fiscal_year.overlap", year("2024", "2024-01-01", "2024-12-31", "")},
		{"gl.fiscal_year.overlap", year("2027", "2027-12-31", "2027-01-01", "")},
		{"gl.fiscal_year.overlap", year("2027", "2027-01-01", "2027-01-31", `, "periods": [{"period": "2026-03", "start": "2027-01-01", "end": "2027-01-31"}]`)},
		{"gl.fiscal_year.overlap", year("2027", "2027-01-01", "2027-01-31", `, "periods": [{"period": "A", "start": "2027-01-01", "end": "2027-01-30"}]`)},
		{"gl.fiscal_year.overlap", year("2027", "2027-01-01", "2027-01-31", `, "periods": [{"period": "A", "start": "2027-01-01", "end": "2027-01-15"}, {"period": "B", "start": "2027-01-17", "end": "2027-01-31"}]`)},
	} {
		b.refuse(t, c.code, "controller", "gl.define_fiscal_year", c.payload)
	}
	b.execute(t, "controller", "gl.define_fiscal_year", year("2025", "2025-01-01", "2025-12-31", ""))
	out := b.execute(t, "controller", "gl.define_fiscal_year", year("2027", "2027-01-01", "2027-12-31", ""))
	_, data := b.journal(t, out)
	periods := data["periods"].([]any)
	require.Len(t, periods, 12)
	require.Equal(t, map[string]any{"period": "2027-02", "start": "2027-02-01", "end": "2027-02-28"}, periods[1])
	require.Equal(t, "gl.fiscal_year/2027", out.Events[0].Stream.String())
	require.Equal(t, "gl.calendar/main", out.Events[1].Stream.String())
	b.period(t, "open", "gl", "2025-12", "")
	b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2025-12-31"))
}
