package shredding

import (
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/schema"
)

// schemaBudget bounds the work on one schema: definitions that use one another
// can spell out exponentially many paths.
const schemaBudget = 50_000

// schemaWalk follows the paths of data through a JSON Schema.
type schemaWalk struct {
	doc       *schema.Document
	budget    int
	recursive map[string]bool // by pointer, what repeats has found
}

// spend counts one step of work, false when none is left.
func (s *schemaWalk) spend() bool {
	s.budget--
	return s.budget > 0
}

// node is a schema that is no reference.
type node struct {
	schema.Node
	words map[string]any // nil for a boolean schema
}

// resolve follows references. ok is false if they have no schema as target.
func resolve(from schema.Node) (n node, ok bool) {
	target, ok := from.Resolve()
	words, isObject := target.Value.(map[string]any)
	_, isFlag := target.Value.(bool)
	return node{target, words}, ok && (isObject || isFlag)
}

// acceptsNothing reports whether the schema is false.
func (n node) acceptsNothing() bool { return n.Value == false }

// types lists what the keyword type allows; nil is anything.
func (n node) types() []string {
	switch t := n.words["type"].(type) {
	case string:
		return []string{t}
	case []any:
		out := make([]string, 0, len(t))
		for _, x := range t {
			name, _ := x.(string)
			out = append(out, name)
		}
		return out
	}
	return nil
}

// is reports whether the type is the one given, or null where that is allowed too.
func (n node) is(kind string, orNull bool) bool {
	types := n.types()
	return slices.Contains(types, kind) && !slices.ContainsFunc(types, func(t string) bool { return t != kind && (t != "null" || !orNull) })
}

func (n node) isNull() bool { return len(n.types()) == 1 && n.is("null", true) }

// at is the schema that a step leads to.
func (n node) at(step string) (inner schema.Node, ok bool) {
	if step == each {
		items, ok := n.words["items"].(map[string]any)
		return n.Child(items, "items"), ok
	}
	members, _ := n.words["properties"].(map[string]any)
	v, ok := members[step]
	return n.Child(v, "properties", step), ok && v != false
}

// closed reports whether a step leads out of a node of one known shape: a list of
// one schema, or an object that has declared members only.
func (n node) closed(step string) bool {
	if step == each {
		return n.is("array", true)
	}
	return n.is("object", true) && n.words["additionalProperties"] == false && n.words["patternProperties"] == nil
}

func (n node) requires(name string) bool {
	list, _ := n.words["required"].([]any)
	return slices.Contains(list, any(name))
}

// variants lists the shapes that a value may have, except null: the schema itself if it
// declares members or elements, otherwise the branches of oneOf or anyOf, otherwise the first
// part of allOf that declares something. Whatever else the schema says only narrows these
// shapes.
func (s *schemaWalk) variants(at schema.Node) []node {
	n, ok := resolve(at)
	if !ok || n.acceptsNothing() || !s.spend() {
		return nil
	}
	if n.words["properties"] == nil && n.words["items"] == nil && n.words["type"] == nil {
		for _, keyword := range []string{"oneOf", "anyOf"} {
			if _, ok := n.words[keyword].([]any); !ok {
				continue
			}
			var all []node
			for _, branch := range n.branches(keyword) {
				all = append(all, s.variants(branch)...)
			}
			return all
		}
		for _, part := range n.branches("allOf") {
			all := s.variants(part)
			if len(all) > 0 && !slices.ContainsFunc(all, func(v node) bool { return v.words["type"] == nil }) {
				return all
			}
		}
	}
	if n.isNull() {
		return nil
	}
	return []node{n}
}

// branches lists the schemas of allOf, anyOf and oneOf.
func (n node) branches(keywords ...string) (out []schema.Node) {
	for _, keyword := range keywords {
		list, _ := n.words[keyword].([]any)
		for i, v := range list {
			out = append(out, n.Child(v, keyword, strconv.Itoa(i)))
		}
	}
	return out
}

