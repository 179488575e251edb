package xmltree

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/text"
)

// ReadFile calls parse with at most MaxBytes of a file and returns the SHA-256 of the file in
// lower case hexadecimal, also of a file that parse refused. An error of r is returned
// unchanged.
func ReadFile(r io.Reader, codes Codes, parse func(io.Reader) (*Element, error)) (root *Element, digest string, err error) {
	in := &input{r: r, hash: sha256.New()}
	root, err = parse(in)
	if err != nil {
		// The digest identifies the refused file too, so the rest is read.
		_, _ = io.Copy(io.Discard, in)
	}
	switch {
	case in.failed != nil:
		return nil, "", fmt.Errorf("reading the document: %w", in.failed)
	case in.size > MaxBytes:
		return nil, "", fault.New(fault.TooLarge, codes.TooLarge,
			"The file is larger than %d bytes. Ask the sender to leave out attachments.", MaxBytes)
	}
	digest = hex.EncodeToString(in.hash.Sum(nil))
	if err != nil {
		return nil, digest, err
	}
	return root, digest, nil
}

// Parse reads one XML file into a tree. Refusals are faults. Memory stays within a few times
// the size of the file.
func Parse(in io.Reader, codes Codes, kind Kind) (*Element, error) {
	buffered := bufio.NewReader(in)
	if mark, _ := buffered.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = buffered.Discard(3)
	}
	return parse(buffered, codes, kind)
}

func parse(buffered *bufio.Reader, codes Codes, kind Kind) (*Element, error) {
	bytewise := &tokenReader{Reader: buffered}
	d := xml.NewDecoder(bytewise)
	d.CharsetReader = bytewise.convert
	b := builder{decoder: d, codes: codes, kind: kind, names: map[string]string{}}
	for {
		bytewise.begin(b.blob != nil || b.skipping > 0)
		// The position before a token is where the token starts.
		b.line, _ = d.InputPos()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if b.root == nil {
				return nil, b.codes.malformed(b.line, "there is no element")
			}
			return b.root, nil
		}
		if err != nil {
			return nil, b.translate(err)
		}
		if err := b.take(token); err != nil {
			return nil, err
		}
	}
}

// builder makes the tree from the tokens of one file.
type builder struct {
	decoder  *xml.Decoder
	codes    Codes
	kind     Kind
	dialect  Dialect
	names    map[string]string // one copy of each tag; a file repeats few
	root     *Element
	open     *Element // where children go, nil outside the root
	blob     *blob    // set while inside an embedded file
	text     []byte
	depth    int
	last     []map[string]*Element // per open element: the last child of each name
	skipping int                   // depth below an element that is not kept
	elements int
	line     int
}

// translate turns an error of the decoder into a fault. The decoder's text may quote the
// file, so it is only the cause.
func (b *builder) translate(err error) error {
	if errors.Is(err, errTokenTooLong) {
		return b.tooLong()
	}
	line, _ := b.decoder.InputPos()
	if syntax, ok := errors.AsType[*xml.SyntaxError](err); ok {
		line = syntax.Line
	}
	what := "the XML is not well-formed"
	if errors.Is(err, errEncoding) {
		what = "the declared encoding is none of UTF-8, ISO-8859-1 and US-ASCII, or a byte is outside it"
	}
	return b.codes.malformed(line, what).WithCause(err)
}

// tooLong refuses a token that is longer than MaxText, or the texts of one element together.
func (b *builder) tooLong() error {
	return fault.New(fault.TooLarge, b.codes.TextTooLong,
		"Line %d: a text, tag or comment in %q has more than %d bytes. Ask the sender for a corrected document.", b.line, b.open.Path(), MaxText).
		With("element", b.open.Path()).With("limit", MaxText).With("line", b.line)
}

func (b *builder) take(token xml.Token) error {
	switch t := token.(type) {
	case xml.StartElement:
		return b.start(t)
	case xml.EndElement:
		b.end()
	case xml.CharData:
		switch {
		case b.depth == 0:
			if len(bytes.TrimSpace(t)) > 0 {
				return b.codes.malformed(b.line, "there is text outside the root element")
			}
		case b.skipping > 0 || b.open == nil:
		case b.blob != nil:
			b.blob.write(t)
		case b.hasText(b.open):
			if len(b.text)+len(t) > MaxText {
				return b.tooLong()
			}
			b.text = append(b.text, t...)
		}
	case xml.Directive:
		if isDoctype(t) {
			return fault.New(fault.Invalid, b.codes.DoctypeForbidden,
				"Line %d: a document type declaration is not allowed. Ask the sender for a file without DOCTYPE.", b.line).
				With("line", b.line)
		}
		return b.codes.malformed(b.line, "there is a markup declaration")
	}
	return nil
}

