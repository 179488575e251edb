package einvoice

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
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Element is one element of a UBL document: a business term (cbc) with its text,
// or a group of them (cac) with its children. Elements of other namespaces are not
// kept. A CII document is converted to this form.
type Element struct {
	Space    string // namespace URI
	Name     string // local name, "LineExtensionAmount"
	Text     string // text with blanks collapsed; empty for groups
	Line     int    // line in the file where the element starts, from 1
	Children []*Element

	tag        string // name with the usual prefix, "cbc:LineExtensionAmount"
	parent     *Element
	index      int  // among siblings of the same name, from 1
	repeated   bool // a sibling has the same name
	attributes []attribute
	content    *content
	origin     *Element              // of a document that was not read as UBL: the element that holds the value
	byTag      map[string][]*Element // of the root only: the elements below it, in document order
}

type attribute struct{ name, value string }

// content has the digest and size of an embedded file, not its bytes.
type content struct {
	sha256 string
	size   int64
	valid  bool
}

// Attribute gives the value of an attribute without namespace, "" if absent. Only
// currencyID, schemeID, listID, unitCode, mimeCode, filename and format are kept. It may be called
// on nil.
func (e *Element) Attribute(name string) string {
	if e == nil {
		return ""
	}
	for _, a := range e.attributes {
		if a.name == name {
			return a.value
		}
	}
	return ""
}

// Path gives the position of the element in its file, with the usual prefixes, and an index
// from 1 where siblings share a name:
// "/Invoice/cac:InvoiceLine[2]/cbc:LineExtensionAmount".
func (e *Element) Path() string {
	if e == nil {
		return ""
	}
	if e.origin != nil {
		return e.origin.Path()
	}
	if e.parent == nil {
		return "/" + e.Name
	}
	path := e.parent.Path() + "/" + e.tag
	if e.repeated {
		path += "[" + strconv.Itoa(e.index) + "]"
	}
	return path
}

// find returns the first element down the path of tags, nil if there is none. It may be
// called on nil.
func (e *Element) find(tags ...string) *Element {
next:
	for _, tag := range tags {
		if e == nil {
			return nil
		}
		for _, c := range e.Children {
			if c.tag == tag {
				e = c
				continue next
			}
		}
		return nil
	}
	return e
}

// all returns every element down the path of tags, in document order.
func (e *Element) all(tags ...string) []*Element {
	if e == nil {
		return nil
	}
	if len(tags) == 0 {
		return []*Element{e}
	}
	var out []*Element
	for _, c := range e.Children {
		if c.tag == tags[0] {
			out = append(out, c.all(tags[1:]...)...)
		}
	}
	return out
}

// value gives the text, "" if the element is absent or holds a placeholder.
func (e *Element) value() string {
	if e == nil || isPlaceholder(e.Text) {
		return ""
	}
	return e.Text
}

// text gives the value of the first element down the path.
func (e *Element) text(tags ...string) string { return e.find(tags...).value() }

// walk calls visit for the element and everything below, in document order.
func (e *Element) walk(visit func(*Element)) {
	visit(e)
	for _, c := range e.Children {
		c.walk(visit)
	}
}

// buildIndex lists the elements below the root by tag, so that a rule need not walk the tree.
func (e *Element) buildIndex() {
	e.byTag = map[string][]*Element{}
	e.walk(func(below *Element) { e.byTag[below.tag] = append(e.byTag[below.tag], below) })
}

// isPlaceholder reports whether a text stands for an absent value, as suppliers write
// where their software requires one.
func isPlaceholder(s string) bool {
	return s == "" || s == "-" || strings.EqualFold(s, "n/a")
}

// Parse reads one UBL Invoice or CreditNote, or one CII CrossIndustryInvoice, as XML or
// embedded in a PDF file, into a tree and returns the SHA-256 of the
// file in lower case hexadecimal. It checks no rule of the standard, so the document may be
// incomplete. Refusals are faults with the codes of this package; an error of r is
// returned unchanged. Memory stays within a few times the size of the file.
func Parse(r io.Reader) (root *Element, digest string, err error) {
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
		return nil, "", fault.New(fault.TooLarge, CodeTooLarge,
			"The file is larger than %d bytes. Ask the sender to leave out attachments.", MaxBytes)
	}
	digest = hex.EncodeToString(in.hash.Sum(nil))
	if err != nil {
		return nil, digest, err
	}
	return root, digest, nil
}

func parse(in io.Reader) (*Element, error) {
	buffered := bufio.NewReader(in)
	skipByteOrderMark(buffered)
	head, _ := buffered.Peek(sniffed)
	switch kind := sniff(head); kind {
	case "":
		return parseXML(buffered)
	case kindPDF:
		return parsePDF(buffered)
	default:
		return nil, unsupported(kind)
	}
}

// parsePDF parses the invoice that is embedded in a PDF file.
func parsePDF(in io.Reader) (*Element, error) {
	file, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	invoice, err := extractInvoice(file)
	switch {
	case err != nil:
		return nil, err
	case sniff(invoice[:min(len(invoice), sniffed)]) != "":
		return nil, unsupported(sniff(invoice[:min(len(invoice), sniffed)]) + " in a PDF")
	}
	embedded := bufio.NewReader(bytes.NewReader(invoice))
	skipByteOrderMark(embedded)
	return parseXML(embedded)
}

