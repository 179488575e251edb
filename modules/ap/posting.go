package ap

import (
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// roleOpening is the posting profile's account that items of earlier books are
// posted against.
const roleOpening = "opening"

// dimensionVendor is on every line of a control account.
const dimensionVendor = "vendor"

// journal builds the lines of a document's journal. Debits are those of an
// invoice; for a credit memo all sides are swapped.
type journal struct {
	ctx      context.Context
	ledger   *gl.Ledger
	books    gl.Settings
	settings *domain.Settings
	vendor   *domain.Vendor
	kind     contract.Kind
	d        *contract.Document
	currency money.Currency
	head     map[string]string // dimensions of the document as a whole

	lines []gl.SubledgerLine
	err   error
}

// journalLines turns a document into the lines of its journal: each line's
// account, tax, withholding, rounding, and the control account.
func journalLines(ctx context.Context, ledger *gl.Ledger, books gl.Settings, settings *domain.Settings, vendor *domain.Vendor, k contract.Kind, d *contract.Document, c money.Currency, head map[string]string) ([]gl.SubledgerLine, error) {
	j := &journal{ctx: ctx, ledger: ledger, books: books, settings: settings, vendor: vendor, kind: k, d: d, currency: c, head: head}
	j.documentLines()
	j.tax()
	j.withholding()
	if d.RoundingAmount != nil {
		j.add(j.profile(gl.RoleRounding), *d.RoundingAmount, gl.SubledgerLine{Description: "Rounding", Dimensions: j.own(nil)})
	}
	control := domain.Control(d)
	j.add(j.profileIf(!control.IsZero(), gl.RoleAPControl), control.Neg(), gl.SubledgerLine{
		Description: journalTitle(k, d), Control: true,
		Dimensions: j.own(map[string]string{dimensionVendor: d.VendorID}),
	})
	return j.lines, j.err
}

// journalTitle describes the document without naming a person.
func journalTitle(k contract.Kind, d *contract.Document) string {
	if k == contract.CreditMemo {
		return "Credit memo " + d.InvoiceNumber
	}
	return "Invoice " + d.InvoiceNumber
}

// own adds the department that every line carries to dimensions of its own.
func (j *journal) own(dimensions map[string]string) map[string]string {
	return filled(dimensions, map[string]string{gl.DimensionDepartment: j.head[gl.DimensionDepartment]})
}

// add appends a line whose amount is a debit of an invoice if positive. Lines of
// 0 post nothing.
func (j *journal) add(account string, amount money.Number, line gl.SubledgerLine) {
	if j.err != nil || amount.IsZero() {
		return
	}
	line.Account, line.Amount, line.Side = account, amount.Abs(), gl.Debit
	if (amount.Sign() < 0) != (j.kind == contract.CreditMemo) {
		line.Side = gl.Credit
	}
	j.lines = append(j.lines, line)
}

// profile is the account of a role of the posting profile.
func (j *journal) profile(role string) string {
	if j.err != nil {
		return ""
	}
	account, err := j.ledger.ProfileAccount(j.ctx, role)
	j.err = err
	return account
}

// profileIf asks for the account only when there is something to post.
func (j *journal) profileIf(needed bool, role string) string {
	if !needed {
		return ""
	}
	return j.profile(role)
}

// orProfile is the account if it is named, else that of the role.
func (j *journal) orProfile(account, role string) string {
	if account != "" {
		return account
	}
	return j.profile(role)
}

func (j *journal) documentLines() {
	for i := range j.d.Lines {
		j.add(j.lineAccount(i), j.d.Lines[i].Amount, gl.SubledgerLine{
			Description: lineTitle(&j.d.Lines[i]), TaxCode: j.d.Lines[i].TaxGroup, Dimensions: filled(j.d.Lines[i].Dimensions, j.head),
		})
	}
}

// maxJournalText bounds the text of a journal line, in characters.
const maxJournalText = 200

func lineTitle(l *contract.Line) string {
	if text := []rune(l.Description); len(text) > maxJournalText {
		return string(text[:maxJournalText])
	}
	return l.Description
}

// lineAccount is the account of a line as it was coded, or as it can be coded by
// now.
func (j *journal) lineAccount(i int) string {
	if j.err != nil {
		return ""
	}
	l := &j.d.Lines[i]
	switch j.d.DocumentType {
	case contract.TypePrepayment:
		return j.profile(gl.RolePrepayment)
	case contract.TypeOpening:
		return j.profile(roleOpening)
	}
	if l.Account != "" {
		return l.Account
	}
	if entry, known := j.settings.Coding(l.AccountingCost); known && entry.Account != "" {
		return entry.Account
	}
	account, _ := defaultAccount(j.vendor, j.books)
	if account == "" && !l.Amount.IsZero() {
		j.err = fault.New(fault.FailedPrecondition, j.kind.Code("coding_missing"),
			"line %d has no account, and neither the vendor nor the posting profile has one for it; set a default with gl.configure_ledger or ap.configure", l.LineNumber).
			With("line_number", l.LineNumber)
	}
	return account
}

// taxSum is the tax of one group over the document.
type taxSum struct {
	group   string
	taxable money.Number
	charged money.Number
}

// taxSums adds the tax lines up by group. A document without tax lines has its
// lines' groups; tax whose group is unknown has none.
func (j *journal) taxSums() []taxSum {
	var sums []taxSum
	index := map[string]int{}
	sum := func(group string) *taxSum {
		i, seen := index[group]
		if !seen {
			i = len(sums)
			index[group] = i
			sums = append(sums, taxSum{group: group})
		}
		return &sums[i]
	}
	if len(j.d.TaxLines) > 0 {
		for i := range j.d.TaxLines {
			t := &j.d.TaxLines[i]
			s := sum(t.TaxGroup)
			s.charged = s.charged.Add(t.TaxAmount)
			if t.TaxableAmount != nil {
				s.taxable = s.taxable.Add(*t.TaxableAmount)
			}
		}
		return sums
	}
	for i := range j.d.Lines {
		s := sum(j.d.Lines[i].TaxGroup)
		s.taxable = s.taxable.Add(j.d.Lines[i].Amount)
	}
	if j.d.TaxAmount != nil && !j.d.TaxAmount.IsZero() {
		if len(sums) == 1 {
			sums[0].charged = *j.d.TaxAmount
		} else {
			s := sum("")
			s.charged = s.charged.Add(*j.d.TaxAmount)
		}
	}
	return sums
}

func (j *journal) tax() {
	hundred := money.FromInt(100)
	for _, t := range j.taxSums() {
		g, configured := j.books.TaxGroups[t.group]
		if !configured {
			// Without a rule of its own, tax that was charged is recoverable.
			g = gl.TaxGroup{RecoverablePercent: hundred}
		}
		tax := t.charged
		reverse := g.ReverseCharge && tax.IsZero()
		if reverse {
			tax = money.Percent(t.taxable, g.Rate, j.currency)
		}
		if tax.IsZero() {
			continue
		}
		recoverable := tax
		if !g.RecoverablePercent.Equal(hundred) {
			recoverable = money.Percent(tax, g.RecoverablePercent, j.currency)
		}
		if !recoverable.IsZero() {
			j.add(j.orProfile(g.Account, gl.RoleInputTax), recoverable,
				gl.SubledgerLine{Description: "Input tax", TaxCode: t.group, Dimensions: j.own(nil)})
		}
		j.cost(t.group, g, tax.Sub(recoverable))
		if reverse {
			j.add(j.orProfile(g.OutputAccount, gl.RoleOutputTax), tax.Neg(),
				gl.SubledgerLine{Description: "Reverse charge", TaxCode: t.group, Dimensions: j.own(nil)})
		}
	}
}

// cost posts tax that cannot be recovered: to the group's own account, else to
// the lines of the group, each its share.
func (j *journal) cost(group string, g gl.TaxGroup, tax money.Number) {
	const text = "Tax that cannot be recovered"
	if tax.IsZero() || j.err != nil {
		return
	}
	if g.ExpenseAccount != "" {
		j.add(g.ExpenseAccount, tax, gl.SubledgerLine{Description: text, TaxCode: group, Dimensions: filled(j.own(nil), j.head)})
		return
	}
	weights, total := make([]money.Number, len(j.d.Lines)), money.Number{}
	for i := range j.d.Lines {
		if j.d.Lines[i].TaxGroup == group {
			weights[i] = j.d.Lines[i].Amount
			total = total.Add(weights[i])
		}
	}
	if total.IsZero() { // no line of the group: all lines bear it
		for i := range j.d.Lines {
			weights[i] = j.d.Lines[i].Amount
		}
		if domain.Net(j.d).IsZero() { // tax alone: the first line bears it
			weights[0] = money.FromInt(1)
			for i := range weights[1:] {
				weights[i+1] = money.Number{}
			}
		}
	}
	shares, err := money.Allocate(tax, weights, j.currency)
	if err != nil {
		j.err = fmt.Errorf("share tax of group %s: %w", group, err)
		return
	}
	for i, share := range shares {
		if share.IsZero() {
			continue
		}
		j.add(j.lineAccount(i), share, gl.SubledgerLine{
			Description: text, TaxCode: group, Dimensions: filled(j.d.Lines[i].Dimensions, j.head),
		})
	}
}

func (j *journal) withholding() {
	for _, w := range j.d.Withholding {
		if w.Amount.IsZero() {
			continue
		}
		code, known := j.settings.WithholdingCodes[w.Code]
		if !known {
			j.err = fault.New(fault.NotFound, "ap.withholding_code.not_found",
				"the settings have no withholding code %q any more; add it with ap.configure", w.Code)
			return
		}
		j.add(j.orProfile(code.Account, gl.RoleWithholding), w.Amount.Neg(),
			gl.SubledgerLine{Description: "Withholding " + w.Code, TaxCode: w.Code, Dimensions: j.own(nil)})
	}
}
