package cli_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/test/testkit"
)

func TestImport_StandardExamples(t *testing.T) {
	t.Parallel()
	dir := testkit.SharedData(t, "en16931/ubl/examples")
	s := newServer()
	first := importFolder(t, s, cli.DefaultParallel, dir)
	for _, f := range first.Files {
		t.Logf("%-60.60s %-9s %-11s %-16s %12s %s %v", filepath.Base(f.File), f.Status, f.Kind, f.Number, f.Total, f.Currency, f.Holds)
	}
	require.Len(t, first.Files, 19)
	require.True(t, first.Complete)
	require.Equal(t, 15, first.Totals.Accepted)
	require.Equal(t, 3, first.Totals.Duplicate)
	require.Equal(t, 1, first.Totals.Refused)
	require.Equal(t, 13, first.Totals.VendorsRegistered)
	require.Equal(t, 1, exitCode(t, first.Err()))
	memos := 0
	for _, f := range first.Files {
		if f.Status == cli.StatusAccepted && f.Kind == contract.CreditMemo {
			memos++
		}
		if f.Status != cli.StatusAccepted {
			require.NotNil(t, f.Holder, f.File)
		}
		require.NotEmpty(t, f.Kind)
		if f.Status == cli.StatusRefused {
			require.Equal(t, "TOSL108", f.Number)
			require.Equal(t, "ap.invoice.duplicate", f.Code)
			require.NotEmpty(t, f.Violations[0].Difference)
		}
	}
	require.Equal(t, 2, memos)
	require.True(t, slices.IsSortedFunc(first.Files, func(a, b cli.FileResult) int { return compare(a.File, b.File) }))

	second := importFolder(t, s, cli.DefaultParallel, dir)
	require.Zero(t, second.Totals.Accepted)
	require.Equal(t, 18, second.Totals.Duplicate)
	require.Equal(t, 1, second.Totals.Refused)
	require.Zero(t, second.Totals.VendorsRegistered)
	for i, f := range second.Files {
		if f.Status == cli.StatusDuplicate {
			require.Equal(t, first.Files[i].DocumentID, f.DocumentID)
		}
	}
}

func compare(a, b string) int {
	return slices.Compare([]string{filepath.Base(a)}, []string{filepath.Base(b)})
}

func TestImport_Samples(t *testing.T) {
	t.Parallel()
	s := newServer()
	r := importFolder(t, s, 1, sampleFolder(t))
	require.Len(t, r.Files, 9)
	require.Equal(t, cli.Totals{Accepted: 6, Refused: 3, VendorsRegistered: 5}, counts(r))
	require.Equal(t, 1, exitCode(t, r.Err()))
	doctype := byName(t, r, "doctype.xml")
	require.Equal(t, einvoice.CodeDoctypeForbidden, doctype.Code)
	require.Len(t, doctype.Violations, 1)
	sum := byName(t, r, "total-does-not-add-up.xml")
	require.Equal(t, einvoice.CodeRuleViolated, sum.Code)
	require.Equal(t, "BR-CO-15", sum.Violations[0].Rule)
	require.Equal(t, "0.10", sum.Violations[0].Difference)
	again := byName(t, r, "number-used-again.xml")
	require.Equal(t, "ap.invoice.duplicate", again.Code)
	require.Equal(t, fault.Violation{
		Code: "ap.invoice.duplicate", Severity: "error", Detail: again.Detail,
		Expected: "2166.22", Got: "2629.13", Difference: "462.91", Currency: "EUR",
	}, again.Violations[0])
	require.Equal(t, byName(t, r, "01-invoice-two-rates.xml").DocumentID, again.Holder.DocumentID)
	require.Empty(t, again.DocumentID)
	require.Equal(t, map[string]int{"BR-CO-15": 1, "ap.invoice.duplicate": 1, einvoice.CodeDoctypeForbidden: 1}, r.Totals.ByRule)
	require.Equal(t, "2166.22", byName(t, r, "01-invoice-two-rates.xml").Total)

	second := importFolder(t, s, 4, sampleFolder(t))
	require.Equal(t, cli.Totals{Duplicate: 6, Refused: 3}, counts(second))
	require.Equal(t, "462.91", byName(t, second, "number-used-again.xml").Violations[0].Difference)
}

