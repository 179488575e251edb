package jsondoc

import (
	"bytes"
	"hash/maphash"
	"slices"
	"unicode"
	"unicode/utf8"
)

// linearNames is the number of names up to which an object is searched name by
// name for a duplicate.
const linearNames = 32

var seed = maphash.MakeSeed()

// stringValue reads a string value.
func (s *scanner) stringValue() error {
	start := s.pos + 1
	bound := min(len(s.raw), start+s.limits.StringBytes+1) // bytes over the limit are not read
	for s.pos = start; ; {
		for s.pos < bound && plain[s.raw[s.pos]] {
			s.pos++
		}
		switch {
		case s.pos-start > s.limits.StringBytes:
			return s.over("json.string_too_long", "bytes in one string", s.limits.StringBytes)
		case s.at('"'):
			s.pos++
			return nil
		}
		if _, err := s.escapeOrRune(); err != nil {
			return err
		}
	}
}

// memberName reads the name of the next member of f and the colon after it, and refuses a
// name that an earlier member has.
func (s *scanner) memberName(f *frame) error {
	f.name = span{} // until it is known, findings belong to the object
	if !s.at('"') {
		return s.unexpected("a member name in double quotes is expected here")
	}
	s.pos++
	start, folded := s.pos, len(s.folded)
	bound := min(len(s.raw), start+s.limits.NameBytes+1)
	for {
		run := s.pos
		for s.pos < bound && plain[s.raw[s.pos]] {
			s.pos++
		}
		for _, c := range s.raw[run:s.pos] {
			s.folded = append(s.folded, upper(c))
		}
		if s.pos-start > s.limits.NameBytes {
			return s.over("json.name_too_long", "bytes in one name", s.limits.NameBytes)
		}
		if s.at('"') {
			break
		}
		r, err := s.escapeOrRune()
		if err != nil {
			return err
		}
		s.folded = utf8.AppendRune(s.folded, fold(r))
	}
	name := span{start, s.pos}
	s.pos++
	if !s.addUnique(f, span{folded, len(s.folded)}) {
		s.pos = start - 1
		f.name = name
		return s.invalid("json.duplicate_name", "two members of one object have the same name, capitals aside; send each name once")
	}
	s.space()
	if !s.at(':') {
		return s.unexpected("a colon is expected after a member name")
	}
	s.pos++
	f.name = name
	return s.enterMember(f, s.folded[folded:])
}

// addUnique adds a folded name to those of the object. It is false if the object has the
// name already.
func (s *scanner) addUnique(f *frame, name span) bool {
	folded := s.folded[name.start:name.end]
	if f.table == nil {
		for i := f.names; i < len(s.names); i++ {
			if bytes.Equal(s.foldedName(i), folded) {
				return false
			}
		}
		s.push(foldedName{span: name})
		if len(s.names)-f.names > linearNames {
			for i := f.names; i < len(s.names); i++ {
				s.names[i].hash = maphash.Bytes(seed, s.foldedName(i))
			}
			s.rebuild(f)
		}
		return true
	}
	hash := maphash.Bytes(seed, folded)
	at := slot(f.table, hash)
	for ; f.table[at] != 0; at = (at + 1) % len(f.table) {
		i := int(f.table[at] - 1)
		if s.names[i].hash == hash && bytes.Equal(s.foldedName(i), folded) {
			return false
		}
	}
	s.push(foldedName{span: name, hash: hash})
	f.table[at] = uint32(len(s.names))
	if 2*(len(s.names)-f.names) > len(f.table) {
		s.rebuild(f)
	}
	return true
}

// rebuild makes the table of a large object four times as long as its names, so
// that it stays less than half full until they have doubled.
func (s *scanner) rebuild(f *frame) {
	f.table = make([]uint32, 4*(len(s.names)-f.names))
	for i := f.names; i < len(s.names); i++ {
		at := slot(f.table, s.names[i].hash)
		for f.table[at] != 0 {
			at = (at + 1) % len(f.table)
		}
		f.table[at] = uint32(i + 1)
	}
}

// slot is where the search for a hash begins. The hash is seeded, so a sender cannot
// prepare names that collide.
func slot(table []uint32, hash uint64) int { return int(hash % uint64(len(table))) }

func (s *scanner) foldedName(i int) []byte { return s.folded[s.names[i].start:s.names[i].end] }

// push adds a name. Doubling by hand copies less than append's growth by a quarter.
func (s *scanner) push(n foldedName) {
	if len(s.names) == cap(s.names) {
		s.names = slices.Grow(s.names, len(s.names)+linearNames)
	}
	s.names = append(s.names, n)
}

// plain marks the bytes that a string holds without an escape.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// upper folds an ASCII byte: the capital is the smallest rune of its orbit.
func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - ('a' - 'A')
	}
	return c
}

// fold gives the smallest rune that is equal under simple case folding.
func fold(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

// escapeOrRune reads an escape or a character beyond ASCII inside a string.
func (s *scanner) escapeOrRune() (rune, error) {
	if s.pos == len(s.raw) {
		return 0, s.malformed("the document ends inside a string")
	}
	switch c := s.raw[s.pos]; {
	case c == '\\':
		return s.escape()
	case c < utf8.RuneSelf:
		return 0, s.malformed("a control character inside a string must be escaped")
	}
	r, size := utf8.DecodeRune(s.raw[s.pos:])
	if r == utf8.RuneError && size == 1 {
		return 0, s.invalid("json.invalid_utf8", "the document is not UTF-8; convert it before sending")
	}
	s.pos += size
	return r, nil
}

// escape reads an escape, a pair of surrogates as one character.
func (s *scanner) escape() (rune, error) {
	r, size := unescape(s.raw[s.pos:])
	switch {
	case size == 0:
		return 0, s.malformed("this escape does not exist in JSON")
	case r == 0:
		return 0, s.invalid("json.nul_character", "the character U+0000 cannot be stored; remove it")
	case r == loneSurrogate:
		return 0, s.invalid("json.lone_surrogate", "half of a surrogate pair is no character; send both halves or UTF-8")
	}
	s.pos += size
	return r, nil
}
