// Package pain002 reads ISO 20022 reports of banks about the status of payments: pain.002.001.10
// and pain.002.001.03.
package pain002

import (
	"cmp"
	"encoding/xml"
	"io"
	"regexp"
	"strings"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Codes of files that cannot be read.
const (
	CodeTooLarge    = "pain002.too_large"
	CodeMalformed   = "pain002.malformed"
	CodeUnsupported = "pain002.unsupported"
	CodeIncomplete  = "pain002.incomplete"
)

// namespaces are the versions that are read.
var namespaces = map[string]bool{
	"urn:iso:std:iso:20022:tech:xsd:pain.002.001.10": true,
	"urn:iso:std:iso:20022:tech:xsd:pain.002.001.03": true,
}

// Report is what a bank reports about one payment file.
type Report struct {
	SHA256    string
	MessageID string // of the report
	RunID     string // message id of the payment file
	Group     Status // of the whole file; its Code may be ""
	Blocks    []Block
}

// Block is a block of payments of the file.
type Block struct {
	ID       string // of the block in the payment file
	Status   Status // of the whole block; its Code may be ""
	Payments []Payment
}

// Payment is what is reported about one payment.
type Payment struct {
	PaymentID string // end-to-end id
	Status
}

// Status is a status with its reason.
type Status struct {
	Code       string // of ISO 20022, such as ACSC
	ReasonCode string
	Text       string
	ExecutedOn event.Date // 0 where the report names no day
	Reference  string     // of the bank, else of the report
}

// Settled and rejected statuses are those that decide a payment. PART says that parts of the file
// have different statuses.
const (
	Settled           = "ACSC"
	SettledOnCreditor = "ACCC"
	Rejected          = "RJCT"
	Partial           = "PART"
)

// codes are those of files that the XML reader refuses.
var codes = xmltree.Codes{DoctypeForbidden: CodeMalformed, TooLarge: CodeTooLarge, Malformed: CodeMalformed, TextTooLong: CodeTooLarge}

// Read reads a report. A file that is wrong as a whole is refused with a code of this package; an
// error of r is returned as it is.
func Read(r io.Reader) (*Report, error) {
	root, digest, err := xmltree.ReadFile(r, codes, func(in io.Reader) (*xmltree.Element, error) { return xmltree.Parse(in, codes, dialect) })
	if err != nil {
		return nil, err
	}
	e := root.Find("CstmrPmtStsRpt")
	if e == nil {
		return nil, unsupported()
	}
	return readReport(e, digest)
}

// dialect accepts the known versions, under any prefix.
func dialect(root xml.Name, _ int) (xmltree.Dialect, error) {
	if !namespaces[root.Space] || root.Local != "Document" {
		return xmltree.Dialect{}, unsupported()
	}
	return xmltree.Dialect{Prefixes: map[string]string{root.Space: ""}}, nil
}

func unsupported() error {
	return fault.New(fault.Invalid, CodeUnsupported, "the file is no report pain.002.001.10 or pain.002.001.03; ask the bank for one of these")
}

func readReport(e *xmltree.Element, digest string) (*Report, error) {
	r := &Report{SHA256: digest, MessageID: e.Value("GrpHdr", "MsgId")}
	groups := e.All("OrgnlGrpInfAndSts")
	if r.MessageID == "" || len(groups) != 1 || groups[0].Value("OrgnlMsgId") == "" {
		return nil, fault.New(fault.Invalid, CodeIncomplete, "the report names no message id, or not exactly one payment file; ask the bank for a corrected file")
	}
	r.RunID = groups[0].Value("OrgnlMsgId")
	created := e.Value("GrpHdr", "CreDtTm")
	r.Group = statusOf(groups[0].Value("GrpSts"), groups[0].All("StsRsnInf"), r.MessageID, created)
	for _, b := range e.All("OrgnlPmtInfAndSts") {
		block := Block{ID: b.Value("OrgnlPmtInfId"), Status: statusOf(b.Value("PmtInfSts"), b.All("StsRsnInf"), r.MessageID, created)}
		for _, t := range b.All("TxInfAndSts") {
			reasons := t.All("StsRsnInf")
			if t.Value("TxSts") == "" && len(reasons) == 0 {
				reasons = b.All("StsRsnInf")
			}
			block.Payments = append(block.Payments, Payment{
				PaymentID: t.Value("OrgnlEndToEndId"),
				// A status of the payment comes before that of its block, and that before the file's.
				Status: statusOf(cmp.Or(t.Value("TxSts"), block.Status.whole(), r.Group.whole()), reasons,
					cmp.Or(t.Value("AcctSvcrRef"), t.Value("StsId"), r.MessageID),
					day(t.Find("FctvIntrBkSttlmDt")), day(t.Find("OrgnlTxRef", "IntrBkSttlmDt")), t.Value("AccptncDtTm"), day(t.Find("OrgnlTxRef", "ReqdExctnDt")), created),
			})
		}
		r.Blocks = append(r.Blocks, block)
	}
	return r, nil
}

// day is a date: the element's text in version 3, one of its children in version 10.
func day(e *xmltree.Element) string { return cmp.Or(e.Value("Dt"), e.Value("DtTm"), e.Value()) }

// whole is the code of a status that holds for everything in its file or block, else "".
func (s Status) whole() string {
	if s.Code == Partial {
		return ""
	}
	return s.Code
}

// Whole reports whether a status holds for everything in its file or block.
func (s Status) Whole() bool { return s.whole() != "" }

// reasonPattern is what a reason code may have.
var reasonPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,35}$`)

// statusOf makes a status; the first of the days that is a date is the day of execution.
func statusOf(code string, reasons []*xmltree.Element, reference string, days ...string) Status {
	s := Status{Code: code, Reference: reference}
	var texts []string
	for _, r := range reasons {
		if given := cmp.Or(r.Value("Rsn", "Cd"), r.Value("Rsn", "Prtry")); s.ReasonCode == "" && reasonPattern.MatchString(given) {
			s.ReasonCode = given
		} else if given != s.ReasonCode && given != "" {
			texts = append(texts, given)
		}
		for _, text := range r.All("AddtlInf") {
			texts = append(texts, text.Text)
		}
	}
	s.Text = strings.Join(texts, " ")
	for _, text := range days {
		if len(text) >= len("2006-01-02") {
			if d, err := event.ParseDate(text[:len("2006-01-02")]); err == nil {
				s.ExecutedOn = d
				break
			}
		}
	}
	return s
}