// counts are the totals without the maps.
func counts(r *cli.Report) cli.Totals {
	t := r.Totals
	t.ByCurrency, t.ByHold, t.ByRule, t.ByWarning = nil, nil, nil, nil
	return t
}

// TestImport_DuplicatesWithoutReplay imports files that the server knows by business key only,
// as after another person's import, expired idempotency keys or another posting date.
func TestImport_DuplicatesWithoutReplay(t *testing.T) {
	t.Parallel()
	s := newServer()
	require.Equal(t, 6, importFolder(t, s, 2, sampleFolder(t)).Totals.Accepted)
	clear(s.keys)
	require.Equal(t, cli.Totals{Duplicate: 6, Refused: 3}, counts(importFolder(t, s, 2, sampleFolder(t))))

	files, err := cli.FindFiles([]string{sampleFolder(t)})
	require.NoError(t, err)
	o := options(2)
	day := event.MustDate("2026-05-02")
	o.PostingDate = &day
	s.received = nil
	r := cli.Import(t.Context(), s, files, o)
	require.Equal(t, cli.Totals{Duplicate: 6, Refused: 3}, counts(r))
	for _, q := range s.received {
		if q.Type == contract.IntentRegisterVendor {
			require.Empty(t, q.EffectiveDate)
		} else {
			require.Equal(t, "2026-05-02", q.EffectiveDate)
		}
	}
}

func TestImport_DuplicateWithOtherPostingDate(t *testing.T) {
	t.Parallel()
	s := newServer()
	path := writeInvoice(t, t.TempDir(), "a.xml")
	require.Equal(t, 1, importFolder(t, s, 1, path).Totals.Accepted)
	o := options(1)
	day := event.MustDate("2026-05-02")
	o.PostingDate = &day
	r := cli.Import(t.Context(), s, []string{path}, o) // same keys, other content
	require.Equal(t, cli.StatusDuplicate, r.Files[0].Status)
	require.Equal(t, "D-1", r.Files[0].DocumentID)
	require.NoError(t, r.Err())
}

// TestImport_RejectedDocument checks that a paper whose document was rejected or voided is never
// a silent duplicate, whether the server still knows the key of the first import or not.
func TestImport_RejectedDocument(t *testing.T) {
	t.Parallel()
	s := newServer()
	path := writeInvoice(t, t.TempDir(), "a.xml")
	require.Equal(t, 1, importFolder(t, s, 1, path).Totals.Accepted)
	again := importFolder(t, s, 1, path)
	require.NoError(t, again.Err())
	require.Equal(t, cli.StatusDuplicate, again.Files[0].Status)
	require.Equal(t, "submitted", again.Files[0].HolderState)
	reissued := importFolder(t, s, 1, writeInvoice(t, t.TempDir(), "b.xml", "<cac:TaxTotal>", "<!-- issued again --><cac:TaxTotal>"))
	require.NoError(t, reissued.Err(), "another file with the same figures is the same paper")
	require.Equal(t, cli.StatusDuplicate, reissued.Files[0].Status)
	require.Equal(t, []string{"source_document"}, reissued.Files[0].Differs)
	for _, state := range []string{"rejected", "voided"} {
		s.end("D-1", state)
		for _, forgotten := range []bool{false, true} {
			if forgotten {
				clear(s.keys)
			}
			r := importFolder(t, s, 1, path)
			f := r.Files[0]
			require.Equal(t, cli.StatusReinstatable, f.Status)
			require.Equal(t, state, f.HolderState)
			require.Equal(t, "D-1", f.DocumentID)
			require.Contains(t, f.Detail, "ap.reinstate_invoice")
			require.Equal(t, cli.Totals{Reinstatable: 1}, counts(r))
			require.Equal(t, 1, exitCode(t, r.Err()))
			var table strings.Builder
			require.NoError(t, r.WriteTable(&table))
			require.Contains(t, table.String(), "was "+state)
			require.Contains(t, table.String(), "1 to reinstate")
		}
	}
}

