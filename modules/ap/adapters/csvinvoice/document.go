package csvinvoice

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/text"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// cell is a value with its place. column is "" for a constant.
type cell struct {
	text, column string
	line         int
}

// reading reads one document and collects what is wrong with it. Findings repeat no text that may
// name a person.
type reading struct {
	mapping  *Mapping
	columns  map[string]int
	rows     []row
	findings []fault.Violation
	warnings []fault.Violation
}

// values are the members of one row or document that are not empty.
type values struct {
	texts   map[string]string
	dates   map[string]event.Date
	numbers map[string]money.Number
	kind    contract.Kind
}

func (rd *reading) find(c cell, code, detail string) *fault.Violation {
	if len(rd.findings) >= MaxFindings {
		return &fault.Violation{}
	}
	rd.findings = append(rd.findings, fault.Violation{Code: code, Severity: einvoice.SeverityError, Element: c.column, Line: c.line, Detail: detail})
	return &rd.findings[len(rd.findings)-1]
}

func (rd *reading) warn(c cell, code, detail string) {
	if len(rd.warnings) < MaxFindings {
		rd.warnings = append(rd.warnings, fault.Violation{Code: code, Severity: einvoice.SeverityWarning, Element: c.column, Line: c.line, Detail: detail})
	}
}

// cell finds the value of a member in a row.
func (rd *reading) cell(name string, r row) cell {
	if i, mapped := rd.columns[name]; mapped {
		return cell{r.cells[i], rd.mapping.columns[name], r.line}
	}
	return cell{rd.mapping.constants[name], "", r.line}
}

// read reads the members of a row: those of the document or those of the line.
func (rd *reading) read(r row, line bool) values {
	v := values{texts: map[string]string{}, dates: map[string]event.Date{}, numbers: map[string]money.Number{}, kind: contract.Invoice}
	for _, name := range memberNames {
		if members[name].line != line || !rd.mapping.has(name) {
			continue
		}
		c := rd.cell(name, r)
		if c.text == "" {
			if members[name].required {
				rd.find(c, CodeValueMissing, "The member "+name+" is needed in every row.")
			}
			continue
		}
		one := rd.value(name, c)
		switch members[name].form {
		case formDate:
			v.dates[name] = one.date
		case formAmount, formDecimal:
			v.numbers[name] = one.number
		case formKind:
			v.kind = one.kind
		default:
			v.texts[name] = one.text
		}
	}
	return v
}

type value struct {
	text   string
	date   event.Date
	number money.Number
	kind   contract.Kind
}

// value reads one cell in the declared form.
func (rd *reading) value(name string, c cell) (v value) {
	m := members[name]
	switch m.form {
	case formDate:
		day, ok := rd.mapping.parseDate(c.text)
		if !ok {
			f := rd.find(c, CodeValueInvalid, "This is no date in the declared form.")
			f.Expected, f.Got = rd.mapping.datesAsDeclared, shown(c.text)
			return v
		}
		v.date = event.DateOf(day)
	case formAmount, formDecimal:
		written, ok := rd.mapping.number(c.text)
		n, err := money.ParseNumber(written)
		if !ok || err != nil {
			f := rd.find(c, CodeValueInvalid, "This is no number in the declared form, of at most 15 digits.")
			f.Expected, f.Got = rd.mapping.declaredNumber(), shown(c.text)
			return v
		}
		v.number = n
	case formKind:
		kind, known := rd.mapping.kinds[c.text]
		if !known {
			rd.find(c, CodeValueInvalid, "This kind is not in the mapping; add it to kinds.").Got = shown(c.text)
			return v
		}
		v.kind = kind
	default:
		v.text = rd.text(name, c)
	}
	return v
}

// text reads a text, as the reader of XML does: what is not shown and account numbers are left out.
func (rd *reading) text(name string, c cell) string {
	m := members[name]
	clean := strings.Join(strings.Fields(text.Clean(c.text)), " ")
	if len(text.Clean(c.text)) < len(c.text) {
		rd.warn(c, einvoice.CodeTextCleaned, "This text has characters that are not shown, such as controls of direction. They are left out.")
	}
	if n := utf8.RuneCountInString(clean); n > m.longest {
		f := rd.find(c, CodeValueTooLong, "This text is longer than its member.")
		f.Expected, f.Got = "at most "+strconv.Itoa(m.longest)+" characters", strconv.Itoa(n)+" characters"
		return ""
	}
	switch m.form {
	case formText:
		if masked := shredding.MaskAccountNumbers(clean); masked != clean {
			rd.warn(c, einvoice.CodeAccountRemoved, "This text has an account or card number, which is masked.")
			clean = string([]rune(masked)[:min(m.longest, utf8.RuneCountInString(masked))])
		}
	case formIdentifier, formCode:
		if shredding.CheckNoIBAN("", clean) != nil {
			rd.warn(c, einvoice.CodeAccountRemoved, "This value has an account number, which is left out.")
			return ""
		}
	}
	return clean
}

