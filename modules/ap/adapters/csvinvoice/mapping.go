package csvinvoice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/ianaindex"

	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// mappingFile is the form of a mapping. Other keys are refused.
type mappingFile struct {
	Encoding           string            `yaml:"encoding"` // IANA name; default: UTF-8
	Separator          string            `yaml:"separator"`
	Dates              string            `yaml:"dates"` // as DD.MM.YYYY
	DecimalSeparator   string            `yaml:"decimal_separator"`
	ThousandsSeparator string            `yaml:"thousands_separator"` // default: none
	Columns            map[string]string `yaml:"columns"`             // member → name of the column
	Constants          map[string]string `yaml:"constants"`           // member → value in all rows
	Kinds              map[string]string `yaml:"kinds"`               // value of the member kind → invoice or credit_memo
}

// Mapping says what the columns of a file mean.
type Mapping struct {
	separator          rune
	encoding           encoding.Encoding // nil: UTF-8
	dates              string            // layout of package time
	datesAsDeclared    string
	decimal, thousands string
	columns            map[string]string
	constants          map[string]string
	kinds              map[string]contract.Kind
}

// form is what a member takes.
type form int

const (
	formText form = iota
	formIdentifier
	formCode
	formDate
	formAmount
	formDecimal
	formKind
	formAccount
	formName // of a party, which may be a person: never in a finding
)

// member is a value of a document or of a line.
type member struct {
	form     form
	line     bool // of a line, else of the document
	required bool // in the mapping and in every row
	longest  int  // characters
}

// members are all members of a mapping.
var members = map[string]member{
	"kind":                   {form: formKind, longest: 50},
	"invoice_number":         {form: formIdentifier, required: true, longest: 50},
	"invoice_date":           {form: formDate, required: true},
	"due_date":               {form: formDate},
	"currency":               {form: formCode, required: true, longest: 3},
	"total_amount":           {form: formAmount, required: true},
	"tax_amount":             {form: formAmount},
	"po_reference":           {form: formIdentifier, longest: 100},
	"external_reference":     {form: formIdentifier, longest: 100},
	"payment_reference":      {form: formIdentifier, longest: 140},
	"preceding_invoice":      {form: formIdentifier, longest: 50},
	"payee_account":          {form: formAccount, longest: 100},
	"seller_vat_id":          {form: formIdentifier, longest: 50},
	"seller_registration_id": {form: formIdentifier, longest: 100},
	"seller_party_id":        {form: formIdentifier, longest: 100},
	"seller_name":            {form: formName, longest: 200},
	"seller_address":         {form: formName, longest: 500},
	"seller_country":         {form: formCode, longest: 2},
	"buyer_vat_id":           {form: formIdentifier, longest: 100},
	"buyer_registration_id":  {form: formIdentifier, longest: 100},
	"buyer_endpoint_id":      {form: formName, longest: 200},
	"buyer_name":             {form: formName, longest: 200},
	"line_amount":            {form: formAmount, line: true, required: true},
	"line_tax_amount":        {form: formAmount, line: true},
	"line_description":       {form: formText, line: true, longest: 1000},
	"quantity":               {form: formDecimal, line: true},
	"unit":                   {form: formCode, line: true, longest: 3},
	"unit_price":             {form: formDecimal, line: true},
	"tax_category":           {form: formCode, line: true, longest: 10},
	"tax_rate":               {form: formDecimal, line: true},
	"accounting_cost":        {form: formIdentifier, line: true, longest: 100},
	"item_id":                {form: formIdentifier, line: true, longest: 100},
	"order_line":             {form: formIdentifier, line: true, longest: 100},
}

// memberNames are the names of all members, sorted.
var memberNames = slices.Sorted(maps.Keys(members))

// keyMembers are the members whose values tell documents apart.
var keyMembers = []string{"kind", "seller_vat_id", "seller_registration_id", "seller_party_id", "invoice_number"}

