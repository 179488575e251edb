package ap

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// registerEntities declares what GET /api/entities shows of vendors, their contacts
// and documents. Amounts are decimal strings in the currency of their row.
func registerEntities(r *module.Registrar) {
	r.EntityFold(module.EntityFold{
		EntityType: contract.EntityVendor, Version: 3,
		New:   func(id string) any { return &vendorEntity{VendorID: id} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*vendorEntity).apply(e, data) },
	})
	r.EntityFold(module.EntityFold{
		EntityType: contract.EntityContact, Version: 1,
		New:   func(id string) any { return &contactEntity{ContactID: id} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*contactEntity).apply(e.Type, data) },
	})
	r.EntityFold(module.EntityFold{
		EntityType: contract.EntityPaymentRun, Version: 1,
		New:   func(id string) any { return &paymentRunEntity{RunID: id} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*paymentRunEntity).apply(e.Type, data) },
	})
	r.EntityFold(module.EntityFold{
		EntityType: contract.EntityPayment, Version: 2,
		New:   func(id string) any { return &paymentEntity{PaymentID: id} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*paymentEntity).apply(e.Type, data) },
	})
	r.EntityFold(module.EntityFold{
		EntityType: contract.EntityOrder, Version: 2,
		New:   func(id string) any { return &orderEntity{POReference: id} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*orderEntity).apply(e, data) },
	})
	for _, k := range contract.Kinds() {
		r.EntityFold(module.EntityFold{
			EntityType: string(k), Version: 2,
			New:   func(id string) any { return &documentEntity{DocumentID: id, kind: k} },
			Apply: func(s any, e event.Recorded, data []byte) error { return s.(*documentEntity).apply(e, data) },
		})
	}
}

// vendorEntity is a vendor with its contacts and figures about its documents.
type vendorEntity struct {
	VendorID      string                  `json:"vendor_id"`
	Status        string                  `json:"status,omitempty"` // active, payment_blocked, blocked
	Country       string                  `json:"country,omitempty"`
	NaturalPerson bool                    `json:"natural_person"`
	Name          string                  `json:"name,omitempty"`   // never of a natural person
	Person        json.RawMessage         `json:"person,omitempty"` // of a natural person, sealed
	Currency      string                  `json:"currency,omitempty"`
	Terms         *contract.Terms         `json:"terms,omitempty"`
	OrderRequired string                  `json:"order_required,omitempty"` // always, never; "" and default: as the settings say
	Contacts      map[string]contactState `json:"contacts,omitempty"`
	BankRequest   *accountState           `json:"bank_request,omitempty"`  // that waits for a decision
	BankAccounts  map[string]accountState `json:"bank_accounts,omitempty"` // approved, by currency
	Documents     map[string]int          `json:"documents,omitempty"`     // status → how many
	// Posted sums the postings to the control account by currency; positive is owed to the
	// vendor.
	Posted map[string]string `json:"posted,omitempty"`
	// UndecidedDocuments are the documents that wait for a decision: id → status.
	UndecidedDocuments map[string]string `json:"undecided_documents,omitempty"`
	// EndedDocuments are the rejected and voided documents, which can be reinstated: id → status.
	EndedDocuments map[string]string `json:"ended_documents,omitempty"`
}

// contactState is a contact of a vendor; all of it is sealed.
type contactState struct {
	Name     json.RawMessage `json:"name,omitempty"`
	Email    json.RawMessage `json:"email,omitempty"`
	Phone    json.RawMessage `json:"phone,omitempty"`
	Function json.RawMessage `json:"function,omitempty"`
}

func (c contactState) sealed() contactState {
	return contactState{domain.SealedOnly(c.Name), domain.SealedOnly(c.Email), domain.SealedOnly(c.Phone), domain.SealedOnly(c.Function)}
}

// accountState is a bank account of a vendor; all but request and currency is sealed.
type accountState struct {
	RequestID string          `json:"request_id"`
	Currency  string          `json:"currency"`
	IBAN      json.RawMessage `json:"iban,omitempty"`
	Account   json.RawMessage `json:"account,omitempty"`
	Bank      json.RawMessage `json:"bank,omitempty"`
	BIC       json.RawMessage `json:"bic,omitempty"`
	Holder    json.RawMessage `json:"holder,omitempty"`
}

