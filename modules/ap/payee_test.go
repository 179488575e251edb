package ap_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPayeeAccounts compares the accounts on a paper with the vendor's approved ones.
func TestPayeeAccounts(t *testing.T) {
	t.Parallel()
	const foreign, forged = "US-000777", "DE02120300000000202051"
	b := newBooks(t)
	b.vendor("V1", nil)
	b.vendor("NEW", nil)
	b.naturalPerson(object{"vendor_id": "SOLE-1"})
	for _, vendor := range []string{"V1", "SOLE-1"} {
		b.bankAccount(vendor, nil)
		b.bankAccount(vendor, object{"iban": nil, "bic": nil, "currency": "USD", "account": foreign, "bank": "021000021"})
	}
	number := 0
	submit := func(vendor string, more object) []recorded {
		number++
		return b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload(vendor, fmt.Sprint("N-", number), fmt.Sprint(100+number), more)))
	}
	for _, vendor := range []string{"V1", "SOLE-1"} {
		for _, c := range []struct {
			name string
			more object
			want any
		}{
			{"approved", object{"payee_accounts": []string{writtenIBAN}}, "match"},
			{"all approved", object{"payee_accounts": []string{iban, "us-000777"}}, "match"},
			{"one is not", object{"payee_accounts": []string{iban, forged}}, "mismatch"},
			{"what the caller claims does not count", object{"payee_accounts": []string{forged}, "payee_bank": "match", "vendor_name": ibanHolder}, "mismatch"},
			{"no account on the paper", nil, nil},
		} {
			events := submit(vendor, c.more)
			require.Equal(t, c.want, events[0].data["payee_bank"], c.name)
			require.NotContains(t, events[0].data, "payee_accounts")
			if c.want == "mismatch" {
				require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.held"}, types(events))
				require.Equal(t, []any{"BANK_MISMATCH", "payment"}, []any{events[1].data["kind"], events[1].data["blocks"]})
				b.execute("approver", "ap.approve_invoice", object{"invoice_id": events[0].Stream.ID}) // it blocks payment only
			} else {
				require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.validated"}, types(events), c.name)
			}
			if kept := b.stored(events[0].IntentID.String()); c.more != nil {
				require.Contains(t, kept, `"sub":"vendor:`+vendor+`"`, "the stored intent has the accounts sealed")
			}
		}
	}
	require.Equal(t, "none", submit("NEW", object{"payee_accounts": []string{iban}})[0].data["payee_bank"], "nothing is adopted from a paper")
	require.Empty(t, b.vendorState("NEW").BankAccounts)
	require.Equal(t, "mismatch", b.events(b.execute("ap_clerk", "ap.submit_credit_memo", documentPayload("V1", "1", "1", object{"payee_accounts": []string{forged}})))[0].data["payee_bank"])

	for _, e := range b.all() {
		for _, secret := range []string{iban, forged, "000777"} {
			require.NotContains(t, string(e.Payload), secret)
			require.NotContains(t, e.Tags, secret)
		}
	}
	b.keys.erase("vendor:V1")
	b.refuse("pii.subject_erased", "ap_clerk", "ap.submit_invoice", documentPayload("V1", "ERASED", "99", object{"payee_accounts": []string{iban}}))
	submit("V1", nil)
}
