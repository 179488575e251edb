package csvinvoice

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
)

// Result is one document of a file.
type Result struct {
	Document einvoice.Document
	Content  []byte // the document's part of the file: header and rows as CSV in UTF-8
	Row      int    // line of the file where its first row begins, from 1
	Err      error  // a fault: the document is refused
}

// row is one row of a file.
type row struct {
	line  int
	cells []string
}

// Read reads the documents of a file, in the order of their first rows. A document that is refused
// has a *fault.Error whose violations name row and column; the other documents stand. The error of
// Read refuses the file as a whole: it is no CSV of the declared form, or lacks a column. An error
// of r is returned unchanged.
func Read(r io.Reader, m *Mapping) ([]Result, error) {
	file, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(file) > MaxBytes {
		return nil, refuse(CodeTooLarge, "the file is over 20 MiB; split it between documents")
	}
	text, err := m.decode(file)
	if err != nil {
		return nil, err
	}
	header, rows, err := m.readRows(text)
	if err != nil {
		return nil, err
	}
	columns, err := m.findColumns(header)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, group := range m.group(columns, rows) {
		rd := reading{mapping: m, columns: columns, rows: group}
		d := rd.document()
		content, err := m.contentOf(header, group)
		if err != nil {
			return nil, err
		}
		digest := sha256.Sum256(content)
		d.SHA256 = hex.EncodeToString(digest[:])
		results = append(results, Result{Document: d, Content: content, Row: group[0].line, Err: rd.refusal(d.SHA256)})
	}
	return results, nil
}

// readRows splits a file into its header and rows.
func (m *Mapping) readRows(text []byte) (header []string, rows []row, err error) {
	reader := csv.NewReader(bytes.NewReader(text))
	reader.Comma = m.separator
	for {
		cells, err := reader.Read()
		var broken *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			if len(rows) == 0 {
				return nil, nil, refuse(CodeEmpty, "the file has no row below its header; the first row names the columns")
			}
			return header, rows, nil
		case errors.As(err, &broken):
			return nil, nil, refuse(CodeFormInvalid, "line %d: %s; the rows of a CSV file have the same number of cells, and quotes are written twice within quotes. Check separator in the mapping", broken.Line, broken.Err).With("line", broken.Line)
		case err != nil:
			return nil, nil, err
		case len(rows) == MaxRows:
			return nil, nil, refuse(CodeTooLarge, "the file has over %d rows; split it between documents", MaxRows)
		}
		line, _ := reader.FieldPos(0)
		if header == nil {
			for _, name := range cells {
				header = append(header, strings.TrimSpace(name))
			}
			continue
		}
		for i, c := range cells {
			if len(c) > MaxCell {
				return nil, nil, refuse(CodeFormInvalid, "line %d: the cell in column %d is over %d bytes; a quote may be missing", line, i+1, MaxCell).With("line", line)
			}
			cells[i] = strings.TrimSpace(c)
		}
		rows = append(rows, row{line, cells})
	}
}

// findColumns finds the position of each mapped column.
func (m *Mapping) findColumns(header []string) (map[string]int, error) {
	positions := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(m.columns)) {
		column := m.columns[name]
		i := slices.Index(header, column)
		if i < 0 {
			return nil, refuse(CodeColumnMissing, "none of the %d columns of the header is %q, which the mapping names for %s; correct the mapping, or its separator", len(header), column, name).
				WithField("/columns/" + name)
		}
		if slices.Contains(header[i+1:], column) {
			return nil, refuse(CodeColumnMissing, "the header has the column %q twice, which the mapping names for %s; rename one", column, name).WithField("/columns/" + name)
		}
		positions[name] = i
	}
	return positions, nil
}

// group puts rows of one document together. A row without a number is a document of its own,
// which is refused.
func (m *Mapping) group(columns map[string]int, rows []row) [][]row {
	index := map[string]int{}
	var groups [][]row
	for _, r := range rows {
		var key []string
		for _, name := range keyMembers {
			value := m.constants[name]
			if i, mapped := columns[name]; mapped {
				value = r.cells[i]
			}
			if name == "invoice_number" && value == "" {
				value = "\x00" + strconv.Itoa(r.line)
			}
			key = append(key, value)
		}
		k := strings.Join(key, "\x1f")
		i, known := index[k]
		if !known {
			i = len(groups)
			index[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// contentOf is the part of the file that a document is: the header and its rows, in UTF-8.
func (m *Mapping) contentOf(header []string, rows []row) ([]byte, error) {
	var content bytes.Buffer
	w := csv.NewWriter(&content)
	w.Comma = m.separator
	err := w.Write(header)
	for _, r := range rows {
		err = errors.Join(err, w.Write(r.cells))
	}
	w.Flush()
	return content.Bytes(), errors.Join(err, w.Error())
}

// refusal makes the fault of a document with findings of severity error.
func (rd *reading) refusal(digest string) error {
	if len(rd.findings) == 0 {
		return nil
	}
	return refuse(rd.findings[0].Code, "Cells of the document do not fit. Correct the file or the mapping; the violations name row and column.").
		WithViolations(rd.findings...).With("sha256", digest)
}
