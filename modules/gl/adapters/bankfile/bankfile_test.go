package bankfile_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/adapters/bankfile"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/test/samples"
)

func sample(t testing.TB, name string) string {
	t.Helper()
	text, err := samples.Camt.ReadFile("camt/" + name)
	require.NoError(t, err)
	return string(text)
}

// show writes the lines of a statement in short.
func show(s domain.BankStatement) (out []string) {
	for i := range s.Lines {
		l := &s.Lines[i]
		value := ""
		if l.ValueDate != nil {
			value = l.ValueDate.String()
		}
		out = append(out, strings.Join([]string{l.Signed().String(), l.BookingDate.String(), value, l.EndToEndID, l.Reference, l.Text}, "|"))
	}
	return out
}

// check checks a statement as the ledger does, which numbers the lines.
func check(s domain.BankStatement) error {
	s.Number()
	return s.Check()
}

func TestRead_Camt(t *testing.T) {
	t.Parallel()
	got, digest, err := bankfile.Read(strings.NewReader(sample(t, "01-statement-v02.xml")), bankfile.Options{Account: "1010", Texts: true})
	require.NoError(t, err)
	require.Len(t, digest, 64)
	require.Len(t, got, 1)
	s := got[0]
	require.NoError(t, check(s))
	require.Equal(t, domain.StatementRef{Account: "1010", StatementID: "2026-03-31/42", Part: 1}, s.StatementRef)
	require.Equal(t, "EUR 1000.00 1148.50 2026-03-31", fmt.Sprint(s.Currency, " ", s.OpeningBalance, " ", s.ClosingBalance, " ", s.StatementDate))
	require.Equal(t, []string{
		"-100.50|2026-03-31|2026-04-01|01JQ7B8C9D0E1F2G3H4J5K6M7N-1|BANK-1|Invoice 4711 thank you",
		"249.00|2026-03-31|||RF18539007547034|",
	}, show(s))

	got, _, err = bankfile.Read(strings.NewReader(sample(t, "01-statement-v02.xml")), bankfile.Options{Account: "1010"})
	require.NoError(t, err)
	require.Empty(t, got[0].Lines[0].Text, "texts may name persons and are left out")
	for version := 2; version <= 8; version++ {
		_, _, err := bankfile.Read(strings.NewReader(strings.ReplaceAll(sample(t, "01-statement-v02.xml"), "001.02", fmt.Sprintf("001.%02d", version))), bankfile.Options{})
		require.NoError(t, err)
	}
}

// A batch becomes a line for each of its payments if their amounts make it up.
func TestRead_CamtBatch(t *testing.T) {
	t.Parallel()
	got, digest, err := bankfile.Read(strings.NewReader(sample(t, "02-batch-v08.xml")), bankfile.Options{Account: "1010"})
	require.NoError(t, err)
	s := got[0]
	require.Equal(t, "FILE-"+digest[:16]+"-1", s.StatementID, "the bank's id holds an account number")
	require.Equal(t, "-5 -40.00", fmt.Sprint(s.OpeningBalance, " ", s.ClosingBalance))
	require.Equal(t, []string{"-10.00|2026-03-31||P-1|N-1|", "-20.00|2026-03-31||P-2|N-1|", "-5|2026-03-31|||N-2|"}, show(s), "pending entries are in no balance")
}

