package upcasting_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/upcasting"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

// shopModule is a built-in module whose second version has an amount where the first had
// cents.
type shopModule struct{}

func (shopModule) Name() string { return "shop" }

func (shopModule) Register(r *module.Registrar) error {
	r.Prefixes("shop")
	declare := func(version uint32, schema, example string, u module.Upcast) {
		r.EventType(module.EventType{Upcast: u, Registration: eventtype.Registration{
			Type: "shop.order.placed", SchemaVersion: version, Module: "shop", DataSchema: json.RawMessage(schema), Examples: []json.RawMessage{json.RawMessage(example)},
		}})
	}
	declare(1, `{"type":"object","additionalProperties":false,"required":["euros","cents"],"properties":{"euros":{"type":"integer"},"cents":{"type":"integer"}}}`, `{"euros":12,"cents":10}`, nil)
	declare(2, `{"type":"object","additionalProperties":false,"required":["amount","currency"],"properties":{"amount":{"type":"number"},"currency":{"type":"string","default":"EUR"}}}`, `{"amount":12.10,"currency":"EUR"}`,
		func(data json.RawMessage) (json.RawMessage, error) {
			var d struct{ Euros, Cents int }
			err := json.Unmarshal(data, &d)
			return json.RawMessage(fmt.Sprintf(`{"amount":%d.%02d}`, d.Euros, d.Cents)), err
		})
	return nil
}

// upcastFixture is a store with two legal entities, a registry and everything that lifts.
type upcastFixture struct {
	t        testing.TB
	clock    *testkit.Clock
	catalog  *module.Catalog
	store    *memory.Database
	source   ports.EventTypes
	types    *registry.Registry
	service  *upcasting.Service
	appends  *eventappend.Service
	entities []ports.LegalEntity
}

func setup(t testing.TB) *upcastFixture {
	t.Helper()
	clock := testkit.NewClock(time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC))
	b := &upcastFixture{t: t, clock: clock, store: memory.New(memory.Config{LogName: "shop.example.org", Clock: clock})}
	for _, code := range []string{"DEMF", "USMF"} {
		le, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: acme, Code: code, TimeZone: "Europe/Berlin"})
		require.NoError(t, err)
		b.entities = append(b.entities, le)
	}
	catalog, err := module.Build(jsonschema.New(), shopModule{})
	require.NoError(t, err)
	b.catalog = catalog
	b.source = typestest.Memory(t, b.store, clock)
	b.node()
	require.NoError(t, b.types.RegisterBuiltIn(t.Context()))
	return b
}

// node makes another node over the same store, which the fixture uses from here on.
func (b *upcastFixture) node() {
	b.types = registry.New(b.source, jsonschema.New(), jq.New(), b.catalog, b.clock)
	b.types.SetProver(upcasting.NewProver(b.store.Events, b.store.Directory, query.NewCursorSealer([]byte("key"))))
	b.service = upcasting.New(b.types)
	ids := system.NewIDs()
	preparer := eventappend.NewPreparer(eventappend.PreparerConfig{Types: b.types, IDs: ids, Limits: eventappend.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 8, Tags: 8}, Upcaster: b.service})
	b.appends = eventappend.NewService(eventappend.Config{Preparer: preparer, Appender: b.store.Appender, Events: b.store.Events, Idempotency: b.store.Intents, Clock: b.clock, IDs: ids, KeyTTL: time.Hour})
}

const acme = "acme"

var admin = event.Actor{Type: event.Human, ID: "p-admin"}

const lead = "crm.lead.won"

// version is a version of a type that is registered from outside.
func version(n uint32, schema string, upcasters ...eventtype.Upcaster) eventtype.Registration {
	return eventtype.Registration{TenantID: acme, Type: lead, SchemaVersion: n, Module: "crm", DataSchema: json.RawMessage(schema), Upcasters: upcasters}
}

func from(v uint32, program string) eventtype.Upcaster {
	return eventtype.Upcaster{FromVersion: v, JQ: program}
}

func (b *upcastFixture) register(r eventtype.Registration) {
	b.t.Helper()
	_, err := b.types.Register(b.t.Context(), r, admin, registry.ProofRequest{})
	require.NoError(b.t, err)
	if len(r.Upcasters) > 0 {
		b.confirm(r)
	}
}

// deprecate proposes a deprecation and confirms it as a second person.
func (b *upcastFixture) deprecate(schemaVersion uint32) {
	b.t.Helper()
	_, err := b.types.Deprecate(b.t.Context(), registry.Decision{TenantID: acme, Type: lead, SchemaVersion: schemaVersion, By: admin})
	require.NoError(b.t, err)
	b.confirm(version(schemaVersion, ""))
}

// confirm confirms a proposed version as a second person.
func (b *upcastFixture) confirm(r eventtype.Registration) {
	b.t.Helper()
	_, err := b.types.Confirm(b.t.Context(), registry.Decision{
		TenantID: r.TenantID, Type: r.Type, SchemaVersion: r.SchemaVersion, By: event.Actor{Type: event.Human, ID: "p-second"},
	}, registry.ProofRequest{})
	require.NoError(b.t, err)
}

func (b *upcastFixture) append(entity int, name string, version uint32, data string) error {
	_, _, err := b.appends.Append(b.t.Context(), eventappend.Request{
		LegalEntity: b.entities[entity], Actor: event.Actor{Type: event.Human, ID: "p-1", Name: "clerk"}, PersonID: "p-1",
		Drafts: []event.Draft{{Type: name, SchemaVersion: version, Stream: event.StreamID{Type: "lead", ID: "L-1"}, Data: json.RawMessage(data), EffectiveDate: event.MustDate("2026-03-31")}},
	})
	return err
}

// stored gives all events of a legal entity as they are stored.
func (b *upcastFixture) stored(entity int) []event.Recorded {
	b.t.Helper()
	out, err := b.store.Events.Events(b.t.Context(), ports.EventQuery{Partition: b.entities[entity].Partition, Limit: 1000})
	require.NoError(b.t, err)
	return out
}

func dataOf(t testing.TB, e event.Recorded) string {
	t.Helper()
	body, err := e.Body()
	require.NoError(t, err)
	return string(body.Data)
}

func code(t testing.TB, err error) string {
	t.Helper()
	require.Error(t, err)
	return fault.CodeOf(err)
}
