package eventtype

import (
	"encoding/json"
	"math/big"
	"slices"

	"github.com/erpbackbone/backbone/domain/schema"
)

// containment decides whether every document that one schema accepts is accepted by another. A yes
// is always right. A no may be wrong: what the containment cannot prove, or not within maxSteps,
// counts as no.
type containment struct {
	steps int
	depth int
	// A pair of schemas that is being compared counts as contained if the recursion reaches it
	// again: a document is finite, so a difference would be found elsewhere. Only negative
	// results are cached, because positive ones may rest on that assumption.
	open    map[nodePair]bool
	refuted map[nodePair]bool
}

// nodePair is two schemas that are compared.
type nodePair struct {
	docA, docB *schema.Document
	atA, atB   string
}

func pairOf(a, b schema.Node) nodePair { return nodePair{a.Doc, b.Doc, a.At, b.At} }

func newContainment() *containment {
	return &containment{open: map[nodePair]bool{}, refuted: map[nodePair]bool{}}
}

func (c *containment) exhausted() bool { return c.steps > maxSteps }

// isContained reports whether b provably accepts every value that a accepts.
func (c *containment) isContained(a, b schema.Node) bool {
	if c.steps++; c.exhausted() || c.depth > maxNesting {
		return false
	}
	c.depth++
	defer func() { c.depth-- }()
	a, okA := a.Resolve()
	b, okB := b.Resolve()
	if !okB {
		return false
	}
	if !okA {
		a = anySchema(a.Doc) // a reference without target may accept anything
	}
	if a.IsDerived() || b.IsDerived() {
		return c.proveContained(a, b)
	}
	pair := pairOf(a, b)
	if c.refuted[pair] {
		return false
	}
	if c.open[pair] {
		return true
	}
	c.open[pair] = true
	isProven := c.proveContained(a, b)
	delete(c.open, pair)
	c.refuted[pair] = !isProven
	return isProven
}

// isEquivalent reports whether two schemas provably accept the same values.
func (c *containment) isEquivalent(a, b schema.Node) bool {
	return c.isContained(a, b) && c.isContained(b, a)
}

func (c *containment) proveContained(a, b schema.Node) bool {
	if v, ok := b.Value.(bool); ok && (v || a.Value == false) {
		return true
	}
	if a.Value == false {
		return true
	}
	if b.Value == false {
		return false
	}
	wordsA, wordsB := a.Keywords(), b.Keywords()
	if values, ok := listedValues(wordsA); ok {
		if !slices.ContainsFunc(values, func(v any) bool { return !c.accepts(b, v) }) {
			return true
		}
	}
	if typesOf(wordsA) == 0 {
		return true
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		alternatives := schemaList(wordsA, keyword)
		if len(alternatives) > 0 && c.all(alternatives, func(i int, s any) bool { return c.isContained(a.Child(s, keyword, number(i)), b) }) {
			return true
		}
	}
	for i, s := range schemaList(wordsA, "allOf") {
		if c.isContained(a.Child(s, "allOf", number(i)), b) {
			return true
		}
	}
	return c.keywordsContained(a, b, wordsA, wordsB)
}

func (c *containment) all(list []any, f func(int, any) bool) bool {
	for i, s := range list {
		if !f(i, s) {
			return false
		}
	}
	return true
}

// keywordsContained proves each constraint of b by itself.
func (c *containment) keywordsContained(a, b schema.Node, wordsA, wordsB map[string]any) bool {
	types := typesOf(wordsA)
	if _, has := wordsB["type"]; has && types&^typesOf(map[string]any{"type": wordsB["type"]}) != 0 {
		return false
	}
	if _, bounded := listedValues(wordsB); bounded {
		values, ok := listedValues(wordsA)
		if !ok || slices.ContainsFunc(values, func(v any) bool { return !isListed(wordsB, v) }) {
			return false
		}
	}
	if types&isNumber != 0 && !numbersWithin(wordsA, wordsB, types) {
		return false
	}
	if types&isString != 0 && (!atLeast(wordsA, wordsB, "minLength") || !atMost(wordsA, wordsB, "maxLength") || !equalWord(wordsA, wordsB, "pattern")) {
		return false
	}
	if types&(isString|isNumber) != 0 && !equalWord(wordsA, wordsB, "format") {
		return false
	}
	if types&isArray != 0 && !c.arraysContained(a, b, wordsA, wordsB) {
		return false
	}
	if types&isObject != 0 && !c.objectsContained(a, b, wordsA, wordsB) {
		return false
	}
	return c.combinations(a, b, wordsA, wordsB)
}

func isListed(words map[string]any, v any) bool {
	if c, ok := words["const"]; ok && !sameValue(c, v) {
		return false
	}
	if values, ok := words["enum"].([]any); ok {
		return slices.ContainsFunc(values, func(w any) bool { return sameValue(v, w) })
	}
	return true
}

// equalWord reports whether b lacks a keyword, or both schemas have the same value for it.
func equalWord(wordsA, wordsB map[string]any, keyword string) bool {
	want, has := wordsB[keyword]
	if !has {
		return true
	}
	have, has := wordsA[keyword]
	return has && sameValue(have, want)
}