func TestRead_CamtRefusals(t *testing.T) {
	t.Parallel()
	sound := sample(t, "01-statement-v02.xml")
	change := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(sound) }
	statement := sound[strings.Index(sound, "<Stmt>") : strings.Index(sound, "</Stmt>")+7]
	for name, c := range map[string]struct{ code, text string }{
		"empty":                {bankfile.CodeMalformed, ""},
		"no XML":               {bankfile.CodeMalformed, "date,amount\n"},
		"cut off":              {bankfile.CodeMalformed, sound[:len(sound)-20]},
		"DOCTYPE":              {bankfile.CodeDoctypeForbidden, `<!DOCTYPE Document [<!ENTITY a "b">]>` + strings.TrimPrefix(sound, `<?xml version="1.0" encoding="UTF-8"?>`)},
		"another version":      {bankfile.CodeKindUnsupported, change("001.02", "001.09")},
		"another message":      {bankfile.CodeKindUnsupported, change("camt.053", "camt.052")},
		"no namespace":         {bankfile.CodeKindUnsupported, "<Document/>"},
		"no statement":         {bankfile.CodeValueMissing, change(statement, "")},
		"no opening balance":   {bankfile.CodeValueMissing, change("OPBD", "ITBD")},
		"no closing balance":   {bankfile.CodeValueMissing, change("CLBD", "CLAV")},
		"no amount":            {bankfile.CodeValueMissing, change(`<Amt Ccy="EUR">100.50</Amt>`, "")},
		"no date":              {bankfile.CodeValueMissing, change("<BookgDt><Dt>2026-03-31</Dt></BookgDt>", "<BookgDt/>")},
		"exponent":             {bankfile.CodeValueInvalid, change("100.50", "1e2")},
		"negative":             {bankfile.CodeValueInvalid, change("100.50", "-100.50")},
		"no number":            {bankfile.CodeValueInvalid, change("100.50", "1,00")},
		"wrong date":           {bankfile.CodeValueInvalid, change("<Dt>2026-04-01</Dt>", "<Dt>2026-02-30</Dt>")},
		"wrong indicator":      {bankfile.CodeValueInvalid, change("DBIT", "D")},
		"unknown currency":     {bankfile.CodeValueInvalid, change(`"EUR"`, `"EU"`)},
		"entry's currency":     {bankfile.CodeCurrencyMismatch, change(`Ccy="EUR">100.50`, `Ccy="USD">100.50`)},
		"several accounts":     {bankfile.CodeAccountsMixed, change(statement, statement+strings.Replace(statement, "NL91ABNA0417164300", "NL02ABNA0123456789", 1))},
		"long text":            {bankfile.CodeTextTooLong, change("Invoice 4711", strings.Repeat("a", xmltree.MaxText+1))},
		"too large":            {bankfile.CodeTooLarge, sound + strings.Repeat(" ", xmltree.MaxBytes)},
		"nested deeply":        {bankfile.CodeMalformed, change("<Ustrd>thank you</Ustrd>", strings.Repeat("<A>", 70)+strings.Repeat("</A>", 70))},
		"unsupported encoding": {bankfile.CodeMalformed, change("UTF-8", "UTF-16")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := bankfile.Read(strings.NewReader(c.text), bankfile.Options{})
			require.Equal(t, c.code, fault.CodeOf(err), "%v", err)
			require.NotContains(t, err.Error(), "DE89370400440532013000")
		})
	}
}

// Long statements are read in parts whose balances continue one another.
func TestRead_Parts(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("day,amount\n")
	for range 2500 {
		text.WriteString("2026-03-31,-1.10\n")
	}
	mapping, err := bankfile.ReadMapping(strings.NewReader(`{"columns": {"booking_date": "day", "amount": "amount"}}`))
	require.NoError(t, err)
	got, _, err := bankfile.Read(strings.NewReader(text.String()), bankfile.Options{Account: "1010", Mapping: mapping, Currency: "EUR", ID: "S-1", Opening: "3000", Closing: "250"})
	require.NoError(t, err)
	require.Len(t, got, 3)
	for i, s := range got {
		require.NoError(t, check(s))
		require.Equal(t, i+1, s.Part)
		require.Equal(t, 3, s.Parts)
		if i > 0 {
			require.True(t, s.OpeningBalance.Equal(got[i-1].ClosingBalance))
		}
	}
	require.Len(t, got[2].Lines, 500)
}

const germanMapping = `{"delimiter": ";", "decimal": ",", "date": "DD.MM.YYYY", "columns": {"booking_date": "Buchungstag", "value_date": "Valuta", "credit": "Haben", "debit": "Soll", "reference": "Ref", "text": "Text"}}`

