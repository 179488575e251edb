package csvinvoice_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/charmap"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/csvinvoice"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

func sampleFile(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "test", "samples", "csv", name))
	require.NoError(tb, err)
	return string(text)
}

func parse(tb testing.TB, text string) *csvinvoice.Mapping {
	tb.Helper()
	m, err := csvinvoice.ParseMapping(strings.NewReader(text))
	require.NoError(tb, err)
	return m
}

func TestRead_Sample(t *testing.T) {
	t.Parallel()
	results, err := csvinvoice.Read(strings.NewReader(sampleFile(t, "freight.csv")), parse(t, sampleFile(t, "freight.yaml")))
	require.NoError(t, err)
	require.Len(t, results, 3)
	require.NoError(t, results[0].Err)
	require.Equal(t, []int{2, 5, 6}, []int{results[0].Row, results[1].Row, results[2].Row})
	d := results[0].Document
	require.Equal(t, "vat:DE999000277", d.Supplier.Identity())
	payload, err := d.IntentPayload(einvoice.Submission{VendorID: "V-7"})
	require.NoError(t, err)
	require.JSONEq(t, `{"invoice_number":"SK-26-0311","vendor_id":"V-7","vendor_name":"Spedition Kestrel GmbH","invoice_date":"2026-03-12","due_date":"2026-04-11","due_date_source":"document",
		"currency":"EUR","total_amount":1581.02,"tax_amount":251.02,"document_type":"standard","po_reference":"PO-2026-0031","payable_amount":1581.02,"payee_bank":"none",
		"source_document":{"syntax":"CSV","sha256":"`+d.SHA256+`"},"buyer":{"vat_id":"DE999000197","names":["Demo Manufacturing GmbH"]},
		"tax_lines":[{"category":"S","rate":19,"taxable_amount":1316.00,"tax_amount":250.04,"tax_group":"S/19"},{"category":"S","rate":7,"taxable_amount":14.00,"tax_amount":0.98,"tax_group":"S/7"}],
		"lines":[{"line_number":1,"kind":"item","description":"Fracht Kassel; Hamburg","quantity":3,"amount":1250.00,"tax_group":"S/19"},
			{"line_number":2,"kind":"item","description":"Maut","amount":66.00,"tax_group":"S/19"},
			{"line_number":3,"kind":"item","description":"Fahrtenbücher","quantity":2,"amount":14.00,"tax_group":"S/7"}]}`, string(payload))
	require.Equal(t, contract.CreditMemo, results[1].Document.Kind)
	require.Nil(t, results[1].Document.DueDate)
	require.Equal(t, fault.Violation{
		Code: csvinvoice.CodeTotalMismatch, Severity: "error", Element: "Brutto", Line: 6, Expected: "476.00", Got: "476.10", Difference: "0.10", Currency: "EUR",
		Detail: "Lines and tax do not add up to the total.",
	}, violations(results[2].Err)[0])
}

func violations(err error) []fault.Violation {
	f, _ := fault.As(err)
	return f.Violations
}

const minimal = `
separator: ","
dates: YYYY-MM-DD
decimal_separator: "."
columns: {invoice_number: number, invoice_date: date, total_amount: total, line_amount: net, seller_registration_id: seller}
constants: {currency: EUR}
`

