package registry_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

const globex = "globex"

// of is a registration of another tenant.
func of(tenantID string, r eventtype.Registration) eventtype.Registration {
	r.TenantID = tenantID
	return r
}

// proposing is a node that compiles upcasters.
func proposing(t *testing.T, store ports.EventTypes) *registry.Registry {
	t.Helper()
	catalog, err := module.Build(jsonschema.New(), shopModule{orderSchema})
	require.NoError(t, err)
	return registry.New(store, jsonschema.New(), jq.New(), catalog, testkit.NewClock(now))
}

func upcasting(r eventtype.Registration, program string) eventtype.Registration {
	r.Upcasters = []eventtype.Upcaster{{FromVersion: r.SchemaVersion - 1, JQ: program}}
	return r
}

// One tenant's administrator changes nothing of what another tenant reads or may append.
func TestRegistry_Tenants(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	r, other := proposing(t, types), proposing(t, types)
	require.NoError(t, r.RegisterBuiltIn(t.Context()))
	wide := lead(1)
	wide.DataSchema, wide.Examples = json.RawMessage(`{"type":"object","properties":{"ref":{"type":"string"}}}`), nil
	for _, reg := range []eventtype.Registration{lead(1), of(globex, wide)} {
		_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
		require.NoError(t, err)
	}
	reading := r.ReadingID(globex)
	_, err := r.Register(t.Context(), upcasting(lead(2), `.size += 1`), admin, registry.ProofRequest{})
	require.NoError(t, err)
	_, err = r.Confirm(t.Context(), decision(second, 2), registry.ProofRequest{})
	require.NoError(t, err)
	agree(t, r, r.Deprecate, 0, "")

	for name, node := range map[string]*registry.Registry{"the same node": r, "another node": other} {
		require.NoError(t, node.RefreshAll(t.Context()))
		require.NotEmpty(t, node.Steps(acme, "crm.lead.won", 1), name)
		require.Empty(t, node.Steps(globex, "crm.lead.won", 1), name)
		require.Empty(t, node.Steps("initech", "crm.lead.won", 1), name)
		require.Equal(t, reading, node.ReadingID(globex), "its snapshots stay usable")
		require.NotEqual(t, reading, node.ReadingID(acme))
		typ, err := node.Lookup(t.Context(), globex, "crm.lead.won", 0)
		require.NoError(t, err, "it takes events")
		require.JSONEq(t, string(wide.DataSchema), string(typ.DataSchema))
		_, err = node.Lookup(t.Context(), acme, "crm.lead.won", 0)
		require.Equal(t, "event_type.deprecated", code(t, err))
		_, err = node.Lookup(t.Context(), "initech", "crm.lead.won", 0)
		require.Equal(t, "event_type.not_found", code(t, err))
		shared, err := node.Lookup(t.Context(), globex, "shop.order.placed", 0)
		require.NoError(t, err)
		require.Len(t, shared.Checks, 1)
	}
	for tenant, want := range map[string]int{acme: 3, globex: 2, "initech": 1} {
		all, err := r.List(t.Context(), tenant)
		require.NoError(t, err)
		require.Len(t, all, want, tenant)
		unknown, err := r.FindUnregistered(t.Context(), tenant, []string{"crm.lead.won", "shop.order.placed"})
		require.NoError(t, err)
		require.Equal(t, tenant == "initech", len(unknown) == 1)
	}
	history, err := r.History(t.Context(), globex, "crm.lead.won")
	require.NoError(t, err)
	require.Len(t, history, 1)
	changes, err := r.Changes(t.Context(), globex)
	require.NoError(t, err)
	require.Len(t, changes, 2, "the built-in type's and its own")
	_, err = r.History(t.Context(), "initech", "crm.lead.won")
	require.Equal(t, "event_type.not_found", code(t, err))
}

