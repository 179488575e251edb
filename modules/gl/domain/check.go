package domain

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/text"
)

// Bounds for raw appends. In journals of intents the planner numbers the lines, and the
// chart bounds the accounts.
const (
	maxLineNumber = 1_000_000
	maxAccount    = 64 // bytes
)

// seriesNumber is the form of the numbers that the ledger gives out. A journal of a raw append that has
// the next number of a series would end the series: a refused journal takes no number, so each
// further one would be refused too.
var seriesNumber = regexp.MustCompile(`^(` + strings.Join(prefixes(), "|") + `)-.+-[0-9]{6,}$`)

func prefixes() (out []string) {
	for _, t := range JournalTypes() {
		out = append(out, t.Prefix())
	}
	return out
}

// CheckJournal is the check of gl.journal.posted. It runs before every append, raw ones
// included, so that every journal in the log balances: debit equals credit exactly in each
// currency and in functional currency. It also checks the number of lines and their
// numbering, the form and scale of amounts, and the totals. It refuses a journal that moves
// nothing, one without a description, and a number that the ledger gives out itself; in journals of
// intents the number is not drawn yet. Faults: gl.journal.number_reserved, gl.journal.line_count,
// gl.journal.zero, text.blank,
// gl.journal.line_number_invalid, gl.journal.unbalanced,
// gl.journal.unbalanced_functional, gl.journal.functional_currency_invalid,
// gl.journal.functional_amount_mismatch, gl.journal.total_mismatch, money.*.
func CheckJournal(data json.RawMessage, _ map[string]string) error {
	j, err := DecodeJournal(data)
	if err != nil {
		return decodeFault(err)
	}
	if seriesNumber.MatchString(j.JournalNumber) {
		return fault.New(fault.FailedPrecondition, "gl.journal.number_reserved",
			"numbers like GJ-2026-000001 are given out by the ledger; choose another form, such as the number of the earlier system after its name").
			WithField("/journal_number")
	}
	return j.Check()
}

// Check is CheckJournal for a journal that is already decoded.
func (j *JournalPosted) Check() error {
	if n := len(j.Lines); n < MinLines || n > MaxLines {
		return LineCountFault(n)
	}
	functional, err := money.LookupCurrency(j.FunctionalCurrency, time.Time{})
	if err != nil {
		return err
	}
	seen := make(map[int]bool, len(j.Lines))
	for i := range j.Lines {
		l := &j.Lines[i]
		if l.LineNumber < 1 || l.LineNumber > maxLineNumber || seen[l.LineNumber] {
			return fault.New(fault.Invalid, "gl.journal.line_number_invalid",
				"line numbers are 1 to %d and differ; number the lines from 1", maxLineNumber).
				WithField(fmt.Sprintf("/lines/%d/line_number", i))
		}
		seen[l.LineNumber] = true
		if err := l.check(i, functional); err != nil {
			return err
		}
	}
	if err := checkBalances(j.Lines, functional); err != nil {
		return err
	}
	if err := text.CheckNotBlank("/description", j.Description); err != nil {
		return err
	}
	if err := j.checkNotZero(); err != nil {
		return err
	}
	debit, credit := FunctionalTotals(j.Lines)
	if !j.TotalDebit.Equal(debit) || !j.TotalCredit.Equal(credit) {
		return fault.New(fault.Invalid, "gl.journal.total_mismatch",
			"total_debit and total_credit are the functional sums of the lines, %s; correct or leave them out", debit.Fixed(functional.MinorUnit)).
			With("currency", functional.Code).With("debit", debit.Fixed(functional.MinorUnit)).With("credit", credit.Fixed(functional.MinorUnit))
	}
	return nil
}

// checkNotZero refuses a journal that moves nothing. The reversal of one passes, so that it
// can be taken back where the log already has it.
func (j *JournalPosted) checkNotZero() error {
	if j.JournalType == Reversal || slices.ContainsFunc(j.Lines, func(l Line) bool { return !l.Amount.IsZero() || !l.FunctionalAmount.IsZero() }) {
		return nil
	}
	return ZeroJournalFault(len(j.Lines))
}

// ZeroJournalFault makes the fault for a journal that moves nothing.
func ZeroJournalFault(lines int) error {
	return fault.New(fault.FailedPrecondition, "gl.journal.zero",
		"all %d lines are 0 in their currency and in functional currency; a journal moves an amount, so correct the lines", lines).
		WithField("/lines").With("lines", lines)
}

