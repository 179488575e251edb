package jsonschema

import (
	"encoding/json"
	"unicode/utf8"
)

// scanner reads one JSON document and applies schemas to its values without decoding it. It
// gives up on anything unusual (deep nesting, control characters, invalid UTF-8, exponents,
// long numbers); the library then decides.
type scanner struct {
	data []byte
	pos  int
}

const maxScanDepth = 64

// accepts reports that the document certainly satisfies the schema.
func (n *node) accepts(document []byte) bool {
	s := scanner{data: document}
	if !s.value(n, 0) {
		return false
	}
	s.skipBlanks()
	return s.pos == len(s.data)
}

func (s *scanner) skipBlanks() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// next skips blanks and gives the next byte, 0 at the end.
func (s *scanner) next() byte {
	s.skipBlanks()
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// value reads one value; n nil means that anything is allowed.
func (s *scanner) value(n *node, depth int) bool {
	if depth > maxScanDepth || (n != nil && n.never) {
		return false
	}
	switch c := s.next(); {
	case c == '"':
		return s.text(n)
	case c == '{':
		return s.object(n, depth)
	case c == '[':
		return s.array(n, depth)
	case c == '-' || (c >= '0' && c <= '9'):
		return s.number(n)
	case c == 't':
		return s.literal("true") && (n == nil || n.allows(typeBoolean) && (n.choice == nil || n.choice.truth))
	case c == 'f':
		return s.literal("false") && (n == nil || n.allows(typeBoolean) && (n.choice == nil || n.choice.untruth))
	case c == 'n':
		return s.literal("null") && (n == nil || n.allows(typeNull) && (n.choice == nil || n.choice.null))
	default:
		return false
	}
}

func (s *scanner) literal(word string) bool {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return false
	}
	s.pos += len(word)
	return true
}

func (s *scanner) text(n *node) bool {
	if n != nil && !n.allows(typeString) {
		return false
	}
	t, ok := s.readString()
	return ok && (n == nil || !n.text || n.acceptsText(t))
}

// readString reads a string. The result shares the document's bytes unless it had
// escapes.
func (s *scanner) readString() ([]byte, bool) {
	start := s.pos
	escaped, plain := false, true
	for i := start + 1; i < len(s.data); i++ {
		switch c := s.data[i]; {
		case c == '"':
			s.pos = i + 1
			inner := s.data[start+1 : i]
			if !plain && !utf8.Valid(inner) {
				return nil, false
			}
			if escaped {
				var t string
				err := json.Unmarshal(s.data[start:i+1], &t)
				return []byte(t), err == nil
			}
			return inner, true
		case c == '\\':
			escaped = true
			i++
		case c < 0x20:
			return nil, false
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return nil, false
}

func (s *scanner) number(n *node) bool {
	start := s.pos
	i := start
	if s.data[i] == '-' {
		i++
	}
	first := i
	for i < len(s.data) && s.data[i] >= '0' && s.data[i] <= '9' {
		i++
	}
	if i == first || (s.data[first] == '0' && i > first+1) {
		return false
	}
	fraction := false
	if i < len(s.data) && s.data[i] == '.' {
		fraction = true
		point := i
		for i++; i < len(s.data) && s.data[i] >= '0' && s.data[i] <= '9'; i++ {
		}
		if i == point+1 {
			return false
		}
	}
	if i < len(s.data) && (s.data[i] == 'e' || s.data[i] == 'E') {
		return false
	}
	s.pos = i
	d, ok := parseDecimal(s.data[start:i])
	if !ok || n == nil {
		return ok
	}
	// 1.0 is an integer too; gojsonschema may say so.
	if !n.allows(typeNumber) && (fraction || !n.allows(typeInteger)) {
		return false
	}
	// A format fails for numbers, and numbers are never listed in a choice here.
	if n.format != nil || n.choice != nil {
		return false
	}
	for _, l := range n.limits {
		if !l.accepts(d) {
			return false
		}
	}
	return true
}

func (s *scanner) array(n *node, depth int) bool {
	if n != nil && (!n.allows(typeArray) || n.choice != nil) {
		return false
	}
	var items *node
	if n != nil {
		items = n.items
	}
	count := 0
	s.pos++
	if s.next() == ']' {
		s.pos++
	} else {
		for {
			if !s.value(items, depth+1) {
				return false
			}
			count++
			c := s.next()
			s.pos++
			if c == ']' {
				break
			}
			if c != ',' {
				return false
			}
		}
	}
	return n == nil || count >= n.minItems && (n.maxItems < 0 || count <= n.maxItems)
}

func (s *scanner) object(n *node, depth int) bool {
	if n != nil && (!n.allows(typeObject) || n.choice != nil) {
		return false
	}
	var seen uint64
	s.pos++
	if s.next() == '}' {
		s.pos++
		return n == nil || n.required == 0 && !n.someMember
	}
	for count := 1; ; count++ {
		if n != nil && n.maxMembers >= 0 && count > n.maxMembers {
			return false
		}
		if s.next() != '"' {
			return false
		}
		name, ok := s.readString()
		if !ok || s.next() != ':' {
			return false
		}
		s.pos++
		var inner *node
		if n != nil {
			m := n.members[string(name)]
			seen |= m.required
			if inner = m.schema; !m.declared {
				inner = n.additional
			}
		}
		if !s.value(inner, depth+1) {
			return false
		}
		c := s.next()
		s.pos++
		if c == '}' {
			break
		}
		if c != ',' {
			return false
		}
	}
	return n == nil || seen == n.required
}