func atLeast(wordsA, wordsB map[string]any, keyword string) bool {
	return bounded(wordsA, wordsB, keyword, func(a, b *big.Rat) bool { return a.Cmp(b) >= 0 })
}

func atMost(wordsA, wordsB map[string]any, keyword string) bool {
	return bounded(wordsA, wordsB, keyword, func(a, b *big.Rat) bool { return a.Cmp(b) <= 0 })
}

func bounded(wordsA, wordsB map[string]any, keyword string, holds func(a, b *big.Rat) bool) bool {
	want, has := wordsB[keyword]
	if !has {
		return true
	}
	limit, ok := rational(want)
	if !ok {
		return false
	}
	if limit.Sign() <= 0 && (keyword == "minLength" || keyword == "minItems" || keyword == "minProperties") {
		return true
	}
	have, ok := rational(wordsA[keyword])
	return ok && holds(have, limit)
}

// bound is a limit of numbers.
type bound struct {
	value *big.Rat
	open  bool // the value itself is excluded
}

// bounds reads the limits in both notations: exclusiveMinimum is a flag in draft 4 and a
// number in later drafts. known is false if one cannot be read.
func bounds(words map[string]any, inclusive, exclusive string, tighter func(a, b *big.Rat) bool) (out *bound, known bool) {
	if v, has := words[inclusive]; has {
		r, ok := rational(v)
		if !ok {
			return nil, false
		}
		out = &bound{value: r, open: words[exclusive] == true}
	}
	if v, isNumeral := words[exclusive].(json.Number); isNumeral {
		r, ok := rational(v)
		if !ok {
			return nil, false
		}
		if out == nil || !tighter(out.value, r) {
			out = &bound{value: r, open: true}
		}
	}
	return out, true
}

func numbersWithin(wordsA, wordsB map[string]any, types int) bool {
	for _, side := range []struct {
		inclusive, exclusive string
		tighter              func(a, b *big.Rat) bool
	}{
		{"minimum", "exclusiveMinimum", func(a, b *big.Rat) bool { return a.Cmp(b) > 0 }},
		{"maximum", "exclusiveMaximum", func(a, b *big.Rat) bool { return a.Cmp(b) < 0 }},
	} {
		want, known := bounds(wordsB, side.inclusive, side.exclusive, side.tighter)
		if !known {
			return false
		}
		if want == nil {
			continue
		}
		have, _ := bounds(wordsA, side.inclusive, side.exclusive, side.tighter)
		switch {
		case have == nil:
			return false
		case have.value.Cmp(want.value) == 0:
			if want.open && !have.open {
				return false
			}
		case !side.tighter(have.value, want.value):
			return false
		}
	}
	want, has := wordsB["multipleOf"]
	if !has {
		return true
	}
	unit, ok := rational(want)
	if !ok || unit.Sign() <= 0 {
		return false
	}
	if have, ok := rational(wordsA["multipleOf"]); ok {
		return new(big.Rat).Quo(have, unit).IsInt()
	}
	return types&isFraction == 0 && new(big.Rat).Inv(unit).IsInt()
}

func (c *containment) arraysContained(a, b schema.Node, wordsA, wordsB map[string]any) bool {
	if !atLeast(wordsA, wordsB, "minItems") || !atMost(wordsA, wordsB, "maxItems") {
		return false
	}
	if wordsB["uniqueItems"] == true && wordsA["uniqueItems"] != true {
		return false
	}
	if want, has := wordsB["contains"]; has {
		have, has := wordsA["contains"]
		if !has || !c.isContained(a.Child(have, "contains"), b.Child(want, "contains")) {
			return false
		}
	}
	for i := range max(len(schemaList(wordsA, "items")), len(schemaList(wordsB, "items"))) + 1 {
		if !c.isContained(element(a, wordsA, i), element(b, wordsB, i)) {
			return false
		}
	}
	return true
}

// element is the schema of an array's element at an index.
func element(n schema.Node, words map[string]any, i int) schema.Node {
	switch items := words["items"].(type) {
	case nil:
		return anySchema(n.Doc)
	case []any:
		if i < len(items) {
			return n.Child(items[i], "items", number(i))
		}
		if rest, has := words["additionalItems"]; has {
			return n.Child(rest, "additionalItems")
		}
		return anySchema(n.Doc)
	default:
		return n.Child(items, "items")
	}
}

func (c *containment) objectsContained(a, b schema.Node, wordsA, wordsB map[string]any) bool {
	if !atLeast(wordsA, wordsB, "minProperties") || !atMost(wordsA, wordsB, "maxProperties") {
		return false
	}
	required := names(wordsA["required"])
	for _, name := range names(wordsB["required"]) {
		if _, found := slices.BinarySearch(required, name); !found {
			return false
		}
	}
	if want, has := wordsB["propertyNames"]; has {
		have, has := wordsA["propertyNames"]
		if !has || !c.isContained(a.Child(have, "propertyNames"), b.Child(want, "propertyNames")) {
			return false
		}
	}
	return c.dependencies(a, b, wordsA, wordsB) && c.membersContained(a, b, wordsA, wordsB)
}

