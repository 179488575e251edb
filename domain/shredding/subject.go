package shredding

import (
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// maxSubject is the length of a subject's text in bytes.
const maxSubject = 128

// Subject is the canonical text of the person that personal data is about: "type:id", such
// as "employee:E-1", at most 128 bytes of [A-Za-z0-9._:-]. The type has no colon, the id may
// have some. Manifest.Resolve makes it from the identifier in a document, as the event type
// declares (Declaration); an officer who requests an erasure writes it.
//
// It is a pseudonym, is stored in clear with every sealed value and outlives the erasure, so
// Resolve refuses an id that is itself personal data. No table maps identifiers to subjects.
type Subject string

// ParseSubject reads the canonical text. pii.subject_invalid if it is none.
func ParseSubject(s string) (Subject, error) {
	kind, id, ok := strings.Cut(s, ":")
	if !ok || kind == "" || id == "" || len(s) > maxSubject || !subjectText(s) {
		return "", invalidSubject()
	}
	return Subject(s), nil
}

// NewSubject joins type and id. pii.subject_invalid if the type contains a colon
// or the result is no canonical text.
func NewSubject(kind, id string) (Subject, error) {
	if strings.IndexByte(kind, ':') >= 0 {
		return "", invalidSubject()
	}
	return ParseSubject(kind + ":" + id)
}

// Type is the part before the first colon.
func (s Subject) Type() string {
	kind, _, _ := strings.Cut(string(s), ":")
	return kind
}

// ID is the part after the first colon.
func (s Subject) ID() string {
	_, id, _ := strings.Cut(string(s), ":")
	return id
}

// String gives the canonical text.
func (s Subject) String() string { return string(s) }

func subjectText(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}

func invalidSubject() *fault.Error {
	return fault.New(fault.Invalid, "pii.subject_invalid",
		"a data subject is type:id, at most %d letters, digits and the characters . _ : -; send a surrogate id in that form", maxSubject)
}