// ParseMapping reads a mapping. The fault CodeMappingInvalid says what is wrong with it.
func ParseMapping(r io.Reader) (*Mapping, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxMappingBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxMappingBytes {
		return nil, refuse(CodeMappingInvalid, "the mapping is over %d bytes; keep what the columns mean, and nothing else", MaxMappingBytes)
	}
	var f mappingFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, refuse(CodeMappingInvalid, "the mapping cannot be read: %s; docs/en16931.md has an example", oneLine(err))
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, refuse(CodeMappingInvalid, "the mapping has a second YAML document; keep one")
	}
	m := &Mapping{decimal: f.DecimalSeparator, thousands: f.ThousandsSeparator, columns: f.Columns, constants: f.Constants, datesAsDeclared: f.Dates}
	for _, check := range []func(*mappingFile) error{m.readForm, m.readMembers, m.readKinds} {
		if err := check(&f); err != nil {
			return nil, err
		}
	}
	return m, m.checkConstants()
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
}

// readForm reads how texts, dates and numbers are written.
func (m *Mapping) readForm(f *mappingFile) error {
	separator, size := utf8.DecodeRuneInString(f.Separator)
	if size == 0 || size != len(f.Separator) || !strings.ContainsRune(",;|\t", separator) {
		return refuse(CodeMappingInvalid, `separator is one of "," ";" "|" and "\t"`).WithField("/separator")
	}
	m.separator = separator
	if f.Encoding != "" && !strings.EqualFold(f.Encoding, "utf-8") {
		e, err := ianaindex.IANA.Encoding(f.Encoding)
		if err != nil || e == nil {
			return refuse(CodeMappingInvalid, "encoding is no supported name of the IANA registry, such as utf-8, windows-1252 or iso-8859-15").WithField("/encoding")
		}
		m.encoding = e
	}
	layout, ok := dateLayout(f.Dates)
	if !ok {
		return refuse(CodeMappingInvalid, "dates is a form with YYYY, MM and DD once each, such as YYYY-MM-DD or DD.MM.YYYY").WithField("/dates")
	}
	m.dates = layout
	switch {
	case m.decimal != "." && m.decimal != ",":
		return refuse(CodeMappingInvalid, `decimal_separator is "." or ","`).WithField("/decimal_separator")
	case m.thousands == m.decimal || m.thousands != "" && !slices.Contains([]string{".", ",", " ", "'", "\u00a0", "\u202f"}, m.thousands):
		return refuse(CodeMappingInvalid, "thousands_separator is another character than decimal_separator: a point, a comma, a blank or an apostrophe; leave it out if there is none").WithField("/thousands_separator")
	}
	return nil
}

// dateLayout makes a layout of package time from a form as DD.MM.YYYY. The parts stand apart, or
// all together in the order year, month, day.
func dateLayout(declared string) (string, bool) {
	layout := declared
	for _, part := range []struct{ declared, layout string }{{"YYYY", "2006"}, {"MM", "01"}, {"DD", "02"}} {
		if strings.Count(layout, part.declared) != 1 {
			return "", false
		}
		layout = strings.Replace(layout, part.declared, part.layout, 1)
	}
	rest := strings.NewReplacer("YYYY", "", "MM", "", "DD", "").Replace(declared)
	if strings.Trim(rest, "./- ") != "" || rest == "" && declared != "YYYYMMDD" || len(rest) > 2 {
		return "", false
	}
	return layout, true
}

// readMembers checks that each member of the mapping is known and has one source.
func (m *Mapping) readMembers(f *mappingFile) error {
	for _, source := range []struct {
		name   string
		values map[string]string
	}{{"columns", f.Columns}, {"constants", f.Constants}} {
		for _, name := range slices.Sorted(maps.Keys(source.values)) {
			field := "/" + source.name + "/" + name
			switch _, known := members[name]; {
			case !known:
				return refuse(CodeMappingInvalid, "there is no member %q; the members are %s", name, strings.Join(memberNames, ", ")).WithField(field)
			case strings.TrimSpace(source.values[name]) == "":
				return refuse(CodeMappingInvalid, "the member has neither a column nor a value; name one or leave the member out").WithField(field)
			case f.Columns[name] != "" && f.Constants[name] != "":
				return refuse(CodeMappingInvalid, "the member has a column and a constant; keep one").WithField(field)
			}
		}
	}
	for _, name := range memberNames {
		if members[name].required && !m.has(name) {
			return refuse(CodeMappingInvalid, "the member %s is needed; name its column under columns, or its value under constants", name).WithField("/columns/" + name)
		}
	}
	if !slices.ContainsFunc([]string{"seller_vat_id", "seller_registration_id", "seller_party_id"}, m.has) {
		return refuse(CodeMappingInvalid, "nothing identifies the seller; map seller_vat_id, seller_registration_id or seller_party_id").WithField("/columns")
	}
	if m.has("tax_category") != m.has("tax_rate") {
		return refuse(CodeMappingInvalid, "tax_category and tax_rate belong together; map both or neither").WithField("/columns")
	}
	return nil
}

