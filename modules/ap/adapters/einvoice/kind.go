package einvoice

import (
	"bytes"
	"encoding/xml"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// signatures are the first bytes of kinds of files that are not XML.
var signatures = []struct{ bytes, kind string }{
	{"%PDF-", kindPDF},
	{"PK\x03\x04", kindZIP},
	{"PK\x05\x06", "ZIP"},
	{"\x1f\x8b", "gzip"},
	{"7z\xbc\xaf\x27\x1c", "7-Zip"},
	{"Rar!", "RAR"},
	{"\xd0\xcf\x11\xe0", "Office document before 2007 (xls, doc)"},
	{"\x89PNG", "PNG image"},
	{"\xff\xd8\xff", "JPEG image"},
	{"II*\x00", "TIFF image"},
	{"MM\x00*", "TIFF image"},
	{"GIF8", "GIF image"},
	{"RIFF", "WebP image"},
	{"UNA:+", "EDIFACT"},
	{"UNB+", "EDIFACT"},
	{"ISA*", "ANSI X12"},
	{"{\\rtf", "RTF"},
	{"MIME-Version:", "e-mail message"},
	{"Received:", "e-mail message"},
	{"{", "JSON"},
	{"[", "JSON"},
}

const (
	kindPDF = "PDF"
	kindZIP = "ZIP"
	kindCSV = "CSV"
)

// sniffed is the number of bytes that sniff looks at.
const sniffed = 512

// sniff names the kind of a file that is not XML by its first bytes, "" if it is not known.
// Blanks before a text format are ignored.
func sniff(head []byte) string {
	text := bytes.TrimLeft(head, " \t\r\n")
	for _, s := range signatures {
		switch {
		case !bytes.HasPrefix(head, []byte(s.bytes)) && !bytes.HasPrefix(text, []byte(s.bytes)):
			continue
		case s.kind != kindZIP:
			return s.kind
		}
		// Office documents are ZIP files whose entries have names of their own.
		for _, entry := range []struct{ name, kind string }{
			{"application/vnd.oasis.opendocument", "OpenDocument"}, {"xl/", "Excel document (xlsx)"},
			{"[Content_Types].xml", "Office document (xlsx, docx)"}, {"_rels/.rels", "Office document (xlsx, docx)"},
		} {
			if bytes.Contains(head, []byte(entry.name)) {
				return entry.kind
			}
		}
		return kindZIP
	}
	if looksLikeCSV(text) {
		return kindCSV
	}
	return ""
}

// looksLikeCSV reports whether the first lines of a text have the same separator equally often,
// twice or more.
func looksLikeCSV(text []byte) bool {
	if len(text) == 0 || text[0] == '<' || bytes.IndexByte(text, 0) >= 0 {
		return false
	}
	first, rest, found := bytes.Cut(text, []byte("\n"))
	second, _, complete := bytes.Cut(rest, []byte("\n"))
	for _, separator := range []string{";", "\t", "|", ","} {
		n := bytes.Count(first, []byte(separator))
		if n >= 2 && found && (!complete || bytes.Count(second, []byte(separator)) >= n) {
			return true
		}
	}
	return false
}

// xmlKinds are the kinds of XML files by a part of their root's namespace, or by the name of
// a root without one of these.
var xmlKinds = []struct{ space, root, kind string }{
	{"urn:iso:std:iso:20022:tech:xsd:", "", "ISO 20022 "},
	{"urn:ferd:CrossIndustryDocument", "", "ZUGFeRD 1.0"},
	{"urn:un:unece:uncefact:data:standard:", "", "UN/CEFACT "},
	{"www.unece.org/cefact/namespaces/StandardBusinessDocumentHeader", "", "business document envelope (SBDH)"},
	{"ivaservizi.agenziaentrate.gov.it", "", "FatturaPA"},
	{"www.facturae.", "", "Facturae"},
	{"www.ebinterface.at", "", "ebInterface"},
	{"crd.gov.pl", "Faktura", "KSeF"},
	{"OECD:StandardAuditFile-Tax", "", "SAF-T"},
	{"schemas.xmlsoap.org/soap/envelope", "", "SOAP message"},
	{"www.w3.org/2003/05/soap-envelope", "", "SOAP message"},
	{"", "html", "HTML"},
	{"", "AuditFile", "SAF-T"},
	{"", "FatturaElettronica", "FatturaPA"},
}

const ublDocuments = "urn:oasis:names:specification:ubl:schema:xsd:"

// kindOfRoot names the kind of an XML file by its root, "" if it is not known. It repeats no
// text of the file but the name of a document in a namespace of a standard.
func kindOfRoot(root xml.Name) string {
	if document, ok := strings.CutPrefix(root.Space, ublDocuments); ok && document == root.Local+"-2" && isPlainName(root.Local) {
		return "UBL " + root.Local
	}
	for _, k := range xmlKinds {
		if !strings.Contains(root.Space, k.space) || k.root != "" && !strings.EqualFold(k.root, root.Local) {
			continue
		}
		if !strings.HasSuffix(k.kind, " ") {
			return k.kind
		}
		name := root.Local
		if _, message, ok := strings.Cut(root.Space, k.space); ok && k.kind == "ISO 20022 " {
			name = message
		}
		if !isPlainName(name) {
			return strings.TrimSuffix(k.kind, " ")
		}
		return k.kind + name
	}
	return ""
}

// isPlainName reports whether a name is short and made of letters, digits and dots.
func isPlainName(s string) bool {
	return s != "" && len(s) <= 50 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.") == ""
}

// unsupported refuses a file of a known kind that cannot be imported.
func unsupported(kind string) *fault.Error {
	if kind == kindCSV {
		return fault.New(fault.Invalid, CodeKindUnsupported,
			"The file is of the kind CSV, and nothing says what its columns mean. Write a mapping and name it with --mapping.").With("kind", kind)
	}
	return fault.New(fault.Invalid, CodeKindUnsupported,
		"The file is of the kind %s, which is not imported. Send a UBL 2 Invoice or CreditNote, a CII CrossIndustryInvoice, or a PDF with one of them (Factur-X, ZUGFeRD 2).", kind).
		With("kind", kind)
}