func (v *vendorEntity) applyBank(eventType string, data []byte) error {
	var a accountState
	if err := json.Unmarshal(data, &a); err != nil {
		return err
	}
	if eventType == contract.EventBankRequested {
		for _, member := range []*json.RawMessage{&a.IBAN, &a.Account, &a.Bank, &a.BIC, &a.Holder} {
			*member = domain.SealedOnly(*member)
		}
		v.BankRequest = &a
		return nil
	}
	if eventType == contract.EventBankChanged && v.BankRequest != nil {
		if v.BankAccounts == nil {
			v.BankAccounts = map[string]accountState{}
		}
		v.BankAccounts[a.Currency] = *v.BankRequest
	}
	v.BankRequest = nil
	return nil
}

func (v *vendorEntity) apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case contract.EventVendorRegistered:
		var m struct {
			contract.VendorRegistered
			Person json.RawMessage `json:"person"`
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		v.Status, v.Country, v.NaturalPerson, v.Currency, v.Terms = contract.VendorActive, m.Country, m.NaturalPerson, m.Currency, m.Terms
		if v.Name = m.Name; m.NaturalPerson {
			v.Name, v.Person = "", domain.SealedOnly(m.Person)
		}
		return nil
	case contract.EventContactRecorded, contract.EventContactRemoved:
		var c struct {
			contract.VendorContactRef
			contactState
		}
		if err := json.Unmarshal(data, &c); err != nil {
			return err
		}
		if e.Type == contract.EventContactRemoved {
			delete(v.Contacts, c.ContactID)
			return nil
		}
		if v.Contacts == nil {
			v.Contacts = map[string]contactState{}
		}
		v.Contacts[c.ContactID] = c.sealed()
		return nil
	case contract.EventVendorChanged:
		return v.applyChange(data)
	case contract.EventBankRequested, contract.EventBankChanged, contract.EventBankRejected:
		return v.applyBank(e.Type, data)
	case contract.EventVendorBlocked, contract.EventVendorUnblocked:
		var b contract.VendorBlock
		err := json.Unmarshal(data, &b)
		v.Status = b.Status
		return err
	}
	k, ok := contract.KindOfStream(e.Stream.Type)
	if !ok {
		return nil
	}
	return v.countDocument(k, e, data)
}

