package domain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Event types and stream types of bank statements.
const (
	EventBankStatementImported   = "gl.bank_statement.imported"
	EventBankStatementDiscarded  = "gl.bank_statement.discarded"
	EventBankStatementReimported = "gl.bank_statement.reimported" // after it was discarded
	EventBankLineMatched         = "gl.bank_line.matched"
	EventBankLineUnmatched       = "gl.bank_line.unmatched"

	StreamBankStatement = "gl.bank_statement" // id: account ":" part ":" statement id; its imports and discards
	StreamBankLine      = "gl.bank_line"      // id: account ":" part ":" line ":" statement id; what the line is matched with
)

// Bounds of bank statements and matches.
const (
	MaxStatementLines = 1000 // of one part
	MaxStatementParts = 1000
)

// EntityPayment is the type of a payment of any subledger. A journal that refers to one settles
// it, and the bank reports the payment's id as end-to-end id.
const EntityPayment = "payment"

// StatementRef names a bank statement, or a part of one. The bank gives the statement's id.
type StatementRef struct {
	Account     string `json:"account"`
	StatementID string `json:"statement_id"`
	Part        int    `json:"part"` // from 1
}

// Stream holds the statement.
func (r StatementRef) Stream() event.StreamID {
	return event.StreamID{Type: StreamBankStatement, ID: r.Account + ":" + strconv.Itoa(r.Part) + ":" + r.StatementID}
}

// BankLineRef names a line of a bank statement.
type BankLineRef struct {
	StatementRef
	LineNumber int `json:"line_number"`
}

// Stream holds the matches of the line.
func (r BankLineRef) Stream() event.StreamID {
	return event.StreamID{Type: StreamBankLine, ID: r.Account + ":" + strconv.Itoa(r.Part) + ":" + strconv.Itoa(r.LineNumber) + ":" + r.StatementID}
}

// BankStatement is the data of gl.bank_statement.imported and gl.bank_statement.reimported: a
// statement, or a part of one with the balances before and after it. Balances are positive where
// the bank owes the money.
type BankStatement struct {
	StatementRef
	Parts          int          `json:"parts"`
	Currency       string       `json:"currency"`
	StatementDate  event.Date   `json:"statement_date"` // of the closing balance
	OpeningBalance money.Number `json:"opening_balance"`
	ClosingBalance money.Number `json:"closing_balance"`
	Lines          []BankLine   `json:"lines"`
}

// BankLine is a line of a statement. The side is the bank's: credit is money that came in.
type BankLine struct {
	LineNumber  int          `json:"line_number,omitempty"` // of an imported line from 1
	Side        Side         `json:"debit_credit"`
	Amount      money.Number `json:"amount"`
	BookingDate event.Date   `json:"booking_date"`
	ValueDate   *event.Date  `json:"value_date,omitempty"`
	Reference   string       `json:"reference,omitempty"`     // the payer's, or else the bank's
	EndToEndID  string       `json:"end_to_end_id,omitempty"` // that the payer gave the payment
	Text        string       `json:"text,omitempty"`
}

// Signed is the amount, negative for money that went out.
func (l *BankLine) Signed() money.Number { return signedAmount(l.Amount, l.Side, Credit) }

// SignedBankAmount is the amount of a journal line on a bank account, negative for money that
// went out. The books debit what the bank credits.
func (l *Line) SignedBankAmount() money.Number { return signedAmount(l.Amount, l.Side, Debit) }

func signedAmount(n money.Number, side, positive Side) money.Number {
	if side == positive {
		return n
	}
	return n.Neg()
}

// Number fills in the number of the part and those of the lines.
func (s *BankStatement) Number() {
	s.Part, s.Parts = cmp.Or(s.Part, 1), cmp.Or(s.Parts, 1)
	for i := range s.Lines {
		s.Lines[i].LineNumber = i + 1
	}
}

// SameMovements reports whether two statements have the same balances, days and amounts.
func (s *BankStatement) SameMovements(o *BankStatement) bool {
	same := func(a, b BankLine) bool {
		return a.Side == b.Side && a.Amount.Equal(b.Amount) && a.BookingDate == b.BookingDate && a.EndToEndID == b.EndToEndID
	}
	return s.Currency == o.Currency && s.StatementDate == o.StatementDate && s.OpeningBalance.Equal(o.OpeningBalance) && s.ClosingBalance.Equal(o.ClosingBalance) &&
		slices.EqualFunc(s.Lines, o.Lines, same)
}

