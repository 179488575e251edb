// Package einvoice reads supplier documents that follow the European standard EN 16931, in
// OASIS UBL 2.1 or UN/CEFACT CII syntax, also embedded in a PDF file, and turns them into
// payloads of accounts payable intents.
//
// Read does all of it: it parses the XML into a tree of Elements, checks the tree against
// the rules of the standard, and maps it to a Document. CII is converted to the tree of UBL
// before. A document that breaks a rule with severity error is refused as a whole: no total
// is corrected.
//
// Payloads have no notes, contacts or extensions, and no content of attachments, as these
// may name persons. ReadAttachments reads the content, to keep each as a paper. Name and address
// of a seller who may be a natural person are only in Supplier.Person, which VendorPayload and
// IntentPayload put where the server seals or drops it. Bank accounts can be compared but never
// read back.
//
// The business terms (BT-1, BT-2, ...) and rule names (BR-CO-15, ...) are those of
// EN 16931-1:2017; element names are those of UBL 2.1. Codes begin with "ubl." for both
// syntaxes.
package einvoice

// MaxFindings is the number of findings listed of one document.
const MaxFindings = 1_000

// Codes of refused documents. They are stable.
const (
	CodeDoctypeForbidden = "ubl.doctype_forbidden"     // the file declares a DOCTYPE
	CodeTooLarge         = "ubl.too_large"             // over MaxBytes or MaxElements
	CodeXMLMalformed     = "ubl.xml_malformed"         // not well-formed, too deep, or an unsupported encoding
	CodePDFUnreadable    = "ubl.pdf_unreadable"        // a PDF file that cannot be read
	CodePDFAmbiguous     = "ubl.pdf_ambiguous"         // a PDF file with several embedded invoices
	CodeKindUnsupported  = "ubl.kind_unsupported"      // a known kind of file that is not imported
	CodeRootUnsupported  = "ubl.root_unsupported"      // neither a UBL 2 Invoice nor a UBL 2 CreditNote
	CodeValueInvalid     = "ubl.value_invalid"         // a value is not of its type, or an element is repeated
	CodeFieldTooLong     = "ubl.field_too_long"        // a text is longer than its field or than MaxText
	CodeCurrencyMismatch = "ubl.currency_mismatch"     // an amount is in another currency than the document
	CodeRuleViolated     = "ubl.rule_violated"         // a rule of EN 16931 is violated
	CodeTypeUnsupported  = "ubl.type_code_unsupported" // documents of this type are not booked
)

// Codes of findings that refuse no document. They are stable.
const (
	CodeVATIDInvalid    = "ubl.vat_id_invalid"   // the seller's VAT identifier has not the form of its country
	CodeCorrectsAnother = "ubl.corrects_another" // the document replaces an earlier one
	CodeTextCleaned     = "ubl.text_cleaned"     // a text had characters that are not shown
	CodeAccountRemoved  = "ubl.account_removed"  // a text had an account or card number

	CodeAttachmentsLeftOut = "ubl.attachments_left_out" // embedded files are over the limits, or cannot be read
)

// Severities of a finding.
const (
	SeverityError   = "error"   // the document is refused
	SeverityWarning = "warning" // the document is accepted; the finding is reported
)

// Namespaces of UBL 2. A document may bind them to any prefix.
const (
	NamespaceInvoice    = "urn:oasis:names:specification:ubl:schema:xsd:Invoice-2"
	NamespaceCreditNote = "urn:oasis:names:specification:ubl:schema:xsd:CreditNote-2"
	NamespaceBasic      = "urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2"
	NamespaceAggregate  = "urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2"
)

// Names of syntaxes in source_document.
const (
	SyntaxUBL = "UBL 2.1"
	SyntaxCII = "CII D16B"
	SyntaxCSV = "CSV"
)
