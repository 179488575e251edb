package bankfile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// Mapping says which columns of a CSV file make up a line of a statement. Columns are named by
// the header of the file.
type Mapping struct {
	Delimiter string  `json:"delimiter"` // "" is a comma
	Decimal   string  `json:"decimal"`   // mark of decimals, "." or ","; "" is a point
	Date      string  `json:"date"`      // as YYYY-MM-DD, DD.MM.YYYY, MM/DD/YYYY; "" is YYYY-MM-DD
	Columns   Columns `json:"columns"`
}

// Columns are the columns of a line. Either amount is given, negative for money that went out, or
// credit and debit, of which a line has one.
type Columns struct {
	BookingDate string `json:"booking_date"`
	ValueDate   string `json:"value_date"`
	Amount      string `json:"amount"`
	Credit      string `json:"credit"` // money that came in
	Debit       string `json:"debit"`
	Currency    string `json:"currency"`
	Reference   string `json:"reference"`
	EndToEndID  string `json:"end_to_end_id"`
	Text        string `json:"text"`
}

// ReadMapping reads a mapping. Unknown members are refused, as they are likely typing errors.
func ReadMapping(r io.Reader) (*Mapping, error) {
	var m Mapping
	decoder := json.NewDecoder(io.LimitReader(r, 1<<16))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return nil, fault.New(fault.Invalid, CodeMappingInvalid, "The mapping is no JSON object with delimiter, decimal, date and columns. Correct it.").WithCause(err)
	}
	refuse := func(detail string) (*Mapping, error) {
		return nil, fault.New(fault.Invalid, CodeMappingInvalid, "%s", detail)
	}
	m.Delimiter, m.Decimal = cmp.Or(m.Delimiter, ","), cmp.Or(m.Decimal, ".")
	switch {
	case utf8.RuneCountInString(m.Delimiter) != 1 || strings.ContainsAny(m.Delimiter, "\r\n\""):
		return refuse("The delimiter is one character, such as , or ; or a tab. Correct the mapping.")
	case m.Decimal != "." && m.Decimal != ",":
		return refuse("The mark of decimals is . or ,. Correct the mapping.")
	case !strings.Contains(m.layout(), "2006") || !strings.Contains(m.layout(), "01") || !strings.Contains(m.layout(), "02"):
		return refuse("The form of dates has YYYY, MM and DD, as DD.MM.YYYY. Correct the mapping.")
	case m.Columns.BookingDate == "":
		return refuse("The mapping names no column for booking_date. Add it.")
	case (m.Columns.Amount == "") == (m.Columns.Credit == "" && m.Columns.Debit == ""):
		return refuse("The mapping names either a column for amount, or columns for credit and debit. Correct it.")
	}
	return &m, nil
}

func (m *Mapping) layout() string {
	return strings.NewReplacer("YYYY", "2006", "MM", "01", "DD", "02").Replace(cmp.Or(m.Date, "YYYY-MM-DD"))
}

// number reads an amount with marks of thousands.
func (m *Mapping) number(s string) (money.Number, bool) {
	thousands := map[string]string{".": ",", ",": "."}[m.Decimal]
	s = strings.NewReplacer(thousands, "", " ", "", "\u00a0", "", "'", "").Replace(s)
	s = strings.Replace(s, m.Decimal, ".", 1)
	if trailing, found := strings.CutSuffix(s, "-"); found { // 12.50-
		s = "-" + trailing
	}
	return parseDecimal(s)
}

func readCSV(r io.Reader, o Options) ([]domain.BankStatement, string, error) {
	text, err := io.ReadAll(io.LimitReader(r, xmltree.MaxBytes+1))
	if err != nil {
		return nil, "", fmt.Errorf("reading the file: %w", err)
	}
	if len(text) > xmltree.MaxBytes {
		return nil, "", fault.New(fault.TooLarge, CodeTooLarge, "The file is larger than %d bytes. Ask the bank for shorter statements.", xmltree.MaxBytes)
	}
	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:])
	s, err := statementOfCSV(text, digest, o)
	if err != nil {
		return nil, digest, err
	}
	parts, err := split(s)
	return parts, digest, err
}

