package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

var now = time.Date(2026, 3, 31, 12, 0, 0, 123456789, time.UTC)

// shopModule is a built-in module with one type.
type shopModule struct{ schema string }

func (shopModule) Name() string { return "shop" }

func (s shopModule) Register(r *module.Registrar) error {
	r.Prefixes("shop", "store")
	r.EventType(module.EventType{
		Registration: eventtype.Registration{Type: "shop.order.placed", SchemaVersion: 1, Module: "shop", DataSchema: json.RawMessage(s.schema)},
		Checks:       []module.Check{func(json.RawMessage, map[string]string) error { return errors.New("checked") }},
	})
	return nil
}

const orderSchema = `{"type":"object","properties":{"amount":{"type":"number"}}}`

func node(t *testing.T, store ports.EventTypes, schema string) *registry.Registry {
	t.Helper()
	catalog, err := module.Build(jsonschema.New(), shopModule{schema})
	require.NoError(t, err)
	return registry.New(store, jsonschema.New(), nil, catalog, testkit.NewClock(now))
}

// countingSchemas counts what it compiles.
type countingSchemas struct{ compiled *atomic.Int32 }

func (c countingSchemas) Compile(text json.RawMessage) (ports.Schema, error) {
	c.compiled.Add(1)
	return jsonschema.New().Compile(text)
}

// TestRegisterBuiltIn_Schemas takes the schemas that modules declare from the catalog, also where the
// stored text has other white space. All others are compiled.
func TestRegisterBuiltIn_Schemas(t *testing.T) {
	t.Parallel()
	types, compiled := eventTypes(t, newStore()), &atomic.Int32{}
	schemas := countingSchemas{compiled}
	catalog, err := module.Build(schemas, shopModule{"{ \"type\": \"object\",\n\"properties\": {\"amount\": {\"type\": \"number\", \"minimum\": 10}}}"})
	require.NoError(t, err)
	require.EqualValues(t, 1, compiled.Load())
	r := registry.New(types, schemas, nil, catalog, testkit.NewClock(now))
	require.NoError(t, r.RegisterBuiltIn(t.Context()))
	require.EqualValues(t, 1, compiled.Load())
	placed, err := r.Lookup(t.Context(), acme, "shop.order.placed", 1)
	require.NoError(t, err)
	violations, err := placed.Schema.Validate(json.RawMessage(`{"amount": 9}`))
	require.NoError(t, err)
	require.Len(t, violations, 1)
	for _, other := range []string{orderSchema, `{"type":"object","properties":{"amount":{"type":"number","minimum":1 0}}}`, ``} {
		require.Nil(t, catalog.Schema(json.RawMessage(other)), other)
	}
	_, err = r.Register(t.Context(), lead(1), admin, registry.ProofRequest{})
	require.NoError(t, err)
	require.Greater(t, compiled.Load(), int32(1))
}

func newStore() *memory.Database { return memory.New(memory.Config{Clock: testkit.NewClock(now)}) }

// eventTypes are the registries of a store, as its nodes have them.
func eventTypes(t *testing.T, store *memory.Database) ports.EventTypes {
	t.Helper()
	return typestest.Memory(t, store, testkit.NewClock(now))
}

const acme = "acme"

var admin = event.Actor{Type: event.Human, ID: "p-admin"}

func lead(version uint32) eventtype.Registration {
	return eventtype.Registration{
		TenantID: acme, Type: "crm.lead.won", SchemaVersion: version, Module: "crm", DataSchema: json.RawMessage(`{"type":"object","properties":{"size":{"type":"integer"}}}`),
		Examples: []json.RawMessage{json.RawMessage(`{"size":3}`)},
	}
}

func code(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	return fault.CodeOf(err)
}

