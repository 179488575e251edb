package shredding

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// sealedMember marks a sealed value in a document: {"$pii": "<envelope>", "sub": "<subject>"}.
const sealedMember = "$pii"

// Field is one personal value that a document holds.
type Field struct {
	Pointer string // RFC 6901 in the document, with real indexes
	Class   Class
	Subject Subject
}

// Resolve finds the personal values of a document in the order of the manifest.
// The document must have passed jsondoc.Check and its schema: Resolve does not search for
// values that the schema does not allow. data is the pointer of the value that the
// manifest's $ stands for ("/data" in a stored payload, "" if it is the document);
// entities are the references among which roles are looked up. A value that is
// null is present.
//
// Faults: pii.subject_missing for a present field whose subject is absent, no text
// or, for a role, not exactly one reference; pii.subject_invalid and
// pii.in_identifier for an id that is no pseudonym; pii.too_many_fields and
// pii.too_many_subjects; pii.reserved_name if the document has a member named
// $pii anywhere, which marks sealed values.
func (m *Manifest) Resolve(document []byte, data string, entities []event.EntityRef) ([]Field, error) {
	if err := CheckReserved(document); err != nil || m.Empty() {
		return nil, err
	}
	start, _, found, err := jsondoc.Locate(document, data)
	if err != nil || !found {
		return nil, err
	}
	r := resolver{document: document, entities: entities, subjects: map[Subject]bool{}}
	for i := range m.fields {
		r.field = &m.fields[i]
		if err := r.walk(start, 0, []byte(data)); err != nil {
			return nil, err
		}
	}
	return r.found, nil
}

type resolver struct {
	document []byte
	entities []event.EntityRef
	field    *field
	shared   int // where the value begins that holds field and subject
	found    []Field
	subjects map[Subject]bool

	kind, id string // of the subject that was checked last; its id has no escapes
	last     Subject
}

// walk follows the field's path from step on; the value there begins at start.
func (r *resolver) walk(start, step int, pointer []byte) error {
	if step == r.field.shared {
		r.shared = start
	}
	if step == len(r.field.tokens) {
		return r.add(string(pointer))
	}
	token := r.field.tokens[step]
	switch c := r.document[start]; {
	case token == "" && c == '[':
		return jsondoc.EachElement(r.document, start, func(index, start, _ int) error {
			return r.walk(start, step+1, strconv.AppendInt(append(pointer, '/'), int64(index), 10))
		})
	case token != "" && c == '{':
		at, _, found, err := jsondoc.Locate(r.document[start:], token)
		if err != nil || !found {
			return err
		}
		return r.walk(start+at, step+1, append(pointer, token...))
	}
	return nil
}

// add adds the field at a pointer.
func (r *resolver) add(pointer string) error {
	if len(r.found) == MaxFields {
		return fault.New(fault.TooLarge, "pii.too_many_fields", "an event has at most %d personal fields; send several events", MaxFields).With("limit", MaxFields)
	}
	s, err := r.subject(pointer)
	if err != nil {
		return err
	}
	if r.subjects[s] = true; len(r.subjects) > MaxSubjects {
		return fault.New(fault.TooLarge, "pii.too_many_subjects", "an event concerns at most %d persons; send several events", MaxSubjects).With("limit", MaxSubjects)
	}
	r.found = append(r.found, Field{Pointer: pointer, Class: r.field.class, Subject: s})
	return nil
}

func (r *resolver) subject(pointer string) (Subject, error) {
	kind, id := r.field.subjectType, ""
	if role := r.field.role; role != "" {
		count := 0
		for _, e := range r.entities {
			if e.Role == role {
				kind, id = e.Type, e.ID
				count++
			}
		}
		if count != 1 {
			return "", missingSubject(pointer)
		}
	} else {
		value := r.document[r.shared:]
		start, end, found, err := jsondoc.Locate(value, r.field.subjectAt)
		if err != nil {
			return "", err
		}
		if !found || value[start] != '"' {
			return "", missingSubject(pointer)
		}
		if value = value[start:end]; kind == r.kind && r.id != "" && string(value[1:len(value)-1]) == r.id {
			return r.last, nil // most events concern one person
		}
		if bytes.IndexByte(value, '\\') < 0 {
			id = string(value[1 : len(value)-1])
		} else if json.Unmarshal(value, &id) != nil {
			return "", missingSubject(pointer)
		}
	}
	if kind == "" || id == "" {
		return "", missingSubject(pointer)
	}
	if kind == r.kind && id == r.id {
		return r.last, nil
	}
	s, err := NewSubject(kind, id)
	if err != nil {
		return "", invalidSubject().WithField(pointer)
	}
	if err := CheckIdentifier(pointer, id); err != nil {
		return s, err
	}
	r.kind, r.id, r.last = kind, id, s
	return s, nil
}

func missingSubject(pointer string) error {
	return fault.New(fault.Invalid, "pii.subject_missing",
		"this field is personal and nothing says whose it is; send the subject's id where the event type declares it").WithField(pointer)
}

func skipSpace(document []byte, pos int) int {
	for pos < len(document) && strings.IndexByte(" \t\r\n", document[pos]) >= 0 {
		pos++
	}
	return pos
}

// CheckReserved refuses a document of a caller that has a member named $pii,
// however written: pii.reserved_name. The document must have passed
// jsondoc.Check.
func CheckReserved(document []byte) error {
	if bytes.IndexByte(document, '$') < 0 && !bytes.Contains(document, []byte(`\u`)) {
		return nil
	}
	for pos := 0; ; {
		quote := bytes.IndexByte(document[pos:], '"')
		if quote < 0 {
			return nil
		}
		_, end, _, err := jsondoc.Locate(document[pos+quote:], "")
		if err != nil {
			return err
		}
		text := document[pos+quote : pos+quote+end]
		pos += quote + end
		if after := skipSpace(document, pos); after == len(document) || document[after] != ':' || !isReserved(text[1:len(text)-1]) {
			continue
		}
		return fault.New(fault.Invalid, "pii.reserved_name", "the name $pii marks sealed values and is not yours to send; rename the member")
	}
}

// isReserved compares a name as written, without quotes.
func isReserved(name []byte) bool {
	if bytes.IndexByte(name, '\\') >= 0 {
		name = jsondoc.AppendToken(nil, name) // the reserved name needs no escape in a pointer
	}
	return strings.EqualFold(string(name), sealedMember)
}