// FirstDate is the booking date of the first line, or else the statement's date.
func (s *BankStatement) FirstDate() event.Date {
	first := s.StatementDate
	for i := range s.Lines {
		first = min(first, s.Lines[i].BookingDate)
	}
	return first
}

// Check checks what holds for every statement, raw appends included. Faults:
// gl.bank_statement.unbalanced, gl.bank_statement.line_count, gl.bank_statement.part_invalid,
// gl.bank_statement.line_number_invalid, gl.bank_statement.date_invalid,
// gl.bank_statement.amount_invalid, pii.in_text, money.*.
func (s *BankStatement) Check() error {
	currency, err := money.LookupCurrency(s.Currency, time.Time{})
	if err != nil {
		return fault.WithField(err, "/currency")
	}
	if s.Parts < 1 || s.Parts > MaxStatementParts || s.Part < 1 || s.Part > s.Parts {
		return fault.New(fault.Invalid, "gl.bank_statement.part_invalid",
			"part %d of %d is no part; a statement has 1 to %d parts, which are numbered from 1", s.Part, s.Parts, MaxStatementParts).WithField("/part")
	}
	if n := len(s.Lines); n > MaxStatementLines {
		return StatementLineCountFault(n)
	}
	if err := money.CheckAmount(s.OpeningBalance, currency); err != nil {
		return fault.WithField(err, "/opening_balance")
	}
	if err := money.CheckAmount(s.ClosingBalance, currency); err != nil {
		return fault.WithField(err, "/closing_balance")
	}
	sum := s.OpeningBalance
	for i := range s.Lines {
		if err := s.checkLine(i, currency); err != nil {
			return err
		}
		sum = sum.Add(s.Lines[i].Signed())
	}
	if !sum.Equal(s.ClosingBalance) {
		expected, got := sum.Fixed(currency.MinorUnit), s.ClosingBalance.Fixed(currency.MinorUnit)
		return fault.New(fault.Invalid, "gl.bank_statement.unbalanced",
			"the opening balance and the lines make %s %s, and the closing balance is %s; send every line of the statement, or ask the bank for it again", expected, s.Currency, got).
			WithField("/closing_balance").WithNumbers(expected, got).With("currency", s.Currency)
	}
	return nil
}

// StatementLineCountFault makes the fault for a statement with too many lines.
func StatementLineCountFault(n int) error {
	return fault.New(fault.FailedPrecondition, "gl.bank_statement.line_count",
		"a part of a bank statement has at most %d lines, this one has %d; send the statement in parts, each with the balances before and after it", MaxStatementLines, n).
		WithField("/lines").WithNumbers(MaxStatementLines, n)
}

func (s *BankStatement) checkLine(i int, currency money.Currency) error {
	l := &s.Lines[i]
	at := func(member string) string { return fmt.Sprintf("/lines/%d/%s", i, member) }
	if l.LineNumber != i+1 {
		return fault.New(fault.Invalid, "gl.bank_statement.line_number_invalid",
			"line %d has the number %d; number the lines from 1 in their order", i+1, l.LineNumber).WithField(at("line_number"))
	}
	if err := CheckSideAmount(l.Amount, currency); err != nil {
		return fault.WithField(err, at("amount"))
	}
	if l.Amount.IsZero() {
		return fault.New(fault.Invalid, "gl.bank_statement.amount_invalid",
			"line %d moves nothing; leave lines of amount 0 out", i+1).WithField(at("amount"))
	}
	if l.BookingDate > s.StatementDate {
		return fault.New(fault.Invalid, "gl.bank_statement.date_invalid",
			"line %d was booked on %s, after the statement's date %s; correct the dates", i+1, l.BookingDate, s.StatementDate).WithField(at("booking_date"))
	}
	for _, t := range []struct{ member, text string }{{"reference", l.Reference}, {"end_to_end_id", l.EndToEndID}, {"text", l.Text}} {
		if err := shredding.CheckNoAccountNumber(at(t.member), t.text); err != nil {
			return err
		}
	}
	return nil
}

// CheckBankStatement is the check of gl.bank_statement.imported and gl.bank_statement.reimported.
func CheckBankStatement(data json.RawMessage, _ map[string]string) error {
	var s BankStatement
	if err := json.Unmarshal(data, &s); err != nil {
		if _, ok := fault.As(err); ok {
			return err
		}
		return fault.New(fault.Invalid, "gl.bank_statement.data_invalid", "the data is not a bank statement; see the type's schema").WithCause(err)
	}
	return s.Check()
}

