// Package jsonschema compiles JSON Schemas of drafts 4, 6 and 7 and validates documents against
// them with gojsonschema. Compiler implements ports.SchemaCompiler for application/registry.
// References lead only into the schema itself, so neither compiling nor validating opens a file
// or a socket. Findings carry the keyword and a pointer, never a value of the document.
//
// gojsonschema decides on every schema and on every refusal of a document. If a schema has only
// the common keywords, an acceptor reads the raw bytes of the document first (accept.go,
// scan.go). It can only accept: a document that it does not accept is validated by gojsonschema.
package jsonschema

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/xeipuuv/gojsonreference"
	"github.com/xeipuuv/gojsonschema"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/ports"
)

// Limits of one schema. They bound what a single validation can cost.
const (
	MaxSchemaBytes    = 256 << 10 // text of the schema
	maxSchemaDepth    = 64        // schemas inside schemas
	maxSchemaNodes    = 10_000    // schemas in total
	maxPatterns       = 256       // pattern and patternProperties in total
	maxPatternBytes   = 1024      // one regular expression
	maxReferences     = 1024      // $ref in total
	maxEnumValues     = 2048      // values of one enum
	maxEnumBytes      = 16 << 10  // text of one enum: the library copies it into every finding
	maxEvaluations    = 256       // schemas that may apply to one node of a document
	maxDocumentDepth  = 32        // depth to which maxEvaluations is checked (documents are no deeper)
	maxViolations     = 100       // findings in one answer
	maxPatternedNames = 5_000     // names in a document of a schema with patternProperties
	maxEnumCost       = 256 << 20 // nodes of a document times the largest enum
)

// Compiler implements ports.SchemaCompiler. The zero value is ready to use.
type Compiler struct{}

var _ ports.SchemaCompiler = Compiler{}

// New gives a compiler.
func New() Compiler { return Compiler{} }

// Compile checks a schema against the limits above, refuses every reference that
// leaves the document, and compiles the rest. A refusal is fault
// event_type.schema_invalid whose Field points into the schema.
func (Compiler) Compile(source json.RawMessage) (ports.Schema, error) {
	if len(source) > MaxSchemaBytes {
		return nil, refuse("", "is larger than %d bytes; split the event type", MaxSchemaBytes)
	}
	root, err := jsondoc.Decode(source)
	if err != nil {
		return nil, refuse("", "is not one JSON document; send a JSON Schema object")
	}
	c, err := strip(root)
	if err != nil {
		return nil, err
	}
	if err := c.checkCost(); err != nil {
		return nil, err
	}
	compiled, err := compile(c.root)
	if err != nil {
		return nil, err
	}
	return &compiledSchema{
		library:           compiled,
		acceptor:          compileAcceptor(c),
		patternProperties: c.patternProperties,
		largestEnum:       c.largestEnum,
	}, nil
}

func compile(root any) (s *gojsonschema.Schema, err error) {
	// The library panics on some malformed schemas ("definitions": true).
	defer func() {
		if recover() != nil {
			s, err = nil, refuse("", "does not compile; check it against the meta-schema of its draft")
		}
	}()
	s, err = gojsonschema.NewSchemaLoader().Compile(closedLoader{root})
	if err != nil {
		return nil, refuse("", "does not compile: %s; correct the keyword", shorten(err.Error(), 200)).WithCause(err)
	}
	return s, nil
}

func refuse(pointer, text string, args ...any) *fault.Error {
	f := fault.New(fault.Invalid, "event_type.schema_invalid", "The schema "+text+".", args...)
	if pointer != "" {
		f = f.WithField(pointer)
	}
	return f
}

func shorten(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// closedLoader gives a decoded schema to the library. All loaders that it makes fail, so the
// library cannot follow a reference out of the schema that strip has missed.
type closedLoader struct{ root any }

func (l closedLoader) JsonSource() any                               { return l.root }
func (l closedLoader) LoadJSON() (any, error)                        { return l.root, nil }
func (l closedLoader) LoaderFactory() gojsonschema.JSONLoaderFactory { return closedFactory{} }
func (l closedLoader) JsonReference() (gojsonreference.JsonReference, error) {
	return gojsonreference.NewJsonReference("#")
}

type closedFactory struct{}

func (closedFactory) New(string) gojsonschema.JSONLoader { return refusingLoader{} }

var errClosed = errors.New("references outside the schema are not followed")

type refusingLoader struct{}

func (refusingLoader) JsonSource() any                               { return nil }
func (refusingLoader) LoadJSON() (any, error)                        { return nil, errClosed }
func (refusingLoader) LoaderFactory() gojsonschema.JSONLoaderFactory { return closedFactory{} }
func (refusingLoader) JsonReference() (gojsonreference.JsonReference, error) {
	return gojsonreference.JsonReference{}, errClosed
}