// A schema of one tenant that this release cannot compile holds up that tenant only.
func TestRefreshAll_OneTenantBroken(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	broken := lead(1)
	broken.DataSchema = json.RawMessage(`{"type":"thing"}`)
	for _, reg := range []eventtype.Registration{broken, of(globex, lead(1))} {
		_, err := types.RegisterEventType(t.Context(), reg)
		require.NoError(t, err)
	}
	r := node(t, types, orderSchema)
	require.NoError(t, r.RegisterBuiltIn(t.Context()), "a node starts")
	require.Error(t, r.RefreshAll(t.Context()))
	_, err := r.Lookup(t.Context(), globex, "crm.lead.won", 1)
	require.NoError(t, err)
	_, err = r.Lookup(t.Context(), acme, "crm.lead.won", 1)
	require.Error(t, err)
}

// The owners of types are those of the tenant and of the built-in modules, and cost no question.
func TestOwners(t *testing.T) {
	t.Parallel()
	store := &fakeStore{stored: eventTypes(t, newStore())}
	r := node(t, store, orderSchema)
	require.Empty(t, r.Owners(acme))
	_, err := r.Register(t.Context(), of(acme, lead(1)), admin, registry.ProofRequest{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"crm.lead.won": "crm"}, r.Owners(acme))
	require.NoError(t, r.RegisterBuiltIn(t.Context()))
	asked := store.asked.Load()
	require.Equal(t, map[string]string{"crm.lead.won": "crm", "shop.order.placed": "shop"}, r.Owners(acme))
	require.Equal(t, map[string]string{"shop.order.placed": "shop"}, r.Owners(globex))
	require.Equal(t, asked, store.asked.Load())
}

// Types of built-in modules are read-only for every tenant, also on a node without the module.
func TestRegistry_BuiltInReadOnly(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	require.NoError(t, node(t, types, orderSchema).RegisterBuiltIn(t.Context()))
	without, err := module.Build(jsonschema.New())
	require.NoError(t, err)
	for name, r := range map[string]*registry.Registry{
		"with the module": proposing(t, types), "without it": registry.New(types, jsonschema.New(), jq.New(), without, testkit.NewClock(now)),
	} {
		next := lead(2)
		next.Type = "shop.order.placed"
		for _, tenant := range []string{acme, ""} {
			for _, reg := range []eventtype.Registration{of(tenant, next), of(tenant, upcasting(next, "."))} {
				_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
				require.Equal(t, "event_type.owned_by_module", code(t, err), name)
			}
			d := registry.Decision{TenantID: tenant, Type: next.Type, By: admin}
			for _, change := range []func(context.Context, registry.Decision) ([]eventtype.Registration, error){r.Deprecate, r.Reactivate, r.Reject} {
				_, err := change(t.Context(), d)
				require.Equal(t, "event_type.owned_by_module", code(t, err), name)
			}
			_, err := r.Confirm(t.Context(), d, registry.ProofRequest{})
			require.Equal(t, "event_type.owned_by_module", code(t, err), name)
		}
	}
}

// Personal data of a type are those that its own tenant declares.
func TestManifest_Tenants(t *testing.T) {
	t.Parallel()
	store := newStore()
	types := eventTypes(t, store)
	require.NoError(t, store.Directory.Bootstrap(t.Context(), ports.Installation{LogName: typestest.LogName, Deployment: 1}))
	r := node(t, types, orderSchema)
	r.SetLegalEntities(store.Directory)
	plain := lead(1)
	plain.Type = contact().Type
	for _, reg := range []eventtype.Registration{contact(), of(globex, plain)} {
		_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
		require.NoError(t, err)
	}
	for tenant, personal := range map[string]bool{acme: true, globex: false, "initech": false} {
		le, err := store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenant, Code: "DEMF", TimeZone: "UTC"})
		require.NoError(t, err)
		m, err := r.Manifest(t.Context(), shredding.Location{Partition: le.Partition, Kind: shredding.KindEvent, Type: contact().Type, SchemaVersion: 1})
		require.NoError(t, err)
		require.Equal(t, personal, !m.Empty(), tenant)
	}
}

