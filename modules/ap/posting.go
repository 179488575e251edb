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

// dimensionVendor is the dimension that every line of a control account has.
const dimensionVendor = "vendor"

// Texts of the tax lines of a document's journal.
const (
	textInputTax      = "Input tax"
	textReverseCharge = "Reverse charge"
)

// journalBuilder builds the lines of a document's journal and keeps the first error. It
// thinks in the sides of an invoice; add swaps them for a credit memo.
type journalBuilder struct {
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

// journalLines turns a document into the lines of its journal: one per document line,
// then tax, withholding, the rounding amount that the document states, and the line on
// the control account. Differences of currency conversion are no matter of this function:
// PlanSubledgerJournal adds a line for them.
func journalLines(ctx context.Context, ledger *gl.Ledger, books gl.Settings, settings *domain.Settings, vendor *domain.Vendor, k contract.Kind, d *contract.Document, c money.Currency, head map[string]string) ([]gl.SubledgerLine, error) {
	j := &journalBuilder{ctx: ctx, ledger: ledger, books: books, settings: settings, vendor: vendor, kind: k, d: d, currency: c, head: head}
	control := domain.Control(d)
	if d.DocumentType == contract.TypeOpening {
		j.addOpening(control)
	} else {
		j.addDocumentLines()
		j.addTax()
		j.addWithholding()
		if d.RoundingAmount != nil {
			j.add(j.profileAccount(gl.RoleRounding), *d.RoundingAmount, gl.SubledgerLine{Description: "Rounding", Dimensions: j.withDepartment(nil)})
		}
	}
	j.add(j.profileAccountIf(!control.IsZero(), gl.RoleAPControl), control.Neg(), gl.SubledgerLine{
		Description: journalTitle(k, d), Control: true,
		Dimensions: j.withDepartment(map[string]string{dimensionVendor: d.VendorID}),
	})
	return j.lines, j.err
}

// journalTitle describes the document by its number. It names no person, as journals
// cannot seal one.
func journalTitle(k contract.Kind, d *contract.Document) string {
	if k == contract.CreditMemo {
		return "Credit memo " + d.InvoiceNumber
	}
	return "Invoice " + d.InvoiceNumber
}

// withDepartment adds the document's department unless the dimensions have one.
func (j *journalBuilder) withDepartment(dimensions map[string]string) map[string]string {
	return withDefaults(dimensions, map[string]string{gl.DimensionDepartment: j.head[gl.DimensionDepartment]})
}

// add appends a line. On an invoice a positive amount is a debit, a negative one a
// credit; on a credit memo the other way round. An amount of 0 adds no line.
func (j *journalBuilder) add(account string, amount money.Number, line gl.SubledgerLine) {
	if j.err != nil || amount.IsZero() {
		return
	}
	line.Account, line.Amount, line.Side = account, amount.Abs(), gl.Debit
	if (amount.Sign() < 0) != (j.kind == contract.CreditMemo) {
		line.Side = gl.Credit
	}
	j.lines = append(j.lines, line)
}

// profileAccount looks up the account of a role of the posting profile.
func (j *journalBuilder) profileAccount(role string) string {
	if j.err != nil {
		return ""
	}
	account, err := j.ledger.ProfileAccount(j.ctx, role)
	j.err = err
	return account
}

// profileAccountIf looks the account up only if needed, so that a profile without the
// role does not fail a document that posts nothing to it.
func (j *journalBuilder) profileAccountIf(needed bool, role string) string {
	if !needed {
		return ""
	}
	return j.profileAccount(role)
}

// accountOrProfile returns the account, or that of the role if it is "".
func (j *journalBuilder) accountOrProfile(account, role string) string {
	if account != "" {
		return account
	}
	return j.profileAccount(role)
}

func (j *journalBuilder) addDocumentLines() {
	for i := range j.d.Lines {
		j.add(j.lineAccount(i), j.d.Lines[i].Amount, gl.SubledgerLine{
			Description: lineTitle(&j.d.Lines[i]), TaxCode: j.d.Lines[i].TaxGroup, Dimensions: withDefaults(j.d.Lines[i].Dimensions, j.head),
		})
	}
}

// addOpening posts what is open of an item from earlier books, gross. Those books have
// deducted its tax, withheld and rounded already.
func (j *journalBuilder) addOpening(open money.Number) {
	j.add(j.profileAccountIf(!open.IsZero(), gl.RoleOpening), open, gl.SubledgerLine{Description: journalTitle(j.kind, j.d), Dimensions: withDefaults(nil, j.head)})
}

// maxJournalText is the longest text of a journal line, in characters.
const maxJournalText = 200

func lineTitle(l *contract.Line) string {
	if text := []rune(l.Description); len(text) > maxJournalText {
		return string(text[:maxJournalText])
	}
	return l.Description
}

// lineAccount returns the account that coding gave the line at submission. A line without
// one is coded now, since the settings may have changed while a CODING_MISSING hold was
// open.
func (j *journalBuilder) lineAccount(i int) string {
	if j.err != nil {
		return ""
	}
	l := &j.d.Lines[i]
	if j.d.DocumentType == contract.TypePrepayment {
		return j.profileAccount(gl.RolePrepayment)
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

// taxSum is the sum of a document's tax in one tax group.
type taxSum struct {
	group   string
	taxable money.Number
	charged money.Number
}

// taxSums sums the tax lines by group. For a document without tax lines it uses the
// groups of the document lines; if they have several, the charged tax is summed under
// group "".
func (j *journalBuilder) taxSums() []taxSum {
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

// taxGroupUnknownFault makes the fault for tax that cannot be posted: the ledger does not say
// whether it can be recovered.
func taxGroupUnknownFault(k contract.Kind, group string) error {
	return fault.New(fault.FailedPrecondition, k.Code("tax_group_unknown"),
		"tax is charged in group %q, which the ledger does not know; add the group with gl.configure_ledger or correct the document", group).
		With("tax_group", group)
}

func (j *journalBuilder) addTax() {
	hundred := money.FromInt(100)
	for _, t := range j.taxSums() {
		g, configured := j.books.TaxGroups[t.group]
		tax := t.charged
		if !configured && !tax.IsZero() {
			j.err = taxGroupUnknownFault(j.kind, t.group)
			return
		}
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
			j.add(j.accountOrProfile(g.Account, gl.RoleInputTax), recoverable,
				gl.SubledgerLine{Description: textInputTax, TaxCode: t.group, Dimensions: j.withDepartment(nil)})
		}
		j.addNonRecoverableTax(t.group, g, tax.Sub(recoverable))
		if reverse {
			j.add(j.accountOrProfile(g.OutputAccount, gl.RoleOutputTax), tax.Neg(),
				gl.SubledgerLine{Description: textReverseCharge, TaxCode: t.group, Dimensions: j.withDepartment(nil)})
		}
	}
}

// addNonRecoverableTax posts tax that cannot be recovered to the group's expense account.
// Without one it allocates the tax to the accounts of the group's lines by their amounts.
func (j *journalBuilder) addNonRecoverableTax(group string, g gl.TaxGroup, tax money.Number) {
	const text = contract.TextNotRecoverable
	if tax.IsZero() || j.err != nil {
		return
	}
	if g.ExpenseAccount != "" {
		j.add(g.ExpenseAccount, tax, gl.SubledgerLine{Description: text, TaxCode: group, Dimensions: withDefaults(j.withDepartment(nil), j.head)})
		return
	}
	weights, total := make([]money.Number, len(j.d.Lines)), money.Number{}
	for i := range j.d.Lines {
		if j.d.Lines[i].TaxGroup == group {
			weights[i] = j.d.Lines[i].Amount
			total = total.Add(weights[i])
		}
	}
	if total.IsZero() { // no line of the group: allocate to all lines
		for i := range j.d.Lines {
			weights[i] = j.d.Lines[i].Amount
		}
		if domain.Net(j.d).IsZero() { // a document of tax alone: the first line takes all
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
			Description: text, TaxCode: group, Dimensions: withDefaults(j.d.Lines[i].Dimensions, j.head),
		})
	}
}

func (j *journalBuilder) addWithholding() {
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
		j.add(j.accountOrProfile(code.Account, gl.RoleWithholding), w.Amount.Neg(),
			gl.SubledgerLine{Description: contract.TextWithholding + w.Code, TaxCode: w.Code, Dimensions: j.withDepartment(nil)})
	}
}
