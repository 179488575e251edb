package cli

import (
	"bufio"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// gobdDTD is the description standard of index.xml. Auditors' programs bring the file itself.
const gobdDTD = "gdpdu-01-09-2004.dtd"

// writeIndex writes index.xml: what the tables are and how their columns are to be read.
func (x *gobd) writeIndex(ctx context.Context, c Company) error {
	if c.Name == "" {
		list, err := x.api.ListLegalEntities(ctx)
		if err != nil {
			return err
		}
		for _, le := range list.LegalEntities {
			if le.Code == x.options.LegalEntity {
				c.Name = le.Name
			}
		}
	}
	out, err := os.OpenFile(filepath.Join(x.folder, "index.xml"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return notWritten(err)
	}
	buffered := bufio.NewWriter(out)
	w := &xmlWriter{out: buffered}
	w.raw(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<!DOCTYPE DataSet SYSTEM "` + gobdDTD + `">` + "\n")
	w.element("DataSet", func() {
		w.text("Version", "1.0")
		w.element("DataSupplier", func() {
			w.text("Name", cmp.Or(c.Name, x.options.LegalEntity))
			w.text("Location", c.Address.line())
			w.text("Comment", "Legal entity "+x.options.LegalEntity+", posting dates "+x.options.From+" to "+x.at.AsOf+
				", as known at sequence "+x.at.Sequence+", functional currency "+x.at.Currency)
		})
		w.element("Media", func() {
			w.text("Name", "Backbone "+x.options.LegalEntity+" "+x.options.From+" "+x.at.AsOf)
			for _, t := range x.tables {
				w.element("Table", func() { x.describe(w, t) })
			}
		})
	})
	if w.err == nil {
		w.err = buffered.Flush()
	}
	if w.err == nil {
		w.err = out.Sync()
	}
	if err := out.Close(); w.err == nil {
		w.err = err
	}
	if w.err != nil {
		return notWritten(w.err)
	}
	return nil
}

func (x *gobd) describe(w *xmlWriter, t *gobdTable) {
	w.text("URL", t.file)
	w.text("Name", strings.TrimSuffix(t.file, ".csv"))
	w.text("Description", t.description)
	w.element("Validity", func() {
		w.element("Range", func() {
			w.text("From", x.options.From)
			w.text("To", x.at.AsOf)
		})
		w.text("Format", "YYYY-MM-DD")
	})
	w.raw(strings.Repeat(" ", w.depth) + "<UTF8/>\n")
	w.text("DecimalSymbol", ".")
	w.text("DigitGroupingSymbol", ",")
	w.element("Range", func() { w.text("From", "2") }) // after the header row
	w.element("VariableLength", func() {
		w.text("ColumnDelimiter", ",")
		w.raw(strings.Repeat(" ", w.depth) + "<RecordDelimiter>&#13;&#10;</RecordDelimiter>\n")
		w.text("TextEncapsulator", `"`)
		for i, c := range t.columns {
			element := "VariableColumn"
			if i < t.keys {
				element = "VariablePrimaryKey"
			}
			w.element(element, func() { c.describe(w) })
		}
		for _, c := range t.columns {
			if c.references != "" && x.hasTable(c.references) {
				w.element("ForeignKey", func() {
					w.text("Name", c.Name)
					w.text("References", strings.TrimSuffix(c.references, ".csv"))
				})
			}
		}
	})
}

func (x *gobd) hasTable(file string) bool {
	for _, t := range x.tables {
		if t.file == file {
			return true
		}
	}
	return false
}

func (c *gobdColumn) describe(w *xmlWriter) {
	w.text("Name", c.Name)
	w.text("Description", c.description)
	switch c.Type {
	case "amount", "number":
		w.element("Numeric", func() { w.text("Accuracy", strconv.Itoa(c.decimals)) })
	case "date":
		w.element("Date", func() { w.text("Format", "YYYY-MM-DD") })
	default:
		w.raw(strings.Repeat(" ", w.depth) + "<AlphaNumeric/>\n")
		w.text("MaxLength", strconv.Itoa(max(c.width, 1)))
	}
}

// line is the address in one line.
func (a Address) line() string {
	parts := []string{strings.TrimSpace(a.Street + " " + a.Number), strings.TrimSpace(a.PostalCode + " " + a.City), a.Country}
	var given []string
	for _, part := range parts {
		if part != "" {
			given = append(given, part)
		}
	}
	return strings.Join(given, ", ")
}
