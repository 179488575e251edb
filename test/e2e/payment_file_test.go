package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPaymentFile exports a payment run, downloads its bank file over HTTP and by the command, and
// records the bank's report about it.
func TestPaymentFile(t *testing.T) {
	t.Parallel()
	d := startOn(t, copyOfBooks(t), recoveryStart)
	const entity, iban = "USMF", "NL91ABNA0417164300"
	clerk, treasurer := d.as(t, "ap_clerk"), d.as(t, "treasurer")
	d.as(t, "vendor_admin").must(t, entity, "ap.register_vendor", object{"vendor_id": "V-PAID", "name": "Paid Ltd", "country": "NL"})
	clerk.must(t, entity, "ap.request_bank_change", object{"vendor_id": "V-PAID", "currency": "USD", "iban": iban, "bic": "ABNANL2A", "holder": "Paid Ltd", "evidence_ref": "L-7", "reason": "first"})
	d.as(t, "vendor_admin").must(t, entity, "ap.approve_bank_change", object{"request_id": "V-PAID-B1", "verification": "called back"})
	d.as(t, "admin").must(t, entity, "ap.configure", object{"bank_accounts": object{"MAIN": object{"iban": "DE89370400440532013000", "currency": "USD", "account": "1000"}}})
	submitted := clerk.must(t, entity, "ap.submit_invoice", invoice("V-PAID", "P-1"))
	id := strings.TrimPrefix(submitted.Events[0].Stream, "ap.invoice/")
	d.as(t, "approver").must(t, entity, "ap.approve_invoice", object{"invoice_id": id})
	proposed := clerk.must(t, entity, "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2026-03-20", "documents": []object{{"invoice_id": id}}})
	run := strings.TrimPrefix(proposed.Events[0].Stream, "ap.payment_run/")
	d.as(t, "cfo").must(t, entity, "ap.approve_payment_run", object{"run_id": run})
	path := "/api/ap/payment-runs/" + run + "/file?legal_entity=" + entity
	a, err := treasurer.do("GET", path, "")
	require.NoError(t, err)
	require.Equal(t, "ap.payment_run.wrong_state", a.code(), "only exported runs have a file")
	exported := treasurer.must(t, entity, "ap.export_payment_run", object{"run_id": run})
	var found struct {
		Event event `json:"event"`
	}
	require.NoError(t, treasurer.want(http.StatusOK, &found, "GET", "/api/events/"+exported.Events[0].ID+"?legal_entity="+entity, ""))
	var data struct {
		SHA256 string `json:"sha256"`
	}
	require.NoError(t, json.Unmarshal(found.Event.Data, &data))
	require.Len(t, data.SHA256, 64)

	a, err = treasurer.do("GET", path, "", "Accept-Encoding", "gzip", "Access-Reason", "send to the bank")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status, a)
	require.Equal(t, data.SHA256, fmt.Sprintf("%x", sha256.Sum256(a.body)))
	require.Equal(t, `"`+data.SHA256+`"`, a.header.Get("ETag"))
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Contains(t, string(a.body), iban)
	for _, persona := range []string{"auditor", "ap_clerk", "controller", "approver", "module", "admin"} {
		a, err := d.as(t, persona).do("GET", path, "")
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, a.status, "%s: %s", persona, a)
		require.NotContains(t, string(a.body), iban)
	}
	var accesses struct {
		Accesses []struct {
			PersonID string `json:"person_id"`
			Class    string `json:"class"`
			Reason   string `json:"reason"`
		} `json:"accesses"`
	}
	require.NoError(t, d.as(t, "compliance").want(http.StatusOK, &accesses, "GET", "/api/access-log?subject=vendor:V-PAID", ""))
	require.Len(t, accesses.Accesses, 1, "refused downloads disclose nothing")
	require.Equal(t, []string{"bank", "send to the bank"}, []string{accesses.Accesses[0].Class, accesses.Accesses[0].Reason})

	file := filepath.Join(t.TempDir(), "run.xml")
	require.Contains(t, treasurer.succeed(t, "ap", "payment-file", run, "-o", file, "--legal-entity", entity), data.SHA256)
	saved, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, a.body, saved)
	about, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), about.Mode().Perm())
	again := treasurer.command(t, "ap", "payment-file", run, "-o", file, "--legal-entity", entity)
	require.NotZero(t, again.code)
	require.Contains(t, again.stderr, "file.exists")
	require.Equal(t, string(saved), treasurer.succeed(t, "ap", "payment-file", run, "-o", "-", "--legal-entity", entity))

	report := filepath.Join(t.TempDir(), "pain002.xml")
	require.NoError(t, os.WriteFile(report, []byte(`<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.002.001.10"><CstmrPmtStsRpt>
		<GrpHdr><MsgId>BANK-1</MsgId><CreDtTm>2026-03-20T18:00:00Z</CreDtTm></GrpHdr>
		<OrgnlGrpInfAndSts><OrgnlMsgId>`+run+`</OrgnlMsgId><GrpSts>ACSC</GrpSts></OrgnlGrpInfAndSts></CstmrPmtStsRpt></Document>`), 0o600))
	require.Contains(t, treasurer.succeed(t, "ap", "import-status", "--legal-entity", entity, report), "1 executed")
	var payments struct {
		Rows []struct {
			PaymentID  string `json:"payment_id"`
			State      string `json:"state"`
			ExecutedOn string `json:"executed_on"`
			FileSHA256 string `json:"file_sha256"`
		} `json:"rows"`
	}
	require.NoError(t, json.Unmarshal([]byte(d.as(t, "auditor").succeed(t, "ap", "payments", "--run", run, "--legal-entity", entity, "--json")), &payments))
	require.Len(t, payments.Rows, 1)
	require.Equal(t, []string{run + "-P1", "executed", "2026-03-20", data.SHA256}, []string{payments.Rows[0].PaymentID, payments.Rows[0].State, payments.Rows[0].ExecutedOn, payments.Rows[0].FileSHA256})
	require.Contains(t, treasurer.succeed(t, "ap", "import-status", "--legal-entity", entity, report), "0 payments", "nothing is left to answer")
	tracePayment(t, d.as(t, "auditor"), entity, run, id)
}

