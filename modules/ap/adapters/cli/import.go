package cli

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/csvinvoice"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/ports"
)

// Limits and defaults of an import.
const (
	DefaultParallel = 8
	MaxParallel     = 64

	// grace is how long requests in flight may run on after an interruption, so that the
	// report has their outcome.
	grace = 10 * time.Second
)

// Options configure an import.
type Options struct {
	LegalEntity string
	PostingDate *event.Date // nil: each document's own date
	Parallel    int         // files processed concurrently; 0 means DefaultParallel
	// Mapping makes the files CSV files that are read by it; nil: XML and PDF files.
	Mapping *csvinvoice.Mapping
	// Progress is called with the result of each processed file, as files end, never
	// concurrently. May be nil.
	Progress func(FileResult)
	// Wait pauses before a retry and returns an error when the context ends. Nil is
	// ports.Sleep.
	Wait func(context.Context, time.Duration) error
}

// Import reads the files and submits each as an intent, its vendor first where
// that is not registered yet. One file's failure does not affect other files. Files of the
// same vendor and number are sent one after another in the order given, all other files
// concurrently.
//
// When ctx ends, the server rejects a request, or many requests in a row have no usable
// answer, the import starts no further request; those in flight may end. The report always
// covers every file, and a second run with the same files submits nothing twice.
func Import(ctx context.Context, api API, files []string, o Options) *Report {
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	if o.Wait == nil {
		o.Wait = ports.Sleep
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()

	inputs := listInputs(files, o.Mapping)
	r := &run{
		api: api, papers: api, Options: o, ctx: ctx, stop: stop, requests: requests,
		inputs: inputs, results: make([]FileResult, len(inputs)), turn: closedChannel(), lanes: map[string]chan struct{}{},
		vendors: map[string]*vendor{}, booked: map[string]bookedDocument{},
	}
	var workers sync.WaitGroup
	for range min(o.Parallel, len(inputs)) {
		workers.Go(r.work)
	}
	workers.Wait()
	return newReport(r.results, r.registered, context.Cause(ctx))
}

// run is the state of one import.
type run struct {
	Options
	api      IntentAPI
	papers   API             // keeps the files; nil for an import of other files
	ctx      context.Context // once it ends, no request is started
	stop     context.CancelCauseFunc
	requests context.Context // of the requests; outlives ctx by the grace

	inputs  []input
	results []FileResult // one per input

	next  sync.Mutex // guards index and turn
	index int
	turn  chan struct{} // closed when the previous file has joined its lane

	// A lane is the sequence of files with the same vendor and number. lanes holds, per
	// lane, a channel that is closed when its last file has ended. Only the worker whose
	// turn it is accesses the map.
	lanes map[string]chan struct{}

	mu         sync.Mutex // guards the fields down to unanswered
	vendors    map[string]*vendor
	booked     map[string]bookedDocument // by document id
	registered int
	unanswered int // consecutive requests without a usable answer

	reporting sync.Mutex // serialises calls of Progress
}

// bookedDocument is the total of a document that the server has.
type bookedDocument struct {
	total    money.Number
	currency string
}

// inputFile is a file that was read.
type inputFile struct {
	document einvoice.Document
	content  []byte // of a document of a CSV file, its part of it; nil: the file is the document
	result   FileResult
	err      error // the file is refused, or could not be read
}

// work takes files in order until none is left. Workers read their files concurrently. A
// worker then waits until the previous file has joined its lane, and then for the previous
// file in that lane. It only waits for earlier files, which workers have taken already,
// so the earliest one never waits and there is no deadlock.
func (r *run) work() {
	for {
		r.next.Lock()
		i, previousJoined := r.index, r.turn
		joined := make(chan struct{})
		if i < len(r.inputs) {
			r.index, r.turn = i+1, joined
		}
		r.next.Unlock()
		if i >= len(r.inputs) {
			return
		}
		if r.ctx.Err() != nil {
			r.results[i] = notSent(r.inputs[i].result())
			close(joined)
			continue
		}
		p := r.inputs[i].read()
		<-previousJoined
		previousDone, done := closedChannel(), make(chan struct{})
		if lane := p.lane(); lane != "" {
			if last, ok := r.lanes[lane]; ok {
				previousDone = last
			}
			r.lanes[lane] = done
		}
		close(joined)
		<-previousDone
		r.results[i] = r.finish(p)
		close(done)
		r.report(r.results[i])
	}
}

func (r *run) report(f FileResult) {
	if r.Progress == nil {
		return
	}
	r.reporting.Lock()
	defer r.reporting.Unlock()
	r.Progress(f)
}

// lane is the key of the file's lane, "" for a file that is not submitted.
func (p *inputFile) lane() string {
	if p.err != nil {
		return ""
	}
	return p.document.Supplier.Identity() + "\x1f" + eventtype.Normalise(eventtype.NormaliseDocumentNumber, p.document.Number)
}

// read reads and checks one file.
func read(path string) *inputFile {
	p := &inputFile{result: FileResult{File: path}}
	f, err := os.Open(path)
	if err != nil {
		p.err = &fileError{err}
		return p
	}
	defer f.Close()
	p.document, p.err = einvoice.Read(f)
	if _, refused := fault.As(p.err); p.err != nil && !refused {
		p.err = &fileError{p.err} // reading failed, so the document must not count as refused
		return p
	}
	p.describe()
	return p
}

// describe takes over into the result what identifies the document.
func (p *inputFile) describe() {
	d := &p.document
	p.result.SHA256, p.result.Kind, p.result.Number = d.SHA256, d.Kind, d.Number
	p.result.Warnings = d.Warnings
	if c, err := money.LookupCurrency(d.Currency, d.IssueDate.Time()); err == nil {
		p.result.Currency, p.result.minorUnit = d.Currency, c.MinorUnit
		p.result.gross, p.result.Total = d.Totals.Gross, d.Totals.Gross.Fixed(c.MinorUnit)
	}
}

// fileError is the error of a file that cannot be opened or read.
type fileError struct{ err error }

func (e *fileError) Error() string { return withoutPath(e.err).Error() }
func (e *fileError) Unwrap() error { return e.err }

// finish resolves the vendor of a file and submits its document.
func (r *run) finish(p *inputFile) FileResult {
	if p.err != nil {
		return p.result.withError(p.err)
	}
	if r.ctx.Err() != nil {
		return notSent(p.result)
	}
	vendorID, intentID, err := r.resolveVendor(&p.document)
	switch {
	case err != nil:
		return p.result.withError(err)
	case vendorID == "":
		return p.result.pendingApproval(intentID, "the registration of its vendor waits for the approval of another person; approve that intent, then run the command again")
	}
	p.result.VendorID = vendorID
	return r.submit(p)
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// withError returns the result of a file that ended with an error: refused if the reader
// or the server decided about the document, else failed.
func (f FileResult) withError(err error) FileResult {
	var unread *fileError
	if errors.As(err, &unread) {
		f.Status, f.Code = StatusFailed, CodeFileUnreadable
		f.Detail = "the file cannot be read: " + unread.Error() + "; make it readable and run the command again"
		return f
	}
	if errors.Is(err, errNotSent) {
		return notSent(f)
	}
	failure, ok := fault.As(err)
	if !ok {
		f.Status, f.Code = StatusFailed, CodeNoAnswer
		f.Detail = "the server did not answer: " + reason(err) + "; run the command again, which reports documents submitted before as duplicates"
		return f
	}
	f.Code, f.Detail, f.Holder = failure.Code, failure.Detail, failure.Holder
	if failure.IntentID != "" {
		f.IntentID = failure.IntentID
	}
	if classify(err) != decided {
		f.Status = StatusFailed
		return f
	}
	f.Status = StatusRefused
	for _, v := range failure.Violations {
		if v.Severity != einvoice.SeverityWarning {
			f.Violations = append(f.Violations, v)
		}
	}
	if len(f.Violations) == 0 {
		f.Violations = []fault.Violation{{
			Field: failure.Field, Code: failure.Code, Severity: einvoice.SeverityError, Detail: failure.Detail,
			Expected: text(failure.Expected), Got: text(failure.Actual),
		}}
	}
	return f
}

func (f FileResult) pendingApproval(intentID, detail string) FileResult {
	f.Status, f.Code, f.IntentID, f.Detail = StatusPending, "intent.pending_approval", intentID, detail
	return f
}

func notSent(f FileResult) FileResult {
	f.Status, f.Code = StatusFailed, CodeNotSent
	f.Detail = "the import ended before this file was sent; run the command again"
	return f
}