func TestRegister_VisibleAtOnce(t *testing.T) {
	t.Parallel()
	r := node(t, eventTypes(t, newStore()), orderSchema)
	_, err := r.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.Equal(t, "event_type.not_found", code(t, err))

	stored, err := r.Register(t.Context(), lead(1), admin, registry.ProofRequest{})
	require.NoError(t, err)
	require.True(t, stored.Active)
	require.Equal(t, admin.ID, stored.RegisteredBy)
	require.Equal(t, now.Truncate(time.Microsecond), stored.RegisteredAt)
	require.Equal(t, eventtype.Standard, stored.RetentionClass)
	require.NotZero(t, stored.Number)

	typ, err := r.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.NoError(t, err)
	require.Equal(t, stored.Number, typ.Number)
	violations, err := typ.Schema.Validate(json.RawMessage(`{"size":"x"}`))
	require.NoError(t, err)
	require.Len(t, violations, 1)
	require.Empty(t, typ.Checks, "checks are code of built-in modules")
}

func TestLookup_Versions(t *testing.T) {
	t.Parallel()
	r := node(t, eventTypes(t, newStore()), orderSchema)
	for _, v := range []uint32{2, 10, 1} {
		_, err := r.Register(t.Context(), lead(v), admin, registry.ProofRequest{})
		require.NoError(t, err)
	}
	newest, err := r.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.NoError(t, err)
	require.EqualValues(t, 10, newest.SchemaVersion)
	old, err := r.Lookup(t.Context(), acme, "crm.lead.won", 2)
	require.NoError(t, err)
	require.Equal(t, newest.Number, old.Number, "all versions share the type's number")
	_, err = r.Lookup(t.Context(), acme, "crm.lead.won", 3)
	require.Equal(t, "event_type.not_found", code(t, err))

	all, err := r.ListVersions(t.Context(), acme, "crm.lead.won")
	require.NoError(t, err)
	require.Equal(t, []uint32{10, 2, 1}, []uint32{all[0].SchemaVersion, all[1].SchemaVersion, all[2].SchemaVersion})
	_, err = r.ListVersions(t.Context(), acme, "crm.lead.lost")
	require.Equal(t, "event_type.not_found", code(t, err))

	_, err = r.Register(t.Context(), eventtype.Registration{TenantID: acme, Type: "a.b", SchemaVersion: 1, Module: "a", DataSchema: json.RawMessage(`{}`)}, admin, registry.ProofRequest{})
	require.NoError(t, err)
	listed, err := r.List(t.Context(), acme)
	require.NoError(t, err)
	require.Len(t, listed, 4)
	require.Equal(t, "a.b", listed[0].Type)
	require.EqualValues(t, 1, listed[1].SchemaVersion)
	require.EqualValues(t, 10, listed[3].SchemaVersion)
}

func TestRegister_Refusals(t *testing.T) {
	t.Parallel()
	store := newStore()
	types := eventTypes(t, store)
	r := node(t, types, orderSchema)
	_, err := r.Register(t.Context(), lead(1), admin, registry.ProofRequest{})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*eventtype.Registration)
		kind   fault.Kind
		code   string
	}{
		"duplicate":          {func(r *eventtype.Registration) { r.SchemaVersion = 1 }, fault.Conflict, "event_type.duplicate"},
		"owned prefix":       {func(r *eventtype.Registration) { r.Type = "shop.order.lost" }, fault.Forbidden, "event_type.owned_by_module"},
		"other owned prefix": {func(r *eventtype.Registration) { r.Type = "store.shelf.filled" }, fault.Forbidden, "event_type.owned_by_module"},
		"findings":           {func(r *eventtype.Registration) { r.Module = "" }, fault.Invalid, "event_type.invalid"},
		"personal data": {func(r *eventtype.Registration) {
			r.PIIFields = []eventtype.PIIField{{Path: "/email", Class: "contact"}}
		}, fault.Invalid, "event_type.invalid"},
		"no JSON":   {func(r *eventtype.Registration) { r.DataSchema = json.RawMessage(`{"type":`) }, fault.Invalid, "event_type.schema_invalid"},
		"no schema": {func(r *eventtype.Registration) { r.DataSchema = json.RawMessage(`{"type":"thing"}`) }, fault.Invalid, "event_type.schema_invalid"},
		"http $ref": {func(r *eventtype.Registration) {
			r.DataSchema = json.RawMessage(`{"$ref":"http://127.0.0.1:9/x.json"}`)
		}, fault.Invalid, "event_type.schema_invalid"},
		"file $ref": {func(r *eventtype.Registration) { r.DataSchema = json.RawMessage(`{"$ref":"file:///etc/passwd"}`) }, fault.Invalid, "event_type.schema_invalid"},
		"nested $ref": {func(r *eventtype.Registration) {
			r.DataSchema = json.RawMessage(`{"properties":{"a":{"$ref":"other.json#/x"}}}`)
		}, fault.Invalid, "event_type.schema_invalid"},
		"example":      {func(r *eventtype.Registration) { r.Examples = append(r.Examples, json.RawMessage(`{"size":1.5}`)) }, fault.Invalid, "event_type.example_invalid"},
		"no document":  {func(r *eventtype.Registration) { r.Examples = []json.RawMessage{json.RawMessage(`{`)} }, fault.Invalid, "event_type.example_invalid"},
		"type by case": {func(r *eventtype.Registration) { r.Type = "Shop.order.lost" }, fault.Invalid, "event_type.invalid"},
	} {
		reg := lead(2)
		c.change(&reg)
		_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
		f, ok := fault.As(err)
		require.True(t, ok, "%s: %v", name, err)
		require.Equal(t, c.code, f.Code, name)
		require.Equal(t, c.kind, f.Kind, name)
	}
	stored, _, err := types.EventTypes(t.Context(), acme)
	require.NoError(t, err)
	require.Len(t, stored, 1, "nothing of it was stored")
}

