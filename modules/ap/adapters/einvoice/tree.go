package einvoice

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"io"
	"slices"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Element is one element of a UBL document: a business term (cbc) with its text,
// or a group of them (cac) with its children. Elements of other namespaces are not
// kept. A CII document is converted to this form.
type Element = xmltree.Element

var fileCodes = xmltree.Codes{
	DoctypeForbidden: CodeDoctypeForbidden, TooLarge: CodeTooLarge, Malformed: CodeXMLMalformed, TextTooLong: CodeFieldTooLong,
}

var keptAttributes = []string{"currencyID", "schemeID", "mimeCode", "unitCode", "listID", "filename", "format"}

// ubl and cii are the two syntaxes. In UBL only basic components have text.
var (
	ubl = xmltree.Dialect{
		Prefixes:  map[string]string{NamespaceBasic: "cbc:", NamespaceAggregate: "cac:"},
		TextSpace: NamespaceBasic, Attributes: keptAttributes,
		Embedded: []string{"cbc:EmbeddedDocumentBinaryObject"},
	}
	cii = xmltree.Dialect{
		Prefixes:   map[string]string{namespaceInvoiceCII: "rsm:", namespaceReusable: "ram:", namespaceTypes: "udt:"},
		Attributes: keptAttributes, Embedded: []string{"ram:AttachmentBinaryObject"},
	}
)

// Parse reads one UBL Invoice or CreditNote, or one CII CrossIndustryInvoice, as XML or
// embedded in a PDF file, into a tree and returns the SHA-256 of the
// file in lower case hexadecimal. It checks no rule of the standard, so the document may be
// incomplete. Refusals are faults with the fileCodes of this package; an error of r is
// returned unchanged. Memory stays within a few times the size of the file.
func Parse(r io.Reader) (root *Element, digest string, err error) {
	return (&parser{}).read(r)
}

// parser reads one file.
type parser struct {
	keepBytes bool       // of embedded files
	beside    embeddings // of a PDF file, beside the document
}

func (p *parser) read(r io.Reader) (root *Element, digest string, err error) {
	return xmltree.ReadFile(r, fileCodes, p.parse)
}

func (p *parser) parse(in io.Reader) (*Element, error) {
	buffered := bufio.NewReader(in)
	head, _ := buffered.Peek(sniffed)
	switch kind := sniff(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))); kind {
	case "":
		return p.parseXML(buffered)
	case kindPDF:
		return p.parsePDF(buffered)
	default:
		return nil, unsupported(kind)
	}
}

// parsePDF parses the invoice that is embedded in a PDF file.
func (p *parser) parsePDF(in io.Reader) (*Element, error) {
	file, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	invoice, beside, err := extractInvoice(file)
	p.beside = beside
	switch {
	case err != nil:
		return nil, err
	case sniff(invoice[:min(len(invoice), sniffed)]) != "":
		return nil, unsupported(sniff(invoice[:min(len(invoice), sniffed)]) + " in a PDF")
	}
	return p.parseXML(bytes.NewReader(invoice))
}

func (p *parser) parseXML(in io.Reader) (*Element, error) {
	root, err := xmltree.Parse(in, fileCodes, func(root xml.Name, line int) (xmltree.Dialect, error) {
		dialect, err := dialectOf(root, line)
		dialect.KeepBytes = p.keepBytes
		return dialect, err
	})
	if err != nil {
		return nil, err
	}
	if root.Space == namespaceInvoiceCII {
		root = convertCII(root)
	}
	root.BuildIndex()
	return root, nil
}

// dialectOf chooses the syntax by the root and refuses other files.
func dialectOf(root xml.Name, line int) (xmltree.Dialect, error) {
	if root == (xml.Name{Space: namespaceInvoiceCII, Local: "CrossIndustryInvoice"}) {
		return cii, nil
	}
	if slices.Contains([]xml.Name{{Space: NamespaceInvoice, Local: "Invoice"}, {Space: NamespaceCreditNote, Local: "CreditNote"}}, root) {
		return ubl, nil
	}
	if kind := kindOfRoot(root); kind != "" {
		return xmltree.Dialect{}, unsupported(kind).With("line", line)
	}
	return xmltree.Dialect{}, fault.New(fault.Invalid, CodeRootUnsupported,
		"Line %d: the root element is neither Invoice nor CreditNote of UBL 2, nor CrossIndustryInvoice of CII. Send one of these.", line).
		With("line", line)
}
