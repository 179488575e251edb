// Package jsondoc works on JSON documents as raw bytes. Check runs before any decoder: it
// enforces the limits and refuses everything on which two readers could disagree, such as
// repeated names. Member, Locate, Splice and their relatives find and replace values of
// checked documents and keep all other bytes. Decode gives Go values with exact numbers.
// The HTTP API, the pipeline and the stores call the package. It knows no schema and does no
// I/O.
package jsondoc

import (
	"cmp"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Limits bounds a document. A field that is 0 has the value of DefaultLimits.
type Limits struct {
	Bytes       int // of the whole document
	Depth       int // of objects and arrays inside one another; [[]] has 2
	Nodes       int // objects, arrays and scalars together
	StringBytes int // of one string value between its quotes, escapes as written
	NameBytes   int // of one member name between its quotes, escapes as written
	Shape       *Shape
}

// DefaultLimits are the limits of one event.
func DefaultLimits() Limits {
	return Limits{Bytes: 1 << 20, Depth: 32, Nodes: 50_000, StringBytes: 64 << 10, NameBytes: 256}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{
		Bytes: cmp.Or(l.Bytes, d.Bytes), Depth: cmp.Or(l.Depth, d.Depth), Nodes: cmp.Or(l.Nodes, d.Nodes),
		StringBytes: cmp.Or(l.StringBytes, d.StringBytes), NameBytes: cmp.Or(l.NameBytes, d.NameBytes), Shape: l.Shape,
	}
}

const (
	// largestInteger is 2^53-1: beyond it a reader of doubles sees another number.
	largestInteger = 1<<53 - 1
	// maxDigits is what every double gives back unchanged.
	maxDigits = 15
	// maxExponent bounds exponents and decimals. A schema validator computes with
	// exact fractions, in which 1e1000000 is a million digits long.
	maxExponent = 30
	// longestRun is a number of digits in a row that no number within the bounds
	// above has, but for zeros before an exponent.
	longestRun = 2 * maxExponent
)

// Check reads the document once and refuses it with the first finding, a fault
// whose Field is the RFC 6901 pointer of the value concerned (of the object, if a
// name is to blame) and whose attribute offset is the place in bytes.
//
// Of kind too large, with the attribute limit: json.too_large, json.too_deep,
// json.too_many_nodes, json.string_too_long, json.name_too_long, json.too_many_members or the
// code that a Shape has instead. Of kind invalid:
// json.malformed (not RFC 8259, which has no NaN), json.duplicate_name (names are
// compared unescaped and by simple Unicode case folding, as strings.EqualFold),
// json.invalid_utf8, json.lone_surrogate, json.nul_character (\u0000) and
// json.number_out_of_range (integers beyond ±(2^53-1); other numbers with more
// than 15 significant digits, trailing zeros included, more than 30 decimals or
// an exponent beyond ±30).
func Check(raw []byte, l Limits) error {
	l = l.withDefaults()
	if len(raw) > l.Bytes {
		return fault.New(fault.TooLarge, "json.too_large",
			"the document has %d bytes, %d are allowed; send it in parts", len(raw), l.Bytes).With("limit", l.Bytes)
	}
	s := scanners.Get().(*scanner)
	s.raw, s.limits, s.next = raw, l, l.Shape
	err := s.document()
	s.reset()
	scanners.Put(s)
	return err
}

// scanner is the state of one pass. Scanners are pooled, so a usual document
// costs no allocation.
type scanner struct {
	raw    []byte
	pos    int
	limits Limits
	nodes  int
	next   *Shape // of the value that follows
	frames []frame
	// names and folded are stacks: an object adds its names behind those of the
	// objects around it and removes them when it ends.
	names  []foldedName
	folded []byte
}

// span is a range of bytes.
type span struct{ start, end int }

// frame is an object or array that has begun and not ended.
type frame struct {
	object bool
	shape  *Shape
	index  int      // of the current element of an array; of an object with a shape, its members so far
	name   span     // of the current member in raw, without quotes; end 0 before the first
	names  int      // where the object's names begin
	folded int      // where their folded forms begin
	table  []uint32 // once the object is large: places in scanner.names plus 1, by hash; 0 is free
}

// foldedName is the place of a case-folded name in scanner.folded.
type foldedName struct {
	span
	hash uint64 // set once the object is large
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// reset prepares the scanner for the pool: it keeps small buffers only.
func (s *scanner) reset() {
	clear(s.frames[:cap(s.frames)])
	s.raw, s.pos, s.nodes, s.next, s.limits.Shape = nil, 0, 0, nil, nil
	s.frames, s.names, s.folded = s.frames[:0], s.names[:0], s.folded[:0]
	if cap(s.frames) > 1<<8 {
		s.frames = nil
	}
	if cap(s.names) > 1<<10 {
		s.names = nil
	}
	if cap(s.folded) > 1<<14 {
		s.folded = nil
	}
}

// document reads one value and nothing after it.
func (s *scanner) document() error {
	for {
		s.space()
		opened, err := s.value()
		if err != nil {
			return err
		}
		if opened {
			if more, err := s.openContainer(); err != nil {
				return err
			} else if more {
				continue
			}
		}
		if more, err := s.endValue(); err != nil || !more {
			return err
		}
	}
}

// value reads a scalar, or the opening bracket of an object or array.
func (s *scanner) value() (opened bool, err error) {
	if s.nodes++; s.nodes > s.limits.Nodes {
		return false, s.over("json.too_many_nodes", "values", s.limits.Nodes)
	}
	if s.pos == len(s.raw) {
		return false, s.malformed("a value is missing")
	}
	switch c := s.raw[s.pos]; c {
	case '{', '[':
		if len(s.frames) == s.limits.Depth {
			return false, s.over("json.too_deep", "levels", s.limits.Depth)
		}
		s.pos++
		s.frames = append(s.frames, frame{object: c == '{', shape: s.next, names: len(s.names), folded: len(s.folded)})
		return true, nil
	case '"':
		return false, s.stringValue()
	case 't':
		return false, s.literal("true")
	case 'f':
		return false, s.literal("false")
	case 'n':
		return false, s.literal("null")
	default:
		if c == '-' || isDigit(c) {
			return false, s.number()
		}
		return false, s.unexpected("a value is expected here")
	}
}

// openContainer follows an opening bracket. more reports whether a value is next.
func (s *scanner) openContainer() (more bool, err error) {
	f := &s.frames[len(s.frames)-1]
	s.space()
	if s.pos < len(s.raw) && s.raw[s.pos] == f.closing() {
		return false, nil
	}
	if f.object {
		return true, s.memberName(f)
	}
	return true, s.enterItem(f)
}

// endValue follows a value: it closes the objects and arrays that end here. more reports
// whether a value is next.
func (s *scanner) endValue() (more bool, err error) {
	for len(s.frames) > 0 {
		s.space()
		f := &s.frames[len(s.frames)-1]
		switch {
		case s.pos == len(s.raw):
			return false, s.malformed("the document ends inside an object or array")
		case s.raw[s.pos] == f.closing():
			s.pos++
			s.names, s.folded = s.names[:f.names], s.folded[:f.folded]
			s.frames = s.frames[:len(s.frames)-1]
		case s.raw[s.pos] == ',':
			s.pos++
			if f.object {
				s.space()
				return true, s.memberName(f)
			}
			f.index++
			return true, s.enterItem(f)
		default:
			return false, s.unexpected("a comma or a closing bracket is expected here")
		}
	}
	s.space()
	if s.pos < len(s.raw) {
		return false, s.unexpected("nothing may follow the document")
	}
	return false, nil
}

func (f *frame) closing() byte {
	if f.object {
		return '}'
	}
	return ']'
}

func (s *scanner) space() {
	for s.pos < len(s.raw) && isSpace(s.raw[s.pos]) {
		s.pos++
	}
}

func (s *scanner) literal(word string) error {
	if end := s.pos + len(word); end <= len(s.raw) && string(s.raw[s.pos:end]) == word {
		s.pos = end
		return nil
	}
	return s.malformed("a value is expected here")
}

// number reads a number and holds it to what every reader understands alike.
func (s *scanner) number() error {
	start := s.pos
	if s.raw[s.pos] == '-' {
		s.pos++
	}
	whole := s.digits()
	if whole.start == whole.end {
		return s.malformed("a number needs digits after the minus")
	}
	if whole.end-whole.start > 1 && s.raw[whole.start] == '0' {
		return s.malformed("a number has no leading zeros")
	}
	integer, decimals, exponent := true, span{}, 0
	if s.at('.') {
		integer = false
		s.pos++
		if decimals = s.digits(); decimals.start == decimals.end {
			return s.malformed("a number needs digits after the point")
		}
	}
	if s.at('e') || s.at('E') {
		integer = false
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		e := s.digits()
		switch e.end - e.start {
		case 0:
			return s.malformed("a number needs digits after the e")
		case longestRun:
			exponent = maxExponent + 1
		}
		for i := e.start; i < e.end && exponent <= maxExponent; i++ {
			exponent = exponent*10 + int(s.raw[i]-'0')
		}
	}
	end := s.pos
	s.pos = start // where a finding is reported
	if integer {
		length := whole.end - whole.start
		if length > maxDigits+1 || length == maxDigits+1 && integerOf(s.raw[whole.start:whole.end]) > largestInteger {
			return s.invalid("json.number_out_of_range", "an integer may not go beyond 9007199254740991; send larger ones as strings")
		}
	} else {
		significant := s.significant(whole) + decimals.end - decimals.start
		if s.raw[whole.start] == '0' {
			significant = s.significant(decimals)
		}
		if significant > maxDigits || decimals.end-decimals.start > maxExponent || exponent > maxExponent {
			return s.invalid("json.number_out_of_range",
				"a number has at most 15 significant digits, 30 decimals and an exponent within 30; send fewer digits")
		}
	}
	s.pos = end
	return nil
}

// digits reads a possibly empty run of digits. It stops after longestRun of them:
// such a number is out of range whatever follows.
func (s *scanner) digits() span {
	start := s.pos
	for bound := min(len(s.raw), start+longestRun); s.pos < bound && isDigit(s.raw[s.pos]); {
		s.pos++
	}
	return span{start, s.pos}
}

// significant counts the digits after leading zeros.
func (s *scanner) significant(d span) int {
	for d.start < d.end && s.raw[d.start] == '0' {
		d.start++
	}
	return d.end - d.start
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.raw) && s.raw[s.pos] == c }

// integerOf gives the value of up to 18 digits.
func integerOf(digits []byte) (v int64) {
	for _, c := range digits {
		v = v*10 + int64(c-'0')
	}
	return v
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// unexpected is malformed, unless the byte here is not even UTF-8.
func (s *scanner) unexpected(detail string) error {
	if r, size := utf8.DecodeRune(s.raw[s.pos:]); r == utf8.RuneError && size == 1 {
		return s.invalid("json.invalid_utf8", "the document is not UTF-8; convert it before sending")
	}
	return s.malformed(detail)
}

func (s *scanner) malformed(detail string) error {
	return s.invalid("json.malformed", detail+" (byte "+strconv.Itoa(s.pos)+"); send one RFC 8259 document")
}

func (s *scanner) invalid(code, detail string) error {
	return fault.New(fault.Invalid, code, detail).WithField(s.pointer()).With("offset", s.pos)
}

func (s *scanner) over(code, unit string, limit int) error {
	return fault.New(fault.TooLarge, code, "the document has more than %d %s; send less in one document", limit, unit).
		WithField(s.pointer()).With("limit", limit).With("offset", s.pos)
}

// pointer is the scanner's position in the document. It is built for findings only.
func (s *scanner) pointer() string {
	var p []byte
	for i := range s.frames {
		f := &s.frames[i]
		switch {
		case !f.object:
			p = strconv.AppendInt(append(p, '/'), int64(f.index), 10)
		case f.name.end > 0:
			p = AppendToken(append(p, '/'), s.raw[f.name.start:f.name.end])
		}
	}
	return string(p)
}
