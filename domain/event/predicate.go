package event

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
	"unicode"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// Operator compares what an event's data hold with a value.
type Operator string

// The operators of predicates.
const (
	Equal          Operator = "eq"
	NotEqual       Operator = "ne"
	Greater        Operator = "gt"
	GreaterOrEqual Operator = "ge"
	Less           Operator = "lt"
	LessOrEqual    Operator = "le"
	Contains       Operator = "contains"
	Exists         Operator = "exists"
)

// Predicate is a question about the data of an event. Where the path meets an
// array, also without [*], each of its elements is looked at, and one that answers
// is enough; NotEqual is true if there is a value and none of them is equal. Values
// of different JSON types are neither equal nor in any order; texts are ordered by
// their bytes, numbers exactly.
type Predicate struct {
	Path     []string        // names of members, and EachElement
	Operator Operator        //
	Value    json.RawMessage // a JSON scalar; for Contains a string; nil for Exists
}

// EachElement is the step of a path into every element of an array.
const EachElement = "[*]"

// Limits of predicates and paths.
const (
	maxPath           = 1024 // bytes
	maxPathSteps      = 32   // as deep as documents may be
	maxPredicateValue = 1024 // bytes
)

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$`)

// isOutsideName reports whether a name in a path cannot have a character.
func isOutsideName(r rune) bool {
	return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// ParsePredicate reads a predicate. The path is written like $.lines[*].account,
// by the grammar of manifests of personal data. The value is a JSON scalar; what is
// none is taken for text, so 42 is a number and "42" a text. Fault
// query.predicate_invalid, with the field path, operator or value.
func ParsePredicate(path, operator, value string) (*Predicate, error) {
	p := &Predicate{Operator: Operator(operator)}
	var ok bool
	if p.Path, ok = ParsePath(path); !ok {
		return nil, predicateInvalid("path", "a path is $ followed by .name and [*] only, the first step a name; write it like $.lines[*].account")
	}
	switch p.Operator {
	case Exists:
		if value != "" {
			return nil, predicateInvalid("value", "exists compares with nothing; leave the value out")
		}
		return p, nil
	case Equal, NotEqual, Greater, GreaterOrEqual, Less, LessOrEqual, Contains:
	default:
		return nil, predicateInvalid("operator", "the operator is one of eq, ne, gt, ge, lt, le, contains, exists; correct it")
	}
	if value == "" || len(value) > maxPredicateValue {
		return nil, predicateInvalid("value", `the value has 1 to 1024 bytes; write "" in quotes for the empty text`)
	}
	if p.Value, ok = p.Operator.value(value); !ok {
		return nil, predicateInvalid("value", "numbers have at most 40 digits, gt, ge, lt and le compare numbers and texts, contains looks for a text that is not empty; correct the value")
	}
	return p, nil
}

func predicateInvalid(field, detail string) error {
	return (&fault.Error{Kind: fault.Invalid, Code: "query.predicate_invalid", Detail: detail}).WithField(field)
}

// ParsePath reads a path into the data of events: $, then .name for a member and [*] for
// every element of an array, and nothing else. Names are letters, digits, _ and -. There is
// at least one step and the first is a name, because data is an object.
func ParsePath(text string) (steps []string, ok bool) {
	rest, ok := strings.CutPrefix(text, "$.")
	if !ok || len(text) > maxPath {
		return nil, false
	}
	for part := range strings.SplitSeq(rest, ".") {
		name, elements := part, 0
		for strings.HasSuffix(name, EachElement) {
			name, elements = strings.TrimSuffix(name, EachElement), elements+1
		}
		if name == "" || strings.IndexFunc(name, isOutsideName) >= 0 {
			return nil, false
		}
		steps = append(steps, name)
		for range elements {
			steps = append(steps, EachElement)
		}
	}
	return steps, len(steps) <= maxPathSteps
}

// value reads the scalar that the operator compares with.
func (o Operator) value(text string) (json.RawMessage, bool) {
	if text[0] == '"' {
		var unquoted string
		if json.Unmarshal([]byte(text), &unquoted) == nil {
			return quoted(unquoted), !strings.ContainsRune(unquoted, 0) && (o != Contains || unquoted != "")
		}
	}
	switch {
	case o == Contains:
		return quoted(text), true
	case jsonNumber.MatchString(text):
		return json.RawMessage(text), len(text) <= 40
	case text == "true", text == "false", text == "null":
		return json.RawMessage(text), o == Equal || o == NotEqual
	default:
		return quoted(text), true
	}
}

func quoted(text string) json.RawMessage {
	b, err := json.Marshal(text)
	if err != nil {
		return nil // a string always encodes
	}
	return b
}

// Text gives the text that Contains looks for.
func (p *Predicate) Text() string {
	var text string
	if json.Unmarshal(p.Value, &text) != nil {
		return ""
	}
	return text
}

// Within reports whether the predicate looks at what another path, written alike,
// leads to, or inside it. Steps into elements do not count, because a predicate
// takes them by itself.
func (p *Predicate) Within(other string) bool { return PathWithin(p.Path, other) }

// PathWithin is Predicate.Within for a path alone.
func PathWithin(path []string, other string) bool {
	inner, outer := nameSteps(path), strings.Split(strings.ReplaceAll(strings.TrimPrefix(other, "$."), EachElement, ""), ".")
	if len(inner) < len(outer) {
		return false
	}
	for i := range outer {
		if inner[i] != outer[i] {
			return false
		}
	}
	return true
}

func nameSteps(path []string) []string {
	out := make([]string, 0, len(path))
	for _, step := range path {
		if step != EachElement {
			out = append(out, step)
		}
	}
	return out
}

// Matches answers the predicate for a stored payload. One that is not there, or no
// JSON, matches nothing.
func (p *Predicate) Matches(payload []byte) bool {
	data, err := DecodeData(payload)
	if err != nil {
		return false
	}
	values := []any{data}
	for _, step := range p.Path {
		values = follow(values, step)
	}
	if p.Operator == Exists {
		return len(values) > 0
	}
	if p.Operator == Contains {
		text := p.Text()
		for _, v := range unfold(values) {
			if have, ok := v.(string); ok && strings.Contains(have, text) {
				return true
			}
		}
		return false
	}
	want, err := jsondoc.Decode(p.Value)
	if err != nil {
		return false
	}
	operator := p.Operator
	if operator == NotEqual {
		operator = Equal
	}
	found := false
	for _, v := range unfold(unfold(values)) {
		found = found || operator.compare(v, want)
	}
	if p.Operator == NotEqual {
		return len(values) > 0 && !found
	}
	return found
}

// follow takes one step of a path.
func follow(values []any, step string) []any {
	values = unfold(values)
	if step == EachElement {
		return values
	}
	var out []any
	for _, v := range values {
		if object, ok := v.(map[string]any); ok {
			if member, there := object[step]; there {
				out = append(out, member)
			}
		}
	}
	return out
}

// unfold puts an array's elements in its place.
func unfold(values []any) []any {
	out := make([]any, 0, len(values))
	for _, v := range values {
		if elements, ok := v.([]any); ok {
			out = append(out, elements...)
		} else {
			out = append(out, v)
		}
	}
	return out
}

func (o Operator) compare(have, want any) bool {
	switch w := want.(type) {
	case nil:
		return have == nil
	case bool:
		h, ok := have.(bool)
		return ok && h == w
	case string:
		h, ok := have.(string)
		return ok && o.holds(strings.Compare(h, w))
	case json.Number:
		h, ok := have.(json.Number)
		if !ok {
			return false
		}
		a, okA := new(big.Rat).SetString(h.String())
		b, okB := new(big.Rat).SetString(w.String())
		return okA && okB && o.holds(a.Cmp(b))
	default:
		return false
	}
}

func (o Operator) holds(order int) bool {
	switch o {
	case Equal:
		return order == 0
	case Greater:
		return order > 0
	case GreaterOrEqual:
		return order >= 0
	case Less:
		return order < 0
	case LessOrEqual:
		return order <= 0
	default:
		return false
	}
}
