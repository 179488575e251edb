package cli

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/tabular"
)

// GoBDResult counts what was written.
type GoBDResult struct {
	Journals int
	Files    int
}

// WriteGoBD writes the books of a legal entity as CSV files with their description index.xml,
// the data access Z3 of the GoBD, into a new folder. The folder is made beside its place and
// renamed when it is complete. Fault: export.folder_exists.
func WriteGoBD(ctx context.Context, api API, folder string, o Options, c Company) (result GoBDResult, err error) {
	if _, err := os.Lstat(folder); err == nil {
		return result, folderExists()
	}
	r, err := newReader(ctx, api, o)
	if err != nil {
		return result, err
	}
	part, err := os.MkdirTemp(filepath.Dir(filepath.Clean(folder)), filepath.Base(folder)+".*.part")
	if err != nil {
		return result, notWritten(err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(part)
			err = asNotWritten(err)
		}
	}()
	x := &gobd{reader: r, folder: part}
	if err := x.writeTables(ctx); err != nil {
		return result, err
	}
	if err := x.writeIndex(ctx, c); err != nil {
		return result, err
	}
	// Rename replaces no file and no folder.
	if err := os.Rename(part, folder); err != nil {
		if _, statErr := os.Lstat(folder); statErr == nil {
			return result, folderExists()
		}
		return result, notWritten(err)
	}
	return GoBDResult{Journals: x.journals, Files: len(x.tables) + 1}, nil
}

func folderExists() error {
	return fault.New(fault.Conflict, "export.folder_exists", "the folder is there already, and an export never overwrites one; name another with -o, or remove it")
}

// gobd writes one export.
type gobd struct {
	*reader
	folder   string
	tables   []*gobdTable
	journals int
}

// gobdColumn is a column of a table. Its type is that of the read model: string, amount,
// number, date or time.
type gobdColumn struct {
	tabular.Column
	description string
	references  string // file whose primary key the column is, "" for none

	width    int // of the longest text, in characters
	decimals int // of the number with the most
}

// gobdTable is a CSV file and what index.xml says of it. Its first columns are the primary
// key.
type gobdTable struct {
	file, description string
	keys              int
	columns           []*gobdColumn

	out    *os.File
	buffer *bufio.Writer
	csv    *csv.Writer
	shape  []tabular.Column
	record []string
}

// column declares a column as "name type" or "name type > file", where the file is that whose
// primary key the column refers to.
func column(declaration, description string) *gobdColumn {
	declaration, references, _ := strings.Cut(declaration, " > ")
	name, kind, _ := strings.Cut(declaration, " ")
	return &gobdColumn{Column: tabular.Column{Name: name, Type: kind}, description: description, references: references}
}

// create makes the file of a table with its header row.
func (x *gobd) create(t gobdTable) (*gobdTable, error) {
	out, err := os.OpenFile(filepath.Join(x.folder, t.file), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, notWritten(err)
	}
	t.out, t.buffer = out, bufio.NewWriter(out)
	t.csv = csv.NewWriter(t.buffer)
	t.csv.UseCRLF = true
	t.record = make([]string, len(t.columns))
	for i, c := range t.columns {
		t.shape = append(t.shape, c.Column)
		t.record[i] = c.Name
	}
	x.tables = append(x.tables, &t)
	return &t, t.csv.Write(t.record)
}

// add writes a row, a JSON object.
func (t *gobdTable) add(row json.RawMessage) error {
	if err := tabular.Record(t.shape, row, t.record); err != nil {
		return err
	}
	for i, c := range t.columns {
		cell := t.record[i]
		c.width = max(c.width, utf8.RuneCountInString(cell))
		if _, fraction, found := strings.Cut(cell, "."); found {
			c.decimals = max(c.decimals, len(fraction))
		}
	}
	return t.csv.Write(t.record)
}

func (t *gobdTable) close() error {
	t.csv.Flush()
	err := errors.Join(t.csv.Error(), t.buffer.Flush(), t.out.Sync(), t.out.Close())
	if err != nil {
		return notWritten(err)
	}
	return nil
}

// writeTable makes the file of a table, and closes it when fill has added the rows.
func (x *gobd) writeTable(t gobdTable, fill func(t *gobdTable) error) error {
	table, err := x.create(t)
	if err != nil {
		return err
	}
	if err := fill(table); err != nil {
		return errors.Join(err, table.out.Close())
	}
	return table.close()
}