func TestParseMapping(t *testing.T) {
	t.Parallel()
	parse(t, minimal)
	for name, c := range map[string]struct{ old, new, says string }{
		"unknown key":                {`separator: ","`, "separator: \",\"\nguess: true", "guess"},
		"unknown member":             {"currency: EUR", "currency: EUR, colour: red", `there is no member "colour"`},
		"two sources":                {"currency: EUR", "currency: EUR, total_amount: 1", "a column and a constant"},
		"a needed member is missing": {"line_amount: net, ", "", "the member line_amount is needed"},
		"no seller":                  {", seller_registration_id: seller", "", "nothing identifies the seller"},
		"separator is guessed":       {`separator: ","`, "", "separator is one of"},
		"letter as separator":        {`separator: ","`, "separator: x", "separator is one of"},
		"dates are guessed":          {"dates: YYYY-MM-DD", "", "dates is a form"},
		"year of two digits":         {"YYYY-MM-DD", "YY-MM-DD", "dates is a form"},
		"numbers are guessed":        {`decimal_separator: "."`, "", "decimal_separator is"},
		"same separators":            {`decimal_separator: "."`, "decimal_separator: \".\"\nthousands_separator: \".\"", "thousands_separator is another"},
		"encoding":                   {`separator: ","`, "separator: \",\"\nencoding: klingon", "encoding is no supported name"},
		"rate without category":      {"currency: EUR", "currency: EUR, tax_rate: 19", "belong together"},
		"constant of wrong form":     {"currency: EUR", "currency: EUR, due_date: 31.12.2026", "the constant due_date is wrong"},
		"kinds without the member":   {"constants:", "kinds: {I: invoice}\nconstants:", "there is no such member"},
		"unknown kind":               {"currency: EUR}", "currency: EUR, kind: I}\nkinds: {I: order}", "a kind is invoice or credit_memo"},
		"empty column":               {"line_amount: net", `line_amount: " "`, "neither a column nor a value"},
		"no YAML":                    {"separator", "\tseparator", "cannot be read"},
		"a second document":          {"constants:", "---\nconstants:", ""},
	} {
		require.Contains(t, minimal, c.old, name)
		_, err := csvinvoice.ParseMapping(strings.NewReader(strings.Replace(minimal, c.old, c.new, 1)))
		require.Equal(t, csvinvoice.CodeMappingInvalid, fault.CodeOf(err), "%s: %v", name, err)
		require.Contains(t, err.Error(), c.says, name)
	}
	_, err := csvinvoice.ParseMapping(strings.NewReader(minimal + strings.Repeat("#", csvinvoice.MaxMappingBytes)))
	require.Equal(t, csvinvoice.CodeMappingInvalid, fault.CodeOf(err))
}

func TestRead_Files(t *testing.T) {
	t.Parallel()
	m := parse(t, minimal)
	const header = "number,date,total,net,seller\n"
	for name, c := range map[string]struct{ text, code string }{
		"empty":            {"", csvinvoice.CodeEmpty},
		"header only":      {header, csvinvoice.CodeEmpty},
		"no such column":   {"number,date,total,seller\n1,2026-01-01,1,R\n", csvinvoice.CodeColumnMissing},
		"column twice":     {"number,date,total,net,seller,net\n1,2026-01-01,1,1,R,1\n", csvinvoice.CodeColumnMissing},
		"other separator":  {"number;date;total;net;seller\n", csvinvoice.CodeEmpty},
		"a cell too much":  {header + "1,2026-01-01,1,1,R,x\n", csvinvoice.CodeFormInvalid},
		"open quote":       {header + "\"1,2026-01-01,1,1,R\n", csvinvoice.CodeFormInvalid},
		"encoding":         {header + "\xe4,2026-01-01,1,1,R\n", csvinvoice.CodeEncodingInvalid},
		"very long cell":   {header + "1,2026-01-01,1,1," + strings.Repeat("x", csvinvoice.MaxCell+1) + "\n", csvinvoice.CodeFormInvalid},
		"too many rows":    {header + strings.Repeat("1,2026-01-01,1,1,R\n", csvinvoice.MaxRows+1), csvinvoice.CodeTooLarge},
		"over the maximum": {strings.Repeat("x", csvinvoice.MaxBytes+1), csvinvoice.CodeTooLarge},
	} {
		_, err := csvinvoice.Read(strings.NewReader(c.text), m)
		require.Equal(t, c.code, fault.CodeOf(err), "%s: %v", name, err)
	}
	_, err := csvinvoice.Read(strings.NewReader(header+"Mira Sandvik\xe4,2026-01-01,1,1,R\n"), m)
	require.ErrorContains(t, err, "line 2 is not UTF-8")
	_, err = csvinvoice.Read(strings.NewReader("Mira Sandvik,2026-01-01\n1,2\n"), m)
	require.NotContains(t, err.Error(), "Mira", "a file without header may name persons in its first row")
}

