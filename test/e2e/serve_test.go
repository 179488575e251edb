package e2e

import (
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

var servingLine = regexp.MustCompile(`"msg":"serving","address":"(127\.0\.0\.1:\d+)"`)

// asApplication is the same database with the rights of the application's role.
func asApplication(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("role", "backbone_app")
	u.RawQuery = q.Encode()
	return u.String()
}

// asEraser is the same database with the rights of the eraser's role.
func asEraser(t *testing.T, dsn string) string {
	t.Helper()
	return strings.Replace(asApplication(t, dsn), "backbone_app", "backbone_eraser", 1)
}

// newKeySettings configures a key server inside the process and a folder for exports.
func newKeySettings(t *testing.T) []string {
	t.Helper()
	return []string{
		"BACKBONE_KMS_LOCAL_DIRECTORY=" + filepath.Join(t.TempDir(), "kms"), "BACKBONE_KMS_ALLOW_LOCAL=true",
		"BACKBONE_ERASURE_EXPORT_DIRECTORY=" + filepath.Join(t.TempDir(), "exports"),
	}
}

// startServe starts `backbone serve` on a free port.
func startServe(t *testing.T, dsn string, env ...string) (*process, client) {
	t.Helper()
	p, err := launch(program(t), "", append([]string{"BACKBONE_DATABASE_DSN=" + dsn, "BACKBONE_HTTP_LISTEN=127.0.0.1:0"}, env...), "serve")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.end()) })
	found, err := p.awaitOutput(p.stderr, servingLine, endTime)
	require.NoError(t, err)
	return p, client{server: "http://" + found[1], http: &http.Client{Transport: transport}}
}

// as is the same server for another caller.
func (c client) as(token string) client {
	c.token = strings.TrimSpace(token)
	return c
}

