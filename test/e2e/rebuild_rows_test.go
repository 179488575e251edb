package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// rowRebuildFixture is a server with rows to damage and rebuild.
type rowRebuildFixture struct {
	*dev
	super *pgx.Conn
}

// targets are the stream types whose entities have rows, by projection.
var targets = map[string][]string{
	"gl.ledger":          {"gl.journal", "gl.account", "gl.ledger", "gl.calendar", "gl.period", "gl.exchange_rate"},
	"gl.bank":            {"gl.bank_statement", "gl.bank_line", "gl.journal"},
	"gl.closing":         {"gl.journal", "gl.ledger", "gl.account", "gl.recurring", "gl.allocation", "gl.revaluation", "gl.intercompany", "gl.fiscal_year", "intent"},
	"ap.open-items":      {"ap.invoice", "ap.credit_memo", "gl.ledger"},
	"ap.payments":        {"ap.payment_run", "ap.payment"},
	"ap.purchase-orders": {"ap.purchase_order"},
	"ap.tax":             {"gl.journal", "gl.ledger"},
	"ap.vendors":         {"ap.vendor"},
}

func (r *rowRebuildFixture) projections(t *testing.T, persona string, args ...string) result {
	t.Helper()
	return r.as(t, persona).command(t, append([]string{"projections"}, args...)...)
}

func (r *rowRebuildFixture) succeed(t *testing.T, args ...string) string {
	t.Helper()
	out := r.projections(t, "admin", args...)
	require.Zero(t, out.code, out)
	return out.stdout
}

// damage runs statements, each of which must change rows.
func (r *rowRebuildFixture) damage(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		s = strings.ReplaceAll(s, "PARTITION", fmt.Sprintf("(SELECT partition_id FROM backbone.legal_entities WHERE code = '%s')", loadEntity))
		tag, err := r.super.Exec(t.Context(), s)
		require.NoError(t, err, s)
		require.NotZero(t, tag.RowsAffected(), s)
	}
}

func (r *rowRebuildFixture) queryNumber(t *testing.T, query string) (n int) {
	t.Helper()
	require.NoError(t, r.super.QueryRow(t.Context(), query).Scan(&n), query)
	return n
}

// rebuildRows rebuilds the rows of one entity in all versions and returns how many differed.
func (r *rowRebuildFixture) rebuildRows(t *testing.T, projection, streamType, id string) string {
	t.Helper()
	body, err := json.Marshal(object{"legal_entity": loadEntity, "entity": object{"type": streamType, "id": id}})
	require.NoError(t, err)
	var out struct {
		Rows string `json:"rows"`
	}
	require.NoError(t, r.as(t, "admin").want(http.StatusOK, &out, "POST", "/api/admin/projections/"+projection+"/rebuild-rows", string(body)))
	return out.Rows
}

// rebuildAllRows rebuilds the rows of every entity, at most limit of each projection, and
// returns the entities whose rows differed.
func (r *rowRebuildFixture) rebuildAllRows(t *testing.T, limit int) (differed []string) {
	t.Helper()
	for projection, types := range targets {
		found, err := r.super.Query(t.Context(), `SELECT DISTINCT e.stream_type, e.stream_id FROM backbone.events e
			JOIN backbone.legal_entities l ON l.partition_id = e.partition_id WHERE l.code = $1 AND e.stream_type = ANY ($2) LIMIT $3`, loadEntity, types, limit)
		require.NoError(t, err)
		var entities [][2]string
		var streamType, id string
		_, err = pgx.ForEachRow(found, []any{&streamType, &id}, func() error {
			entities = append(entities, [2]string{streamType, id})
			return nil
		})
		require.NoError(t, err)
		require.NotEmpty(t, entities)
		for _, e := range entities {
			if n := r.rebuildRows(t, projection, e[0], e[1]); n != "0" {
				differed = append(differed, projection+" "+e[0]+" "+n)
			}
		}
	}
	return differed
}

