package shredding

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/schema"
)

// EventType is what a manifest is checked against: the rest of the registration.
type EventType struct {
	Schema       json.RawMessage // of data; references are local
	Roles        []Role          // the required entity references
	BusinessKeys []BusinessKey
}

// Role is a required entity reference.
type Role struct {
	Name string
	One  bool // cardinality is one
}

// BusinessKey is a natural key over top-level members of data.
type BusinessKey struct {
	Fields   []string
	Document string
}

// Check looks for what would let personal data be stored in clear or without a
// subject. The nil manifest is checked too, for members that should be declared.
// Findings point into the registration:
//
//	pii.path_not_in_schema     a path leads to nothing
//	pii.schema_open            an object on the way has undeclared members, or a value on the way another shape
//	pii.schema_recursive       a schema on the way contains itself, so that no path names every level
//	pii.subject_not_required   the field may occur without its subject
//	pii.role_unknown           the subject's role is not required exactly once
//	pii.business_key           a natural key reads a personal field
//	pii.undeclared             a member named like a person's datum is not declared and has no x-not-pii
//	pii.reason_missing         x-not-pii is no text
//	pii.schema_unreadable      the schema is no object, refers elsewhere or is too large
func (m *Manifest) Check(t EventType) []fault.Violation {
	var l findings
	doc, ok := schema.Parse(t.Schema)
	if !ok {
		l.add("/data_schema", "pii.schema_unreadable", "give a JSON Schema object")
		return l.found
	}
	s := &schemaWalk{doc: doc, budget: schemaBudget, recursive: map[string]bool{}}
	if m != nil {
		for i := range m.fields {
			l.field(s, fmt.Sprintf("/pii_fields/%d", i), &m.fields[i], t.Roles)
		}
		for i, k := range t.BusinessKeys {
			l.businessKey(fmt.Sprintf("/business_keys/%d", i), m, k)
		}
	}
	u := undeclared{schema: s, manifest: m, findings: &l, reported: map[string]bool{}}
	u.walk(doc.Root(), nil, nil, false, true)
	if s.budget <= 0 {
		l.add("/data_schema", "pii.schema_unreadable", "the schema spells out too many places to look for personal data; split the event type")
	}
	return l.found
}

func (l *findings) businessKey(at string, m *Manifest, k BusinessKey) {
	personal := func(name string) bool {
		return slices.ContainsFunc(m.fields, func(f field) bool { return f.path[0] == name })
	}
	for i, name := range k.Fields {
		if personal(name) {
			l.add(fmt.Sprintf("%s/fields/%d", at, i), "pii.business_key", "a natural key is kept for ever and cannot be made of personal data; use a surrogate id")
		}
	}
	if k.Document != "" && personal(k.Document) {
		l.add(at+"/document", "pii.business_key", "the document is shown to later claimants and cannot be personal; use a surrogate id")
	}
}

func (l *findings) field(s *schemaWalk, at string, f *field, roles []Role) {
	if !l.path(s, at+"/path", f.path) {
		return
	}
	if f.role != "" {
		count, one := 0, false
		for _, r := range roles {
			if r.Name == f.role {
				count, one = count+1, r.One
			}
		}
		if count != 1 || !one {
			l.add(at+"/subject/entity_role", "pii.role_unknown", "require one entity reference with this role, cardinality one")
		}
		return
	}
	if l.path(s, at+"/subject/path", f.subject) && !s.names(s.doc.Root(), f.path, f.subject, f.shared) {
		l.add(at+"/subject/path", "pii.subject_not_required", "require the subject's id, a string, wherever the field may occur")
	}
}