func TestRegister_ExamplePointers(t *testing.T) {
	t.Parallel()
	r := node(t, eventTypes(t, newStore()), orderSchema)
	reg := lead(1)
	reg.Examples = []json.RawMessage{json.RawMessage(`{"size":1}`), json.RawMessage(`{"size":"much"}`)}
	_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
	f, _ := fault.As(err)
	require.Len(t, f.Violations, 1)
	require.Equal(t, "/examples/1/size", f.Violations[0].Field)
}

func TestRegister_LocalReferences(t *testing.T) {
	t.Parallel()
	r := node(t, eventTypes(t, newStore()), orderSchema)
	reg := lead(1)
	reg.DataSchema = json.RawMessage(`{"definitions":{"size":{"type":"integer"}},"properties":{"size":{"$ref":"#/definitions/size"}}}`)
	_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
	require.NoError(t, err)
}

func TestLookup_MissRefreshes(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	one, two := node(t, types, orderSchema), node(t, types, orderSchema)
	require.NoError(t, two.Refresh(t.Context(), acme))
	_, err := one.Register(t.Context(), lead(1), admin, registry.ProofRequest{})
	require.NoError(t, err)
	typ, err := two.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, typ.SchemaVersion)

	// A version that is named is looked for at once, the newest after a refresh.
	_, err = one.Register(t.Context(), lead(2), admin, registry.ProofRequest{})
	require.NoError(t, err)
	typ, err = two.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, typ.SchemaVersion, "what is known is answered from memory")
	require.NoError(t, two.Refresh(t.Context(), acme))
	typ, err = two.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, typ.SchemaVersion)
	_, err = one.Register(t.Context(), lead(3), admin, registry.ProofRequest{})
	require.NoError(t, err)
	typ, err = two.Lookup(t.Context(), acme, "crm.lead.won", 3)
	require.NoError(t, err)
	require.EqualValues(t, 3, typ.SchemaVersion)
}

