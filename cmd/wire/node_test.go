package wire

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/test/testkit"
)

func as(t *testing.T, role, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return u.String()
}

// TestNodeID opens two nodes without a configured name: operators see by it what
// one of them works, so all its work has the same, and no other node has it too.
func TestNodeID(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t, nil, "empty")
	require.NoError(t, Migrate(t.Context(), dsn, nil, modules.BuiltIn()...))
	config := configs.Default()
	config.Database.DSN = configs.DSN(as(t, "backbone_app", dsn))
	names := map[string]bool{}
	for range 2 {
		a, err := Open(t.Context(), config, Options{Modules: modules.BuiltIn(), LogName: "node.example.org"})
		require.NoError(t, err)
		defer a.Close()
		require.NotEmpty(t, a.config.Node.ID)
		require.Equal(t, a.config.Node.ID, nodeID(a.config))
		names[a.config.Node.ID] = true
	}
	require.Len(t, names, 2)
	config.Node.ID = "books-1"
	a, err := Open(t.Context(), config, Options{Modules: modules.BuiltIn()})
	require.NoError(t, err)
	defer a.Close()
	require.Equal(t, "books-1", a.config.Node.ID)
}