// TestImport_VendorIsRegisteredOnce imports files of one vendor concurrently and under several
// names: the first run sends one registration, and a later run gets the vendor's id.
func TestImport_VendorIsRegisteredOnce(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newServer()
	for i := range 20 {
		writeInvoice(t, dir, fmt.Sprintf("%02d.xml", i), sampleNumber, number(fmt.Sprintf("N-%d", i)),
			"Nordlicht Bueroausstattung GmbH", fmt.Sprintf("Nordlicht %d GmbH", i))
	}
	r := importFolder(t, s, 8, dir)
	require.Equal(t, cli.Totals{Accepted: 20, VendorsRegistered: 1}, counts(r))
	registrations := 0
	for _, q := range s.received {
		if q.Type == contract.IntentRegisterVendor {
			registrations++
			require.Equal(t, "DEMF|vendor|vat:DE999000105", q.IdempotencyKey)
		}
	}
	require.Equal(t, 1, registrations)

	// The same vendor under another name: the server knows the key with other content.
	other := writeInvoice(t, t.TempDir(), "x.xml", sampleNumber, number("X"), "Nordlicht Bueroausstattung GmbH", "Nordlicht")
	r = importFolder(t, s, 1, other)
	require.Equal(t, cli.Totals{Accepted: 1}, counts(r))
	require.Equal(t, "V-000001", r.Files[0].VendorID)
}

func TestImport_RefusedVendor(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.before = func(_ context.Context, q submission) error {
		if q.Type == contract.IntentRegisterVendor {
			return fault.New(fault.FailedPrecondition, "ap.vendor.identity_required", "send an id").WithField("/party_id").WithIntent("I-77")
		}
		return nil
	}
	r := importFolder(t, s, 2, sampleFolder(t))
	require.Equal(t, cli.Totals{Refused: 9}, counts(r))
	f := byName(t, r, "05-invoice-natural-person.xml")
	require.Equal(t, "I-77", f.IntentID)
	require.Equal(t, "/party_id", f.Violations[0].Field)
	require.True(t, r.Complete)
}

// TestImport_OrderPerDocumentNumber checks that files of one vendor and number are sent one after
// another in name order, however the number is written, and all other files concurrently.
func TestImport_OrderPerDocumentNumber(t *testing.T) {
	t.Parallel()
	const lanes, copies = 4, 5
	dir, s := t.TempDir(), newServer()
	spelling := []string{"n %d", "N%d", "N %d", " n%d", "ｎ%d"}
	for i := range copies {
		for lane := range lanes {
			writeInvoice(t, dir, fmt.Sprintf("%d-%d.xml", i, lane), sampleNumber, number(fmt.Sprintf(spelling[i], lane)),
				"<cbc:IssueDate>2026-03-04<", fmt.Sprintf("<cbc:IssueDate>2026-03-0%d<", i+1))
		}
	}
	var mu sync.Mutex
	order := map[string][]string{}
	busy := map[string]int{}
	under, most := 0, 0
	together, meet := make(chan struct{}), sync.Once{}
	s.before = func(_ context.Context, q submission) error {
		if q.Type == contract.IntentRegisterVendor {
			return nil
		}
		d := document(t, q)
		lane := d.InvoiceNumber[len(d.InvoiceNumber)-1:]
		mu.Lock()
		order[lane] = append(order[lane], d.InvoiceDate.String())
		busy[lane]++
		alone := busy[lane] == 1
		under++
		most = max(most, under)
		if under == lanes { // also later: none has left before the first one is back
			meet.Do(func() { close(together) })
		}
		mu.Unlock()
		select {
		case <-together: // all lanes are under way at once
		case <-time.After(time.Minute):
		}
		mu.Lock()
		busy[lane]--
		under--
		mu.Unlock()
		if !alone {
			return fault.New(fault.Invalid, "test.overlap", "two files of a lane at once")
		}
		return nil
	}
	r := importFolder(t, s, lanes, dir)
	require.Equal(t, lanes, r.Totals.Accepted, r.Totals.ByRule)
	require.Equal(t, lanes*(copies-1), r.Totals.Duplicate)
	require.Equal(t, lanes, most)
	for lane, dates := range order {
		require.Equal(t, []string{"2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05"}, dates, lane)
	}
	for lane := range lanes {
		require.Equal(t, cli.StatusAccepted, byName(t, r, fmt.Sprintf("0-%d.xml", lane)).Status)
	}
}

