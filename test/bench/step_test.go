//go:build bench

package bench

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/configs/demo"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
)

// pipelineFixture is everything between HTTP and PostgreSQL, on the memory store: what
// one intent costs in Go alone.
type pipelineFixture struct {
	intake   *pipeline.Service
	preparer *eventappend.Preparer
	entity   ports.LegalEntity
}

func newPipeline(b *testing.B) *pipelineFixture {
	b.Helper()
	schemas, clock, ids, config := jsonschema.New(), system.Clock{}, system.NewIDs(), configs.Default()
	limits := config.Limits
	var declared []module.Module
	for _, m := range modules.BuiltIn() {
		declared = append(declared, m.Module)
	}
	catalog, err := module.Build(schemas, append(declared, pipeline.Module{})...)
	require.NoError(b, err)
	policies, err := opa.New(catalog.Policies)
	require.NoError(b, err)
	store := memory.New(memory.Config{Clock: clock, LogName: logName})
	types := registry.New(administration.NewEventTypes(store.Registry), schemas, nil, catalog, clock)
	require.NoError(b, types.RegisterBuiltIn(b.Context()))
	p := &pipelineFixture{}
	p.preparer = eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: ids, Limits: eventappend.Limits{
		BatchEvents: limits.BatchEvents, EventBytes: limits.EventBytes, EntityRefs: limits.EntityRefs, Tags: limits.Tags,
	}})
	p.intake, err = pipeline.New(pipeline.Config{
		Catalog: catalog, Policies: policies, Preparer: p.preparer, Appender: store.Appender, Events: store.Events, Intents: store.Intents,
		Idempotency: store.Intents, Clock: clock, IDs: ids,
		Limits: pipeline.Limits{KeyTTL: config.Idempotency.TTL, CachedStreams: config.Intake.CachedStreams, SnapshotEvery: config.Query.SnapshotEvery},
	})
	require.NoError(b, err)
	e := demo.Entities[0]
	p.entity, err = store.Directory.CreateLegalEntity(b.Context(), ports.LegalEntity{TenantID: demo.Tenant, Code: e.Code, Name: e.Name, TimeZone: e.TimeZone, Status: "active"})
	require.NoError(b, err)
	var stages []demo.Stage
	for _, m := range modules.BuiltIn() {
		books, err := m.Demo.Books(e)
		require.NoError(b, err)
		stages = append(stages, books...)
	}
	for _, stage := range stages {
		if stage.Title == "exchange rates" {
			continue // the invoices are in the currency of the books
		}
		for _, lane := range stage.Lanes {
			for _, step := range lane {
				p.submit(b, step.As, step.Type, step.Payload, false)
			}
		}
	}
	for n := range int64(vendors) {
		p.submit(b, "vendor_admin", "ap.register_vendor", json.RawMessage(`{"vendor_id":"`+vendorID(n)+`","name":"Contoso Supply Ltd","country":"US"}`), false)
	}
	return p
}

func (p *pipelineFixture) submit(b *testing.B, role, intentType string, payload json.RawMessage, dryRun bool) {
	_, err := p.intake.Submit(b.Context(), pipeline.Caller{
		Principal: ports.Principal{TenantID: p.entity.TenantID, PersonID: "p-" + role, PrincipalID: "u-" + role, ActorType: event.Human, Roles: []string{role}},
		Actor:     event.Actor{Type: event.Human, ID: "u-" + role, Name: role},
	}, pipeline.Request{Type: intentType, LegalEntity: p.entity, Payload: payload, Source: event.Source{System: "backbone", Channel: "api"}, DryRun: dryRun})
	require.NoError(b, err, intentType)
}

func document(n int64) json.RawMessage { return append(appendDocument(nil, n), '}') }

// BenchmarkPlanInvoice is validation, planning on known state, policies and
// preparing of ap.submit_invoice; nothing is written.
func BenchmarkPlanInvoice(b *testing.B) {
	p := newPipeline(b)
	b.ReportAllocs()
	for n := int64(1); b.Loop(); n++ {
		p.submit(b, "ap_clerk", "ap.submit_invoice", document(n), true)
	}
}

// BenchmarkPrepareInvoice makes one draft ready for the store: schema, checks,
// encoding, keys, payload hash.
func BenchmarkPrepareInvoice(b *testing.B) {
	p, ids := newPipeline(b), system.NewIDs()
	now := time.Now()
	b.ReportAllocs()
	for n := int64(1); b.Loop(); n++ {
		invoice := ids.NewID(now).String()
		data := append(appendDocument(nil, n), `,"invoice_id":"`+invoice+`"}`...)
		_, err := p.preparer.Prepare(b.Context(), module.Batch{
			LegalEntity: p.entity, Actor: event.Actor{Type: event.Human, ID: "u-1", Name: "ap_clerk"}, CorrelationID: invoice, Now: now,
			Drafts: []event.Draft{{
				Type: invoiceType, EffectiveDate: event.MustDate("2025-03-15"), Stream: event.StreamID{Type: "ap.invoice", ID: invoice},
				Data: json.RawMessage(data), Dimensions: map[string]string{"department": "PROD", "cost_center": "CC-5100"},
				Entities: []event.EntityRef{{Type: "vendor", ID: vendorID(n), Role: "subject"}, {Type: "invoice", ID: invoice, Role: "document"}},
				Tags:     []string{"period:2025-03", "fy:2025"},
			}},
		})
		require.NoError(b, err)
	}
}

// BenchmarkChainChecksum is what the appender computes per event under the lock.
func BenchmarkChainChecksum(b *testing.B) {
	e := newInvoices(1).prepare(ports.LegalEntity{Partition: 1, TenantID: "demo", Code: "USMF"}, 1, time.Now())
	var sum event.Hash
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		sum, buffer = e.ChainChecksum(sum, buffer)
	}
	b.SetBytes(int64(len(buffer)))
}

// BenchmarkHashPayload is the hash of a payload of about 1 KB.
func BenchmarkHashPayload(b *testing.B) {
	e := newInvoices(1).prepare(ports.LegalEntity{Partition: 1, TenantID: "demo", Code: "USMF"}, 1, time.Now())
	b.SetBytes(int64(len(e.Payload)))
	b.ReportAllocs()
	for b.Loop() {
		event.HashPayload(e.Salt, e.Payload)
	}
}

// BenchmarkCheckDocument is the scan of a request's JSON for depth, duplicate keys
// and numbers.
func BenchmarkCheckDocument(b *testing.B) {
	body := submission(1)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, jsondoc.Check(body, jsondoc.DefaultLimits()))
	}
}