func (m *Mapping) readKinds(f *mappingFile) error {
	m.kinds = map[string]contract.Kind{}
	for value, kind := range f.Kinds {
		if !slices.Contains(contract.Kinds(), contract.Kind(kind)) {
			return refuse(CodeMappingInvalid, "a kind is invoice or credit_memo").WithField("/kinds/" + value)
		}
		m.kinds[value] = contract.Kind(kind)
	}
	if len(f.Kinds) > 0 && !m.has("kind") {
		return refuse(CodeMappingInvalid, "kinds says what the values of the member kind mean, and there is no such member; map kind or leave kinds out").WithField("/kinds")
	}
	if len(f.Kinds) == 0 {
		for _, k := range contract.Kinds() {
			m.kinds[string(k)] = k
		}
	}
	return nil
}

// has reports whether the mapping has a member.
func (m *Mapping) has(name string) bool { return m.columns[name] != "" || m.constants[name] != "" }

// checkConstants reads each constant once, so that a wrong one is found before any file.
func (m *Mapping) checkConstants() error {
	for _, name := range slices.Sorted(maps.Keys(m.constants)) {
		r := reading{mapping: m}
		r.value(name, cell{text: m.constants[name]})
		if len(r.findings) > 0 {
			return refuse(CodeMappingInvalid, "the constant %s is wrong: %s", name, r.findings[0].Detail).WithField("/constants/" + name)
		}
	}
	return nil
}

// decode converts a file to UTF-8.
func (m *Mapping) decode(file []byte) ([]byte, error) {
	if m.encoding != nil {
		decoded, err := m.encoding.NewDecoder().Bytes(file)
		if err != nil || bytes.ContainsRune(decoded, utf8.RuneError) {
			return nil, refuse(CodeEncodingInvalid, "the file is not in the encoding that the mapping declares; correct encoding in the mapping")
		}
		return decoded, nil
	}
	file = bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(file) {
		line := 1 + bytes.Count(file[:firstInvalid(file)], []byte("\n"))
		return nil, refuse(CodeEncodingInvalid, "line %d is not UTF-8; declare the encoding of the file in the mapping, such as encoding: windows-1252", line).With("line", line)
	}
	return file, nil
}

func firstInvalid(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return len(b)
}

// parseDate reads a date in the declared form.
func (m *Mapping) parseDate(s string) (time.Time, bool) {
	t, err := time.Parse(m.dates, s)
	return t, err == nil
}

// number rewrites a number in the declared form as money.ParseNumber takes it.
func (m *Mapping) number(s string) (string, bool) {
	sign := ""
	if rest, negative := strings.CutPrefix(s, "-"); negative {
		sign, s = "-", rest
	}
	whole, fraction, hasFraction := strings.Cut(s, m.decimal)
	if m.thousands != "" && strings.Contains(whole, m.thousands) {
		groups := strings.Split(whole, m.thousands)
		for i, g := range groups {
			if len(g) > 3 || len(g) == 0 || i > 0 && len(g) != 3 {
				return "", false
			}
		}
		whole = strings.Join(groups, "")
	}
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !digits(whole) || hasFraction && !digits(fraction) {
		return "", false
	}
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if hasFraction {
		whole += "." + fraction
	}
	if strings.Trim(whole, "0.") == "" {
		sign = ""
	}
	return sign + whole, true
}

// declaredNumber describes the declared form of numbers.
func (m *Mapping) declaredNumber() string {
	return fmt.Sprintf("a number as 1%s234%s56", m.thousands, m.decimal)
}
