// Package schema reads JSON Schemas of drafts 4 to 7 as documents.
//
// A Document is a decoded schema, a Node one schema inside it with its JSON pointer. Resolve
// follows local references, Parts lists the schemas inside a node by the table Keywords, which
// says for every keyword how it holds schemas and to which values these apply.
//
// domain/eventtype compares two versions with it, domain/shredding looks for undeclared
// personal data, adapters/jsonschema limits what a validation can cost. The package validates
// neither schemas nor documents: a malformed keyword has no parts.
package schema

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// Document is a decoded JSON Schema.
type Document struct {
	root  map[string]any
	draft int // 4, 6 or 7
}

// Parse decodes a schema and keeps numbers as they are written. ok is false unless raw is one
// JSON object.
func Parse(raw []byte) (d *Document, ok bool) {
	root, err := jsondoc.Decode(raw)
	object, ok := root.(map[string]any)
	if err != nil || !ok {
		return nil, false
	}
	d = &Document{root: object, draft: 7}
	uri, _ := object["$schema"].(string)
	switch {
	case strings.Contains(uri, "draft-04"):
		d.draft = 4
	case strings.Contains(uri, "draft-06"):
		d.draft = 6
	}
	return d, true
}

// Root is the whole schema.
func (d *Document) Root() Node { return Node{d, "", d.root} }

// IsDraft4 reports whether the schema is of the draft that has no const.
func (d *Document) IsDraft4() bool { return d.draft == 4 }

// derived is the pointer of schemas that are not part of the document.
const derived = "?"

// Node is a schema in a document.
type Node struct {
	Doc   *Document
	At    string // RFC 6901 in the document
	Value any    // an object or a boolean; anything else is not a schema
}

// Derive gives a schema that is not part of the document. Its references lead into it.
func (d *Document) Derive(value any) Node { return Node{d, derived, value} }

// IsDerived reports whether the schema, or one around it, comes from Derive.
func (n Node) IsDerived() bool { return n.At == derived }

// Child is a schema inside n, at a path of names.
func (n Node) Child(value any, path ...string) Node {
	if !n.IsDerived() {
		for _, name := range path {
			n.At += "/" + jsondoc.EscapeToken(name)
		}
	}
	n.Value = value
	return n
}

// maxReferences bounds a chain of references.
const maxReferences = 64

// Resolve follows references to the schema they refer to. ok is false if a reference has no
// target in the document, or the chain has no end.
func (n Node) Resolve() (target Node, ok bool) {
	for range maxReferences {
		object, _ := n.Value.(map[string]any)
		ref, has := object["$ref"]
		if !has {
			return n, true
		}
		pointer, isLocal := LocalReference(ref)
		if !isLocal {
			return n, false
		}
		next, found := n.Doc.At(pointer)
		if !found {
			return n, false
		}
		n = next
	}
	return n, false
}

// LocalReference gives the pointer that the value of $ref refers to in its own document.
func LocalReference(ref any) (pointer string, ok bool) {
	text, _ := ref.(string)
	fragment, isFragment := strings.CutPrefix(text, "#")
	pointer, err := url.PathUnescape(fragment)
	return pointer, isFragment && err == nil && (pointer == "" || pointer[0] == '/')
}

// At finds the value at a JSON pointer, which is empty or begins with "/".
func (d *Document) At(pointer string) (n Node, ok bool) {
	var v any = d.root
	for _, token := range strings.Split(pointer, "/")[1:] {
		switch inner := v.(type) {
		case map[string]any:
			v, ok = inner[jsondoc.UnescapeToken(token)]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(inner); ok {
				v = inner[i]
			}
		default:
			ok = false
		}
		if !ok {
			return Node{}, false
		}
	}
	return Node{d, pointer, v}, true
}

// Keywords gives the keywords that the document's draft defines, nil for a boolean schema.
func (n Node) Keywords() map[string]any {
	all, _ := n.Value.(map[string]any)
	if n.Doc.draft >= 7 {
		return all
	}
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(keyword string, v any) bool {
		switch keyword {
		case "if", "then", "else":
			return true
		case "const", "contains", "propertyNames":
			return n.Doc.draft == 4
		case "exclusiveMinimum", "exclusiveMaximum":
			_, isFlag := v.(bool)
			return isFlag != (n.Doc.draft == 4)
		}
		return false
	})
	return out
}

// Form says how a keyword holds schemas.
type Form int

// The forms.
const (
	Single       Form = iota // one schema
	SingleOrList             // one schema, or a list of schemas
	List                     // a list of schemas
	Named                    // an object of schemas
)

// Target says which values the schemas of a keyword apply to.
type Target int

// The targets. "Other" are the members and elements to which no schema beside it applies.
const (
	NoValue         Target = iota // a definition applies where a reference leads to it
	SameValue                     // the value itself
	NamedMember                   // the member of that name
	MatchingMembers               // the members whose names match a pattern
	OtherMembers
	MemberNames
	Elements // every element, or of a list of schemas the one at its index
	OtherElements
	SomeElement
)

// Keyword is a keyword that holds schemas.
type Keyword struct {
	Name   string
	Form   Form
	Target Target
}

// Keywords are all keywords of drafts 4 to 7 that hold schemas. A member of dependencies may
// be a list of names instead, which is not a schema.
var Keywords = []Keyword{
	{"additionalProperties", Single, OtherMembers},
	{"additionalItems", Single, OtherElements},
	{"propertyNames", Single, MemberNames},
	{"contains", Single, SomeElement},
	{"not", Single, SameValue},
	{"if", Single, SameValue},
	{"then", Single, SameValue},
	{"else", Single, SameValue},
	{"properties", Named, NamedMember},
	{"patternProperties", Named, MatchingMembers},
	{"definitions", Named, NoValue},
	{"$defs", Named, NoValue},
	{"allOf", List, SameValue},
	{"anyOf", List, SameValue},
	{"oneOf", List, SameValue},
	{"items", SingleOrList, Elements},
	{"dependencies", Named, SameValue},
}

// Part is a schema inside another.
type Part struct {
	Node
	Keyword
	Member string // its name or pattern, if the keyword's form is Named
}

// Parts lists the schemas directly inside n, references not followed, those of one keyword in
// order. It knows the keywords of all drafts.
func (n Node) Parts() (out []Part) {
	object, _ := n.Value.(map[string]any)
	for _, k := range Keywords {
		switch held := object[k.Name].(type) {
		case []any:
			if k.Form == List || k.Form == SingleOrList {
				for i, v := range held {
					out = append(out, Part{n.Child(v, k.Name, strconv.Itoa(i)), k, ""})
				}
			}
		case map[string]any:
			switch k.Form {
			case Single, SingleOrList:
				out = append(out, Part{n.Child(held, k.Name), k, ""})
			case Named:
				for _, name := range slices.Sorted(maps.Keys(held)) {
					if _, isNames := held[name].([]any); !isNames {
						out = append(out, Part{n.Child(held[name], k.Name, name), k, name})
					}
				}
			case List:
			}
		case bool:
			if k.Form == Single || k.Form == SingleOrList {
				out = append(out, Part{n.Child(held, k.Name), k, ""})
			}
		}
	}
	return out
}
