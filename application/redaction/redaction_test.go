package redaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/upcasting"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	moved = "till.cash.moved"      // of a module
	visit = "crm.customer.visited" // of no module
)

// tillModule owns a type with texts that it declares redactable.
type tillModule struct{}

func (tillModule) Name() string { return "till" }

func (tillModule) Register(r *module.Registrar) error {
	r.Prefixes("till")
	r.EventType(module.EventType{
		Registration: eventtype.Registration{
			Type: moved, SchemaVersion: 1, Module: "till", Description: "Cash moved.",
			DataSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["number","amount","remark"],"properties":{
				"number":{"type":"string"},"amount":{"type":"number"},"remark":{"type":"string"},"clerk":{"type":"string"},
				"lines":{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{"text":{"type":"string"},"amount":{"type":"number"}}}}}}`),
			BusinessKeys: []eventtype.BusinessKeyRule{{Name: "number", Fields: []string{"number"}}},
		},
		Redactable: []string{"$.remark", "$.lines[*].text"},
	})
	return nil
}

const visitSchema = `{"type":"object","additionalProperties":false,"required":["report","rating"],"properties":{
	"report":{"type":"string"},"rating":{"type":"number"},"visit_number":{"type":"string"},"mood":{"type":"string","enum":["good","bad"]},
	"form":{"type":"string","pattern":"^F-[0-9]+$"},"customer_id":{"type":"string"},"customer":{"type":"string"},"seen":{"type":"boolean"},
	"extra":{},"inside":{"type":"object"},
	"guests":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["person"],"properties":{"person":{"type":"string"},"email":{"type":"string"}}}},
	"parts":{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{"text":{"type":"string"}}}}}}`

const visitData = `{"report":"Met Ada","rating":4.50,"visit_number":"V-7","mood":"good","form":"F-12","customer_id":"C-1","customer":"C-1","seen":true,
	"extra":{"who":"Ada","where":["home"]},"guests":[{"person":"G-1"}],
	"inside":{"linked":{"customer_id":"C-9"},"listed":[[{"id":{}}]],"named":{"of":["C-1"]},"streamed":["T-crm.customer.visited"],"scored":{"points":[3]},"flagged":[true],"empty":[null]},
	"parts":[{"text":"Ada again"}]}`

const movedData = `{"number":"M-1","amount":1.50,"remark":"for Ada","clerk":"c-1","lines":[{"text":"Ada","amount":1.50}]}`

// fixture is a log with one event of each type, and everything that redacts them.
type fixture struct {
	clock   *testkit.Clock
	store   *memory.Database
	entity  ports.LegalEntity
	log     *eventappend.Service
	readers *readers
	config  redaction.Config
	service *redaction.Service
	events  map[string]event.ID // by type
	journal *administration.Log
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ctx := t.Context()
	f := &fixture{clock: testkit.NewClock(start), readers: &readers{}, events: map[string]event.ID{}}
	f.store = memory.New(memory.Config{LogName: "till.example.org", Clock: f.clock})
	var err error
	f.entity, err = f.store.Directory.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "acme", Code: "DEMF", TimeZone: "Europe/Berlin"})
	require.NoError(t, err)
	catalog, err := module.Build(typestest.Schemas{}, administration.Module{}, erasure.Module{}, tillModule{})
	require.NoError(t, err)
	types := registry.New(typestest.Memory(t, f.store, f.clock), typestest.Schemas{}, nil, catalog, f.clock)
	require.NoError(t, types.RegisterBuiltIn(ctx))
	_, err = types.Register(ctx, eventtype.Registration{
		TenantID: "acme", Type: visit, SchemaVersion: 1, Module: "crm", Description: "A customer was visited.", DataSchema: json.RawMessage(visitSchema),
		BusinessKeys: []eventtype.BusinessKeyRule{{Name: "visit", Fields: []string{"visit_number"}}}, RetentionClass: eventtype.Standard, Active: true,
		PIIFields: []eventtype.PIIField{{Path: "$.guests[*].email", Class: "contact", Subject: json.RawMessage(`{"path":"$.guests[*].person","type":"person"}`)}},
	}, event.Actor{Type: event.Human, ID: "p-admin"}, registry.ProofRequest{})
	require.NoError(t, err)
	ids := system.NewIDs()
	preparer := eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: ids, Limits: eventappend.Limits{BatchEvents: 100, EventBytes: 65536, EntityRefs: 4, Tags: 3}})
	f.log = eventappend.NewService(eventappend.Config{Preparer: preparer, Appender: f.store.Appender, Events: f.store.Events, Idempotency: f.store.Intents, Clock: f.clock, IDs: ids, KeyTTL: time.Hour})
	for name, data := range map[string]string{moved: movedData, visit: visitData} {
		done, _, err := f.log.Append(ctx, eventappend.Request{
			LegalEntity: f.entity, Actor: event.Actor{Type: event.System, ID: "s", Name: "s"}, PersonID: "s",
			Drafts: []event.Draft{{Type: name, Stream: event.StreamID{Type: "thing", ID: "T-" + name}, Data: json.RawMessage(data), Entities: []event.EntityRef{{Type: "customer", ID: "C-1", Role: "subject"}}}},
		})
		require.NoError(t, err)
		f.events[name] = done[0].ID
	}
	exports, err := exportdir.Open(t.TempDir())
	require.NoError(t, err)
	f.journal = f.newJournal(f.store.Events)
	f.config = redaction.Config{
		Journal: f.journal, Redactions: f.store.Redactions, Events: f.store.Events, Rules: redaction.Rules{Types: types, Declared: catalog, Upcaster: upcasting.New(types)},
		LegalEntities: f.store.Directory, ReadModels: f.readers, Announcer: announcer{f.log}, Chains: soundChains{}, Notes: notes{}, Exports: exports,
		Clock: f.clock, IDs: ids, Logger: slog.New(slog.DiscardHandler), Poll: time.Second,
	}
	f.service = testkit.Must(redaction.NewService(f.config, func() {}))
	return f
}

// newJournal makes the administrative log of a node.
func (f *fixture) newJournal(streams administration.Streams) *administration.Log {
	return administration.NewLog(administration.LogConfig{
		Entities: f.store.Directory, Streams: streams, Writer: typestest.Writer{Appends: f.log}, Directory: f.store.Directory, LogName: "till.example.org", Clock: f.clock, Logger: slog.New(slog.DiscardHandler),
	})
}

type announcer struct{ log *eventappend.Service }

func (a announcer) Announce(ctx context.Context, n erasure.Announcement) error {
	_, _, err := a.log.Append(ctx, eventappend.Request{
		LegalEntity: n.LegalEntity, Actor: event.Actor{Type: event.System, ID: "backbone", Name: "redaction"}, PersonID: "backbone",
		Drafts: []event.Draft{n.Draft}, IdempotencyKey: n.IdempotencyKey, Digest: n.Fingerprint,
	})
	return err
}

type soundChains struct{}

func (soundChains) VerifyChain(_ context.Context, le ports.LegalEntity) (erasure.ChainVerdict, error) {
	return erasure.ChainVerdict{LegalEntity: le.Code, Events: 3, Head: 3, Checksum: "00"}, nil
}

// notes signs with a line that any caller can write.
type notes struct{}

func (notes) SignNote(_ context.Context, text []byte) ([]byte, error) {
	return append(slices.Clone(text), "\n— signed\n"...), nil
}

func (notes) VerifierKey(context.Context) (string, error) { return "key", nil }

func (notes) OpenNote(note []byte, _ ...string) ([]byte, error) {
	text, ok := strings.CutSuffix(string(note), "\n— signed\n")
	if !ok {
		return nil, errors.New("not signed")
	}
	return []byte(text), nil
}

// readers is the read models: behind the log until told otherwise.
type readers struct {
	behind bool
	asked  []event.StreamID
}

func (r *readers) RecomputeReaders(_ context.Context, _ string, _ ports.LegalEntity, entity event.StreamID, passed event.Sequence) ([]string, error) {
	if r.behind {
		return nil, projection.TargetBehind("sums", 1)
	}
	if passed == 0 {
		return nil, errors.New("the rows are recomputed before the announcement")
	}
	r.asked = append(r.asked, entity)
	return []string{"totals"}, nil
}

func person(id string) ports.Principal {
	return ports.Principal{TenantID: "acme", PersonID: id, ActorType: event.Human}
}

func (f *fixture) request(t *testing.T, eventType string, pointers ...string) redaction.Status {
	t.Helper()
	s, err := f.service.Request(t.Context(), person("p-1"), f.newRequest(eventType, pointers...))
	require.NoError(t, err)
	return s
}

func (f *fixture) newRequest(eventType string, pointers ...string) redaction.NewRequest {
	return redaction.NewRequest{LegalEntity: "DEMF", EventID: f.events[eventType], Pointers: pointers, Reason: "free text with a name"}
}

func (f *fixture) approved(t *testing.T, eventType string, pointers ...string) redaction.Status {
	t.Helper()
	s, err := f.service.Approve(t.Context(), person("p-2"), f.request(t, eventType, pointers...).ID, "")
	require.NoError(t, err)
	return s
}

func (f *fixture) state(t *testing.T, id event.ID) redaction.Status {
	t.Helper()
	s, err := f.service.Get(t.Context(), person("p-3"), id)
	require.NoError(t, err)
	return s
}

func (f *fixture) stored(t *testing.T, eventType string) event.Recorded {
	t.Helper()
	e, err := f.store.Events.EventByID(t.Context(), f.entity.Partition, f.events[eventType])
	require.NoError(t, err)
	return e
}

func (f *fixture) announced(t *testing.T) []event.Recorded {
	t.Helper()
	found, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: f.entity.Partition, Types: []string{redaction.EventType}, Limit: 100})
	require.NoError(t, err)
	return found
}

func TestRules(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct {
		eventType string
		pointers  []string
		code      string
	}{
		{moved, []string{"/data/remark", "/data/lines/0/text"}, ""},
		{moved, []string{"/data/amount"}, "not_redactable"},
		{moved, []string{"/data/lines/0/amount"}, "not_redactable"},
		{moved, []string{"/data/lines/0"}, "not_redactable"},
		{moved, []string{"/data/lines"}, "not_redactable"},
		{moved, []string{"/data/number"}, "not_redactable"},
		{moved, []string{"/data/clerk"}, "not_redactable"}, // a text that the module does not declare
		{moved, []string{"/data/remark", "/data/remark"}, "pointer_invalid"},
		{moved, []string{"/data/nothing"}, "pointer_invalid"},
		{moved, []string{"/entity_refs/0/entity_id"}, "pointer_invalid"},
		{moved, []string{"/data/"}, "pointer_invalid"},
		{moved, []string{"/data"}, "pointer_invalid"},
		{moved, nil, "invalid"},
		{moved, slices.Repeat([]string{"/data/remark"}, 65), "invalid"},
		{visit, []string{"/data/report", "/data/parts/0/text"}, ""},
		{visit, []string{"/data/form"}, ""}, // only the form of the text is prescribed
		{visit, []string{"/data/extra"}, ""},
		{visit, []string{"/data/extra", "/data/extra/who"}, "pointer_invalid"},
		{visit, []string{"/data/rating"}, "not_redactable"},
		{visit, []string{"/data/seen"}, "not_redactable"},
		{visit, []string{"/data/visit_number"}, "not_redactable"},
		{visit, []string{"/data/customer_id"}, "not_redactable"},
		{visit, []string{"/data/customer"}, "not_redactable"},      // it names the entity
		{visit, []string{"/data/inside/linked"}, "not_redactable"}, // inside of a value the rules are the same
		{visit, []string{"/data/inside/linked/customer_id"}, "not_redactable"},
		{visit, []string{"/data/inside/listed"}, "not_redactable"},
		{visit, []string{"/data/inside/listed/0/0/id"}, "not_redactable"},
		{visit, []string{"/data/inside/named"}, "not_redactable"},
		{visit, []string{"/data/inside/streamed"}, "not_redactable"},
		{visit, []string{"/data/inside/scored"}, "not_redactable"},
		{visit, []string{"/data/inside/flagged"}, "not_redactable"},
		{visit, []string{"/data/inside/empty"}, "not_redactable"},
		{visit, []string{"/data/guests/0/person"}, "not_redactable"}, // it names the person of sealed values
		{visit, []string{"/data/guests"}, "not_redactable"},
		{visit, []string{"/data/mood"}, "schema_violated"},
		{visit, []string{"/data/parts"}, "schema_violated"},
		{visit, []string{"/data/ada@example.org"}, "pointer_personal"},
	} {
		s, err := f.service.Request(t.Context(), person("p-1"), f.newRequest(c.eventType, c.pointers...))
		if c.code == "" {
			require.NoError(t, err, "%v", c.pointers)
			require.Equal(t, "previewed", s.State)
			require.Len(t, s.Scope, 64)
			require.Equal(t, c.eventType, s.Preview.EventType)
			continue
		}
		require.Equal(t, "redaction."+c.code, fault.CodeOf(err), "%v: %v", c.pointers, err)
		require.NotContains(t, fmt.Sprintf("%+v", err), "Ada")
	}
}

func TestService(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	n := f.newRequest(moved, "/data/remark")
	for code, change := range map[string]func(*ports.Principal, *redaction.NewRequest){
		"redaction.needs_person":  func(p *ports.Principal, _ *redaction.NewRequest) { p.ActorType = event.System },
		"legal_entity.not_found":  func(_ *ports.Principal, n *redaction.NewRequest) { n.LegalEntity = "USMF" },
		"event.not_found":         func(_ *ports.Principal, n *redaction.NewRequest) { n.EventID[0]++ },
		"redaction.invalid":       func(_ *ports.Principal, n *redaction.NewRequest) { n.Reason = "write to ada@example.org" },
		"idempotency.key_invalid": func(_ *ports.Principal, n *redaction.NewRequest) { n.IdempotencyKey = strings.Repeat("x", 256) },
	} {
		p, changed := person("p-1"), n
		change(&p, &changed)
		_, err := f.service.Request(ctx, p, changed)
		require.Equal(t, code, fault.CodeOf(err))
	}
	hidden := person("p-1")
	hidden.LegalEntities = []string{"USMF"}
	_, err := f.service.Request(ctx, hidden, n)
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))

	n.IdempotencyKey = "k"
	first, err := f.service.Request(ctx, person("p-1"), n)
	require.NoError(t, err)
	require.False(t, first.Replayed)
	again, err := f.service.Request(ctx, person("p-1"), n)
	require.NoError(t, err)
	require.Equal(t, []any{first.ID, true}, []any{again.ID, again.Replayed})
	n.Reason = "another"
	_, err = f.service.Request(ctx, person("p-1"), n)
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))

	_, err = f.service.Get(ctx, hidden, first.ID)
	require.Equal(t, "redaction.not_found", fault.CodeOf(err))
	list, err := f.service.List(ctx, hidden, nil, 0)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = f.service.List(ctx, person("p-1"), []string{"fenced"}, 0)
	require.Equal(t, "redaction.state_invalid", fault.CodeOf(err))

	service := person("p-2")
	service.ActorType = event.Agent
	_, err = f.service.Approve(ctx, service, first.ID, "")
	require.Equal(t, "redaction.needs_person", fault.CodeOf(err))
	_, err = f.service.Approve(ctx, person("p-1"), first.ID, "")
	require.Equal(t, "redaction.same_person", fault.CodeOf(err))
	_, err = f.service.Reject(ctx, person("p-1"), first.ID, "no")
	require.Equal(t, "redaction.same_person", fault.CodeOf(err))
	_, err = f.service.Approve(ctx, person("p-2"), first.ID, strings.Repeat("0", 64))
	require.Equal(t, "redaction.scope_changed", fault.CodeOf(err))
	approved, err := f.service.Approve(ctx, person("p-2"), first.ID, first.Scope)
	require.NoError(t, err)
	require.Equal(t, []string{"approved", "p-2"}, []string{approved.State, approved.ApprovedBy})
	_, err = f.service.Approve(ctx, person("p-3"), first.ID, "")
	require.Equal(t, "redaction.move_refused", fault.CodeOf(err))
	_, err = f.service.Preview(ctx, person("p-1"), first.ID)
	require.Equal(t, "redaction.move_refused", fault.CodeOf(err))
	_, err = f.service.Reject(ctx, person("p-2"), first.ID, "no")
	require.Equal(t, "redaction.move_refused", fault.CodeOf(err))
	_, err = f.service.Certificate(ctx, person("p-2"), first.ID)
	require.Equal(t, "redaction.not_completed", fault.CodeOf(err))
	require.Equal(t, fault.Conflict, fault.KindOf(err))
	withdrawn, err := f.service.Withdraw(ctx, person("p-1"), first.ID, "the wrong event")
	require.NoError(t, err)
	require.Equal(t, []string{"withdrawn", "p-1"}, []string{withdrawn.State, withdrawn.EndedBy})
	testkit.Must(redaction.NewWorker(f.config)).Work(ctx)
	require.Contains(t, string(f.stored(t, moved).Payload), "for Ada")

	rejected, err := f.service.Reject(ctx, person("p-2"), f.request(t, moved, "/data/remark").ID, "it names no person")
	require.NoError(t, err)
	require.Equal(t, "rejected", rejected.State)
}

func TestWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	w := testkit.Must(redaction.NewWorker(f.config))
	s := f.approved(t, visit, "/data/report", "/data/form")
	late := f.approved(t, visit, "/data/parts/0/text")
	same := f.approved(t, visit, "/data/report")
	f.readers.behind = true
	w.Work(ctx)
	require.Equal(t, "announced", f.state(t, s.ID).State, "it waits for the read models, and that is no failure")
	require.Zero(t, f.state(t, s.ID).Attempts)
	e := f.stored(t, visit)
	require.Contains(t, string(e.Payload), `"report":"[REDACTED]","rating":4.50`)
	require.Len(t, e.Redactions, 1)
	require.Equal(t, []event.ID{s.ID}, []event.ID{e.Redactions[0].RequestID})

	// What the others were approved for is not there any more.
	require.Equal(t, []string{"previewed", ""}, []string{f.state(t, late.ID).State, f.state(t, late.ID).ApprovedBy})
	require.NotEqual(t, late.Scope, f.state(t, late.ID).Scope)
	require.Equal(t, []string{"refused", "redaction.repeated"}, []string{f.state(t, same.ID).State, f.state(t, same.ID).EndReason})

	f.clock.Advance(30 * time.Second)
	w.Work(ctx)
	require.Equal(t, "projection.target_behind", f.state(t, s.ID).LastError, "a projection may be halted")

	f.readers.behind = false
	f.clock.Advance(time.Second)
	w.Work(ctx)
	require.Equal(t, "completed", f.state(t, s.ID).State)
	require.Equal(t, []event.StreamID{e.Stream}, f.readers.asked)
	announced := f.announced(t)
	require.Len(t, announced, 1)
	require.Contains(t, string(announced[0].Payload), `"requested_by":"p-1","approved_by":"p-2"`)
	document, err := f.service.Certificate(ctx, person("p-2"), s.ID)
	require.NoError(t, err)
	c, err := redaction.VerifyCertificate(document, notes{})
	require.NoError(t, err)
	require.Equal(t, []any{s.ID, "p-1", "p-2", announced[0].Sequence, []string{"totals"}}, []any{c.RequestID, c.RequestedBy, c.ApprovedBy, c.AnnouncedIn, c.ToRebuild})
	require.Contains(t, c.Summary(), "totals")
	require.NotContains(t, string(document), "for Ada")
	_, err = redaction.VerifyCertificate([]byte(strings.Replace(string(document), `"p-2"`, `"p-4"`, 1)), notes{})
	require.Equal(t, "erasure.certificate_altered", fault.CodeOf(err))

	// A new preview is approved again.
	previewed, err := f.service.Preview(ctx, person("p-1"), late.ID)
	require.NoError(t, err)
	_, err = f.service.Approve(ctx, person("p-2"), late.ID, previewed.Scope)
	require.NoError(t, err)
	w.Work(ctx)
	require.Equal(t, "completed", f.state(t, late.ID).State)
	require.Len(t, f.stored(t, visit).Redactions, 2)

	// An approval is valid for 72 hours.
	old := f.approved(t, moved, "/data/remark")
	f.clock.Advance(shredding.ApprovalValidity)
	w.Work(ctx)
	require.Equal(t, "expired", f.state(t, old.ID).State)
	require.Contains(t, string(f.stored(t, moved).Payload), "for Ada")
}

// redactions is embedded under a name that its method Redactions does not have.
type redactions = ports.Redactions

// faults counts the points before and after each call of a worker that changes something, and
// makes one of them fail or die.
type faults struct {
	redactions
	ports.ExportStore
	announcer erasure.Announcer
	readers   redaction.ReadModels

	points []string
	failAt int // 1-based; 0: never
	kill   bool
}

var errInjected = fault.New(fault.Unavailable, "test.injected", "injected")

func (x *faults) around(name string, f func() error) error {
	for _, point := range []string{"before ", "after "} {
		if point == "after " {
			if err := f(); err != nil {
				return err
			}
		}
		x.points = append(x.points, point+name)
		if len(x.points) == x.failAt {
			if x.kill {
				runtime.Goexit() // nothing after it runs but deferred calls
			}
			return errInjected
		}
	}
	return nil
}

func (x *faults) RedactPayload(ctx context.Context, r ports.RedactionRequest, to ports.RedactedPayload) (out ports.Redaction, err error) {
	err = x.around("redact", func() (err error) { out, err = x.redactions.RedactPayload(ctx, r, to); return err })
	return out, err
}

func (x *faults) MoveRedaction(ctx context.Context, r ports.RedactionRequest) (out ports.RedactionRequest, err error) {
	err = x.around("move to "+string(r.State), func() (err error) { out, err = x.redactions.MoveRedaction(ctx, r); return err })
	return out, err
}

func (x *faults) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	return x.around("certificate", func() error { return x.ExportStore.PutIfAbsent(ctx, name, content) })
}

func (x *faults) Announce(ctx context.Context, a erasure.Announcement) error {
	return x.around("announce", func() error { return x.announcer.Announce(ctx, a) })
}

func (x *faults) RecomputeReaders(ctx context.Context, eventType string, le ports.LegalEntity, entity event.StreamID, passed event.Sequence) (left []string, err error) {
	err = x.around("recompute", func() (err error) {
		left, err = x.readers.RecomputeReaders(ctx, eventType, le, entity, passed)
		return err
	})
	return left, err
}

// runWithFault runs a worker with a fault at a point and another worker that finishes, and
// returns the points that the first one reached.
func runWithFault(t *testing.T, failAt int, kill bool) []string {
	t.Helper()
	f := newFixture(t)
	s := f.approved(t, moved, "/data/remark")
	x := &faults{redactions: f.config.Redactions, ExportStore: f.config.Exports, announcer: f.config.Announcer, readers: f.readers, failAt: failAt, kill: kill}
	config := f.config
	config.Redactions, config.Exports, config.Announcer, config.ReadModels = x, x, x, x
	var running sync.WaitGroup
	running.Go(func() { testkit.Must(redaction.NewWorker(config)).Work(t.Context()) })
	running.Wait()
	point := "no fault"
	if failAt > 0 {
		point = x.points[failAt-1]
		if !kill {
			require.Equal(t, []any{1, "test.injected"}, []any{f.state(t, s.ID).Attempts, f.state(t, s.ID).LastError}, point)
			testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
			require.NotEqual(t, "completed", f.state(t, s.ID).State, "%s: it waits a second before it tries again", point)
		}
	}
	f.clock.Advance(5 * time.Minute)
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	done := f.state(t, s.ID)
	require.Equal(t, []any{"completed", 0}, []any{done.State, done.Attempts}, point)
	e := f.stored(t, moved)
	require.Len(t, e.Redactions, 1, point)
	require.Contains(t, string(e.Payload), `"amount":1.50,"remark":"[REDACTED]"`, point)
	require.Len(t, f.announced(t), 1, point)
	records, err := f.store.Redactions.Redactions(t.Context(), f.entity.Partition)
	require.NoError(t, err)
	require.Len(t, records, 1, point)
	document, err := f.service.Certificate(t.Context(), person("p-2"), s.ID)
	require.NoError(t, err)
	_, err = redaction.VerifyCertificate(document, notes{})
	require.NoError(t, err, point)
	return x.points
}

func TestWorker_CrashAtEveryStep(t *testing.T) {
	t.Parallel()
	points := runWithFault(t, 0, true)
	require.GreaterOrEqual(t, len(points), 14)
	for failAt := 1; failAt <= len(points); failAt++ {
		runWithFault(t, failAt, true)
	}
}

// A fault after the last move leaves a request that has ended, so that nothing tries again.
func TestWorker_FailureAtEveryStep(t *testing.T) {
	t.Parallel()
	points := runWithFault(t, 0, false)
	for failAt := 1; failAt < len(points); failAt++ {
		if strings.HasPrefix(points[failAt-1], "before") {
			runWithFault(t, failAt, false)
		}
	}
}