// DiscardedStatement is the data of gl.bank_statement.discarded.
type DiscardedStatement struct {
	StatementRef
	Reason string `json:"reason"`
}

// BankStatementState is the state of a statement's stream.
type BankStatementState struct {
	Imported  bool     // and not discarded since
	Discarded bool     // the last import was
	EventID   event.ID // of the last import or discard
	Sequence  event.Sequence
	Statement BankStatement
}

// Clone copies the state. A statement never changes, so clones share it.
func (s *BankStatementState) Clone() *BankStatementState { c := *s; return &c }

// Apply folds an event.
func (s *BankStatementState) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case EventBankStatementImported, EventBankStatementReimported:
		var statement BankStatement
		if err := json.Unmarshal(data, &statement); err != nil {
			return fmt.Errorf("bank statement: %w", err)
		}
		*s = BankStatementState{Imported: true, EventID: e.ID, Sequence: e.Sequence, Statement: statement}
	case EventBankStatementDiscarded:
		*s = BankStatementState{Discarded: true, EventID: e.ID, Sequence: e.Sequence}
	}
	return nil
}

// JournalLineRef names a line of a journal.
type JournalLineRef struct {
	JournalID  string `json:"journal_id"`
	LineNumber int    `json:"line_number"`
}

// Tag is on every match of the journal line and on every end of one, so that one search decides
// whether it is matched.
func (r JournalLineRef) Tag() string { return "bank:" + r.JournalID + ":" + strconv.Itoa(r.LineNumber) }

// BankMatch is the data of gl.bank_line.matched and gl.bank_line.unmatched: a line of a
// statement and the journal lines that make up its amount. A match of several statement lines is
// an event for each of them, all with the same StatementLines and JournalLines.
type BankMatch struct {
	BankLineRef
	Currency       string           `json:"currency"`
	Amount         money.Number     `json:"amount"`                    // of the statement line, negative for money that went out
	MatchedAsOf    event.Date       `json:"matched_as_of"`             // the last booking or posting date of the lines
	JournalLines   []JournalLineRef `json:"journal_lines"`             // none if the statement lines cancel each other out
	StatementLines []MatchedLine    `json:"statement_lines,omitempty"` // all statement lines of the match, if there are several
	Reason         string           `json:"reason,omitempty"`          // why the match ended
}

// MatchedLine is one of several statement lines of a match, of the account of the match.
type MatchedLine struct {
	StatementID string       `json:"statement_id"`
	Part        int          `json:"part"`
	LineNumber  int          `json:"line_number"`
	Amount      money.Number `json:"amount"`
}

// Ref names the line.
func (l MatchedLine) Ref(account string) BankLineRef {
	return BankLineRef{StatementRef: StatementRef{Account: account, StatementID: l.StatementID, Part: l.Part}, LineNumber: l.LineNumber}
}

// PerLine is the match as the event of each statement line has it.
func (m *BankMatch) PerLine() []BankMatch {
	if len(m.StatementLines) == 0 {
		return []BankMatch{*m}
	}
	out := make([]BankMatch, len(m.StatementLines))
	for i, l := range m.StatementLines {
		out[i] = *m
		out[i].BankLineRef, out[i].Amount = l.Ref(m.Account), l.Amount
	}
	return out
}

// IsFirst reports whether the event is that of the match's first statement line. It alone has the
// tags of the journal lines, so that one event for each match is found by them.
func (m *BankMatch) IsFirst() bool { return m.PerLine()[0].BankLineRef == m.BankLineRef }

// MovedAmount is what the statement lines move in and out together.
func (m *BankMatch) MovedAmount() money.Number {
	var sum money.Number
	for _, l := range m.PerLine() {
		sum = sum.Add(l.Amount.Abs())
	}
	return sum
}

// BankLineState is the state of a statement line's stream.
type BankLineState struct {
	Match   *BankMatch // nil if the line is not matched
	EventID event.ID   // of the match
}

// Clone copies the state. A match never changes, so clones share it.
func (s *BankLineState) Clone() *BankLineState { c := *s; return &c }

// Apply folds an event.
func (s *BankLineState) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case EventBankLineMatched:
		var m BankMatch
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("bank match: %w", err)
		}
		s.Match, s.EventID = &m, e.ID
	case EventBankLineUnmatched:
		s.Match, s.EventID = nil, event.ID{}
	}
	return nil
}
