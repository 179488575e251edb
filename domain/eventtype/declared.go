package eventtype

import (
	"fmt"

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

// CheckBusinessKeys finds business keys over members that the schema does not declare: an event
// without them would claim nothing, so a duplicate of a held key would pass. A member that a new
// version renames is such a one, because a key's fields never change.
func (r *Registration) CheckBusinessKeys() (found []fault.Violation) {
	unknown := func(field, name string) {
		if !r.Declares([]string{name}) {
			found = append(found, fault.Violation{
				Field: field, Code: "event_type.business_key_unknown_field",
				Detail: "the data schema does not declare this member, so events would claim no key; declare it, or register a type of its own",
			})
		}
	}
	for i, k := range r.BusinessKeys {
		for j, name := range k.Fields {
			unknown(fmt.Sprintf("/business_keys/%d/fields/%d", i, j), name)
		}
		if k.Document != "" {
			unknown(fmt.Sprintf("/business_keys/%d/document", i), k.Document)
		}
	}
	return found
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