// path follows a path through every shape of the values on its way.
func (l *findings) path(s *schemaWalk, at string, steps []string) bool {
	schemas := []schema.Node{s.doc.Root()}
	for i, step := range steps {
		var next []schema.Node
		unsaid := false // a list of anything
		for _, outer := range schemas {
			for _, v := range s.variants(outer) {
				switch {
				case !v.closed(step):
					l.add(at, "pii.schema_open", `%s must be an object with "additionalProperties": false or an array, and nothing else, wherever the path leads through it`, pathText(steps[:i]))
					return false
				case s.repeats(v):
					l.add(at, "pii.schema_recursive", "the schema of %s contains itself, so no path names every level; declare a whole value further out", pathText(steps[:i]))
					return false
				}
				inner, ok := v.at(step)
				if ok && !slices.ContainsFunc(next, func(n schema.Node) bool { return n.At == inner.At }) {
					next = append(next, inner)
				}
				unsaid = unsaid || !ok && step == each && v.words["items"] != false
			}
		}
		if schemas = next; len(schemas) == 0 {
			l.add(at, "pii.path_not_in_schema", "the schema of data declares no %s; correct the path or the schema", pathText(steps[:i+1]))
			return false
		}
		if unsaid {
			l.add(at, "pii.schema_open", "%s may be a list of anything; give every shape of it one schema for all elements", pathText(steps[:i]))
			return false
		}
	}
	return true
}

// undeclared looks for members that are named like a person's datum.
type undeclared struct {
	schema   *schemaWalk
	manifest *Manifest
	findings *findings
	reported map[string]bool
}

// notPII is the keyword that gives the reason why a member is not personal.
const notPII = "x-not-pii"

// walk visits a schema, which is about the value at the steps. stack are the visits around
// it; suspect reports that a name on the way is a person's datum, text that no schema so far
// excludes a text here.
func (u *undeclared) walk(at schema.Node, steps, stack []string, suspect, text bool) {
	if u.manifest.covers(steps) && len(steps) > 0 || !u.schema.spend() {
		return
	}
	if u.excused(at) {
		suspect = false
	}
	n, ok := resolve(at)
	if !ok {
		u.report(at.At, "pii.schema_unreadable", "refer to schemas inside the document only, as #/definitions/<name>")
		return
	}
	if n.At != at.At && u.excused(n.Node) {
		suspect = false
	}
	visit := fmt.Sprint(n.At, suspect)
	if n.acceptsNothing() || slices.Contains(stack, visit) {
		return
	}
	types := n.types()
	text = text && (types == nil || slices.Contains(types, "string")) && n.words["enum"] == nil && (n.words["const"] == nil || u.schema.doc.IsDraft4())
	if suspect && (u.opaque(n, types) || text && len(n.branches("allOf", "anyOf", "oneOf")) == 0) {
		u.report(at.At, "pii.undeclared", `%s is named like a person's datum; list it in pii_fields or add "x-not-pii" with the reason`, pathText(steps))
	}
	stack = append(stack, visit)
	for _, p := range n.constraints() {
		step := stepTo(p)
		if step == "" {
			if p.Value != nil {
				u.walk(p.Node, steps, stack, suspect, text)
			}
			continue
		}
		isNamed := (p.Target == schema.NamedMember || p.Target == schema.MatchingMembers) && personalName(p.Member)
		u.walk(p.Node, append(slices.Clone(steps), step), stack, suspect || isNamed, true)
	}
}

func isList(v any) bool { _, ok := v.([]any); return ok }

// opaque reports whether the schema lets through members or elements that it
// says nothing about.
func (u *undeclared) opaque(n node, types []string) bool {
	open := func(word string) bool {
		rest, said := n.words[word]
		return !said || rest == true
	}
	if slices.Contains(types, "object") && open("additionalProperties") {
		return true
	}
	return slices.Contains(types, "array") && (open("items") || isList(n.words["items"]) && open("additionalItems"))
}

// excused reports whether the schema gives a reason for not being personal.
func (u *undeclared) excused(n schema.Node) bool {
	words, _ := n.Value.(map[string]any)
	reason, given := words[notPII]
	if !given {
		return false
	}
	if text, ok := reason.(string); !ok || strings.TrimSpace(text) == "" {
		u.report(n.At+"/"+notPII, "pii.reason_missing", "say in words why this is not personal")
	}
	return true
}

func (u *undeclared) report(pointer, code, detail string, args ...any) {
	if u.reported[pointer+code] {
		return
	}
	u.reported[pointer+code] = true
	u.findings.add("/data_schema"+pointer, code, detail, args...)
}
