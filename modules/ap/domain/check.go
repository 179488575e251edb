package domain

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/text"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// CheckDocument checks that a document is consistent in itself: amounts fit the currency
// as of the invoice date, sums agree to the last digit, and the due date is not before the
// invoice date. Faults: money.*, and those of the kind with number_invalid,
// total_mismatch, tax_mismatch, payable_mismatch, due_date_invalid, line_number_invalid.
func CheckDocument(k contract.Kind, d *contract.Document) error {
	if err := checkNumber(k, d.InvoiceNumber); err != nil {
		return err
	}
	currency, err := money.LookupCurrency(d.Currency, d.InvoiceDate.Time())
	if err != nil {
		return at(err, "/currency")
	}
	if err := checkNumbers(d, currency); err != nil {
		return err
	}
	if err := checkLineNumbers(k, d); err != nil {
		return err
	}
	if err := checkSums(k, d); err != nil {
		return err
	}
	if d.DueDate != nil && *d.DueDate < d.InvoiceDate {
		return fault.New(fault.Invalid, k.Code("due_date_invalid"),
			"the due date %s is before the invoice date %s; correct one of them", *d.DueDate, d.InvoiceDate).
			WithField("/due_date").With("due_date", d.DueDate.String()).With("invoice_date", d.InvoiceDate.String())
	}
	return nil
}

// checkNumber refuses a blank number and one with invisible characters, because two
// documents must not differ in characters that a reader cannot see.
func checkNumber(k contract.Kind, number string) error {
	lineEnds := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) }
	if text.CheckNotBlank("", number) != nil || strings.ContainsFunc(number, lineEnds) || text.CheckVisible("", number) != nil {
		return fault.New(fault.Invalid, k.Code("number_invalid"),
			"the number is blank, or it holds line breaks or invisible characters; send it as it is printed on the paper").
			WithField("/invoice_number")
	}
	return nil
}

// at adds the field to a fault of package money that names none.
func at(err error, field string) error {
	if f, ok := fault.As(err); ok && f.Field == "" {
		return f.WithField(field)
	}
	return err
}

type numberCheck struct {
	field  string
	value  *money.Number
	checks []func(money.Number) error
}

func checkNumbers(d *contract.Document, c money.Currency) error {
	amount := func(n money.Number) error { return money.CheckAmount(n, c) }
	all := []numberCheck{
		{"/total_amount", &d.TotalAmount, []func(money.Number) error{amount, money.CheckNonNegative}},
		{"/tax_amount", d.TaxAmount, []func(money.Number) error{amount, money.CheckNonNegative}},
		{"/prepaid_amount", d.PrepaidAmount, []func(money.Number) error{amount}},
		{"/rounding_amount", d.RoundingAmount, []func(money.Number) error{amount}},
		{"/payable_amount", d.PayableAmount, []func(money.Number) error{amount}},
	}
	for i := range d.TaxLines {
		t, at := &d.TaxLines[i], fmt.Sprintf("/tax_lines/%d", i)
		all = append(all,
			numberCheck{at + "/rate", t.Rate, []func(money.Number) error{money.CheckPercent, money.CheckNonNegative}},
			numberCheck{at + "/taxable_amount", t.TaxableAmount, []func(money.Number) error{amount}},
			numberCheck{at + "/tax_amount", &t.TaxAmount, []func(money.Number) error{amount}})
	}
	for i := range d.Withholding {
		all = append(all, numberCheck{fmt.Sprintf("/withholding/%d/amount", i), &d.Withholding[i].Amount,
			[]func(money.Number) error{amount, money.CheckNonNegative}})
	}
	if d.Discount != nil {
		all = append(all, numberCheck{"/discount/percent", &d.Discount.Percent, []func(money.Number) error{money.CheckPercent, money.CheckNonNegative}})
	}
	for i := range d.Lines {
		l, at := &d.Lines[i], fmt.Sprintf("/lines/%d", i)
		all = append(all,
			numberCheck{at + "/amount", &l.Amount, []func(money.Number) error{amount}},
			numberCheck{at + "/quantity", l.Quantity, []func(money.Number) error{money.CheckQuantity}},
			numberCheck{at + "/unit_price", l.UnitPrice, []func(money.Number) error{money.CheckQuantity}},
			numberCheck{at + "/price_base_quantity", l.PriceBaseQuantity, []func(money.Number) error{money.CheckQuantity}})
	}
	for _, n := range all {
		if n.value == nil {
			continue
		}
		for _, check := range n.checks {
			if err := check(*n.value); err != nil {
				return at(err, n.field)
			}
		}
	}
	return nil
}

