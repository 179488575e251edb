package e2e

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestDrillAccessRenewal lets access expire, and replaces a lost token.
func TestDrillAccessRenewal(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	owner := testkit.Database(t, nil, "e2e_empty")
	app := asApplication(t, owner)
	env := append(newKeySettings(t), "BACKBONE_DATABASE_DSN="+app, "BACKBONE_DATABASE_ERASER_DSN="+asEraser(t, owner))
	require.Zero(t, command(t, nil, "migrate", "--dsn", owner).code)
	require.Zero(t, command(t, env, "bootstrap", "--tenant", "acme", "--admin", "p-0001", "--log-name", "ledger.example.org").code)
	enroll := func(more ...string) result {
		return command(t, env, append([]string{"enroll", "--tenant", "acme"}, more...)...)
	}
	first := enroll(append([]string{"--person", "s-machines", "--role", "module", "--legal-entity", "FRMF", "--service"}, serviceFlags("p-0001")...)...)
	require.Zero(t, first.code, first)
	_, server := startServe(t, app, env...)
	status := func(token string) int {
		a, err := server.as(strings.TrimSpace(token)).do("GET", "/api/subscriptions", "")
		require.NoError(t, err)
		return a.status
	}
	require.Equal(t, 200, status(first.stdout))

	refused := func(r result, code string) {
		t.Helper()
		require.NotZero(t, r.code)
		require.Contains(t, r.stderr, code)
		require.Empty(t, r.stdout)
	}
	refused(enroll("--person", "s-machines", "--role", "module", "--service"), "principal.duplicate")
	refused(enroll("--person", "unknown", "--renew"), "principal.not_found")
	refused(enroll("--person", "p-new"), "principal.role_missing")
	refused(enroll("--person", "s-new", "--service", "--role", "module", "--module", "hr"), "principal.responsible_missing")
	refused(enroll("--person", "s-new", "--service", "--role", "module", "--responsible", "p-0001"), "principal.module_missing")
	refused(enroll("--person", "p-new", "--role", "module"), "principal.role_of_service")
	refused(enroll("--person", "s-machines", "--renew", "--legal-entity", "DEMF"), "principal.role_missing")
	refused(enroll("--person", "s-machines", "--renew", "--all-legal-entities"), "principal.role_missing")
	refused(enroll("--person", "p-0001", "--renew", "--service"), "principal.kind_differs")
	refused(enroll("--person", "s-machines", "--renew", "--role", "module", "--legal-entity", "DEMF", "--all-legal-entities"), "all-legal-entities")

	lost := enroll("--person", "s-machines", "--renew")
	require.Zero(t, lost.code, lost)
	require.Contains(t, lost.stderr, "again")
	testkit.Eventually(t, endTime, func() bool { return status(first.stdout) == 401 }, "the token before is good no longer")
	require.Equal(t, 200, status(lost.stdout))

	connection, err := pgx.Connect(t.Context(), owner)
	require.NoError(t, err)
	defer func() { _ = connection.Close(t.Context()) }()
	rights := func() (roles, entities []string, kind string, logins int) {
		require.NoError(t, connection.QueryRow(t.Context(),
			`SELECT roles, legal_entities, actor_type, count(*) OVER () FROM backbone.principals WHERE person_id = 's-machines'`).Scan(&roles, &entities, &kind, &logins))
		return roles, entities, kind, logins
	}
	roles, entities, kind, logins := rights()
	require.Equal(t, []string{"module"}, roles, "they stay")
	require.Equal(t, []string{"FRMF"}, entities)
	require.Equal(t, "system", kind)
	require.Equal(t, 1, logins)

	wider := enroll("--person", "s-machines", "--renew", "--role", "module", "--role", "importer")
	require.Zero(t, wider.code, wider)
	roles, entities, kind, _ = rights()
	require.Equal(t, []string{"module", "importer"}, roles)
	require.Equal(t, []string{"FRMF"}, entities, "a renewal without roles adds no rights")
	require.Equal(t, "system", kind, "a renewal without --service keeps it")
	named := enroll("--person", "s-machines", "--renew", "--service", "--role", "module", "--legal-entity", "DEMF")
	require.Zero(t, named.code, named)
	_, entities, _, _ = rights()
	require.Equal(t, []string{"DEMF"}, entities)
	lost = named

	_, err = connection.Exec(t.Context(), `UPDATE backbone.principals SET expires_at = now() - interval '1 hour' WHERE person_id IN ('s-machines', 'p-0001')`)
	require.NoError(t, err)
	testkit.Eventually(t, endTime, func() bool { return status(lost.stdout) == 401 })
	refused(enroll("--person", "s-machines", "--role", "auditor"), "principal.kind_differs")
	refused(enroll("--person", "s-machines", "--role", "auditor", "--service"), "principal.responsible_unknown")
	require.Zero(t, command(t, env, "bootstrap", "--tenant", "acme", "--admin", "p-0001", "--log-name", "ledger.example.org").code, "bootstrap lets an administrator in again")
	again := enroll("--person", "s-machines", "--role", "auditor", "--service")
	require.Zero(t, again.code, again)
	require.Equal(t, 200, status(again.stdout))
	require.Equal(t, 401, status(lost.stdout))
	roles, entities, _, logins = rights()
	require.Equal(t, []string{"auditor"}, roles, "as they are given now")
	require.Equal(t, []string{"DEMF"}, entities, "as they were")
	require.Equal(t, 1, logins)
	everywhere := enroll("--person", "s-machines", "--renew", "--role", "auditor", "--all-legal-entities")
	require.Zero(t, everywhere.code, everywhere)
	_, entities, _, _ = rights()
	require.Empty(t, entities)
}
