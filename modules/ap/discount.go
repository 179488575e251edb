package ap

import (
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

const textDiscount = "Discount taken"

// discountLines are the lines of a payment's journal for the discounts of its documents: income, and
// the tax that a discount corrects. Documents share lines, so that their number stays small.
type discountLines struct {
	x       *execution
	account string // of discounts
	lines   []gl.SubledgerLine
}

func (x *execution) newDiscountLines(ctx context.Context) (*discountLines, error) {
	l := &discountLines{x: x}
	if x.payment.Discount.IsZero() {
		return l, nil
	}
	var err error
	l.account, err = x.ledger.ProfileAccount(ctx, gl.RoleDiscount)
	return l, err
}

// addDocument adds the discount of a document, of which the payment settles an amount, at its
// functional amount. It returns how tax groups share it, nil if no tax is corrected: the settings
// keep it, or the journal of the document has no tax, as that of an open item from earlier books.
func (l *discountLines) addDocument(ctx context.Context, d *domain.Document, settled, discount, functional money.Number) ([]contract.DiscountShare, error) {
	income := gl.SubledgerLine{Account: l.account, Description: textDiscount}
	if l.x.keepTax || !hasTax(&d.Data) {
		l.credit(income, discount, functional)
		return nil, nil
	}
	groups, err := postedTax(ctx, l.x.ledger, d)
	if err != nil {
		return nil, err
	}
	posted := make([]contract.DiscountShare, len(groups))
	for i := range groups {
		posted[i] = groups[i].DiscountShare
	}
	shares, err := d.SplitDiscount(posted, discount, l.x.currency)
	if err != nil {
		return nil, err
	}
	if shares == nil {
		l.credit(income, discount, functional)
		return nil, nil
	}
	weights := make([]money.Number, 0, 3*len(shares))
	for i, s := range shares {
		if groups[i].output == nil {
			weights = append(weights, s.Net, s.InputTax, s.NotRecoverable)
		} else {
			weights = append(weights, s.Net, money.Number{}, money.Number{})
		}
	}
	parts, err := money.Allocate(functional, weights, l.x.book)
	if err != nil {
		return nil, err
	}
	for i, s := range shares {
		g, part := &groups[i], parts[3*i:3*i+3]
		if g.output != nil {
			// No cash moves, so the shares have amounts of their own, at the rate of the document.
			output, err := l.x.share(functional, s.OutputTax, discount)
			if err != nil {
				return nil, err
			}
			if part[1], err = l.x.share(functional, s.InputTax, discount); err != nil {
				return nil, err
			}
			part[2] = output.Sub(part[1])
			l.credit(correction(g.output, contract.TextDiscountOutputTax), s.OutputTax.Neg(), output.Neg())
		}
		l.credit(gl.SubledgerLine{Account: l.account, Description: textDiscount, TaxCode: s.TaxGroup}, s.Net, part[0])
		if g.input != nil {
			l.credit(correction(g.input, contract.TextDiscountInputTax), s.InputTax, part[1])
		}
		l.credit(gl.SubledgerLine{Account: l.account, Description: contract.TextNotRecoverable, TaxCode: s.TaxGroup}, s.NotRecoverable, part[2])
	}
	return shares, nil
}

// share is the part of a functional amount that goes with used of total.
func (x *execution) share(functional, used, total money.Number) (money.Number, error) {
	return domain.Share(functional, used, total, x.book)
}

// correction is a line that takes back tax from where it was posted.
func correction(posted *gl.PostedLine, text string) gl.SubledgerLine {
	return gl.SubledgerLine{Account: posted.Account, Description: text, TaxCode: posted.TaxCode, Dimensions: posted.Dimensions}
}

// credit adds amounts to a line; negative ones are debits.
func (l *discountLines) credit(line gl.SubledgerLine, amount, functional money.Number) {
	if amount.IsZero() && functional.IsZero() {
		return
	}
	line.Side = gl.Credit
	if amount.Sign() < 0 || amount.IsZero() && functional.Sign() < 0 {
		line.Side, amount, functional = gl.Debit, amount.Neg(), functional.Neg()
	}
	i := slices.IndexFunc(l.lines, func(have gl.SubledgerLine) bool {
		return have.Account == line.Account && have.Side == line.Side && have.TaxCode == line.TaxCode && have.Description == line.Description &&
			maps.Equal(have.Dimensions, line.Dimensions)
	})
	if i < 0 {
		i = len(l.lines)
		line.FunctionalAmount = &money.Number{}
		l.lines = append(l.lines, line)
	}
	sum := l.lines[i].FunctionalAmount.Add(functional)
	l.lines[i].Amount, l.lines[i].FunctionalAmount = l.lines[i].Amount.Add(amount), &sum
}

// hasTax reports whether a document can have lines in tax groups.
func hasTax(d *contract.Document) bool {
	return d.DocumentType != contract.TypeOpening &&
		(len(d.TaxLines) > 0 || valueOf(d.TaxAmount).Sign() != 0 || slices.ContainsFunc(d.Lines, func(l contract.Line) bool { return l.TaxGroup != "" }))
}

// postedGroup is what a document's journal posted in a tax group, and the lines of its tax.
type postedGroup struct {
	contract.DiscountShare
	input, output *gl.PostedLine
}

// postedTax reads the tax groups of a posted document from its journal, not from the settings, which
// may have changed since. Lines of the document come first in the journal, so texts tell the others
// apart.
func postedTax(ctx context.Context, ledger *gl.Ledger, d *domain.Document) ([]postedGroup, error) {
	lines, err := ledger.PostedLines(ctx, d.Posting.JournalID)
	if err != nil {
		return nil, err
	}
	own := 0
	for i := range d.Data.Lines {
		if !d.Data.Lines[i].Amount.IsZero() {
			own++
		}
	}
	var groups []postedGroup
	for i := range lines {
		line := &lines[i]
		amount := line.Amount
		if line.Side == gl.Credit {
			amount = amount.Neg()
		}
		at := slices.IndexFunc(groups, func(g postedGroup) bool { return g.TaxGroup == line.TaxCode })
		if at < 0 {
			at = len(groups)
			groups = append(groups, postedGroup{DiscountShare: contract.DiscountShare{TaxGroup: line.TaxCode}})
		}
		g := &groups[at]
		switch {
		case i < own:
			g.Net = g.Net.Add(amount)
		case line.Description == textInputTax:
			g.InputTax, g.input = g.InputTax.Add(amount), line
		case line.Description == textReverseCharge:
			g.OutputTax, g.output = g.OutputTax.Sub(amount), line
		case line.Description == contract.TextNotRecoverable:
			g.NotRecoverable = g.NotRecoverable.Add(amount)
		}
	}
	return slices.DeleteFunc(groups, func(g postedGroup) bool {
		return g.Net.IsZero() && g.InputTax.IsZero() && g.NotRecoverable.IsZero() && g.OutputTax.IsZero()
	}), nil
}
