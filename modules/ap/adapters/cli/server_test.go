package cli_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/test/testkit"
)

// server is accounts payable in memory, as far as an import can see it: idempotency
// keys with fingerprints that refusals do not use up, vendors by identity,
// documents by kind, vendor and normalised number, holds.
type server struct {
	// before may answer in the server's place, with a non-nil error. It is called
	// without the lock.
	before func(ctx context.Context, s submission) error
	// after may lose the answer.
	after func(s submission, out outcome) (outcome, error)

	mu        sync.Mutex
	sequence  int
	keys      map[string]keptAnswer
	vendors   map[string]keyHolder // by identity
	documents map[string]keyHolder // by kind, vendor and number
	received  []submission

	papers      map[string]client.KeepPaperParams // by id
	beforePaper func() error                      // as before, of papers
}

// submission is what the import sent.
type submission struct {
	client.IntentRequest
	IdempotencyKey string
}

// outcome is what it is answered.
type outcome struct {
	client.IntentOutcome
	Replayed bool
}

type keptAnswer struct {
	content string
	outcome outcome
}

type keyHolder struct {
	id, event, sequence, total string
	state                      string // of a document; "": submitted
	file                       string // of a document
}

func newServer() *server {
	return &server{papers: map[string]client.KeepPaperParams{}, keys: map[string]keptAnswer{}, vendors: map[string]keyHolder{}, documents: map[string]keyHolder{}}
}

func (s *server) SubmitIntent(ctx context.Context, params client.SubmitIntentParams, intent client.IntentRequest, options ...client.Option) (client.IntentOutcome, error) {
	r := submission{intent, params.IdempotencyKey}
	if s.before != nil {
		if err := s.before(ctx, r); err != nil {
			return client.IntentOutcome{}, err
		}
	}
	out, err := s.submit(r)
	if s.after != nil && err == nil {
		out, err = s.after(r, out)
	}
	var call client.Call
	for _, o := range options {
		o(&call)
	}
	*call.Replayed = out.Replayed
	return out.IntentOutcome, err
}

// KeepPaper keeps a file of a vendor under an id that depends on both.
func (s *server) KeepPaper(_ context.Context, params client.KeepPaperParams, file []byte, _ ...client.Option) (client.Paper, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beforePaper != nil {
		if err := s.beforePaper(); err != nil {
			return client.Paper{}, err
		}
	}
	sum := sha256.Sum256(append([]byte(params.Subject), file...))
	id := event.ID(sum[:16]).String()
	s.papers[id] = params
	return client.Paper{ID: id, Subject: params.Subject}, nil
}

func (s *server) submit(r submission) (outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = append(s.received, r)
	if r.IdempotencyKey == "" || len(r.IdempotencyKey) > 255 || r.Source.Channel != "batch" || (len(r.Source.Reference) != 26) == (r.Type != "ap.register_vendor") {
		return outcome{}, fault.New(fault.Invalid, "test.request_invalid", "key or source is wrong")
	}
	content := r.Type + "\x1f" + r.LegalEntity + "\x1f" + r.EffectiveDate + "\x1f" + string(r.Payload)
	if known, ok := s.keys[r.IdempotencyKey]; ok {
		if known.content != content {
			return outcome{}, fault.New(fault.Conflict, "intent.idempotency_mismatch", "other content; use a new key")
		}
		known.outcome.Replayed = true
		return known.outcome, nil
	}
	out := outcome{IntentOutcome: client.IntentOutcome{IntentID: fmt.Sprintf("I-%d", s.sequence+1), Status: "executed"}}
	out.CorrelationID = out.IntentID
	var err error
	switch r.Type {
	case "ap.register_vendor":
		err = s.register(r, &out)
	case "ap.submit_invoice":
		err = s.book(contract.Invoice, r, &out)
	case "ap.submit_credit_memo":
		err = s.book(contract.CreditMemo, r, &out)
	default:
		err = fault.New(fault.NotFound, "intent.type_unknown", "no such intent; correct it")
	}
	if err != nil {
		return outcome{}, err
	}
	if !r.DryRun {
		s.keys[r.IdempotencyKey] = keptAnswer{content, out}
	}
	return out, nil
}

func (s *server) emit(out *outcome, eventType, stream string) keyHolder {
	s.sequence++
	e := client.IntentEvent{ID: fmt.Sprintf("E-%d", s.sequence), Type: eventType, Sequence: fmt.Sprint(s.sequence), Stream: stream, StreamVersion: 1}
	out.Events = append(out.Events, e)
	return keyHolder{event: e.ID, sequence: e.Sequence}
}

func (h keyHolder) holder() fault.Holder {
	return fault.Holder{EventID: h.event, DocumentID: h.id, Sequence: h.sequence}
}

