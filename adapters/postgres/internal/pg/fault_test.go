package pg_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestOpen_Faults checks the fault that an operator gets who left out a step of the set-up or
// mistyped the address.
func TestOpen_Faults(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t, nil, "empty")
	ask := func(dsn string) *fault.Error {
		store, err := postgres.Open(t.Context(), pgtest.Config(dsn))
		if err == nil {
			defer store.Close()
			_, err = store.Directory.Installation(t.Context())
		}
		f, ok := fault.As(err)
		require.True(t, ok, err)
		require.Equal(t, fault.Unavailable, f.Kind)
		return f
	}
	f := ask(dsn)
	require.Equal(t, "store.not_migrated", f.Code)
	require.Contains(t, f.Detail, "backbone migrate")

	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Path = "/no_such_database"
	f = ask(u.String())
	require.Equal(t, "store.unavailable", f.Code)
	require.Contains(t, f.Detail, "database name")
}
