package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Status is the outcome of a file.
type Status string

// The statuses of a file.
const (
	StatusAccepted  Status = "accepted"  // the document was submitted
	StatusDuplicate Status = "duplicate" // the same document was submitted before and is alive
	StatusRefused   Status = "refused"   // it breaks a rule of the standard or of the server
	StatusPending   Status = "pending"   // its intent waits for the approval of another person
	StatusFailed    Status = "failed"    // the outcome is unknown; run again

	// StatusReinstatable: the document that holds the number was rejected or voided, so that no
	// payment takes the paper unless a person reinstates that document.
	StatusReinstatable Status = "reinstatable"
)

// Codes that the import itself gives to files.
const (
	CodeFileUnreadable = "import.file_unreadable" // the file cannot be opened or read
	CodeNoAnswer       = "import.no_answer"       // the server did not answer; the outcome is unknown
	CodeNotSent        = "import.not_sent"        // the import ended before it sent this file
	CodeUnexpected     = "import.unexpected"      // the server's answer does not fit its API
	CodeVendorUnknown  = "import.vendor_unknown"  // the document's seller has no usable identifier
)

// FileResult is the outcome of one file. In a report its lists are never nil.
type FileResult struct {
	File        string            `json:"file"`
	Row         int               `json:"row,omitempty"` // of a CSV file: the line of the document's first row
	Status      Status            `json:"status"`
	Code        string            `json:"code"`        // of the refusal or failure; "" of an accepted file
	DocumentID  string            `json:"document_id"` // of the document in the books; of a duplicate the first one's
	Kind        contract.Kind     `json:"kind,omitempty"`
	Number      string            `json:"number,omitempty"`
	Currency    string            `json:"currency,omitempty"`
	Total       string            `json:"total,omitempty"` // gross, decimal
	VendorID    string            `json:"vendor_id,omitempty"`
	IntentID    string            `json:"intent_id,omitempty"`
	SHA256      string            `json:"sha256,omitempty"`
	Paper       string            `json:"paper,omitempty"`       // id of the file as it is kept, also of a refused one
	Attachments []string          `json:"attachments,omitempty"` // ids of its attachments as they are kept
	Detail      string            `json:"detail,omitempty"`      // one sentence and the next step
	Violations  []fault.Violation `json:"violations"`
	Holds       []Hold            `json:"holds"`
	Warnings    []fault.Violation `json:"warnings"`
	Holder      *fault.Holder     `json:"holder,omitempty"` // event and document that hold the number

	HolderState string   `json:"holder_state,omitempty"` // of that document: submitted, posted, rejected, ...
	Differs     []string `json:"differs,omitempty"`      // members in which it differs from the file

	gross     money.Number
	minorUnit int // decimals of Currency
}

// Hold is a hold on an accepted document.
type Hold struct {
	Kind    string `json:"kind,omitempty"` // TAX_VARIANCE, ...
	EventID string `json:"event_id"`
}

// Report is the result of an import. Files are in name order.
type Report struct {
	Files    []FileResult `json:"files"`
	Totals   Totals       `json:"totals"`
	Complete bool         `json:"complete"` // no file failed

	cause error // why the import ended early
}

// Totals counts files.
type Totals struct {
	Accepted          int                       `json:"accepted"`
	Duplicate         int                       `json:"duplicate"`
	Reinstatable      int                       `json:"reinstatable"`
	Refused           int                       `json:"refused"`
	Pending           int                       `json:"pending"`
	Failed            int                       `json:"failed"`
	VendorsRegistered int                       `json:"vendors_registered"`
	ByCurrency        map[string]CurrencyTotals `json:"by_currency"`
	ByRule            map[string]int            `json:"by_rule"`    // files refused, by rule, or by code where no rule is named
	ByWarning         map[string]int            `json:"by_warning"` // files with a warning, by rule
	ByHold            map[string]int            `json:"by_hold"`    // documents held, by kind
}

// CurrencyTotals counts the files in one currency. The amounts are the gross
// totals of the accepted documents.
type CurrencyTotals struct {
	Accepted         int    `json:"accepted"`
	Duplicate        int    `json:"duplicate"`
	Refused          int    `json:"refused"`
	InvoiceAmount    string `json:"invoice_amount"`
	CreditMemoAmount string `json:"credit_memo_amount"`
}

