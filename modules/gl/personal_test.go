package gl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/test/typestest"
)

// TestPersonalData_NoneDeclared checks that no type declares personal data, and that members
// that are named like a person's datum have a reason why they are none.
func TestPersonalData_NoneDeclared(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(typestest.Schemas{}, gl.New())
	require.NoError(t, err)
	var none *shredding.Manifest
	for _, e := range catalog.EventTypes {
		require.Empty(t, e.PIIFields, e.Type)
		require.Empty(t, none.Check(shredding.EventType{Schema: e.DataSchema}), "%s version %d", e.Type, e.SchemaVersion)
	}
	for _, i := range catalog.IntentTypes() {
		require.Empty(t, i.PIIFields, i.Type)
		require.Empty(t, none.Check(shredding.EventType{Schema: i.Schema}), i.Type)
	}
}