// payOrder takes an invoice from its order and receipt to the payment, which it matches with a bank
// statement.
func (r *rowRebuildFixture) payOrder(t *testing.T) {
	t.Helper()
	const vendor, order = "V-ORDER", "PO-DRILL"
	clerk, treasurer := r.as(t, "ap_clerk"), r.as(t, "treasurer")
	idOf := func(stream string) string { return stream[strings.Index(stream, "/")+1:] }
	r.as(t, "vendor_admin").must(t, loadEntity, "ap.register_vendor", object{"vendor_id": vendor, "name": "Order Ltd", "country": "NL"})
	clerk.must(t, loadEntity, "ap.request_bank_change", object{
		"vendor_id": vendor, "currency": "USD", "iban": "NL91ABNA0417164300", "bic": "ABNANL2A", "holder": "Order Ltd", "evidence_ref": "L-7", "reason": "first",
	})
	r.as(t, "vendor_admin").must(t, loadEntity, "ap.approve_bank_change", object{"request_id": vendor + "-B1", "verification": "called back"})
	r.as(t, "admin").must(t, loadEntity, "ap.configure", object{
		"match": object{"policy": "three_way"}, "bank_accounts": object{"MAIN": object{"iban": "DE89370400440532013000", "currency": "USD", "account": "1000"}},
	})
	clerk.must(t, loadEntity, "ap.record_purchase_order", object{
		"po_reference": order, "revision": 1, "vendor_id": vendor, "currency": "USD", "status": "open", "lines": []object{{"po_line_reference": "1", "quantity": 5, "unit_price": 25}},
	})
	clerk.must(t, loadEntity, "ap.record_goods_receipt", object{"receipt_number": "R-DRILL", "po_reference": order, "lines": []object{{"po_line_reference": "1", "quantity": 5}}})
	paper := invoice(vendor, "O-1")
	paper["po_reference"] = order
	paper["lines"].([]object)[0]["po_line_reference"] = "1"
	document := idOf(clerk.must(t, loadEntity, "ap.submit_invoice", paper).Events[0].Stream)
	r.as(t, "approver").must(t, loadEntity, "ap.approve_invoice", object{"invoice_id": document})
	run := idOf(clerk.must(t, loadEntity, "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2026-03-20", "documents": []object{{"invoice_id": document}}}).Events[0].Stream)
	r.as(t, "cfo").must(t, loadEntity, "ap.approve_payment_run", object{"run_id": run})
	executed := treasurer.must(t, loadEntity, "ap.execute_payment", object{"payment_id": run + "-P1", "executed_on": "2026-03-20", "bank_reference": "B-1"})
	statement := object{
		"account": "1000", "statement_id": "2026-03/1", "currency": "USD", "statement_date": "2026-03-31", "opening_balance": 200, "closing_balance": 75,
		"lines": []object{{"debit_credit": "debit", "amount": 125, "booking_date": "2026-03-20"}},
	}
	treasurer.must(t, loadEntity, "gl.import_bank_statement", statement)
	treasurer.must(t, loadEntity, "gl.match_bank_line", object{
		"account": "1000", "statement_id": "2026-03/1", "line_number": 1, "journal_lines": []object{{"journal_id": idOf(executed.Events[1].Stream), "line_number": 2}},
	})
}

