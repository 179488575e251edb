package jsondoc

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Member finds a member of the top-level object by its exact name and gives its
// value's bytes, a part of raw. The document must have passed Check; of any other
// the answer may be wrong, but never a panic. json.malformed if the document is
// not an object or ends too early.
func Member(raw []byte, name string) (value []byte, found bool, err error) {
	w := walker{raw: raw}
	if w.space(); !w.at('{') {
		return nil, false, broken()
	}
	at, found, err := w.member(name)
	if err != nil || !found {
		return nil, false, err
	}
	return raw[at.start:at.end], true, nil
}

// Members is Member for several names in one pass: values[i] becomes the bytes of
// the member names[i], nil if there is none. Both have the same length.
func Members(raw []byte, names []string, values [][]byte) error {
	w := walker{raw: raw}
	if w.space(); !w.at('{') {
		return broken()
	}
	clear(values)
	left := len(names)
	return w.members(func(name []byte, at span) bool {
		for i, wanted := range names {
			if values[i] == nil && equalName(name, wanted) {
				values[i] = raw[at.start:at.end]
				left--
			}
		}
		return left > 0
	})
}

// Locate finds the value at an RFC 6901 pointer ("" is the whole document):
// raw[start:end] are its bytes. The document must have passed Check. Not found is
// no error; json.malformed if the document ends too early, json.pointer_invalid
// if the pointer does not follow the RFC.
func Locate(raw []byte, pointer string) (start, end int, found bool, err error) {
	if !validPointer(pointer) {
		return 0, 0, false, fault.New(fault.Invalid, "json.pointer_invalid", "a pointer is empty or starts with a slash, and ~ is written ~0; send an RFC 6901 pointer")
	}
	w := walker{raw: raw}
	w.space()
	for rest := pointer; rest != ""; {
		var token string
		token, rest = rest[1:], ""
		if next := strings.IndexByte(token, '/'); next >= 0 {
			token, rest = token[:next], token[next:]
		}
		var at span
		switch {
		case w.at('{'):
			if strings.IndexByte(token, '~') >= 0 {
				token = UnescapeToken(token)
			}
			at, found, err = w.member(token)
		case w.at('['):
			at, found, err = w.element(token)
		default:
			return 0, 0, false, nil // a scalar has no parts
		}
		if err != nil || !found {
			return 0, 0, false, err
		}
		w.pos = at.start
	}
	at, err := w.value()
	return at.start, at.end, err == nil, err
}

func validPointer(p string) bool {
	for i := range len(p) {
		if p[i] == '~' && (i+1 == len(p) || p[i+1] != '0' && p[i+1] != '1') {
			return false
		}
	}
	return p == "" || p[0] == '/'
}

// Splice adds to dst a copy of raw in which the value at the pointer is replaced
// and every other byte is as it was. json.not_found if there is no such value;
// otherwise the faults of Locate. The document must have passed Check, the value
// must be one JSON value.
func Splice(dst, raw []byte, pointer string, value []byte) ([]byte, error) {
	start, end, found, err := Locate(raw, pointer)
	if err != nil {
		return dst, err
	}
	if !found {
		return dst, fault.New(fault.NotFound, "json.not_found", "the document has no value at this pointer; point to an existing one").WithField(pointer)
	}
	dst = append(dst, raw[:start]...)
	dst = append(dst, value...)
	return append(dst, raw[end:]...), nil
}

// SetMember adds to dst a copy of raw in which the member of the top-level object
// has the value, replaced in its place or appended at the end. The document must
// have passed Check, the value must be one JSON value. json.malformed if raw is
// not an object.
func SetMember(dst, raw []byte, name string, value []byte) ([]byte, error) {
	w := walker{raw: raw}
	if w.space(); !w.at('{') {
		return dst, broken()
	}
	at, found, err := w.member(name)
	switch {
	case err != nil:
		return dst, err
	case found:
		dst = append(dst, raw[:at.start]...)
		dst = append(dst, value...)
		return append(dst, raw[at.end:]...), nil
	}
	// The walker is at the closing brace.
	dst = append(dst, raw[:w.pos]...)
	if !w.empty {
		dst = append(dst, ',')
	}
	dst = appendQuoted(dst, name)
	dst = append(dst, ':')
	dst = append(dst, value...)
	return append(dst, raw[w.pos:]...), nil
}

