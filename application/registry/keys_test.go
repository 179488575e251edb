package registry_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// quoteWith is a version whose business key is over the member number.
func quoteWith(version uint32, schema string) eventtype.Registration {
	return eventtype.Registration{
		TenantID: acme, Type: "crm.quote.sent", SchemaVersion: version, Module: "crm", DataSchema: json.RawMessage(schema),
		BusinessKeys: []eventtype.BusinessKeyRule{{Name: "quote", Fields: []string{"number"}, Document: "id"}},
	}
}

// A key that no event would claim lets duplicates pass, so it is refused: a misspelt member, and
// one that a new version renames.
func TestRegister_BusinessKeyFields(t *testing.T) {
	t.Parallel()
	const (
		known    = `{"type":"object","properties":{"number":{"type":"string"},"id":{"type":"string"}}}`
		misspelt = `{"type":"object","properties":{"numbr":{"type":"string"},"id":{"type":"string"}}}`
		renamed  = `{"type":"object","properties":{"quote_number":{"type":"string"},"id":{"type":"string"}}}`
	)
	r := proposing(t, eventTypes(t, newStore()))
	refused := func(reg eventtype.Registration, field string) {
		t.Helper()
		_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, "event_type.business_key_unknown_field", f.Violations[0].Code)
		require.Equal(t, field, f.Violations[0].Field)
		found, err := r.Check(t.Context(), reg, registry.ProofRequest{})
		require.NoError(t, err)
		require.Equal(t, registry.VerdictRefused, found.Verdict)
	}
	refused(quoteWith(1, misspelt), "/business_keys/0/fields/0")
	refused(quoteWith(1, `{"type":"object","properties":{"number":{"type":"string"}}}`), "/business_keys/0/document")
	_, err := r.Register(t.Context(), quoteWith(1, known), admin, registry.ProofRequest{})
	require.NoError(t, err)
	next := upcasting(quoteWith(2, renamed), `{quote_number: .number, id}`)
	refused(next, "/business_keys/0/fields/0")
	next.BusinessKeys[0].Fields = []string{"quote_number"}
	_, err = r.Register(t.Context(), next, admin, registry.ProofRequest{})
	require.Equal(t, "event_type.incompatible", code(t, err), "held keys would not be found again")
}

// An upcaster converts what is read and claims nothing, so it excuses no field that cannot be claimed.
func TestRegister_BusinessKeyClaimed(t *testing.T) {
	t.Parallel()
	const (
		known  = `{"type":"object","required":["number"],"properties":{"number":{"type":"string"},"id":{"type":"string"}}}`
		object = `{"type":"object","required":["number"],"properties":{"number":{"type":"object"},"id":{"type":"string"}}}`
		kept   = `{"type":"object","required":["quote_number"],"properties":{"quote_number":{"type":"string"},"number":{"type":"string"},"id":{"type":"string"}}}`
	)
	r := proposing(t, eventTypes(t, newStore()))
	refused := func(reg eventtype.Registration, want, field, code string) {
		t.Helper()
		_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, want, f.Code)
		require.Equal(t, field+" "+code, f.Violations[0].Field+" "+f.Violations[0].Code)
		found, err := r.Check(t.Context(), reg, registry.ProofRequest{})
		require.NoError(t, err)
		require.Equal(t, registry.VerdictRefused, found.Verdict)
		require.Contains(t, found.Findings, f.Violations[0])
	}
	refused(quoteWith(1, object), "event_type.invalid", "/business_keys/0/fields/0", "event_type.business_key_field_type")
	_, err := r.Register(t.Context(), quoteWith(1, known), admin, registry.ProofRequest{})
	require.NoError(t, err)
	refused(upcasting(quoteWith(2, object), `.number = {value: .number}`), "event_type.invalid", "/business_keys/0/fields/0", "event_type.business_key_field_type")
	refused(upcasting(quoteWith(2, kept), `{quote_number: .number, id}`), "event_type.incompatible", "/business_keys/0/fields/0", "event_type.business_key_changed")
}

// A version that an earlier release stored is not judged again: not when it is registered with the
// same content, not when it gets a member, and not at the start of a node. The next version is.
func TestRegister_BusinessKeyStored(t *testing.T) {
	t.Parallel()
	const (
		anything = `{"type":"object","additionalProperties":false,"properties":{"number":{},"id":{"type":"string"}}}`
		amended  = `{"type":"object","additionalProperties":false,"properties":{"number":{},"id":{"type":"string"},"pages":{"type":"integer"}}}`
		typed    = `{"type":"object","additionalProperties":false,"properties":{"number":{"type":"string"},"id":{"type":"string"}}}`
	)
	types := eventTypes(t, newStore())
	storeEarlier(t, types, quoteWith(1, anything))

	r := proposing(t, types)
	again := quoteWith(1, anything)
	found, err := r.Check(t.Context(), again, registry.ProofRequest{})
	require.NoError(t, err)
	require.Equal(t, registry.VerdictUnchanged, found.Verdict)
	_, err = r.Register(t.Context(), again, admin, registry.ProofRequest{})
	require.Equal(t, "event_type.duplicate", code(t, err))
	_, err = r.Register(t.Context(), quoteWith(1, amended), admin, registry.ProofRequest{})
	require.NoError(t, err)

	_, err = r.Register(t.Context(), quoteWith(2, amended), admin, registry.ProofRequest{})
	require.Equal(t, "event_type.invalid", code(t, err))
	_, err = r.Register(t.Context(), upcasting(quoteWith(2, typed), `{number, id}`), admin, registry.ProofRequest{})
	require.NoError(t, err, "an upcaster is proven on what events hold")
}

// Two versions that an earlier release stored are not judged when the first gets a member: the
// second one let events lack what the first required.
func TestRegister_BusinessKeyStoredTwice(t *testing.T) {
	t.Parallel()
	const (
		required = `{"type":"object","required":["number"],"properties":{"number":{"type":"string"},"id":{"type":"string"}}}`
		optional = `{"type":"object","properties":{"number":{"type":"string"},"id":{"type":"string"}}}`
		amended  = `{"type":"object","required":["number"],"properties":{"number":{"type":"string"},"id":{"type":"string"},"pages":{"type":"integer"}}}`
	)
	types := eventTypes(t, newStore())
	storeEarlier(t, types, quoteWith(1, required), quoteWith(2, optional))
	r := proposing(t, types)
	_, err := r.Register(t.Context(), quoteWith(1, amended), admin, registry.ProofRequest{})
	require.NoError(t, err)
	_, err = r.Register(t.Context(), quoteWith(3, optional), admin, registry.ProofRequest{})
	require.NoError(t, err)
}

// storeEarlier stores versions as a release without the checks of today did.
func storeEarlier(t *testing.T, types ports.EventTypes, versions ...eventtype.Registration) {
	t.Helper()
	for _, v := range versions {
		require.NoError(t, v.Validate())
		v.Active, v.RegisteredAt, v.RegisteredBy, v.By = true, now, admin.ID, admin
		_, err := types.RegisterEventType(t.Context(), v)
		require.NoError(t, err)
	}
}

func TestRegister_ReservedNames(t *testing.T) {
	t.Parallel()
	r := node(t, eventTypes(t, newStore()), orderSchema)
	for _, name := range []string{"backbone.tenant.closed", "registry.type.registered", "intent.rejected", "pii.erasure.done", "stream.deleted"} {
		reg := lead(1)
		reg.Type = name
		_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
		require.Equal(t, "event_type.name_reserved", code(t, err), name)
	}
}