// writeTables writes the tables. Those of accounts payable are read by their paths, and
// missing where the server has no such module.
func (x *gobd) writeTables(ctx context.Context) error {
	rowsOf := func(path string, params map[string]string) func(t *gobdTable) error {
		return func(t *gobdTable) error {
			return readRows(ctx, x.reader, path, params, t.add)
		}
	}
	hasPayables := true
	err := readRows(ctx, x.reader, "ap/vendors", map[string]string{"limit": "1", "vendor": "-"}, func(json.RawMessage) error { return nil })
	if fault.KindOf(err) == fault.NotFound {
		hasPayables, err = false, nil
	}
	if err != nil {
		return err
	}
	steps := []struct {
		table    gobdTable
		payables bool
		fill     func(t *gobdTable) error
	}{
		{accountsTable(), false, rowsOf("gl/accounts", nil)},
		{balancesTable(), false, func(t *gobdTable) error { return x.addTrialBalance(ctx, t) }},
		{journalsTable(), false, func(t *gobdTable) error {
			return readRows(ctx, x.reader, "gl/journals", x.from(), func(row json.RawMessage) error {
				x.journals++
				return t.add(row)
			})
		}},
		{linesTable(hasPayables), false, func(t *gobdTable) error { return x.addLines(ctx, t) }},
		{vendorsTable(), true, func(t *gobdTable) error { return x.addVendors(ctx, t) }},
		{documentsTable(), true, func(t *gobdTable) error {
			for _, state := range documentStates {
				if err := rowsOf("ap/documents", map[string]string{"state": state})(t); err != nil {
					return err
				}
			}
			return nil
		}},
		{openItemsTable(), true, rowsOf("ap/open-items", nil)},
		{taxTable(), true, rowsOf("ap/tax-summary", withParams(x.from(), map[string]string{"by": "period"}))},
	}
	for _, s := range steps {
		if s.payables && !hasPayables {
			continue
		}
		if err := x.writeTable(s.table, s.fill); err != nil {
			return err
		}
	}
	return nil
}

func withParams(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// addTrialBalance writes the trial balance, whose rows have another name than those of other
// read models.
func (x *gobd) addTrialBalance(ctx context.Context, t *gobdTable) error {
	query := cloneWith(x.query, x.from())
	for {
		var p struct {
			Accounts   []json.RawMessage `json:"accounts"`
			NextCursor string            `json:"next_cursor"`
		}
		if err := x.api.ReadModel(ctx, "gl/trial-balance", query, &p); err != nil {
			return err
		}
		for _, row := range p.Accounts {
			if err := t.add(row); err != nil {
				return err
			}
		}
		if p.NextCursor == "" {
			return nil
		}
		query.Set("cursor", p.NextCursor)
	}
}

// addLines writes the journal lines, and their dimensions as a table of their own.
func (x *gobd) addLines(ctx context.Context, lines *gobdTable) error {
	return x.writeTable(lineDimensionsTable(), func(dimensions *gobdTable) error {
		return x.readLines(ctx, func(l *line) error {
			row := struct {
				line
				Vendor string `json:"vendor_id"`
			}{*l, l.Dimensions[dimensionVendor]}
			text, err := json.Marshal(row)
			if err != nil {
				return err
			}
			if err := lines.add(text); err != nil {
				return err
			}
			for _, name := range slices.Sorted(maps.Keys(l.Dimensions)) {
				text, err := json.Marshal(map[string]any{
					"event_id": l.EventID, "line_number": l.LineNumber, "dimension": name, "value": l.Dimensions[name],
				})
				if err != nil {
					return err
				}
				if err := dimensions.add(text); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// addVendors writes vendors with their names as the server shows them to the reader. Contacts
// and bank accounts stay where they are.
func (x *gobd) addVendors(ctx context.Context, t *gobdTable) error {
	return read(ctx, x.reader, "ap/vendors", nil, func(p page[supplier]) error {
		for i := range p.Rows {
			s := &p.Rows[i]
			text, err := json.Marshal(map[string]any{
				"vendor_id": s.ID, "name": s.displayName(), "country": s.Country, "status": s.Status, "natural_person": fmt.Sprint(s.NaturalPerson),
			})
			if err != nil {
				return err
			}
			if err := t.add(text); err != nil {
				return err
			}
		}
		return nil
	})
}
