package ap_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// vendorState folds a vendor's stream from its first event.
func (b *books) vendorState(id string) *domain.Vendor {
	b.tb.Helper()
	fold, _ := catalog.Fold(contract.StreamVendor)
	state := fold.New()
	for _, e := range b.all() {
		if e.Stream != contract.VendorStream(id) {
			continue
		}
		body, err := e.Body()
		require.NoError(b.tb, err)
		require.NoError(b.tb, fold.Apply(state, e, body.Data))
	}
	return state.(*domain.Vendor)
}

func TestChangeVendor(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", object{"terms": object{"net_days": 14}, "default_account": "5100"})
	e := b.events(b.execute("vendor_admin", "ap.change_vendor", object{
		"vendor_id": "V1", "name": "Renamed Ltd", "registration_id": "R-2", "terms": object{"net_days": 60}, "default_dimensions": object{"department": "ENG"},
		"withholding_code": "W10", "currency": "USD", "country": "AT", "party_id": "P-2", "reason": "merger",
	}))[0]
	require.Equal(t, "ap.vendor.changed", e.Type)
	require.NotContains(t, e.data, "default_account", "what is not given is not in the event")
	v := b.vendorState("V1")
	require.Equal(t, []any{"Renamed Ltd", "AT", "R-2", "P-2", "USD", "5100", "W10", 60, map[string]string{"department": "ENG"}},
		[]any{v.Master.Name, v.Master.Country, v.Master.RegistrationID, v.Master.PartyID, v.Master.Currency, v.Master.DefaultAccount, v.Master.WithholdingCode, v.Master.Terms.NetDays, v.Master.DefaultDimensions})
	submitted := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "1", "10", nil)))[0]
	require.Equal(t, "2025-05-14", submitted.data["due_date"], "by the new terms")
	entity, _ := b.entityOf("vendor", "V1")
	require.Equal(t, []any{"Renamed Ltd", "AT", "active"}, []any{entity["name"], entity["country"], entity["status"]})

	b.naturalPerson(object{"vendor_id": "SOLE-1"})
	moved := b.events(b.execute("vendor_admin", "ap.change_vendor", object{"vendor_id": "SOLE-1", "person": object{"name": personName, "address": "Ny gata 1"}, "reason": "moved"}))[0]
	require.Equal(t, "vendor:SOLE-1", moved.data["person"].(object)["sub"])
	require.NotContains(t, b.stored(moved.IntentID.String()), "Ny gata")
	_, state := b.entityOf("vendor", "SOLE-1")
	require.NotContains(t, state, "Mira")

	for _, c := range []struct {
		code, field string
		payload     object
	}{
		{"ap.vendor.not_found", "/vendor_id", object{"vendor_id": "V9", "country": "DE", "reason": "x"}},
		{"ap.vendor.person_unexpected", "/person", object{"vendor_id": "V1", "person": mira, "reason": "x"}},
		{"ap.vendor.person_in_clear", "/name", object{"vendor_id": "SOLE-1", "name": personName, "reason": "x"}},
		{"money.currency_unsupported", "/currency", object{"vendor_id": "V1", "currency": "XAU", "reason": "x"}},
		{"money.scale", "/terms/discount_percent", object{"vendor_id": "V1", "terms": object{"net_days": 1, "discount_percent": n("1.0000001")}, "reason": "x"}},
		{"ap.withholding_code.not_found", "/withholding_code", object{"vendor_id": "V1", "withholding_code": "W99", "reason": "x"}},
	} {
		f := b.refuse(c.code, "vendor_admin", "ap.change_vendor", c.payload)
		require.Equal(t, inPayload(c.field), f.Field)
		require.NotContains(t, b.stored(f.IntentID), "Mira", c.code)
	}
	for _, bad := range []object{{}, {"vat_id": "DE1"}, {"natural_person": true}, {"name": "A", "reason": " "}} {
		p := object{"vendor_id": "V1", "reason": "x"}
		for k, v := range bad {
			p[k] = v
		}
		b.refuse("intent.schema_invalid", "vendor_admin", "ap.change_vendor", p)
	}
	b.refuse("intent.forbidden", "ap_clerk", "ap.change_vendor", object{"vendor_id": "V1", "country": "DE", "reason": "x"})
}

