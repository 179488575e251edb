package ap

import (
	"encoding/json"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// registerEntities declares what GET /api/entities shows of vendors, their contacts
// and documents. Amounts are decimal strings in the currency of their row.
func registerEntities(r *module.Registrar) {
	r.EntityFold(module.EntityFold{
		EntityType: contract.EntityVendor, Version: 1,
		New:   func(id string) any { return &vendorEntity{VendorID: id} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*vendorEntity).apply(e, data) },
	})
	r.EntityFold(module.EntityFold{
		EntityType: contract.EntityContact, Version: 1,
		New:   func(id string) any { return &contactEntity{ContactID: id} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*contactEntity).apply(e.Type, data) },
	})
	for _, k := range contract.Kinds() {
		r.EntityFold(module.EntityFold{
			EntityType: string(k), Version: 1,
			New:   func(id string) any { return &documentEntity{DocumentID: id, kind: k} },
			Apply: func(s any, e event.Recorded, data []byte) error { return s.(*documentEntity).apply(e, data) },
		})
	}
}

// sealedOnly returns a sealed value or the mark "[REDACTED]", and nil for everything else:
// entity states never hold personal data in clear, which events from before key
// management may have.
func sealedOnly(value json.RawMessage) json.RawMessage {
	if string(value) == shredding.Redacted {
		return value
	}
	found, err := shredding.FindSealed(value)
	if err != nil || len(found) != 1 || found[0].Pointer != "" {
		return nil
	}
	return value
}

// vendorEntity is a vendor with its contacts and figures about its documents.
type vendorEntity struct {
	VendorID      string                  `json:"vendor_id"`
	Status        string                  `json:"status,omitempty"` // "active" once registered
	Country       string                  `json:"country,omitempty"`
	NaturalPerson bool                    `json:"natural_person"`
	Name          string                  `json:"name,omitempty"`   // never of a natural person
	Person        json.RawMessage         `json:"person,omitempty"` // of a natural person, sealed
	Currency      string                  `json:"currency,omitempty"`
	Terms         *contract.Terms         `json:"terms,omitempty"`
	Contacts      map[string]contactState `json:"contacts,omitempty"`
	Documents     map[string]int          `json:"documents,omitempty"` // status → how many
	// Posted sums the postings to the control account by currency; positive is owed to the
	// vendor.
	Posted map[string]string `json:"posted,omitempty"`
	// UndecidedDocuments are the documents that wait for a decision: id → status.
	UndecidedDocuments map[string]string `json:"undecided_documents,omitempty"`
}

// contactState is a contact of a vendor; all of it is sealed.
type contactState struct {
	Name     json.RawMessage `json:"name,omitempty"`
	Email    json.RawMessage `json:"email,omitempty"`
	Phone    json.RawMessage `json:"phone,omitempty"`
	Function json.RawMessage `json:"function,omitempty"`
}

func (c contactState) sealed() contactState {
	return contactState{sealedOnly(c.Name), sealedOnly(c.Email), sealedOnly(c.Phone), sealedOnly(c.Function)}
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
		v.Status, v.Country, v.NaturalPerson, v.Currency, v.Terms = "active", m.Country, m.NaturalPerson, m.Currency, m.Terms
		if v.Name = m.Name; m.NaturalPerson {
			v.Name, v.Person = "", sealedOnly(m.Person)
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
	}
	k, ok := contract.KindOfStream(e.Stream.Type)
	if !ok {
		return nil
	}
	return v.countDocument(k, e, data)
}

// countDocument moves one of the vendor's documents to its next status in the counts. A
// decided document is no longer listed by id: only a posted invoice can still change, to
// paid.
func (v *vendorEntity) countDocument(k contract.Kind, e event.Recorded, data []byte) error {
	next := ""
	switch e.Type {
	case k.Event(contract.Submitted):
		next = string(domain.StateSubmitted)
	case k.Event(contract.Validated):
		next = string(domain.StateValidated)
	case k.Event(contract.Posted):
		next = string(domain.StatePosted)
		var p contract.DocumentPosted
		if err := json.Unmarshal(data, &p); err != nil {
			return err
		}
		amount := p.Amount
		if k == contract.CreditMemo {
			amount = amount.Neg()
		}
		if v.Posted == nil {
			v.Posted = map[string]string{}
		}
		have := money.Number{}
		if text := v.Posted[p.Currency]; text != "" {
			var err error
			if have, err = money.ParseNumber(text); err != nil {
				return err
			}
		}
		v.Posted[p.Currency] = have.Add(amount).String()
	case k.Event(contract.Paid):
		next = string(domain.StatePaid)
	case k.Event(contract.Rejected):
		next = string(domain.StateRejected)
	default:
		return nil
	}
	if v.Documents == nil {
		v.Documents = map[string]int{}
	}
	if v.UndecidedDocuments == nil {
		v.UndecidedDocuments = map[string]string{}
	}
	before, undecided := v.UndecidedDocuments[e.Stream.ID]
	if next == string(domain.StatePaid) && !undecided {
		before, undecided = string(domain.StatePosted), true
	}
	if undecided {
		if v.Documents[before]--; v.Documents[before] <= 0 {
			delete(v.Documents, before)
		}
	}
	v.Documents[next]++
	delete(v.UndecidedDocuments, e.Stream.ID)
	if slices.Contains(domain.UndecidedStates(), domain.State(next)) {
		v.UndecidedDocuments[e.Stream.ID] = next
	}
	return nil
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
	DocumentID         string         `json:"document_id"`
	Status             string         `json:"status,omitempty"` // submitted, validated, approved, posted, paid, rejected
	VendorID           string         `json:"vendor_id,omitempty"`
	Number             string         `json:"number,omitempty"` // the vendor's
	DocumentType       string         `json:"document_type,omitempty"`
	InvoiceDate        *event.Date    `json:"invoice_date,omitempty"`
	DueDate            *event.Date    `json:"due_date,omitempty"`
	Currency           string         `json:"currency,omitempty"`
	Total              string         `json:"total_amount,omitempty"` // gross
	Tax                string         `json:"tax_amount,omitempty"`
	PostingDate        *event.Date    `json:"posting_date,omitempty"`
	FunctionalAmount   string         `json:"functional_amount,omitempty"` // gross, as approved
	FunctionalCurrency string         `json:"functional_currency,omitempty"`
	JournalID          string         `json:"journal_id,omitempty"`
	Approvals          int            `json:"approvals"`
	Holds              []documentHold `json:"holds,omitempty"` // open ones
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
	case d.kind.Event(contract.Submitted):
		return d.applySubmitted(data)
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
	case d.kind.Event(contract.Paid):
		d.Status = string(domain.StatePaid)
	case d.kind.Event(contract.Rejected):
		d.Status = string(domain.StateRejected)
	}
	return nil
}

func (d *documentEntity) applySubmitted(data []byte) error {
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
