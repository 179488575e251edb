package cli

import (
	"encoding/xml"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/fault"
)

// xmlWriter writes elements one after the other, without a tree in memory. It keeps the first
// error.
type xmlWriter struct {
	out   io.Writer
	depth int
	err   error
}

func (w *xmlWriter) raw(text string) {
	if w.err == nil {
		_, w.err = io.WriteString(w.out, text)
	}
}

func (w *xmlWriter) indent() { w.raw(strings.Repeat(" ", w.depth)) }

// element writes an element around what the function writes.
func (w *xmlWriter) element(name string, content func()) {
	w.indent()
	w.raw("<" + name + ">\n")
	w.depth++
	content()
	w.depth--
	w.indent()
	w.raw("</" + name + ">\n")
}

// text writes an element with a text, also an empty one.
func (w *xmlWriter) text(name, value string) {
	w.indent()
	w.raw("<" + name + ">")
	if w.err == nil {
		w.err = xml.EscapeText(w.out, []byte(value))
	}
	w.raw("</" + name + ">\n")
}

// optional writes an element unless its text is empty.
func (w *xmlWriter) optional(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

// id writes a text that other elements refer to, which must not be cut. Fault:
// export.value_too_long.
func (w *xmlWriter) id(name, value string, most int) {
	if got := utf8.RuneCountInString(value); w.err == nil && got > most {
		w.err = fault.New(fault.FailedPrecondition, "export.value_too_long",
			"%s %q has %d characters, of which the format takes %d; export it as hledger or GoBD", name, value, got, most).WithNumbers(most, got)
		return
	}
	w.text(name, value)
}

// cut returns the first characters of a text that only people read.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