// amounts sums the amounts of CurrencyTotals.
type amounts struct {
	invoices, creditMemos money.Number
	minorUnit             int
}

func newReport(files []FileResult, vendors int, cause error) *Report {
	r := &Report{
		Files: files, cause: cause,
		Totals: Totals{
			VendorsRegistered: vendors,
			ByCurrency:        map[string]CurrencyTotals{}, ByRule: map[string]int{}, ByWarning: map[string]int{}, ByHold: map[string]int{},
		},
	}
	sums := map[string]amounts{}
	for i := range files {
		f := &files[i]
		f.Violations, f.Holds, f.Warnings = nonNil(f.Violations), nonNil(f.Holds), nonNil(f.Warnings)
		r.Totals.add(f, sums)
	}
	for currency, sum := range sums {
		c := r.Totals.ByCurrency[currency]
		c.InvoiceAmount, c.CreditMemoAmount = sum.invoices.Fixed(sum.minorUnit), sum.creditMemos.Fixed(sum.minorUnit)
		r.Totals.ByCurrency[currency] = c
	}
	r.Complete = r.Totals.Failed == 0
	return r
}

// nonNil replaces a nil slice by an empty one, so that JSON has a list and not null.
func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (t *Totals) tally(s Status) {
	switch s {
	case StatusAccepted:
		t.Accepted++
	case StatusDuplicate:
		t.Duplicate++
	case StatusReinstatable:
		t.Reinstatable++
	case StatusRefused:
		t.Refused++
	case StatusPending:
		t.Pending++
	case StatusFailed:
		t.Failed++
	}
}

func (t *Totals) add(f *FileResult, sums map[string]amounts) {
	t.tally(f.Status)
	if f.Status == StatusRefused {
		for _, name := range ruleNames(f.Violations) {
			t.ByRule[name]++
		}
	}
	for _, name := range ruleNames(f.Warnings) {
		t.ByWarning[name]++
	}
	held := map[string]bool{}
	for _, h := range f.Holds {
		if !held[h.Kind] {
			held[h.Kind] = true
			t.ByHold[h.Kind]++
		}
	}
	if f.Currency == "" {
		return
	}
	c, sum := t.ByCurrency[f.Currency], sums[f.Currency]
	sum.minorUnit = f.minorUnit
	switch f.Status {
	case StatusAccepted:
		c.Accepted++
		if f.Kind == contract.CreditMemo {
			sum.creditMemos = sum.creditMemos.Add(f.gross)
		} else {
			sum.invoices = sum.invoices.Add(f.gross)
		}
	case StatusDuplicate:
		c.Duplicate++
	case StatusRefused:
		c.Refused++
	}
	t.ByCurrency[f.Currency], sums[f.Currency] = c, sum
}

// ruleOrCode returns the rule of a finding, or its code where no rule is named.
func ruleOrCode(v fault.Violation) string { return cmp.Or(v.Rule, v.Code) }

// ruleNames lists the rules or codes of findings, each once.
func ruleNames(findings []fault.Violation) []string {
	var out []string
	for _, v := range findings {
		if n := ruleOrCode(v); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// WriteJSON writes the report as one JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// Err returns an *ExitError with ExitUnfinished if a file failed, else with ExitRefused if
// one was refused or is to be reinstated, else nil.
func (r *Report) Err() error {
	switch t := r.Totals; {
	case !r.Complete:
		text := fmt.Sprintf("%d of %s could not be finished; run the command again, which reports documents submitted before as duplicates", t.Failed, count(len(r.Files), "file"))
		if r.cause != nil {
			text = "the import ended early: " + printable(reason(r.cause)) + "; " + text
		}
		return &ExitError{code: ExitUnfinished, text: text, err: r.cause}
	case t.Reinstatable > 0:
		return &ExitError{code: ExitRefused, text: fmt.Sprintf("%d of %s refused, %d of documents that were rejected or voided; the report says why, and how to reinstate them",
			t.Refused, count(len(r.Files), "file"), t.Reinstatable)}
	case t.Refused > 0:
		return &ExitError{code: ExitRefused, text: fmt.Sprintf("%d of %s refused; the report says why", t.Refused, count(len(r.Files), "file"))}
	default:
		return nil
	}
}