// What changes how others read, or what they may append, takes two persons.
func TestConfirm(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	r := proposing(t, types)
	_, err := r.Register(t.Context(), lead(1), admin, registry.ProofRequest{})
	require.NoError(t, err)
	service := event.Actor{Type: event.System, ID: "s-deployer"}
	next := upcasting(lead(2), `.size += 1`)
	_, err = r.Register(t.Context(), next, service, registry.ProofRequest{})
	require.Equal(t, "event_type.person_required", code(t, err))

	stored, err := r.Register(t.Context(), next, admin, registry.ProofRequest{})
	require.NoError(t, err)
	require.True(t, stored.Withheld)
	require.Empty(t, r.Steps(acme, next.Type, 1), "nothing is read otherwise")
	_, err = r.Lookup(t.Context(), acme, next.Type, 2)
	require.Equal(t, "event_type.not_found", code(t, err), "nor written")
	found, err := r.Check(t.Context(), next, registry.ProofRequest{})
	require.NoError(t, err)
	require.Equal(t, registry.VerdictUnchanged, found.Verdict)

	for want, by := range map[string]event.Actor{"event_type.same_person": admin, "event_type.person_required": service} {
		_, err = r.Confirm(t.Context(), decision(by, 2), registry.ProofRequest{})
		require.Equal(t, want, code(t, err))
	}
	_, err = r.Confirm(t.Context(), registry.Decision{TenantID: globex, Type: next.Type, SchemaVersion: 2, By: second}, registry.ProofRequest{})
	require.Equal(t, "event_type.not_found", code(t, err), "of another tenant")
	_, err = r.Confirm(t.Context(), decision(second, 2), registry.ProofRequest{})
	require.NoError(t, err)
	require.NotEmpty(t, r.Steps(acme, next.Type, 1))
	_, err = r.Confirm(t.Context(), decision(second, 2), registry.ProofRequest{})
	require.Equal(t, "event_type.not_proposed", code(t, err))

	_, err = r.Register(t.Context(), upcasting(lead(3), `.size += 2`), admin, registry.ProofRequest{})
	require.NoError(t, err)
	all, err := r.Reject(t.Context(), decision(admin, 3))
	require.NoError(t, err)
	require.True(t, all[0].Withheld)
	_, err = r.Register(t.Context(), upcasting(lead(3), `.size += 3`), admin, registry.ProofRequest{})
	require.Equal(t, "event_type.duplicate", code(t, err), "the number is not used again")

	_, err = r.Deprecate(t.Context(), decision(service, 1))
	require.Equal(t, "event_type.person_required", code(t, err))
	all, err = r.Deprecate(t.Context(), decision(admin, 1))
	require.NoError(t, err)
	require.True(t, all[2].Active)
	_, err = r.Lookup(t.Context(), acme, next.Type, 1)
	require.NoError(t, err, "it takes events until a second person agrees")
	_, err = r.Reactivate(t.Context(), decision(second, 1))
	require.NoError(t, err, "it is active, so nothing is proposed")
	_, err = r.Confirm(t.Context(), decision(admin, 1), registry.ProofRequest{})
	require.Equal(t, "event_type.same_person", code(t, err))
	all, err = r.Confirm(t.Context(), decision(second, 0), registry.ProofRequest{})
	require.NoError(t, err)
	require.False(t, all[2].Active)

	history, err := r.History(t.Context(), acme, next.Type)
	require.NoError(t, err)
	actors := make([]string, len(history))
	for i, c := range history {
		actors[i] = string(c.Action) + " " + c.Actor
	}
	require.Equal(t, []string{
		"registry.type.registered p-admin", "registry.type.proposed p-admin", "registry.type.registered p-second",
		"registry.type.proposed p-admin", "registry.type.rejected p-admin",
		"registry.type.deprecation_proposed p-admin", "registry.type.deprecated p-second",
	}, actors)
}
