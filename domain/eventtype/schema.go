package eventtype

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// Bounds of one comparison. What is not decided within them counts as different.
const (
	maxComparedBytes = 1 << 20
	maxSteps         = 400_000
	maxNesting       = 200
	maxDifferences   = 200
)

// document is a decoded JSON Schema whose references lead to places in it.
type document struct {
	root  any
	draft int // 4, 6 or 7: keywords of later drafts mean nothing
}

// node is a schema in a document.
type node struct {
	doc *document
	at  string // RFC 6901 in the document; "?" for a schema that stands nowhere
	v   any
}

var errNotSchemaObject = errors.New("not a JSON Schema object")

func parse(schema json.RawMessage) (*document, error) {
	if len(schema) > maxComparedBytes {
		return nil, errNotSchemaObject
	}
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil {
		return nil, errNotSchemaObject
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errNotSchemaObject
	}
	words, ok := root.(map[string]any)
	if !ok {
		return nil, errNotSchemaObject
	}
	doc := &document{root: root, draft: 7}
	if uri, ok := words["$schema"].(string); ok {
		switch {
		case strings.Contains(uri, "draft-04"):
			doc.draft = 4
		case strings.Contains(uri, "draft-06"):
			doc.draft = 6
		}
	}
	return doc, nil
}

func (d *document) node() node { return node{d, "", d.root} }

// anySchema is a schema without constraints.
func anySchema(d *document) node { return node{d, "?", true} }

func (n node) child(v any, path ...string) node {
	at := n.at
	if at != "?" {
		for _, p := range path {
			at += "/" + jsondoc.EscapeToken(p)
		}
	}
	return node{n.doc, at, v}
}

// resolve follows references to the schema they lead to. ok is false where a
// reference leads nowhere, outside or in a circle.
func (n node) resolve() (node, bool) {
	for range 64 {
		words, isObject := n.v.(map[string]any)
		if !isObject {
			return n, true
		}
		ref, has := words["$ref"]
		if !has {
			return n, true
		}
		text, isText := ref.(string)
		if !isText || !strings.HasPrefix(text, "#") {
			return n, false
		}
		next, found := n.doc.find(text[1:])
		if !found {
			return n, false
		}
		n = next
	}
	return n, false
}

func (d *document) find(fragment string) (node, bool) {
	pointer, err := url.PathUnescape(fragment)
	if err != nil {
		return node{}, false
	}
	if pointer == "" {
		return d.node(), true
	}
	if pointer[0] != '/' {
		return node{}, false
	}
	v := d.root
	for _, token := range strings.Split(pointer[1:], "/") {
		token = jsondoc.UnescapeToken(token)
		switch inner := v.(type) {
		case map[string]any:
			next, ok := inner[token]
			if !ok {
				return node{}, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(inner) {
				return node{}, false
			}
			v = inner[i]
		default:
			return node{}, false
		}
	}
	return node{d, pointer, v}, true
}

// words are the keywords that the document's draft knows; nil for a schema that is
// a boolean.
func (n node) words() map[string]any {
	all, ok := n.v.(map[string]any)
	if !ok || n.doc.draft >= 7 {
		return all
	}
	out := make(map[string]any, len(all))
	for k, v := range all {
		switch k {
		case "if", "then", "else":
			continue
		case "const", "contains", "propertyNames":
			if n.doc.draft == 4 {
				continue
			}
		case "exclusiveMinimum", "exclusiveMaximum":
			if _, isFlag := v.(bool); isFlag != (n.doc.draft == 4) {
				continue
			}
		}
		out[k] = v
	}
	return out
}

// The types of JSON values; a number is integral or not.
const (
	isNull = 1 << iota
	isBoolean
	isObject
	isArray
	isString
	isInteger
	isFraction
	isNumber  = isInteger | isFraction
	isAnyType = isNull | isBoolean | isObject | isArray | isString | isNumber
)

var typeBits = map[string]int{
	"null": isNull, "boolean": isBoolean, "object": isObject, "array": isArray, "string": isString, "integer": isInteger, "number": isNumber,
}

// typesOf gives the types that `type`, `enum` and `const` leave.
func typesOf(words map[string]any) int {
	out := isAnyType
	switch t := words["type"].(type) {
	case string:
		out = typeBits[t]
	case []any:
		out = 0
		for _, name := range t {
			if s, ok := name.(string); ok {
				out |= typeBits[s]
			}
		}
	}
	if values, ok := listedValues(words); ok {
		given := 0
		for _, v := range values {
			given |= typeOf(v)
		}
		out &= given
	}
	return out
}

func typeOf(v any) int {
	switch x := v.(type) {
	case nil:
		return isNull
	case bool:
		return isBoolean
	case map[string]any:
		return isObject
	case []any:
		return isArray
	case string:
		return isString
	case json.Number:
		if r, ok := rational(x); ok && r.IsInt() {
			return isInteger
		}
		return isFraction
	default:
		return isAnyType
	}
}

// listedValues gives the values that `const` or `enum` lists.
func listedValues(words map[string]any) ([]any, bool) {
	if v, ok := words["const"]; ok {
		return []any{v}, true
	}
	values, ok := words["enum"].([]any)
	return values, ok
}

// rational reads a number exactly. ok is false for one whose digits would fill
// memory.
func rational(v any) (*big.Rat, bool) {
	n, isNumeral := v.(json.Number)
	if !isNumeral || len(n) > 64 {
		return nil, false
	}
	if i := strings.IndexAny(string(n), "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(string(n[i+1:])); err != nil || exponent > 400 || exponent < -400 {
			return nil, false
		}
	}
	return new(big.Rat).SetString(string(n))
}

// sameValue compares two JSON values, numbers as they are written: whether 1 and
// 1.0 are one value of an enum is for the validator to say.
func sameValue(a, b any) bool {
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameValue)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, has := y[k]
			if !has || !sameValue(v, w) {
				return false
			}
		}
		return true
	default:
		switch b.(type) {
		case map[string]any, []any:
			return false
		}
		return a == b
	}
}

func schemasByName(words map[string]any, keyword string) map[string]any {
	m, _ := words[keyword].(map[string]any)
	return m
}

func schemaList(words map[string]any, keyword string) []any {
	l, _ := words[keyword].([]any)
	return l
}

// names lists the strings of a `required` or of a dependency.
func names(v any) []string {
	list, _ := v.([]any)
	out := make([]string, 0, len(list))
	for _, x := range list {
		if s, ok := x.(string); ok {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// keys gives the names of both maps in order.
func keys(maps ...map[string]any) []string {
	var out []string
	for _, m := range maps {
		for k := range m {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