func TestImport_BusyServerIsRetried(t *testing.T) {
	t.Parallel()
	s := newServer()
	var pauses []time.Duration
	var calls int
	s.before = func(context.Context, submission) error {
		switch calls++; calls {
		case 1:
			return fault.New(fault.Unavailable, "append.queue_full", "try again").WithRetryAfter(7 * time.Second)
		case 2:
			return fault.New(fault.Unavailable, "append.queue_full", "try again").WithRetryAfter(time.Hour)
		case 3:
			return errors.New("connection refused")
		case 5:
			return fault.New(fault.Conflict, "append.wrong_expected_version", "try again")
		case 6:
			return fault.New(fault.Conflict, "idempotency.in_progress", "try again")
		}
		return nil
	}
	o := options(1)
	o.Wait = func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }
	r := cli.Import(t.Context(), s, []string{writeInvoice(t, t.TempDir(), "a.xml")}, o)
	require.NoError(t, r.Err())
	require.Equal(t, cli.Totals{Accepted: 1, VendorsRegistered: 1}, counts(r))
	require.Equal(t, []time.Duration{7 * time.Second, 30 * time.Second, 3200 * time.Millisecond, 200 * time.Millisecond, 800 * time.Millisecond}, pauses)
}

// TestImport_LostAnswer checks that a replay of a request of the same run is no duplicate.
func TestImport_LostAnswer(t *testing.T) {
	t.Parallel()
	s := newServer()
	lost := map[string]bool{}
	s.after = func(q submission, out outcome) (outcome, error) {
		if !lost[q.Type] {
			lost[q.Type] = true
			return outcome{}, errors.New("connection reset by peer")
		}
		return out, nil
	}
	r := importFolder(t, s, 1, writeInvoice(t, t.TempDir(), "a.xml"))
	require.Equal(t, cli.Totals{Accepted: 1, VendorsRegistered: 1}, counts(r))
	require.Len(t, s.documents, 1)
}

func TestImport_ServerFailsOnOneFile(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.before = func(_ context.Context, q submission) error {
		if q.Type == contract.Invoice.Intent("submit") && document(t, q).Currency == "USD" {
			return fault.New(fault.Internal, "internal", "something unforeseen; tell the operator the id")
		}
		return nil
	}
	r := importFolder(t, s, 2, sampleFolder(t))
	require.Equal(t, cli.Totals{Accepted: 5, Refused: 3, Failed: 1, VendorsRegistered: 5}, counts(r))
	require.Equal(t, 2, exitCode(t, r.Err()))
	require.Equal(t, "internal", byName(t, r, "02-invoice-usd-allowance-charge.xml").Code)
}