func TestLookup_KnownType(t *testing.T) {
	t.Parallel()
	store := &fakeStore{stored: eventTypes(t, newStore())}
	r := node(t, store, orderSchema)
	_, err := r.Register(t.Context(), lead(1), admin, registry.ProofRequest{})
	require.NoError(t, err)
	loads, asked := store.loads.Load(), store.asked.Load()
	for range 100 {
		_, err = r.Lookup(t.Context(), acme, "crm.lead.won", 0)
		require.NoError(t, err)
		unknown, err := r.FindUnregistered(t.Context(), acme, []string{"crm.lead.won"})
		require.NoError(t, err)
		require.Empty(t, unknown)
	}
	require.Equal(t, []int64{loads, asked}, []int64{store.loads.Load(), store.asked.Load()})
	for range 100 {
		_, err = r.Lookup(t.Context(), acme, "crm.lead.lost", 0)
		require.Error(t, err)
		unknown, err := r.FindUnregistered(t.Context(), acme, []string{"crm.lead.won", "crm.lead.lost"})
		require.NoError(t, err)
		require.Equal(t, []string{"crm.lead.lost"}, unknown)
	}
	require.Equal(t, loads, store.loads.Load(), "a miss asks for the generation, it does not load everything again")
}

func TestRefresh_StoreError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{stored: eventTypes(t, newStore())}
		r := node(t, store, orderSchema)
		_, err := r.Register(t.Context(), lead(1), admin, registry.ProofRequest{})
		require.NoError(t, err)
		store.broken.Store(true)
		_, err = r.Lookup(t.Context(), acme, "crm.lead.won", 0)
		require.NoError(t, err)
		_, err = r.Lookup(t.Context(), acme, "crm.lead.lost", 0)
		require.ErrorIs(t, err, errBroken, "unknown is not the same as not found")

		var failures atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx, time.Second, func(error) { failures.Add(1) })
		}()
		<-time.After(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, failures.Load(), "a failed refresh is reported")
		store.broken.Store(false)
		_, err = node(t, store.stored, orderSchema).Register(t.Context(), lead(2), admin, registry.ProofRequest{})
		require.NoError(t, err)
		<-time.After(time.Second)
		synctest.Wait()
		typ, err := r.Lookup(t.Context(), acme, "crm.lead.won", 0)
		require.NoError(t, err)
		require.EqualValues(t, 2, typ.SchemaVersion, "it recovers by itself")
		cancel()
		<-done
	})
}

// stored has another name than its method, so that it can be embedded.
type stored = ports.EventTypes

var errBroken = errors.New("broken")

// fakeStore counts how often the store is read, and fails when the test wants it to.
type fakeStore struct {
	stored
	loads, asked atomic.Int64
	broken       atomic.Bool
}

func (p *fakeStore) EventTypeGenerations(ctx context.Context) (map[string]int64, error) {
	p.asked.Add(1)
	if p.broken.Load() {
		return nil, errBroken
	}
	return p.stored.EventTypeGenerations(ctx)
}

func (p *fakeStore) EventTypes(ctx context.Context, tenantID string) ([]eventtype.Registration, int64, error) {
	p.loads.Add(1)
	return p.stored.EventTypes(ctx, tenantID)
}

func TestRegisterBuiltIn(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	r := node(t, types, orderSchema)
	require.NoError(t, r.RegisterBuiltIn(t.Context()))
	_, generation, err := types.EventTypes(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, r.RegisterBuiltIn(t.Context()))
	// The next start, with the schema written in another order.
	other := node(t, types, `{ "properties": {"amount":{"type":"number"}}, "type":"object" }`)
	require.NoError(t, other.RegisterBuiltIn(t.Context()))
	_, again, err := types.EventTypes(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, generation, again, "a second time changes nothing")

	typ, err := other.Lookup(t.Context(), "", "shop.order.placed", 0)
	require.NoError(t, err)
	require.Equal(t, "module:shop", typ.RegisteredBy)
	require.Len(t, typ.Checks, 1)
	require.EqualError(t, typ.Checks[0](nil, nil), "checked")
}

func TestRegisterBuiltIn_RewrittenVersion(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	require.NoError(t, node(t, types, orderSchema).RegisterBuiltIn(t.Context()))
	for _, schema := range []string{
		`{"type":"object"}`,
		`{"type":"object","properties":{"amount":{"type":"integer"}}}`,
	} {
		err := node(t, types, schema).RegisterBuiltIn(t.Context())
		require.Equal(t, "event_type.version_rewritten", code(t, err))
	}
}