// shown is a cell's text in a finding. A text that is no figure is not repeated.
func shown(s string) string {
	if len(s) > 20 || strings.Trim(s, "0123456789.,-+/' eE") != "" {
		return ""
	}
	return s
}

// document reads the document of the rows.
func (rd *reading) document() einvoice.Document {
	first := rd.rows[0]
	v := rd.read(first, false)
	rd.compareRows()
	d := einvoice.Document{
		Syntax: einvoice.SyntaxCSV, Kind: v.kind, DocumentType: contract.TypeStandard,
		Number: v.texts["invoice_number"], IssueDate: v.dates["invoice_date"], Currency: v.texts["currency"],
		OrderReference: v.texts["po_reference"], BuyerReference: v.texts["external_reference"], PaymentReference: v.texts["payment_reference"],
		Supplier: einvoice.NewSupplier(einvoice.Seller{
			VATID: v.texts["seller_vat_id"], RegistrationID: v.texts["seller_registration_id"], PartyID: v.texts["seller_party_id"],
			Name: shredding.MaskAccountNumbers(v.texts["seller_name"]), Address: v.texts["seller_address"], Country: v.texts["seller_country"],
		}),
		PaymentAccounts: einvoice.NewAccounts(v.texts["payee_account"]),
	}
	buyer := contract.Buyer{VATID: v.texts["buyer_vat_id"], RegistrationID: v.texts["buyer_registration_id"], EndpointID: v.texts["buyer_endpoint_id"]}
	if name := v.texts["buyer_name"]; name != "" {
		buyer.Names = []string{name}
	}
	d.Buyer = einvoice.NewBuyer(buyer)
	if due, given := v.dates["due_date"]; given {
		d.DueDate = &due
	}
	if p := v.texts["preceding_invoice"]; p != "" {
		d.PrecedingInvoices = []string{p}
	}
	if len(rd.rows) > MaxLines {
		f := rd.find(cell{line: first.line}, CodeTooManyLines, "A document has at most 1,000 lines.")
		f.Expected, f.Got = "at most 1000 lines", strconv.Itoa(len(rd.rows))+" lines"
		return d
	}
	if !d.Supplier.HasPlausibleVATID() {
		rd.warn(rd.cell("seller_vat_id", first), einvoice.CodeVATIDInvalid, "The seller's VAT identifier has not the form of its country, or its check digits do not fit.")
	}
	rd.amounts(&d, v)
	d.Warnings = rd.warnings
	return d
}

// compareRows finds members of the document in which a later row differs from the first.
func (rd *reading) compareRows() {
	for _, name := range memberNames {
		if _, mapped := rd.columns[name]; !mapped || members[name].line {
			continue
		}
		first := rd.cell(name, rd.rows[0])
		for _, r := range rd.rows[1:] {
			c := rd.cell(name, r)
			if c.text == first.text {
				continue
			}
			f := rd.find(c, CodeRowsDiffer, "Rows of one document differ in a value of the document. The first of its rows is row "+strconv.Itoa(first.line)+".")
			f.Expected, f.Got = shown(first.text), shown(c.text)
			break
		}
	}
}

// taxGroup sums the lines of one category and rate.
type taxGroup struct {
	line    einvoice.TaxLine
	charged money.Number // sum of line_tax_amount
}

