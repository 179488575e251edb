package ap_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/gl/adapters/bankfile"
	"github.com/erpbackbone/backbone/ports"
)

const camtStatement = `<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"><BkToCstmrStmt><Stmt><Id>%s</Id>
	<Bal><Tp><CdOrPrtry><Cd>OPBD</Cd></CdOrPrtry></Tp><Amt Ccy="EUR">%s</Amt><CdtDbtInd>%s</CdtDbtInd><Dt><Dt>2026-01-20</Dt></Dt></Bal>
	<Bal><Tp><CdOrPrtry><Cd>CLBD</Cd></CdOrPrtry></Tp><Amt Ccy="EUR">%s</Amt><CdtDbtInd>%s</CdtDbtInd><Dt><Dt>2026-01-%d</Dt></Dt></Bal>
	<Ntry><Amt Ccy="EUR">70.00</Amt><CdtDbtInd>%s</CdtDbtInd><Sts><Cd>BOOK</Cd></Sts><BookgDt><Dt>2026-01-%[6]d</Dt></BookgDt>
	<NtryDtls><TxDtls><Refs><EndToEndId>%[8]s</EndToEndId></Refs></TxDtls></NtryDtls></Ntry></Stmt></BkToCstmrStmt></Document>`

// TestBankStatement_Payment pays an invoice, reads the bank's statement, and matches both by the
// payment's id; then the bank sends the money back.
func TestBankStatement_Payment(t *testing.T) {
	t.Parallel()
	b := newPostgresBooks(t)
	invoice := b.Execute("ap_clerk", "ap.submit_invoice", `{"vendor_id":"V1","invoice_number":"A","invoice_date":"2026-01-10","due_date":"2026-01-20","currency":"EUR","total_amount":70,
		"lines":[{"line_number":1,"amount":70,"account":"6000"}]}`).Events[0].Stream.ID
	b.Execute("approver", "ap.approve_invoice", `{"invoice_id":"`+invoice+`"}`)
	run := b.Execute("ap_clerk:petra", "ap.propose_payment_run", `{"bank_account":"MAIN","pay_date":"2026-01-20","selection":{"due_by":"2026-01-20","vendors":["V1"]}}`).Events[0].Stream.ID
	b.Execute("controller:carla", "ap.approve_payment_run", `{"run_id":"`+run+`"}`)
	payment := run + "-1"
	for _, e := range b.Log() {
		if e.Type == "ap.payment_run.proposed" {
			body, err := e.Body()
			require.NoError(t, err)
			var proposed struct {
				Payments []struct {
					PaymentID string `json:"payment_id"`
				} `json:"payments"`
			}
			require.NoError(t, json.Unmarshal(body.Data, &proposed))
			payment = proposed.Payments[0].PaymentID
		}
	}
	b.Execute("treasurer", "ap.execute_payment", `{"payment_id":"`+payment+`","executed_on":"2026-01-20","bank_reference":"B"}`)

	importAndMatch := func(file string) ports.Report {
		statements, _, err := bankfile.Read(strings.NewReader(file), bankfile.Options{Account: "1010"})
		require.NoError(t, err)
		payload, err := json.Marshal(statements[0])
		require.NoError(t, err)
		b.Execute("treasurer", "gl.import_bank_statement", string(payload))
		var rows []struct {
			StatementID string `json:"statement_id"`
			LineNumber  int    `json:"line_number"`
			JournalID   string `json:"proposed_journal_id"`
			JournalLine int    `json:"proposed_line"`
		}
		b.ReportAsOf("gl/bank-reconciliation", "2026-12-31", map[string]string{"account": "1010"}, &rows)
		proposed := 0
		for _, r := range rows {
			if r.JournalID != "" {
				proposed++
				b.Execute("treasurer", "gl.match_bank_line", fmt.Sprintf(`{"account":"1010","statement_id":%q,"line_number":%d,"journal_lines":[{"journal_id":%q,"line_number":%d}]}`,
					r.StatementID, r.LineNumber, r.JournalID, r.JournalLine))
			}
		}
		require.Equal(t, 1, proposed)
		return b.ReportAt("gl/bank-reconciliation", "2026-12-31", "", map[string]string{"account": "1010"})
	}
	report := importAndMatch(fmt.Sprintf(camtStatement, "S-1", "0.00", "CRDT", "70.00", "DBIT", 20, "DBIT", payment))
	require.Empty(t, report.Rows, "everything is matched")
	b.Execute("treasurer", "ap.void_payment", `{"payment_id":"`+payment+`","reason":"The account is closed","posting_date":"2026-01-22"}`)
	report = importAndMatch(fmt.Sprintf(camtStatement, "S-2", "70.00", "DBIT", "0.00", "CRDT", 22, "CRDT", payment))
	require.Empty(t, report.Rows, "the reversal is what the bank sent back")
}
