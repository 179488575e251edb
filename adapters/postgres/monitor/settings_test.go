package monitor_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/postgres/monitor"
)

func TestCheckSettings_FindsLogsWithValues(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	unsound := func() (names []string) {
		settings, err := monitor.CheckSettings(t.Context(), pgtest.As("backbone_app", dsn))
		require.NoError(t, err)
		for _, s := range settings {
			require.NotEmpty(t, s.Wanted, s.Name)
			if !s.Sound {
				names = append(names, s.Name)
			}
		}
		return names
	}
	before := unsound()
	require.NotContains(t, before, "log_parameter_max_length")
	require.NotContains(t, before, "server_encoding")

	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	for _, change := range []string{"log_parameter_max_length = -1", "log_min_error_statement = error", "log_statement = 'all'", "synchronous_commit = off"} {
		pgtest.Execute(t, dsn, "ALTER DATABASE "+pgx.Identifier{config.Database}.Sanitize()+" SET "+change)
	}
	require.Subset(t, unsound(), []string{"log_parameter_max_length", "log_min_error_statement", "log_statement", "synchronous_commit"})
}
