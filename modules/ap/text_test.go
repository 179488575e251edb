package ap_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
)

// What persons write is kept for ever: it has no characters that a reader does not see, and no
// account or card number. A refused intent is stored without the text.
func TestTexts(t *testing.T) {
	t.Parallel()
	const account, card = "DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111"
	b := newBooks(t)
	b.vendor("V1", nil)
	id := b.invoice(documentPayload("V1", "A", "10", nil))
	lines := func(member, value string) object {
		l := documentPayload("V1", "B", "11", nil)["lines"].([]object)
		l[0][member] = value
		return object{"lines": l}
	}
	for name, c := range map[string]struct {
		code, field, intentType, who string
		payload                      object
	}{
		"override in description":    {"text.invisible_character", "/payload/description", "ap.submit_invoice", "ap_clerk", documentPayload("V1", "B", "11", object{"description": "a\u202eb"})},
		"account in description":     {"pii.in_text", "/payload/description", "ap.submit_invoice", "ap_clerk", documentPayload("V1", "B", "11", object{"description": "pay to " + account})},
		"blank description of line":  {"text.blank", "/payload/lines/0/description", "ap.submit_invoice", "ap_clerk", documentPayload("V1", "B", "11", lines("description", " \u00a0"))},
		"card in line":               {"pii.in_text", "/payload/lines/0/description", "ap.submit_credit_memo", "ap_clerk", documentPayload("V1", "B", "11", lines("description", "card "+card))},
		"invisible item id":          {"text.invisible_character", "/payload/lines/0/item_id", "ap.submit_invoice", "ap_clerk", documentPayload("V1", "B", "11", lines("item_id", "I\u200b1"))},
		"account as reference":       {"pii.in_identifier", "/payload/payment_reference", "ap.submit_invoice", "ap_clerk", documentPayload("V1", "B", "11", object{"payment_reference": account})},
		"account as number":          {"pii.in_identifier", "/payload/invoice_number", "ap.submit_invoice", "ap_clerk", documentPayload("V1", account, "11", nil)},
		"filler as number":           {"ap.invoice.number_invalid", "/payload/invoice_number", "ap.submit_invoice", "ap_clerk", documentPayload("V1", "\u3164", "11", nil)},
		"draft":                      {"pii.in_text", "/payload/description", "ap.draft_invoice", "ap_clerk", object{"description": account}},
		"reason of a hold":           {"pii.in_text", "/payload/reason", "ap.hold_invoice", "approver", object{"invoice_id": id, "kind": "MANUAL", "reason": "account is now " + account}},
		"blank reason":               {"ap.hold.reason_required", "/payload/reason", "ap.hold_invoice", "approver", object{"invoice_id": id, "kind": "MANUAL", "reason": " "}},
		"comment":                    {"text.invisible_character", "/payload/comment", "ap.approve_invoice", "approver", object{"invoice_id": id, "comment": "o\u2066k"}},
		"name of a vendor":           {"text.invisible_character", "/payload/name", "ap.register_vendor", "ap_clerk", object{"name": "Pay\u200dpal", "country": "DE", "registration_id": "R9"}},
		"account as registration id": {"pii.in_identifier", "/payload/registration_id", "ap.register_vendor", "ap_clerk", object{"name": "A", "country": "DE", "registration_id": account}},
		"evidence":                   {"pii.in_text", "/payload/evidence_ref", "ap.request_bank_change", "ap_clerk", object{"vendor_id": "V1", "currency": "EUR", "iban": account, "holder": "A", "reason": "new", "evidence_ref": "letter with " + account}},
		"setting":                    {"text.invisible_character", "/payload/buyer/names/0", "ap.configure", "admin", object{"buyer": object{"names": []string{"De\u200bmo"}}}},
	} {
		f := b.refuse(c.code, c.who, c.intentType, c.payload)
		require.Equal(t, c.field, f.Field, name)
		stored := b.stored(f.IntentID)
		if c.code == "pii.in_text" || c.code == "pii.in_identifier" {
			require.Contains(t, stored, "[REDACTED]", name)
		}
	}
	for _, e := range b.all() {
		require.NotContains(t, string(e.Payload), account)
		require.NotContains(t, string(e.Payload), card)
	}
	// What only looks like it passes.
	b.invoice(documentPayload("V1", "94111111111111111", "12", object{
		"payment_reference": "4111111111111111", "description": "EAN 4006381333931, lot 4500123456", "external_reference": "Purchasing 42",
	}))
	b.execute("ap_clerk", "ap.register_vendor", object{"name": "Société", "country": "FR", "registration_id": "44306184100047"})
}

// A text that is refused and a name in the wrong place: the stored intent has neither.
func TestTexts_PersonInClear(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	f := b.refuse("text.invisible_character", "ap_clerk", "ap.register_vendor", object{
		"natural_person": true, "country": "DE", "name": "Mira Sandvik", "vat_id": "DE136695976", "party_id": "0196:\u200b1",
	})
	stored := b.stored(f.IntentID)
	require.NotContains(t, stored, "Mira")
	require.NotContains(t, stored, "DE136695976")
	require.NotEqual(t, event.ID{}.String(), f.IntentID)
}
