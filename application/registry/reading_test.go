package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/registry"
)

// How events are read changes with a type's further versions, not with new types, and not
// when a version takes no more events.
func TestReadingID(t *testing.T) {
	t.Parallel()
	r := node(t, eventTypes(t, newStore()), orderSchema)
	require.NoError(t, r.RegisterBuiltIn(t.Context()))
	register := func(name string, version uint32) string {
		reg := lead(version)
		reg.Type = name
		_, err := r.Register(t.Context(), reg, admin, registry.ProofRequest{})
		require.NoError(t, err)
		return r.ReadingID(acme)
	}
	none := r.ReadingID(acme)
	require.NotEmpty(t, none)
	require.Equal(t, none, register("crm.lead.won", 1))
	second := register("crm.lead.won", 2)
	require.NotEqual(t, none, second)
	require.Equal(t, second, register("crm.lead.lost", 1))
	agree(t, r, r.Deprecate, 2, "")
	require.Equal(t, second, r.ReadingID(acme))
	require.NotEqual(t, second, register("crm.lead.won", 3))
}
