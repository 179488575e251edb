package ap_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/test/moduletest"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

// TestUpgradeOfRegisteredTypes starts on a database from before personal data could be sealed,
// which has the first versions without the reasons of x-not-pii. Start-up keeps them and
// registers the new versions.
func TestUpgradeOfRegisteredTypes(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	store := memory.New(memory.Config{Clock: b.clock, LogName: "test"})
	before := map[string]json.RawMessage{}
	for _, e := range catalog.EventTypes {
		if e.SchemaVersion > 1 || len(e.PIIFields) > 0 || e.Type == "ap.vendor.contact_removed" || intent.IsAbout(e.Type) {
			continue
		}
		old := e.Registration
		old.DataSchema = moduletest.WithoutReasons(t, old.DataSchema)
		old.Active, before[old.Type] = true, old.DataSchema
		_, err := store.Registry.RegisterEventType(t.Context(), old)
		require.NoError(t, err)
	}
	require.Greater(t, len(before), 50)
	for range 2 { // the first start, and the next one
		types := registry.New(administration.NewEventTypes(store.Registry), typestest.Schemas{}, nil, catalog, testkit.NewClock(b.clock.Now()))
		require.NoError(t, types.RegisterBuiltIn(t.Context()))
		for name, schema := range before {
			first, err := types.Lookup(t.Context(), "", name, 1)
			require.NoError(t, err)
			require.JSONEq(t, string(schema), string(first.DataSchema), name)
			require.True(t, first.Manifest.Empty())
		}
		newest, err := types.Lookup(t.Context(), "", "ap.vendor.registered", 0)
		require.NoError(t, err)
		require.EqualValues(t, 2, newest.SchemaVersion)
		require.False(t, newest.Manifest.Empty())
		stored, _, err := store.Registry.SharedEventTypes(t.Context())
		require.NoError(t, err)
		require.Equal(t, len(catalog.EventTypes), len(stored))
	}
}