func (s *server) register(r submission, out *outcome) error {
	var v contract.VendorRegistered
	if err := json.Unmarshal(r.Payload, &v); err != nil {
		return err
	}
	if len(v.Country) != 2 || v.NaturalPerson && v.Name != "" {
		return fault.New(fault.Invalid, "intent.schema_invalid", "a field is wrong; correct it").
			WithViolations(fault.Violation{Field: "/payload/country", Code: "schema.required"})
	}
	identity := domain.Identity(v.VATID, v.RegistrationID, v.PartyID)
	if first, taken := s.vendors[identity]; taken {
		return fault.New(fault.Conflict, "ap.vendor.duplicate", "registered already; use the holder's id").WithHolder(first.holder())
	}
	id := fmt.Sprintf("V-%06d", len(s.vendors)+1)
	h := s.emit(out, contract.EventVendorRegistered, "ap.vendor/"+id)
	h.id = id
	s.vendors[identity] = h
	return nil
}

// differences are as the answer decodes them.
func differences(sameTotal, sameFile bool) []any {
	found := []any{}
	if !sameTotal {
		found = append(found, "total_amount")
	}
	if !sameFile {
		found = append(found, "source_document")
	}
	return found
}

// end rejects or voids a document.
func (s *server) end(id, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, h := range s.documents {
		if h.id == id {
			h.state = state
			s.documents[key] = h
		}
	}
}

func (s *server) book(k contract.Kind, r submission, out *outcome) error {
	var d contract.Submission
	if err := json.Unmarshal(r.Payload, &d); err != nil {
		return err
	}
	known := false
	for _, v := range s.vendors {
		known = known || v.id == d.VendorID
	}
	if !known {
		return fault.New(fault.NotFound, "ap.vendor.not_found", "no such vendor; register it").WithField("/vendor_id")
	}
	key := string(k) + "|" + d.VendorID + "|" + eventtype.Normalise(eventtype.NormaliseDocumentNumber, d.InvoiceNumber)
	total := d.Currency + " " + d.TotalAmount.Fixed(money.MaxDecimals)
	if first, taken := s.documents[key]; taken {
		return fault.New(fault.Conflict, k.Code("duplicate"), "the number is taken; look at the holder").
			WithHolder(first.holder()).With("totals_agree", first.total == total).With("differs", differences(first.total == total, first.file == d.SourceDocument.SHA256)).
			With("holder_state", cmp.Or(first.state, "submitted"))
	}
	id := fmt.Sprintf("D-%d", len(s.documents)+1)
	h := s.emit(out, k.Event(contract.Submitted), k.Stream(id).String())
	h.id, h.total, h.file = id, total, d.SourceDocument.SHA256
	s.documents[key] = h
	rule := client.RuleEvaluation{RuleID: "ap.submit.findings"}
	if d.PayeeDiffers {
		rule.ActionsTaken = append(rule.ActionsTaken, "hold:"+contract.HoldPayeeDiffers)
	}
	if d.PrepaidAmount != nil && d.PrepaidAmount.Sign() > 0 {
		rule.ActionsTaken = append(rule.ActionsTaken, "hold:"+contract.HoldPrepaidUnmatched)
	}
	out.Rules = append(out.Rules, client.RuleEvaluation{RuleID: "ap.submit.coding", ActionsTaken: []string{"account:6000"}}, rule)
	for range rule.ActionsTaken {
		s.emit(out, k.Event(contract.Held), k.Stream(id).String())
	}
	return nil
}

// options import into DEMF without waiting.
func options(parallel int) cli.Options {
	return cli.Options{
		LegalEntity: "DEMF", Parallel: parallel,
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
}

func importFolder(t *testing.T, s *server, parallel int, paths ...string) *cli.Report {
	t.Helper()
	files, err := cli.FindFiles(paths)
	require.NoError(t, err)
	return cli.Import(t.Context(), s, files, options(parallel))
}

func sampleFolder(t *testing.T) string {
	t.Helper()
	return filepath.Join(testkit.RepoRoot(t), "test", "samples", "ubl")
}

// writeInvoice writes the first sample with edits: pairs of old and new text.
func writeInvoice(t *testing.T, dir, name string, edits ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sampleFolder(t), "01-invoice-two-rates.xml"))
	require.NoError(t, err)
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer(edits...).Replace(string(text))), 0o600))
	return path
}

const (
	sampleNumber = "<cbc:ID>NBA-2026-1047</cbc:ID>"
	sampleVAT    = "DE999000105"
)

func number(n string) string { return "<cbc:ID>" + n + "</cbc:ID>" }

// byName gives the result of the one file with this base name.
func byName(t *testing.T, r *cli.Report, name string) cli.FileResult {
	t.Helper()
	for _, f := range r.Files {
		if filepath.Base(f.File) == name {
			return f
		}
	}
	t.Fatalf("no file %s in the report", name)
	return cli.FileResult{}
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var coded interface{ ExitCode() int }
	require.True(t, errors.As(err, &coded), "%v", err)
	require.NotEmpty(t, err.Error())
	return coded.ExitCode()
}
