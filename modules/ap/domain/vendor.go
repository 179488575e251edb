package domain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Vendor is the state of a vendor's stream. Of personal data it holds the person and bank accounts
// only, as sealed copies. Readers share it; only Apply changes it, on a clone.
type Vendor struct {
	Registered bool
	EventID    event.ID
	Sequence   event.Sequence
	Master     contract.VendorRegistered
	Person     json.RawMessage `json:",omitempty"` // of a natural person: a sealed copy, or "[REDACTED]"
	Contacts   map[string]bool // ids of contacts that were not removed
	Blocks     []string        // scopes of the blocks in force, sorted

	OrderRequired string // contract.OrderRequiredAlways and others; "" is the default

	BankRequests int                    // how many bank accounts were requested
	BankRequest  *BankAccount           // that waits for a decision; nil: none
	BankAccounts map[string]BankAccount // approved, by currency
}

// Clone copies the vendor.
func (v *Vendor) Clone() *Vendor {
	c := *v
	c.Contacts, c.Blocks = maps.Clone(v.Contacts), slices.Clone(v.Blocks)
	c.cloneBank()
	return &c
}

// Apply folds an event.
func (v *Vendor) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case contract.EventVendorRegistered:
		var m struct {
			contract.VendorRegistered
			Person json.RawMessage `json:"person"`
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("vendor: %w", err)
		}
		v.Registered, v.EventID, v.Sequence, v.Master, v.Person = true, e.ID, e.Sequence, m.VendorRegistered, SealedOnly(m.Person)
	case contract.EventContactRecorded, contract.EventContactRemoved:
		var c contract.VendorContactRef
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("contact of a vendor: %w", err)
		}
		if e.Type == contract.EventContactRemoved {
			delete(v.Contacts, c.ContactID)
			break
		}
		if v.Contacts == nil {
			v.Contacts = map[string]bool{}
		}
		v.Contacts[c.ContactID] = true
	case contract.EventVendorChanged:
		var c struct {
			contract.VendorChange
			Person json.RawMessage `json:"person"`
		}
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("change of a vendor: %w", err)
		}
		v.change(&c.VendorChange)
		if c.Person != nil {
			v.Person = SealedOnly(c.Person)
		}
	case contract.EventVendorBlocked, contract.EventVendorUnblocked:
		var b contract.VendorBlock
		if err := json.Unmarshal(data, &b); err != nil {
			return fmt.Errorf("block of a vendor: %w", err)
		}
		v.Blocks = slices.DeleteFunc(v.Blocks, func(have string) bool { return have == b.Scope })
		if e.Type == contract.EventVendorBlocked {
			v.Blocks = append(v.Blocks, b.Scope)
			slices.Sort(v.Blocks)
		}
		if len(v.Blocks) == 0 {
			v.Blocks = nil
		}
	case contract.EventBankRequested, contract.EventBankChanged, contract.EventBankRejected:
		return v.applyBank(e, data)
	}
	return nil
}

// Holder describes the vendor in the fault for a second registration.
func (v *Vendor) Holder() fault.Holder {
	return fault.Holder{EventID: v.EventID.String(), DocumentID: v.Master.VendorID, Sequence: fmt.Sprint(uint64(v.Sequence))}
}

// Identity is the business key of a vendor: "vat:" and its VAT id if it has one, else
// "reg:" and its registration id, else "party:" and its party id, normalised to upper case
// without blanks and dots. It is "" without any of them.
func Identity(vatID, registrationID, partyID string) string {
	for _, id := range []struct{ scheme, value string }{
		{"vat", vatID}, {"reg", registrationID}, {"party", partyID},
	} {
		if v := eventtype.Normalise(eventtype.NormaliseTaxID, id.value); v != "" {
			return id.scheme + ":" + v
		}
	}
	return ""
}
