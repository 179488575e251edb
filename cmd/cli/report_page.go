package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/tabular"
)

// print writes the report for a person: the header, the columns that are not details, and
// the footer.
func (d *reportDocument) print(out io.Writer, columns []module.Column) error {
	var b strings.Builder
	if err := writeFields(&b, d.members[:d.rowsAt], columns); err != nil {
		return err
	}
	if strings.Contains(b.String(), "\n\n") {
		b.WriteString("\n" + d.rowsName + "\n") // after tables of the header
	}
	shown := slices.DeleteFunc(slices.Clone(columns), func(c module.Column) bool { return c.Detail })
	if err := writeTable(&b, shown, d.rows); err != nil {
		return err
	}
	if err := writeFields(&b, d.members[d.rowsAt:], columns); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// writeFields writes the header or footer of a report: on one line, and after it a table for
// each member that is a list of objects. Types of columns are those of the report's columns
// with the same name.
func writeFields(b *strings.Builder, members []member, columns []module.Column) error {
	var parts []string
	var tables []member
	var collect func(members []member) error
	collect = func(members []member) error {
		for _, m := range members {
			switch {
			case m.name == "has_more":
			case bytes.HasPrefix(m.value, []byte("[{")):
				tables = append(tables, m)
			case bytes.HasPrefix(m.value, []byte("{")):
				nested, err := membersOf(m.value)
				if err != nil {
					return err
				}
				if err := collect(nested); err != nil {
					return err
				}
			default:
				if text := readable(m.value); text != "" {
					parts = append(parts, m.name+" "+text)
				}
			}
		}
		return nil
	}
	if err := collect(members); err != nil {
		return err
	}
	if len(parts) > 0 {
		b.WriteString(strings.Join(parts, ", ") + "\n")
	}
	for _, m := range tables {
		var rows []json.RawMessage
		if err := json.Unmarshal(m.value, &rows); err != nil {
			return err
		}
		own, err := columnsOf(rows, columns)
		if err != nil {
			return err
		}
		b.WriteString("\n" + m.name + "\n")
		if err := writeTable(b, own, rows); err != nil {
			return err
		}
	}
	return nil
}

// columnsOf are the members that any of the rows has, with the type of the known column of
// that name.
func columnsOf(rows []json.RawMessage, known []module.Column) ([]module.Column, error) {
	var columns []module.Column
	for _, row := range rows {
		members, err := membersOf(row)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			named := func(c module.Column) bool { return c.Name == m.name }
			if slices.ContainsFunc(columns, named) {
				continue
			}
			c := module.Column{Name: m.name}
			if i := slices.IndexFunc(known, named); i >= 0 {
				c = known[i]
			}
			columns = append(columns, c)
		}
	}
	return columns, nil
}

// writeTable writes rows with aligned columns, amounts and numbers to the right.
func writeTable(b *strings.Builder, columns []module.Column, rows []json.RawMessage) error {
	table := [][]string{make([]string, len(columns))}
	widths := make([]int, len(columns))
	for i, c := range columns {
		table[0][i] = strings.ToUpper(c.Name)
		widths[i] = utf8.RuneCountInString(c.Name)
	}
	for _, row := range rows {
		var values map[string]json.RawMessage
		if err := json.Unmarshal(row, &values); err != nil {
			return err
		}
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = readable(values[c.Name])
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i]))
		}
		table = append(table, cells)
	}
	for _, cells := range table {
		var line strings.Builder
		for i, cell := range cells {
			if i > 0 {
				line.WriteString("  ")
			}
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t := columns[i].Type; t == "amount" || t == "integer" {
				line.WriteString(space + cell)
			} else {
				line.WriteString(cell + space)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return nil
}

// readable is a JSON value as a person reads it: the items of a list with commas, the members
// of an object as name=value, without the empty ones. An object inside an object or list
// stays in braces.
func readable(value json.RawMessage) string {
	var parts []string
	switch {
	case bytes.HasPrefix(value, []byte("[")):
		var items []json.RawMessage
		if json.Unmarshal(value, &items) == nil {
			for _, item := range items {
				parts = append(parts, inner(item))
			}
		}
		return strings.Join(parts, ", ")
	case bytes.HasPrefix(value, []byte("{")):
		members, _ := membersOf(value)
		for _, m := range members {
			if text := inner(m.value); text != "" {
				parts = append(parts, printable(m.name)+"="+text)
			}
		}
		return strings.Join(parts, ", ")
	default:
		text, _ := tabular.Cell(value)
		return printable(text)
	}
}

func inner(value json.RawMessage) string {
	text := readable(value)
	if bytes.HasPrefix(value, []byte("{")) {
		return "{" + text + "}"
	}
	return text
}

// printable replaces control characters, which a terminal could take for a command.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