// TestDrillRebuildRows rebuilds the rows of every entity while invoices are imported, which
// changes nothing. Then it damages rows in all tables: rebuilding them gives the rows that a
// rebuild of the projection gives. An erasure rebuilds rows in all versions, so that versions
// built during it and afterwards do not differ.
func TestDrillRebuildRows(t *testing.T) {
	t.Parallel()
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	super, err := pgx.Connect(t.Context(), superuser(t, dir))
	require.NoError(t, err)
	defer super.Close(context.Background())
	r := &rowRebuildFixture{d, super}

	vendorAdmin, clerk, controller := d.as(t, "vendor_admin"), d.as(t, "ap_clerk"), d.as(t, "controller")
	vendorAdmin.must(t, loadEntity, "ap.register_vendor", object{
		"vendor_id": "SOLE-1", "natural_person": true, "country": "US", "person": object{"name": "Mira Sandvik", "address": "9 Birch Road"},
	})
	vendorAdmin.must(t, loadEntity, "ap.register_vendor", object{"vendor_id": "FIRM-1", "name": "Firm Ltd", "country": "US"})
	for _, c := range [][2]string{{"SOLE-1", "C-1"}, {"FIRM-1", "C-2"}, {"FIRM-1", "C-3"}, {"FIRM-1", "C-1"}} {
		clerk.must(t, loadEntity, "ap.set_vendor_contact", object{"vendor_id": c[0], "contact_id": c[1], "name": "Olaf Petersen", "email": "olaf@example.org"})
	}
	r.payOrder(t)
	for amount := range 3 {
		posted := controller.must(t, loadEntity, "gl.post_journal", object{
			"description": "Cleaning", "posting_date": "2026-03-15", "dimensions": object{"department": "FIN"},
			"lines": []object{{"account": "6000", "debit_credit": "debit", "amount": amount + 1}, {"account": "1000", "debit_credit": "credit", "amount": amount + 1}},
		})
		if amount == 0 {
			id, _, _ := strings.Cut(strings.TrimPrefix(posted.Events[0].Stream, "gl.journal/"), "/")
			controller.must(t, loadEntity, "gl.reverse_journal", object{"journal_id": id, "posting_date": "2026-03-20", "reason": "Posted twice"})
		}
	}
	r.succeed(t, "rebuild", "ap.vendors", "--wait")
	r.succeed(t, "snapshot", "ap.vendors", "--wait")
	const copied = "SELECT count(*) FROM ap.vendor_contacts WHERE version = 4"
	require.NotZero(t, r.queryNumber(t, copied))
	l := startLoad(t, d, fullSpeed)
	l.await(t, 10)
	require.Empty(t, r.rebuildAllRows(t, 25), "no row was wrong")
	l.finish(t)

	// Erased while a version is built: neither this version nor a later one has a sealed copy.
	officer, second := d.as(t, "compliance"), d.as(t, "compliance_approver")
	eraseSubject(t, officer, second, "contact:C-1")
	eraseSubject(t, officer, second, "vendor:SOLE-1")
	const sealed = "SELECT count(*) FROM ap.vendor_contacts c FULL JOIN ap.vendors v ON false WHERE c.subject = 'contact:C-1' OR v.subject = 'vendor:SOLE-1' OR to_jsonb(c)::text LIKE '%contact:C-1%' OR to_jsonb(v)::text LIKE '%vendor:SOLE-1%'"
	require.Zero(t, r.queryNumber(t, sealed))
	require.Equal(t, 4, r.queryNumber(t, "SELECT count(*) FROM ap.vendor_contacts WHERE subject LIKE 'contact:C-_'"), "two of other persons, in two versions")
	require.Contains(t, r.succeed(t, "compare", "ap.vendors"), "version 2 (left, shown) and version 3 (right): 0 rows differ")
	r.succeed(t, "switch", "ap.vendors")
	require.Zero(t, r.queryNumber(t, copied), "nor an earlier snapshot")
	require.Contains(t, r.projections(t, "admin", "rebuild", "ap.vendors", "--from-snapshot", "latest").stderr, "projection.snapshot_not_found")
	again := r.succeed(t, "rebuild", "ap.vendors", "--compare", "--switch")
	require.Contains(t, again, "version 3 (left, shown) and version 5 (right): 0 rows differ")
	require.Contains(t, again, "readers are shown version 5")
	require.Zero(t, r.queryNumber(t, sealed))
	require.Empty(t, r.rebuildAllRows(t, 10_000))

	const first, last = "(SELECT min(sequence) FROM gl.journals)", "(SELECT max(sequence) FROM gl.journals)"
	r.damage(t,
		"UPDATE gl.journal_lines SET amount = amount + 1 WHERE sequence = "+first,
		"DELETE FROM gl.journal_lines WHERE line_number = 1 AND sequence = "+last,
		`INSERT INTO gl.journal_lines SELECT (jsonb_populate_record(l, '{"line_number": 99}')).* FROM gl.journal_lines l WHERE line_number = 2 AND sequence = `+last,
		"DELETE FROM gl.journals WHERE sequence = "+last,
		"UPDATE gl.accounts SET name = 'wrong' WHERE code = '2000' AND partition_id = PARTITION",
		`INSERT INTO gl.accounts SELECT (jsonb_populate_record(a, '{"sequence": 999999}')).* FROM gl.accounts a WHERE code = '1000' AND partition_id = PARTITION`,
		"DELETE FROM gl.journal_reversals", "UPDATE gl.ledgers SET functional_currency = 'GBP' WHERE partition_id = PARTITION",
		"UPDATE ap.documents SET invoice_number = 'wrong' WHERE sequence = (SELECT min(sequence) FROM ap.documents)",
		"DELETE FROM ap.documents WHERE sequence = (SELECT max(sequence) FROM ap.documents)",
		`INSERT INTO ap.document_holds (sequence, partition_id, version, effective_date, released, document_id, hold_id, kind, blocks)
			SELECT 999999, partition_id, version, invoice_date, false, document_id, 'H', 'k', 'payment' FROM ap.documents LIMIT 1`,
		"UPDATE ap.purchase_order_lines SET quantity = 7 WHERE po_reference = 'PO-DRILL'", "DELETE FROM ap.purchase_order_quantities WHERE po_reference = 'PO-DRILL' AND received > 0",
		"UPDATE ap.payments SET amount = 1 WHERE partition_id = PARTITION", "DELETE FROM ap.payment_steps WHERE partition_id = PARTITION",
		"UPDATE gl.bank_lines SET amount = 1 WHERE partition_id = PARTITION", "DELETE FROM gl.bank_match_lines WHERE partition_id = PARTITION", "DELETE FROM gl.journal_payments WHERE partition_id = PARTITION",
		"DELETE FROM ap.ledgers WHERE partition_id = PARTITION", "UPDATE ap.vendors SET country = 'SE' WHERE vendor_id = 'FIRM-1' AND version = 5",
		"UPDATE ap.vendor_contacts SET email = NULL WHERE contact_id = 'C-2'")
	const repaired = "ap.vendors: 3 rows "
	dryRun := r.succeed(t, "rebuild", "ap.vendors", "--entity", "ap.vendor/FIRM-1", "--legal-entity", loadEntity, "--dry-run")
	require.Contains(t, dryRun, repaired+"are not as the log makes them; nothing was changed")
	require.Regexp(t, `(?m)^`+loadEntity+` +5 +\d+ +1 +4 +ap\.vendors +1 +0 +0 +1$`, dryRun)
	require.Regexp(t, `(?m)^`+loadEntity+` +3 +\d+ +1 +4 +ap\.vendor_contacts +3 +0 +0 +1$`, dryRun)
	t.Log(dryRun)
	require.Contains(t, r.succeed(t, "rebuild", "ap.vendors", "--subject", "contact:C-2"), repaired+"were not as the log makes them and are now")
	require.Contains(t, r.succeed(t, "rebuild", "ap.vendors", "--subject", "contact:unknown"), "no event of the projection is about this")
	differed := r.rebuildAllRows(t, 10_000)
	require.NotContains(t, strings.Join(differed, "\n"), "ap.vendor", "they were repaired with the person")
	require.GreaterOrEqual(t, len(differed), 14)
	require.Empty(t, r.rebuildAllRows(t, 10_000))
	for projection := range targets {
		if projection == "ap.vendors" {
			r.succeed(t, "drop", projection)
		}
		require.Contains(t, r.succeed(t, "rebuild", projection, "--compare"), ": 0 rows differ", projection)
	}

	for _, refused := range [][]string{
		{"admin", "projection.target_unsupported", "gl.ledger", "--entity", "ap.vendor/FIRM-1", "--legal-entity", loadEntity},
		{"admin", "projection.target_unsupported", "gl.ledger", "--entity", "gl.ledger/other", "--legal-entity", loadEntity},
		{"admin", "projection.partition_missing", "gl.ledger", "--entity", "gl.account/1000"},
		{"admin", "projection.not_found", "no.such", "--entity", "gl.account/1000", "--legal-entity", loadEntity},
		{"admin", "projection.not_found", "gl.ledger", "--entity", "gl.account/1000", "--legal-entity", loadEntity, "--version", "9"},
		{"admin", "projection.target_invalid", "gl.ledger", "--entity", "1000", "--legal-entity", loadEntity},
		{"admin", "pii.subject_invalid", "ap.vendors", "--subject", "Olaf Petersen"},
		{"auditor", "auth.forbidden", "ap.vendors", "--subject", "contact:C-2"},
	} {
		out := r.projections(t, refused[0], append([]string{"rebuild"}, refused[2:]...)...)
		require.Equal(t, 1, out.code, out)
		require.Contains(t, out.stderr, refused[1], fmt.Sprint(refused))
	}
}
