package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// defaultNetDays are the terms of payment of a vendor that the import registers, in days
// after the invoice date. They equal the default terms of accounts payable.
const defaultNetDays = 30

// The source that the import's intents and their events name.
const (
	sourceSystem  = "backbone ap import"
	sourceChannel = "batch"
)

// vendor is a seller named in the files. Its lock is held during registration, so that
// concurrent files register it once.
type vendor struct {
	sync.Mutex
	id string // "" until the server answered
}

// resolveVendor returns the id of a document's vendor and registers a vendor that the
// server does not know. If the registration waits for approval, it returns the id of that
// intent instead. A refusal is not cached: the next document of the same vendor may have
// the data that this one lacks.
func (r *run) resolveVendor(d *einvoice.Document) (vendorID, intentID string, err error) {
	identity := d.Supplier.Identity()
	if identity == "" {
		return "", "", fault.New(fault.Invalid, CodeVendorUnknown,
			"the seller has neither a VAT identifier nor another identifier that is not blank; ask the supplier for a corrected document")
	}
	r.mu.Lock()
	v, known := r.vendors[identity]
	if !known {
		v = &vendor{}
		r.vendors[identity] = v
	}
	r.mu.Unlock()

	v.Lock()
	defer v.Unlock()
	if v.id != "" {
		return v.id, "", nil
	}
	payload, err := d.VendorPayload(defaultNetDays)
	if err != nil {
		return "", "", encodeFault(err)
	}
	// A registration may name a person, and a digest of a name can be reversed by hashing guesses. So
	// can that of the file, which therefore is in a key that expires, and in no event.
	out, err := r.send(submission{r.newIntent(contract.IntentRegisterVendor, payload, ""), idempotencyKey(r.LegalEntity, "vendor", identity), d.SHA256})
	if failure, ok := fault.As(err); ok && failure.Code == "ap.vendor.duplicate" && failure.Holder != nil && failure.Holder.DocumentID != "" {
		v.id = failure.Holder.DocumentID
		return v.id, "", nil
	}
	if err != nil {
		return "", "", err
	}
	registered, ok := out.findEvent(contract.EventVendorRegistered)
	switch {
	case ok:
		v.id = documentIDOf(registered)
	case out.hasNoEvents():
		return "", "", out.earlierRefusal("the registration of its vendor")
	default:
		return "", out.IntentID, nil
	}
	if v.id == "" {
		return "", "", unexpectedAnswer()
	}
	if !out.replayed {
		r.mu.Lock()
		r.registered++
		r.mu.Unlock()
	}
	return v.id, "", nil
}

// submit keeps the file and its attachments, then sends the document that names them. The papers of a
// refused document stay kept, as what was refused.
func (r *run) submit(p *inputFile) FileResult {
	d := &p.document
	kept, err := r.keepPapers(p)
	p.result.Paper, p.result.Attachments = kept.document, kept.attachments
	if err != nil {
		return p.result.withError(err)
	}
	payload, err := d.IntentPayload(einvoice.Submission{VendorID: p.result.VendorID, Paper: kept.document, Attachments: kept.attachments})
	if err != nil {
		return p.result.withError(encodeFault(err))
	}
	s := submission{r.newIntent(d.Intent(), payload, p.result.Paper), idempotencyKey(r.LegalEntity, p.result.Paper), ""}
	if d.Supplier.NaturalPerson() { // whose name is in the payload, and could be guessed by a digest of it
		s.content = p.result.Paper
	}
	if r.PostingDate != nil {
		s.EffectiveDate = r.PostingDate.String()
	}
	out, err := r.send(s)
	if err != nil {
		return r.resultOfFault(p, err)
	}
	p.result.IntentID = out.IntentID
	kind := d.Kind
	submitted, ok := out.findEvent(kind.Event(contract.Submitted))
	switch {
	case ok && documentIDOf(submitted) == "", !ok && out.Status == string(intent.Executed):
		return p.result.withError(unexpectedAnswer())
	case ok:
		if out.replayed {
			return r.resultOfReplay(p, s, out, submitted)
		}
		return r.resultOfEvents(p, out, submitted)
	case out.hasNoEvents():
		return p.result.withError(out.earlierRefusal("this document"))
	default:
		return p.result.pendingApproval(out.IntentID, "it waits for the approval of another person; approve that intent")
	}
}

// resultOfReplay makes the result of a file that was submitted before: the server repeats its
// first answer, which does not say what became of the document. A dry run under another key is
// refused as a duplicate and says it.
func (r *run) resultOfReplay(p *inputFile, s submission, out outcome, submitted client.IntentEvent) FileResult {
	f := &p.result
	s.DryRun, s.key = true, idempotencyKey(s.key, "state")
	if _, err := r.send(s); err != nil {
		return r.resultOfFault(p, err)
	}
	f.DocumentID = documentIDOf(submitted)
	r.recordTotal(*f)
	f.Status, f.Code = StatusDuplicate, f.Kind.Code("duplicate")
	f.Detail = "this file was submitted before; look at the document named here"
	f.Holder = &fault.Holder{EventID: submitted.ID, DocumentID: f.DocumentID, Sequence: submitted.Sequence}
	return *f
}

// resultOfEvents makes the result of a document that has a submitted event.
func (r *run) resultOfEvents(p *inputFile, out outcome, submitted client.IntentEvent) FileResult {
	f := p.result
	f.DocumentID = documentIDOf(submitted)
	r.recordTotal(f)
	kind := f.Kind
	f.Status = StatusAccepted
	for _, e := range out.Events {
		if e.Type == kind.Event(contract.Held) {
			f.Holds = append(f.Holds, Hold{EventID: e.ID})
		}
	}
	// Held events carry no kind in the answer. The trace of the rule that placed the holds
	// lists the kinds in the same order.
	if kinds := out.holdKinds(); len(kinds) == len(f.Holds) {
		for i := range f.Holds {
			f.Holds[i].Kind = kinds[i]
		}
	}
	return f
}

