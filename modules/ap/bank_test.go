package ap_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// The accounts that the tests send.
const (
	iban        = "DE89370400440532013000"
	otherIBAN   = "GB29NWBK60161331926819"
	ibanHolder  = "Firm Holding Account"
	writtenIBAN = "de89 3704 0044 0532 0130 00"
)

// bankRequest is the payload of a request of an account in EUR.
func bankRequest(vendor string, more object) object {
	p := object{"vendor_id": vendor, "currency": "EUR", "iban": writtenIBAN, "bic": "COBADEFFXXX", "holder": ibanHolder, "evidence_ref": "LETTER-1", "reason": "first account"}
	for k, v := range more {
		if p[k] = v; v == nil {
			delete(p, k)
		}
	}
	return p
}

// bankAccount makes an approved account of a vendor.
func (b *books) bankAccount(vendor string, more object) {
	b.tb.Helper()
	id := b.events(b.execute("ap_clerk", "ap.request_bank_change", bankRequest(vendor, more)))[0].data["request_id"]
	b.execute("vendor_admin", "ap.approve_bank_change", object{"request_id": id, "verification": "called the number of the last contract"})
}

func TestBankChange(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	payable := func() string { _, err := b.vendorState("V1").PayableAccount("EUR"); return fault.CodeOf(err) }
	require.Equal(t, "ap.vendor.bank_missing", payable())

	requested := b.events(b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", nil)))[0]
	require.Equal(t, "ap.vendor.bank_change_requested", requested.Type)
	require.Equal(t, "V1-B1", requested.data["request_id"])
	for _, member := range []string{"iban", "bic", "holder"} {
		require.Equal(t, "vendor:V1", requested.data[member].(object)["sub"], "of a company too")
		require.Equal(t, "bank", requested.PII["/data/"+member])
	}
	require.JSONEq(t, `{"vendor_id":"V1","request_id":"V1-B1","currency":"EUR","iban":"`+iban+`","bic":"COBADEFFXXX","holder":"`+ibanHolder+`","evidence_ref":"LETTER-1","reason":"first account"}`, b.keys.openEvent(t, requested.Recorded))
	require.NotContains(t, b.stored(requested.IntentID.String()), "de89")
	require.Equal(t, "ap.vendor.bank_pending", payable())
	f := b.refuse("ap.vendor.bank_pending", "vendor_admin", "ap.request_bank_change", bankRequest("V1", nil))
	require.Equal(t, "V1-B1", f.Attributes["request_id"])

	rejected := b.events(b.execute("controller", "ap.reject_bank_change", object{"request_id": "V1-B1", "reason": "vendor knows nothing of it"}))[0]
	require.Equal(t, object{"vendor_id": "V1", "request_id": "V1-B1", "currency": "EUR", "reason": "vendor knows nothing of it"}, rejected.data)
	require.Equal(t, []event.ID{requested.ID}, []event.ID{rejected.CausedBy})
	require.Equal(t, requested.CorrelationID, rejected.CorrelationID)
	require.Equal(t, "ap.vendor.bank_missing", payable())

	b.execute("vendor_admin", "ap.request_bank_change", bankRequest("V1", nil))
	b.refuse("sod.same_person", "vendor_admin", "ap.approve_bank_change", object{"request_id": "V1-B2", "verification": "called back"})
	changed := b.events(b.execute("controller", "ap.approve_bank_change", object{"request_id": "V1-B2", "verification": "called back"}))[0]
	require.Equal(t, object{"vendor_id": "V1", "request_id": "V1-B2", "currency": "EUR", "verification": "called back"}, changed.data)
	account, err := b.vendorState("V1").PayableAccount("EUR")
	require.NoError(t, err)
	steps := account.Steps()
	require.Equal(t, [][]string{{"person-vendor_admin"}, {"person-controller"}}, [][]string{steps[0].Persons, steps[1].Persons})
	require.Equal(t, changed.ID.String(), steps[1].EventID)
	_, err = b.vendorState("V1").PayableAccount("USD")
	require.Equal(t, "ap.vendor.bank_missing", fault.CodeOf(err), "an account is for one currency")

	// The approved account of a currency stays until the next one is approved, but is not paid while that waits.
	b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", object{"iban": otherIBAN}))
	require.Equal(t, "ap.vendor.bank_pending", payable())
	b.execute("controller", "ap.reject_bank_change", object{"request_id": "V1-B3", "reason": "forged", "verification": "called back"})
	kept, err := b.vendorState("V1").PayableAccount("EUR")
	require.NoError(t, err)
	require.Equal(t, account, kept)

	b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", object{"iban": nil, "bic": nil, "currency": "USD", "account": "0123-456", "bank": "021000021"}))
	b.execute("controller", "ap.approve_bank_change", object{"request_id": "V1-B4", "verification": "called back"})
	_, err = b.vendorState("V1").PayableAccount("USD")
	require.NoError(t, err)
	for _, e := range b.all() {
		for _, secret := range []string{iban, otherIBAN, ibanHolder, "COBADEFF", "0123-456", "021000021"} {
			require.NotContains(t, string(e.Payload), secret)
		}
	}
	entity, state := b.entityOf("vendor", "V1")
	require.NotContains(t, state, iban)
	require.NotContains(t, entity, "bank_request")
	require.JSONEq(t, `{
		"EUR": {"request_id":"V1-B2","currency":"EUR","iban":"`+iban+`","bic":"COBADEFFXXX","holder":"`+ibanHolder+`"},
		"USD": {"request_id":"V1-B4","currency":"USD","account":"0123-456","bank":"021000021","holder":"`+ibanHolder+`"}}`,
		b.keys.open(t, encode(t, entity["bank_accounts"])), "sealed copies, for readers of the class")
}

func TestBankChange_Refusals(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	for _, c := range []struct {
		code, field string
		more        object
	}{
		{"ap.vendor.not_found", "/vendor_id", object{"vendor_id": "V9"}},
		{"money.currency_unsupported", "/currency", object{"currency": "XAU"}},
		{"ap.vendor.bank_invalid", "/iban", object{"iban": "DE89 3704 0044 0532 0130 01"}},
		{"ap.vendor.bank_invalid", "/iban", object{"iban": "DE89 3704 0044 0532 0130"}},
		{"ap.vendor.bank_invalid", "/iban", object{"iban": nil, "account": " ", "bank": "021000021"}},
		{"ap.vendor.bank_invalid", "/iban", object{"iban": nil}},
		{"ap.vendor.bank_invalid", "/iban", object{"iban": nil, "account": "1"}},
		{"ap.vendor.bank_invalid", "/iban", object{"account": "1", "bank": "B"}},
	} {
		f := b.refuse(c.code, "ap_clerk", "ap.request_bank_change", bankRequest("V1", c.more))
		require.Equal(t, inPayload(c.field), f.Field)
		require.NotContains(t, f.Detail, "3704", "the number is not repeated")
		kept := b.stored(f.IntentID)
		require.NotContains(t, kept, "3704")
		require.NotContains(t, kept, ibanHolder)
	}
	for _, bad := range []object{{"holder": nil}, {"evidence_ref": nil}, {"bic": "cobadeff"}} {
		f := b.refuse("intent.schema_invalid", "ap_clerk", "ap.request_bank_change", bankRequest("V1", bad))
		require.Equal(t, "{}", b.stored(f.IntentID))
	}
	b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", nil))
	for _, id := range []string{"V1-B2", "V9-B1", "V1-B1-B1"} {
		for _, p := range []struct{ verb, text string }{{"approve", "verification"}, {"reject", "reason"}} {
			f := b.refuse("ap.vendor.bank_request_not_found", "vendor_admin", "ap."+p.verb+"_bank_change", object{"request_id": id, p.text: "x"})
			require.Equal(t, fault.NotFound, f.Kind)
		}
	}
	b.refuse("intent.schema_invalid", "vendor_admin", "ap.approve_bank_change", object{"request_id": "V1-B1"})
	b.refuse("intent.schema_invalid", "vendor_admin", "ap.approve_bank_change", object{"request_id": "V1-B1", "verification": " "})
	b.execute("vendor_admin", "ap.approve_bank_change", object{"request_id": "V1-B1", "verification": "called back"})
	b.refuse("ap.vendor.bank_request_not_found", "controller", "ap.reject_bank_change", object{"request_id": "V1-B1", "reason": "too late"})
}

// TestBankChange_Race requests two accounts at the same time: one request is open, and
// the others are refused.
func TestBankChange_Race(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	const writers = 8
	codes := make([]string, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			_, err := b.submit("ap_clerk", "ap.request_bank_change", bankRequest("V1", nil))
			codes[i] = fault.CodeOf(err)
		})
	}
	wg.Wait()
	counts := map[string]int{}
	for _, code := range codes {
		counts[code]++
	}
	require.Equal(t, map[string]int{"": 1, "ap.vendor.bank_pending": writers - 1}, counts)
	require.Equal(t, 1, b.vendorState("V1").BankRequests)
}

// TestBankChange_Erasure erases a sole trader before and after an approval: no account is left.
func TestBankChange_Erasure(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.naturalPerson(object{"vendor_id": "SOLE-1"})
	b.naturalPerson(object{"vendor_id": "SOLE-2"})
	b.bankAccount("SOLE-1", nil)
	b.execute("ap_clerk", "ap.request_bank_change", bankRequest("SOLE-2", nil))
	b.keys.erase("vendor:SOLE-1", "vendor:SOLE-2")
	b.refuse("ap.vendor.bank_missing", "vendor_admin", "ap.approve_bank_change", object{"request_id": "SOLE-2-B1", "verification": "called back"})
	b.execute("vendor_admin", "ap.reject_bank_change", object{"request_id": "SOLE-2-B1", "reason": "erased"})
	b.refuse("pii.subject_erased", "ap_clerk", "ap.request_bank_change", bankRequest("SOLE-1", nil))
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}
