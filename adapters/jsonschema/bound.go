package jsonschema

import (
	"strconv"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

func itoa(i int) string { return strconv.Itoa(i) }

// step is what one schema applies: to the same value, and to what is inside it.
type step struct {
	same                     []string // allOf, anyOf, oneOf, not, if, then, else, dependencies, $ref
	named                    []string // one of these applies to a member: properties, additionalProperties
	patterned                []string // all of these may apply to a member
	placed                   []string // one of these applies to an element: items, additionalItems
	contains                 []string
	names                    []string // applied to the name of a member
	excludesObj, excludesArr bool
}

// bound refuses schemas that apply to a value without end ("$ref" in a circle)
// or so often that the work doubles with every level of the document.
func (c *cleaned) bound() error {
	b := bounder{steps: make(map[string]step, len(c.schemas)), memo: map[visit]int{}, state: map[string]int{}}
	for at, s := range c.schemas {
		b.steps[at] = c.step(at, s)
	}
	for at := range c.schemas {
		if b.circular(at) {
			return refuse("", "has references that lead in a circle to the same value; break the circle")
		}
	}
	for depth := 0; depth <= maxDocumentDepth; depth++ {
		if b.below("", depth) > maxEvaluations {
			return refuse("", "applies more than %d schemas to one value; use fewer alternatives", maxEvaluations)
		}
	}
	return nil
}

func (c *cleaned) step(at string, s any) step {
	m, ok := s.(map[string]any)
	if !ok {
		return step{}
	}
	if target, ok := c.refs[at]; ok {
		return step{same: []string{target}}
	}
	var st step
	for _, k := range schemaList {
		for i := range asList(m[k]) {
			st.same = append(st.same, at+"/"+k+"/"+itoa(i))
		}
	}
	child := func(k string) []string {
		if _, ok := m[k]; ok {
			return []string{at + "/" + k}
		}
		return nil
	}
	for _, k := range []string{"not", "if", "then", "else"} {
		st.same = append(st.same, child(k)...)
	}
	members := func(k string) (out []string) {
		inner, _ := m[k].(map[string]any)
		for name, v := range inner {
			if _, isNames := v.([]any); !isNames {
				out = append(out, at+"/"+k+"/"+jsondoc.EscapeToken(name))
			}
		}
		return out
	}
	st.same = append(st.same, members("dependencies")...)
	st.named = append(members("properties"), child("additionalProperties")...)
	st.patterned = members("patternProperties")
	st.names = child("propertyNames")
	st.contains = child("contains")
	if parts := asList(m["items"]); parts != nil {
		for i := range parts {
			st.placed = append(st.placed, at+"/items/"+itoa(i))
		}
	} else {
		st.placed = child("items")
	}
	st.placed = append(st.placed, child("additionalItems")...)
	if types := typeNames(m["type"]); len(types) > 0 {
		st.excludesObj, st.excludesArr = !types["object"], !types["array"]
	}
	return st
}

func asList(v any) []any { l, _ := v.([]any); return l }

func typeNames(v any) map[string]bool {
	switch t := v.(type) {
	case string:
		return map[string]bool{t: true}
	case []any:
		out := make(map[string]bool, len(t))
		for _, x := range t {
			if s, ok := x.(string); ok {
				out[s] = true
			}
		}
		return out
	}
	return nil
}

type visit struct {
	at    string
	depth int
	array bool
}

type bounder struct {
	steps map[string]step
	memo  map[visit]int
	state map[string]int // 1: on the way, 2: done
}

func (b *bounder) circular(at string) bool {
	switch b.state[at] {
	case 1:
		return true
	case 2:
		return false
	}
	b.state[at] = 1
	for _, next := range b.steps[at].same {
		if b.circular(next) {
			return true
		}
	}
	b.state[at] = 2
	return false
}

// below gives how many schemas apply at most to one value that lies depth levels
// inside a value to which the schema applies, whatever the document.
func (b *bounder) below(at string, depth int) int {
	return max(b.count(visit{at, depth, false}), b.count(visit{at, depth, true}))
}

const saturated = 1 << 20

func (b *bounder) count(v visit) int {
	if n, ok := b.memo[v]; ok {
		return n
	}
	st := b.steps[v.at]
	n := 0
	switch {
	case v.depth == 0:
		n = 1
	case v.array && st.excludesArr, !v.array && st.excludesObj:
		b.memo[v] = 0
		return 0
	case v.array:
		n = b.largest(st.placed, v.depth-1) + b.sum(st.contains, v.depth-1)
	default:
		n = b.largest(st.named, v.depth-1) + b.sum(st.patterned, v.depth-1)
		if v.depth == 1 {
			n += b.sum(st.names, 0)
		}
	}
	for _, next := range st.same {
		n += b.count(visit{next, v.depth, v.array})
	}
	n = min(n, saturated)
	b.memo[v] = n
	return n
}

func (b *bounder) largest(schemas []string, depth int) int {
	n := 0
	for _, s := range schemas {
		n = max(n, b.below(s, depth))
	}
	return n
}

func (b *bounder) sum(schemas []string, depth int) int {
	n := 0
	for _, s := range schemas {
		n += b.below(s, depth)
	}
	return min(n, saturated)
}