// AppendCompact adds the document to dst without the white space between its
// tokens. Strings and numbers stay as written. The document must have passed
// Check.
func AppendCompact(dst, raw []byte) []byte {
	inside := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case inside && c == '\\' && i+1 < len(raw):
			dst = append(dst, c)
			i++
			c = raw[i]
		case c == '"':
			inside = !inside
		case !inside && isSpace(c):
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// EachMember calls visit with the name and the place of the value of each member of the object
// that begins at raw[at], in document order. Names are as written, without quotes. The document
// must have passed Check. It returns the first error of visit, or json.malformed if the object
// ends too early.
func EachMember(raw []byte, at int, visit func(name []byte, start, end int) error) error {
	w := walker{raw: raw, pos: at}
	var failed error
	err := w.members(func(name []byte, value span) bool {
		failed = visit(name, value.start, value.end)
		return failed == nil
	})
	return cmp.Or(failed, err)
}

// EachElement is EachMember for the elements of the array that begins at raw[at].
func EachElement(raw []byte, at int, visit func(index, start, end int) error) error {
	w := walker{raw: raw, pos: at}
	var failed error
	err := w.elements(func(index int, value span) bool {
		failed = visit(index, value.start, value.end)
		return failed == nil
	})
	return cmp.Or(failed, err)
}

// walker steps through a checked document. It only counts brackets and quotes.
type walker struct {
	raw   []byte
	pos   int
	empty bool // the object that member searched in vain has no members
}

func broken() error {
	return fault.New(fault.Invalid, "json.malformed", "the document is not a complete object; send one RFC 8259 document")
}

func (w *walker) at(c byte) bool { return w.pos < len(w.raw) && w.raw[w.pos] == c }

func (w *walker) space() {
	for w.pos < len(w.raw) && isSpace(w.raw[w.pos]) {
		w.pos++
	}
}

// member searches the object that begins here. If it is not found the walker
// is at the closing brace.
func (w *walker) member(name string) (at span, found bool, err error) {
	err = w.members(func(key []byte, value span) bool {
		if found = equalName(key, name); found {
			at = value
		}
		return !found
	})
	if err != nil {
		return span{}, false, err
	}
	return at, found, nil
}

// members calls more with each member of the object that begins here, names as written and
// without quotes, until more returns false. After the last one the walker
// is at the closing brace.
func (w *walker) members(more func(name []byte, value span) bool) error {
	w.pos++
	w.space()
	if w.at('}') {
		w.empty = true
		return nil
	}
	for {
		key, err := w.value()
		if err != nil || w.raw[key.start] != '"' {
			return broken()
		}
		if w.space(); !w.at(':') {
			return broken()
		}
		w.pos++
		at, err := w.value()
		if err != nil {
			return err
		}
		if !more(w.raw[key.start+1:key.end-1], at) {
			return nil
		}
		switch w.space(); {
		case w.at('}'):
			return nil
		case !w.at(','):
			return broken()
		}
		w.pos++
	}
}

// element searches the array that begins here for an index.
func (w *walker) element(token string) (at span, found bool, err error) {
	index, err := strconv.ParseUint(token, 10, 31)
	if err != nil || len(token) > 1 && token[0] == '0' {
		return span{}, false, nil //nolint:nilerr // a token that is no index has no element
	}
	err = w.elements(func(i int, value span) bool {
		if found = i == int(index); found {
			at = value
		}
		return !found
	})
	return at, found, err
}

// elements calls more with each element of the array that begins here, until more returns
// false.
func (w *walker) elements(more func(index int, value span) bool) error {
	w.pos++
	if w.space(); w.at(']') {
		return nil
	}
	for i := 0; ; i++ {
		at, err := w.value()
		if err != nil || !more(i, at) {
			return err
		}
		switch w.space(); {
		case w.at(']'):
			return nil
		case !w.at(','):
			return broken()
		}
		w.pos++
	}
}

// value steps over the white space and the value that begin here.
func (w *walker) value() (span, error) {
	w.space()
	start := w.pos
	for depth := 0; w.pos < len(w.raw); {
		switch c := w.raw[w.pos]; c {
		case '{', '[':
			depth++
			w.pos++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return span{}, broken()
			}
			w.pos++
		case '"':
			if !w.skipString() {
				return span{}, broken()
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return span{}, broken()
			}
			w.pos++
			continue
		default:
			for w.pos < len(w.raw) && !isDelimiter(w.raw[w.pos]) {
				w.pos++
			}
		}
		if depth == 0 {
			return span{start, w.pos}, nil
		}
	}
	return span{}, broken()
}

// skipString steps over the string that begins here; false if it has no end. A quote
// after an odd number of backslashes is part of it.
func (w *walker) skipString() bool {
	begin := w.pos + 1
	for from := begin; ; {
		n := bytes.IndexByte(w.raw[from:], '"')
		if n < 0 {
			return false
		}
		quote, escapes := from+n, 0
		for quote-escapes > begin && w.raw[quote-escapes-1] == '\\' {
			escapes++
		}
		if from = quote + 1; escapes%2 == 0 {
			w.pos = from
			return true
		}
	}
}

// isDelimiter reports whether a number or literal ends before c.
func isDelimiter(c byte) bool {
	switch c {
	case ',', ':', '{', '}', '[', ']', '"':
		return true
	}
	return isSpace(c)
}

// equalName compares a name as written, without quotes, with a plain one.
func equalName(written []byte, name string) bool {
	for len(written) > 0 {
		if written[0] != '\\' {
			if name == "" || name[0] != written[0] {
				return false
			}
			written, name = written[1:], name[1:]
			continue
		}
		r, size := unescape(written)
		want, length := utf8.DecodeRuneInString(name)
		if size == 0 || length == 0 || r != want || want == utf8.RuneError && length == 1 {
			return false
		}
		written, name = written[size:], name[length:]
	}
	return name == ""
}

// loneSurrogate is what unescape gives for half of a pair; it is no rune.
const loneSurrogate = -1

// unescape reads the escape that b begins with, a pair of surrogates as one, and
// gives its length in bytes, 0 if it is none.
func unescape(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	r, ok := hex(b)
	switch {
	case !ok:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	if low, ok := hex(b[6:]); ok {
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return loneSurrogate, 6
}

// hex reads an escape of four hexadecimal digits.
func hex(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// AppendToken adds a name as written, without quotes, as a token of a JSON pointer.
func AppendToken(dst, written []byte) []byte {
	for len(written) > 0 {
		r, size := rune(written[0]), 1
		if r == '\\' {
			if r, size = unescape(written); size == 0 {
				return dst
			}
		} else if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(written)
		}
		switch r {
		case '~':
			dst = append(dst, '~', '0')
		case '/':
			dst = append(dst, '~', '1')
		default:
			dst = utf8.AppendRune(dst, r)
		}
		written = written[size:]
	}
	return dst
}

// appendQuoted adds a plain name as a JSON string.
func appendQuoted(dst []byte, name string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range name {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