// memberSource is the member in which two files with the same figures differ: the paper was
// issued again, and is the same one.
const memberSource = "source_document"

// resultOfFault makes the result of a document that the server answered with a fault. If its
// number is taken, it is reinstatable if the holder was rejected or voided, and a duplicate if
// the figures agree; else it is refused or failed.
func (r *run) resultOfFault(p *inputFile, err error) FileResult {
	f := p.result
	failure, ok := fault.As(err)
	if !ok || failure.Code != f.Kind.Code("duplicate") {
		return f.withError(err)
	}
	f.HolderState, _ = failure.Attributes["holder_state"].(string)
	f.Differs = textList(failure.Attributes["differs"])
	figures := slices.DeleteFunc(slices.Clone(f.Differs), func(member string) bool { return member == memberSource })
	agree, _ := failure.Attributes["totals_agree"].(bool)
	ended := f.HolderState == string(domain.StateRejected) || f.HolderState == string(domain.StateVoided)
	if !ended && (!agree || len(figures) > 0) {
		f = f.withError(err)
		r.addFigures(&f)
		return f
	}
	f.Status, f.Code, f.Detail, f.Holder = StatusDuplicate, failure.Code, failure.Detail, failure.Holder
	if failure.IntentID != "" {
		f.IntentID = failure.IntentID
	}
	if failure.Holder != nil {
		f.DocumentID = failure.Holder.DocumentID
	}
	if ended {
		f.Status = StatusReinstatable
		f.Detail = fmt.Sprintf("document %s with this number was %s, and no payment takes it; if the paper is to be booked after all, reinstate it with %s",
			f.DocumentID, f.HolderState, f.Kind.Intent("reinstate"))
		return f
	}
	if failure.Holder != nil {
		r.recordTotal(f)
	}
	return f
}

// textList reads a list of texts of a fault, which comes as it was made or decoded.
func textList(v any) []string {
	switch list := v.(type) {
	case []string:
		return list
	case []any:
		out := make([]string, 0, len(list))
		for _, e := range list {
			if text, ok := e.(string); ok {
				out = append(out, text)
			}
		}
		return out
	}
	return nil
}

// recordTotal keeps the total of a document that the server has, for addFigures.
func (r *run) recordTotal(f FileResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.booked[f.DocumentID] = bookedDocument{total: f.gross, currency: f.Currency}
}

// addFigures adds both totals to the refusal of a number that a document with another
// total has. The other total is known only if that document was in this import.
func (r *run) addFigures(f *FileResult) {
	if len(f.Violations) == 0 || f.Violations[0].Got != "" || f.Total == "" {
		return
	}
	v := &f.Violations[0]
	v.Got, v.Currency = f.Total, f.Currency
	if f.Holder == nil {
		return
	}
	r.mu.Lock()
	taken, known := r.booked[f.Holder.DocumentID]
	r.mu.Unlock()
	switch {
	case !known:
	case taken.currency == f.Currency:
		v.Expected, v.Difference = taken.total.Fixed(f.minorUnit), f.gross.Sub(taken.total).Fixed(f.minorUnit)
	default:
		v.Expected, v.Got, v.Currency = taken.total.String()+" "+taken.currency, f.Total+" "+f.Currency, ""
	}
}

// newIntent makes a request whose source refers to a paper, if one is kept.
func (r *run) newIntent(intentType string, payload json.RawMessage, paper string) client.IntentRequest {
	return client.IntentRequest{
		Type: intentType, LegalEntity: r.LegalEntity, Payload: payload,
		Source: client.Source{System: sourceSystem, Channel: sourceChannel, Reference: paper},
	}
}

// findEvent returns the first event of a type.
func (o *outcome) findEvent(eventType string) (client.IntentEvent, bool) {
	for _, e := range o.Events {
		if e.Type == eventType {
			return e, true
		}
	}
	return client.IntentEvent{}, false
}

// hasNoEvents reports whether the intent ended without events.
func (o *outcome) hasNoEvents() bool {
	return slices.Contains([]intent.Status{intent.Rejected, intent.Denied, intent.Failed, intent.Withdrawn, intent.Expired}, intent.Status(o.Status))
}

// earlierRefusal makes the fault for an intent of an earlier import that ended without
// events. The server replays its outcome for the same idempotency key.
func (o *outcome) earlierRefusal(what string) error {
	return fault.New(fault.Conflict, "intent."+o.Status,
		"%s was submitted before, and that intent was %s; look at the intent, and enter the document by hand if it must be booked", what, o.Status).
		WithIntent(o.IntentID)
}

// holdKinds lists the kinds of the holds that the rules placed, in their order.
func (o *outcome) holdKinds() []string {
	var kinds []string
	for _, rule := range o.Rules {
		for _, action := range rule.ActionsTaken {
			if kind, ok := strings.CutPrefix(action, "hold:"); ok {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}

// documentIDOf returns the id part of the event's stream.
func documentIDOf(e client.IntentEvent) string {
	_, id, _ := strings.Cut(e.Stream, "/")
	return id
}

func encodeFault(err error) error {
	return fault.New(fault.Internal, CodeUnexpected,
		"the document was read but cannot be written as an intent; report this with the file").WithCause(err)
}

func unexpectedAnswer() error {
	return fault.New(fault.Internal, CodeUnexpected,
		"the server's answer does not fit its API; check that server and command have the same version")
}
