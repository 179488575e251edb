package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestCustomProjections shows who may create, see and change one, and that other tenants
// cannot see it.
func TestCustomProjections(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{LogName: "other.example"})
	var rival string
	h := startAPI(t, func(c *httpapi.Config) {
		who, ok := c.Access.(*tenancy.Service)
		require.True(t, ok)
		_, err := who.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "rival", Code: "USMF"}, event.Actor{})
		require.NoError(t, err)
		rival, err = who.Enroll(t.Context(), ports.Principal{
			TenantID: "rival", PersonID: "r-1", PrincipalID: "r-1", ActorType: event.Human, RoleLabel: "admin", Roles: []string{"admin", "operator", "controller"},
		})
		require.NoError(t, err)
		own := testkit.Must(custom.New(custom.Config{
			Compiler: jq.New(), Rows: store.ProjectionRows, Register: store.ProjectionVersions, Decisions: testkit.Must(conformance.NewAdministrativeLog(system.Clock{})).Projections(), Entities: who, Events: store.Events, Recompute: custom.RecomputeConfig{RecomputeLimits: custom.RecomputeLimits{MaxEvents: 10_000, MaxRead: 200_000}},
			Await: func(context.Context, string, int, event.PartitionID, event.Sequence) (event.Sequence, error) {
				return 0, nil
			},
		}))
		c.CustomProjections = own
		c.Rebuilds = testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{Store: store.Projections, Log: store.Events, Register: store.ProjectionVersions, Versions: store.ProjectionVersions, Clock: system.Clock{}, Custom: own, MaxBehind: 1000}))
		c.Projections = projections.NewOperations(projections.OperationsConfig{
			Store: store.Projections, Log: store.Events, Register: store.ProjectionVersions, Letters: store.ProjectionVersions, Leases: store.Leases, Clock: system.Clock{}, Custom: own,
		})
	})
	const (
		all, one, rows = "/api/admin/projections", "/api/admin/projections/notes", "/api/projections/notes?legal_entity=USMF"
		definition     = `{"name":"notes","key":".stream.id","fold":"(.state // 0) + 1"}`
		german         = `{"name":"german","filter":{"legal_entities":["DEMF"]},"key":".stream.id","fold":"(.state // 0) + 1"}`
	)
	answers := func(status int, code string, a testRequest) {
		t.Helper()
		got := h.do(t, a)
		require.Equal(t, status, got.status, string(got.body))
		if code != "" {
			require.Equal(t, code, got.json(t)["code"])
		}
	}
	post := func(token, body string) testRequest {
		return testRequest{method: "POST", path: all, token: token, body: body}
	}
	admin := h.tokens["admin"]
	for _, role := range []string{"operator", "auditor", "controller", "module"} {
		answers(http.StatusForbidden, "auth.forbidden", post(h.tokens[role], definition))
	}
	answers(http.StatusOK, "", testRequest{method: "POST", path: all + "?dry_run=true", token: admin, body: definition})
	answers(http.StatusNotFound, "projection.not_found", testRequest{method: "GET", path: one, token: admin})
	answers(http.StatusBadRequest, "request.parameter_invalid", testRequest{method: "POST", path: all + "?dry_run=maybe", token: admin, body: definition})
	answers(http.StatusBadRequest, "transform.invalid", post(admin, `{"name":"notes","key":".a |","fold":"1"}`))
	answers(http.StatusBadRequest, "projection.definition_invalid", post(admin, `{"name":"gl.ledger","key":".a","fold":"1"}`))
	answers(http.StatusBadRequest, "pii.in_text", post(admin, `{"name":"notes","description":"ask jane.doe@example.org","key":".a","fold":"1"}`))
	answers(http.StatusCreated, "", post(admin, definition))
	answers(http.StatusConflict, "projection.exists", post(admin, definition))

	// A caller who sees some legal entities may define projections of those only.
	local := h.tokens["german_admin"]
	answers(http.StatusForbidden, "projection.affects_others", post(local, `{"name":"mine","key":".id","fold":"1"}`))
	answers(http.StatusForbidden, "projection.affects_others", post(local, `{"name":"mine","filter":{"legal_entities":["DEMF","USMF"]},"key":".id","fold":"1"}`))
	answers(http.StatusCreated, "", post(local, german))
	answers(http.StatusForbidden, "projection.affects_others", testRequest{method: "POST", path: one + "/pause", token: local})
	answers(http.StatusForbidden, "projection.affects_others", testRequest{method: "DELETE", path: one, token: local})
	answers(http.StatusOK, "", testRequest{method: "POST", path: all + "/german/pause", token: local})
	answers(http.StatusNoContent, "", testRequest{method: "DELETE", path: all + "/german", token: local})

	// A tenant's operators operate its projections, though further tenants share the installation.
	answers(http.StatusOK, "", testRequest{method: "POST", path: one + "/pause", token: h.tokens["operator"]})
	answers(http.StatusOK, "", testRequest{method: "PUT", path: one + "/settings", token: h.tokens["operator"], body: `{"max_attempts":3}`})
	answers(http.StatusOK, "", testRequest{method: "GET", path: rows, token: h.tokens["auditor"]})
	answers(http.StatusForbidden, "auth.forbidden", testRequest{method: "GET", path: rows, token: admin})
	answers(http.StatusBadRequest, "cursor.malformed", testRequest{method: "GET", path: rows + "&cursor=%21", token: h.tokens["auditor"]})
	answers(http.StatusBadRequest, "request.parameter_unknown", testRequest{method: "GET", path: rows + "&as_of=2026-01-01", token: h.tokens["auditor"]})

	// A changed definition becomes a new version beside the active one.
	put := func(token, query, body string) testRequest {
		return testRequest{method: "PUT", path: one + query, token: token, body: body}
	}
	const other = `{"name":"notes","filter":{"types":["ap.invoice.submited"]},"key":".stream.id","fold":"1"}`
	for _, role := range []string{"operator", "auditor", "controller", "module"} {
		answers(http.StatusForbidden, "auth.forbidden", put(h.tokens[role], "", other))
	}
	answers(http.StatusForbidden, "projection.affects_others", put(local, "", `{"name":"notes","filter":{"legal_entities":["DEMF"]},"key":".id","fold":"1"}`))
	answers(http.StatusUnprocessableEntity, "projection.built_in", testRequest{method: "PUT", path: all + "/gl.ledger", token: admin, body: other})
	answers(http.StatusNotFound, "projection.not_found", testRequest{method: "PUT", path: all + "/absent", token: admin, body: strings.Replace(other, "notes", "absent", 1)})
	answers(http.StatusBadRequest, "projection.name_fixed", put(admin, "", german))
	answers(http.StatusBadRequest, "request.parameter_invalid", put(admin, "?switch=maybe", other))
	answers(http.StatusBadRequest, "pii.in_text", put(admin, "", `{"name":"notes","description":"ask jane.doe@example.org","key":".a","fold":"1"}`))
	changed := func(status int, a testRequest) map[string]any {
		t.Helper()
		got := h.do(t, a)
		require.Equal(t, status, got.status, string(got.body))
		return got.json(t)
	}
	same := changed(http.StatusOK, put(admin, "", definition))
	require.Equal(t, []any{1.0, 1.0, true}, []any{same["version"], same["shown"], same["unchanged"]})
	dry := changed(http.StatusOK, put(admin, "?dry_run=true", other))
	require.Equal(t, []any{2.0, 1.0, 0.0, true}, []any{dry["version"], dry["shown"], dry["looked_at"], dry["dry_run"]})
	require.NotContains(t, string(h.do(t, testRequest{method: "GET", path: one + "/rebuild", token: admin}).body), "building")
	made := changed(http.StatusCreated, put(admin, "", other))
	require.Equal(t, []any{2.0, 1.0, nil}, []any{made["version"], made["shown"], made["unchanged"]})
	answers(http.StatusConflict, "projection.being_changed", put(admin, "", strings.Replace(other, `"1"`, `"2"`, 1)))
	versions := changed(http.StatusOK, testRequest{method: "GET", path: one + "/rebuild", token: h.tokens["operator"]})
	require.Equal(t, []any{"notes", 1.0}, []any{versions["name"], versions["active"]})
	require.Equal(t, "1", changed(http.StatusOK, testRequest{method: "GET", path: all, token: admin})["projections"].([]any)[1].(map[string]any)["definition"].(map[string]any)["fold"])
	for _, step := range []string{"/rebuild", "/switch", "/rollback", "/cancel", "/drop"} {
		answers(http.StatusForbidden, "projection.affects_others", testRequest{method: "POST", path: one + step, token: local})
		answers(http.StatusForbidden, "auth.forbidden", testRequest{method: "POST", path: one + step, token: h.tokens["auditor"]})
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "POST", path: one + step, token: rival})
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "POST", path: all + "/demo%2Fnotes" + step, token: rival})
	}
	for _, path := range []string{one, all + "/demo%2Fnotes"} {
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "GET", path: path + "/rebuild", token: rival})
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "POST", path: path + "/compare", token: rival})
	}
	answers(http.StatusUnprocessableEntity, "projection.rebuilding", testRequest{method: "POST", path: one + "/rebuild", token: h.tokens["operator"]})
	compared := changed(http.StatusOK, testRequest{method: "POST", path: one + "/compare", token: h.tokens["operator"]})
	require.Equal(t, []any{"notes", 1.0, 2.0}, []any{compared["name"], compared["left"], compared["right"]})
	moved := changed(http.StatusOK, testRequest{method: "POST", path: one + "/switch", token: h.tokens["operator"]})
	require.Equal(t, []any{"notes", 2.0, 1.0}, []any{moved["name"], moved["active"], moved["retained"]})

	// A change that expects a version that is no longer active is refused.
	late := changed(http.StatusConflict, put(admin, "", strings.Replace(other, `"1"}`, `"3","expected_version":1}`, 1)))
	require.Equal(t, []any{"projection.wrong_expected_version", 1.0, 2.0, "/expected_version"}, []any{late["code"], late["expected"], late["actual"], late["field"]})
	answers(http.StatusConflict, "projection.wrong_expected_version", put(admin, "?dry_run=true", strings.Replace(other, `"1"}`, `"3","expected_version":1}`, 1)))
	answers(http.StatusOK, "", put(admin, "?dry_run=true", strings.Replace(other, `"1"}`, `"3","expected_version":2}`, 1)))
	answers(http.StatusOK, "", put(admin, "", strings.Replace(other, `"1"}`, `"1","expected_version":1}`, 1))) // a repeated change
	absent := changed(http.StatusConflict, post(admin, `{"name":"fresh","key":".id","fold":"1","expected_version":4}`))
	require.Equal(t, []any{"projection.wrong_expected_version", 4.0, 0.0}, []any{absent["code"], absent["expected"], absent["actual"]})
	answers(http.StatusOK, "", testRequest{method: "POST", path: all + "?dry_run=true", token: admin, body: `{"name":"fresh","key":".id","fold":"1","expected_version":0}`})
	none := strings.Replace(other, `"1"}`, `"3","expected_version":0}`, 1)
	for _, a := range []testRequest{put(admin, "?dry_run=true", none), put(admin, "", none), post(admin, none)} {
		there := changed(http.StatusConflict, a)
		require.Equal(t, []any{"projection.wrong_expected_version", 0.0, 2.0, "/expected_version"}, []any{there["code"], there["expected"], there["actual"], there["field"]})
	}
	require.Equal(t, 2.0, changed(http.StatusOK, testRequest{method: "GET", path: rows, token: h.tokens["auditor"]})["version"])
	back := changed(http.StatusOK, testRequest{method: "POST", path: one + "/rollback", token: h.tokens["operator"]})
	require.Equal(t, []any{1.0, 2.0}, []any{back["active"], back["retained"]})
	changed(http.StatusOK, testRequest{method: "POST", path: one + "/drop", token: h.tokens["operator"]})
	changed(http.StatusOK, testRequest{method: "POST", path: one + "/rebuild", token: h.tokens["operator"], body: `{"switch":true}`})
	changed(http.StatusOK, testRequest{method: "POST", path: one + "/cancel", token: h.tokens["operator"]})
	answers(http.StatusUnprocessableEntity, "projection.not_building", testRequest{method: "POST", path: one + "/cancel", token: h.tokens["operator"]})
	require.NotContains(t, string(h.do(t, testRequest{method: "GET", path: all, token: admin}).body), "demo/")

	for _, path := range []string{one, all + "/demo%2Fnotes"} {
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "GET", path: path, token: rival})
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "POST", path: path + "/resume", token: rival})
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "PUT", path: path + "/settings", token: rival, body: `{}`})
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "PUT", path: path, token: rival, body: definition})
		answers(http.StatusNotFound, "projection.not_found", testRequest{method: "DELETE", path: path, token: rival})
	}
	answers(http.StatusNotFound, "projection.not_found", testRequest{method: "GET", path: rows, token: rival})
	require.JSONEq(t, `{"projections":[]}`, string(h.do(t, testRequest{method: "GET", path: all, token: rival}).body))
	answers(http.StatusCreated, "", post(rival, definition))
	answers(http.StatusNoContent, "", testRequest{method: "DELETE", path: one, token: rival})
	answers(http.StatusOK, "", testRequest{method: "GET", path: one, token: admin})
}
