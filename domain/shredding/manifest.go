package shredding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// Limits of one event (docs/personal-data.md).
const (
	MaxFields   = 64
	MaxSubjects = 16
)

// Declaration is one entry of a registration's pii_fields: which values are personal, their
// class, and whose they are. With "path" and "type", the subject is the type and the text at
// the path: the values below are of "person:P-9" where person_id is "P-9". With
// "entity_role", it is the type and id of the event's only entity reference in that role.
//
//	{"path": "$.contacts[*].email", "class": "contact", "subject": {"path": "$.contacts[*].person_id", "type": "person"}}
//	{"path": "$.bank.iban", "class": "bank", "subject": {"entity_role": "payee"}}
type Declaration struct {
	Path    string          `json:"path"`
	Class   string          `json:"class"`
	Subject json.RawMessage `json:"subject,omitempty"`
}

// Manifest declares which parts of an event type's data are personal and who their subject
// is. It is immutable and safe for concurrent use. The nil manifest declares nothing.
type Manifest struct{ fields []field }

// field is one declaration. Its subject is either found at a path or is the
// entity of a role.
type field struct {
	path        []string
	class       Class
	subject     []string
	subjectType string // set with subject
	role        string
	shared      int      // steps the path has in common with the subject's
	tokens      []string // per step of path: "/name" as pointer, "" for [*]
	subjectAt   string   // pointer from the shared place to the subject
}

// ParseManifest reads the declarations of a registration; no declarations give a
// manifest that declares nothing. The findings, with pointers below /pii_fields,
// have the codes pii.path_invalid, pii.class_invalid, pii.subject_invalid,
// pii.paths_overlap, pii.subject_is_personal and pii.too_many_fields.
func ParseManifest(declared []Declaration) (*Manifest, []fault.Violation) {
	var l findings
	if len(declared) > MaxFields {
		l.add("/pii_fields", "pii.too_many_fields", "an event has at most %d personal fields; declare whole objects", MaxFields)
		return nil, l.found
	}
	m := &Manifest{fields: make([]field, len(declared))}
	for i, d := range declared {
		l.declaration(fmt.Sprintf("/pii_fields/%d", i), d, &m.fields[i])
	}
	if len(l.found) > 0 {
		return nil, l.found
	}
	for i, f := range m.fields {
		for j, other := range m.fields {
			if j < i && overlap(f.path, other.path) {
				l.add(fmt.Sprintf("/pii_fields/%d/path", i), "pii.paths_overlap", "the path leads to or into that of entry %d; declare the outer one only", j)
			}
			if f.role == "" && overlap(f.subject, other.path) {
				l.add(fmt.Sprintf("/pii_fields/%d/subject/path", i), "pii.subject_is_personal", "the subject's id is inside entry %d and would be sealed with it; use a surrogate id elsewhere", j)
			}
		}
	}
	if len(l.found) > 0 {
		return nil, l.found
	}
	return m, nil
}

// Empty reports whether the manifest declares nothing.
func (m *Manifest) Empty() bool { return m == nil || len(m.fields) == 0 }

// covers reports whether the value at the steps is sealed, by itself or as part of another.
func (m *Manifest) covers(steps []string) bool {
	return m != nil && slices.ContainsFunc(m.fields, func(f field) bool {
		return len(f.path) <= len(steps) && overlap(f.path, steps)
	})
}

// findings collects the violations of a registration.
type findings struct{ found []fault.Violation }

func (l *findings) add(pointer, code, detail string, args ...any) {
	l.found = append(l.found, fault.Violation{Field: pointer, Code: code, Detail: fmt.Sprintf(detail, args...)})
}

// addFault adds the fault of a parser.
func (l *findings) addFault(pointer string, err error) {
	if f, ok := fault.As(err); ok {
		l.add(pointer, f.Code, "%s", f.Detail)
	}
}

func (l *findings) declaration(at string, d Declaration, f *field) {
	path, err := parsePath(d.Path)
	if err != nil {
		l.addFault(at+"/path", err)
	}
	f.path, f.class = path, Class(d.Class)
	if !f.class.Valid() {
		l.add(at+"/class", "pii.class_invalid", "use contact, identity, bank, tax, health or free_text")
	}
	for _, s := range path {
		token := ""
		if s != each {
			token = "/" + jsondoc.EscapeToken(s)
		}
		f.tokens = append(f.tokens, token)
	}
	l.subject(at+"/subject", d.Subject, f)
}

func (l *findings) subject(at string, raw json.RawMessage, f *field) {
	var s struct {
		Path       string `json:"path"`
		Type       string `json:"type"`
		EntityRole string `json:"entity_role"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&s)
	if err == nil {
		_, err = decoder.Token()
	}
	byPath := s.Path != "" && s.Type != "" && s.EntityRole == ""
	byRole := s.EntityRole != "" && s.Path == "" && s.Type == ""
	if err != io.EOF || !byPath && !byRole { //nolint:errorlint // the decoder gives io.EOF itself
		l.add(at, "pii.subject_invalid", `say whose datum it is: {"path": "$.person_id", "type": "person"} or {"entity_role": "employee"}`)
		return
	}
	if f.role = s.EntityRole; byRole {
		return
	}
	if _, err := NewSubject(s.Type, "x"); err != nil || len(s.Type) > maxSubject/2 {
		l.add(at+"/type", "pii.subject_invalid", "a subject type has at most %d letters, digits and the characters . _ -; name it like an entity type", maxSubject/2)
	}
	f.subjectType = s.Type
	if f.subject, err = parsePath(s.Path); err != nil {
		l.addFault(at+"/path", err)
		return
	}
	f.shared = common(f.path, f.subject)
	own := f.subject[f.shared:]
	if slices.Contains(own, each) {
		l.add(at+"/path", "pii.subject_invalid", "the path leads to many subjects; each [*] must be one that the field's path has at the same place")
		return
	}
	for _, name := range own {
		f.subjectAt += "/" + jsondoc.EscapeToken(name)
	}
}

// ClassAt returns the class of the declared field at a pointer of Resolve; data is the
// pointer of the value that $ stands for, as in Resolve.
func (m *Manifest) ClassAt(pointer, data string) (Class, bool) {
	_, class, known := m.FieldAt(pointer, data)
	return class, known
}

// FieldAt is as ClassAt, with the path as it is declared.
func (m *Manifest) FieldAt(pointer, data string) (path string, class Class, known bool) {
	rest, below := strings.CutPrefix(pointer, data)
	if m == nil || !below || rest == "" || rest[0] != '/' {
		return "", "", false
	}
	tokens := strings.Split(rest[1:], "/")
	for i := range m.fields {
		if f := &m.fields[i]; f.matches(tokens) {
			return pathText(f.path), f.class, true
		}
	}
	return "", "", false
}

// matches reports whether pointer tokens follow the declared steps; [*] is any index.
func (f *field) matches(tokens []string) bool {
	if len(tokens) != len(f.tokens) {
		return false
	}
	for i, t := range f.tokens {
		if t != "" && t[1:] != tokens[i] {
			return false
		}
		if t == "" && (tokens[i] == "" || strings.Trim(tokens[i], "0123456789") != "") {
			return false
		}
	}
	return true
}
