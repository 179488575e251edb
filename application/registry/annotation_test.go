package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A database of an earlier version has the schema without the reasons.
func TestRegisterBuiltIn_AddsReason(t *testing.T) {
	t.Parallel()
	const before = `{"type":"object","properties":{"size":{"type":"string"},"lines":{"type":"array","items":{"anyOf":[{"properties":{"size":{"type":"string"}}}]}}},"definitions":{"size":{"type":"string"}}}`
	types := eventTypes(t, newStore())
	require.NoError(t, node(t, types, before).RegisterBuiltIn(t.Context()))
	_, generation, err := types.EventTypes(t.Context(), "")
	require.NoError(t, err)

	next := node(t, types, `{"type":"object","properties":{"size":{"type":"string","x-not-pii":"of a company"},"lines":{"type":"array","x-not-pii":"papers",
		"items":{"anyOf":[{"properties":{"size":{"type":"string","x-not-pii":"of an account"}}}]}}},"definitions":{"size":{"type":"string","x-not-pii":"of an account"}}}`)
	require.NoError(t, next.RegisterBuiltIn(t.Context()))
	typ, err := next.Lookup(t.Context(), "", "shop.order.placed", 1)
	require.NoError(t, err)
	require.JSONEq(t, before, string(typ.DataSchema), "what is stored stays")
	_, again, err := types.EventTypes(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, generation, again)
	require.NoError(t, node(t, types, before).RegisterBuiltIn(t.Context()), "and the way back")
}

// A release may describe a version of a built-in type in other words, with and without further members.
func TestRegisterBuiltIn_Description(t *testing.T) {
	t.Parallel()
	for _, after := range []string{
		`{"type":"object","additionalProperties":false,"title":"Order","properties":{"size":{"type":"string","description":"in metres"}}}`,
		`{"type":"object","additionalProperties":false,"properties":{"size":{"type":"string","description":"in metres"},"weight":{"type":"integer"}}}`,
	} {
		types := eventTypes(t, newStore())
		require.NoError(t, node(t, types, `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"string","description":"of the order"}}}`).RegisterBuiltIn(t.Context()))
		require.NoError(t, node(t, types, after).RegisterBuiltIn(t.Context()))
		require.NoError(t, node(t, types, after).RegisterBuiltIn(t.Context()), "again")
	}
}

func TestRegisterBuiltIn_ChangeWithReason(t *testing.T) {
	t.Parallel()
	for before, after := range map[string]string{
		`{"properties":{"size":{"type":"string"}}}`:                         `{"properties":{"size":{"type":"number","x-not-pii":"of a company"}}}`,
		`{"properties":{"size":{"type":"string"}},"required":["size"]}`:     `{"properties":{"size":{"type":"string","x-not-pii":"of a company"}}}`,
		`{"properties":{"a":{"type":"string"}}}`:                            `{"properties":{"a":{"type":"string"},"x-not-pii":{"type":"string"}}}`,
		`{"properties":{"description":{"type":"string"}}}`:                  `{"properties":{"description":{"type":"number"}}}`,
		`{"definitions":{"x-not-pii":{"type":"string"}}}`:                   `{"definitions":{}}`,
		`{"properties":{"a":{"enum":[{"x-not-pii":"a"}]}}}`:                 `{"properties":{"a":{"enum":[{}]}}}`,
		`{"properties":{"a":{"type":"number","maximum":9007199254740993}}}`: `{"properties":{"a":{"type":"number","maximum":9007199254740992}}}`,
	} {
		types := eventTypes(t, newStore())
		require.NoError(t, node(t, types, before).RegisterBuiltIn(t.Context()))
		err := node(t, types, after).RegisterBuiltIn(t.Context())
		require.Equal(t, "event_type.version_rewritten", code(t, err), after)
	}
}
