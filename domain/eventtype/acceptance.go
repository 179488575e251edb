package eventtype

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/schema"
)

func number(i int) string { return strconv.Itoa(i) }

// accepts reports whether a schema provably accepts a value. As with isContained a no may be
// wrong: a value with a format, for example, is never proven.
func (c *containment) accepts(n schema.Node, v any) bool {
	if c.steps++; c.exhausted() || c.depth > maxNesting {
		return false
	}
	c.depth++
	defer func() { c.depth-- }()
	n, ok := n.Resolve()
	if !ok {
		return false
	}
	if flag, isFlag := n.Value.(bool); isFlag {
		return flag
	}
	words := n.Keywords()
	if words == nil || typeOf(v)&^typesOf(map[string]any{"type": words["type"]}) != 0 || !isListed(words, v) {
		return false
	}
	for _, unproven := range []string{"not", "oneOf", "if"} {
		if _, has := words[unproven]; has {
			return false
		}
	}
	if !c.all(schemaList(words, "allOf"), func(i int, s any) bool { return c.accepts(n.Child(s, "allOf", number(i)), v) }) {
		return false
	}
	if alternatives := schemaList(words, "anyOf"); len(alternatives) > 0 && c.all(alternatives, func(i int, s any) bool {
		return !c.accepts(n.Child(s, "anyOf", number(i)), v)
	}) {
		return false
	}
	_, hasFormat := words["format"]
	switch x := v.(type) {
	case string:
		return !hasFormat && acceptsSize(words, "minLength", "maxLength", utf8.RuneCountInString(x)) && matches(words, x)
	case []any:
		return c.acceptsArray(n, words, x)
	case map[string]any:
		return c.acceptsObject(n, words, x)
	case nil, bool:
		return true
	default:
		return !hasFormat && acceptsNumber(words, v)
	}
}

// acceptsNumber treats a number as the range from itself to itself.
func acceptsNumber(words map[string]any, v any) bool {
	_, ok := rational(v)
	return ok && numbersWithin(map[string]any{"minimum": v, "maximum": v, "multipleOf": v}, words, typeOf(v))
}

// acceptsSize treats a length as the range from itself to itself.
func acceptsSize(words map[string]any, least, most string, size int) bool {
	is := json.Number(number(size))
	alone := map[string]any{least: is, most: is}
	return atLeast(alone, words, least) && atMost(alone, words, most)
}

func matches(words map[string]any, text string) bool {
	v, has := words["pattern"]
	if !has {
		return true
	}
	source, _ := v.(string)
	pattern, err := regexp.Compile(source)
	return err == nil && pattern.MatchString(text)
}

func (c *containment) acceptsArray(n schema.Node, words map[string]any, list []any) bool {
	if !acceptsSize(words, "minItems", "maxItems", len(list)) {
		return false
	}
	if words["uniqueItems"] == true {
		for i := range list {
			if typeOf(list[i])&(isString|isBoolean|isNull) == 0 || slices.Contains(list[:i], list[i]) {
				return false // not decided for numbers, arrays and objects
			}
		}
	}
	if want, has := words["contains"]; has && !slices.ContainsFunc(list, func(v any) bool { return c.accepts(n.Child(want, "contains"), v) }) {
		return false
	}
	return c.all(list, func(i int, v any) bool { return c.accepts(element(n, words, i), v) })
}

func (c *containment) acceptsObject(n schema.Node, words, members map[string]any) bool {
	for _, unproven := range []string{"dependencies", "propertyNames", "patternProperties"} {
		if _, has := words[unproven]; has {
			return false
		}
	}
	if !acceptsSize(words, "minProperties", "maxProperties", len(members)) {
		return false
	}
	for _, name := range names(words["required"]) {
		if _, has := members[name]; !has {
			return false
		}
	}
	properties := schemasByName(words, "properties")
	for name, v := range members {
		var s any = true
		if inner, has := properties[name]; has {
			s = inner
		} else if rest, has := words["additionalProperties"]; has {
			s = rest
		}
		if !c.accepts(n.Child(s, "properties", name), v) {
			return false
		}
	}
	return true
}