// mayHold reports whether the steps can lead to a value from the node.
func (s *schemaWalk) mayHold(n node, steps []string) bool {
	if len(steps) == 0 || !s.spend() {
		return true
	}
	inner, ok := n.at(steps[0])
	if !ok {
		return false
	}
	all := s.variants(inner)
	if len(all) == 0 { // such as null: it holds a value of no further steps
		all = []node{{}}
	}
	return slices.ContainsFunc(all, func(v node) bool { return s.mayHold(v, steps[1:]) })
}

// guarantees reports whether the steps, all of them names, always lead from the node to a
// text.
func (s *schemaWalk) guarantees(n node, steps []string) bool {
	if !s.spend() {
		return false
	}
	if len(steps) == 0 {
		return n.is("string", false)
	}
	inner, ok := n.at(steps[0])
	if !ok || !n.is("object", false) || !n.requires(steps[0]) {
		return false
	}
	all := s.variants(inner)
	return len(all) > 0 && !s.nullable(inner) && !slices.ContainsFunc(all, func(v node) bool { return !s.guarantees(v, steps[1:]) })
}

// nullable reports whether a branch of the value is null alone, which variants leaves out.
func (s *schemaWalk) nullable(at schema.Node) bool {
	n, ok := resolve(at)
	return !ok || !s.spend() || n.isNull() || slices.ContainsFunc(n.branches("oneOf", "anyOf", "allOf"), s.nullable)
}

// names reports whether every value that holds the field also holds the subject. The first
// shared steps of both lead through the same elements.
func (s *schemaWalk) names(at schema.Node, field, subject []string, shared int) bool {
	for _, v := range s.variants(at) {
		switch {
		case !s.spend():
			return false
		case shared > 0:
			if inner, ok := v.at(field[0]); ok && !s.names(inner, field[1:], subject[1:], shared-1) {
				return false
			}
		case s.mayHold(v, field) && !s.guarantees(v, subject):
			return false
		}
	}
	return true
}

// repeats reports whether a schema contains itself.
func (s *schemaWalk) repeats(whole node) bool {
	if known, ok := s.recursive[whole.At]; ok {
		return known
	}
	seen := map[string]bool{}
	var within func(schema.Node) bool
	within = func(at schema.Node) bool {
		n, ok := resolve(at)
		if !ok || seen[n.At] {
			return ok && n.At == whole.At
		}
		if seen[n.At] = true; !s.spend() {
			return true
		}
		return slices.ContainsFunc(n.constraints(), func(p schema.Part) bool { return within(p.Node) })
	}
	s.recursive[whole.At] = within(whole.Node)
	return s.recursive[whole.At]
}

// constraints lists the schemas inside a node that say what a value may hold, by keyword.
// "if", "not" and "propertyNames" only test.
func (n node) constraints() []schema.Part {
	parts := slices.DeleteFunc(n.Parts(), func(p schema.Part) bool {
		_, isFlag := p.Value.(bool)
		isAlone := p.Form == schema.Single || p.At == n.At+"/items"
		return p.Target == schema.NoValue || p.Target == schema.MemberNames || p.Name == "if" || p.Name == "not" || isAlone && isFlag
	})
	slices.SortStableFunc(parts, func(a, b schema.Part) int { return strings.Compare(a.Name, b.Name) })
	return parts
}

// unknown is the step to members whose names the schema does not say; no path leads there.
const unknown = "*"

// stepTo is the step from a value to the one that a part of its schema is about, "" if that
// is the value itself.
func stepTo(p schema.Part) string {
	switch p.Target {
	case schema.NamedMember:
		return p.Member
	case schema.MatchingMembers, schema.OtherMembers:
		return unknown
	case schema.Elements, schema.OtherElements, schema.SomeElement:
		return each
	default:
		return ""
	}
}
