package e2e

import (
	"encoding/json"
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
	running, server := startServe(t, app, env...)
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
		var given []byte
		require.NoError(t, connection.QueryRow(t.Context(), `SELECT p.payload->'data', (SELECT count(*) FROM backbone.events WHERE type = 'backbone.principal.enrolled' AND stream_id LIKE 's-machines%')
			FROM backbone.events e JOIN backbone.event_payloads p USING (partition_id, sequence)
			WHERE e.type IN ('backbone.principal.enrolled', 'backbone.principal.granted') AND e.stream_id LIKE 's-machines%' ORDER BY e.sequence DESC LIMIT 1`).Scan(&given, &logins))
		var now struct {
			Roles         []string
			LegalEntities []string `json:"legal_entities"`
			Kind          string
		}
		require.NoError(t, json.Unmarshal(given, &now))
		return now.Roles, now.LegalEntities, now.Kind, logins
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
	refused(enroll("--person", "s-machines", "--renew", "--valid-for", "8761h"), "principal.lifetime_invalid")
	lost = enroll("--person", "s-machines", "--renew", "--valid-for", "1s")
	require.Zero(t, lost.code, lost)
	testkit.Eventually(t, endTime, func() bool { return status(lost.stdout) == 401 })
	refused(enroll("--person", "s-machines", "--role", "auditor"), "principal.kind_differs")
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
	require.Zero(t, enroll("--person", "p-0001", "--renew", "--valid-for", "1s").code)
	testkit.Eventually(t, endTime, func() bool {
		return command(t, env, "bootstrap", "--tenant", "acme", "--admin", "p-0001", "--log-name", "ledger.example.org").code == 0
	}, "bootstrap lets an administrator in again")

	visitor := enroll("--person", "p-visitor", "--role", "auditor", "--valid-for", "720h")
	require.Zero(t, visitor.code, visitor)
	require.Contains(t, visitor.stderr, "720h")
	require.Equal(t, 200, status(visitor.stdout))
	ended := command(t, env, "revoke", "--tenant", "acme", "--person", "p-visitor", "--reason", "The audit is over")
	require.Zero(t, ended.code, ended)
	testkit.Eventually(t, endTime, func() bool { return status(visitor.stdout) == 401 })
	refused(command(t, env, "revoke", "--tenant", "acme", "--person", "p-visitor", "--reason", "Again"), "principal.not_found")

	// A row of the table of earlier releases gives no access.
	_, err = connection.Exec(t.Context(), `INSERT INTO backbone.principals (tenant_id, principal_id, person_id, actor_type, display_name, role_label, roles, legal_entities, token_hash, development, created_at)
		VALUES ('acme', 'p-9-1', 'p-9', 'human', '', 'admin', '{admin}', '{}', sha256('bbk_01jq8e6z6g3v5t8c9n2m4k7r1p_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'), false, now())`)
	require.NoError(t, err)
	require.Equal(t, 401, status("bbk_01jq8e6z6g3v5t8c9n2m4k7r1p_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))

	// Nor does an edited event: no caller of the tenant is let in until it is as it was.
	require.Equal(t, 200, status(everywhere.stdout))
	edit := func(from, to string) {
		t.Helper()
		done, err := connection.Exec(t.Context(), `UPDATE backbone.event_payloads p SET payload = replace(p.payload::text, $1, $2)::json
			FROM backbone.events e WHERE e.partition_id = p.partition_id AND e.sequence = p.sequence AND e.type = 'backbone.principal.granted' AND p.payload::text LIKE '%' || $1 || '%'`, from, to)
		require.NoError(t, err)
		require.NotZero(t, done.RowsAffected())
	}
	_, err = connection.Exec(t.Context(), "ALTER TABLE backbone.event_payloads DISABLE TRIGGER ALL")
	require.NoError(t, err)
	edit(`"auditor"`, `"admin"`)
	_, err = running.interrupt()
	require.NoError(t, err)
	restarted, another := startServe(t, app, env...)
	a, err := another.as(strings.TrimSpace(everywhere.stdout)).do("GET", "/api/subscriptions", "")
	require.NoError(t, err)
	require.Equal(t, 401, a.status, string(a.body))
	require.Contains(t, restarted.stderr.String(), "administration.log_broken")
	edit(`"admin"`, `"auditor"`)
	testkit.Eventually(t, endTime, func() bool {
		a, err := another.as(strings.TrimSpace(everywhere.stdout)).do("GET", "/api/subscriptions", "")
		return err == nil && a.status == 200
	})
}
