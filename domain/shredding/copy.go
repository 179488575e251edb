package shredding

import (
	"strconv"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// CopySealed returns the document with every sealed value made a copy that names the place
// where it was sealed, so that it opens wherever it is stored. at is the place of the
// document; a value's pointer is at's followed by its own. A value that is a copy already
// stays unchanged. pii.unsealable if a sealed value is malformed.
func CopySealed(document []byte, at Location) ([]byte, error) {
	if !HasSealed(document) {
		return document, nil
	}
	found, err := FindSealed(document)
	if err != nil {
		return nil, err
	}
	var out []byte
	pos := 0
	for _, s := range found {
		if s.Origin != nil {
			continue
		}
		s.SetOrigin(at)
		out = s.Append(append(out, document[pos:s.start]...))
		pos = s.end
	}
	return append(out, document[pos:]...), nil
}

// Detach returns a copy of a document in which tokens, {"$pii":"0"} and on, replace the
// sealed values, and the values themselves, each with the place where it was sealed: its
// own Origin, or at with the value's pointer appended. The code that changes the copy may
// move tokens, and learns nothing from them. Detach returns a document without sealed
// values unchanged.
func Detach(document []byte, at Location) (bare []byte, held []Sealed, err error) {
	if !HasSealed(document) {
		return document, nil, nil
	}
	if held, err = FindSealed(document); err != nil || len(held) == 0 {
		return document, nil, err
	}
	pos := 0
	for i := range held {
		s := &held[i]
		bare = append(append(bare, document[pos:s.start]...), token(i)...)
		pos = s.end
		s.SetOrigin(at)
	}
	return append(bare, document[pos:]...), held, nil
}

func token(i int) string { return `{"` + sealedMember + `":"` + strconv.Itoa(i) + `"}` }

// Attach replaces the tokens of Detach with their values. Each value names the place where
// it was sealed, so it opens in its new place, Pointer. A token may occur in several places
// or in none. Faults: pii.token_forged if there is a token that Detach did not make,
// pii.document_too_large if tokens occur in too many places.
func Attach(bare []byte, held []Sealed) (document []byte, placed []Sealed, err error) {
	if !HasSealed(bare) {
		return bare, nil, CheckReserved(bare)
	}
	start, end, found, err := jsondoc.Locate(bare, "")
	if err != nil || !found {
		return nil, nil, err
	}
	a := attacher{bare: bare, held: held}
	if err := a.value(start, end, nil); err != nil {
		return nil, nil, err
	}
	return append(a.out, bare[a.pos:]...), a.placed, nil
}

type attacher struct {
	bare   []byte
	held   []Sealed
	out    []byte
	pos    int
	placed []Sealed
}

// value visits bare[start:end].
func (a *attacher) value(start, end int, pointer []byte) error {
	switch a.bare[start] {
	case '[':
		return jsondoc.EachElement(a.bare[:end], start, func(index, start, end int) error {
			return a.value(start, end, strconv.AppendInt(append(pointer, '/'), int64(index), 10))
		})
	case '{':
		if _, marked, err := jsondoc.Member(a.bare[start:end], sealedMember); err != nil || marked {
			if err != nil {
				return err
			}
			return a.place(start, end, pointer)
		}
		return jsondoc.EachMember(a.bare[:end], start, func(name []byte, start, end int) error {
			if isReserved(name) {
				return forgedToken(pointer)
			}
			return a.value(start, end, jsondoc.AppendToken(append(pointer, '/'), name))
		})
	}
	return nil
}

// maxAttached bounds the document that Attach makes: a short token may occur in many places
// and its value be long.
const maxAttached = 16 << 20

func (a *attacher) place(start, end int, pointer []byte) error {
	if len(a.out) > maxAttached {
		return fault.New(fault.Invalid, "pii.document_too_large", "sealed values in so many places are more than %d bytes; move each to one place", maxAttached).
			WithField(string(pointer))
	}
	compact := string(jsondoc.AppendCompact(nil, a.bare[start:end]))
	for i := range a.held {
		if compact != token(i) {
			continue
		}
		s := a.held[i]
		s.Pointer = string(pointer)
		a.out = s.Append(append(a.out, a.bare[a.pos:start]...))
		a.pos = end
		a.placed = append(a.placed, s)
		return nil
	}
	return forgedToken(pointer)
}

func forgedToken(pointer []byte) error {
	return fault.New(fault.Invalid, "pii.token_forged", "a member named $pii marks a sealed value, which may be moved as a whole and not be made or changed; leave it as it is").
		WithField(string(pointer))
}