func statementOfCSV(text []byte, digest string, o Options) (domain.BankStatement, error) {
	s := domain.BankStatement{StatementRef: domain.StatementRef{Account: o.Account, StatementID: statementID(o.ID, digest, 1)}, Currency: o.Currency}
	currency, err := money.LookupCurrency(o.Currency, time.Time{})
	if err != nil {
		return s, err
	}
	var opens, closes bool
	s.OpeningBalance, opens = parseDecimal(o.Opening)
	s.ClosingBalance, closes = parseDecimal(o.Closing)
	if !opens || !closes {
		return s, fault.New(fault.Invalid, CodeValueInvalid, "The opening or closing balance is no decimal such as 1200.50. Correct it.")
	}
	if !utf8.Valid(text) {
		return s, fault.New(fault.Invalid, CodeMalformed, "The file is not in UTF-8. Convert it.")
	}
	reader := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	reader.Comma, _ = utf8.DecodeRuneInString(o.Mapping.Delimiter)
	header, err := reader.Read()
	if err != nil {
		return s, malformedCSV(err)
	}
	row := csvRow{mapping: o.Mapping, index: map[string]int{}, currency: currency}
	for i, name := range header {
		row.index[strings.TrimSpace(name)] = i
	}
	if err := row.requireColumns(); err != nil {
		return s, err
	}
	for {
		if row.values, err = reader.Read(); errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s, malformedCSV(err)
		}
		row.line, _ = reader.FieldPos(0)
		line, moves, err := row.read(o)
		if err != nil {
			return s, err
		}
		if moves {
			s.Lines = append(s.Lines, line)
		}
	}
	if len(s.Lines) == 0 {
		return s, fault.New(fault.Invalid, CodeValueMissing, "The file has no line with an amount. Read another file.")
	}
	s.StatementDate = lastDay(s.Lines)
	return s, nil
}

// malformedCSV translates an error of the reader. Its text does not quote the file.
func malformedCSV(err error) error {
	line := 1
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		line = parse.Line
	}
	return fault.New(fault.Invalid, CodeMalformed, "Line %d: the CSV cannot be read. Check the delimiter of the mapping, and quotation marks.", line).WithCause(err).With("line", line)
}

// csvRow reads lines by their mapping.
type csvRow struct {
	mapping  *Mapping
	index    map[string]int
	currency money.Currency
	values   []string
	line     int
}

func (r *csvRow) requireColumns() error {
	c := r.mapping.Columns
	for _, name := range []string{c.BookingDate, c.ValueDate, c.Amount, c.Credit, c.Debit, c.Currency, c.Reference, c.EndToEndID, c.Text} {
		if _, found := r.index[name]; name != "" && !found {
			return fault.New(fault.Invalid, CodeMappingInvalid, "The file has no column %q. Correct the mapping, or its delimiter.", name).With("column", name)
		}
	}
	return nil
}

func (r *csvRow) value(column string) string {
	if column == "" {
		return ""
	}
	return strings.TrimSpace(r.values[r.index[column]])
}

func (r *csvRow) refuse(code, column, what string) error {
	return fault.New(fault.Invalid, code, "Line %d: %s", r.line, what).With("line", r.line).With("column", column)
}

func (r *csvRow) read(o Options) (line domain.BankLine, moves bool, err error) {
	c := r.mapping.Columns
	if text := r.value(c.Currency); text != "" && text != r.currency.Code {
		return line, false, r.refuse(CodeCurrencyMismatch, c.Currency, "The line is in another currency. Read a file in one currency.")
	}
	if line.BookingDate, err = r.date(c.BookingDate); err != nil {
		return line, false, err
	}
	if r.value(c.ValueDate) != "" {
		value, err := r.date(c.ValueDate)
		if err != nil {
			return line, false, err
		}
		line.ValueDate = &value
	}
	signed, err := r.amount(c.Amount, c.Credit)
	if err != nil {
		return line, false, err
	}
	debit, err := r.amount(c.Debit)
	if err != nil {
		return line, false, err
	}
	signed = signed.Sub(debit.Abs()) // banks write debits with or without a sign
	line.Side, line.Amount = sided(signed)
	line.Reference, line.EndToEndID = identifier(r.value(c.Reference), maxReference), identifier(r.value(c.EndToEndID), maxEndToEnd)
	if o.Texts {
		line.Text = remittance(r.value(c.Text))
	}
	return line, !signed.IsZero(), nil
}

// amount reads the first of the columns that has a value.
func (r *csvRow) amount(columns ...string) (money.Number, error) {
	for _, column := range columns {
		if text := r.value(column); text != "" {
			n, ok := r.mapping.number(text)
			if !ok {
				return n, r.refuse(CodeValueInvalid, column, "This is no amount. Correct the mapping's mark of decimals, or the file.")
			}
			return toScale(n, r.currency), nil
		}
	}
	return money.Number{}, nil
}

func (r *csvRow) date(column string) (event.Date, error) {
	day, err := time.Parse(r.mapping.layout(), r.value(column))
	if err != nil {
		return 0, r.refuse(CodeValueInvalid, column, "This is no date in the form of the mapping. Correct the mapping, or the file.")
	}
	return event.DateOf(day), nil
}