func checkLineNumbers(k contract.Kind, d *contract.Document) error {
	seen := make(map[int]bool, len(d.Lines))
	for i := range d.Lines {
		n := d.Lines[i].LineNumber
		if seen[n] {
			return fault.New(fault.Invalid, k.Code("line_number_invalid"),
				"line number %d is used twice; number the lines 1, 2, 3 and so on", n).
				WithField(fmt.Sprintf("/lines/%d/line_number", i))
		}
		seen[n] = true
	}
	return nil
}

func checkSums(k contract.Kind, d *contract.Document) error {
	mismatch := func(code, field, detail string, expected, got money.Number) error {
		return fault.New(fault.Invalid, k.Code(code), "%s; correct the amounts", detail).WithField(field).
			WithNumbers(expected.String(), got.String()).
			With("difference", got.Sub(expected).String()).With("currency", d.Currency)
	}
	sum := Net(d).Add(value(d.TaxAmount))
	if !sum.Equal(d.TotalAmount) {
		return mismatch("total_mismatch", "/total_amount",
			fmt.Sprintf("the lines and the tax add up to %s %s, and the total amount is %s", sum, d.Currency, d.TotalAmount), sum, d.TotalAmount)
	}
	if len(d.TaxLines) > 0 {
		var tax money.Number
		for i := range d.TaxLines {
			tax = tax.Add(d.TaxLines[i].TaxAmount)
		}
		if !tax.Equal(value(d.TaxAmount)) {
			return mismatch("tax_mismatch", "/tax_amount",
				fmt.Sprintf("the tax lines add up to %s %s, and the tax amount is %s", tax, d.Currency, value(d.TaxAmount)), tax, value(d.TaxAmount))
		}
	}
	if d.PayableAmount != nil {
		payable := d.TotalAmount.Sub(value(d.PrepaidAmount)).Add(value(d.RoundingAmount))
		if !payable.Equal(*d.PayableAmount) {
			return mismatch("payable_mismatch", "/payable_amount",
				fmt.Sprintf("the total less what was prepaid plus the rounding is %s %s, and the payable amount is %s", payable, d.Currency, *d.PayableAmount), payable, *d.PayableAmount)
		}
	}
	if Control(d).Sign() < 0 {
		return mismatch("payable_mismatch", "/rounding_amount",
			"rounding and withholding take more than the total", money.FromInt(0), Control(d))
	}
	return nil
}

// Net is the sum of the lines.
func Net(d *contract.Document) money.Number {
	var sum money.Number
	for i := range d.Lines {
		sum = sum.Add(d.Lines[i].Amount)
	}
	return sum
}

// Withheld is the sum that the payer withholds for the tax office.
func Withheld(d *contract.Document) money.Number {
	var sum money.Number
	for i := range d.Withholding {
		sum = sum.Add(d.Withholding[i].Amount)
	}
	return sum
}

// Control is the amount that the document posts to the control account: the total plus
// its rounding amount, less withheld tax.
func Control(d *contract.Document) money.Number {
	return d.TotalAmount.Add(value(d.RoundingAmount)).Sub(Withheld(d))
}

func value(n *money.Number) money.Number {
	if n == nil {
		return money.Number{}
	}
	return *n
}