func TestRead_CSV(t *testing.T) {
	t.Parallel()
	mapping, err := bankfile.ReadMapping(strings.NewReader(germanMapping))
	require.NoError(t, err)
	file := "\ufeffBuchungstag;Valuta;Soll;Haben;Ref;Text\n31.03.2026;01.04.2026;1.100,50;;R-1;\"Miete; März\"\n30.03.2026;;;2.000,00;DE89 3704 0044 0532 0130 00;x\n30.03.2026;;;;;nur Text\n29.03.2026;;-3,00;;;\n"
	o := bankfile.Options{Account: "1010", Mapping: mapping, Currency: "EUR", Opening: "0.00", Closing: "896.50", Texts: true}
	got, digest, err := bankfile.Read(strings.NewReader(file), o)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.NoError(t, check(got[0]))
	require.Equal(t, "FILE-"+digest[:16]+"-1", got[0].StatementID)
	require.Equal(t, event.MustDate("2026-03-31"), got[0].StatementDate)
	require.Equal(t, []string{"-1100.50|2026-03-31|2026-04-01||R-1|Miete; März", "2000.00|2026-03-30||||x", "-3.00|2026-03-29||||"}, show(got[0]))

	for name, c := range map[string]struct{ code, file string }{
		"no header":       {bankfile.CodeMalformed, ""},
		"column missing":  {bankfile.CodeMappingInvalid, strings.Replace(file, "Soll", "Debit", 1)},
		"uneven":          {bankfile.CodeMalformed, file + "31.03.2026;1\n"},
		"quotes":          {bankfile.CodeMalformed, file + "\"31.03.2026;;;1,00;;\n"},
		"no amount":       {bankfile.CodeValueInvalid, strings.Replace(file, "1.100,50", "n/a", 1)},
		"no date":         {bankfile.CodeValueInvalid, strings.Replace(file, "31.03.2026", "2026-03-31", 1)},
		"no lines":        {bankfile.CodeValueMissing, "Buchungstag;Valuta;Soll;Haben;Ref;Text\n"},
		"not UTF-8":       {bankfile.CodeMalformed, file + "31.03.2026;;;1,00;;M\xe4rz\n"},
		"larger than all": {bankfile.CodeTooLarge, strings.Repeat("x", xmltree.MaxBytes+1)},
	} {
		_, _, err := bankfile.Read(strings.NewReader(c.file), o)
		require.Equal(t, c.code, fault.CodeOf(err), "%s: %v", name, err)
	}
	o.Closing = "1e3"
	_, _, err = bankfile.Read(strings.NewReader(file), o)
	require.Equal(t, bankfile.CodeValueInvalid, fault.CodeOf(err))
}

func TestReadMapping(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `[]`, `{"columns": {"booking_date": "A", "amount": "B"}, "skip": 1}`, `{"columns": {"amount": "B"}}`, `{"columns": {"booking_date": "A"}}`,
		`{"columns": {"booking_date": "A", "amount": "B", "debit": "C"}}`, `{"delimiter": ";;", "columns": {"booking_date": "A", "amount": "B"}}`,
		`{"decimal": "'", "columns": {"booking_date": "A", "amount": "B"}}`, `{"date": "DD.MM.YY", "columns": {"booking_date": "A", "amount": "B"}}`,
	} {
		_, err := bankfile.ReadMapping(strings.NewReader(text))
		require.Equal(t, bankfile.CodeMappingInvalid, fault.CodeOf(err), text)
	}
}

// FuzzRead checks that no file makes the reader panic, and that what it accepts adds up or is for
// the ledger to refuse.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"01-statement-v02.xml", "02-batch-v08.xml"} {
		f.Add([]byte(sample(f, name)))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		got, _, err := bankfile.Read(bytes.NewReader(file), bankfile.Options{Account: "1010"})
		if _, refused := fault.As(err); err != nil && !refused {
			t.Fatalf("not a fault: %v", err)
		}
		for i := range got {
			if len(got[i].Lines) > domain.MaxStatementLines {
				t.Fatal("a part is too long")
			}
		}
	})
}
