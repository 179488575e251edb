package einvoice

import (
	"strings"

	"github.com/erpbackbone/backbone/domain/country"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Seller has what a reader of another format knows of the seller.
type Seller struct{ VATID, RegistrationID, PartyID, Name, Address, Country string }

// NewSupplier makes the supplier of a document that another reader read. Name and address of a
// seller who may be a natural person are only in Supplier.Person.
func NewSupplier(s Seller) Supplier {
	out := Supplier{VATID: s.VATID, RegistrationID: s.RegistrationID, LegalName: s.Name, Country: strings.ToUpper(s.Country)}
	if s.PartyID != "" {
		out.PartyIDs = []string{s.PartyID}
	}
	if !country.Known(out.Country) {
		out.Country = vatCountry(out.Country)
	}
	if out.Country == "" && len(s.VATID) > 2 {
		out.Country = vatCountry(strings.ToUpper(s.VATID[:2]))
	}
	if out.NaturalPerson() {
		out.LegalName, out.Person = "", Person{name: s.Name, address: s.Address}
	}
	return out
}

// NewBuyer makes the buyer of a document that another reader read.
func NewBuyer(b contract.Buyer) Buyer { return Buyer{b} }

// NewAccounts makes the bank accounts of a document that another reader read.
func NewAccounts(numbers ...string) Accounts {
	var a Accounts
	for _, n := range numbers {
		if id := compact(n); id != "" {
			a.ids = append(a.ids, id)
		}
	}
	return a
}

// SwapNegative makes a document with a negative total one of the other kind.
func (d *Document) SwapNegative() {
	if d.Totals.Gross.Sign() < 0 {
		d.swapKind()
	}
}
