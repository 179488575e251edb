package cli_test

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/cli"
)

// dataSet is what the tests read of index.xml.
type dataSet struct {
	Comment string `xml:"DataSupplier>Comment"`
	Tables  []struct {
		URL    string `xml:"URL"`
		Name   string `xml:"Name"`
		From   string `xml:"Validity>Range>From"`
		To     string `xml:"Validity>Range>To"`
		Length struct {
			Keys        []indexColumn `xml:"VariablePrimaryKey"`
			Columns     []indexColumn `xml:"VariableColumn"`
			ForeignKeys []struct {
				Name       string
				References string
			} `xml:"ForeignKey"`
		} `xml:"VariableLength"`
	} `xml:"Media>Table"`
}

type indexColumn struct {
	Name      string
	Numeric   *struct{ Accuracy int }
	Date      *struct{ Format string }
	MaxLength int
}

func TestWriteGoBD(t *testing.T) {
	t.Parallel()
	b := smallBook(t)
	options := cli.Options{LegalEntity: "DEMF", From: "2026-02-01", AsOf: "2026-12-31"}
	folder := filepath.Join(t.TempDir(), "z3")
	result, err := cli.WriteGoBD(t.Context(), b, folder, options, company)
	require.NoError(t, err)
	require.Equal(t, cli.GoBDResult{Journals: 3, Files: 10}, result)

	text, err := os.ReadFile(filepath.Join(folder, "index.xml"))
	require.NoError(t, err)
	golden(t, "index.xml", text)
	var index dataSet
	decoder := xml.NewDecoder(bytes.NewReader(text))
	require.NoError(t, decoder.Decode(&index))
	require.Equal(t, "Legal entity DEMF, posting dates 2026-02-01 to 2026-12-31, as known at sequence 16, functional currency EUR", index.Comment)

	files := []string{"index.xml"}
	tables := map[string][]string{} // name → primary key
	for _, table := range index.Tables {
		files = append(files, table.URL)
		require.Equal(t, []string{"2026-02-01", "2026-12-31"}, []string{table.From, table.To})
		for _, key := range table.Length.Keys {
			tables[table.Name] = append(tables[table.Name], key.Name)
		}
		requireColumns(t, filepath.Join(folder, table.URL), append(slices.Clone(table.Length.Keys), table.Length.Columns...))
	}
	for _, table := range index.Tables {
		for _, key := range table.Length.ForeignKeys {
			require.Contains(t, tables[key.References], key.Name, "%s of %s", key.Name, table.Name)
		}
	}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.ElementsMatch(t, files, names)
	items, err := os.ReadFile(filepath.Join(folder, "open_items.csv"))
	require.NoError(t, err)
	require.Contains(t, string(items), ",'-1,") // no formula for a spreadsheet
	vendors, err := os.ReadFile(filepath.Join(folder, "vendors.csv"))
	require.NoError(t, err)
	require.Equal(t, "vendor_id,name,country,status,natural_person\r\nV-000001,Papir AS,NO,active,false\r\nV-000002,[MASKED],DE,active,true\r\n", string(vendors))

	// A second export refuses the folder, and one beside it has the same bytes.
	_, err = cli.WriteGoBD(t.Context(), b, folder, options, company)
	require.Equal(t, "export.folder_exists", fault.CodeOf(err))
	again := filepath.Join(filepath.Dir(folder), "again")
	_, err = cli.WriteGoBD(t.Context(), b, again, options, company)
	require.NoError(t, err)
	for _, name := range files {
		first, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		second, err := os.ReadFile(filepath.Join(again, name))
		require.NoError(t, err)
		require.Equal(t, string(first), string(second), name)
	}

	// An export that fails leaves nothing behind.
	b.payables["ap/vendors"] = `{"rows": [{"vendor_id": 7}]}`
	_, err = cli.WriteGoBD(t.Context(), b, filepath.Join(filepath.Dir(folder), "broken"), options, company)
	require.Error(t, err)
	left, err := os.ReadDir(filepath.Dir(folder))
	require.NoError(t, err)
	require.Len(t, left, 2)

	t.Run("DTD", func(t *testing.T) {
		xmllint(t, "--dtdvalid", auditSchema(t, "gdpdu-01-09-2004.dtd"), filepath.Join(folder, "index.xml"))
	})
}

// requireColumns checks that a file has the columns of the index in their order, and that each
// cell is of the column's type and not longer than it says.
func requireColumns(t *testing.T, file string, columns []indexColumn) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	require.NoError(t, err, file)
	require.Len(t, rows[0], len(columns), file)
	for i, c := range columns {
		require.Equal(t, c.Name, rows[0][i], file)
		for _, row := range rows[1:] {
			cell := row[i]
			switch {
			case c.Numeric != nil && cell != "":
				_, err := money.ParseNumber(cell)
				require.NoError(t, err, "%s %s", file, c.Name)
				_, fraction, _ := strings.Cut(cell, ".")
				require.LessOrEqual(t, len(fraction), c.Numeric.Accuracy, "%s %s", file, c.Name)
			case c.Date != nil && cell != "":
				require.Regexp(t, `^\d{4}-\d\d-\d\d$`, cell, "%s %s", file, c.Name)
			case c.Numeric == nil && c.Date == nil:
				require.LessOrEqual(t, len([]rune(cell)), c.MaxLength, "%s %s", file, c.Name)
			}
		}
	}
}

// TestWriteGoBD_WithoutPayables exports the ledger of a server that has no other module.
func TestWriteGoBD_WithoutPayables(t *testing.T) {
	t.Parallel()
	b := smallBook(t)
	b.payables = nil
	folder := filepath.Join(t.TempDir(), "z3")
	result, err := cli.WriteGoBD(t.Context(), b, folder, cli.Options{LegalEntity: "DEMF", From: "2026-02-01"}, cli.Company{})
	require.NoError(t, err)
	require.Equal(t, 6, result.Files)
	text, err := os.ReadFile(filepath.Join(folder, "index.xml"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "vendors")
	require.Contains(t, string(text), "<Name>Demo &lt;Nord&gt; &amp; Sønn AS</Name>")
}
