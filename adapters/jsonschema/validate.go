package jsonschema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/xeipuuv/gojsonschema"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// compiledSchema implements ports.Schema. It is immutable and safe for concurrent use.
type compiledSchema struct {
	library           *gojsonschema.Schema
	acceptor          *node // nil: the schema uses more than the common keywords
	patternProperties bool
	largestEnum       int // bytes
}

// Validate implements ports.Schema. The findings are sorted by pointer, each
// (pointer, keyword) once, at most 100 of them. The error is fault
// schema.document_invalid for bytes that are not one JSON value or that hold a
// number which no limit allows.
func (s *compiledSchema) Validate(document json.RawMessage) ([]fault.Violation, error) {
	if s.acceptor != nil && s.acceptor.accepts(document) {
		return nil, nil
	}
	return s.validateWithLibrary(document)
}

// slots bounds how many large documents the library works on, to one per processor. It keeps every
// violation, up to 150 times the size of a document that violates its schema everywhere, and
// more at once would be no faster.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

// largeDocument is the size, in bytes, from which a document waits for a slot. Smaller ones do not
// wait behind it, as their violations take little memory.
const largeDocument = 64 << 10

func (s *compiledSchema) validateWithLibrary(document json.RawMessage) (found []fault.Violation, err error) {
	if len(document) >= largeDocument {
		slots <- struct{}{}
		defer func() { <-slots }()
	}
	defer func() {
		// The library dereferences what it failed to parse. The checks below refuse such
		// documents; one that they miss must not end the process.
		if recover() != nil {
			found, err = nil, undecodable()
		}
	}()
	root, err := jsondoc.Decode(document)
	if err != nil {
		return nil, undecodable()
	}
	var size extent
	if !size.measure(root) {
		return nil, undecodable()
	}
	if s.patternProperties && size.names > maxPatternedNames {
		return []fault.Violation{violation("", "pattern_properties")}, nil
	}
	if size.nodes*s.largestEnum > maxEnumCost {
		return []fault.Violation{violation("", "enum")}, nil
	}
	result, err := s.library.Validate(gojsonschema.NewRawLoader(root))
	if err != nil {
		return nil, undecodable()
	}
	if result.Valid() {
		return nil, nil
	}
	return violations(result.Errors()), nil
}

func undecodable() *fault.Error {
	return fault.New(fault.Invalid, "schema.document_invalid",
		"The document cannot be checked against its schema; send one JSON value with plain decimal numbers.")
}

// extent is what a document costs.
type extent struct{ nodes, names int }

// measure counts and reports whether every number is small enough to be turned
// into an exact rational.
func (e *extent) measure(v any) bool {
	e.nodes++
	switch t := v.(type) {
	case json.Number:
		return isBoundedNumber(string(t))
	case []any:
		for _, x := range t {
			if !e.measure(x) {
				return false
			}
		}
	case map[string]any:
		e.names += len(t)
		for _, x := range t {
			if !e.measure(x) {
				return false
			}
		}
	}
	return true
}

// isBoundedNumber reports whether a number has at most 64 characters and an exponent of at
// most two digits, so that its exact value is not huge.
func isBoundedNumber(s string) bool {
	if len(s) > 64 {
		return false
	}
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return true
	}
	return len(strings.TrimLeft(s[i+1:], "+-0")) <= 2
}

// separator joins the names of a path; jsondoc refuses documents that hold it.
const separator = "\x00"

// violations gives the first maxViolations by pointer and keyword. It holds only a few more at
// any time, as there may be one for each value of a document.
func violations(errs []gojsonschema.ResultError) []fault.Violation {
	var out []fault.Violation
	for i, e := range errs {
		keyword := cmp.Or(keywords[e.Type()], e.Type())
		if sentences[keyword] == "" {
			keyword = "internal"
		}
		v := violation(pointerOf(e), keyword)
		v.Detail = cmp.Or(limitDetail(keyword, e), v.Detail)
		out = append(out, v)
		if len(out) < 4*maxViolations && i+1 < len(errs) {
			continue
		}
		slices.SortFunc(out, func(a, b fault.Violation) int {
			return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Code, b.Code))
		})
		out = slices.Compact(out)
		out = out[:min(len(out), maxViolations)]
	}
	return out
}

