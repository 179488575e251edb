package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// needle is one spelling of a value that must not be stored.
type needle struct {
	name string // "iban as hex"; never the value
	text []byte
}

// spellings are the forms in which a file may contain a value.
func spellings(name, value string) []needle {
	seen, out := map[string]bool{}, []needle{}
	add := func(form, text string) {
		if !seen[text] {
			seen[text] = true
			out = append(out, needle{name + " as " + form, []byte(text)})
		}
	}
	add("text", value)
	for _, s := range encoded([]byte(value)) {
		add(s.name, string(s.text))
	}
	add("upper case", strings.ToUpper(value))
	add("lower case", strings.ToLower(value))
	alphanumeric := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, value)
	add("normal form", strings.ToUpper(alphanumeric))
	add("lower normal form", strings.ToLower(alphanumeric))
	var little, big []byte
	var escaped, capital, partly, partlyCapital strings.Builder
	for _, u := range utf16.Encode([]rune(value)) {
		little, big = append(little, byte(u), byte(u>>8)), append(big, byte(u>>8), byte(u))
		fmt.Fprintf(&escaped, `\u%04x`, u)
		fmt.Fprintf(&capital, `\u%04X`, u)
		if u < 0x80 {
			partly.WriteRune(rune(u))
			partlyCapital.WriteRune(rune(u))
		} else {
			fmt.Fprintf(&partly, `\u%04x`, u)
			fmt.Fprintf(&partlyCapital, `\u%04X`, u)
		}
	}
	add("UTF-16LE", string(little))
	add("UTF-16BE", string(big))
	add("JSON escapes", escaped.String())
	add("capital JSON escapes", capital.String())
	add("partial JSON escapes", partly.String())
	add("partial capital JSON escapes", partlyCapital.String())
	var octal strings.Builder
	for _, b := range []byte(value) {
		if b < 0x80 {
			octal.WriteByte(b)
		} else {
			fmt.Fprintf(&octal, `\%03o`, b)
		}
	}
	add("bytea escapes", octal.String())
	add("doubled bytea escapes", strings.ReplaceAll(octal.String(), `\`, `\\`))
	add("query text", url.QueryEscape(value))
	add("path text", url.PathEscape(value))
	return slices.DeleteFunc(out, func(n needle) bool { return len(n.text) < window })
}

// encoded are the encodings of bytes.
func encoded(value []byte) []needle {
	decimals := make([]string, len(value))
	for i, b := range value {
		decimals[i] = strconv.Itoa(int(b))
	}
	out := []needle{
		{"hex", []byte(hex.EncodeToString(value))},
		{"upper hex", []byte(strings.ToUpper(hex.EncodeToString(value)))},
		{"decimal bytes", []byte(strings.Join(decimals, " "))},
		{"decimal list", []byte(strings.Join(decimals, ","))},
	}
	for before := range 3 { // bytes that stand before it in the same base64 text
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := alphabet.EncodeToString(append(make([]byte, before), value...))
			// Only the characters that do not depend on the neighbours of the value.
			own := text[(before*8+5)/6 : (before+len(value))*8/6]
			out = append(out, needle{fmt.Sprintf("base64 from byte %d", before), []byte(own)})
		}
	}
	return out
}

// window is the shortest needle.
const window = 15

// scanner finds many needles at once: it reads the last bytes of a window and skips to the
// next position at which a needle can begin (Wu and Manber).
type scanner struct {
	needles []needle
	longest int
	skip    [1 << 16]uint8
	ends    map[uint32][]int           // needles by the last bytes of their first window
	where   map[string]map[string]bool // what was found, by place
	seen    []string                   // all places
	buffer  [4 << 20]byte
	files   int
	bytes   int64
}

const block = 4

func blockOf(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
func slot(b uint32) uint32 { return b * 2654435761 >> 16 }

func newScanner(t *testing.T, needles []needle) *scanner {
	t.Helper()
	s := &scanner{needles: needles, ends: map[uint32][]int{}, where: map[string]map[string]bool{}}
	for i := range s.skip {
		s.skip[i] = window - block + 1
	}
	for i, n := range needles {
		require.GreaterOrEqual(t, len(n.text), window, n.name)
		s.longest = max(s.longest, len(n.text))
		for end := block; end <= window; end++ {
			at := slot(blockOf(n.text[end-block:]))
			s.skip[at] = min(s.skip[at], uint8(window-end))
		}
		last := blockOf(n.text[window-block:])
		s.ends[last] = append(s.ends[last], i)
	}
	return s
}

// text scans one piece.
func (s *scanner) text(place string, text []byte) {
	for at := 0; at+window <= len(text); {
		last := blockOf(text[at+window-block:])
		if skip := s.skip[slot(last)]; skip > 0 {
			at += int(skip)
			continue
		}
		for _, i := range s.ends[last] {
			if bytes.HasPrefix(text[at:], s.needles[i].text) {
				s.hit(place, s.needles[i].name)
			}
		}
		at++
	}
}

func (s *scanner) hit(place, name string) {
	if s.where[place] == nil {
		s.where[place] = map[string]bool{}
	}
	s.where[place][name] = true
}

// reader scans a stream in pieces with an overlap.
func (s *scanner) reader(place string, r io.Reader) error {
	s.files++
	s.seen = append(s.seen, place)
	buffer, kept := s.buffer[:], 0
	for {
		n, err := io.ReadFull(r, buffer[kept:])
		s.bytes += int64(n)
		s.text(place, buffer[:kept+n])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		kept = copy(buffer, buffer[kept+n-s.longest:])
	}
}

// folder scans all files below a folder, compressed ones also decompressed.
func (s *scanner) folder(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		name := strings.TrimPrefix(path, root)
		if err := s.reader(name, f); err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if unpacked, err := gzip.NewReader(f); err == nil {
			return s.reader(name+" unpacked", unpacked)
		}
		return nil
	})
}

// found lists the needles by place.
func (s *scanner) found() []string {
	var out []string
	for _, place := range slices.Sorted(maps.Keys(s.where)) {
		out = append(out, place+": "+strings.Join(slices.Sorted(maps.Keys(s.where[place])), ", "))
	}
	return out
}

// names are the needles that were found in places with a prefix.
func (s *scanner) names(prefix string) []string {
	all := map[string]bool{}
	for place, names := range s.where {
		if strings.HasPrefix(place, prefix) {
			maps.Copy(all, names)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// TestCanaryScannerSpellings requires that the scanner finds every spelling where the test has
// put it, also at the edge of a piece and in a compressed file.
func TestCanaryScannerSpellings(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"name": "Eulalia Quendolyn Marchbanks", "text": "Łódź – süß, 中文 und 🦜 in einem Satz", "phone": "+49 30 4711081547 1122",
	}
	var needles []needle
	for _, name := range slices.Sorted(maps.Keys(values)) {
		needles = append(needles, spellings(name, values[name])...)
	}
	key := bytes.Repeat([]byte{0, 0xff, '\\', 0x7a}, 8)
	needles = append(needles, needle{"key as bytes", key})
	for _, n := range encoded(key) {
		needles = append(needles, needle{"key as " + n.name, n.text})
	}
	for _, form := range []string{
		"text", "hex", "upper hex", "base64 from byte 0", "base64 from byte 1", "base64 from byte 2", "UTF-16LE", "UTF-16BE", "JSON escapes", "bytea escapes", "query text", "decimal bytes",
	} {
		require.True(t, slices.ContainsFunc(needles, func(n needle) bool { return n.name == "text as "+form }), form)
	}

	folder := t.TempDir()
	s := newScanner(t, needles)
	filler := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. \x00\x00"), 1000)
	for i, n := range needles {
		content := slices.Concat(filler[:i*7], n.text, filler[:i*3])
		name := filepath.Join(folder, fmt.Sprintf("%03d", i))
		if i%5 == 0 { // across the edge of a piece
			content = slices.Concat(bytes.Repeat([]byte{0}, 4<<20-i%len(n.text)-1), n.text)
		}
		if i%5 == 1 {
			var packed bytes.Buffer
			w := gzip.NewWriter(&packed)
			_, err := w.Write(content)
			require.NoError(t, errors.Join(err, w.Close()))
			content = packed.Bytes()
		}
		require.NoError(t, os.WriteFile(name, content, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "clean"), bytes.Repeat(filler, 100), 0o600))
	require.NoError(t, s.folder(folder))
	for i, n := range needles {
		require.Contains(t, s.names(fmt.Sprintf("/%03d", i)), n.name)
	}
	require.Empty(t, s.names("/clean"))
	require.GreaterOrEqual(t, s.files, len(needles))

	// Base64 is found between any neighbours of the value.
	for before := range 9 {
		for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			s := newScanner(t, needles)
			s.text("x", []byte(alphabet.EncodeToString(slices.Concat(bytes.Repeat([]byte{0xfb}, before), []byte(values["text"]), []byte{0xfe, 0xff}))))
			require.NotEmpty(t, s.where, "%d bytes before", before)
		}
	}
	require.Positive(t, s.bytes)
}
