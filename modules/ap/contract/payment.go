package contract

import (
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// Events of payment runs and payments.
const (
	EventRunProposed     = "ap.payment_run.proposed"
	EventPaymentExcluded = "ap.payment_run.payment_excluded"
	EventRunApproved     = "ap.payment_run.approved"
	EventRunRejected     = "ap.payment_run.rejected"
	EventRunExported     = "ap.payment_run.exported"
	EventReserved        = "ap.payment_run.documents_reserved"
	EventReleased        = "ap.payment_run.documents_released"
	EventPaymentExecuted = "payment.executed"
	EventPaymentFailed   = "payment.failed"
	EventPaymentVoided   = "payment.voided"
	EventPaymentStatus   = "payment.status_reported"
)

// Actions of documents that payments settle, beside Paid.
const (
	PartiallyPaid   = "partially_paid"
	PaymentReversed = "payment_reversed"
)

// Intents about payments.
const (
	IntentProposePaymentRun = "ap.propose_payment_run"
	IntentExcludePayment    = "ap.exclude_payment"
	IntentApprovePaymentRun = "ap.approve_payment_run"
	IntentRejectPaymentRun  = "ap.reject_payment_run"
	IntentExportPaymentRun  = "ap.export_payment_run"
	IntentExecutePayment    = "ap.execute_payment"
	IntentFailPayment       = "ap.fail_payment"
	IntentVoidPayment       = "ap.void_payment"

	IntentImportPaymentStatus = "ap.import_payment_status"
)

// Streams and entities of payments.
const (
	StreamPaymentRun    = "ap.payment_run"  // id: a ULID
	StreamPayment       = "ap.payment"      // id: PaymentID
	StreamReservations  = "ap.reservations" // id "main"
	EntityPaymentRun    = "payment_run"
	EntityPayment       = "payment"
	RolePayment         = "payment"
	RolePaymentRun      = "payment_run"
	paymentMark         = "-P"
	reservationStreamID = "main"
)

// PaymentRunStream is the stream of a payment run.
func PaymentRunStream(id string) event.StreamID {
	return event.StreamID{Type: StreamPaymentRun, ID: id}
}

// PaymentStream is the stream of a payment.
func PaymentStream(id string) event.StreamID { return event.StreamID{Type: StreamPayment, ID: id} }

// ReservationStream says which documents are in an unfinished payment.
func ReservationStream() event.StreamID {
	return event.StreamID{Type: StreamReservations, ID: reservationStreamID}
}

// RunOfPayment is the run's id in a payment's id, "" if it names none.
func RunOfPayment(paymentID string) string {
	run, _, found := strings.Cut(paymentID, paymentMark)
	if !found {
		return ""
	}
	return run
}

// PaymentID is the id of the n-th (from 1) payment of a run. It has at most 35 characters, so
// that bank files carry it unchanged.
func PaymentID(runID, n string) string { return runID + paymentMark + n }

// PaymentPosition is the place of a payment in its run, from 1; 0 if its id names none.
func PaymentPosition(paymentID string) int32 {
	_, text, _ := strings.Cut(paymentID, paymentMark)
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// PaymentRef refers to a payment.
func PaymentRef(id string) event.EntityRef {
	return event.EntityRef{Type: EntityPayment, ID: id, Role: RolePayment}
}

// PaymentRunRef refers to a payment run.
func PaymentRunRef(id string) event.EntityRef {
	return event.EntityRef{Type: EntityPaymentRun, ID: id, Role: RolePaymentRun}
}

// PayingAccount is an account of the legal entity from which it pays.
type PayingAccount struct {
	IBAN     string `json:"iban"`
	BIC      string `json:"bic,omitempty"`
	Holder   string `json:"holder,omitempty"` // "" is the name of the legal entity
	Currency string `json:"currency"`
	Account  string `json:"account,omitempty"` // of the ledger; "" is the posting profile's bank
}

// PaymentRunProposal is the payload of ap.propose_payment_run.
type PaymentRunProposal struct {
	BankAccount  string            `json:"bank_account"` // code of the settings
	PayDate      event.Date        `json:"pay_date"`
	TakeDiscount bool              `json:"take_discount,omitempty"`
	Documents    []PaymentDocument `json:"documents,omitempty"`
	Selection    *PaymentSelection `json:"selection,omitempty"`
}

// PaymentDocument names a document to pay, or a credit memo to net.
type PaymentDocument struct {
	DocumentRef
	Amount *money.Number `json:"amount,omitempty"` // to settle; nil: all that is open
}

// PaymentSelection selects open documents: invoices that are due, and all credit memos of their
// vendors in the same currency.
type PaymentSelection struct {
	DueBy      event.Date `json:"due_by"`
	Vendors    []string   `json:"vendors,omitempty"`
	Currencies []string   `json:"currencies,omitempty"`
}

// PaymentRunProposed is the data of ap.payment_run.proposed. A large run has several of these
// events in one batch: part Part of Parts, each with some of the payments.
type PaymentRunProposed struct {
	RunID       string                  `json:"run_id"`
	Part        int                     `json:"part"`
	Parts       int                     `json:"parts"`
	BankAccount string                  `json:"bank_account"`
	PayDate     event.Date              `json:"pay_date"`
	Payments    []ProposedPayment       `json:"payments"`
	Totals      map[string]money.Number `json:"totals"`             // of the whole run, by currency
	LeftOut     []LeftOut               `json:"left_out,omitempty"` // of the whole run, in part 1
}

// ProposedPayment is one payment to a vendor in a currency. Its amount is what the bank
// transfers: the settled amounts less discounts, credit memos subtracted.
type ProposedPayment struct {
	PaymentID     string               `json:"payment_id"`
	VendorID      string               `json:"vendor_id"`
	Currency      string               `json:"currency"`
	Amount        money.Number         `json:"amount"`
	Discount      money.Number         `json:"discount"`
	BankRequestID string               `json:"bank_request_id"` // of the vendor's account
	Applications  []PaymentApplication `json:"applications"`
}

// PaymentApplication is what a payment settles of a document: Amount of what is open, of which
// Discount is not paid.
type PaymentApplication struct {
	DocumentRef
	Number     string        `json:"number,omitempty"` // the vendor's, or its payment reference
	Amount     money.Number  `json:"amount"`
	Discount   *money.Number `json:"discount,omitempty"`
	Version    event.Version `json:"version,omitempty"`           // of the document's stream when it was proposed
	Functional *money.Number `json:"functional_amount,omitempty"` // carrying amount relieved by the execution

	DiscountShares []DiscountShare `json:"discount_shares,omitempty"` // of Discount, by the execution; none if its tax is kept
}

// DiscountShare is what a tax group has of a discount: the net amount, which is income, and tax that
// is corrected. Of all groups, Net, InputTax and NotRecoverable less OutputTax add up to the
// discount. It is also what a document's journal posted in the group. A share can be negative: an
// allowance among the lines has one, and a cent that an earlier payment corrected too much comes
// back.
type DiscountShare struct {
	TaxGroup       string       `json:"tax_group"` // "" for lines without one
	Net            money.Number `json:"net"`
	InputTax       money.Number `json:"input_tax,omitzero"`
	NotRecoverable money.Number `json:"not_recoverable,omitzero"` // tax that was a cost, so it is income too
	OutputTax      money.Number `json:"output_tax,omitzero"`      // of a reverse charge: its other tax
}

// LeftOut is a document that a run cannot pay, with the reason.
type LeftOut struct {
	DocumentRef
	VendorID string `json:"vendor_id,omitempty"`
	Code     string `json:"code"`
}

// PaymentExclusion is the payload of ap.exclude_payment.
type PaymentExclusion struct {
	PaymentID string `json:"payment_id"`
	Reason    string `json:"reason"`
}

// PaymentExcluded is the data of ap.payment_run.payment_excluded.
type PaymentExcluded struct {
	RunID string `json:"run_id"`
	PaymentExclusion
}

// PaymentRunDecision is the payload of ap.approve_payment_run, ap.reject_payment_run and
// ap.export_payment_run.
type PaymentRunDecision struct {
	RunID  string `json:"run_id"`
	Reason string `json:"reason,omitempty"`
}

// PaymentRunApproved is the data of ap.payment_run.approved.
type PaymentRunApproved struct {
	RunID              string       `json:"run_id"`
	FunctionalAmount   money.Number `json:"functional_amount"` // total at the rates of the pay date, the figure that limits are compared with
	FunctionalCurrency string       `json:"functional_currency"`
	Payments           int          `json:"payments"`
	Reason             string       `json:"reason,omitempty"`
}

// PaymentRunExported is the data of ap.payment_run.exported.
type PaymentRunExported struct {
	RunID      string       `json:"run_id"`
	MessageID  string       `json:"message_id"`
	SHA256     string       `json:"sha256"` // of the file
	Count      int          `json:"count"`
	ControlSum money.Number `json:"control_sum"` // over all currencies, as the file has it
}

// Reservation is the data of ap.payment_run.documents_reserved: the documents of a run that no
// other run takes until they are released.
type Reservation struct {
	RunID    string              `json:"run_id"`
	Payments map[string][]string `json:"payments"` // payment id → document ids
}

// Release is the data of ap.payment_run.documents_released. Without payments it is the whole run.
type Release struct {
	RunID    string   `json:"run_id"`
	Payments []string `json:"payments,omitempty"`
}

// PaymentExecution is the payload of ap.execute_payment.
type PaymentExecution struct {
	PaymentID     string        `json:"payment_id"`
	ExecutedOn    event.Date    `json:"executed_on"`
	BankAmount    *money.Number `json:"bank_amount,omitempty"` // what the bank took, in the account's currency
	BankReference string        `json:"bank_reference"`
}

// PaymentExecuted is the data of payment.executed.
type PaymentExecuted struct {
	PaymentID          string               `json:"payment_id"`
	RunID              string               `json:"run_id"`
	VendorID           string               `json:"vendor_id"`
	BankAccount        string               `json:"bank_account"`
	Currency           string               `json:"currency"`
	Amount             money.Number         `json:"amount"`
	FunctionalAmount   money.Number         `json:"functional_amount"` // of Amount, as the bank took it
	FunctionalCurrency string               `json:"functional_currency"`
	BankAmount         *money.Number        `json:"bank_amount,omitempty"` // in BankCurrency, if that is another one
	BankCurrency       string               `json:"bank_currency,omitempty"`
	ExecutedOn         event.Date           `json:"executed_on"`
	BankReference      string               `json:"bank_reference"`
	Discount           money.Number         `json:"discount"`
	JournalID          string               `json:"journal_id"`
	Applications       []PaymentApplication `json:"applications"`
}

// PaymentFailure is the payload of ap.fail_payment.
type PaymentFailure struct {
	PaymentID  string `json:"payment_id"`
	ReasonCode string `json:"reason_code"` // of the bank, such as AC01
	Text       string `json:"text,omitempty"`
}

// PaymentFailed is the data of payment.failed.
type PaymentFailed struct {
	RunID string `json:"run_id"`
	PaymentFailure
}

// PaymentStatusImport is the payload of ap.import_payment_status: what a bank reports about one
// payment. BankAmount is needed as for an execution.
type PaymentStatusImport struct {
	PaymentID     string        `json:"payment_id"`
	MessageID     string        `json:"message_id"` // of the bank's report
	Status        string        `json:"status"`     // of ISO 20022, such as ACSC
	ReasonCode    string        `json:"reason_code,omitempty"`
	Text          string        `json:"text,omitempty"`
	ExecutedOn    *event.Date   `json:"executed_on,omitempty"`
	BankAmount    *money.Number `json:"bank_amount,omitempty"`
	BankReference string        `json:"bank_reference,omitempty"`
}

// PaymentStatusReported is the data of payment.status_reported.
type PaymentStatusReported struct {
	RunID      string `json:"run_id"`
	PaymentID  string `json:"payment_id"`
	MessageID  string `json:"message_id"`
	Status     string `json:"status"`
	ReasonCode string `json:"reason_code,omitempty"`
	Text       string `json:"text,omitempty"`
}

// PaymentVoid is the payload of ap.void_payment.
type PaymentVoid struct {
	PaymentID   string      `json:"payment_id"`
	PostingDate *event.Date `json:"posting_date,omitempty"` // of the reversal; default: today, or the day of execution if that is later
	Reason      string      `json:"reason"`
}

// PaymentVoided is the data of payment.voided.
type PaymentVoided struct {
	PaymentID string `json:"payment_id"`
	Reason    string `json:"reason"`
	JournalID string `json:"journal_id"` // of the reversal
}
