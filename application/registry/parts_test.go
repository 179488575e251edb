package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/registry"
)

// Defaults are validated wherever the member that became required is declared.
func TestRegister_DefaultsInList(t *testing.T) {
	t.Parallel()
	for fallback, valid := range map[string]bool{`3`: true, `1`: false} {
		r := node(t, eventTypes(t, newStore()), orderSchema)
		schema := func(required string) string {
			return `{"type":"object","additionalProperties":false,"properties":{"size":{"$ref":"#/definitions/sizes/allOf/0"}},"required":[` + required + `],
				"definitions":{"sizes":{"allOf":[{"type":"integer","minimum":2,"default":` + fallback + `}]}}}`
		}
		_, err := r.Register(t.Context(), leadWith(1, schema("")), admin, registry.ProofRequest{})
		require.NoError(t, err)
		_, err = r.Register(t.Context(), leadWith(2, schema(`"size"`)), admin, registry.ProofRequest{})
		if valid {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, "event_type.incompatible", code(t, err))
	}
}

// A member $ref of a plain value is no reference and stays as it is when the schema is moved to
// validate a default.
func TestRegister_RefInPlainValue(t *testing.T) {
	t.Parallel()
	for name, keyword := range map[string]string{
		"enum": `"enum":[{"$ref":"#/x"}]`, "const": `"const":{"$ref":"#/x"}`,
		"default and examples": `"type":"object","properties":{"$ref":{"type":"string","const":"#/x","default":"#/x"}},"examples":[{"$ref":"#/x"}]`,
	} {
		r := node(t, eventTypes(t, newStore()), orderSchema)
		schema := func(required string) string {
			return `{"type":"object","additionalProperties":false,"properties":{"size":{` + keyword + `,"default":{"$ref":"#/x"}}},"required":[` + required + `]}`
		}
		_, err := r.Register(t.Context(), leadWith(1, schema("")), admin, registry.ProofRequest{})
		require.NoError(t, err, name)
		_, err = r.Register(t.Context(), leadWith(2, schema(`"size"`)), admin, registry.ProofRequest{})
		require.NoError(t, err, name)
	}
}

// Below a keyword that is none, x-not-pii is a plain value.
func TestRegisterBuiltIn_ReasonBelowUnknownKeyword(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	require.NoError(t, node(t, types, `{"type":"object","x-unit":{"x-not-pii":"a"}}`).RegisterBuiltIn(t.Context()))
	err := node(t, types, `{"type":"object","x-unit":{"x-not-pii":"b"}}`).RegisterBuiltIn(t.Context())
	require.Equal(t, "event_type.version_rewritten", code(t, err))
}
