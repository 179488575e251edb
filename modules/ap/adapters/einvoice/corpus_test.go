package einvoice_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// repositoryRoot is the folder with go.mod.
func repositoryRoot(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	require.NoError(tb, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		require.NotEqual(tb, dir, up, "no go.mod above the test")
		dir = up
	}
}

// standardData is a folder of the published test data of EN 16931, which is read
// where it lies. The test is skipped where it is absent.
func standardData(tb testing.TB, folder string) string {
	tb.Helper()
	dir := filepath.Join(repositoryRoot(tb), "..", "shared", "data", "en16931", folder)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		tb.Skipf("the test data ../shared/data/en16931/%s is absent", folder)
	}
	return dir
}

func samples(tb testing.TB, folder string) []string {
	tb.Helper()
	return xmlFiles(tb, filepath.Join(repositoryRoot(tb), "test", "samples", "ubl", folder))
}

func xmlFiles(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(tb, err)
	var out []string
	for _, e := range entries {
		if !e.IsDir() && strings.EqualFold(filepath.Ext(e.Name()), ".xml") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	require.NotEmpty(tb, out)
	return out
}

func read(tb testing.TB, path string) (einvoice.Document, error) {
	tb.Helper()
	f, err := os.Open(path)
	require.NoError(tb, err)
	defer func() { require.NoError(tb, f.Close()) }()
	return einvoice.Read(f)
}

// fragment is one labelled part of a document: whether a rule holds in it.
type fragment struct {
	rule, label string // label is success, error or warning
	count       string // number of violations, where the data says so
	document    []byte
}

// fragments cuts a rule file into its documents. Each declares its own namespaces.
func fragments(tb testing.TB, path string) []fragment {
	tb.Helper()
	const testNamespace = "http://difi.no/xsd/vefa/validator/1.0"
	data, err := os.ReadFile(path)
	require.NoError(tb, err)
	d := xml.NewDecoder(bytes.NewReader(data))
	var out []fragment
	var labels []fragment
	for {
		start := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(tb, err)
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch {
		case element.Name.Space != testNamespace:
			require.NoError(tb, d.Skip())
			for _, l := range labels {
				l.document = data[start:d.InputOffset()]
				out = append(out, l)
			}
		case element.Name.Local == "test":
			labels = nil
		case slices.Contains([]string{"success", "error", "warning"}, element.Name.Local):
			var rule string
			require.NoError(tb, d.DecodeElement(&rule, &element))
			l := fragment{rule: strings.TrimSpace(rule), label: element.Name.Local}
			for _, a := range element.Attr {
				if a.Name.Local == "number" {
					l.count = a.Value
				}
			}
			labels = append(labels, l)
		}
	}
}

// TestRulesOnLabelledFragments holds every rule against the published fragments: what is
// labelled success violates nothing, what is labelled error or warning has a violation of that
// severity. Within their tolerance, some rules also warn where the label is success.
func TestRulesOnLabelledFragments(t *testing.T) {
	t.Parallel()
	dir := standardData(t, "test")
	byID := map[string]einvoice.Rule{}
	for _, r := range einvoice.Rules() {
		byID[r.ID] = r
	}
	labels := map[string]int{}
	for _, folder := range []string{"Invoice-unit-UBL", "CreditNote-unit-UBL"} {
		for _, path := range xmlFiles(t, filepath.Join(dir, folder)) {
			for i, f := range fragments(t, path) {
				at := fmt.Sprintf("%s/%s, fragment %d, %s", folder, filepath.Base(path), i+1, f.rule)
				root, _, err := einvoice.Parse(bytes.NewReader(f.document))
				require.NoError(t, err, at)
				rule, ok := byID[f.rule]
				if !ok {
					labels["not checked"]++
					continue
				}
				found := map[string]int{}
				for _, v := range rule.Check(root) {
					require.NotEmpty(t, v.Element, at)
					require.Positive(t, v.Line, at)
					found[v.Severity]++
				}
				labels[f.label]++
				if f.label == "success" {
					assert.Zero(t, found[einvoice.SeverityError], at)
					continue
				}
				assert.NotZerof(t, found[f.label], "%s is labelled %s", at, f.label)
				if f.count != "" {
					assert.Equal(t, f.count, strconv.Itoa(found[f.label]), at)
				}
			}
		}
	}
	// There are 1,131 fragments, two of them with two labels.
	require.Equal(t, map[string]int{"success": 558, "error": 567, "warning": 2, "not checked": 6}, labels)
}

// outcome is what an import of a folder makes of its files: the first document of
// a vendor and number is taken, the same one again is a duplicate, and the number
// with another content is refused.
type outcome struct {
	invoices, creditMemos, duplicates, refused int
	vendors                                    map[string]bool
}

func importInOrder(tb testing.TB, paths []string) outcome {
	tb.Helper()
	out := outcome{vendors: map[string]bool{}}
	taken := map[string]string{}
	for _, path := range paths {
		d, err := read(tb, path)
		require.NoError(tb, err, path)
		vendor := d.Supplier.Identity()
		require.NotEmpty(tb, vendor)
		out.vendors[vendor] = true
		number := eventtype.Normalise(eventtype.NormaliseDocumentNumber, d.Number)
		key := string(d.Kind) + "|" + vendor + "|" + number
		content := d.Currency + " " + d.Totals.Gross.Fixed(2)
		earlier, exists := taken[key]
		status := ""
		switch {
		case exists && earlier == content:
			out.duplicates++
			status = "duplicate"
		case exists:
			out.refused++
			status = "refused, the number is taken by " + earlier
		case d.Kind == contract.CreditMemo:
			out.creditMemos++
			status = "accepted as credit memo"
		default:
			out.invoices++
			status = "accepted as invoice"
		}
		if !exists {
			taken[key] = content
		}
		tb.Logf("%-40.40s %-24s %-16s %14s  %s", filepath.Base(path), vendor, d.Number, content, status)
	}
	return out
}

func TestExamplesOfTheStandard(t *testing.T) {
	t.Parallel()
	paths := xmlFiles(t, standardData(t, filepath.Join("ubl", "examples")))
	require.Len(t, paths, 19)
	for _, path := range paths {
		d, err := read(t, path)
		require.NoErrorf(t, err, "%s: %v", filepath.Base(path), violations(err))
		for _, w := range d.Warnings {
			t.Logf("%s: warning %s at %s: expected %s, got %s", filepath.Base(path), w.Rule, w.Element, w.Expected, w.Got)
		}
		requireBalanced(t, d)
	}
	got := importInOrder(t, paths)
	require.Equal(t, 13, got.invoices)
	require.Equal(t, 2, got.creditMemos)
	require.Equal(t, 3, got.duplicates)
	require.Equal(t, 1, got.refused)
	require.Len(t, got.vendors, 13)
}

func violations(err error) []fault.Violation {
	if f, ok := fault.As(err); ok {
		return f.Violations
	}
	return nil
}

// requireBalanced checks what the server checks of every invoice, on the payload
// itself.
func requireBalanced(tb testing.TB, d einvoice.Document) {
	tb.Helper()
	p := payload(tb, d, einvoice.Submission{VendorID: "V-1"})
	sum := money.Number{}
	for i, l := range p.Lines {
		require.Equal(tb, i+1, l.LineNumber)
		sum = sum.Add(l.Amount)
	}
	require.Truef(tb, sum.Add(p.TaxAmount).Equal(p.TotalAmount), "lines %s + tax %s = total %s", sum, p.TaxAmount, p.TotalAmount)
	taxes := money.Number{}
	for _, l := range p.TaxLines {
		taxes = taxes.Add(l.TaxAmount)
	}
	require.Truef(tb, taxes.Equal(p.TaxAmount), "tax lines %s = tax %s", taxes, p.TaxAmount)
	require.False(tb, p.TotalAmount.Sign() < 0)
	require.False(tb, p.DueDate != nil && *p.DueDate < p.InvoiceDate)
}

func TestRead_Memory(t *testing.T) {
	// Not parallel: it reads the counters of the whole process.
	path := filepath.Join(standardData(t, filepath.Join("ubl", "examples")), "FT G2G_TD01 con Allegato, Bonifico e Split Payment.xml")
	info, err := os.Stat(path)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := read(t, path)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Len(t, d.Attachments, 1)
	require.Equal(t, "attachment-1.pdf", d.Attachments[0].FileName)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("file %d bytes, attachment %d bytes, allocated %d bytes", info.Size(), d.Attachments[0].Size, allocated)
	require.Less(t, allocated, uint64(8*info.Size()))
}