func TestRead_Rows(t *testing.T) {
	t.Parallel()
	mapping := parse(t, `
separator: "\t"
dates: DD.MM.YYYY
decimal_separator: ","
thousands_separator: "."
columns: {kind: kind, invoice_number: number, invoice_date: date, total_amount: total, tax_amount: tax, line_amount: net, seller_party_id: seller, seller_name: name,
  tax_category: category, tax_rate: rate, line_description: text, payment_reference: reference, payee_account: account, unit_price: price, unit: unit}
kinds: {R: invoice, G: credit_memo}
constants: {currency: EUR, seller_country: SE}
`)
	const header = "kind\tnumber\tdate\ttotal\ttax\tnet\tseller\tname\tcategory\trate\ttext\treference\taccount\tprice\tunit\n"
	row := func(changes ...string) string {
		cells := []string{"R", "1", "31.03.2026", "1.190,00", "190,00", "1.000,00", "P-1", "Mira Sandvik", "S", "19", "Work", "", "", "12,3456", "KGM"}
		for _, c := range changes {
			name, value, _ := strings.Cut(c, "=")
			for i, h := range strings.Split(strings.TrimSpace(header), "\t") {
				if h == name {
					cells[i] = value
				}
			}
		}
		return strings.Join(cells, "\t") + "\n"
	}
	read := func(rows ...string) []csvinvoice.Result {
		t.Helper()
		results, err := csvinvoice.Read(strings.NewReader(header+strings.Join(rows, "")), mapping)
		require.NoError(t, err)
		return results
	}

	sound := read(row())[0]
	require.NoError(t, sound.Err)
	require.Equal(t, "1000.00", sound.Document.Lines[0].Amount.String())
	require.Equal(t, "12.3456", sound.Document.Lines[0].UnitPrice.String())
	require.Equal(t, "KGM", sound.Document.Lines[0].Unit)
	require.True(t, sound.Document.Supplier.NaturalPerson())
	require.NotContains(t, fmt.Sprintf("%+v", sound.Document), "Mira", "a seller who may be a person is named nowhere but in the registration")
	vendor, err := sound.Document.VendorPayload(30)
	require.NoError(t, err)
	require.Contains(t, string(vendor), `"person":{"name":"Mira Sandvik"}`)

	for name, c := range map[string]struct {
		rows              []string
		code, column      string
		line              int
		expected, got     string
		otherDocumentsRun int
	}{
		"date in another form":    {[]string{row("date=2026-03-31")}, csvinvoice.CodeValueInvalid, "date", 2, "DD.MM.YYYY", "2026-03-31", 0},
		"no such day":             {[]string{row("date=30.02.2026")}, csvinvoice.CodeValueInvalid, "date", 2, "DD.MM.YYYY", "30.02.2026", 0},
		"number in another form":  {[]string{row("total=1190.00")}, csvinvoice.CodeValueInvalid, "total", 2, "a number as 1.234,56", "1190.00", 0},
		"group of two digits":     {[]string{row("total=11.90,00")}, csvinvoice.CodeValueInvalid, "total", 2, "a number as 1.234,56", "11.90,00", 0},
		"exponent":                {[]string{row("net=1e3")}, csvinvoice.CodeValueInvalid, "net", 2, "a number as 1.234,56", "1e3", 0},
		"text as amount":          {[]string{row("net=Mira")}, csvinvoice.CodeValueInvalid, "net", 2, "a number as 1.234,56", "", 0},
		"sixteen digits":          {[]string{row("total=1234567890123456")}, csvinvoice.CodeValueInvalid, "total", 2, "a number as 1.234,56", "1234567890123456", 0},
		"more decimals":           {[]string{row("net=1.000,001")}, "money.scale", "net", 2, "", "1000.001", 0},
		"unknown kind":            {[]string{row("kind=X")}, csvinvoice.CodeValueInvalid, "kind", 2, "", "", 0},
		"no number":               {[]string{row("number="), row("number=2")}, csvinvoice.CodeValueMissing, "number", 2, "", "", 1},
		"long number":             {[]string{row("number=" + strings.Repeat("ä", 51))}, csvinvoice.CodeValueTooLong, "number", 2, "at most 50 characters", "51 characters", 0},
		"rows differ":             {[]string{row("net=500,00"), row("net=500,00", "date=30.03.2026")}, csvinvoice.CodeRowsDiffer, "date", 3, "31.03.2026", "30.03.2026", 0},
		"rows differ in the name": {[]string{row("net=500,00"), row("net=500,00", "name=Other")}, csvinvoice.CodeRowsDiffer, "name", 3, "", "", 0},
		"total":                   {[]string{row("total=1.190,01")}, csvinvoice.CodeTotalMismatch, "total", 2, "1190.00", "1190.01", 0},
		"tax of two rates":        {[]string{row("net=500,00"), row("net=500,00", "rate=7")}, csvinvoice.CodeTotalMismatch, "tax", 2, "130.00", "190.00", 0},
		"unknown unit":            {[]string{row("unit=kg")}, csvinvoice.CodeValueInvalid, "unit", 2, "", "", 0},
		"lines":                   {[]string{strings.Repeat(row(), csvinvoice.MaxLines+1)}, csvinvoice.CodeTooManyLines, "", 2, "at most 1000 lines", "1001 lines", 0},
	} {
		results := read(c.rows...)
		require.Len(t, results, 1+c.otherDocumentsRun, name)
		require.Equal(t, c.code, fault.CodeOf(results[0].Err), "%s: %v", name, results[0].Err)
		v := violations(results[0].Err)[0]
		require.Equal(t, []any{c.column, c.line, c.expected, c.got}, []any{v.Element, v.Line, v.Expected, v.Got}, name)
		for _, other := range results[1:] {
			require.NoError(t, other.Err, "a document stands alone")
		}
	}

	negative := read(row("total=-1.190,00", "tax=-190,00", "net=-1.000,00"))[0]
	require.NoError(t, negative.Err)
	require.Equal(t, contract.CreditMemo, negative.Document.Kind)
	require.Equal(t, "1190.00", negative.Document.Totals.Gross.String())

	// Rows of one document need not stand together; its content decides on its key.
	apart := read(row("net=400,00"), row("number=2"), row("net=600,00"))
	require.Len(t, apart, 2)
	require.Len(t, apart[0].Document.Lines, 2)
	require.NotEqual(t, apart[0].Document.SHA256, apart[1].Document.SHA256)
	require.Equal(t, apart[1].Document.SHA256, read(row("number=2"))[0].Document.SHA256, "other rows of the file do not matter")

	cleaned := read(row("text=Pay DE89 3704 0044 0532 0130 00\u200b", "reference=DE89370400440532013000", "account=DE89 3704 0044 0532 0130 00"))[0]
	require.NoError(t, cleaned.Err)
	require.Equal(t, "Pay [account number]", cleaned.Document.Lines[0].Description)
	require.Empty(t, cleaned.Document.PaymentReference)
	require.Len(t, cleaned.Document.Warnings, 3)
	payload, err := cleaned.Document.IntentPayload(einvoice.Submission{VendorID: "V"})
	require.NoError(t, err)
	require.Contains(t, string(payload), `"payee_accounts":["DE89370400440532013000"]`)
}

