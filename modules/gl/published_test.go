package gl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/test/moduletest"
)

func TestPublishedVersions(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(jsonschema.New(), gl.New())
	require.NoError(t, err)
	moduletest.RequirePublished(t, catalog, "gl")
}