func (b *builder) start(t xml.StartElement) error {
	b.depth++
	if b.depth > MaxDepth {
		return b.codes.malformed(b.line, fmt.Sprintf("elements are nested deeper than %d", MaxDepth))
	}
	if b.depth == 1 {
		return b.startRoot(t)
	}
	prefix, kept := b.dialect.Prefixes[t.Name.Space]
	if b.skipping > 0 || !kept || b.dialect.TextSpace != "" && b.open.Space == b.dialect.TextSpace {
		b.skipping++
		return nil
	}
	b.elements++
	if b.elements > MaxElements {
		return fault.New(fault.TooLarge, b.codes.TooLarge,
			"The file has more than %d elements. Ask the sender to split the document.", MaxElements)
	}
	e := &Element{Space: b.intern(t.Name.Space), Tag: b.intern(prefix + t.Name.Local), Parent: b.open, Line: b.line}
	e.Name = e.Tag[len(prefix):]
	if err := b.keepAttributes(e, t.Attr); err != nil {
		return err
	}
	b.enter(e)
	b.text = b.text[:0]
	if slices.Contains(b.dialect.Embedded, e.Tag) {
		b.blob = newBlob(b.dialect.KeepBytes)
	}
	return nil
}

// hasText reports whether the text of an element is kept.
func (b *builder) hasText(e *Element) bool {
	return b.dialect.TextSpace == "" || e.Space == b.dialect.TextSpace
}

func (b *builder) startRoot(t xml.StartElement) error {
	if b.root != nil {
		return b.codes.malformed(b.line, "there is a second root element")
	}
	dialect, err := b.kind(t.Name, b.line)
	if err != nil {
		return err
	}
	b.dialect = dialect
	b.root = &Element{Space: t.Name.Space, Name: t.Name.Local, Tag: t.Name.Local, Line: b.line}
	b.enter(b.root)
	return nil
}

// enter makes e the open element and the last child of the one before.
func (b *builder) enter(e *Element) {
	e.index = 1
	if b.open != nil {
		siblings := b.last[len(b.last)-1]
		if siblings == nil {
			siblings = map[string]*Element{}
			b.last[len(b.last)-1] = siblings
		}
		if s := siblings[e.Tag]; s != nil {
			s.repeated, e.repeated = true, true
			e.index = s.index + 1
		}
		siblings[e.Tag] = e
		b.open.Children = append(b.open.Children, e)
	}
	b.open = e
	b.last = append(b.last, nil)
}

func (b *builder) keepAttributes(e *Element, attributes []xml.Attr) error {
	for _, a := range attributes {
		if a.Name.Space != "" {
			continue
		}
		if !slices.Contains(b.dialect.Attributes, a.Name.Local) {
			continue
		}
		if slices.ContainsFunc(e.Attributes, func(known Attribute) bool { return known.Name == a.Name.Local && known.Value != "" }) {
			return b.codes.malformed(b.line, "an attribute is repeated")
		}
		e.Attributes = append(e.Attributes, Attribute{b.intern(a.Name.Local), b.intern(strings.TrimSpace(a.Value))})
	}
	return nil
}

func (b *builder) end() {
	b.depth--
	if b.skipping > 0 {
		b.skipping--
		return
	}
	e := b.open
	if b.blob != nil {
		e.Content = b.blob.close()
		b.blob = nil
	} else if b.hasText(e) {
		clean := text.Clean(string(b.text))
		e.Text, e.Cleaned = strings.Join(strings.Fields(clean), " "), len(clean) < len(b.text)
	}
	b.text = b.text[:0]
	b.open = e.Parent
	b.last = b.last[:len(b.last)-1]
}

func (b *builder) intern(s string) string {
	if known, ok := b.names[s]; ok {
		return known
	}
	s = strings.Clone(s)
	if len(b.names) < 4096 {
		b.names[s] = s
	}
	return s
}

var errTokenTooLong = errors.New("token too long")

// tokenReader bounds the tokens of the decoder, which would hold each one in memory. The decoder
// reads single bytes of it, and nothing ahead of the token.
type tokenReader struct {
	*bufio.Reader
	length      int  // bytes of the token so far
	last        byte // read before
	isTag       bool // the token is a tag; attributes cost many times their size
	textUnbound bool // the token may be as long as the file unless it is a tag
}

// begin prepares for the next token.
func (r *tokenReader) begin(textUnbound bool) {
	r.length, r.isTag, r.textUnbound = 0, false, textUnbound
}

// ReadByte implements io.ByteReader.
func (r *tokenReader) ReadByte() (byte, error) {
	c, err := r.Reader.ReadByte()
	// The bracket that begins a tag may have ended the token before.
	if r.length <= 1 && r.last == '<' {
		r.isTag = c != '!'
	}
	r.last = c
	if r.length++; r.length > MaxText && (r.isTag || !r.textUnbound) {
		return 0, errTokenTooLong
	}
	return c, err
}

// convert reads what follows in a declared encoding.
func (r *tokenReader) convert(label string, _ io.Reader) (io.Reader, error) {
	converted, err := charsetReader(label, r.Reader)
	if err != nil {
		return nil, err
	}
	r.Reader = bufio.NewReader(converted)
	return r, nil
}

// input counts and hashes what is read and stops one byte over the limit.
type input struct {
	r      io.Reader
	hash   hash.Hash
	size   int64
	failed error
}

func (in *input) Read(p []byte) (int, error) {
	if in.size > MaxBytes {
		return 0, io.ErrUnexpectedEOF
	}
	if room := MaxBytes + 1 - in.size; int64(len(p)) > room {
		p = p[:room]
	}
	n, err := in.r.Read(p)
	in.size += int64(n)
	_, _ = in.hash.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		in.failed = err
	}
	return n, err
}
