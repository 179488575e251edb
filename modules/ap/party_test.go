package ap_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A paper that is addressed to another buyer is held until another person releases it. The
// buyer is in no event and in no stored intent.
func TestBuyerDiffers(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	submit := func(number string, buyer object) []recorded {
		t.Helper()
		return b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", number, "1"+number, object{"buyer": buyer})))
	}
	byName := submit("1", object{"names": []string{"DEMO"}}) // the name under which the books are kept
	require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.validated"}, types(byName))
	require.Equal(t, "name", byName[0].data["buyer_match"])
	require.Equal(t, "name", submit("2", object{"vat_id": "DE136695976", "names": []string{"Demo"}})[0].data["buyer_match"], "nothing is configured to compare with")

	b.execute("admin", "ap.configure", object{"buyer": object{"vat_ids": []string{"DE 999000197"}, "names": []string{"Demo Manufacturing GmbH"}}})
	require.Equal(t, "vat_id", submit("3", object{"vat_id": "de999000197"})[0].data["buyer_match"])
	held := submit("4", object{"vat_id": "DE136695976", "names": []string{"Mira Sandvik"}})
	require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.held"}, types(held))
	require.Equal(t, []any{"differs", "BUYER_DIFFERS", "approval"}, []any{held[0].data["buyer_match"], held[1].data["kind"], held[1].data["blocks"]})
	stored := b.stored(held[0].IntentID.String())
	require.Contains(t, stored, `"buyer_match":"differs"`)
	for _, e := range b.all() {
		require.NotContains(t, string(e.Payload), "Mira Sandvik")
		require.NotContains(t, string(e.Payload), "DE136695976")
	}
	require.NotContains(t, stored, "Mira Sandvik")

	invoice := object{"invoice_id": held[0].Stream.ID}
	release := object{"hold_id": held[1].data["hold_id"], "reason": "our branch; the supplier has the old number"}
	b.refuse("ap.invoice.on_hold", "approver", "ap.approve_invoice", invoice)
	b.refuse("sod.same_person", "approver:ap_clerk", "ap.release_hold", release)
	b.execute("approver", "ap.release_hold", release)
	b.execute("approver", "ap.approve_invoice", invoice)

	// A correction with the buyer compares again; one without keeps the outcome.
	again := submit("5", object{"names": []string{"Other"}})
	correction := documentPayload("V1", "5", "15", object{"invoice_id": again[0].Stream.ID, "reason": "read again"})
	delete(correction, "vendor_id")
	delete(correction, "invoice_number")
	require.Equal(t, []string{"ap.invoice.corrected"}, types(b.events(b.execute("ap_clerk", "ap.correct_invoice", correction))), "the hold stays")
	correction["buyer"] = object{"names": []string{"Demo Manufacturing"}}
	require.Equal(t, []string{"ap.invoice.corrected", "ap.invoice.hold_released", "ap.invoice.validated"}, types(b.events(b.execute("ap_clerk", "ap.correct_invoice", correction))))

	require.Equal(t, "ap.buyer.vat_id_invalid", b.refuse("ap.buyer.vat_id_invalid", "admin", "ap.configure", object{"buyer": object{"vat_ids": []string{"DE999000198"}}}).Code)
	b.refuse("intent.forbidden", "ap_clerk", "ap.configure", object{"buyer": object{"names": []string{"Mine"}}})
}

// The seller's name on a file is compared with that of the vendor with its identifier.
func TestSellerDiffers(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", object{"name": "Nordlicht Büroausstattung GmbH"})
	b.naturalPerson(object{"vendor_id": "SOLE-1"})
	source := object{"syntax": "UBL 2.1", "sha256": "64e8acf622dfc09508e3c8ac213b8ab869fe7a65b48a7ecb7992e48ecf0125f6"}
	submit := func(vendor, number, name string, more object) []recorded {
		t.Helper()
		p := documentPayload(vendor, number, "1"+number, object{"vendor_name": name})
		for k, v := range more {
			p[k] = v
		}
		return b.events(b.execute("ap_clerk", "ap.submit_invoice", p))
	}
	fromFile := object{"source_document": source}
	require.Equal(t, "ap.invoice.validated", submit("V1", "1", "NORDLICHT BUEROAUSSTATTUNG", fromFile)[1].Type)
	require.Equal(t, "ap.invoice.validated", submit("V1", "2", "What a person typed", nil)[1].Type, "a person chose the vendor")
	require.Equal(t, "ap.invoice.validated", submit("SOLE-1", "3", "Another Person", fromFile)[1].Type, "names of persons are sealed")
	held := submit("V1", "4", "Südlicht GmbH", fromFile)
	require.Equal(t, []any{"ap.invoice.held", "SELLER_DIFFERS", "approval"}, []any{held[1].Type, held[1].data["kind"], held[1].data["blocks"]})

	// The vendor was renamed: another check ends the hold.
	b.execute("vendor_admin", "ap.change_vendor", object{"vendor_id": "V1", "name": "Südlicht AG", "reason": "new name in the register"})
	validated := b.events(b.execute("ap_clerk", "ap.validate_invoice", object{"invoice_id": held[0].Stream.ID}))
	require.Equal(t, []string{"ap.invoice.hold_released", "ap.invoice.validated"}, types(validated))
}