// tracePayment walks from a payment and its run to the bank file, the invoice and the persons, and back.
func tracePayment(t *testing.T, auditor client, entity, run, invoice string) {
	t.Helper()
	type figureTrace struct {
		Rows []struct {
			EventID string   `json:"event_id"`
			Chain   []string `json:"chain"`
			Figures []string `json:"figures"`
			Row     struct {
				Step       string `json:"step"`
				DocumentID string `json:"document_id"`
				FileSHA256 string `json:"file_sha256"`
			} `json:"row"`
		} `json:"rows"`
		Events  []event  `json:"events"`
		Intents []object `json:"intents"`
	}
	for _, figure := range []string{"ap:payment_run:" + run, "ap:payment:" + run + "-P1"} {
		var page figureTrace
		require.NoError(t, auditor.want(http.StatusOK, &page, "GET", "/api/trace/"+figure+"?legal_entity="+entity, ""))
		types, actors := map[string]string{}, map[string]bool{}
		for _, e := range page.Events {
			types[e.ID] = e.Type
		}
		for _, i := range page.Intents {
			actors[fmt.Sprint(i["type"])] = true
		}
		var steps []string
		for _, r := range page.Rows {
			steps = append(steps, r.Row.Step)
			require.Equal(t, r.EventID, r.Chain[len(r.Chain)-1])
			switch r.Row.Step {
			case "exported":
				require.Len(t, r.Row.FileSHA256, 64)
			case "posted":
				require.Equal(t, []any{invoice, "ap.invoice.submitted"}, []any{r.Row.DocumentID, types[r.Chain[0]]}, "to the paper")
			case "paid", "executed":
				require.Contains(t, r.Figures, figure)
			}
		}
		require.Equal(t, []string{"proposed", "approved", "exported", "executed", "paid", "posted"}, steps)
		for _, intent := range []string{"ap.submit_invoice", "ap.approve_invoice", "ap.propose_payment_run", "ap.approve_payment_run", "ap.export_payment_run"} {
			require.True(t, actors[intent], "who did %s", intent)
		}
	}
	require.Contains(t, auditor.succeed(t, "trace", "--legal-entity", entity, "ap:payment:"+run+"-P1"), "ap.payment_run.exported")
}
