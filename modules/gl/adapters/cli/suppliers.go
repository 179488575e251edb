package cli

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// dimensionVendor is the dimension of lines on the control account of accounts payable.
const dimensionVendor = "vendor"

// supplier is a vendor with its credit balances on control accounts.
type supplier struct {
	ID            string          `json:"vendor_id"`
	Name          json.RawMessage `json:"name"`
	Country       string          `json:"country"`
	Status        string          `json:"status"`
	NaturalPerson bool            `json:"natural_person"`

	account          string // control account, "" for none or several
	opening, closing money.Number
}

// displayName is the vendor's name as the server shows it to the reader: that of a natural
// person is [MASKED] to those who may not read it, and [REDACTED] once it was erased.
func (s *supplier) displayName() string { return vendorName(s.Name) }

// vendorName reads the member name of ap/vendors: a text, or an object that has one.
func vendorName(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var person struct {
		Name json.RawMessage `json:"name"`
	}
	if json.Unmarshal(raw, &person) == nil && len(person.Name) > 0 {
		return vendorName(person.Name)
	}
	return ""
}

// readSuppliers reads vendors and their balances. Both are reports of accounts payable, which
// the ledger knows by their paths only; a server without that module has none.
func (x *saft) readSuppliers(ctx context.Context) error {
	found := map[string]*supplier{}
	err := read(ctx, x.reader, "ap/vendors", nil, func(p page[supplier]) error {
		for _, s := range p.Rows {
			found[s.ID] = &s
		}
		return nil
	})
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := x.previousDay()
	if err != nil {
		return err
	}
	type row struct {
		Account string `json:"control_account"`
		Vendor  string `json:"vendor_id"`
		Ledger  string `json:"ledger_functional"`
	}
	for _, at := range []struct {
		day string
		add func(*supplier, money.Number)
	}{
		{before, func(s *supplier, n money.Number) { s.opening = s.opening.Add(n) }},
		{x.at.AsOf, func(s *supplier, n money.Number) { s.closing = s.closing.Add(n) }},
	} {
		var unassigned money.Number
		err := read(ctx, x.reader, "gl/subledger-control", map[string]string{"by_vendor": "true", "as_of": at.day}, func(p page[row]) error {
			for _, r := range p.Rows {
				var n money.Number
				if err := n.Scan(r.Ledger); err != nil {
					return err
				}
				if r.Vendor == "" { // only raw appends post such lines
					unassigned = unassigned.Add(n)
					continue
				}
				s := found[r.Vendor]
				if s == nil {
					s = &supplier{ID: r.Vendor}
					found[r.Vendor] = s
				}
				at.add(s, n)
				if _, isOne := x.accounts[r.Account]; isOne {
					s.account = r.Account
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		x.result.Unassigned = unassigned.String()
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		x.suppliers = append(x.suppliers, *found[id])
	}
	return nil
}