// The name of a seller who may be a person is compared with the sealed one. Neither is in an event, a hold,
// a rule or a stored intent, and an erased name is none.
func TestSellerDiffers_Person(t *testing.T) {
	t.Parallel()
	const other = "Jane Roe"
	b := newBooks(t)
	b.vendor("V1", object{"name": "Nordlicht GmbH"})
	b.naturalPerson(object{"vendor_id": "SOLE-1"})
	payload := func(vendor, number, seller string) object {
		return documentPayload(vendor, number, "1"+number, object{"seller_name": seller, "description": "Translation"})
	}
	submit := func(vendor, number, seller string) []recorded {
		t.Helper()
		out := b.execute("ap_clerk", "ap.submit_invoice", payload(vendor, number, seller))
		stored := b.stored(out.IntentID.String())
		require.NotContains(t, stored, "seller_name")
		require.NotContains(t, fmt.Sprintf("%+v", out.Rules)+stored, seller)
		return b.events(out)
	}
	same := submit("SOLE-1", "1", "MIRA SANDVIK")
	require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.validated"}, types(same))
	require.Equal(t, "name", same[0].data["seller_match"])
	held := submit("SOLE-1", "2", other)
	require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.held"}, types(held))
	require.Equal(t, []any{"differs", "SELLER_DIFFERS", "approval"}, []any{held[0].data["seller_match"], held[1].data["kind"], held[1].data["blocks"]})
	require.Equal(t, "differs", submit("V1", "3", other)[0].data["seller_match"], "a company's name is compared too")

	// The document keeps the outcome: no other check and no correction ends the hold.
	invoice := object{"invoice_id": held[0].Stream.ID}
	b.refuse("ap.invoice.on_hold", "ap_clerk", "ap.validate_invoice", invoice)
	correction := documentPayload("SOLE-1", "2", "12", object{"invoice_id": held[0].Stream.ID, "reason": "read again"})
	delete(correction, "vendor_id")
	delete(correction, "invoice_number")
	require.Equal(t, []string{"ap.invoice.corrected"}, types(b.events(b.execute("ap_clerk", "ap.correct_invoice", correction))))
	correction["seller_match"] = "name"
	b.refuse("intent.schema_invalid", "ap_clerk", "ap.correct_invoice", correction)
	b.refuse("ap.invoice.on_hold", "approver", "ap.approve_invoice", invoice)
	b.execute("approver", "ap.release_hold", object{"hold_id": held[1].data["hold_id"], "reason": "her married name"})
	b.execute("approver", "ap.approve_invoice", invoice)

	// The name that the vendor has now counts.
	b.execute("vendor_admin", "ap.change_vendor", object{"vendor_id": "SOLE-1", "reason": "married", "person": object{"name": other, "address": "Birkenweg 9, 22100 Lund"}})
	require.Equal(t, "name", submit("SOLE-1", "4", other)[0].data["seller_match"])
	require.Equal(t, "differs", submit("SOLE-1", "5", personName)[0].data["seller_match"])

	// A refusal keeps no name either, of the policy as of the planner.
	for code, who := range map[string]string{"intent.forbidden": "auditor", "ap.vendor.not_found": "ap_clerk", "ap.invoice.duplicate": "ap_clerk"} {
		p := payload("SOLE-1", "4", personName)
		if code == "ap.vendor.not_found" {
			p["vendor_id"] = "SOLE-9"
		}
		f := b.refuse(code, who, "ap.submit_invoice", p)
		require.NotContains(t, b.stored(f.IntentID)+f.Detail+fmt.Sprint(f.Attributes), personName)
	}
	b.refuse("intent.schema_invalid", "ap_clerk", "ap.draft_invoice", object{"invoice_number": "6", "seller_name": other})

	b.keys.erase("vendor:SOLE-1")
	erased := submit("SOLE-1", "7", "Petra Sommer")
	require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.validated"}, types(erased))
	require.Equal(t, "not_checked", erased[0].data["seller_match"])
	b.naturalPerson(object{"vendor_id": "SOLE-2", "person": nil, "party_id": "P2"})
	require.Equal(t, "not_checked", submit("SOLE-2", "8", other)[0].data["seller_match"], "the vendor was registered without a name")

	for _, e := range b.all() {
		for _, name := range []string{"Mira", "MIRA", other, "Petra Sommer"} {
			require.NotContains(t, string(e.Payload), name, e.Type)
		}
	}
}

// VAT ids of natural persons are checked before they are sealed, as those of companies are.
func TestPersonVATID(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	person := func(vatID string) object { return object{"name": "Mira Sandvik", "vat_id": vatID} }
	register := func(vatID string, more object) object {
		p := object{"natural_person": true, "country": "DE", "party_id": vatID, "person": person(vatID)}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	f := b.refuse("ap.vendor.vat_id_invalid", "ap_clerk", "ap.register_vendor", register("DE136695978", nil))
	require.Equal(t, "/payload/person/vat_id", f.Field)
	require.Equal(t, "check_digit", f.Attributes["verdict"])
	b.refuse("ap.vendor.vat_id_invalid", "ap_clerk", "ap.register_vendor", register("136695976", nil))
	b.execute("ap_clerk", "ap.register_vendor", register("DE136695978", object{"vat_id_unverified": true}))
	id := b.events(b.execute("ap_clerk", "ap.register_vendor", register("DE 136 695 976", nil)))[0].Stream.ID

	change := object{"vendor_id": id, "reason": "moved", "person": person("DE136695978")}
	b.refuse("ap.vendor.vat_id_invalid", "vendor_admin", "ap.change_vendor", change)
	change["vat_id_unverified"] = true
	b.execute("vendor_admin", "ap.change_vendor", change)
	b.refuse("ap.vendor.country_unknown", "vendor_admin", "ap.change_vendor", object{"vendor_id": id, "reason": "moved", "country": "UK"})
}
