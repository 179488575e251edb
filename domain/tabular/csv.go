// Package tabular writes the rows of reports as CSV, for the HTTP API and the commands.
package tabular

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
)

// Column is a column of a table: the member of a row that it shows, and its type as reports
// declare it ("string", "amount", "date").
type Column struct{ Name, Type string }

// CSV writes rows, JSON objects, as RFC 4180: a header row and one row for each. Numbers,
// amounts and dates are written as they are in JSON; an absent value or null is an empty
// cell, an object or list is its JSON. Text that a spreadsheet would take for a formula
// begins with an apostrophe.
func CSV(out io.Writer, columns []Column, rows []json.RawMessage) error {
	w := csv.NewWriter(out)
	w.UseCRLF = true
	record := make([]string, len(columns))
	for i, c := range columns {
		record[i] = c.Name
	}
	if err := w.Write(record); err != nil {
		return err
	}
	for n, row := range rows {
		if err := Record(columns, row, record); err != nil {
			return fmt.Errorf("row %d of a table: %w", n+1, err)
		}
		if err := w.Write(record); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// Record puts the cells of a row, a JSON object, into record, as CSV writes them.
func Record(columns []Column, row json.RawMessage, record []string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(row, &members); err != nil {
		return err
	}
	for i, c := range columns {
		cell, isText := Cell(members[c.Name])
		if isText && hasText(c.Type) {
			cell = inert(cell)
		}
		record[i] = cell
	}
	return nil
}

// Cell is a JSON value as text. isText reports whether it is a JSON string.
func Cell(value json.RawMessage) (cell string, isText bool) {
	if len(value) == 0 || string(value) == "null" {
		return "", false
	}
	if value[0] == '"' && json.Unmarshal(value, &cell) == nil {
		return cell, true
	}
	return string(value), false
}

// hasText reports whether values of a type are free text. The others are written by the
// server, and an amount may begin with a minus sign.
func hasText(columnType string) bool {
	switch columnType {
	case "amount", "date", "time":
		return false
	default:
		return true
	}
}

func inert(cell string) string {
	if cell == "" {
		return ""
	}
	switch cell[0] {
	case '=', '+', '-', '@':
		return "'" + cell
	default:
		return cell
	}
}
