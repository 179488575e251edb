package jsonschema

import (
	"cmp"
	"encoding/json"
	"math/bits"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// node is a schema of the common keywords, compiled for the scanner in scan.go. It is as
// strict as the schema or stricter: gojsonschema accepts every document that it accepts, and
// decides on all others.
type node struct {
	types      typeSet // 0: any
	members    map[string]member
	required   uint64 // one bit per required name
	additional *node  // for members not declared; nil: anything
	items      *node  // nil: anything
	minItems   int
	maxItems   int  // -1: no limit, as below
	someMember bool // minProperties 1
	maxMembers int
	minLength  int
	maxLength  int
	pattern    *regexp.Regexp
	format     func([]byte) bool
	choice     *choice // enum or const
	limits     []limit
	never      bool // false schema
	text       bool // has any keyword about strings
}

type member struct {
	schema   *node // nil: anything
	declared bool  // in properties; otherwise additional applies
	required uint64
}

type choice struct {
	texts                map[string]struct{}
	null, truth, untruth bool
}

type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeInteger
	typeNumber
	typeString
	typeArray
	typeObject
)

var typeBits = map[string]typeSet{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// typesOf gives the types that the keyword type lists.
func typesOf(v any) (out typeSet) {
	switch t := v.(type) {
	case string:
		return typeBits[t]
	case []any:
		for _, x := range t {
			name, _ := x.(string)
			out |= typeBits[name]
		}
	}
	return out
}

func (n *node) allows(t typeSet) bool { return n.types == 0 || n.types&t != 0 }

// compileAcceptor gives nil when the schema uses anything beyond the common
// keywords.
func compileAcceptor(c *stripped) *node {
	b := builder{c: c, nodes: make(map[string]*node, len(c.schemas)), ok: true}
	if root := b.build(""); b.ok {
		return root
	}
	return nil
}

// builder compiles nodes; ok turns false at the first keyword that is not common.
type builder struct {
	c     *stripped
	nodes map[string]*node
	ok    bool
}

func (b *builder) build(at string) *node {
	for range maxReferences { // circles were refused
		target, ok := b.c.refs[at]
		if !ok {
			break
		}
		at = target
	}
	if n, ok := b.nodes[at]; ok {
		return n
	}
	n := &node{maxItems: -1, maxLength: -1, maxMembers: -1}
	b.nodes[at] = n
	switch s := b.c.schemas[at].(type) {
	case bool:
		n.never = !s
	case map[string]any:
		for k, v := range s {
			b.keyword(n, s, k, v, at)
		}
	default:
		b.ok = false
	}
	n.text = n.maxLength >= 0 || n.minLength > 0 || n.pattern != nil || n.format != nil || n.choice != nil
	return n
}

func (b *builder) keyword(n *node, s map[string]any, k string, v any, at string) {
	switch k {
	case "$schema", "definitions", "$defs":
	case "type":
		n.types = typesOf(v)
	case "properties":
		inner, _ := v.(map[string]any)
		for name := range inner {
			m := n.member(name)
			m.schema, m.declared = b.build(at+"/properties/"+jsondoc.EscapeToken(name)), true
			n.members[name] = m
		}
	case "required":
		names, _ := v.([]any)
		for i, x := range names {
			if i >= 64 {
				b.ok = false
				return
			}
			name, _ := x.(string)
			m := n.member(name)
			m.required = 1 << i
			n.members[name] = m
			n.required |= m.required
		}
	case "additionalProperties":
		n.additional = b.build(at + "/additionalProperties")
		if v == true {
			n.additional = nil
		}
	case "items":
		if _, isList := v.([]any); isList {
			b.ok = false
			return
		}
		n.items = b.build(at + "/items")
	case "minProperties":
		// The scanner counts a repeated name twice.
		least := b.size(v)
		n.someMember, b.ok = least == 1, b.ok && least <= 1
	case "maxProperties":
		n.maxMembers = b.size(v)
	case "minItems":
		n.minItems = b.size(v)
	case "maxItems":
		n.maxItems = b.size(v)
	case "minLength":
		n.minLength = b.size(v)
	case "maxLength":
		n.maxLength = b.size(v)
	case "pattern":
		text, _ := v.(string)
		n.pattern = b.c.patterns[text]
	case "format":
		switch v {
		case "date":
			n.format = isDate[[]byte]
		case "date-time":
			n.format = isDateTime[[]byte]
		default:
			b.ok = false
		}
	case "enum", "const":
		values, _ := v.([]any)
		if k == "const" {
			values = []any{v}
		}
		b.choose(n, values)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		b.limit(n, s, k, v)
	default:
		b.ok = false
	}
}

func (n *node) member(name string) member {
	if n.members == nil {
		n.members = map[string]member{}
	}
	return n.members[name]
}

func (b *builder) size(v any) int {
	number, ok := v.(json.Number)
	if !ok {
		b.ok = false
		return 0
	}
	i, err := number.Int64()
	if err != nil || i < 0 || i > 1<<30 {
		b.ok = false
	}
	return int(i)
}

func (b *builder) choose(n *node, values []any) {
	if n.choice != nil { // enum and const together
		b.ok = false
		return
	}
	n.choice = &choice{texts: make(map[string]struct{}, len(values))}
	for _, x := range values {
		switch t := x.(type) {
		case string:
			n.choice.texts[t] = struct{}{}
		case nil:
			n.choice.null = true
		case bool:
			n.choice.truth = n.choice.truth || t
			n.choice.untruth = n.choice.untruth || !t
		default: // the library compares numbers as doubles
			b.ok = false
		}
	}
}

func (b *builder) limit(n *node, s map[string]any, k string, v any) {
	upper := strings.HasSuffix(strings.ToLower(k), "maximum")
	exclusive := strings.HasPrefix(k, "exclusive")
	if isExclusive, isFlag := v.(bool); isFlag { // draft 4: makes minimum or maximum exclusive
		base := "minimum"
		if upper {
			base = "maximum"
		}
		if v = s[base]; !isExclusive {
			b.ok = b.ok && v != nil
			return
		}
	}
	number, _ := v.(json.Number)
	value, ok := parseDecimal([]byte(number))
	b.ok = b.ok && ok
	n.limits = append(n.limits, limit{value, upper, exclusive})
}

// limit is one bound of a number.
type limit struct {
	value            decimal
	upper, exclusive bool
}

func (l limit) accepts(d decimal) bool {
	c, ok := d.compare(l.value)
	switch {
	case !ok:
		return false
	case c == 0:
		return !l.exclusive
	default:
		return (c < 0) == l.upper
	}
}

// decimal is an exact number of at most 18 digits: mantissa × 10^-scale.
type decimal struct {
	negative bool
	mantissa uint64
	scale    uint8
}

// parseDecimal reads a number that has the JSON grammar. It gives false for an
// exponent and for more than 18 digits.
func parseDecimal(s []byte) (decimal, bool) {
	var d decimal
	if len(s) > 0 && s[0] == '-' {
		d.negative, s = true, s[1:]
	}
	if len(s) == 0 || len(s) > 19 {
		return d, false
	}
	point, count := -1, 0
	for i, c := range s {
		switch {
		case c >= '0' && c <= '9':
			d.mantissa = d.mantissa*10 + uint64(c-'0')
			count++
		case c == '.' && point < 0:
			point = i
		default:
			return d, false
		}
	}
	if count == 0 || count > 18 {
		return d, false
	}
	if point >= 0 {
		d.scale = uint8(len(s) - 1 - point)
	}
	if d.mantissa == 0 {
		d.negative = false
	}
	return d, true
}

var powersOfTen = func() (p [19]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// compare gives -1, 0 or 1; false when the scales are too far apart.
func (d decimal) compare(o decimal) (int, bool) {
	if d.negative != o.negative {
		if d.negative {
			return -1, true
		}
		return 1, true
	}
	var dh, dl, oh, ol uint64 = 0, d.mantissa, 0, o.mantissa
	switch {
	case d.scale < o.scale:
		if int(o.scale-d.scale) >= len(powersOfTen) {
			return 0, false
		}
		dh, dl = bits.Mul64(d.mantissa, powersOfTen[o.scale-d.scale])
	case d.scale > o.scale:
		if int(d.scale-o.scale) >= len(powersOfTen) {
			return 0, false
		}
		oh, ol = bits.Mul64(o.mantissa, powersOfTen[d.scale-o.scale])
	}
	c := cmp.Or(cmp.Compare(dh, oh), cmp.Compare(dl, ol))
	if d.negative {
		c = -c
	}
	return c, true
}

// acceptsText checks the keywords about strings.
func (n *node) acceptsText(s []byte) bool {
	if n.maxLength >= 0 && len(s) > n.maxLength && utf8.RuneCount(s) > n.maxLength {
		return false
	}
	if n.minLength > 0 && (len(s) < n.minLength || utf8.RuneCount(s) < n.minLength) {
		return false
	}
	if n.pattern != nil && !n.pattern.Match(s) {
		return false
	}
	if n.format != nil && !n.format(s) {
		return false
	}
	if n.choice != nil {
		if _, ok := n.choice.texts[string(s)]; !ok {
			return false
		}
	}
	return true
}