func (l *Line) check(i int, functional money.Currency) error {
	at := func(err error, member string) error {
		if f, ok := fault.As(err); ok {
			return f.WithField(fmt.Sprintf("/lines/%d/%s", i, member))
		}
		return err
	}
	if l.Account == "" || len(l.Account) > maxAccount {
		return fault.New(fault.Invalid, "gl.journal.account_invalid", "an account has 1 to %d characters; send its code", maxAccount).
			WithField(fmt.Sprintf("/lines/%d/account", i))
	}
	if l.Side != Debit && l.Side != Credit {
		return fault.New(fault.Invalid, "gl.journal.side_invalid", "a line is debit or credit; send one of the two").
			WithField(fmt.Sprintf("/lines/%d/debit_credit", i))
	}
	currency, err := money.LookupCurrency(l.Currency, time.Time{})
	if err != nil {
		return at(err, "currency")
	}
	if err := CheckSideAmount(l.Amount, currency); err != nil {
		return at(err, "amount")
	}
	if err := CheckSideAmount(l.FunctionalAmount, functional); err != nil {
		return at(err, "amount_in_reporting_currency")
	}
	if !l.Rate.IsZero() {
		if err := money.CheckRate(l.Rate); err != nil {
			return at(err, "exchange_rate")
		}
	}
	if l.Currency == functional.Code && !l.Amount.Equal(l.FunctionalAmount) {
		return fault.New(fault.Invalid, "gl.journal.functional_amount_mismatch",
			"a line in %s has the same amount in functional currency; correct it or leave it out", l.Currency).
			WithField(fmt.Sprintf("/lines/%d/amount_in_reporting_currency", i)).
			WithNumbers(l.Amount.String(), l.FunctionalAmount.String()).With("currency", l.Currency)
	}
	return nil
}

// CheckSideAmount checks the amount of a line whose side gives the direction.
func CheckSideAmount(n money.Number, c money.Currency) error {
	if err := money.CheckNonNegative(n); err != nil {
		return err
	}
	return money.CheckAmount(n, c)
}

// CheckBalance checks that debit equals credit exactly in every currency.
func CheckBalance(lines []Line) error {
	sums := map[string][2]money.Number{}
	for i := range lines {
		s := sums[lines[i].Currency]
		if lines[i].Side == Debit {
			s[0] = s[0].Add(lines[i].Amount)
		} else {
			s[1] = s[1].Add(lines[i].Amount)
		}
		sums[lines[i].Currency] = s
	}
	codes := make([]string, 0, len(sums))
	for code := range sums {
		codes = append(codes, code)
	}
	sort.Strings(codes)
	for _, code := range codes {
		if s := sums[code]; !s[0].Equal(s[1]) {
			c, err := money.LookupCurrency(code, time.Time{})
			if err != nil {
				return err
			}
			debit, credit := s[0].Fixed(c.MinorUnit), s[1].Fixed(c.MinorUnit)
			return fault.New(fault.Invalid, "gl.journal.unbalanced",
				"debit %s and credit %s in %s differ; correct the lines so that both are equal", debit, credit, code).
				WithField("/lines").With("currency", code).With("debit", debit).With("credit", credit)
		}
	}
	return nil
}

func checkBalances(lines []Line, functional money.Currency) error {
	if err := CheckBalance(lines); err != nil {
		return err
	}
	if debit, credit := FunctionalTotals(lines); !debit.Equal(credit) {
		return UnbalancedFunctionalFault(functional, debit, credit)
	}
	return nil
}

// UnbalancedFunctionalFault makes the fault for a journal whose functional amounts do not
// balance.
func UnbalancedFunctionalFault(functional money.Currency, debit, credit money.Number) error {
	d, c := debit.Fixed(functional.MinorUnit), credit.Fixed(functional.MinorUnit)
	return fault.New(fault.Invalid, "gl.journal.unbalanced_functional",
		"debit %s and credit %s in functional currency %s differ by more than rounding; correct the functional amounts", d, c, functional.Code).
		WithField("/lines").With("currency", functional.Code).With("debit", d).With("credit", c)
}

// LineCountFault makes the fault for too few or too many lines.
func LineCountFault(n int) error {
	return fault.New(fault.FailedPrecondition, "gl.journal.line_count",
		"a journal has %d to %d lines, this one has %d; split or complete it", MinLines, MaxLines, n).
		WithField("/lines").With("minimum", MinLines).With("maximum", MaxLines).With("got", n)
}

func functionalCurrencyMissing() error {
	return fault.New(fault.Invalid, "gl.journal.functional_currency_invalid",
		"a journal in several currencies names its functional currency; add functional_currency").WithField("/functional_currency")
}

func functionalAmountMissing(i int, currency string) error {
	return fault.New(fault.Invalid, "gl.journal.functional_amount_mismatch",
		"a line in %s needs its functional amount; add amount_in_reporting_currency", currency).
		WithField(fmt.Sprintf("/lines/%d/amount_in_reporting_currency", i)).With("currency", currency)
}

// decodeFault returns a fault of package money unchanged. It replaces an error of the JSON
// decoder, whose text may quote values.
func decodeFault(err error) error {
	if f, ok := fault.As(err); ok {
		return f
	}
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) && typeErr.Field != "" {
		return fault.New(fault.Invalid, "gl.journal.data_invalid",
			"member %s has the wrong type; see the schema of gl.journal.posted", typeErr.Field).WithCause(err)
	}
	return fault.New(fault.Invalid, "gl.journal.data_invalid",
		"the data is not a journal; see the schema of gl.journal.posted").WithCause(err)
}
