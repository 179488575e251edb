package domain

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Vendor is the fold of a vendor's stream, without personal data: no value that the
// log seals is read. It is never changed once shared.
type Vendor struct {
	Registered bool
	EventID    event.ID
	Sequence   event.Sequence
	Master     contract.VendorRegistered
	Contacts   map[string]bool // ids of those recorded and not removed
}

// Clone copies the vendor.
func (v *Vendor) Clone() *Vendor { c := *v; c.Contacts = maps.Clone(v.Contacts); return &c }

// Apply folds an event of any version.
func (v *Vendor) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case contract.EventVendorRegistered:
		var m contract.VendorRegistered
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("vendor: %w", err)
		}
		v.Registered, v.EventID, v.Sequence, v.Master = true, e.ID, e.Sequence, m
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
	}
	return nil
}

// Holder names the vendor to a caller who registers it again.
func (v *Vendor) Holder() fault.Holder {
	return fault.Holder{EventID: v.EventID.String(), DocumentID: v.Master.VendorID, Sequence: fmt.Sprint(uint64(v.Sequence))}
}

// Identity is by what a vendor is known: its VAT id if it has one, else its
// registration id, else its party id, in upper case without blanks and dots. ""
// if it has none.
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