// lateStore hides the stored types from the first look, as if another node registered
// them in between.
type lateStore struct {
	stored
	hidden atomic.Bool
}

func (l *lateStore) EventTypeGenerations(ctx context.Context) (map[string]int64, error) {
	if l.hidden.CompareAndSwap(true, false) {
		return map[string]int64{}, nil // what a fresh registry has
	}
	return l.stored.EventTypeGenerations(ctx)
}

func TestRegisterBuiltIn_Concurrently(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		r := node(t, types, orderSchema)
		wg.Go(func() { errs[i] = r.RegisterBuiltIn(t.Context()) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	// Of two nodes with different programs, the slower one is refused too.
	types = eventTypes(t, newStore())
	require.NoError(t, node(t, types, orderSchema).RegisterBuiltIn(t.Context()))
	behind := &lateStore{stored: types}
	behind.hidden.Store(true)
	err := node(t, behind, `{"type":"object"}`).RegisterBuiltIn(t.Context())
	require.Equal(t, "event_type.version_rewritten", code(t, err))
}

func TestLookup_InactiveType(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	r := node(t, types, orderSchema)
	_, err := r.Register(t.Context(), lead(1), admin, registry.ProofRequest{})
	require.NoError(t, err)
	_, err = types.RegisterEventType(t.Context(), lead(2))
	require.NoError(t, err)
	gone := lead(1)
	gone.Type = "crm.lead.lost"
	_, err = types.RegisterEventType(t.Context(), gone)
	require.NoError(t, err)
	for name, version := range map[string]uint32{"crm.lead.won": 2, "crm.lead.lost": 1} {
		c := eventtype.Change{TenantID: acme, Type: name, SchemaVersion: version, Action: eventtype.ActionDeprecationProposed, Actor: "p-1"}
		_, err = types.ChangeEventType(t.Context(), c)
		require.NoError(t, err)
		c.Action, c.Actor = eventtype.ActionDeprecated, "p-2"
		_, err = types.ChangeEventType(t.Context(), c)
		require.NoError(t, err)
	}

	require.NoError(t, r.Refresh(t.Context(), acme))
	typ, err := r.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, typ.SchemaVersion, "the newest active one")
	_, err = r.Lookup(t.Context(), acme, "crm.lead.won", 2)
	require.Equal(t, "event_type.deprecated", code(t, err))
	_, err = r.Lookup(t.Context(), acme, "crm.lead.lost", 0)
	require.Equal(t, "event_type.deprecated", code(t, err))
	all, err := r.ListVersions(t.Context(), acme, "crm.lead.won")
	require.NoError(t, err)
	require.Len(t, all, 2, "inactive versions can be read, for the events they described")
	require.False(t, all[0].Active)
}

const contactSchema = `{"type":"object","additionalProperties":false,"required":["person"],"properties":{"person":{"type":"string"},"email":{"type":"string"}}}`

func contact() eventtype.Registration {
	return eventtype.Registration{
		TenantID: acme, Type: "crm.contact.made", SchemaVersion: 1, Module: "crm", DataSchema: json.RawMessage(contactSchema), RetentionClass: eventtype.Regulatory,
		PIIFields: []eventtype.PIIField{{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"path":"$.person","type":"person"}`)}},
	}
}

func TestRegister_PersonalData(t *testing.T) {
	t.Parallel()
	store := newStore()
	types := eventTypes(t, store)
	require.NoError(t, store.Directory.Bootstrap(t.Context(), ports.Installation{LogName: typestest.LogName, Deployment: 1}))
	r := node(t, types, orderSchema)
	_, err := r.Register(t.Context(), contact(), admin, registry.ProofRequest{})
	require.NoError(t, err)
	typ, err := r.Lookup(t.Context(), acme, "crm.contact.made", 0)
	require.NoError(t, err)
	require.False(t, typ.Manifest.Empty())
	require.Equal(t, shredding.KeyRegulatory, typ.KeyClass)

	// Another node answers for it too, and a type without personal data has no manifest.
	other := node(t, types, orderSchema)
	le, err := store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: acme, Code: "DEMF", TimeZone: "UTC"})
	require.NoError(t, err)
	other.SetLegalEntities(store.Directory)
	m, err := other.Manifest(t.Context(), shredding.Location{Partition: le.Partition, Kind: shredding.KindEvent, Type: "crm.contact.made", SchemaVersion: 1})
	require.NoError(t, err)
	class, known := m.ClassAt("/data/email", "/data")
	require.True(t, known)
	require.Equal(t, shredding.Contact, class)
	for _, unknown := range []struct {
		kind    shredding.Kind
		name    string
		version uint32
	}{{shredding.KindEvent, "crm.contact.made", 2}, {shredding.KindEvent, "crm.contact.lost", 1}, {shredding.KindIntent, "crm.contact.made", 1}} {
		m, err := other.Manifest(t.Context(), shredding.Location{Partition: le.Partition, Kind: unknown.kind, Type: unknown.name, SchemaVersion: unknown.version})
		require.NoError(t, err)
		require.True(t, m.Empty())
	}
}

func TestRegister_PersonalDataFindings(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	r := node(t, types, orderSchema)
	reg := contact()
	reg.Module, reg.DataSchema = "", json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"person":{"type":"string"},"email":{"type":"string"},"phone":{"type":"string"}}}`)
	_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "event_type.invalid", f.Code)
	got := map[string]string{}
	for _, v := range f.Violations {
		got[v.Field] = v.Code
	}
	require.Equal(t, map[string]string{
		"/module": "event_type.module_missing", "/pii_fields/0/subject/path": "pii.subject_not_required", "/data_schema/properties/phone": "pii.undeclared",
	}, got)
	stored, _, err := types.EventTypes(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, stored)
}

// What a stored version seals is never declared otherwise afterwards.
func TestRegisterBuiltIn_PersonalDataChanged(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","additionalProperties":false,"required":["person"],"properties":{"person":{"type":"string"},"mobile":{"type":"string","x-not-pii":"of the desk"}}}`
	declared := []eventtype.PIIField{{Path: "$.mobile", Class: "contact", Subject: json.RawMessage(`{"path":"$.person","type":"person"}`)}}
	other := []eventtype.PIIField{{Path: "$.mobile", Class: "identity", Subject: json.RawMessage(`{"path":"$.person","type":"person"}`)}}
	spaced := []eventtype.PIIField{{Path: "$.mobile", Class: "contact", Subject: json.RawMessage(`{"type": "person", "path": "$.person"}`)}}
	for name, c := range map[string]struct {
		stored eventtype.Registration
		same   bool
	}{
		"none":      {eventtype.Registration{}, false},
		"class":     {eventtype.Registration{PIIFields: other}, false},
		"retention": {eventtype.Registration{PIIFields: declared, RetentionClass: eventtype.Regulatory}, false},
		"same":      {eventtype.Registration{PIIFields: spaced}, true},
	} {
		types := eventTypes(t, newStore())
		c.stored.Type, c.stored.SchemaVersion, c.stored.Module, c.stored.DataSchema, c.stored.Active = "shop.order.placed", 1, "shop", json.RawMessage(schema), true
		require.NoError(t, c.stored.Validate())
		_, err := types.RegisterEventType(t.Context(), c.stored)
		require.NoError(t, err)
		catalog, err := module.Build(jsonschema.New(), personalModule{schema, declared})
		require.NoError(t, err)
		err = registry.New(types, jsonschema.New(), nil, catalog, testkit.NewClock(now)).RegisterBuiltIn(t.Context())
		if c.same {
			require.NoError(t, err, name)
			continue
		}
		require.Equal(t, "event_type.version_rewritten", code(t, err), name)
	}
}

type personalModule struct {
	schema string
	fields []eventtype.PIIField
}

func (personalModule) Name() string { return "shop" }

func (s personalModule) Register(r *module.Registrar) error {
	r.Prefixes("shop")
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "shop.order.placed", SchemaVersion: 1, Module: "shop", DataSchema: json.RawMessage(s.schema), PIIFields: s.fields,
	}})
	return nil
}
