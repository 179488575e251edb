package domain

import (
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Vendor is the fold of a vendor's stream. It is never changed once shared.
type Vendor struct {
	Registered bool
	EventID    event.ID
	Sequence   event.Sequence
	Master     contract.VendorRegistered
}

// Clone copies the vendor.
func (v *Vendor) Clone() *Vendor { c := *v; return &c }

// Apply folds an event.
func (v *Vendor) Apply(e event.Recorded, data []byte) error {
	if e.Type != contract.EventVendorRegistered {
		return nil
	}
	var m contract.VendorRegistered
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("vendor: %w", err)
	}
	v.Registered, v.EventID, v.Sequence, v.Master = true, e.ID, e.Sequence, m
	return nil
}

// Holder names the vendor to somebody who wanted to register it again.
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
