package projections_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/test/testkit"
)

// succession is a projection of which a version is begun by one and ended by another.
type succession struct {
	store   *postgres.Database
	holder  *pgx.Conn // of a transaction that plays the other node's
	watcher *pgx.Conn
}

const noted = "acme/notes"

func newSuccession(t *testing.T) *succession {
	t.Helper()
	dsn := pgtest.Database(t)
	s := &succession{store: pgtest.Open(t, dsn), holder: pgtest.Connect(t, dsn), watcher: pgtest.Connect(t, dsn)}
	require.NoError(t, s.add(1, projection.Active))
	return s
}

func (s *succession) add(version int, role projection.Role) error {
	_, err := s.store.ProjectionVersions.AddProjection(context.Background(), projection.Projection{
		Name: noted, Version: version, Role: role, Status: projection.Running, Definition: []byte(`{"tenant_id":"acme"}`),
	})
	return err
}

// during does something while another transaction has run a statement, until that one
// makes it wait; then the other one commits.
func (s *succession) during(t *testing.T, statement string, do func() error) error {
	t.Helper()
	tx, err := s.holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), statement)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- do() }()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		waiting := 0
		require.NoError(t, s.watcher.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
		return waiting == 1
	})
	require.NoError(t, tx.Commit(t.Context()))
	return <-done
}

func (s *succession) roles(t *testing.T) map[int]projection.Role {
	t.Helper()
	all, err := s.store.ProjectionVersions.ListProjections(t.Context())
	require.NoError(t, err)
	out := map[int]projection.Role{}
	for _, p := range all {
		out[p.Version] = p.Role
	}
	return out
}

// TestEndProjection_RefusesNewVersion makes the second transaction wait for the first.
func TestEndProjection_RefusesNewVersion(t *testing.T) {
	t.Parallel()
	s := newSuccession(t)
	err := s.during(t, `UPDATE backbone.projections SET role = 'dropping' WHERE name = 'acme/notes' AND version = 1`, func() error { return s.add(2, projection.Building) })
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	require.Equal(t, map[int]projection.Role{1: projection.Dropping}, s.roles(t))
}

// TestEndProjection_EndsConcurrentVersion: the transaction that ends the projection has listed its
// versions before there was the second one.
func TestEndProjection_EndsConcurrentVersion(t *testing.T) {
	t.Parallel()
	s := newSuccession(t)
	require.NoError(t, s.during(t, `
		WITH active AS (SELECT * FROM backbone.projections WHERE name = 'acme/notes' AND role = 'active' FOR SHARE)
		INSERT INTO backbone.projections (name, version, code, role, status, settings, definition, revision, created_at, changed_at, changed_by)
		SELECT name, 2, 2, 'building', status, settings, definition, 1, created_at, changed_at, 'ada' FROM active`,
		func() error { return s.store.ProjectionRows.EndProjection(context.Background(), noted, "bob") }))
	require.Equal(t, map[int]projection.Role{1: projection.Dropping, 2: projection.Dropping}, s.roles(t))
}

// TestAddProjection_ConcurrentChanges: the second one waits for the first and finds it begun.
func TestAddProjection_ConcurrentChanges(t *testing.T) {
	t.Parallel()
	s := newSuccession(t)
	err := s.during(t, `INSERT INTO backbone.projections (name, version, code, role, status, settings, definition, revision, created_at, changed_at, changed_by)
		SELECT name, 3, 3, 'building', status, settings, definition, 1, created_at, changed_at, 'ada' FROM backbone.projections WHERE name = 'acme/notes'`,
		func() error { return s.add(2, projection.Building) })
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	require.Equal(t, map[int]projection.Role{1: projection.Active, 3: projection.Building}, s.roles(t))
}
