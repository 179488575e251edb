package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
	"github.com/erpbackbone/backbone/modules/ap/adapters/csvinvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

func csvSample(tb testing.TB, name string) string {
	tb.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "test", "samples", "csv", name))
	require.NoError(tb, err)
	return path
}

// TestImport_CSV imports documents of a CSV file by a mapping, with the report, the keys and the
// exit codes of XML files.
func TestImport_CSV(t *testing.T) {
	s, dir := newServer(), t.TempDir()
	table, mapping := filepath.Join(dir, "freight.csv"), csvSample(t, "freight.yaml")
	text, err := os.ReadFile(csvSample(t, "freight.csv"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(table, text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note.txt"), []byte("x"), 0o600))
	importCSV := func() (*cli.Report, error) {
		t.Helper()
		out, err := run(t, s, append(connection, "--json", "--mapping", mapping, dir)...)
		var r cli.Report
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		return &r, err
	}
	first, err := importCSV()
	require.Equal(t, 1, exitCode(t, err))
	require.Equal(t, cli.Totals{Accepted: 2, Refused: 1, VendorsRegistered: 1}, counts(first))
	require.Equal(t, map[string]int{csvinvoice.CodeTotalMismatch: 1}, first.Totals.ByRule)
	var rows []int
	for _, f := range first.Files {
		require.Equal(t, table, f.File)
		rows = append(rows, f.Row)
	}
	require.Equal(t, []int{2, 5, 6}, rows)
	require.Equal(t, []any{contract.Invoice, "SK-26-0311", "1581.02", "EUR"}, []any{first.Files[0].Kind, first.Files[0].Number, first.Files[0].Total, first.Files[0].Currency})
	require.Equal(t, contract.CreditMemo, first.Files[1].Kind)
	refused := first.Files[2].Violations[0]
	require.Equal(t, []any{"Brutto", 6, "476.00", "476.10", "0.10"}, []any{refused.Element, refused.Line, refused.Expected, refused.Got, refused.Difference})

	second, err := importCSV()
	require.Equal(t, 1, exitCode(t, err))
	require.Equal(t, cli.Totals{Duplicate: 2, Refused: 1}, counts(second))

	// A corrected row is another content of that document only.
	require.NoError(t, os.WriteFile(table, []byte(strings.Replace(string(text), "476,10", "476,00", 1)), 0o600))
	third, err := importCSV()
	require.NoError(t, err)
	require.Equal(t, cli.Totals{Accepted: 1, Duplicate: 2}, counts(third))

	out, err := run(t, s, append(connection, "--mapping", mapping, table)...)
	require.NoError(t, err)
	require.Contains(t, out, "freight.csv:6 ")

	require.NoError(t, os.WriteFile(table, []byte("a;b\n1;2\n"), 0o600))
	broken, err := importCSV()
	require.Equal(t, 1, exitCode(t, err))
	require.Equal(t, csvinvoice.CodeColumnMissing, broken.Files[0].Code)
	require.Zero(t, broken.Files[0].Row)
}

func TestImportCommand_Mapping(t *testing.T) {
	s, dir := newServer(), t.TempDir()
	wrong := filepath.Join(dir, "wrong.yaml")
	require.NoError(t, os.WriteFile(wrong, []byte("separator: \",\"\nguess: true\n"), 0o600))
	for says, args := range map[string][]string{
		"cannot be read":           {"--mapping", filepath.Join(dir, "absent.yaml"), csvSample(t, "freight.csv")},
		"(csv.mapping_invalid)":    {"--mapping", wrong, csvSample(t, "freight.csv")},
		"no *.csv file in":         {"--mapping", csvSample(t, "freight.yaml"), dir},
		"no *.xml or *.pdf file i": {dir},
	} {
		_, err := run(t, s, append(connection, args...)...)
		require.Equal(t, 2, exitCode(t, err), says)
		require.ErrorContains(t, err, says)
	}
	require.Empty(t, s.received)
}