func TestBlockVendor(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	waiting := b.invoice(documentPayload("V1", "1", "10", nil))
	block := func(verb, scope string) recorded {
		return b.events(b.execute("controller", "ap."+verb+"_vendor", object{"vendor_id": "V1", "scope": scope, "reason": "dispute"}))[0]
	}
	check := func(scope string) string { return fault.CodeOf(b.vendorState("V1").CheckNotBlocked(scope)) }
	status := func() any { e, _ := b.entityOf("vendor", "V1"); return e["status"] }

	require.Equal(t, "payment_blocked", block("block", "payment").data["status"])
	require.Equal(t, []any{"", "ap.vendor.blocked", "payment_blocked"}, []any{check("all"), check("payment"), status()})
	b.invoice(documentPayload("V1", "2", "11", nil))
	f := b.refuse("ap.vendor.wrong_state", "vendor_admin", "ap.block_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "again"})
	require.Equal(t, "payment_blocked", f.Attributes["state"])

	require.Equal(t, "blocked", block("block", "all").data["status"])
	require.Equal(t, []string{"ap.vendor.blocked", "ap.vendor.blocked"}, []string{check("all"), check("payment")})
	refused := b.refuse("ap.vendor.blocked", "ap_clerk", "ap.submit_invoice", documentPayload("V1", "3", "12", nil))
	require.Equal(t, fault.FailedPrecondition, refused.Kind)
	b.refuse("ap.vendor.blocked", "approver", "ap.approve_invoice", object{"invoice_id": waiting})

	require.Equal(t, "payment_blocked", block("unblock", "all").data["status"], "the other block stays")
	require.Equal(t, []string{"", "ap.vendor.blocked"}, []string{check("all"), check("payment")})
	require.Equal(t, "active", block("unblock", "payment").data["status"])
	require.Equal(t, "active", status())
	require.Empty(t, b.vendorState("V1").Blocks)
	b.execute("approver", "ap.approve_invoice", object{"invoice_id": waiting})
	b.refuse("ap.vendor.wrong_state", "vendor_admin", "ap.unblock_vendor", object{"vendor_id": "V1", "scope": "payment", "reason": "again"})
	b.refuse("ap.vendor.not_found", "vendor_admin", "ap.block_vendor", object{"vendor_id": "V9", "scope": "all", "reason": "x"})
	b.refuse("intent.schema_invalid", "vendor_admin", "ap.block_vendor", object{"vendor_id": "V1", "scope": "orders", "reason": "x"})
	b.refuse("intent.forbidden", "ap_clerk", "ap.block_vendor", object{"vendor_id": "V1", "scope": "all", "reason": "x"})
}

// TestSubmit_SameParty submits a paper of a company that is registered twice.
func TestSubmit_SameParty(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", object{"vat_id": "DE123456", "vat_id_unverified": true})
	b.vendor("V2", object{"vat_id": "DE-123456", "vat_id_unverified": true}) // the business key leaves hyphens in place
	b.vendor("V3", object{"vat_id": "DE999999", "vat_id_unverified": true})
	first := b.invoice(documentPayload("V1", "INV-7", "10", nil))
	other := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V3", "INV-7", "10", nil)))
	require.Equal(t, "ap.invoice.validated", other[1].Type, "of another company")
	held := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V2", "inv 007", "10.00", nil)))[1]
	require.Equal(t, "DUPLICATE_SUSPECT", held.data["kind"])
	require.Equal(t, object{"document_id": first, "rules": []any{"party"}}, held.data["finding"])
	b.invoice(documentPayload("V2", "INV-8", "11", nil))
}
