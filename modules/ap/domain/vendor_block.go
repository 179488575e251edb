package domain

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Status is the status of the vendor with the scopes of its blocks.
func Status(blocks []string) string {
	switch {
	case slices.Contains(blocks, contract.BlockAll):
		return contract.VendorBlocked
	case len(blocks) > 0:
		return contract.VendorPaymentBlocked
	default:
		return contract.VendorActive
	}
}

// CheckNotBlocked refuses a step with the vendor that a block stops: ap.vendor.blocked. The
// scope is contract.BlockAll for documents, and contract.BlockPayment for payments, which both
// scopes stop.
func (v *Vendor) CheckNotBlocked(scope string) error {
	if slices.Contains(v.Blocks, contract.BlockAll) || scope == contract.BlockPayment && len(v.Blocks) > 0 {
		return fault.New(fault.FailedPrecondition, "ap.vendor.blocked",
			"the vendor is blocked; a person with role vendor_admin or controller may lift it with ap.unblock_vendor").
			With("vendor_id", v.Master.VendorID).With("scopes", v.Blocks)
	}
	return nil
}

// change replaces the members that a change gives.
func (v *Vendor) change(c *contract.VendorChange) {
	for _, m := range []struct {
		have *string
		next string
	}{
		{&v.Master.Name, c.Name}, {&v.Master.Country, c.Country}, {&v.Master.RegistrationID, c.RegistrationID}, {&v.Master.PartyID, c.PartyID},
		{&v.Master.Currency, c.Currency}, {&v.Master.DefaultAccount, c.DefaultAccount}, {&v.Master.WithholdingCode, c.WithholdingCode},
		{&v.OrderRequired, c.OrderRequired},
	} {
		if m.next != "" {
			*m.have = m.next
		}
	}
	if c.Terms != nil {
		v.Master.Terms = c.Terms
	}
	if c.DefaultDimensions != nil {
		v.Master.DefaultDimensions = c.DefaultDimensions
	}
}
