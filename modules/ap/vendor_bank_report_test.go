package ap_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	appostgres "github.com/erpbackbone/backbone/modules/ap/adapters/postgres"
)

// TestVendors_ChangesAndBankAccounts reads the report after each step, all from one projection.
func TestVendors_ChangesAndBankAccounts(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	registered := b.events(b.execute("vendor_admin", "ap.register_vendor", object{"vendor_id": "V1", "name": "Firm", "country": "DE"}))[0].ID.String()
	b.naturalPerson(object{"vendor_id": "SOLE-1"})
	type step struct {
		known  event.Sequence
		status string
		name   string
		bank   string
	}
	const none = `{"state":"none","accounts":[]}`
	eur := func(request, number string) string {
		return `{"request_id":"` + request + `","currency":"EUR","iban":"` + number + `","bic":"COBADEFFXXX","holder":"` + ibanHolder + `"}`
	}
	usd := `{"request_id":"V1-B4","currency":"USD","account":"0123456","bank":"021000021","holder":"` + ibanHolder + `"}`
	var steps []step
	after := func(status, name, bank string) { steps = append(steps, step{b.head(), status, name, bank}) }

	after("active", "Firm", none)
	b.execute("vendor_admin", "ap.block_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "x"})
	after("payment_blocked", "Firm", none)
	b.execute("vendor_admin", "ap.change_vendor", object{"vendor_id": "V1", "name": "Firm Two", "country": "AT", "reason": "x"})
	after("payment_blocked", "Firm Two", none)
	b.execute("vendor_admin", "ap.unblock_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "x"})
	b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", nil))
	after("active", "Firm Two", `{"state":"pending","accounts":[],"request":`+eur("V1-B1", iban)+`}`)
	b.execute("controller", "ap.reject_bank_change", object{"request_id": "V1-B1", "reason": "x"})
	after("active", "Firm Two", none)
	b.bankAccount("V1", nil)
	after("active", "Firm Two", `{"state":"approved","accounts":[`+eur("V1-B2", iban)+`]}`)
	b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", object{"iban": otherIBAN}))
	after("active", "Firm Two", `{"state":"pending","accounts":[`+eur("V1-B2", iban)+`],"request":`+eur("V1-B3", otherIBAN)+`}`)
	b.execute("vendor_admin", "ap.approve_bank_change", object{"request_id": "V1-B3", "verification": "x"})
	after("active", "Firm Two", `{"state":"approved","accounts":[`+eur("V1-B3", otherIBAN)+`]}`)
	b.bankAccount("V1", object{"iban": nil, "bic": nil, "currency": "USD", "account": "0123456", "bank": "021000021"})
	after("active", "Firm Two", `{"state":"approved","accounts":[`+eur("V1-B3", otherIBAN)+`,`+usd+`]}`)
	b.bankAccount("SOLE-1", nil)
	b.execute("vendor_admin", "ap.change_vendor", object{"vendor_id": "SOLE-1", "person": object{"name": personName, "address": "Ny gata 1"}, "reason": "moved"})

	project(t, p, appostgres.NewVendorProjection(), b.all(), 3)
	for _, s := range steps {
		country := "DE"
		if s.name == "Firm Two" {
			country = "AT"
		}
		stored := b.vendors(p, "2025-12-31", s.known, map[string]string{"vendor": "V1"})
		require.NotContains(t, stored, iban)
		require.JSONEq(t, fmt.Sprintf(`[{"vendor_id":"V1","name":%q,"country":%q,"status":%q,"natural_person":false,"contacts":[],"bank":%s,"event_id":%q}]`,
			s.name, country, s.status, s.bank, registered), b.keys.open(t, []byte(stored)), "known at %d", s.known)
	}
	sole := b.vendors(p, "2025-12-31", b.head(), map[string]string{"vendor": "SOLE-1"})
	require.Contains(t, b.keys.open(t, []byte(sole)), "Ny gata 1")
	require.Equal(t, 3, b.copies(p, "vendor:SOLE-1"), "registration, change and account")
	require.JSONEq(t, "[]", b.vendors(p, "2025-03-19", b.head(), nil), "before the registration")

	// An erased trader keeps the state, and the values are gone: in the copies, and in rows
	// that are written again.
	b.keys.erase("vendor:SOLE-1")
	redacted := `"bank":{"state":"approved","accounts":[{"request_id":"SOLE-1-B1","currency":"EUR","iban":"[REDACTED]","bic":"[REDACTED]","holder":"[REDACTED]"}]}`
	compact := func(text string) string { return string(jsondoc.AppendCompact(nil, []byte(text))) }
	require.Contains(t, compact(b.keys.open(t, []byte(sole))), redacted)
	b.deleteRows(p, "ap.vendors", "ap.vendor_accounts")
	project(t, p, appostgres.NewVendorProjection(), redact(t, b.all(), "vendor:SOLE-1"), 1000)
	require.Zero(t, b.copies(p, "vendor:SOLE-1"))
	require.Contains(t, compact(b.vendors(p, "2025-12-31", b.head(), map[string]string{"vendor": "SOLE-1"})), redacted)
	var rows int
	require.NoError(t, p.QueryRow(t.Context(), "SELECT count(*) FROM ap.vendor_accounts WHERE partition_id = $1", b.entity.Partition).Scan(&rows))
	require.Equal(t, 10, rows, "five requests and their decisions")
}
