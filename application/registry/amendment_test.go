package registry_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// A closed schema that gets an optional member accepts all that it accepted, so one person or
// service amends the version at once, and every node takes it up.
func TestRegister_Amendment(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	r, other := node(t, types, orderSchema), node(t, types, orderSchema)
	_, err := r.Register(t.Context(), leadWith(1, sized), admin, registry.ProofRequest{})
	require.NoError(t, err)
	accepts := func(node *registry.Registry) bool {
		typ, err := node.Lookup(t.Context(), acme, "crm.lead.won", 1)
		require.NoError(t, err)
		violations, err := typ.Schema.Validate(json.RawMessage(`{"colour":"red"}`))
		require.NoError(t, err)
		return len(violations) == 0
	}
	require.False(t, accepts(r))
	require.False(t, accepts(other))

	importer := event.Actor{Type: event.System, ID: "s-importer"}
	got, err := r.Register(t.Context(), leadWith(1, sizedMore), importer, registry.ProofRequest{})
	require.NoError(t, err)
	require.True(t, got.Amends)
	require.True(t, got.Active)
	require.Equal(t, admin.ID, got.RegisteredBy, "who registered the version")
	require.True(t, accepts(r))
	require.False(t, accepts(other), "until its next refresh")
	require.NoError(t, other.RefreshAll(t.Context()))
	require.True(t, accepts(other))
	require.Len(t, got.Schemas, 2)
	require.JSONEq(t, sized, string(got.Schemas[0].DataSchema))
	require.Equal(t, admin.ID, got.Schemas[0].By)
	require.JSONEq(t, sizedMore, string(got.Schemas[1].DataSchema))
	require.Equal(t, importer.ID, got.Schemas[1].By)

	_, err = r.Register(t.Context(), leadWith(1, sizedMore), admin, registry.ProofRequest{})
	require.Equal(t, "event_type.duplicate", code(t, err))
	_, err = r.Register(t.Context(), leadWith(1, sized), admin, registry.ProofRequest{})
	require.Equal(t, "event_type.duplicate", code(t, err), "no amendment is taken back")
	f, _ := fault.As(err)
	require.Equal(t, "/data_schema/properties/colour", f.Violations[0].Field)
	require.Equal(t, "event_type.removed", f.Violations[0].Code)
	history, err := r.History(t.Context(), acme, "crm.lead.won")
	require.NoError(t, err)
	require.Len(t, history, 2)
	require.Equal(t, eventtype.ActionAmended, history[1].Action)
	require.NotEqual(t, history[0].Digest, history[1].Digest)
	all, err := r.List(t.Context(), globex)
	require.NoError(t, err)
	require.Empty(t, all)
}

// restoredTypes are the registries of a store that was put in the place of another.
type restoredTypes struct{ typesPort }

type typesPort = ports.EventTypes // embedded by a name that no method has

// A store that lost an amendment and got another one has as many, and its schema is not the one that was
// compiled before.
func TestRefresh_LostAmendment(t *testing.T) {
	t.Parallel()
	const weighed = `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"weight":{"type":"integer"}}}`
	amended := func(schema string) (ports.EventTypes, *registry.Registry) {
		types := eventTypes(t, newStore())
		r := node(t, types, orderSchema)
		for _, schema := range []string{sized, schema} {
			_, err := r.Register(t.Context(), leadWith(1, schema), admin, registry.ProofRequest{})
			require.NoError(t, err)
		}
		return types, r
	}
	lost, _ := amended(sizedMore)
	types := &restoredTypes{lost}
	r := node(t, types, orderSchema)
	require.NoError(t, r.RefreshAll(t.Context()))
	restored, other := amended(weighed)
	_, err := other.Register(t.Context(), contact(), admin, registry.ProofRequest{}) // a further generation
	require.NoError(t, err)
	require.NoError(t, r.Refresh(t.Context(), acme))
	types.typesPort = restored
	require.NoError(t, r.Refresh(t.Context(), acme))
	typ, err := r.Lookup(t.Context(), acme, "crm.lead.won", 1)
	require.NoError(t, err)
	for data, accepted := range map[string]bool{`{"weight":1}`: true, `{"colour":"red"}`: false} {
		violations, err := typ.Schema.Validate(json.RawMessage(data))
		require.NoError(t, err)
		require.Equal(t, accepted, len(violations) == 0, data)
	}
}

// A member that is declared personal is sealed by every node that accepts it.
func TestRegister_PersonalAmendment(t *testing.T) {
	t.Parallel()
	r := node(t, eventTypes(t, newStore()), orderSchema)
	reg := contact()
	reg.PIIFields, reg.DataSchema = nil, json.RawMessage(`{"type":"object","additionalProperties":false,"required":["person"],"properties":{"person":{"type":"string","x-not-pii":"an id"}}}`)
	_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
	require.NoError(t, err)
	reg.DataSchema = json.RawMessage(contactSchema)
	_, err = r.Register(t.Context(), reg, admin, registry.ProofRequest{})
	require.Equal(t, "event_type.invalid", code(t, err), "not declared")
	reg.PIIFields = contact().PIIFields
	_, err = r.Register(t.Context(), reg, admin, registry.ProofRequest{})
	require.NoError(t, err)
	typ, err := r.Lookup(t.Context(), acme, reg.Type, 1)
	require.NoError(t, err)
	class, isSealed := typ.Manifest.ClassAt("/data/email", "/data")
	require.True(t, isSealed)
	require.Equal(t, "contact", string(class))
}

