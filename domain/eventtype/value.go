package eventtype

import (
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/schema"
)

// Bounds of one comparison. Schemas that are not decided within them count as different.
const (
	maxComparedBytes = 1 << 20
	maxSteps         = 400_000
	maxNesting       = 200
	maxDifferences   = 200
)

// parse decodes a schema that is small enough to be compared.
func parse(data json.RawMessage) (*schema.Document, bool) {
	if len(data) > maxComparedBytes {
		return nil, false
	}
	return schema.Parse(data)
}

// anySchema is a schema without constraints.
func anySchema(d *schema.Document) schema.Node { return d.Derive(true) }

// The types of JSON values; a number is integral or not.
const (
	isNull = 1 << iota
	isBoolean
	isObject
	isArray
	isString
	isInteger
	isFraction
	isAbsent  // of a member: the object need not carry it
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

// sameValue compares two decoded JSON values, numbers as they are written: whether 1 and
// 1.0 are one value of an enum is for the validator to say.
func sameValue(a, b any) bool { return reflect.DeepEqual(a, b) }

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
