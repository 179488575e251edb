package domain_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func TestDecodeJournal_Defaults(t *testing.T) {
	t.Parallel()
	j, err := domain.DecodeJournal([]byte(`{"journal_number":"GJ-1","description":"d","lines":[
		{"line_number":1,"account":"5100","debit_credit":"debit","amount":12.50,"currency":"USD"},
		{"line_number":2,"account":"2000","debit_credit":"credit","amount":12.50,"currency":"USD","amount_in_reporting_currency":12.50}],"total_credit":1}`))
	require.NoError(t, err)
	require.Equal(t, []string{"general", "USD"}, []string{string(j.JournalType), j.FunctionalCurrency})
	require.Equal(t, []string{"12.50", "12.50"}, []string{j.Lines[0].FunctionalAmount.String(), j.Lines[1].FunctionalAmount.String()})
	require.Equal(t, []string{"12.50", "1"}, []string{j.TotalDebit.String(), j.TotalCredit.String()}, "the sum, and what is given")
	require.Equal(t, []string{"5100", "2000"}, []string{j.Lines[0].Account, j.Lines[1].Account})
	require.Equal(t, "GJ-1", j.JournalNumber)

	// 0 is given, not left out: a line of an exchange difference has no amount in its currency.
	j, err = domain.DecodeJournal([]byte(`{"functional_currency":"USD","lines":[{"amount":3,"currency":"EUR","amount_in_reporting_currency":0}],"total_debit":0}`))
	require.NoError(t, err)
	require.True(t, j.Lines[0].FunctionalAmount.IsZero())
	require.True(t, j.TotalDebit.IsZero())

	j, err = domain.DecodeJournal([]byte(`{"lines":[]}`))
	require.NoError(t, err)
	require.NotNil(t, j.Lines)
	require.Empty(t, j.Lines)
}

func TestDecodeJournal_Refusals(t *testing.T) {
	t.Parallel()
	for data, code := range map[string]string{
		`{"functional_currency":"USD","lines":[{"amount":3,"currency":"EUR"}]}`:                                        "gl.journal.functional_amount_mismatch",
		`{"lines":[{"amount":3,"currency":"EUR"},{"amount":3,"currency":"USD"}]}`:                                      "gl.journal.functional_currency_invalid",
		`{"functional_currency":"EUR","lines":[{"amount":3,"currency":"EUR","amount_in_reporting_currency":null}]}`:    "money.not_a_number",
		`{"functional_currency":"EUR","lines":[{"amount":3,"currency":"EUR","amount_in_reporting_currency":"three"}]}`: "money.not_a_number",
		`{"lines":[],"total_debit":null}`: "money.not_a_number",
	} {
		_, err := domain.DecodeJournal([]byte(data))
		require.Equal(t, code, fault.CodeOf(err), data)
	}
}

func TestDocumentDate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"document_date": "2026-02-28"}`: "2026-02-28",
		`{}`:                              "", `{"document_date": null}`: "", `{"document_date": 7}`: "", `{"document_date": "soon"}`: "", `{"document_date": {"a": []}}`: "",
	} {
		var j domain.JournalPosted
		require.NoError(t, json.Unmarshal([]byte(text), &j), text)
		require.Equal(t, want, j.DocumentDate.String(), text)
		again, err := json.Marshal(j)
		require.NoError(t, err)
		require.Equal(t, want != "", strings.Contains(string(again), `"document_date":"2026-02-28"`), text)
		require.Equal(t, want != "", strings.Contains(string(again), "document_date"), text)
	}
}
