package cli

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// journalSpool collects the transactions of one kind of journal.
type journalSpool struct {
	*spool
	xml  xmlWriter
	kind string
}

// readEntries writes the transactions, each when its lines are complete.
func (x *saft) readEntries(ctx context.Context) error {
	var lines []line
	flush := func() error {
		if len(lines) == 0 {
			return nil
		}
		err := x.writeTransaction(lines)
		lines = lines[:0]
		return err
	}
	err := x.readLines(ctx, func(l *line) error {
		if l.FunctionalCurrency != x.at.Currency {
			x.result.OtherBook++
			return nil
		}
		if len(lines) > 0 && lines[0].Sequence != l.Sequence {
			if err := flush(); err != nil {
				return err
			}
		}
		lines = append(lines, *l)
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// journalOf returns the spool of a kind of journal.
func (x *saft) journalOf(kind string) (*journalSpool, error) {
	prefix := domain.JournalType(kind).Prefix()
	if prefix == domain.General.Prefix() {
		kind = string(domain.General) // raw appends may have any type
	}
	if s := x.journals[prefix]; s != nil {
		return s, nil
	}
	file, err := newSpool()
	if err != nil {
		return nil, err
	}
	s := &journalSpool{spool: file, kind: kind, xml: xmlWriter{out: file, depth: 3}}
	x.journals[prefix] = s
	return s, nil
}

func (x *saft) writeTransaction(lines []line) error {
	head := &lines[0]
	s, err := x.journalOf(head.Type)
	if err != nil {
		return err
	}
	amounts, err := x.parseAmounts(lines)
	if err != nil {
		return err
	}
	x.result.Journals++
	number, year := x.period(head)
	w := &s.xml
	w.element("Transaction", func() {
		w.id("TransactionID", cmp.Or(head.JournalNumber, head.EventID), 70)
		w.text("Period", strconv.Itoa(number))
		w.text("PeriodYear", year)
		w.text("TransactionDate", cmp.Or(head.DocumentDate, head.EffectiveDate))
		w.text("VoucherType", s.kind)
		w.text("Description", cut(cmp.Or(head.JournalDescription, s.kind), 256))
		w.optional("BatchID", cut(head.IntentID, 35))
		w.text("SystemEntryDate", head.RecordedAt[:min(10, len(head.RecordedAt))])
		w.text("GLPostingDate", head.EffectiveDate)
		w.optional("SystemID", head.Sequence)
		for i := range lines {
			w.element("Line", func() { x.writeLine(w, lines, amounts, i) })
		}
	})
	return w.err
}

// lineAmount is the amount of a line in functional and in its own currency.
type lineAmount struct{ functional, own money.Number }

func (x *saft) parseAmounts(lines []line) ([]lineAmount, error) {
	out := make([]lineAmount, len(lines))
	for i := range lines {
		if err := errors.Join(out[i].functional.Scan(lines[i].FunctionalAmount), out[i].own.Scan(lines[i].Amount)); err != nil {
			return nil, err
		}
		if lines[i].Side == "debit" {
			x.debit = x.debit.Add(out[i].functional)
		} else {
			x.credit = x.credit.Add(out[i].functional)
		}
	}
	return out, nil
}

// period returns the number of the journal's period and its year. Journals of raw appends may
// lack a period; they count by their date.
func (x *saft) period(l *line) (number int, year string) {
	if p, known := x.periods[l.Period]; known {
		return p.number, p.year
	}
	for _, name := range slices.Sorted(maps.Keys(x.periods)) {
		if p := x.periods[name]; p.start <= l.EffectiveDate && l.EffectiveDate <= p.end {
			return p.number, p.year
		}
	}
	month, _ := strconv.Atoi(l.EffectiveDate[5:7])
	return month, l.EffectiveDate[:4]
}

func (x *saft) writeLine(w *xmlWriter, lines []line, amounts []lineAmount, i int) {
	l := &lines[i]
	w.text("RecordID", strconv.Itoa(l.LineNumber))
	w.id("AccountID", l.Account, 70)
	isControl := cmp.Or(x.accounts[l.Account].Control, "none") != "none"
	vendor := l.Dimensions[dimensionVendor]
	for _, name := range slices.Sorted(maps.Keys(l.Dimensions)) {
		if name == dimensionVendor && isControl {
			continue // SupplierID
		}
		kind, value := x.analysis.short(name, l.Dimensions[name])
		w.element("Analysis", func() {
			w.text("AnalysisType", kind)
			w.text("AnalysisID", value)
		})
	}
	w.optional("SourceDocumentID", cut(l.SourceEventID, 35))
	if isControl && vendor != "" {
		w.id("SupplierID", vendor, 35)
	}
	description := cmp.Or(l.Description, l.JournalDescription, l.AccountName, l.Account)
	own, fits := decimalText(amounts[i].own, 2, 18)
	foreign := l.Currency != l.FunctionalCurrency
	if foreign && !fits {
		x.result.InexactAmounts++
		description = cut(description, 200) + " (" + l.Amount + " " + l.Currency + ")"
	}
	w.text("Description", cut(description, 256))
	element := map[bool]string{true: "DebitAmount", false: "CreditAmount"}[l.Side == "debit"]
	w.element(element, func() {
		x.writeAmount(w, amounts[i].functional)
		if foreign && fits {
			w.text("CurrencyCode", l.Currency)
			w.text("CurrencyAmount", own)
			var rate money.Number
			if l.Rate != "" && rate.Scan(l.Rate) == nil {
				if text, fits := decimalText(rate, 8, 18); fits {
					w.text("ExchangeRate", text)
				}
			}
		}
	})
	x.writeTax(w, lines, amounts, i)
	w.text("SystemEntryTime", l.RecordedAt)
}

func (x *saft) writeAmount(w *xmlWriter, n money.Number) {
	text, err := amountText(n)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	w.text("Amount", text)
}

// writeTax writes the tax of a line: on a line that is posted to an account of its tax group
// the line itself, with the lines that the group taxes as base. Where a group's rate is 0 no
// such line exists, and each taxed line has a tax of 0. A group that is recovered in part has
// lines for the rest that nothing tells apart from taxed ones, so its base is left out.
func (x *saft) writeTax(w *xmlWriter, lines []line, amounts []lineAmount, i int) {
	l := &lines[i]
	g, known := x.groups[l.TaxCode]
	if l.TaxCode == "" || !known {
		return
	}
	amount, base, hasBase := amounts[i].functional, money.Number{}, g.RecoverablePercent == nil || g.RecoverablePercent.Equal(money.FromInt(100))
	switch {
	case g.isTaxAccount(l.Account):
		for j := range lines {
			if lines[j].TaxCode != l.TaxCode || g.isTaxAccount(lines[j].Account) {
				continue
			}
			if lines[j].Side == "debit" {
				base = base.Add(amounts[j].functional)
			} else {
				base = base.Sub(amounts[j].functional)
			}
		}
		base = base.Abs()
	case g.Rate.IsZero():
		amount, base = money.Number{}, amounts[i].functional
	default:
		return
	}
	w.element("TaxInformation", func() {
		w.text("TaxType", "MVA")
		w.id("TaxCode", l.TaxCode, 70)
		w.text("TaxPercentage", g.Rate.String())
		if hasBase {
			w.text("TaxBase", base.Fixed(2))
		}
		w.element(map[bool]string{true: "DebitTaxAmount", false: "CreditTaxAmount"}[l.Side == "debit"], func() { x.writeAmount(w, amount) })
	})
}

func (g *taxGroup) isTaxAccount(account string) bool {
	return account == g.Account || account == g.OutputAccount
}

// shortNames gives dimensions and their values the short codes of SAF-T. A code is the name
// where it fits, else its beginning; a number tells equal beginnings apart. The order of the
// lines decides, so the same lines have the same codes.
type shortNames struct {
	kinds, values map[string]string // name → code
	taken         map[string]bool
	entries       []analysisEntry
}

// analysisEntry is a row of the analysis table.
type analysisEntry struct{ kind, dimension, value, name string }

func newShortNames() *shortNames {
	return &shortNames{kinds: map[string]string{}, values: map[string]string{}, taken: map[string]bool{}}
}

// short returns the codes of a dimension and one of its values.
func (s *shortNames) short(dimension, value string) (kind, code string) {
	kind, known := s.kinds[dimension]
	if !known {
		kind = s.shorten("", dimension, 9)
		s.kinds[dimension] = kind
	}
	key := dimension + "\x00" + value
	if code, known = s.values[key]; !known {
		code = s.shorten(dimension+"\x00", value, 35)
		s.values[key] = code
		s.entries = append(s.entries, analysisEntry{kind, dimension, code, value})
	}
	return kind, code
}

func (s *shortNames) shorten(space, name string, most int) string {
	runes := []rune(name)
	code := string(runes[:min(len(runes), most)])
	for n := 2; s.taken[space+code]; n++ {
		suffix := "~" + strconv.Itoa(n)
		code = string(runes[:min(len(runes), most-len(suffix))]) + suffix
	}
	s.taken[space+code] = true
	return code
}

// sorted returns the rows by dimension and value.
func (s *shortNames) sorted() []analysisEntry {
	return slices.SortedFunc(slices.Values(s.entries), func(a, b analysisEntry) int {
		return cmp.Or(strings.Compare(a.dimension, b.dimension), strings.Compare(a.name, b.name))
	})
}
