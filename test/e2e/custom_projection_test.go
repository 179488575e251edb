package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// customRows is a page of rows of a custom projection.
type customRows struct {
	Sequence string `json:"sequence"`
	Rows     []struct {
		Key   string          `json:"key"`
		State json.RawMessage `json:"state"`
	} `json:"rows"`
	HasMore    bool   `json:"has_more"`
	NextCursor string `json:"next_cursor"`
}

// TestCustomProjection defines figures that no module has, exact sums of invoices by vendor:
// a dry run, the projection, its rows, and the rows after a restart.
func TestCustomProjection(t *testing.T) {
	t.Parallel()
	const entity = "USMF"
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	clerk, vendors, auditor := d.as(t, "ap_clerk"), d.as(t, "vendor_admin"), d.as(t, "auditor")
	cli := func(persona string, args ...string) result { t.Helper(); return d.as(t, persona).command(t, args...) }
	ok := func(persona string, args ...string) string { t.Helper(); return d.as(t, persona).succeed(t, args...) }
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	bill := func(vendor, number, amount string) {
		t.Helper()
		i := invoice(vendor, number)
		n := json.Number(amount)
		i["total_amount"], i["lines"] = n, []object{{
			"line_number": 1, "description": "Widget", "quantity": 1, "unit_price": n, "amount": n, "account": "5100",
			"dimensions": object{"department": "PROD", "cost_center": "CC-5100"},
		}}
		clerk.must(t, entity, "ap.submit_invoice", i)
	}
	for _, vendor := range []string{"V-A", "V-B"} {
		vendors.must(t, entity, "ap.register_vendor", object{"vendor_id": vendor, "name": "Firm Ltd", "country": "US"})
	}
	bill("V-A", "1", "0.10")
	bill("V-A", "2", "0.20")
	bill("V-B", "3", "1234567890.12")

	definition := file("spend.yaml", `
name: spend
description: What vendors have billed.
filter:
  types: [ap.invoice.submitted]
key: .data.vendor_id
fold: |
  {count: ((.state.count // 0) + 1), # invoices
   total: ((.state.total // 0) + .event.data.total_amount)}
`)
	require.Contains(t, cli("operator", "projections", "create", definition).stderr, "auth.forbidden")
	require.Contains(t, ok("admin", "projections", "create", definition, "--dry-run"), "spend would do; it was not created. It was tried on 3 events.")
	require.Contains(t, cli("auditor", "projections", "rows", "spend", "--legal-entity", entity).stderr, "projection.not_found")
	require.Contains(t, ok("admin", "projections", "create", definition), "spend is created and runs.")
	require.Contains(t, cli("admin", "projections", "create", definition).stderr, "projection.exists")
	require.Contains(t, cli("admin", "projections", "create", file("bad.json", `{"name":"bad","filter":{"types":["ap.invoice.submitted"]},"key":".data.vendor_id","fold":".event.data.invoice_number + 1"}`)).stderr, "projection.trial_failed")

	read := func(c client, more string) (page customRows) {
		t.Helper()
		head, err := auditor.head(entity)
		require.NoError(t, err)
		require.NoError(t, c.wantCaughtUp(&page, "/api/projections/spend?legal_entity="+entity+"&min_sequence="+head+more))
		return page
	}
	page := read(auditor, "")
	require.Len(t, page.Rows, 2)
	require.Equal(t, `{"count":2,"total":0.30}`, string(page.Rows[0].State))
	require.Equal(t, `{"count":1,"total":1234567890.12}`, string(page.Rows[1].State))
	bill("V-B", "4", "0.01")
	page = read(auditor, "&key=V-B")
	require.Equal(t, `{"count":2,"total":1234567890.13}`, string(page.Rows[0].State))
	first := read(auditor, "&limit=1")
	require.True(t, first.HasMore)
	require.Equal(t, "V-B", read(auditor, "&limit=1&cursor="+first.NextCursor).Rows[0].Key)
	a := must(d.as(t, "admin").do("GET", "/api/projections/spend?legal_entity="+entity, ""))
	require.Equal(t, http.StatusForbidden, a.status, "rows need the right to read events")
	for _, foreign := range []string{"demo%2Fspend", "other%2Fspend"} {
		require.Equal(t, http.StatusNotFound, must(d.as(t, "admin").do("GET", "/api/admin/projections/"+foreign, "")).status)
		require.Equal(t, http.StatusNotFound, must(d.as(t, "admin").do("DELETE", "/api/admin/projections/"+foreign, "")).status)
	}
	spendCaughtUp := regexp.MustCompile(`(?m)^spend +1 +running +0 `) // with all legal entities
	testkit.Eventually(t, endTime, func() bool { return spendCaughtUp.MatchString(ok("operator", "projections", "list")) }, "the projection catches up")
	require.Contains(t, ok("operator", "projections", "show", "spend"), "spend, version 1: running")
	expect(t, http.StatusUnprocessableEntity, "projection.built_in", must(d.as(t, "admin").do("PUT", "/api/admin/projections/gl.ledger", `{"name":"gl.ledger","key":".id","fold":".event"}`)))

	// Rows that an invoice contributed to are rebuilt from all their events.
	require.Contains(t, ok("operator", "projections", "rebuild", "spend", "--entity", "vendor/V-A", "--legal-entity", entity, "--dry-run"), "spend: all rows are as the log makes them")

	// Personal values are stored sealed, and opened for entitled readers.
	clerk.must(t, entity, "ap.set_vendor_contact", object{"vendor_id": "V-A", "contact_id": "C-1", "name": "Olaf Petersen", "email": "olaf@example.org"})
	ok("admin", "projections", "create", file("contacts.json", `{"name":"contacts","filter":{"types":["ap.vendor.contact_recorded"]},"key":".data.vendor_id",
		"fold":"{mails: ((.state.mails // []) + [.event.data.email])}"}`))
	contacts := func(persona string) string {
		t.Helper()
		head, err := auditor.head(entity)
		require.NoError(t, err)
		for began := time.Now(); ; { // the answer asks to try again
			r := cli(persona, "projections", "rows", "contacts", "--legal-entity", entity, "--min-sequence", head, "--json")
			if !strings.Contains(r.stderr, notCaughtUp) || time.Since(began) > endTime {
				require.Zero(t, r.code, r)
				return r.stdout
			}
		}
	}
	require.Contains(t, contacts("ap_clerk"), "olaf@example.org")
	require.NotContains(t, contacts("auditor"), "olaf")
	require.Contains(t, contacts("auditor"), maskedValue)
	require.Contains(t, ok("operator", "projections", "rebuild", "contacts", "--subject", "contact:C-1"), "contacts: all rows are as the log makes them")
	officer := d.as(t, "compliance")
	request := officer.requestErasure(t, "contact:C-1")
	d.as(t, "compliance_approver").approveErasure(t, request.ID)
	officer.awaitErasure(t, request.ID)
	require.NotContains(t, contacts("ap_clerk"), "olaf")
	require.Contains(t, contacts("ap_clerk"), redactedValue, "the row keeps a sealed copy that no key opens any more")

	// Another server on the same books continues; a reset gives the same rows.
	require.NoError(t, d.end())
	d = startOn(t, dir, recoveryStart)
	clerk, auditor = d.as(t, "ap_clerk"), d.as(t, "auditor")
	bill("V-A", "5", "0.70")
	want := `{"count":3,"total":1.00}`
	require.Equal(t, want, string(read(auditor, "&key=V-A").Rows[0].State))
	ok("operator", "projections", "reset", "spend", "--legal-entity", entity)
	testkit.Eventually(t, endTime, func() bool {
		rows := read(auditor, "&prefix=V-A").Rows
		return len(rows) == 1 && string(rows[0].State) == want
	})
	require.Contains(t, ok("admin", "projections", "delete", "spend"), "spend is deleted.")
	require.Contains(t, cli("auditor", "projections", "rows", "spend", "--legal-entity", entity).stderr, "projection.not_found")
	require.NotContains(t, ok("operator", "projections", "list"), "spend")
	require.Contains(t, ok("admin", "projections", "create", definition, "--json"), `"version": 2`, "a number is not given twice")
}
