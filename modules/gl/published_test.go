package gl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/test/moduletest"
	"github.com/erpbackbone/backbone/test/typestest"
)

func TestPublishedVersions(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(typestest.Schemas{}, gl.New())
	require.NoError(t, err)
	moduletest.RequirePublished(t, catalog, "gl")
}
