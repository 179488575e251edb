package ap

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Payments is the projection of payment runs and payments, and its read models.
const (
	Payments             = "ap.payments"
	PaymentsVersion      = 1
	ReadModelPaymentRuns = "payment-runs"
	ReadModelPayments    = "payments"

	ReadModelPaymentHistory = "payment-history"
)

func registerPaymentReadModels(r *module.Registrar) {
	r.Projection(module.Projection{Name: Payments, Version: PaymentsVersion, EventTypes: []string{
		contract.EventRunProposed, contract.EventPaymentExcluded, contract.EventRunApproved, contract.EventRunRejected, contract.EventRunExported,
		contract.EventPaymentExecuted, contract.EventPaymentFailed, contract.EventPaymentVoided, contract.EventPaymentStatus,
	}})
	from := module.Param{Name: "from", Type: module.ParamDate, Description: "to be paid on this date or later"}
	to := module.Param{Name: "to", Type: module.ParamDate, Description: "to be paid on this date or earlier"}
	r.ReadModel(module.ReadModel{
		Name: ReadModelPaymentRuns, Projection: Payments,
		Description: "Payment runs, the oldest first, with what became of their payments. In transit is what was exported and the bank has not answered.",
		Params: []module.Param{
			{Name: "state", Type: module.ParamString, Description: "proposed, approved, exported or rejected"}, from, to,
		},
		Columns: []module.Column{
			{Name: "run_id", Type: "string", Description: "payment run, the last part of its stream"},
			{Name: "state", Type: "string", Description: "proposed, approved, exported or rejected"},
			{Name: "bank_account", Type: "string", Description: "account that is paid from, its code in the settings"},
			{Name: "pay_date", Type: "date", Description: "day on which the bank is to pay"},
			{Name: "payments", Type: "integer", Description: "payments that were not excluded"},
			{Name: "in_transit", Type: "bool", Description: "payments of it are in transit"},
			{Name: "totals", Type: "object", Description: "by currency: number of payments, their amount, and of it executed, failed, voided and in_transit; excluded beside it"},
			{Name: "message_id", Type: "string", Description: "MsgId of the newest bank file", Detail: true},
			{Name: "file_sha256", Type: "string", Description: "SHA-256 of the newest bank file", Detail: true},
			{Name: "steps", Type: "object", Description: "what happened: step, at, by (person or service), date (effective), event_id", Detail: true},
			{Name: "event_id", Type: "string", Description: "event that proposed the run", Detail: true},
		},
		Example: "--state exported",
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelPayments, Projection: Payments,
		Description: "Payments of runs, the oldest first. The state of a payment is that of its run until something happens to the payment itself.",
		Params: []module.Param{
			{Name: "state", Type: module.ParamString, Description: "proposed, excluded, approved, rejected, exported (in transit), executed, failed or voided"}, from, to,
			{Name: "run", Type: module.ParamString, Description: "payment run"},
			{Name: "vendor", Type: module.ParamString, Description: "vendor id"},
		},
		Columns: []module.Column{
			{Name: "run_id", Type: "string", Description: "payment run", Detail: true},
			{Name: "payment_id", Type: "string", Description: "payment, EndToEndId of the bank file"},
			{Name: "vendor_id", Type: "string", Description: "vendor"},
			{Name: "currency", Type: "string", Description: "currency"},
			{Name: "amount", Type: "amount", Description: "that the bank transfers"},
			{Name: "discount", Type: "amount", Description: "taken"},
			{Name: "documents", Type: "integer", Description: "invoices and credit memos that the payment settles"},
			{Name: "state", Type: "string", Description: "proposed, excluded, approved, rejected, exported, executed, failed or voided"},
			{Name: "in_transit", Type: "bool", Description: "exported, and the bank has neither executed nor refused it"},
			{Name: "bank_account", Type: "string", Description: "account that is paid from, its code in the settings", Detail: true},
			{Name: "pay_date", Type: "date", Description: "day on which the bank is to pay"},
			{Name: "executed_on", Type: "date", Description: "day on which the bank paid"},
			{Name: "bank_reference", Type: "string", Description: "of the execution"},
			{Name: "bank_status", Type: "string", Description: "newest status that the bank reported and that decides nothing, such as ACSP"},
			{Name: "reason_code", Type: "string", Description: "newest reason of the bank, such as AC01"},
			{Name: "file_sha256", Type: "string", Description: "SHA-256 of the newest bank file with the payment", Detail: true},
			{Name: "steps", Type: "object", Description: "what happened: step, at, by (person or service), date (effective), event_id", Detail: true},
			{Name: "event_id", Type: "string", Description: "event that proposed the payment", Detail: true},
		},
		Example: "--state exported",
	})
	r.ReadModel(module.ReadModel{
		Name: ReadModelPaymentHistory, Projection: Payments, Reads: []string{OpenItems}, Example: "--run 01ARZ3NDEKTSV4RRFFQ69G5FAV",
		Description: "What happened to one payment and its run, or to a run and all its payments, in the order of the log: the steps of both, the bank files, what the payments settled or gave back of each document, and the postings of these documents. Before the bank has executed a payment, the event of the proposal alone lists its documents.",
		Params: []module.Param{
			{Name: "payment", Type: module.ParamString, Description: "payment id; either this or run"},
			{Name: "run", Type: module.ParamString, Description: "payment run"},
		},
		Columns: []module.Column{
			{Name: "step", Type: "string", Description: "what happened, the last part of the event's type"},
			{Name: "at", Type: "time", Description: "when the log took it"},
			{Name: "by", Type: "string", Description: "person or service"},
			{Name: "date", Type: "date", Description: "date from which it counts"},
			{Name: "payment_id", Type: "string", Description: "payment; empty for the run as a whole"},
			{Name: "document_id", Type: "string", Description: "document that the payment settles"},
			{Name: "currency", Type: "string", Description: "of the amount"},
			{Name: "amount", Type: "amount", Description: "of the payment, or of the document: payable positive, what a payment settles negative"},
			{Name: "message_id", Type: "string", Description: "MsgId of the bank file", Detail: true},
			{Name: "file_sha256", Type: "string", Description: "SHA-256 of the bank file", Detail: true},
			{Name: "event_id", Type: "string", Description: "the event", Detail: true},
		},
	})
}
