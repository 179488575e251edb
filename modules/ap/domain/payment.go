package domain

import (
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// The states of a payment after its run was approved.
const (
	PaymentNone     = ""
	PaymentExecuted = "executed"
	PaymentFailed   = "failed"
	PaymentVoided   = "voided"
)

// Payment is the state of the stream of a payment. A payment has no event before it is executed
// or failed: until then its run has it.
type Payment struct {
	State         string
	EventID       event.ID // of the execution
	CorrelationID string
	Executed      contract.PaymentExecuted
}

// Clone copies the payment. The execution never changes, so clones share it.
func (p *Payment) Clone() *Payment { c := *p; return &c }

// Apply folds an event.
func (p *Payment) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case contract.EventPaymentExecuted:
		p.State, p.EventID, p.CorrelationID = PaymentExecuted, e.ID, e.CorrelationID
		if err := json.Unmarshal(data, &p.Executed); err != nil {
			return fmt.Errorf("payment: %w", err)
		}
	case contract.EventPaymentFailed:
		p.State = PaymentFailed
	case contract.EventPaymentVoided:
		p.State = PaymentVoided
	}
	return nil
}

// applyPayment folds what a payment or its reversal did to the document. The paid event of a
// document that owes nothing names no payment.
func (d *Document) applyPayment(e event.Recorded, data []byte) error {
	var p contract.DocumentPaid
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("payment of a document: %w", err)
	}
	if p.PaymentID == "" || p.Functional == nil {
		d.State = StatePaid
		return nil
	}
	carrying, sign := d.Carrying.Sub(*p.Functional), money.FromInt(1)
	if e.Type == d.Kind.Event(contract.PaymentReversed) {
		carrying, sign = d.Carrying.Add(*p.Functional), money.FromInt(-1)
		d.OpenedOn = max(d.OpenedOn, e.EffectiveDate)
	}
	d.Discounts = addShares(d.Discounts, p.DiscountShares, sign)
	d.setOpen(p.OpenAfter, carrying)
	return nil
}

// CheckPayable refuses a document of which nothing can be paid. Faults: <kind>.not_found,
// <kind>.wrong_state, <kind>.on_hold.
func (d *Document) CheckPayable() error {
	if err := d.RequireState(OpenStates()...); err != nil {
		return err
	}
	if holds := d.OpenHolds(false); len(holds) > 0 {
		return OnHoldFault(d.Kind, holds)
	}
	return nil
}

// PaymentDiscount returns the discount of a settled amount for a payment on a date: by the
// document's discount, else by the vendor's terms. It is rounded once to the currency.
func PaymentDiscount(d *contract.Document, terms *contract.Terms, amount money.Number, date event.Date, c money.Currency) money.Number {
	granted := contract.Discount{}
	switch {
	case d.Discount != nil:
		granted = *d.Discount
	case terms != nil && terms.DiscountPercent != nil:
		granted = contract.Discount{Date: d.InvoiceDate + event.Date(terms.DiscountDays), Percent: *terms.DiscountPercent}
	}
	if granted.Percent.IsZero() || date > granted.Date {
		return money.Number{}
	}
	return money.Percent(amount, granted.Percent, c)
}

// Reservations are the documents in unfinished payments of all runs. Documents are released when
// their payment is excluded, executed or failed, or their run rejected.
type Reservations struct {
	Documents map[string]string              // document id → payment id
	Runs      map[string]map[string][]string // run id → payment id → document ids
}

// NewReservations makes an empty state.
func NewReservations() *Reservations {
	return &Reservations{Documents: map[string]string{}, Runs: map[string]map[string][]string{}}
}

// Clone copies the reservations. Lists of documents never change, so clones share them.
func (r *Reservations) Clone() *Reservations {
	c := NewReservations()
	for document, payment := range r.Documents {
		c.Documents[document] = payment
	}
	for run, payments := range r.Runs {
		copied := make(map[string][]string, len(payments))
		for payment, documents := range payments {
			copied[payment] = documents
		}
		c.Runs[run] = copied
	}
	return c
}

// Apply folds an event.
func (r *Reservations) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case contract.EventReserved:
		var reserved contract.Reservation
		if err := json.Unmarshal(data, &reserved); err != nil {
			return fmt.Errorf("reservation: %w", err)
		}
		if r.Runs[reserved.RunID] == nil {
			r.Runs[reserved.RunID] = map[string][]string{}
		}
		for payment, documents := range reserved.Payments {
			r.Runs[reserved.RunID][payment] = documents
			for _, id := range documents {
				r.Documents[id] = payment
			}
		}
	case contract.EventReleased:
		var released contract.Release
		if err := json.Unmarshal(data, &released); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		payments := r.Runs[released.RunID]
		if len(released.Payments) == 0 {
			for payment := range payments {
				released.Payments = append(released.Payments, payment)
			}
		}
		for _, payment := range released.Payments {
			for _, id := range payments[payment] {
				delete(r.Documents, id)
			}
			delete(payments, payment)
		}
		if len(payments) == 0 {
			delete(r.Runs, released.RunID)
		}
	}
	return nil
}

// PaymentNotFoundFault is the fault for an id that names no payment of an approved run.
func PaymentNotFoundFault() error {
	return fault.New(fault.NotFound, "payment.not_found",
		"no payment run of this legal entity has a payment with this id; take payment_id from the run's events").WithField("/payment_id")
}
