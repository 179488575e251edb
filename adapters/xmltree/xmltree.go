// Package xmltree reads XML files that other systems sent into trees, with the same limits
// for every kind of file: a DOCTYPE is refused, size, depth, number of elements and length of
// texts are bounded, and encodings are UTF-8, ISO-8859-1 and US-ASCII. A Dialect says what is
// kept of a kind of file. Refusals are faults with the codes of the caller.
package xmltree

import (
	"bytes"
	"encoding/xml"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Limits of a file. They bound memory, not what a sender may report.
const (
	MaxBytes    = 20 << 20 // size of a file in bytes
	MaxText     = 64 << 10 // one text, tag or comment in bytes; embedded files and what is not kept may be longer
	MaxDepth    = 64       // nesting of elements
	MaxElements = 200_000  // elements kept of one file
)

// Codes are the stable codes of refused files.
type Codes struct {
	DoctypeForbidden string // the file declares a DOCTYPE
	TooLarge         string // over MaxBytes or MaxElements
	Malformed        string // not well-formed, too deep, or an unsupported encoding
	TextTooLong      string // a text, tag or comment is longer than MaxText
}

// Dialect says which parts of a kind of file are kept.
type Dialect struct {
	Prefixes   map[string]string // the usual prefix, with its colon, by namespace URI; elements of other namespaces are not kept
	TextSpace  string            // namespace of the elements with text, which have no children; "": every element may have text
	Attributes []string          // names of the attributes that are kept
	Embedded   []string          // tags of embedded files, of which only digest and size are kept
	// KeepBytes keeps the bytes of embedded files too. They are not larger than the file.
	KeepBytes bool
}

// Kind chooses the dialect of a file by the name of its root, or refuses the file.
type Kind func(root xml.Name, line int) (Dialect, error)

func (c Codes) malformed(line int, what string) *fault.Error {
	return fault.New(fault.Invalid, c.Malformed,
		"Line %d: %s. Ask the sender for a well-formed XML file in UTF-8.", line, what).
		With("line", line)
}

// isDoctype reports whether a markup declaration is a document type declaration.
func isDoctype(d xml.Directive) bool {
	return bytes.HasPrefix(bytes.ToUpper(bytes.TrimSpace(d)), []byte("DOCTYPE"))
}