func TestImport_UnreachableServer(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newServer()
	for i := range 40 {
		writeInvoice(t, dir, fmt.Sprintf("%02d.xml", i), sampleNumber, number(fmt.Sprintf("N-%d", i)))
	}
	var calls, sent atomic.Int32
	gone := errors.New("dial tcp 127.0.0.1:1: connect: connection refused")
	s.before = func(_ context.Context, q submission) error {
		calls.Add(1)
		if q.Type != contract.IntentRegisterVendor && sent.Add(1) > 5 { // it answers five, and is gone
			return gone
		}
		return nil
	}
	s.beforePaper = func() error {
		if sent.Load() >= 5 {
			calls.Add(1)
			return gone
		}
		return nil
	}
	r := importFolder(t, s, 4, dir)
	require.Equal(t, 5, r.Totals.Accepted)
	require.Equal(t, 35, r.Totals.Failed)
	// It did not try all of them, which takes 146 calls: it stops after 17 in a row without
	// an answer, and each of the three other workers may still record one answer.
	require.LessOrEqual(t, int(calls.Load()), 1+5+3*16+17+3)
	require.False(t, r.Complete)
	require.Equal(t, 2, exitCode(t, r.Err()))
	require.ErrorContains(t, r.Err(), "connection refused")
	codes := map[string]int{}
	for _, f := range r.Files {
		codes[f.Code]++
	}
	require.Positive(t, codes[cli.CodeNoAnswer])
	require.Positive(t, codes[cli.CodeNotSent])

	s.before, s.beforePaper = nil, nil
	r = importFolder(t, s, 4, dir)
	require.Equal(t, 40, r.Totals.Accepted+r.Totals.Duplicate)
	require.Len(t, s.documents, 40)
}

func TestImport_StopsAfterRejection(t *testing.T) {
	t.Parallel()
	for _, failure := range []*fault.Error{
		fault.New(fault.Unauthenticated, "auth.token_invalid", "send a valid token"),
		fault.New(fault.Forbidden, "intent.forbidden", "ask for the role"),
		fault.New(fault.NotFound, "legal_entity.not_found", "name another"),
	} {
		s := newServer()
		var calls atomic.Int32
		s.before = func(context.Context, submission) error { calls.Add(1); return failure }
		r := importFolder(t, s, 1, sampleFolder(t))
		require.EqualValues(t, 1, calls.Load())
		require.Equal(t, failure.Code, r.Files[0].Code)
		require.Equal(t, 9, r.Totals.Failed)
		require.Equal(t, 2, exitCode(t, r.Err()))
		require.ErrorContains(t, r.Err(), failure.Detail)
		require.ErrorIs(t, r.Err(), failure)
	}
}

func TestImport_Interrupted(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newServer()
	for i := range 10 {
		writeInvoice(t, dir, fmt.Sprintf("%02d.xml", i), sampleNumber, number(fmt.Sprintf("N-%d", i)))
	}
	files, err := cli.FindFiles([]string{dir})
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	s.before = func(requestContext context.Context, q submission) error {
		if q.Type != contract.IntentRegisterVendor && document(t, q).InvoiceNumber == "N-3" {
			interrupt()
			return requestContext.Err()
		}
		return nil
	}
	r := cli.Import(ctx, s, files, options(1))
	require.Equal(t, cli.Totals{Accepted: 4, Failed: 6, VendorsRegistered: 1}, counts(r))
	require.Equal(t, cli.CodeNotSent, r.Files[4].Code)
	require.Equal(t, 2, exitCode(t, r.Err()))
	require.ErrorContains(t, r.Err(), "interrupted")
}

func TestImport_PendingIntents(t *testing.T) {
	t.Parallel()
	s := newServer()
	status := "pending_approval"
	s.after = func(q submission, out outcome) (outcome, error) {
		if q.Type == contract.Invoice.Intent("submit") {
			out.Status, out.Events = status, nil
		}
		return out, nil
	}
	path := writeInvoice(t, t.TempDir(), "a.xml")
	r := importFolder(t, s, 1, path)
	require.Equal(t, cli.Totals{Pending: 1, VendorsRegistered: 1}, counts(r))
	require.NotEmpty(t, r.Files[0].IntentID)
	require.NoError(t, r.Err())

	status = "rejected"
	r = importFolder(t, s, 1, path)
	require.Equal(t, cli.Totals{Refused: 1}, counts(r))
	require.Equal(t, "intent.rejected", r.Files[0].Code)

	status = "executed" // without the event that the API promises
	r = importFolder(t, s, 1, path)
	require.Equal(t, cli.CodeUnexpected, r.Files[0].Code)
	require.Equal(t, 2, exitCode(t, r.Err()))

	s.after = func(q submission, out outcome) (outcome, error) {
		out.Status, out.Events = "pending_approval", nil
		return out, nil
	}
	r = importFolder(t, s, 1, path)
	require.Equal(t, cli.Totals{Pending: 1}, counts(r))
	require.Contains(t, r.Files[0].Detail, "vendor")
}

