package ap

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// paymentRunEntity is a payment run with its totals as they were proposed.
type paymentRunEntity struct {
	RunID       string            `json:"run_id"`
	Status      string            `json:"status,omitempty"` // proposed, approved, exported, rejected
	BankAccount string            `json:"bank_account,omitempty"`
	PayDate     *event.Date       `json:"pay_date,omitempty"`
	Payments    int               `json:"payments"` // as proposed
	Totals      map[string]string `json:"totals,omitempty"`
	LeftOut     int               `json:"left_out"`
	Excluded    int               `json:"excluded"`
	Executed    int               `json:"executed"`
	Failed      int               `json:"failed"`
	Voided      int               `json:"voided"` // of the executed ones
	SHA256      string            `json:"sha256,omitempty"`
}

func (r *paymentRunEntity) apply(eventType string, data []byte) error {
	switch eventType {
	case contract.EventRunProposed:
		var p contract.PaymentRunProposed
		if err := json.Unmarshal(data, &p); err != nil {
			return err
		}
		r.Status, r.BankAccount, r.PayDate = domain.RunProposed, p.BankAccount, &p.PayDate
		r.Payments += len(p.Payments)
		r.LeftOut += len(p.LeftOut)
		r.Totals = map[string]string{}
		for currency, total := range p.Totals {
			r.Totals[currency] = total.String()
		}
	case contract.EventPaymentExcluded:
		r.Excluded++
	case contract.EventRunApproved:
		r.Status = domain.RunApproved
	case contract.EventRunRejected:
		r.Status = domain.RunRejected
	case contract.EventRunExported:
		var x contract.PaymentRunExported
		if err := json.Unmarshal(data, &x); err != nil {
			return err
		}
		r.Status, r.SHA256 = domain.RunExported, x.SHA256
	case contract.EventPaymentExecuted:
		r.Executed++
	case contract.EventPaymentFailed:
		r.Failed++
	case contract.EventPaymentVoided:
		r.Voided++
	}
	return nil
}

// paymentEntity is a payment since the bank answered, or since it was excluded. Before that, its
// run has it.
type paymentEntity struct {
	PaymentID     string      `json:"payment_id"`
	Status        string      `json:"status,omitempty"` // excluded, executed, failed, voided
	RunID         string      `json:"run_id,omitempty"`
	VendorID      string      `json:"vendor_id,omitempty"`
	BankAccount   string      `json:"bank_account,omitempty"`
	Currency      string      `json:"currency,omitempty"`
	Amount        string      `json:"amount,omitempty"`
	Discount      string      `json:"discount,omitempty"`
	ExecutedOn    *event.Date `json:"executed_on,omitempty"`
	BankReference string      `json:"bank_reference,omitempty"`
	ReasonCode    string      `json:"reason_code,omitempty"` // of a failed payment
	BankStatus    string      `json:"bank_status,omitempty"` // the newest that decides nothing, such as ACSP
	JournalID     string      `json:"journal_id,omitempty"`
	Documents     int         `json:"documents"`
}

func (p *paymentEntity) apply(eventType string, data []byte) error {
	switch eventType {
	case contract.EventPaymentExcluded:
		p.Status, p.RunID = "excluded", contract.RunOfPayment(p.PaymentID)
	case contract.EventPaymentExecuted:
		var x contract.PaymentExecuted
		if err := json.Unmarshal(data, &x); err != nil {
			return err
		}
		p.Status, p.RunID, p.VendorID, p.BankAccount = domain.PaymentExecuted, x.RunID, x.VendorID, x.BankAccount
		p.Currency, p.Amount, p.Discount = x.Currency, x.Amount.String(), x.Discount.String()
		p.ExecutedOn, p.BankReference, p.JournalID, p.Documents = &x.ExecutedOn, x.BankReference, x.JournalID, len(x.Applications)
	case contract.EventPaymentFailed:
		var x contract.PaymentFailed
		if err := json.Unmarshal(data, &x); err != nil {
			return err
		}
		p.Status, p.RunID, p.ReasonCode = domain.PaymentFailed, x.RunID, x.ReasonCode
	case contract.EventPaymentStatus:
		var x contract.PaymentStatusReported
		if err := json.Unmarshal(data, &x); err != nil {
			return err
		}
		p.RunID, p.BankStatus = x.RunID, x.Status
	case contract.EventPaymentVoided:
		p.Status = domain.PaymentVoided
	}
	return nil
}

// applyPayment shows what a payment or its reversal left open.
func (d *documentEntity) applyPayment(eventType string, data []byte) error {
	var p contract.DocumentPaid
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	d.Open = p.OpenAfter.String()
	switch eventType {
	case d.kind.Event(contract.Paid):
		d.Status = string(domain.StatePaid)
		return nil
	case d.kind.Event(contract.PartiallyPaid):
		d.Status = string(domain.StatePartiallyPaid)
		return nil
	}
	posted, err := money.ParseNumber(d.Posted)
	if err != nil {
		return err
	}
	d.Status = string(domain.StatePartiallyPaid)
	if p.OpenAfter.Equal(posted) {
		d.Status = string(domain.StatePosted)
	}
	return nil
}
