package eventtype

import (
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/schema"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Declares reports whether the schema of the data names the members of a path, such as
// {"lines", "account"} for $.lines[*].account, or may name them where that cannot be
// decided: in members by pattern, or behind a reference without target. Members
// that a schema merely allows are not declared.
func (r *Registration) Declares(path []string) bool {
	doc, ok := parse(r.DataSchema)
	return !ok || declares(doc.Root(), path, 0)
}

func declares(n schema.Node, path []string, depth int) bool {
	n, ok := n.Resolve()
	if !ok || depth > maxNesting {
		return true
	}
	words := n.Keywords()
	if len(path) == 0 || len(words) == 0 && n.Value == true && depth > 0 {
		return true
	}
	if inner, has := schemasByName(words, "properties")[path[0]]; has && declares(n.Child(inner, "properties", path[0]), path[1:], depth+1) {
		return true
	}
	if _, byPattern := words["patternProperties"]; byPattern {
		return true
	}
	if _, named := words["additionalProperties"].(map[string]any); named {
		return true
	}
	if _, byIndex := words["items"].([]any); byIndex {
		return true
	}
	for _, p := range n.Doc.Derive(words).Parts() {
		switch p.Name {
		case "allOf", "anyOf", "oneOf", "if", "then", "else":
		case "items": // a path leads into every element
			if _, isObject := p.Value.(map[string]any); !isObject {
				continue
			}
		default:
			continue
		}
		if declares(p.Node, path, depth+1) {
			return true
		}
	}
	return false
}

// maxKeyFindings bounds the findings of CheckBusinessKeys.
const maxKeyFindings = 100

// CheckBusinessKeys finds business keys that an event could leave unclaimed although it carries
// their fields, so that a duplicate of a held key would pass: fields that the schema does not declare,
// such as one that a new version renames, because a key's fields never change; and fields that may
// hold something other than a string or a number, which no event can claim. Null and a text that is
// empty once normalised are no values. A field whose schema is not found by its name under properties
// may hold anything.
func (r *Registration) CheckBusinessKeys() (found []fault.Violation) {
	doc, ok := parse(r.DataSchema)
	if !ok {
		return nil // another check refuses it
	}
	add := func(field, code, detail string) {
		found = append(found, fault.Violation{Field: field, Code: code, Detail: detail})
	}
	unknown := func(field string) {
		add(field, "event_type.business_key_unknown_field", "the data schema does not declare this member, so events would claim no key; declare it, or register a type of its own")
	}
	members := memberTypes{root: doc.Root()}
	for i, k := range r.BusinessKeys {
		for j, name := range k.Fields {
			types := members.of(name)
			if isClaimable := types&(isString|isNumber) != 0 && types&^(isString|isNumber|isNull|isAbsent) == 0; isClaimable {
				continue
			}
			field := fmt.Sprintf("/business_keys/%d/fields/%d", i, j)
			if declares(doc.Root(), []string{name}, 0) {
				add(field, "event_type.business_key_field_type",
					"events may hold something other than a string or a number here, which claims no key; name the member under properties with type string, number or integer, or register a type of its own")
			} else {
				unknown(field)
			}
			if len(found) >= maxKeyFindings {
				return found
			}
		}
		if k.Document != "" && !declares(doc.Root(), []string{k.Document}, 0) {
			unknown(fmt.Sprintf("/business_keys/%d/document", i))
		}
	}
	return found
}

// memberTypes finds the JSON types that members of an object may have. It may name too many types,
// never too few: beyond maxSteps and maxNesting it names all.
type memberTypes struct {
	root  schema.Node
	steps int
}

// of gives the types of the member with a name, and isAbsent if the object may lack it.
func (m *memberTypes) of(name string) int { return m.typesAt(m.root, []string{name}, 0) }

// typesAt gives the types of a value, or with a path those of its member.
func (m *memberTypes) typesAt(n schema.Node, path []string, depth int) int {
	n, ok := n.Resolve()
	if !ok || m.steps > maxSteps || depth > maxNesting {
		return isAnyType | isAbsent
	}
	if n.Value == false {
		return 0
	}
	words := n.Keywords()
	values, _ := listedValues(words)
	required := schemaList(words, "required")
	m.steps += 1 + len(words) + len(values) + len(required)
	out := typesOf(words)
	if len(path) > 0 {
		if out&isObject == 0 {
			return 0
		}
		out = isAnyType
		if member, isNamed := schemasByName(words, "properties")[path[0]]; isNamed {
			out &= m.typesAt(n.Child(member, "properties", path[0]), nil, depth+1)
		}
		if !slices.Contains(required, any(path[0])) {
			out |= isAbsent
		}
	}
	for i, s := range schemaList(words, "allOf") {
		out &= m.typesAt(n.Child(s, "allOf", number(i)), path, depth+1)
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		either := 0
		for i, s := range schemaList(words, keyword) {
			either |= m.typesAt(n.Child(s, keyword, number(i)), path, depth+1)
		}
		if len(schemaList(words, keyword)) > 0 {
			out &= either
		}
	}
	return out
}

// Manifest reads declarations of personal data. The findings, with pointers below
// /pii_fields, are those of shredding.ParseManifest.
func Manifest(declared []PIIField) (*shredding.Manifest, []fault.Violation) {
	if len(declared) == 0 {
		return nil, nil
	}
	return shredding.ParseManifest(declared)
}

// CheckPersonal looks for what would let events of the type hold personal data in
// clear or without a subject, also where nothing is declared. The findings, with
// pointers into the registration, are those of shredding.ParseManifest and
// shredding.Manifest.Check.
func (r *Registration) CheckPersonal() []fault.Violation {
	m, found := Manifest(r.PIIFields)
	if len(found) > 0 {
		return found
	}
	t := shredding.EventType{Schema: r.DataSchema}
	for _, ref := range r.RequiredEntityRefs {
		t.Roles = append(t.Roles, shredding.Role{Name: ref.Role, One: ref.Cardinality == One})
	}
	for _, k := range r.BusinessKeys {
		t.BusinessKeys = append(t.BusinessKeys, shredding.BusinessKey{Fields: k.Fields, Document: k.Document})
	}
	return m.Check(t)
}
