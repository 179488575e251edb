package domain

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// SplitDiscount splits a further discount of the document over its tax groups, in proportion to what
// its journal posted in each: net amounts and tax that was charged. Tax of a reverse charge was not
// paid, so it is corrected beside the discount, by the same proportion. The split is that of all
// discounts so far less what earlier payments corrected, so parts correct no more or less than the
// whole. Nothing is split if the lines of the journal add up to nothing.
func (d *Document) SplitDiscount(posted []contract.DiscountShare, discount money.Number, c money.Currency) ([]contract.DiscountShare, error) {
	var weights []money.Number
	for _, p := range posted {
		if p.OutputTax.IsZero() {
			weights = append(weights, p.Net, p.InputTax, p.NotRecoverable)
		} else {
			weights = append(weights, p.Net, money.Number{}, money.Number{})
		}
	}
	gross, taken := money.Sum(weights...), discount
	if gross.IsZero() {
		return nil, nil
	}
	for _, s := range d.Discounts {
		taken = taken.Add(s.Net).Add(s.InputTax).Add(s.NotRecoverable).Sub(s.OutputTax)
	}
	parts, err := money.Allocate(taken, weights, c)
	if err != nil {
		return nil, err
	}
	shares := make([]contract.DiscountShare, len(posted))
	for i, p := range posted {
		s := contract.DiscountShare{TaxGroup: p.TaxGroup, Net: parts[3*i], InputTax: parts[3*i+1], NotRecoverable: parts[3*i+2]}
		if !p.OutputTax.IsZero() {
			if s.OutputTax, err = Share(p.OutputTax, taken, gross, c); err != nil {
				return nil, err
			}
			if s.InputTax, err = Share(p.InputTax, taken, gross, c); err != nil {
				return nil, err
			}
			s.NotRecoverable = s.OutputTax.Sub(s.InputTax)
		}
		shares[i] = s
	}
	return addShares(shares, d.Discounts, money.FromInt(-1)), nil
}

// addShares adds shares times sign, group by group.
func addShares(have, more []contract.DiscountShare, sign money.Number) []contract.DiscountShare {
	if len(more) == 0 {
		return have
	}
	out := slices.Clone(have)
	for _, m := range more {
		i := slices.IndexFunc(out, func(s contract.DiscountShare) bool { return s.TaxGroup == m.TaxGroup })
		if i < 0 {
			i = len(out)
			out = append(out, contract.DiscountShare{TaxGroup: m.TaxGroup})
		}
		s := &out[i]
		s.Net, s.InputTax = s.Net.Add(m.Net.Mul(sign)), s.InputTax.Add(m.InputTax.Mul(sign))
		s.NotRecoverable, s.OutputTax = s.NotRecoverable.Add(m.NotRecoverable.Mul(sign)), s.OutputTax.Add(m.OutputTax.Mul(sign))
	}
	return out
}