func TestImport_UnreadableFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gone := filepath.Join(dir, "b.xml")
	s := newServer()
	r := cli.Import(t.Context(), s, []string{writeInvoice(t, dir, "a.xml"), gone}, options(2))
	require.Equal(t, cli.StatusAccepted, r.Files[0].Status)
	require.Equal(t, cli.CodeFileUnreadable, r.Files[1].Code)
	require.NotContains(t, r.Files[1].Detail, dir)
	require.Equal(t, 2, exitCode(t, r.Err()))
}

func TestImport_DanglingLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "a.xml")))
	writeInvoice(t, dir, "b.xml")
	files, err := cli.FindFiles([]string{dir})
	require.NoError(t, err)
	r := cli.Import(t.Context(), newServer(), files, options(1))
	require.Equal(t, cli.Totals{Accepted: 1, Failed: 1, VendorsRegistered: 1}, counts(r))
	require.Equal(t, cli.CodeFileUnreadable, r.Files[0].Code)
	require.Equal(t, 2, exitCode(t, r.Err()))
}

func TestFindFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"b.xml", "a/z.XML", "a/deeper/k.Xml", "a-b.xml", "note.txt", "B.xml", "x.PDF"} {
		writeInvoice(t, dir, name)
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, "b.xml"), filepath.Join(dir, "c.xml")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "linked")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "d.xml")))
	files, err := cli.FindFiles([]string{dir, filepath.Join(dir, "b.xml"), filepath.Join(dir, "note.txt")})
	require.NoError(t, err)
	for i := range files {
		files[i], err = filepath.Rel(dir, files[i])
		require.NoError(t, err)
	}
	require.Equal(t, []string{"B.xml", "a/deeper/k.Xml", "a/z.XML", "a-b.xml", "b.xml", "c.xml", "d.xml", "note.txt", "x.PDF"}, files)

	files, err = cli.FindFiles([]string{filepath.Join(dir, "linked")})
	require.NoError(t, err)
	require.Len(t, files, 2)
	_, err = cli.FindFiles([]string{t.TempDir()})
	require.ErrorContains(t, err, "no *.xml or *.pdf file in")
	_, err = cli.FindFiles([]string{dir, filepath.Join(dir, "absent")})
	require.ErrorContains(t, err, "no such file")
}