// amounts reads the lines and checks that they add up to the totals. Nothing is corrected.
func (rd *reading) amounts(d *einvoice.Document, v values) {
	currency, err := money.LookupCurrency(d.Currency, d.IssueDate.Time())
	if err != nil && len(rd.findings) == 0 {
		rd.find(rd.cell("currency", rd.rows[0]), fault.CodeOf(err), "The currency is not one that was in use on the date of the document.")
	}
	exact := func(name string, r row, n money.Number) money.Number {
		short, tooLong := n.Rescale(currency.MinorUnit)
		if err == nil && tooLong != nil {
			rd.find(rd.cell(name, r), fault.CodeOf(tooLong), "This amount has more decimals than its currency.").Got = n.String()
			return n
		}
		if n.Scale() > currency.MinorUnit && tooLong == nil {
			return short
		}
		return n
	}
	var groups []taxGroup
	var net, charged money.Number
	for _, r := range rd.rows {
		l := rd.read(r, true)
		line := einvoice.Line{
			Kind: einvoice.LineItem, Description: l.texts["line_description"], Amount: exact("line_amount", r, l.numbers["line_amount"]),
			TaxCategory: l.texts["tax_category"], OrderLine: l.texts["order_line"], ItemID: l.texts["item_id"], AccountingCost: l.texts["accounting_cost"],
			Quantity: l.number("quantity"), Unit: l.texts["unit"], UnitPrice: l.number("unit_price"), TaxRate: l.number("tax_rate"),
		}
		if line.TaxRate != nil && money.CheckPercent(*line.TaxRate) != nil {
			rd.find(rd.cell("tax_rate", r), CodeValueInvalid, "A rate is a percentage with at most six decimals.").Got = line.TaxRate.String()
		}
		if line.Unit != "" && !einvoice.IsUnit(line.Unit) {
			rd.find(rd.cell("unit", r), CodeValueInvalid, "A unit is a code of UN/ECE Recommendation 20 or 21, such as H87 for pieces.")
		}
		d.Lines = append(d.Lines, line)
		tax := exact("line_tax_amount", r, l.numbers["line_tax_amount"])
		net, charged = net.Add(line.Amount), charged.Add(tax)
		groups = addToGroup(groups, line, tax)
	}
	first := rd.rows[0]
	d.Totals.Gross = exact("total_amount", first, v.numbers["total_amount"])
	d.Totals.Payable = d.Totals.Gross
	d.Totals.Net, d.Totals.Lines = net, net
	d.Totals.Tax = charged
	if stated, given := v.numbers["tax_amount"]; given {
		d.Totals.Tax = exact("tax_amount", first, stated)
		if rd.mapping.has("line_tax_amount") {
			rd.requireSum("tax_amount", "The tax of the lines does not add up to the tax of the document.", charged, d.Totals.Tax, d.Currency)
		}
	}
	rd.requireSum("total_amount", "Lines and tax do not add up to the total.", net.Add(d.Totals.Tax), d.Totals.Gross, d.Currency)
	if err == nil && rd.mapping.has("tax_category") {
		rd.taxLines(d, groups, currency)
	}
	if len(rd.findings) == 0 {
		d.SwapNegative()
	}
}

// taxLines makes the breakdown of the tax: stated by the lines, or by the document if it has one
// group only, else computed by the rates. A computed breakdown that does not add up is refused.
func (rd *reading) taxLines(d *einvoice.Document, groups []taxGroup, currency money.Currency) {
	stated := rd.mapping.has("line_tax_amount")
	var sum money.Number
	for _, g := range groups {
		switch {
		case stated:
			g.line.Tax = g.charged
		case len(groups) == 1:
			g.line.Tax = d.Totals.Tax
		case g.line.Rate != nil:
			g.line.Tax = money.Percent(g.line.Taxable, *g.line.Rate, currency)
		}
		sum = sum.Add(g.line.Tax)
		d.TaxLines = append(d.TaxLines, g.line)
	}
	rd.requireSum("tax_amount", "The tax of the rates does not add up to the tax of the document; map line_tax_amount if the supplier rounds otherwise.", sum, d.Totals.Tax, d.Currency)
}

func addToGroup(groups []taxGroup, l einvoice.Line, tax money.Number) []taxGroup {
	for i := range groups {
		g := &groups[i]
		if einvoice.TaxGroup(g.line.Category, g.line.Rate) == einvoice.TaxGroup(l.TaxCategory, l.TaxRate) {
			g.line.Taxable, g.charged = g.line.Taxable.Add(l.Amount), g.charged.Add(tax)
			return groups
		}
	}
	return append(groups, taxGroup{line: einvoice.TaxLine{Category: l.TaxCategory, Rate: l.TaxRate, Taxable: l.Amount}, charged: tax})
}

// requireSum finds a total that its parts do not add up to.
func (rd *reading) requireSum(name, detail string, expected, got money.Number, currency string) {
	if expected.Equal(got) || len(rd.findings) > 0 {
		return
	}
	f := rd.find(rd.cell(name, rd.rows[0]), CodeTotalMismatch, detail)
	f.Expected, f.Got, f.Difference, f.Currency = expected.String(), got.String(), got.Sub(expected).String(), currency
}

func (v values) number(name string) *money.Number {
	if n, given := v.numbers[name]; given {
		return &n
	}
	return nil
}
