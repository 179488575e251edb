package domain

import (
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// Side is debit or credit.
type Side string

// The sides.
const (
	Debit  Side = "debit"
	Credit Side = "credit"
)

// Opposite gives the other side.
func (s Side) Opposite() Side {
	if s == Debit {
		return Credit
	}
	return Debit
}

// JournalType is the reason why a journal was posted.
type JournalType string

// The journal types.
const (
	General      JournalType = "general"
	Allocation   JournalType = "allocation"
	Revaluation  JournalType = "revaluation"
	Closing      JournalType = "closing"
	Opening      JournalType = "opening"
	Reversal     JournalType = "reversal"
	Intercompany JournalType = "intercompany"
	Subledger    JournalType = "subledger"
)

// JournalTypes lists the types.
func JournalTypes() []JournalType {
	return []JournalType{General, Allocation, Revaluation, Closing, Opening, Reversal, Intercompany, Subledger}
}

// Prefix is the first part of the type's journal numbers.
func (t JournalType) Prefix() string {
	switch t {
	case Allocation:
		return "AL"
	case Revaluation:
		return "FX"
	case Closing:
		return "CL"
	case Opening:
		return "OB"
	case Reversal:
		return "RV"
	case Intercompany:
		return "IC"
	case Subledger:
		return "SL"
	default:
		return "GJ"
	}
}

// JournalSeries is the gap-free series of a type's numbers in a fiscal year:
// GJ-2026-000001 and up. The store replaces the token by the number when it appends the
// journal.
func JournalSeries(t JournalType, fiscalYear, token string) event.SeriesNumber {
	series := t.Prefix() + "-" + fiscalYear
	return event.SeriesNumber{Series: series, Prefix: series + "-", Width: 6, Token: token}
}

// Lines a journal may have.
const (
	MinLines = 2
	MaxLines = 2000
)

// Line is a line of a posted journal. Amounts are not negative: the side gives the
// direction. Each line has its own currency.
type Line struct {
	LineNumber       int               `json:"line_number"`
	Account          string            `json:"account"`
	AccountName      string            `json:"account_name,omitempty"`
	Side             Side              `json:"debit_credit"`
	Amount           money.Number      `json:"amount"` // in Currency; 0 on lines for an exchange or rounding difference
	Currency         string            `json:"currency"`
	FunctionalAmount money.Number      `json:"amount_in_reporting_currency"` // in the journal's functional currency
	Rate             money.Number      `json:"exchange_rate,omitzero"`       // functional units per 1 Currency; absent when the functional amount is given, not converted
	RateDate         *event.Date       `json:"rate_date,omitempty"`          // day of the rate that was used
	Description      string            `json:"description,omitempty"`
	TaxCode          string            `json:"tax_code,omitempty"`
	Dimensions       map[string]string `json:"dimensions,omitempty"`
}

// JournalPosted is the data of gl.journal.posted v1.
type JournalPosted struct {
	JournalNumber      string       `json:"journal_number"`
	JournalType        JournalType  `json:"journal_type,omitempty"`
	JournalID          string       `json:"journal_id,omitempty"`
	Description        string       `json:"description"`
	DocumentDate       DocumentDate `json:"document_date,omitzero"`
	ReversalDate       *event.Date  `json:"reversal_date,omitempty"`
	RecurringID        string       `json:"recurring_id,omitempty"`
	SourceModule       string       `json:"source_module,omitempty"`
	SourceEventID      string       `json:"source_event_id,omitempty"`
	FunctionalCurrency string       `json:"functional_currency,omitempty"`
	FiscalYear         string       `json:"fiscal_year,omitempty"`
	Period             string       `json:"period,omitempty"`
	ReversesJournalID  string       `json:"reverses_journal_id,omitempty"`
	Lines              []Line       `json:"lines"`
	TotalDebit         money.Number `json:"total_debit"`  // functional
	TotalCredit        money.Number `json:"total_credit"` // functional
}

// DocumentDate is the date of the paper that a journal books, zero for none. The schema of
// gl.journal.posted v1 is open and cannot declare the member for events that may hold anything
// under its name (ADR 64), so what is not a date is none.
type DocumentDate struct{ date *event.Date }

// DocumentDateOf makes a document date.
func DocumentDateOf(d event.Date) DocumentDate { return DocumentDate{&d} }

// String is the ISO date, or "" for none.
func (d DocumentDate) String() string {
	if d.date == nil {
		return ""
	}
	return d.date.String()
}

// MarshalJSON writes the date, or null.
func (d DocumentDate) MarshalJSON() ([]byte, error) { return json.Marshal(d.date) }

// UnmarshalJSON reads a date; any other value is none.
func (d *DocumentDate) UnmarshalJSON(text []byte) error {
	*d = DocumentDate{}
	var date event.Date
	if len(text) > 0 && text[0] == '"' && json.Unmarshal(text, &date) == nil {
		d.date = &date
	}
	return nil
}

// JournalReversed is the data of gl.journal.reversed, on the original's stream.
type JournalReversed struct {
	JournalID           string     `json:"journal_id"`
	ReversedByJournalID string     `json:"reversed_by_journal_id"`
	PostingDate         event.Date `json:"posting_date"`
	Reason              string     `json:"reason"`
}

// DecodeJournal reads the data of gl.journal.posted and fills in optional members: the type
// (general), the functional currency (that of the lines, if they have only one), the
// functional amounts of lines in functional currency, and the totals.
func DecodeJournal(data []byte) (JournalPosted, error) {
	// Optional amounts are read separately: a zero amount cannot be told from a missing one.
	var read struct {
		JournalPosted
		Lines []struct {
			Line
			FunctionalAmount givenNumber `json:"amount_in_reporting_currency"`
		} `json:"lines"`
		TotalDebit  givenNumber `json:"total_debit"`
		TotalCredit givenNumber `json:"total_credit"`
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return JournalPosted{}, err
	}
	j := read.JournalPosted
	j.TotalDebit, j.TotalCredit = read.TotalDebit.Number, read.TotalCredit.Number
	if read.Lines != nil {
		j.Lines = make([]Line, len(read.Lines))
	}
	for i := range read.Lines {
		j.Lines[i] = read.Lines[i].Line
		j.Lines[i].FunctionalAmount = read.Lines[i].FunctionalAmount.Number
	}
	if j.JournalType == "" {
		j.JournalType = General
	}
	if j.FunctionalCurrency == "" {
		currency, single := singleCurrency(j.Lines)
		if !single {
			return JournalPosted{}, functionalCurrencyMissing()
		}
		j.FunctionalCurrency = currency
	}
	for i := range j.Lines {
		if !read.Lines[i].FunctionalAmount.given {
			if j.Lines[i].Currency != j.FunctionalCurrency {
				return JournalPosted{}, functionalAmountMissing(i, j.Lines[i].Currency)
			}
			j.Lines[i].FunctionalAmount = j.Lines[i].Amount
		}
	}
	debit, credit := FunctionalTotals(j.Lines)
	if !read.TotalDebit.given {
		j.TotalDebit = debit
	}
	if !read.TotalCredit.given {
		j.TotalCredit = credit
	}
	return j, nil
}

// givenNumber is an optional number that records whether it was given.
type givenNumber struct {
	money.Number
	given bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *givenNumber) UnmarshalJSON(b []byte) error {
	n.given = true
	return n.Number.UnmarshalJSON(b)
}

func singleCurrency(lines []Line) (string, bool) {
	for _, l := range lines {
		if l.Currency != lines[0].Currency {
			return "", false
		}
	}
	if len(lines) == 0 {
		return "", true
	}
	return lines[0].Currency, true
}

// FunctionalTotals sums the functional amounts of both sides.
func FunctionalTotals(lines []Line) (debit, credit money.Number) {
	for i := range lines {
		if lines[i].Side == Debit {
			debit = debit.Add(lines[i].FunctionalAmount)
		} else {
			credit = credit.Add(lines[i].FunctionalAmount)
		}
	}
	return debit, credit
}

// JournalState is the state of a journal's stream.
type JournalState struct {
	Posted        bool
	EventID       event.ID
	EffectiveDate event.Date
	Dimensions    map[string]string // of the event as a whole
	Journal       JournalPosted
	ReversedBy    string // journal id; "" if it was not reversed
}

// Clone copies the state. The posted journal never changes, so clones share it.
func (s *JournalState) Clone() *JournalState { c := *s; return &c }

// Apply folds an event.
func (s *JournalState) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case EventJournalPosted:
		j, err := DecodeJournal(data)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		body, err := e.Body()
		if err != nil {
			return err
		}
		s.Posted, s.EventID, s.EffectiveDate, s.Journal, s.Dimensions = true, e.ID, e.EffectiveDate, j, body.Dimensions
	case EventJournalReversed:
		var r JournalReversed
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("journal reversal: %w", err)
		}
		s.ReversedBy = r.ReversedByJournalID
	}
	return nil
}
