package bankfile

import (
	"cmp"
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

const camtNamespace = "urn:iso:std:iso:20022:tech:xsd:camt.053.001."

var camtVersions = []string{"02", "03", "04", "05", "06", "07", "08"}

// Read reads the statements of a file and cuts long ones into parts. It returns the SHA-256 of
// the file too, also of a file that it refuses. Refusals are faults with the codes of this
// package; an error of r is returned as it is.
func Read(r io.Reader, o Options) (statements []domain.BankStatement, digest string, err error) {
	if o.Mapping != nil {
		return readCSV(r, o)
	}
	root, digest, err := xmltree.ReadFile(r, codes, func(in io.Reader) (*xmltree.Element, error) { return xmltree.Parse(in, codes, camtDialect) })
	if err != nil {
		return nil, digest, err
	}
	statements, err = readCamt(root, digest, o)
	return statements, digest, err
}

// camtDialect accepts camt.053 in the known versions, under any prefix.
func camtDialect(root xml.Name, line int) (xmltree.Dialect, error) {
	version, found := strings.CutPrefix(root.Space, camtNamespace)
	if !found || !slices.Contains(camtVersions, version) || root.Local != "Document" {
		return xmltree.Dialect{}, fault.New(fault.Invalid, CodeKindUnsupported,
			"Line %d: this is no camt.053.001.02 to .08. Ask the bank for statements in that format, or read CSV with a mapping.", line).With("line", line)
	}
	return xmltree.Dialect{Prefixes: map[string]string{root.Space: ""}, Attributes: []string{"Ccy"}}, nil
}

func readCamt(root *xmltree.Element, digest string, o Options) ([]domain.BankStatement, error) {
	var out []domain.BankStatement
	account := ""
	for i, e := range root.All("BkToCstmrStmt", "Stmt") {
		id := cmp.Or(e.Value("Acct", "Id", "IBAN"), e.Value("Acct", "Id", "Othr", "Id"))
		if i > 0 && id != account {
			return nil, at(e, CodeAccountsMixed, "The file has statements of several bank accounts. Ask the bank for a file for each account.")
		}
		account = id
		s, err := readStatement(e, digest, i+1, o)
		if err != nil {
			return nil, err
		}
		parts, err := split(s)
		if err != nil {
			return nil, err
		}
		out = append(out, parts...)
	}
	if len(out) == 0 {
		return nil, at(root, CodeValueMissing, "The file has no statement. Ask the bank for another file.")
	}
	return out, nil
}

// at makes the fault of an element. Its text repeats no value of the file.
func at(e *xmltree.Element, code, what string) *fault.Error {
	return fault.New(fault.Invalid, code, "Line %d: %s", e.Line, what).With("element", e.Path()).With("line", e.Line)
}

func readStatement(e *xmltree.Element, digest string, n int, o Options) (domain.BankStatement, error) {
	s := domain.BankStatement{StatementRef: domain.StatementRef{Account: o.Account, StatementID: statementID(e.Value("Id"), digest, n)}}
	opening, closing := balance(e, "OPBD", "PRCD"), balance(e, "CLBD")
	if opening == nil || closing == nil {
		return s, at(e, CodeValueMissing, "The statement has no booked opening balance (OPBD or PRCD) or no booked closing balance (CLBD). Ask the bank for the whole statement in one message.")
	}
	s.Currency = closing.Find("Amt").Attribute("Ccy")
	currency, err := money.LookupCurrency(s.Currency, time.Time{})
	if err != nil {
		return s, at(closing, CodeValueInvalid, "The currency of the balance is not known. Ask the bank for a corrected file.")
	}
	if s.OpeningBalance, err = amountOf(opening, opening.Find("Amt"), currency); err != nil {
		return s, err
	}
	if s.ClosingBalance, err = amountOf(closing, closing.Find("Amt"), currency); err != nil {
		return s, err
	}
	if s.StatementDate, err = dateOf(closing, closing.Find("Dt")); err != nil {
		return s, err
	}
	for _, entry := range e.All("Ntry") {
		// Entries that are pending or for information are in no balance.
		if status := cmp.Or(entry.Value("Sts", "Cd"), entry.Value("Sts"), "BOOK"); status != "BOOK" {
			continue
		}
		lines, err := readEntry(entry, s.StatementDate, currency, o)
		if err != nil {
			return s, err
		}
		s.Lines = append(s.Lines, lines...)
	}
	return s, nil
}

// balance finds the first balance with one of the codes, in the order of the codes.
func balance(e *xmltree.Element, kinds ...string) *xmltree.Element {
	for _, kind := range kinds {
		for _, b := range e.All("Bal") {
			if b.Value("Tp", "CdOrPrtry", "Cd") == kind {
				return b
			}
		}
	}
	return nil
}

// amountOf reads the amount of a balance, entry or transaction with the sign of its indicator.
func amountOf(e, amount *xmltree.Element, currency money.Currency) (money.Number, error) {
	n, ok := parseDecimal(amount.Value())
	switch {
	case amount == nil:
		return n, at(e, CodeValueMissing, "The amount is missing. Ask the bank for a corrected file.")
	case !ok || n.Sign() < 0:
		return n, at(amount, CodeValueInvalid, "This is no amount. Ask the bank for a corrected file.")
	case amount.Attribute("Ccy") != currency.Code:
		return n, at(amount, CodeCurrencyMismatch, "The amount is in another currency than the closing balance. Ask the bank for a statement in one currency.")
	}
	n = toScale(n, currency)
	switch e.Value("CdtDbtInd") {
	case "CRDT":
		return n, nil
	case "DBIT":
		return n.Neg(), nil
	}
	return n, at(e, CodeValueInvalid, "The indicator of credit or debit is missing or neither. Ask the bank for a corrected file.")
}

// dateOf reads a date, or the day of a date with time as the bank wrote it.
func dateOf(e, day *xmltree.Element) (event.Date, error) {
	text := cmp.Or(day.Value("Dt"), day.Value("DtTm"))
	if text == "" {
		return 0, at(e, CodeValueMissing, "The date is missing. Ask the bank for a corrected file.")
	}
	d, err := event.ParseDate(text[:min(len(text), len(time.DateOnly))])
	if err != nil {
		return 0, at(day, CodeValueInvalid, "This is no date. Ask the bank for a corrected file.")
	}
	return d, nil
}

// readEntry reads an entry. One whose transactions have amounts that make up its own becomes a
// line for each of them, so that each can be matched.
func readEntry(e *xmltree.Element, statementDate event.Date, currency money.Currency, o Options) ([]domain.BankLine, error) {
	signed, err := amountOf(e, e.Find("Amt"), currency)
	if err != nil || signed.IsZero() {
		return nil, err
	}
	line := domain.BankLine{BookingDate: statementDate}
	if e.Find("BookgDt") != nil {
		if line.BookingDate, err = dateOf(e, e.Find("BookgDt")); err != nil {
			return nil, err
		}
	}
	if e.Find("ValDt") != nil {
		value, err := dateOf(e, e.Find("ValDt"))
		if err != nil {
			return nil, err
		}
		line.ValueDate = &value
	}
	transactions := e.All("NtryDtls", "TxDtls")
	amounts, complete := transactionAmounts(transactions, signed, currency)
	if complete && len(transactions) > 1 {
		out := make([]domain.BankLine, len(transactions))
		for i, t := range transactions {
			out[i] = line
			out[i].Side, out[i].Amount = sided(amounts[i])
			describe(&out[i], e, t, o)
		}
		return out, nil
	}
	line.Side, line.Amount = sided(signed)
	var only *xmltree.Element
	if len(transactions) == 1 {
		only = transactions[0]
	}
	describe(&line, e, only, o)
	return []domain.BankLine{line}, nil
}

// transactionAmounts reads the amounts of an entry's transactions, signed, if all have one in the
// currency of the account and they make up the entry's.
func transactionAmounts(transactions []*xmltree.Element, entry money.Number, currency money.Currency) (amounts []money.Number, complete bool) {
	var sum money.Number
	for _, t := range transactions {
		amount := t.Find("Amt")
		if amount == nil {
			amount = t.Find("AmtDtls", "TxAmt", "Amt")
		}
		n, ok := parseDecimal(amount.Value())
		if !ok || n.Sign() <= 0 || amount.Attribute("Ccy") != currency.Code {
			return nil, false
		}
		n = toScale(n, currency)
		if indicator := t.Value("CdtDbtInd"); indicator == "DBIT" || indicator == "" && entry.Sign() < 0 {
			n = n.Neg()
		}
		amounts, sum = append(amounts, n), sum.Add(n)
	}
	return amounts, sum.Equal(entry)
}

// describe adds the references of a line: those of the transaction, else those of the entry.
func describe(l *domain.BankLine, entry, transaction *xmltree.Element, o Options) {
	l.EndToEndID = identifier(transaction.Value("Refs", "EndToEndId"), maxEndToEnd)
	l.Reference = cmp.Or(
		identifier(transaction.Value("RmtInf", "Strd", "CdtrRefInf", "Ref"), maxReference),
		identifier(transaction.Value("Refs", "AcctSvcrRef"), maxReference),
		identifier(entry.Value("AcctSvcrRef"), maxReference),
		identifier(entry.Value("NtryRef"), maxReference),
	)
	if !o.Texts {
		return
	}
	var texts []string
	for _, t := range transaction.All("RmtInf", "Ustrd") {
		texts = append(texts, t.Value())
	}
	l.Text = remittance(cmp.Or(strings.TrimSpace(strings.Join(texts, " ")), entry.Value("AddtlNtryInf")))
}
