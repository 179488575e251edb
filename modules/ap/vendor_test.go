package ap_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestRegisterVendor(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	for _, want := range []string{"V-000001", "V-000002"} {
		e := b.events(b.execute("ap_clerk", "ap.register_vendor", object{"name": "A " + want, "country": "DE", "registration_id": "HRB " + want}))[0]
		require.Equal(t, event.StreamID{Type: "ap.vendor", ID: want}, e.Stream)
		require.Equal(t, want, e.data["vendor_id"])
		require.Equal(t, []event.EntityRef{{Type: "vendor", ID: want, Role: "subject"}}, e.body.EntityRefs)
		b.invoice(documentPayload(want, "1", "10", nil))
	}
	chosen := b.execute("vendor_admin", "ap.register_vendor", object{"vendor_id": "V-1042", "name": "Contoso", "country": "US", "vat_id": "US 12.34", "currency": "USD",
		"terms": object{"net_days": 14, "discount_days": 7, "discount_percent": 2}, "default_account": "5100", "default_dimensions": object{"department": "PROD"}, "withholding_code": "W10"})
	e := b.events(chosen)[0]
	require.Equal(t, "vat:US1234", e.data["identity"])
	require.Equal(t, "US 12.34", e.data["vat_id"])

	holder := func(p object) string {
		f := b.refuse("ap.vendor.duplicate", "importer", "ap.register_vendor", p)
		require.Equal(t, fault.Conflict, f.Kind)
		return f.Holder.DocumentID
	}
	require.Equal(t, "V-1042", holder(object{"vendor_id": "V-1042", "name": "Other", "country": "US"}), "same id")
	require.Equal(t, "V-1042", holder(object{"name": "Other", "country": "US", "vat_id": "us1234"}), "same VAT id")
	require.Equal(t, "V-000001", holder(object{"name": "Other", "country": "DE", "registration_id": "hrbV-000001"}), "same registration id")

	// A party id identifies a vendor only if it has no VAT or registration id.
	person := b.execute("importer", "ap.register_vendor", object{"natural_person": true, "country": "DK", "party_id": "1238764941386"})
	require.Equal(t, person.Events[0].Stream.ID, holder(object{"natural_person": true, "country": "DK", "party_id": "12387 64941386"}))
	b.execute("importer", "ap.register_vendor", object{"name": "Firm", "country": "DK", "party_id": "1238764941386", "vat_id": "DK13585628"})
	b.execute("importer", "ap.register_vendor", object{"name": "Firm", "country": "DK", "registration_id": "1238764941386"})
}

func TestVendorRefusals(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	for code, more := range map[string]object{
		"ap.vendor.id_reserved":         {"vendor_id": "V-000017"},
		"money.currency_unsupported":    {"currency": "XAU"},
		"money.scale":                   {"terms": object{"net_days": 1, "discount_percent": n("1.0000001")}},
		"ap.withholding_code.not_found": {"withholding_code": "W99"},
		"intent.schema_invalid":         {"country": "Denmark"},
		"ap.vendor.country_unknown":     {"country": "UK"},
		"ap.vendor.vat_id_invalid":      {"vat_id": "DE 136695978"},
	} {
		p := object{"name": "A", "country": "DE"}
		for k, v := range more {
			p[k] = v
		}
		b.refuse(code, "ap_clerk", "ap.register_vendor", p)
	}
	b.refuse("intent.forbidden", "approver", "ap.register_vendor", object{"name": "A", "country": "DE"})
}

// A VAT id of wrong form is registered only if the caller says that it is taken as printed.
// One of a country whose form is not known is registered.
func TestRegisterVendor_VATID(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	for _, p := range []object{
		{"name": "A", "country": "DE", "vat_id": "de 136 695 976"},
		{"name": "B", "country": "DE", "vat_id": "DE136695978", "vat_id_unverified": true},
		{"name": "C", "country": "US", "vat_id": "US12-3456789"},
	} {
		e := b.events(b.execute("ap_clerk", "ap.register_vendor", p))[0]
		require.Equal(t, p["vat_id"], e.data["vat_id"])
	}
}
