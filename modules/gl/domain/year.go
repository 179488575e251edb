package domain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// Event types of the end of a fiscal year, on the stream gl.fiscal_year/<label>.
const (
	EventYearClosed   = "gl.year.closed"
	EventYearReopened = "gl.year.reopened"
)

// YearClosed is the data of gl.year.closed. Closing a year again after late postings makes a
// further event with the difference.
type YearClosed struct {
	FiscalYear         string       `json:"fiscal_year"`
	FunctionalCurrency string       `json:"functional_currency"`
	JournalIDs         []string     `json:"journal_ids"` // of the closing journals, none if no balance was left
	Income             money.Number `json:"income"`      // that was closed, functional; positive is a credit balance
	Expense            money.Number `json:"expense"`     // that was closed, functional; positive is a debit balance
	Result             money.Number `json:"result"`      // income less expense, taken to retained earnings
	Reason             string       `json:"reason,omitempty"`
}

// YearReopened is the data of gl.year.reopened.
type YearReopened struct {
	FiscalYear         string       `json:"fiscal_year"`
	FunctionalCurrency string       `json:"functional_currency"`
	JournalIDs         []string     `json:"journal_ids"`          // of the closing journals
	ReversalIDs        []string     `json:"reversal_journal_ids"` // of the journals that reverse them, in the same order
	Result             money.Number `json:"result"`               // given back from retained earnings
	Reason             string       `json:"reason,omitempty"`
}

// YearState is the state of the stream gl.fiscal_year/<label>.
type YearState struct {
	Closed   bool
	Reopened bool         // after it was closed, and not closed again since
	Journals []string     // ids of the closing journals that are not reversed
	Result   money.Number // that they took to retained earnings
}

// Clone copies the state.
func (s *YearState) Clone() *YearState {
	c := *s
	c.Journals = slices.Clone(s.Journals)
	return &c
}

// Apply folds an event.
func (s *YearState) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case EventYearClosed:
		var closed YearClosed
		if err := json.Unmarshal(data, &closed); err != nil {
			return fmt.Errorf("fiscal year: %w", err)
		}
		s.Closed, s.Reopened, s.Journals, s.Result = true, false, append(s.Journals, closed.JournalIDs...), s.Result.Add(closed.Result)
	case EventYearReopened:
		*s = YearState{Reopened: true}
	}
	return nil
}

// Balance is the balance of an account in one currency and one combination of dimensions.
// Positive is a debit balance.
type Balance struct {
	Account     string
	AccountName string
	AccountType string
	Currency    string
	Dimensions  map[string]string
	Amount      money.Number // in Currency
	Functional  money.Number
}

// Offset returns the lines that bring the balance to 0 in both currencies. They are two if
// the amounts have different signs, as exchange differences can leave them.
func (b Balance) Offset() []Line {
	line := func(amount, functional money.Number) Line {
		side := Credit
		if amount.Sign() < 0 || functional.Sign() < 0 {
			side = Debit
		}
		return Line{
			Account: b.Account, AccountName: b.AccountName, Side: side, Amount: amount.Abs(), Currency: b.Currency,
			FunctionalAmount: functional.Abs(), Dimensions: b.Dimensions,
		}
	}
	switch {
	case b.Amount.IsZero() && b.Functional.IsZero():
		return nil
	case b.Amount.Sign()*b.Functional.Sign() < 0:
		return []Line{line(b.Amount, money.Number{}), line(money.Number{}, b.Functional)}
	default:
		return []Line{line(b.Amount, b.Functional)}
	}
}

// groupKey identifies the currency and the combination of dimensions of a balance.
func (b Balance) groupKey() string {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(b.Dimensions)) {
		fmt.Fprintf(&key, "%q=%q,", name, b.Dimensions[name])
	}
	return key.String() + b.Currency
}

// OffsetBalances makes the lines of journals that bring each balance to 0 and take it to the
// contra account, per currency and combination of dimensions, so that the journals balance
// for each combination. A journal has at most maxLines lines.
func OffsetBalances(balances []Balance, contra Account, maxLines int) (journals [][]Line) {
	type keyed struct {
		key string
		Balance
	}
	sorted := make([]keyed, len(balances))
	for i, b := range balances {
		sorted[i] = keyed{b.groupKey(), b}
	}
	slices.SortStableFunc(sorted, func(a, b keyed) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return strings.Compare(a.Account, b.Account)
	})
	var lines, contraLines []Line
	flush := func() {
		if lines = append(lines, contraLines...); len(lines) == 0 {
			return
		}
		for i := range lines {
			lines[i].LineNumber = i + 1
		}
		journals, lines, contraLines = append(journals, lines), nil, nil
	}
	var sum Balance // taken to the contra account, of the group
	endGroup := func() {
		sum.Amount, sum.Functional = sum.Amount.Neg(), sum.Functional.Neg()
		contraLines, sum = append(contraLines, sum.Offset()...), Balance{}
	}
	for i, b := range sorted {
		if len(lines)+len(contraLines)+4 > maxLines { // two lines of this balance, two of its group
			endGroup()
			flush()
		}
		lines = append(lines, b.Offset()...)
		sum = Balance{
			Account: contra.Code, AccountName: contra.Name, Currency: b.Currency, Dimensions: b.Dimensions,
			Amount: sum.Amount.Add(b.Amount), Functional: sum.Functional.Add(b.Functional),
		}
		if i+1 == len(sorted) || sorted[i+1].key != b.key {
			endGroup()
		}
	}
	flush()
	return journals
}
