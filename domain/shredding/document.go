package shredding

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// JSON texts that readers get in the place of a personal value.
const (
	Redacted = `"[REDACTED]"` // its key was destroyed
	Masked   = `"[MASKED]"`   // the reader lacks the class
)

// Sealed is a sealed value in a document:
//
//	{"$pii": "<base64url>", "sub": "<subject>"}                                          in events and intents
//	{"$pii": "<base64url>", "sub": "<subject>", "at": [partition, kind, record id, type, schema version, pointer]}   in copies
type Sealed struct {
	Pointer  string // in the document that holds it
	Envelope Envelope
	Subject  Subject
	Origin   *Location // where it was sealed; nil: where it is now

	start, end int // in the document that it was found in
}

// SetOrigin makes a value that was sealed in the document at a place a copy that names it.
// A copy keeps its Origin.
func (s *Sealed) SetOrigin(at Location) {
	if s.Origin == nil {
		at.Pointer += s.Pointer
		s.Origin = &at
	}
}

// Append adds the sealed value as JSON to dst.
func (s Sealed) Append(dst []byte) []byte {
	dst = append(dst, `{"$pii":"`...)
	dst = base64.RawURLEncoding.AppendEncode(dst, s.Envelope)
	dst = append(dst, `","sub":"`...)
	dst = append(append(dst, s.Subject...), '"') // its characters need no escape
	if o := s.Origin; o != nil {
		// The encoder cannot fail on texts and numbers.
		origin, _ := json.Marshal([]any{o.Partition, o.Kind, o.Record.String(), o.Type, o.SchemaVersion, o.Pointer})
		dst = append(append(dst, `,"at":`...), origin...)
	}
	return append(dst, '}')
}

// SealDocument adds to dst a copy of the document in which the sealed form replaces the
// value of every field and every other byte is unchanged. It calls seal per field with the
// value's bytes, in document order. json.not_found if the document lacks a field,
// pii.paths_overlap if one is inside another, or the first error of seal; dst is then
// unchanged.
func SealDocument(dst, document []byte, fields []Field, seal func(f Field, value []byte) (Envelope, error)) ([]byte, error) {
	return replaceFields(dst, document, fields, func(dst []byte, f Field, value []byte) ([]byte, error) {
		envelope, err := seal(f, value)
		if err != nil {
			return nil, err
		}
		return Sealed{Envelope: envelope, Subject: f.Subject}.Append(dst), nil
	})
}

// DescribeDocument adds to dst a copy of the document in which
// {"present":true,"class":"..."} replaces the value of every field, for rules and policies,
// which decide without the value. The faults are those of SealDocument.
func DescribeDocument(dst, document []byte, fields []Field) ([]byte, error) {
	return replaceFields(dst, document, fields, func(dst []byte, f Field, _ []byte) ([]byte, error) {
		return append(append(append(dst, `{"present":true,"class":"`...), f.Class...), `"}`...), nil
	})
}

// replaceFields copies the document with other values, which write adds to dst.
func replaceFields(dst, document []byte, fields []Field, write func(dst []byte, f Field, value []byte) ([]byte, error)) ([]byte, error) {
	type place struct {
		Field
		start, end int
	}
	places := make([]place, len(fields))
	for i, f := range fields {
		start, end, found, err := jsondoc.Locate(document, f.Pointer)
		if err != nil {
			return dst, err
		}
		if !found {
			return dst, fault.New(fault.NotFound, "json.not_found", "the document has no value at this pointer; point to an existing one").WithField(f.Pointer)
		}
		places[i] = place{f, start, end}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.start, b.start) })
	out, pos := dst, 0
	for _, p := range places {
		if p.start < pos {
			return dst, fault.New(fault.Invalid, "pii.paths_overlap", "a personal value lies inside another; seal the outer one only").WithField(p.Pointer)
		}
		var err error
		if out, err = write(append(out, document[pos:p.start]...), p.Field, document[p.start:p.end]); err != nil {
			return dst, err
		}
		pos = p.end
	}
	return append(out, document[pos:]...), nil
}

// Answer is the text that a reader gets for one sealed value. The zero Answer is an error,
// so that a forgotten case never becomes a redaction.
type Answer struct {
	plain Plain
	text  string
	clear bool
}

// Clear answers with the opened value.
func Clear(p Plain) Answer { return Answer{plain: p, clear: true} }

// Destroyed answers "[REDACTED]". Callers use it only if the key store says that the key
// was destroyed; an outage is an error.
func Destroyed() Answer { return Answer{text: Redacted} }

// Withheld answers "[MASKED]".
func Withheld() Answer { return Answer{text: Masked} }

// Kept leaves the value sealed as it is.
func Kept(s Sealed) Answer { return Answer{text: string(s.Append(nil))} }