// pointerOf gives the pointer of a finding: of the value itself, or of the member that is
// missing or not allowed.
func pointerOf(e gojsonschema.ResultError) string {
	var b strings.Builder
	names := strings.Split(e.Context().String(separator), separator)
	for _, name := range names[1:] { // [0] is the root
		b.WriteByte('/')
		b.WriteString(jsondoc.EscapeToken(name))
	}
	switch e.(type) {
	case *gojsonschema.RequiredError, *gojsonschema.AdditionalPropertyNotAllowedError, *gojsonschema.InvalidPropertyNameError:
		if name, ok := e.Details()["property"].(string); ok {
			b.WriteByte('/')
			b.WriteString(jsondoc.EscapeToken(name))
		}
	}
	return b.String()
}

func violation(pointer, keyword string) fault.Violation {
	return fault.Violation{Field: pointer, Code: "schema." + keyword, Detail: sentences[keyword]}
}

// limitDetail names the limit of a size and how large the value is; "" for other keywords.
// It quotes no value: a size says nothing about the content.
func limitDetail(keyword string, e gojsonschema.ResultError) string {
	var words, unit string
	got := 0
	switch v := e.Value().(type) {
	case []any:
		got, unit = len(v), "elements"
	case map[string]any:
		got, unit = len(v), "members"
	case string:
		got, unit = utf8.RuneCountInString(v), "characters"
	default:
		return ""
	}
	name := "max"
	switch keyword {
	case "max_items", "max_properties", "max_length":
		words = "The limit is %s %s; this value has %s."
	case "min_items", "min_properties", "min_length":
		words, name = "The minimum is %s %s; this value has %s.", "min"
	default:
		return ""
	}
	limit, ok := e.Details()[name].(int)
	if !ok {
		return ""
	}
	if limit == 1 {
		unit = strings.TrimSuffix(unit, "s")
	}
	return fmt.Sprintf(words, grouped(limit), unit, grouped(got))
}

// grouped writes a count with a comma between groups of three digits.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// keywords maps error types of the library to the keyword that failed, where they differ.
var keywords = map[string]string{
	"false":                           "false_schema",
	"invalid_type":                    "type",
	"number_any_of":                   "any_of",
	"number_one_of":                   "one_of",
	"number_all_of":                   "all_of",
	"number_not":                      "not",
	"missing_dependency":              "dependencies",
	"array_no_additional_items":       "additional_items",
	"array_min_items":                 "min_items",
	"array_max_items":                 "max_items",
	"unique":                          "unique_items",
	"array_min_properties":            "min_properties",
	"array_max_properties":            "max_properties",
	"additional_property_not_allowed": "additional_properties",
	"invalid_property_pattern":        "pattern_properties",
	"invalid_property_name":           "property_names",
	"string_gte":                      "min_length",
	"string_lte":                      "max_length",
	"number_gte":                      "minimum",
	"number_gt":                       "exclusive_minimum",
	"number_lte":                      "maximum",
	"number_lt":                       "exclusive_maximum",
	"condition_then":                  "then",
	"condition_else":                  "else",
}

// sentences are the details of violations by keyword. They never quote the document.
var sentences = map[string]string{
	"false_schema":          "Nothing is allowed here.",
	"required":              "This member is required.",
	"type":                  "The value has the wrong JSON type.",
	"any_of":                "The value matches none of the alternatives.",
	"one_of":                "The value does not match exactly one of the alternatives.",
	"all_of":                "The value does not match all of the parts.",
	"not":                   "The value matches what is excluded.",
	"dependencies":          "A member that another one depends on is missing.",
	"internal":              "The value could not be checked.",
	"const":                 "The value is not the one that is required.",
	"enum":                  "The value is not one of those listed.",
	"additional_items":      "The array has more elements than are described.",
	"min_items":             "The array has too few elements.",
	"max_items":             "The array has too many elements.",
	"unique_items":          "The array holds an element twice.",
	"contains":              "The array lacks a required element.",
	"min_properties":        "The object has too few members.",
	"max_properties":        "The object has too many members.",
	"additional_properties": "This member is not described by the schema.",
	"pattern_properties":    "The document has too many members for a schema with patterns of names.",
	"property_names":        "The name of this member is not allowed.",
	"min_length":            "The text is too short.",
	"max_length":            "The text is too long.",
	"pattern":               "The text does not have the required form.",
	"format":                "The text does not have the required format.",
	"multiple_of":           "The number is not a multiple of the required step.",
	"minimum":               "The number is too small.",
	"exclusive_minimum":     "The number is too small.",
	"maximum":               "The number is too large.",
	"exclusive_maximum":     "The number is too large.",
	"then":                  "The value fails the part that its condition demands.",
	"else":                  "The value fails the part that its condition demands.",
}
