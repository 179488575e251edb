package registry_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
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
