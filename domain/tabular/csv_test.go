package tabular_test

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/tabular"
)

func TestCSV(t *testing.T) {
	t.Parallel()
	columns := []tabular.Column{{"text", "string"}, {"amount", "amount"}, {"day", "date"}, {"n", "integer"}, {"ok", "bool"}, {"more", "object"}}
	rows := []json.RawMessage{
		json.RawMessage(`{"text": "=1+1", "amount": "-2.50", "day": "2026-03-31", "n": -7, "ok": true, "more": {"a":"b,c"}}`),
		json.RawMessage(`{"text": "says \"hi\",\nthen leaves", "amount": null, "more": "@x", "other": 1}`),
		json.RawMessage(`{"text": "-", "n": 12345678901234567890}`),
		json.RawMessage(`{"text": "Zoë", "more": []}`),
	}
	var out strings.Builder
	require.NoError(t, tabular.CSV(&out, columns, rows))
	require.Equal(t, "text,amount,day,n,ok,more\r\n"+
		"'=1+1,-2.50,2026-03-31,-7,true,\"{\"\"a\"\":\"\"b,c\"\"}\"\r\n"+
		"\"says \"\"hi\"\",\r\nthen leaves\",,,,,'@x\r\n"+
		"'-,,,12345678901234567890,,\r\n"+
		"Zoë,,,,,[]\r\n", out.String())
	parsed, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	require.NoError(t, err)
	require.Len(t, parsed, len(rows)+1)

	out.Reset()
	require.NoError(t, tabular.CSV(&out, columns[:1], nil))
	require.Equal(t, "text\r\n", out.String())
	require.Error(t, tabular.CSV(&out, columns, []json.RawMessage{json.RawMessage(`7`)}))
}
