package append_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	streams "github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// shopModule is a module with one event type for each check of Prepare.
type shopModule struct{}

func (shopModule) Name() string { return "shop" }

func (shopModule) Register(r *module.Registrar) error {
	r.Prefixes("shop")
	r.EventType(module.EventType{
		Registration: eventtype.Registration{
			Type: "shop.order.placed", SchemaVersion: 1, Module: "shop",
			DataSchema: json.RawMessage(`{"type":"object","properties":{"amount":{"type":"number"},"note":{"type":"string","maxLength":2000,"x-not-pii":"wording of the order"},"number":{"type":"string"},"customer":{"type":"string"}}}`),
			BusinessKeys: []eventtype.BusinessKeyRule{
				{Name: "number", Fields: []string{"customer", "number"}, Normalise: eventtype.NormaliseDocumentNumber, Document: "number"},
				{Name: "plain", Fields: []string{"number"}},
			},
		},
		Checks: []module.Check{func(data json.RawMessage, dimensions map[string]string) error {
			var d struct{ Amount float64 }
			if err := json.Unmarshal(data, &d); err != nil {
				return err
			}
			if d.Amount < 0 {
				return fault.New(fault.Invalid, "shop.amount_negative", "an amount is positive; turn the sign").WithField("/data/amount").
					WithViolations(fault.Violation{Field: "/data/amount", Code: "shop.amount_negative"})
			}
			return nil
		}},
	})
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "shop.order.shipped", SchemaVersion: 1, Module: "shop", DataSchema: json.RawMessage(`{"type":"object"}`),
		RequiredDimensions: []string{"cost_center"},
		RequiredEntityRefs: []eventtype.RequiredRef{
			{EntityType: "order", Role: "subject", Cardinality: eventtype.One},
			{EntityType: "item", Role: "content", Cardinality: eventtype.OneOrMore},
		},
	}})
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "shop.customer.greeted", SchemaVersion: 1, Module: "shop", RetentionClass: eventtype.Regulatory,
		DataSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"email":{"type":"string"},"visits":{"type":"number"},
			"contacts":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["person"],"properties":{"person":{"type":"string"},"phone":{"type":"string"}}}}}}`),
		RequiredEntityRefs: []eventtype.RequiredRef{{EntityType: "customer", Role: "subject", Cardinality: eventtype.One}},
		PIIFields: []eventtype.PIIField{
			{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"entity_role":"subject"}`)},
			{Path: "$.contacts[*].phone", Class: "contact", Subject: json.RawMessage(`{"path":"$.contacts[*].person","type":"person"}`)},
		},
	}})
	return nil
}

// appendFixture is a memory store with one legal entity, and a Preparer for the types of
// shopModule.
type appendFixture struct {
	store    *memory.Database
	entity   ports.LegalEntity
	preparer *eventappend.Preparer
	clock    *testkit.Clock
	ids      *system.IDs
}

var limits = eventappend.Limits{BatchEvents: 3, EventBytes: 4096, EntityRefs: 4, Tags: 3}

func newAppendFixture(t testing.TB) *appendFixture {
	t.Helper()
	return newSealingFixture(t, nil)
}

func newSealingFixture(t testing.TB, sealer module.Sealer) *appendFixture {
	t.Helper()
	clock := testkit.NewClock(time.Date(2026, 3, 31, 23, 30, 0, 0, time.UTC))
	b := &appendFixture{clock: clock, ids: system.NewIDs(), store: memory.New(memory.Config{LogName: "shop.example.org", Clock: clock})}
	var err error
	b.entity, err = b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF", TimeZone: "Europe/Berlin"})
	require.NoError(t, err)
	catalog, err := module.Build(jsonschema.New(), shopModule{}, streams.Module{})
	require.NoError(t, err)
	types := registry.New(administration.NewEventTypes(b.store.Registry), jsonschema.New(), nil, catalog, clock)
	require.NoError(t, types.RegisterBuiltIn(t.Context()))
	b.preparer = eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: b.ids, Limits: limits, Sealer: sealer})
	return b
}

var clerk = event.Actor{Type: event.Human, ID: "p-clerk", Name: "clerk"}

func orderPlaced(change func(*event.Draft)) event.Draft {
	d := event.Draft{
		Type: "shop.order.placed", Stream: event.StreamID{Type: "order", ID: "O-1"}, EffectiveDate: event.MustDate("2026-03-31"),
		Data: json.RawMessage(`{"amount":1}`),
	}
	if change != nil {
		change(&d)
	}
	return d
}

func orderShipped(dimensions map[string]string, refs ...event.EntityRef) event.Draft {
	return event.Draft{
		Type: "shop.order.shipped", Stream: event.StreamID{Type: "order", ID: "O-1"}, EffectiveDate: event.MustDate("2026-03-31"),
		Dimensions: dimensions, Entities: refs,
	}
}

func (b *appendFixture) batch(drafts ...event.Draft) module.Batch {
	return module.Batch{
		Drafts: drafts, LegalEntity: b.entity, Actor: clerk, CorrelationID: "c-batch",
		Source: event.Source{System: "backbone", Channel: "api"}, Now: b.clock.Now(),
	}
}

// prepare prepares valid drafts.
func (b *appendFixture) prepare(t *testing.T, drafts ...event.Draft) []event.Prepared {
	t.Helper()
	out, err := b.preparer.Prepare(t.Context(), b.batch(drafts...))
	require.NoError(t, err)
	require.Len(t, out, len(drafts))
	return out
}