// OpenDocument adds to dst a copy of the document in which the answer of open replaces
// every sealed value and every other byte is unchanged. It returns the first error of open,
// pii.unsealable if a sealed value is malformed, and pii.unanswered if open returns the zero
// Answer; dst is then unchanged.
func OpenDocument(dst, document []byte, open func(Sealed) (Answer, error)) ([]byte, error) {
	found, err := FindSealed(document)
	if err != nil {
		return dst, err
	}
	return OpenFound(dst, document, found, func(i int) (Answer, error) { return open(found[i]) })
}

// OpenFound is OpenDocument for values that FindSealed found in the same document, so that
// it is parsed once. It calls open with their indexes, in order.
func OpenFound(dst, document []byte, found []Sealed, open func(i int) (Answer, error)) ([]byte, error) {
	out, pos := dst, 0
	for i := range found {
		answer, err := open(i)
		if err != nil {
			return dst, err
		}
		if out, err = answer.append(append(out, document[pos:found[i].start]...), found[i].Pointer); err != nil {
			return dst, err
		}
		pos = found[i].end
	}
	return append(out, document[pos:]...), nil
}

func (a Answer) append(dst []byte, pointer string) ([]byte, error) {
	text := []byte(a.text)
	if a.clear {
		if text = a.plain.Reveal(); text == nil {
			return nil, evicted()
		}
		defer clear(text)
	}
	if len(text) == 0 {
		return nil, fault.New(fault.Internal, "pii.unanswered", "no answer was given for a sealed value; report this defect").WithField(pointer)
	}
	return append(dst, text...), nil
}

// FindSealed lists the sealed values of a document in document order, to fetch
// their keys before opening. pii.unsealable if one is malformed.
func FindSealed(document []byte) ([]Sealed, error) {
	start, end, found, err := jsondoc.Locate(document, "")
	if err != nil || !found {
		return nil, err
	}
	return appendSealed(nil, document, start, end, nil)
}

// HasSealed reports whether the document may hold sealed values. It is cheap, and may be
// true for a document that holds none.
func HasSealed(document []byte) bool { return bytes.Contains(document, []byte(`"`+sealedMember+`"`)) }

// appendSealed adds the sealed values in document[start:end]. It skips parts without the
// member $pii, which has one spelling: callers may not send it, and the stores keep it as
// Append writes it.
func appendSealed(all []Sealed, document []byte, start, end int, pointer []byte) ([]Sealed, error) {
	if !HasSealed(document[start:end]) {
		return all, nil
	}
	var err error
	switch document[start] {
	case '[':
		err = jsondoc.EachElement(document[:end], start, func(index, start, end int) (err error) {
			all, err = appendSealed(all, document, start, end, strconv.AppendInt(append(pointer, '/'), int64(index), 10))
			return err
		})
	case '{':
		var isSealed bool
		if _, isSealed, err = jsondoc.Member(document[start:end], sealedMember); err != nil {
			break
		}
		if isSealed {
			var s Sealed
			if s, err = parseSealed(document[start:end]); err == nil {
				s.Pointer, s.start, s.end = string(pointer), start, end
				all = append(all, s)
			}
			break
		}
		err = jsondoc.EachMember(document[:end], start, func(name []byte, start, end int) (err error) {
			all, err = appendSealed(all, document, start, end, jsondoc.AppendToken(append(pointer, '/'), name))
			return err
		})
	}
	return all, err
}

// parseSealed parses a sealed value, with blanks and in any order, as a store may return
// it.
func parseSealed(raw []byte) (Sealed, error) {
	var s Sealed
	var sub string
	err := jsondoc.EachMember(raw, 0, func(name []byte, start, end int) (err error) {
		value := raw[start:end]
		switch string(name) {
		case sealedMember:
			var text string
			if err = json.Unmarshal(value, &text); err == nil {
				s.Envelope, err = ParseEnvelope(text)
			}
		case "sub":
			err = json.Unmarshal(value, &sub)
		case "at":
			s.Origin, err = parseOrigin(value)
		default:
			err = unsealable()
		}
		return err
	})
	if err != nil || s.Envelope == nil {
		return Sealed{}, unsealable()
	}
	if s.Subject, err = ParseSubject(sub); err != nil {
		return Sealed{}, unsealable()
	}
	return s, nil
}

func parseOrigin(raw []byte) (*Location, error) {
	var l Location
	var record string
	parts := []any{&l.Partition, &l.Kind, &record, &l.Type, &l.SchemaVersion, &l.Pointer}
	var given []json.RawMessage
	if json.Unmarshal(raw, &given) != nil || len(given) != len(parts) {
		return nil, unsealable()
	}
	for i, p := range parts {
		if string(given[i]) == "null" || json.Unmarshal(given[i], p) != nil {
			return nil, unsealable()
		}
	}
	id, err := event.ParseID(record)
	if err != nil {
		return nil, unsealable()
	}
	l.Record = id
	return &l, nil
}