// TestServe sets up a server on an empty database and lets a caller use it.
func TestServe(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	owner := testkit.Database(t, nil, "e2e_empty")
	app := asApplication(t, owner)
	env := append(newKeySettings(t), "BACKBONE_DATABASE_DSN="+app, "BACKBONE_DATABASE_ERASER_DSN="+asEraser(t, owner), "BACKBONE_HTTP_LISTEN=127.0.0.1:0")
	bootstrap := func(args ...string) result {
		return command(t, env, append([]string{"bootstrap", "--tenant", "acme", "--admin", "p-0001", "--log-name"}, args...)...)
	}
	refused := func(r result, want string) {
		t.Helper()
		require.Equal(t, 1, r.code, r)
		require.Contains(t, r.stderr, want)
		require.Empty(t, r.stdout)
	}

	// In the wrong order each step names the missing one. Before the first migration
	// on a cluster its roles are missing too, so this is asked as the owner.
	refused(command(t, nil, "serve"), "BACKBONE_DATABASE_DSN")
	without := []string{"BACKBONE_DATABASE_DSN=" + owner}
	refused(command(t, without, "serve"), "config.kms_missing")
	refused(command(t, append(without, "BACKBONE_KMS_LOCAL_DIRECTORY="+t.TempDir()), "serve"), "config.kms_local")
	refused(command(t, append(without, "BACKBONE_KMS_REGION=eu-central-1"), "serve"), "config.exports_missing")
	refused(command(t, append(without, env[:3]...), "serve"), "config.eraser_missing")
	refused(command(t, append(env[:3:3], "BACKBONE_DATABASE_DSN="+owner, "BACKBONE_DATABASE_ERASER_DSN="+owner), "serve"), "backbone migrate")
	refused(command(t, nil, "migrate"), "--dsn")
	migrated := command(t, nil, "migrate", "--dsn", owner)
	require.Zero(t, migrated.code, migrated)
	require.Contains(t, migrated.stdout, "00001_directory.sql")
	migrated = command(t, []string{"BACKBONE_DATABASE_OWNER_DSN=" + owner}, "migrate")
	require.Zero(t, migrated.code, migrated)
	require.NotContains(t, migrated.stdout, ".sql", "there is nothing left to do")
	refused(command(t, env, "serve"), "backbone bootstrap")

	made := bootstrap("ledger.example.org")
	require.Zero(t, made.code, made)
	token := made.stdout
	require.Regexp(t, `^bbk_\S+\n$`, token, "standard output is the token alone")
	require.Contains(t, made.stderr, "shown once")
	again := bootstrap("ledger.example.org")
	refused(again, "principal.duplicate")
	refused(bootstrap("another.example.org"), "log")

	p, anonymous := startServe(t, app, env...)
	admin := anonymous.as(token)
	for _, path := range []string{"/livez", "/readyz"} {
		require.NoError(t, anonymous.want(200, nil, "GET", path, ""), path)
	}
	document, err := anonymous.do("GET", "/api/openapi.yaml", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, document.status)
	for _, part := range []string{"openapi: 3.0", "/api/ap/open-items", "/api/gl/accounts/{account}/ledger", "ap.submit_invoice"} {
		require.Contains(t, string(document.body), part)
	}

	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"Manufacturing France","time_zone":"Europe/Paris"}`))
	twice, err := admin.do("POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"Again","time_zone":"Europe/Paris"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, twice.status, twice)
	var entities struct {
		LegalEntities []struct {
			Code string `json:"code"`
		} `json:"legal_entities"`
	}
	require.NoError(t, admin.want(200, &entities, "GET", "/api/admin/legal-entities", ""))
	require.Len(t, entities.LegalEntities, 1)

	// A further caller, and an event by it.
	enrolled := command(t, env, append([]string{"enroll", "--tenant", "acme", "--person", "s-machines", "--role", "module", "--service"}, serviceFlags("p-0001")...)...)
	require.Zero(t, enrolled.code, enrolled)
	registerMachines(t, &dev{devFile: devFile{HTTP: anonymous.server, Tokens: map[string]string{"admin": strings.TrimSpace(token)}}})
	require.NoError(t, anonymous.as(enrolled.stdout).want(201, nil, "POST", "/api/events", batch(machineServiced("FRMF", "M-1", `{"hours":1}`))))
	verdict := command(t, env, "verify")
	require.Zero(t, verdict.code, verdict)
	require.Regexp(t, `(?m)^FRMF +1 +1 `, verdict.stdout)

	for _, name := range []string{"append_events_total", "append_duration_seconds", "append_group_size", "append_queue_depth", "http_request_duration_seconds", "projection_lag_events", "projection_lag_seconds"} {
		testkit.Eventually(t, endTime, func() bool { // a projection meets a new legal entity a moment later
			metrics, err := anonymous.do("GET", "/metrics", "")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, metrics.status)
			return strings.Contains(string(metrics.body), "\nbackbone_"+name)
		}, name)
	}
	for _, guess := range []string{"", "bbk_nonsense", strings.TrimSpace(token) + "x"} {
		a, err := anonymous.as(guess).do("GET", "/api/event-types", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, a.status, guess)
	}

	require.NoError(t, p.signal(syscall.SIGTERM))
	code, err := p.wait(endTime)
	require.NoError(t, err)
	require.Zero(t, code, p.stderr)
	for _, secret := range []string{strings.TrimSpace(token), strings.TrimSpace(enrolled.stdout), "hours"} {
		require.NotContains(t, p.stderr.String(), secret)
	}
}

// TestServeRefusesDevelopmentTokens requires that `backbone serve` refuses the tokens of
// dev.json, also on the same data.
func TestServeRefusesDevelopmentTokens(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	_, anonymous := startServe(t, d.DSN, d.keys()...)
	for _, persona := range personas {
		require.NoError(t, d.as(t, persona).want(200, nil, "GET", "/api/admin/legal-entities", ""))
		a, err := anonymous.as(d.Tokens[persona]).do("GET", "/api/admin/legal-entities", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, a.status, a)
		expectProblem(t, "development_token", a)
	}
}
