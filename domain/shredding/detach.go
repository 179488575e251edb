package shredding

import (
	"encoding/json"
	"strconv"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// Detach gives a copy of a document in which every sealed value is replaced by a
// token, {"$pii":"0"} and on, and the values themselves, each with the place where it
// was sealed: at with the value's pointer behind at.Pointer, unless it says so by
// itself. Whoever changes the copy may move tokens, and learns nothing from them. A
// document without sealed values comes back as it is.
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
		if s.Origin == nil {
			origin := at
			origin.Pointer += s.Pointer
			s.Origin = &origin
		}
	}
	return append(bare, document[pos:]...), held, nil
}

func token(i int) string { return `{"` + sealedMember + `":"` + strconv.Itoa(i) + `"}` }

// Attach puts the values back where their tokens are now. Each says by itself where it
// was sealed, so it opens there; Pointer is its new place. A token may stand in several
// places or in none. Faults: pii.token_forged if there is a token that Detach did not make,
// pii.document_too_large if tokens stand in too many places.
func Attach(bare []byte, held []Sealed) (document []byte, placed []Sealed, err error) {
	if !HasSealed(bare) {
		return bare, nil, CheckReserved(bare)
	}
	start, end, found, err := jsondoc.Locate(bare, "")
	if err != nil || !found {
		return nil, nil, err
	}
	a := attaching{bare: bare, held: held}
	if err := a.value(start, end, nil); err != nil {
		return nil, nil, err
	}
	return append(a.out, bare[a.pos:]...), a.placed, nil
}

type attaching struct {
	bare   []byte
	held   []Sealed
	out    []byte
	pos    int
	placed []Sealed
}

// value visits bare[start:end].
func (a *attaching) value(start, end int, pointer []byte) error {
	inner := func(at int, pointer []byte) error {
		_, length, _, err := jsondoc.Locate(a.bare[at:end], "")
		if err != nil {
			return err
		}
		return a.value(at, at+length, pointer)
	}
	switch a.bare[start] {
	case '[':
		return eachElement(a.bare[:end], start, func(index, at int) error {
			return inner(at, strconv.AppendInt(append(pointer, '/'), int64(index), 10))
		})
	case '{':
		if _, marked, err := jsondoc.Member(a.bare[start:end], sealedMember); err != nil || marked {
			if err != nil {
				return err
			}
			return a.place(start, end, pointer)
		}
		return eachMember(a.bare[:end], start, func(quoted []byte, at int) error {
			if isReserved(quoted) {
				return forged(pointer)
			}
			var name string
			if json.Unmarshal(quoted, &name) != nil {
				return brokenDocument()
			}
			return inner(at, appendToken(pointer, name))
		})
	}
	return nil
}

// mostAttached bounds what Attach makes: a token is short, what it stands for may be
// long, and it may stand in many places.
const mostAttached = 16 << 20

func (a *attaching) place(start, end int, pointer []byte) error {
	if len(a.out) > mostAttached {
		return fault.New(fault.Invalid, "pii.document_too_large", "sealed values in so many places are more than %d bytes; move each to one place", mostAttached).
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
	return forged(pointer)
}

func forged(pointer []byte) error {
	return fault.New(fault.Invalid, "pii.token_forged", "a member named $pii marks a sealed value, which may be moved as a whole and not be made or changed; leave it as it is").
		WithField(string(pointer))
}