func (v *vendorEntity) applyChange(data []byte) error {
	var c struct {
		contract.VendorChange
		Person json.RawMessage `json:"person"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	v.Country, v.Currency, v.Name = cmp.Or(c.Country, v.Country), cmp.Or(c.Currency, v.Currency), cmp.Or(c.Name, v.Name)
	v.OrderRequired = cmp.Or(c.OrderRequired, v.OrderRequired)
	if c.Terms != nil {
		v.Terms = c.Terms
	}
	if c.Person != nil {
		v.Person = domain.SealedOnly(c.Person)
	}
	if v.NaturalPerson {
		v.Name = ""
	}
	return nil
}

// countDocument moves one of the vendor's documents to its next status in the counts. A posted
// document of which something is open counts as posted.
func (v *vendorEntity) countDocument(k contract.Kind, e event.Recorded, data []byte) error {
	id, before, next := e.Stream.ID, "", ""
	switch e.Type {
	case k.Event(contract.Submitted):
		next = string(domain.StateSubmitted)
	case k.Event(contract.Corrected), k.Event(contract.Reinstated):
		next = string(domain.StateSubmitted)
	case k.Event(contract.Validated):
		next = string(domain.StateValidated)
	case k.Event(contract.Posted):
		next = string(domain.StatePosted)
		var p contract.DocumentPosted
		if err := json.Unmarshal(data, &p); err != nil {
			return err
		}
		if err := v.addPosted(k, p.Currency, p.Amount); err != nil {
			return err
		}
	case k.Event(contract.Paid):
		before, next = string(domain.StatePosted), string(domain.StatePaid)
	case k.Event(contract.Rejected):
		next = string(domain.StateRejected)
	case k.Event(contract.Voided):
		before, next = string(domain.StatePaid), string(domain.StateVoided) // a document without a journal was paid at once
		var d contract.DocumentVoided
		if err := json.Unmarshal(data, &d); err != nil {
			return err
		}
		if d.Amount != nil {
			before = string(domain.StatePosted)
			if err := v.addPosted(k, d.Currency, d.Amount.Neg()); err != nil {
				return err
			}
		}
	default:
		var err error
		if before, next, err = settlementStatus(k, e.Type, data); err != nil || next == "" {
			return err
		}
	}
	for _, of := range []map[string]string{v.UndecidedDocuments, v.EndedDocuments} {
		if status, found := of[id]; found {
			before = status
			delete(of, id)
		}
	}
	v.move(id, before, next)
	return nil
}

// settlementStatus tells how a settlement moves a document between posted and paid: "" if it
// stays.
func settlementStatus(k contract.Kind, eventType string, data []byte) (before, next string, err error) {
	posted, paid := string(domain.StatePosted), string(domain.StatePaid)
	var a contract.Application
	switch eventType {
	case k.Event(contract.Applied), k.Event(contract.CreditApplied), k.Event(contract.PrepaymentApplied):
		if err = json.Unmarshal(data, &a); err == nil && a.OpenAfter.IsZero() {
			return posted, paid, nil
		}
	case k.Event(contract.Unapplied), k.Event(contract.CreditUnapplied), k.Event(contract.PrepaymentUndone):
		if err = json.Unmarshal(data, &a); err == nil && a.OpenAfter.Equal(a.Amount) {
			return paid, posted, nil // nothing was open before
		}
	case k.Event(contract.PaymentReversed):
		var p contract.DocumentPaid
		if err = json.Unmarshal(data, &p); err == nil && p.OpenAfter.Equal(p.Applied) {
			return paid, posted, nil
		}
	}
	return "", "", err
}

// addPosted adds an amount on the control account, which is owed to the vendor for an invoice
// and by it for a credit memo.
func (v *vendorEntity) addPosted(k contract.Kind, currency string, amount money.Number) error {
	if k == contract.CreditMemo {
		amount = amount.Neg()
	}
	if v.Posted == nil {
		v.Posted = map[string]string{}
	}
	have := money.Number{}
	if text := v.Posted[currency]; text != "" {
		var err error
		if have, err = money.ParseNumber(text); err != nil {
			return err
		}
	}
	v.Posted[currency] = have.Add(amount).String()
	return nil
}

func (v *vendorEntity) move(id, before, next string) {
	if v.Documents == nil {
		v.Documents = map[string]int{}
	}
	for _, of := range []*map[string]string{&v.UndecidedDocuments, &v.EndedDocuments} { // a stored state leaves empty ones out
		if *of == nil {
			*of = map[string]string{}
		}
	}
	if before != "" {
		if v.Documents[before]--; v.Documents[before] <= 0 {
			delete(v.Documents, before)
		}
	}
	v.Documents[next]++
	switch state := domain.State(next); {
	case slices.Contains(domain.UndecidedStates(), state):
		v.UndecidedDocuments[id] = next
	case state == domain.StateRejected || state == domain.StateVoided:
		v.EndedDocuments[id] = next
	}
}

// contactEntity is a person at a vendor.
type contactEntity struct {
	ContactID string `json:"contact_id"`
	VendorID  string `json:"vendor_id,omitempty"`
	Status    string `json:"status,omitempty"` // recorded, removed
	contactState
}

func (c *contactEntity) apply(eventType string, data []byte) error {
	var d struct {
		contract.VendorContactRef
		contactState
	}
	switch eventType {
	case contract.EventContactRecorded, contract.EventContactRemoved:
	default:
		return nil
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	c.VendorID, c.Status, c.contactState = d.VendorID, "recorded", d.sealed()
	if eventType == contract.EventContactRemoved {
		c.Status = "removed"
	}
	return nil
}

// documentEntity is an invoice or credit memo.
type documentEntity struct {
	DocumentID         string          `json:"document_id"`
	Status             string          `json:"status,omitempty"` // a domain.State, or approved in between
	VendorID           string          `json:"vendor_id,omitempty"`
	Number             string          `json:"number,omitempty"` // the vendor's
	DocumentType       string          `json:"document_type,omitempty"`
	InvoiceDate        *event.Date     `json:"invoice_date,omitempty"`
	DueDate            *event.Date     `json:"due_date,omitempty"`
	Currency           string          `json:"currency,omitempty"`
	Total              string          `json:"total_amount,omitempty"` // gross
	Tax                string          `json:"tax_amount,omitempty"`
	PostingDate        *event.Date     `json:"posting_date,omitempty"`
	FunctionalAmount   string          `json:"functional_amount,omitempty"` // gross, as approved
	FunctionalCurrency string          `json:"functional_currency,omitempty"`
	JournalID          string          `json:"journal_id,omitempty"`
	Posted             string          `json:"posted,omitempty"` // on the control account
	Open               string          `json:"open,omitempty"`   // of what was posted
	Unused             string          `json:"unused,omitempty"` // of a prepayment
	Draft              json.RawMessage `json:"draft,omitempty"`  // any part of the document, until it is submitted
	Approvals          int             `json:"approvals"`
	Holds              []documentHold  `json:"holds,omitempty"` // open ones
	kind               contract.Kind
}

type documentHold struct {
	HoldID string `json:"hold_id"`
	Kind   string `json:"kind"`
	Blocks string `json:"blocks"`
}

func (d *documentEntity) apply(e event.Recorded, data []byte) error {
	if e.Stream != d.kind.Stream(d.DocumentID) {
		return nil // an event of another document that refers to this one
	}
	switch e.Type {
	case d.kind.Event(contract.Drafted):
		d.Status, d.Draft = string(domain.StateDraft), slices.Clone(data)
	case d.kind.Event(contract.Discarded):
		d.Status = string(domain.StateDiscarded)
	case d.kind.Event(contract.Submitted), d.kind.Event(contract.Corrected), d.kind.Event(contract.Reinstated):
		if e.Type == d.kind.Event(contract.Reinstated) {
			d.Holds, d.JournalID, d.Posted, d.Open = nil, "", "", ""
		}
		d.Approvals, d.Draft = 0, nil
		return d.applyBody(data)
	case d.kind.Event(contract.Validated):
		d.Status = string(domain.StateValidated)
	case d.kind.Event(contract.Held):
		var h contract.DocumentHeld
		if err := json.Unmarshal(data, &h); err != nil {
			return err
		}
		d.Holds = append(d.Holds, documentHold{h.HoldID, h.Kind, h.Blocks})
	case d.kind.Event(contract.HoldReleased):
		var h contract.HoldReleasedData
		if err := json.Unmarshal(data, &h); err != nil {
			return err
		}
		d.Holds = slices.DeleteFunc(d.Holds, func(have documentHold) bool { return have.HoldID == h.HoldID })
	case d.kind.Event(contract.ApprovalRecorded), d.kind.Event(contract.Approved):
		var a contract.DocumentApproved
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		d.Approvals++
		d.PostingDate, d.FunctionalAmount, d.FunctionalCurrency = &a.PostingDate, a.FunctionalAmount.String(), a.FunctionalCurrency
		if e.Type == d.kind.Event(contract.Approved) {
			d.Status = "approved"
		}
	case d.kind.Event(contract.Posted):
		var p contract.DocumentPosted
		if err := json.Unmarshal(data, &p); err != nil {
			return err
		}
		d.Status, d.JournalID = string(domain.StatePosted), p.JournalID
		d.Posted, d.Open = p.Amount.String(), p.Amount.String()
	case d.kind.Event(contract.Paid), d.kind.Event(contract.PartiallyPaid), d.kind.Event(contract.PaymentReversed):
		return d.applyPayment(e.Type, data)
	case d.kind.Event(contract.Rejected):
		d.Status = string(domain.StateRejected)
	case d.kind.Event(contract.Voided):
		d.Status, d.Open = string(domain.StateVoided), ""
	default:
		return d.applySettlement(e.Type, data)
	}
	return nil
}

// applySettlement takes over what a settlement leaves open, and the status that follows from it.
func (d *documentEntity) applySettlement(eventType string, data []byte) error {
	switch eventType {
	case d.kind.Event(contract.PrepaymentUsed), d.kind.Event(contract.PrepaymentReturned):
		var u contract.PrepaymentUse
		if err := json.Unmarshal(data, &u); err != nil {
			return err
		}
		d.Unused = u.UnusedAfter.String()
	case d.kind.Event(contract.Applied), d.kind.Event(contract.CreditApplied), d.kind.Event(contract.PrepaymentApplied),
		d.kind.Event(contract.Unapplied), d.kind.Event(contract.CreditUnapplied), d.kind.Event(contract.PrepaymentUndone):
		var a contract.Application
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		d.Open = a.OpenAfter.String()
		switch {
		case a.OpenAfter.IsZero():
			d.Status = string(domain.StatePaid)
		case sameAmount(d.Open, d.Posted):
			d.Status = string(domain.StatePosted)
		default:
			d.Status = string(domain.StatePartiallyPaid)
		}
	}
	return nil
}

// sameAmount compares amounts in the form of their column.
func sameAmount(a, b string) bool {
	x, err1 := money.ParseNumber(a)
	y, err2 := money.ParseNumber(b)
	return err1 == nil && err2 == nil && x.Equal(y)
}

func (d *documentEntity) applyBody(data []byte) error {
	var s contract.Document
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	d.Status, d.VendorID, d.Number, d.DocumentType = string(domain.StateSubmitted), s.VendorID, s.InvoiceNumber, s.DocumentType
	d.InvoiceDate, d.DueDate, d.Currency, d.Total = &s.InvoiceDate, s.DueDate, s.Currency, s.TotalAmount.String()
	if s.TaxAmount != nil {
		d.Tax = s.TaxAmount.String()
	}
	return nil
}