func skipByteOrderMark(r *bufio.Reader) {
	if mark, _ := r.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = r.Discard(3)
	}
}

func parseXML(buffered *bufio.Reader) (*Element, error) {
	bytewise := &tokenReader{Reader: buffered}
	d := xml.NewDecoder(bytewise)
	d.CharsetReader = bytewise.convert
	b := builder{decoder: d, names: map[string]string{}}
	for {
		bytewise.begin(b.blob != nil || b.skipping > 0)
		// The position before a token is where the token starts.
		b.line, _ = d.InputPos()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if b.root == nil {
				return nil, malformed(b.line, "there is no element")
			}
			root := b.root
			if b.cii {
				root = convertCII(root)
			}
			root.buildIndex()
			return root, nil
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
	names    map[string]string // one copy of each tag; a file repeats few
	root     *Element
	cii      bool     // the root is CrossIndustryInvoice
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
	return malformed(line, what).WithCause(err)
}

// tooLong refuses a token that is longer than MaxText, or the texts of one element together.
func (b *builder) tooLong() error {
	return fault.New(fault.TooLarge, CodeFieldTooLong,
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
				return malformed(b.line, "there is text outside the root element")
			}
		case b.skipping > 0 || b.open == nil:
		case b.blob != nil:
			b.blob.write(t)
		case b.cii || b.open.Space == NamespaceBasic:
			if len(b.text)+len(t) > MaxText {
				return b.tooLong()
			}
			b.text = append(b.text, t...)
		}
	case xml.Directive:
		if bytes.HasPrefix(bytes.ToUpper(bytes.TrimSpace(t)), []byte("DOCTYPE")) {
			return fault.New(fault.Invalid, CodeDoctypeForbidden,
				"Line %d: a document type declaration is not allowed. Ask the sender for a file without DOCTYPE.", b.line).
				With("line", b.line)
		}
		return malformed(b.line, "there is a markup declaration")
	}
	return nil
}

func (b *builder) start(t xml.StartElement) error {
	b.depth++
	if b.depth > MaxDepth {
		return malformed(b.line, fmt.Sprintf("elements are nested deeper than %d", MaxDepth))
	}
	if b.depth == 1 {
		return b.startRoot(t)
	}
	prefix := b.prefix(t.Name.Space)
	if b.skipping > 0 || prefix == "" || b.open.Space == NamespaceBasic {
		b.skipping++
		return nil
	}
	b.elements++
	if b.elements > MaxElements {
		return fault.New(fault.TooLarge, CodeTooLarge,
			"The file has more than %d elements. Ask the sender to split the document.", MaxElements)
	}
	e := &Element{Space: b.intern(t.Name.Space), tag: b.intern(prefix + t.Name.Local), parent: b.open, Line: b.line}
	e.Name = e.tag[len(prefix):]
	if err := b.keepAttributes(e, t.Attr); err != nil {
		return err
	}
	b.enter(e)
	b.text = b.text[:0]
	if e.tag == "cbc:EmbeddedDocumentBinaryObject" || e.tag == "ram:AttachmentBinaryObject" {
		b.blob = newBlob()
	}
	return nil
}

// prefix is the usual prefix of a namespace, "" for one whose elements are not kept.
func (b *builder) prefix(space string) string {
	switch {
	case b.cii && space == namespaceInvoiceCII:
		return "rsm:"
	case b.cii && space == namespaceReusable:
		return "ram:"
	case b.cii && space == namespaceTypes:
		return "udt:"
	case !b.cii && space == NamespaceBasic:
		return "cbc:"
	case !b.cii && space == NamespaceAggregate:
		return "cac:"
	}
	return ""
}

func (b *builder) startRoot(t xml.StartElement) error {
	if b.root != nil {
		return malformed(b.line, "there is a second root element")
	}
	b.cii = t.Name.Space == namespaceInvoiceCII && t.Name.Local == "CrossIndustryInvoice"
	known := b.cii || t.Name.Space == NamespaceInvoice && t.Name.Local == "Invoice" ||
		t.Name.Space == NamespaceCreditNote && t.Name.Local == "CreditNote"
	if kind := kindOfRoot(t.Name); !known && kind != "" {
		return unsupported(kind).With("line", b.line)
	}
	if !known {
		return fault.New(fault.Invalid, CodeRootUnsupported,
			"Line %d: the root element is neither Invoice nor CreditNote of UBL 2, nor CrossIndustryInvoice of CII. Send one of these.", b.line).
			With("line", b.line)
	}
	b.root = &Element{Space: t.Name.Space, Name: t.Name.Local, tag: t.Name.Local, Line: b.line}
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
		if s := siblings[e.tag]; s != nil {
			s.repeated, e.repeated = true, true
			e.index = s.index + 1
		}
		siblings[e.tag] = e
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
		switch a.Name.Local {
		case "currencyID", "schemeID", "mimeCode", "unitCode", "listID", "filename", "format":
			if e.Attribute(a.Name.Local) != "" {
				return malformed(b.line, "an attribute is repeated")
			}
			e.attributes = append(e.attributes, attribute{b.intern(a.Name.Local), b.intern(strings.TrimSpace(a.Value))})
		}
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
		e.content = b.blob.close()
		b.blob = nil
	} else if b.cii || e.Space == NamespaceBasic {
		e.Text = strings.Join(strings.Fields(string(b.text)), " ")
	}
	b.text = b.text[:0]
	b.open = e.parent
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
