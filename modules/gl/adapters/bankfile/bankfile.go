// Package bankfile reads bank statements from files: camt.053 of ISO 20022, in versions 02 to
// 08, and CSV with a mapping of its columns.
//
// Statements have no names and no account numbers of counterparties, and no remittance text
// unless the caller asks for it, since it may name persons.
package bankfile

import (
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// Codes of refused files. They are stable.
const (
	CodeDoctypeForbidden = "bank_file.doctype_forbidden" // the file declares a DOCTYPE
	CodeTooLarge         = "bank_file.too_large"         // over the limits of xmltree, or too many lines
	CodeMalformed        = "bank_file.malformed"         // not well-formed XML or CSV, or an unsupported encoding
	CodeTextTooLong      = "bank_file.text_too_long"     // a text is longer than xmltree.MaxText
	CodeKindUnsupported  = "bank_file.kind_unsupported"  // neither camt.053.001.02 to .08 nor CSV with a mapping
	CodeValueInvalid     = "bank_file.value_invalid"     // a value is not of its type
	CodeValueMissing     = "bank_file.value_missing"     // a balance, an amount or a date is missing
	CodeAccountsMixed    = "bank_file.accounts_mixed"    // statements of several bank accounts
	CodeCurrencyMismatch = "bank_file.currency_mismatch" // an amount is in another currency than the statement
	CodeMappingInvalid   = "bank_file.mapping_invalid"   // the mapping of a CSV file is wrong
)

var codes = xmltree.Codes{DoctypeForbidden: CodeDoctypeForbidden, TooLarge: CodeTooLarge, Malformed: CodeMalformed, TextTooLong: CodeTextTooLong}

// Options say how a file is read.
type Options struct {
	Account  string   // ledger account
	Texts    bool     // keep remittance texts
	Mapping  *Mapping // of a CSV file; nil: the file is camt.053
	Currency string   // of a CSV file
	ID       string   // of the statement of a CSV file; "" is made from the file's hash
	Opening  string   // balance of a CSV file before its lines
	Closing  string   // balance of a CSV file after its lines
}

// Bounds of the values of a line.
const (
	maxReference = 140 // characters
	maxEndToEnd  = 35
	maxText      = 500
)

// notProvided stands for a missing end-to-end id in payment messages.
const notProvided = "NOTPROVIDED"

// split cuts a statement into parts of at most domain.MaxStatementLines lines, with the balances
// before and after each.
func split(s domain.BankStatement) ([]domain.BankStatement, error) {
	if n := len(s.Lines); n > domain.MaxStatementLines*domain.MaxStatementParts {
		return nil, fault.New(fault.TooLarge, CodeTooLarge, "The statement has %d lines, and at most %d are read. Ask the bank for shorter statements.",
			n, domain.MaxStatementLines*domain.MaxStatementParts)
	}
	parts := max(1, (len(s.Lines)+domain.MaxStatementLines-1)/domain.MaxStatementLines)
	lines, opening := s.Lines, s.OpeningBalance
	var out []domain.BankStatement
	for part := 1; part <= parts; part++ {
		p := s
		p.Part, p.Parts, p.OpeningBalance = part, parts, opening
		p.Lines = append([]domain.BankLine{}, lines[:min(len(lines), domain.MaxStatementLines)]...)
		lines = lines[len(p.Lines):]
		if part < parts {
			p.ClosingBalance = opening
			for i := range p.Lines {
				p.ClosingBalance = p.ClosingBalance.Add(p.Lines[i].Signed())
			}
			opening = p.ClosingBalance
		}
		out = append(out, p)
	}
	return out, nil
}

// statementID makes an id that the ledger takes from the bank's. One that holds an account number
// or other characters is replaced by a part of the file's hash.
func statementID(given, digest string, n int) string {
	fits := given != "" && len(given) <= 70 && shredding.CheckNoAccountNumber("", given) == nil && isAlphanumeric(given[0])
	for _, c := range given {
		fits = fits && c < 0x80 && (isAlphanumeric(byte(c)) || strings.ContainsRune(" /?:().,+_-", c))
	}
	if fits {
		return given
	}
	return "FILE-" + digest[:16] + "-" + strconv.Itoa(n)
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// identifier drops a value that is too long, or holds an account or card number.
func identifier(s string, limit int) string {
	if len(s) > limit || strings.EqualFold(s, notProvided) || shredding.CheckNoAccountNumber("", s) != nil {
		return ""
	}
	return s
}

// remittance cuts a text. One with an account or card number is dropped.
func remittance(s string) string {
	if runes := []rune(s); len(runes) > maxText {
		s = string(runes[:maxText])
	}
	if shredding.CheckNoAccountNumber("", s) != nil {
		return ""
	}
	return s
}

// parseDecimal reads a decimal with a point, without an exponent.
func parseDecimal(s string) (money.Number, bool) {
	s = strings.TrimPrefix(s, "+")
	whole, fraction, hasFraction := strings.Cut(s, ".")
	negative := strings.HasPrefix(whole, "-")
	if whole = strings.TrimLeft(strings.TrimPrefix(whole, "-"), "0"); whole == "" {
		whole = "0"
	}
	if hasFraction {
		whole += "." + fraction
	}
	if negative && strings.Trim(whole, "0.") != "" {
		whole = "-" + whole
	}
	n, err := money.ParseNumber(strings.TrimSuffix(whole, "."))
	return n, err == nil
}

// toScale drops zeros after the decimals of a currency: banks write 10.50000.
func toScale(n money.Number, c money.Currency) money.Number {
	if exact, err := n.Rescale(c.MinorUnit); err == nil && n.Scale() > c.MinorUnit {
		return exact
	}
	return n
}

// sided makes the side and amount of a signed amount.
func sided(n money.Number) (domain.Side, money.Number) {
	if n.Sign() < 0 {
		return domain.Debit, n.Neg()
	}
	return domain.Credit, n
}

func lastDay(lines []domain.BankLine) event.Date {
	var last event.Date
	for i := range lines {
		last = max(last, lines[i].BookingDate)
	}
	return last
}