func (c *containment) dependencies(a, b schema.Node, wordsA, wordsB map[string]any) bool {
	have := schemasByName(wordsA, "dependencies")
	for name, want := range schemasByName(wordsB, "dependencies") {
		given, ok := have[name]
		if !ok {
			return false
		}
		_, wantNames := want.([]any)
		_, haveNames := given.([]any)
		switch {
		case wantNames != haveNames:
			return false
		case wantNames:
			there := names(given)
			if slices.ContainsFunc(names(want), func(n string) bool { return !slices.Contains(there, n) }) {
				return false
			}
		case !c.isContained(a.Child(given, "dependencies", name), b.Child(want, "dependencies", name)):
			return false
		}
	}
	return true
}

func (c *containment) membersContained(a, b schema.Node, wordsA, wordsB map[string]any) bool {
	propsA, propsB := schemasByName(wordsA, "properties"), schemasByName(wordsB, "properties")
	patternsA, patternsB := schemasByName(wordsA, "patternProperties"), schemasByName(wordsB, "patternProperties")
	for pattern, want := range patternsB {
		have, ok := patternsA[pattern]
		if !ok || !c.isContained(a.Child(have, "patternProperties", pattern), b.Child(want, "patternProperties", pattern)) {
			return false
		}
	}
	if len(patternsA) != len(patternsB) {
		// Names that match a pattern of a are none of its additional ones.
		_, isConstrained := wordsB["additionalProperties"]
		if isConstrained && wordsB["additionalProperties"] != true {
			return false
		}
	}
	for _, name := range keys(propsA, propsB) {
		have, want := additional(a, wordsA), additional(b, wordsB)
		if len(patternsA) > 0 {
			have = anySchema(a.Doc) // the name may match a pattern instead
		}
		if v, ok := propsA[name]; ok {
			have = a.Child(v, "properties", name)
		}
		if v, ok := propsB[name]; ok {
			want = b.Child(v, "properties", name)
		}
		if !c.isContained(have, want) { // the patterns of b that the name matches are patterns of a as well
			return false
		}
	}
	return c.isContained(additional(a, wordsA), additional(b, wordsB))
}

// additional is the schema of the members that are not named.
func additional(n schema.Node, words map[string]any) schema.Node {
	if v, has := words["additionalProperties"]; has {
		return n.Child(v, "additionalProperties")
	}
	return anySchema(n.Doc)
}

func (c *containment) combinations(a, b schema.Node, wordsA, wordsB map[string]any) bool {
	if !c.all(schemaList(wordsB, "allOf"), func(i int, s any) bool { return c.isContained(a, b.Child(s, "allOf", number(i))) }) {
		return false
	}
	if alternatives := schemaList(wordsB, "anyOf"); len(alternatives) > 0 {
		isProven := false
		for i, s := range alternatives {
			isProven = isProven || c.isContained(a, b.Child(s, "anyOf", number(i)))
		}
		if !isProven && !c.alternatives(a, b, wordsA, wordsB, "anyOf") {
			return false
		}
	}
	if len(schemaList(wordsB, "oneOf")) > 0 && !c.exclusive(a, b, wordsA, wordsB) {
		return false
	}
	if want, has := wordsB["not"]; has {
		have, has := wordsA["not"]
		if !has || !c.isContained(b.Child(want, "not"), a.Child(have, "not")) {
			return false
		}
	}
	if want, has := wordsB["if"]; has {
		have, has := wordsA["if"]
		if !has || !c.isEquivalent(a.Child(have, "if"), b.Child(want, "if")) {
			return false
		}
		for _, branch := range []string{"then", "else"} {
			if want, has := wordsB[branch]; has {
				have, has := wordsA[branch]
				if !has || !c.isContained(a.Child(have, branch), b.Child(want, branch)) {
					return false
				}
			}
		}
	}
	return true
}

// alternatives proves that each alternative of a is contained in one of b.
func (c *containment) alternatives(a, b schema.Node, wordsA, wordsB map[string]any, keyword string) bool {
	have := schemaList(wordsA, keyword)
	return len(have) > 0 && c.all(have, func(i int, s any) bool {
		return !c.all(schemaList(wordsB, keyword), func(j int, t any) bool {
			return !c.isContained(a.Child(s, keyword, number(i)), b.Child(t, keyword, number(j)))
		})
	})
}

// exclusive proves that both schemas have the same oneOf alternatives: with a further one,
// two could apply at once.
func (c *containment) exclusive(a, b schema.Node, wordsA, wordsB map[string]any) bool {
	have, want := schemaList(wordsA, "oneOf"), schemaList(wordsB, "oneOf")
	if len(have) != len(want) {
		return false
	}
	return c.all(have, func(i int, s any) bool {
		return c.isEquivalent(a.Child(s, "oneOf", number(i)), b.Child(want[i], "oneOf", number(i)))
	})
}