// Of two amendments at the same time the second is compared with what the first has made.
func TestRegister_AmendmentRace(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	_, err := node(t, types, orderSchema).Register(t.Context(), leadWith(1, sized), admin, registry.ProofRequest{})
	require.NoError(t, err)
	const other = `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"weight":{"type":"number"}}}`
	var codes sync.Map
	var both sync.WaitGroup
	for _, schema := range []string{sizedMore, other} {
		both.Go(func() {
			_, err := node(t, types, orderSchema).Register(t.Context(), leadWith(1, schema), admin, registry.ProofRequest{})
			codes.Store(fault.CodeOf(err), schema)
		})
	}
	both.Wait()
	won, _ := codes.Load("")
	_, lost := codes.Load("event_type.duplicate")
	require.NotNil(t, won)
	require.True(t, lost)
	stored, _, err := types.EventTypes(t.Context(), acme)
	require.NoError(t, err)
	require.Len(t, stored, 1)
	require.JSONEq(t, won.(string), string(stored[0].DataSchema))
}

func TestRegister_AmendmentRefused(t *testing.T) {
	t.Parallel()
	r := proposing(t, eventTypes(t, newStore()))
	register := func(reg eventtype.Registration) string {
		_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
		return fault.CodeOf(err)
	}
	require.Empty(t, register(leadWith(1, sized)))
	require.Empty(t, register(upcasting(leadWith(2, sizedMore), ".")))
	require.Equal(t, "event_type.duplicate", register(leadWith(2, sizedMore)), "what is only proposed is confirmed or rejected")
	_, err := r.Reject(t.Context(), decision(second, 2))
	require.NoError(t, err)
	require.Equal(t, "event_type.duplicate", register(leadWith(2, sizedMore)))

	require.Empty(t, register(leadWith(3, `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"colour":{"type":"integer"}}}`)))
	require.Equal(t, "event_type.incompatible", register(leadWith(1, sizedMore)), "its events are read in version 3")
	_, err = r.Deprecate(t.Context(), decision(admin, 1))
	require.NoError(t, err)
	more := leadWith(1, `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"weight":{"type":"number"}}}`)
	require.Equal(t, "event_type.proposal_open", register(more))
	_, err = r.Confirm(t.Context(), decision(second, 1), registry.ProofRequest{})
	require.NoError(t, err)
	require.Equal(t, "event_type.deprecated", register(more))
}

// A release may give a version of a built-in type optional members, where objects are closed.
func TestRegisterBuiltIn_Amendment(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	older := node(t, types, sized)
	require.NoError(t, older.RegisterBuiltIn(t.Context()))
	var all sync.WaitGroup
	for range 3 { // nodes of the next release
		all.Go(func() { require.NoError(t, node(t, types, sizedMore).RegisterBuiltIn(t.Context())) })
	}
	all.Wait()
	require.NoError(t, older.RefreshAll(t.Context()))
	versions, err := older.ListVersions(t.Context(), acme, "shop.order.placed")
	require.NoError(t, err)
	require.Len(t, versions, 1)
	require.JSONEq(t, sizedMore, string(versions[0].DataSchema))
	require.Len(t, versions[0].Schemas, 2)
	history, err := older.History(t.Context(), acme, "shop.order.placed")
	require.NoError(t, err)
	require.Len(t, history, 2)
	require.Equal(t, eventtype.ActionAmended, history[1].Action)
	for name, schema := range map[string]string{
		"the release before":   sized,
		"another type":         unsized,
		"required":             sizedOwed,
		"another member":       `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"weight":{"type":"integer"}}}`,
		"opened":               `{"type":"object","properties":{"size":{"type":"integer"},"colour":{"type":"string"}}}`,
		"narrowed and widened": `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer","minimum":1},"colour":{"type":"string"},"weight":{"type":"integer"}}}`,
	} {
		require.Equal(t, "event_type.version_rewritten", code(t, node(t, types, schema).RegisterBuiltIn(t.Context())), name)
	}
	require.NoError(t, node(t, types, sizedMore).RegisterBuiltIn(t.Context()))
	open := eventTypes(t, newStore())
	require.NoError(t, node(t, open, `{"type":"object","properties":{"size":{"type":"integer"}}}`).RegisterBuiltIn(t.Context()))
	require.Equal(t, "event_type.version_rewritten", code(t, node(t, open, `{"type":"object","properties":{"size":{"type":"integer"},"colour":{"type":"integer"}}}`).RegisterBuiltIn(t.Context())),
		"stored events may contradict it")
}
