package shredding

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// schemaBudget bounds the work on one schema: definitions that use one another
// can spell out exponentially many paths.
const schemaBudget = 50_000

// schema is a JSON Schema of drafts 4 to 7 whose references are local. Places in
// it are RFC 6901 pointers.
type schema struct {
	root      any
	budget    int
	known     map[string]any
	recursive map[string]bool
}

func parseSchema(raw []byte) (*schema, bool) {
	s := &schema{budget: schemaBudget, known: map[string]any{}, recursive: map[string]bool{}}
	if json.Unmarshal(raw, &s.root) != nil {
		return nil, false
	}
	_, ok := s.root.(map[string]any)
	return s, ok
}

// draft4 reports whether the schema is of the draft that has no const.
func (s *schema) draft4() bool {
	draft, _ := s.at("/$schema").(string)
	return strings.Contains(draft, "draft-04")
}

// spend counts one step of work, false when none is left.
func (s *schema) spend() bool {
	s.budget--
	return s.budget > 0
}

// at gives what stands at a place.
func (s *schema) at(place string) (v any) {
	if v, ok := s.known[place]; ok {
		return v
	}
	defer func() { s.known[place] = v }()
	v = s.root
	for _, token := range strings.Split(place, "/")[1:] {
		token = jsondoc.UnescapeToken(token)
		switch t := v.(type) {
		case map[string]any:
			v = t[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(t) {
				return nil
			}
			v = t[i]
		default:
			return nil
		}
	}
	return v
}

// node is a schema that is no reference.
type node struct {
	place string
	words map[string]any // nil for a boolean schema
	never bool           // the schema false
}

// node follows references from a place. ok is false if they lead nowhere.
func (s *schema) node(place string) (n node, ok bool) {
	for range 64 {
		switch t := s.at(place).(type) {
		case bool:
			return node{place: place, never: !t}, true
		case map[string]any:
			ref, isRef := t["$ref"].(string)
			if !isRef {
				return node{place: place, words: t}, true
			}
			target, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
			if err != nil || !strings.HasPrefix(ref, "#") || target != "" && target[0] != '/' {
				return node{}, false
			}
			place = target
		default:
			return node{}, false
		}
	}
	return node{}, false
}

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

// child is the place of what a step leads to.
func (n node) child(step string) (place string, ok bool) {
	if step == each {
		_, ok = n.words["items"].(map[string]any)
		return n.place + "/items", ok
	}
	members, _ := n.words["properties"].(map[string]any)
	v, ok := members[step]
	return n.place + "/properties" + string(appendToken(nil, step)), ok && v != false
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

// variants gives the shapes that a value may have, null aside: the schema itself
// if it declares members or elements, otherwise the branches of oneOf or anyOf,
// otherwise the first part of allOf that declares something. Whatever else the
// schema says narrows these shapes only.
func (s *schema) variants(place string) []node {
	n, ok := s.node(place)
	if !ok || n.never || !s.spend() {
		return nil
	}
	if n.words["properties"] == nil && n.words["items"] == nil && n.words["type"] == nil {
		for _, word := range []string{"oneOf", "anyOf"} {
			branches, ok := n.words[word].([]any)
			if !ok {
				continue
			}
			var all []node
			for i := range branches {
				all = append(all, s.variants(n.place+"/"+word+"/"+strconv.Itoa(i))...)
			}
			return all
		}
		parts, _ := n.words["allOf"].([]any)
		for i := range parts {
			all := s.variants(n.place + "/allOf/" + strconv.Itoa(i))
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

// mayHold reports whether the steps can lead to a value from the node.
func (s *schema) mayHold(n node, steps []string) bool {
	if len(steps) == 0 || !s.spend() {
		return true
	}
	place, ok := n.child(steps[0])
	return ok && slices.ContainsFunc(s.variantsOrSelf(place), func(v node) bool { return s.mayHold(v, steps[1:]) })
}

// variantsOrSelf keeps a schema that has no shape, such as null, as one.
func (s *schema) variantsOrSelf(place string) []node {
	if all := s.variants(place); len(all) > 0 {
		return all
	}
	return []node{{place: place}}
}

// guarantees reports whether the steps, all of them names, always lead from the
// node to a text.
func (s *schema) guarantees(n node, steps []string) bool {
	if !s.spend() {
		return false
	}
	if len(steps) == 0 {
		return n.is("string", false)
	}
	place, ok := n.child(steps[0])
	if !ok || !n.is("object", false) || !n.requires(steps[0]) {
		return false
	}
	all := s.variants(place)
	return len(all) > 0 && !s.nullable(place) && !slices.ContainsFunc(all, func(v node) bool { return !s.guarantees(v, steps[1:]) })
}

// nullable reports whether a branch of the value is null alone, which variants
// leaves out.
func (s *schema) nullable(place string) bool {
	n, ok := s.node(place)
	if !ok || !s.spend() || n.isNull() {
		return true
	}
	for _, word := range []string{"oneOf", "anyOf", "allOf"} {
		branches, _ := n.words[word].([]any)
		for i := range branches {
			if s.nullable(n.place + "/" + word + "/" + strconv.Itoa(i)) {
				return true
			}
		}
	}
	return false
}

// names reports whether every value that holds the field also holds the subject.
// The first shared steps of both lead through the same elements.
func (s *schema) names(place string, field, subject []string, shared int) bool {
	for _, v := range s.variants(place) {
		switch {
		case !s.spend():
			return false
		case shared > 0:
			if inner, ok := v.child(field[0]); ok && !s.names(inner, field[1:], subject[1:], shared-1) {
				return false
			}
		case s.mayHold(v, field) && !s.guarantees(v, subject):
			return false
		}
	}
	return true
}

// repeats reports whether the schema at a place, which is no reference, stands
// inside itself.
func (s *schema) repeats(place string) bool {
	if known, ok := s.recursive[place]; ok {
		return known
	}
	seen := map[string]bool{}
	var within func(string) bool
	within = func(at string) bool {
		n, ok := s.node(at)
		if !ok || seen[n.place] {
			return ok && n.place == place
		}
		if seen[n.place] = true; !s.spend() {
			return true
		}
		return slices.ContainsFunc(n.parts(), func(p part) bool { return within(p.place) })
	}
	s.recursive[place] = within(place)
	return s.recursive[place]
}

// part is a schema inside another.
type part struct {
	place   string
	step    string // to the value it is about; "" for the same value
	pattern string // of the names of the members it is about
}

// unknown is the step to members whose names the schema does not tell; no path
// leads there.
const unknown = "*"

// parts lists the schemas inside a node that say what a value may hold. "if",
// "not" and "propertyNames" only test.
func (n node) parts() (out []part) {
	add := func(step string, tokens ...string) {
		at := n.place
		for _, t := range tokens {
			at += string(appendToken(nil, t))
		}
		out = append(out, part{place: at, step: step})
	}
	for _, word := range slices.Sorted(maps.Keys(n.words)) {
		switch v := n.words[word].(type) {
		case map[string]any:
			switch word {
			case "then", "else":
				add("", word)
			case "items", "additionalItems", "contains":
				add(each, word)
			case "additionalProperties":
				add(unknown, word)
			case "properties", "patternProperties", "dependencies":
				for _, name := range slices.Sorted(maps.Keys(v)) {
					switch word {
					case "properties":
						add(name, word, name)
					case "patternProperties":
						add(unknown, word, name)
						out[len(out)-1].pattern = name
					default:
						add("", word, name) // a list of names is no schema and is passed over
					}
				}
			}
		case []any:
			for i := range v {
				switch word {
				case "allOf", "anyOf", "oneOf":
					add("", word, strconv.Itoa(i))
				case "items":
					add(each, word, strconv.Itoa(i))
				}
			}
		}
	}
	return out
}