func TestRead_Encoding(t *testing.T) {
	t.Parallel()
	mapping := parse(t, "encoding: windows-1252\n"+strings.Replace(minimal, "constants: {", "constants: {line_description: Büro, ", 1))
	text, err := charmap.Windows1252.NewEncoder().String("number,date,total,net,seller\nÄ–1,2026-01-01,1,1,R\n")
	require.NoError(t, err)
	results, err := csvinvoice.Read(strings.NewReader(text), mapping)
	require.NoError(t, err)
	require.Equal(t, "Ä–1", results[0].Document.Number)
	require.Equal(t, "Büro", results[0].Document.Lines[0].Description)

	results, err = csvinvoice.Read(strings.NewReader("\ufeffnumber,date,total,net,seller\r\n1,2026-01-01,1,1,R\r\n"), parse(t, minimal))
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
}

// FuzzRead checks that no file stops the reader, and that each accepted document adds up.
func FuzzRead(f *testing.F) {
	f.Add(sampleFile(f, "freight.csv"))
	m := parse(f, sampleFile(f, "freight.yaml"))
	f.Fuzz(func(t *testing.T, text string) {
		results, err := csvinvoice.Read(strings.NewReader(text), m)
		if err != nil {
			_, refused := fault.As(err)
			require.True(t, refused)
		}
		for _, r := range results {
			if r.Err != nil {
				continue
			}
			sum := r.Document.Totals.Tax
			for _, l := range r.Document.Lines {
				sum = sum.Add(l.Amount)
			}
			require.True(t, sum.Equal(r.Document.Totals.Gross))
		}
	})
}