// TestImport_KeepsPapers: a document names its file, which is kept for its vendor before, and no event or request
// has a digest of the file. A file that cannot be kept is not submitted.
func TestImport_KeepsPapers(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newServer()
	path := writeInvoice(t, dir, "a.xml")
	r := importFolder(t, s, 1, dir)
	require.Equal(t, 1, r.Totals.Accepted)
	file := r.Files[0]
	require.Equal(t, client.KeepPaperParams{LegalEntity: "DEMF", Subject: "vendor:" + file.VendorID, Retention: client.RetentionRegulatory, MediaType: "application/xml"}, s.papers[file.Paper])
	var sent struct {
		SourceDocument contract.SourceDocument `json:"source_document"`
	}
	require.NoError(t, json.Unmarshal(s.received[1].Payload, &sent))
	require.Equal(t, file.Paper, sent.SourceDocument.Paper)
	require.Equal(t, einvoice.ReferenceOf(file.Paper), sent.SourceDocument.SHA256)
	document, err := json.Marshal(s.received[1])
	require.NoError(t, err)
	require.NotContains(t, string(document), file.SHA256)
	require.Empty(t, s.received[0].Source.Reference)

	refusing := newServer()
	refusing.beforePaper = func() error {
		return fault.New(fault.FailedPrecondition, "pii.keys_missing", "no key service; configure one")
	}
	r = importFolder(t, refusing, 1, dir)
	require.Equal(t, 1, r.Totals.Refused)
	require.Equal(t, "pii.keys_missing", r.Files[0].Code)
	require.Len(t, refusing.received, 1, "the vendor only")

	changing := newServer()
	changing.after = func(_ submission, out outcome) (outcome, error) {
		return out, os.WriteFile(path, []byte("<Invoice/>"), 0o600)
	}
	r = importFolder(t, changing, 1, dir)
	require.Equal(t, cli.CodeFileUnreadable, r.Files[0].Code)
	require.Empty(t, changing.papers)
}

// TestImport_KeepsAttachments: each attachment is a paper of the vendor beside the file, the same bytes
// one paper, and the document names them in order.
func TestImport_KeepsAttachments(t *testing.T) {
	t.Parallel()
	attached := func(mimeCode, content string) string {
		return `<cac:AdditionalDocumentReference><cbc:ID>1</cbc:ID><cac:Attachment><cbc:EmbeddedDocumentBinaryObject mimeCode="` + mimeCode + `" filename="hours.pdf">` +
			base64.StdEncoding.EncodeToString([]byte(content)) + `</cbc:EmbeddedDocumentBinaryObject></cac:Attachment></cac:AdditionalDocumentReference>`
	}
	dir, s := t.TempDir(), newServer()
	writeInvoice(t, dir, "a.xml", "<cac:AccountingSupplierParty>", attached("application/pdf", "hours")+attached("text/csv", "a;b")+attached("application/pdf", "hours")+"<cac:AccountingSupplierParty>")
	r := importFolder(t, s, 1, dir)
	require.Equal(t, 1, r.Totals.Accepted, "%+v", r.Files)
	file := r.Files[0]
	require.Len(t, file.Attachments, 3)
	require.Equal(t, file.Attachments[0], file.Attachments[2])
	require.Len(t, s.papers, 3)
	for id, mediaType := range map[string]string{file.Paper: "application/xml", file.Attachments[0]: "application/pdf", file.Attachments[1]: "text/csv"} {
		require.Equal(t, client.KeepPaperParams{LegalEntity: "DEMF", Subject: "vendor:" + file.VendorID, Retention: client.RetentionRegulatory, MediaType: mediaType}, s.papers[id])
	}
	var sent struct {
		Attachments []contract.Attachment `json:"attachments"`
	}
	require.NoError(t, json.Unmarshal(s.received[1].Payload, &sent))
	require.Equal(t, []contract.Attachment{
		{FileName: "attachment-1.pdf", ContentType: "application/pdf", SizeBytes: 5, Paper: contract.OpenText(file.Attachments[0])},
		{FileName: "attachment-2.csv", ContentType: "text/csv", SizeBytes: 3, Paper: contract.OpenText(file.Attachments[1])},
		{FileName: "attachment-3.pdf", ContentType: "application/pdf", SizeBytes: 5, Paper: contract.OpenText(file.Attachments[0])},
	}, sent.Attachments)

	// An attachment that cannot be kept stops the document.
	refusing, papers := newServer(), 0
	refusing.beforePaper = func() error {
		if papers++; papers == 2 {
			return fault.New(fault.Gone, "pii.subject_erased", "the vendor was erased")
		}
		return nil
	}
	r = importFolder(t, refusing, 1, dir)
	require.Equal(t, "pii.subject_erased", r.Files[0].Code)
	require.NotEmpty(t, r.Files[0].Paper)
	require.Len(t, refusing.received, 1, "the vendor only")
}
