package ap_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

func bankStatus(payment, code string, more object) object {
	p := object{"payment_id": payment, "message_id": "BANK-1", "status": code}
	for k, v := range more {
		p[k] = v
	}
	return p
}

func TestImportPaymentStatus(t *testing.T) {
	t.Parallel()
	const intentType = "ap.import_payment_status"
	b := newPayingBooks(t)
	b.payee("V2")
	one, two := b.posted("invoice", documentPayload("V1", "1", "100", nil)), b.posted("invoice", documentPayload("V2", "1", "50", nil))
	payments := b.approvedRun("MAIN", nil, object{"invoice_id": one}, object{"invoice_id": two})
	run := contract.RunOfPayment(payments[0])
	b.execute("treasurer", "ap.export_payment_run", object{"run_id": run})
	settled := object{"executed_on": "2025-03-21", "bank_reference": "BREF-7"}

	for _, who := range []string{"ap_clerk", "controller", "auditor", "module"} {
		b.refuse("intent.forbidden", who, intentType, bankStatus(payments[0], "ACSC", settled))
	}
	for _, who := range []string{"treasurer:ap_clerk", "treasurer:approver"} {
		for _, code := range []string{"ACSC", "RJCT", "ACSP"} {
			f := b.refuse("sod.same_person", who, intentType, bankStatus(payments[0], code, settled))
			require.Equal(t, "S4", f.Attributes["rule"], "%s %s", who, code)
		}
	}
	b.refuse("payment.not_found", "treasurer", intentType, bankStatus(run+"-P9", "ACSP", nil))
	b.refuse("payment.not_found", "treasurer", intentType, bankStatus("FOREIGN-17", "RJCT", nil))
	b.refuse("payment.status_incomplete", "treasurer", intentType, bankStatus(payments[0], "ACSC", nil))

	// A status that decides nothing is kept.
	reported := b.events(b.execute("treasurer", intentType, bankStatus(payments[0], "ACSP", object{"reason_code": "G000", "text": "on its way"})))
	require.Len(t, reported, 1)
	require.Equal(t, []any{"payment.status_reported", "ap.payment", payments[0]}, []any{reported[0].Type, reported[0].Stream.Type, reported[0].Stream.ID})
	require.Equal(t, object{"run_id": run, "payment_id": payments[0], "message_id": "BANK-1", "status": "ACSP", "reason_code": "G000", "text": "on its way"}, reported[0].data)
	require.Equal(t, domain.StatePosted, b.document(contract.Invoice, one).State)
	entity, _ := b.entityOf("payment", payments[0])
	require.Equal(t, []any{"ACSP", nil}, []any{entity["bank_status"], entity["status"]})

	executed := b.events(b.execute("treasurer", intentType, bankStatus(payments[0], "ACSC", settled)))
	require.Equal(t, []any{"payment.executed", "2025-03-21", "BREF-7"}, []any{executed[0].Type, executed[0].data["executed_on"], executed[0].data["bank_reference"]})
	require.Equal(t, domain.StatePaid, b.document(contract.Invoice, one).State)
	for _, code := range []string{"ACSC", "ACCC", "RJCT", "PDNG"} {
		b.refuse("payment.already_executed", "treasurer", intentType, bankStatus(payments[0], code, settled))
	}

	failed := b.events(b.execute("treasurer", intentType, bankStatus(payments[1], "RJCT", object{"text": "closed"})))
	require.Equal(t, []any{"payment.failed", "MS03", "closed"}, []any{failed[0].Type, failed[0].data["reason_code"], failed[0].data["text"]})
	require.Equal(t, domain.StatePosted, b.document(contract.Invoice, two).State)
	b.refuse("payment.wrong_state", "treasurer", intentType, bankStatus(payments[1], "ACSC", settled))
	again := b.approvedRun("MAIN", nil, object{"invoice_id": two})
	failed = b.events(b.execute("treasurer", intentType, bankStatus(again[0], "RJCT", object{"reason_code": "AC04"})))
	require.Equal(t, "AC04", failed[0].data["reason_code"])
}
