package httpapi_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// noopHandler is a handler of a projection that never runs.
type noopHandler struct{}

func (noopHandler) Apply(context.Context, ports.ProjectionTx, ports.ProjectionBatch) error {
	return nil
}

func (noopHandler) Reset(context.Context, ports.ProjectionTx, ports.ProjectionBatch) error {
	return nil
}

// rebuildsStub expects no call.
type rebuildsStub struct{ httpapi.Rebuilds }

// startProjectionAPI starts a server with the projection note.list.
func startProjectionAPI(t *testing.T, change ...func(*httpapi.Config)) *apiFixture {
	t.Helper()
	declared := []module.Projection{{Name: "note.list", Version: 2, EventTypes: []string{"note.taken"}}}
	store := memory.New(memory.Config{LogName: "other.example"})
	h := startAPI(t, append(change, func(c *httpapi.Config) {
		c.Projections = projections.NewOperations(projections.OperationsConfig{
			Store: store.Projections, Log: store.Events, Register: store.ProjectionVersions, Letters: store.ProjectionVersions, Leases: store.Leases, Clock: system.Clock{}, Declared: declared,
			Handlers: map[string]ports.ProjectionHandler{"note.list": noopHandler{}},
		})
		c.Rebuilds = rebuildsStub{}
	})...)
	_, err := store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{Name: "note.list", Version: 2, Status: projection.Running, Settings: projection.DefaultSettings(), ChangedBy: "system"})
	require.NoError(t, err)
	return h
}

// projectionList is a service that lists fixed projections.
type projectionList struct {
	httpapi.Projections
	views []projections.View
}

func (l *projectionList) List(context.Context, []event.PartitionID) ([]projections.View, error) {
	return l.views, nil
}

// TestProjectionVersionOfOneLegalEntity distinguishes a version of one legal entity from one
// of all, and shows it only to callers who may see that legal entity.
func TestProjectionVersionOfOneLegalEntity(t *testing.T) {
	t.Parallel()
	service := &projectionList{}
	h := startAPI(t, func(c *httpapi.Config) { c.Projections = service })
	all, err := h.store.Directory.LegalEntities(t.Context(), "demo")
	require.NoError(t, err)
	american := slices.IndexFunc(all, func(le ports.LegalEntity) bool { return le.Code == "USMF" })
	for _, scope := range []event.PartitionID{0, all[american].Partition} {
		service.views = append(service.views, projections.View{Projection: projection.Projection{
			Name: "note.list", Version: len(service.views) + 1, Scope: scope, Role: projection.Building, Status: projection.Running, Settings: projection.DefaultSettings(),
		}})
	}
	about := func(role string) (codes []any) {
		for _, p := range h.do(t, testRequest{method: "GET", path: "/api/admin/projections", token: h.tokens[role]}).json(t)["projections"].([]any) {
			codes = append(codes, p.(map[string]any)["legal_entity"])
		}
		return codes
	}
	require.Equal(t, []any{nil, "USMF"}, about("operator"))
	require.Equal(t, []any{nil}, about("german_operator"))
}

func TestProjectionRights(t *testing.T) {
	t.Parallel()
	h := startProjectionAPI(t)
	const one = "/api/admin/projections/note.list"
	refused := func(status int, code string, a testRequest) {
		t.Helper()
		got := h.do(t, a)
		require.Equal(t, status, got.status, string(got.body))
		require.Equal(t, code, got.json(t)["code"])
	}
	for role, may := range map[string]bool{"admin": true, "operator": true, "auditor": false, "ap_clerk": false} {
		a := testRequest{method: "POST", path: one + "/pause", token: h.tokens[role]}
		if !may {
			refused(http.StatusForbidden, "auth.forbidden", a)
			continue
		}
		got := h.do(t, a)
		require.Equal(t, http.StatusOK, got.status, string(got.body))
		shown := got.json(t)
		require.Equal(t, []any{"paused", "p-" + role}, []any{shown["status"], shown["changed_by"]})
		require.Len(t, shown["legal_entities"], 2)
		require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "POST", path: one + "/resume", token: h.tokens[role]}).status)
	}
	for _, role := range []string{"admin", "operator", "auditor"} {
		require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: "/api/admin/projections", token: h.tokens[role]}).status, role)
	}
	refused(http.StatusForbidden, "auth.forbidden", testRequest{method: "GET", path: one, token: h.tokens["ap_clerk"]})

	// A caller who may see one legal entity sees that one and may change nothing for all.
	german := h.tokens["german_operator"]
	require.Len(t, h.do(t, testRequest{method: "GET", path: one, token: german}).json(t)["legal_entities"], 1)
	refused(http.StatusForbidden, "projection.affects_others", testRequest{method: "POST", path: one + "/pause", token: german})
	refused(http.StatusForbidden, "projection.affects_others", testRequest{method: "PUT", path: one + "/settings", token: german, body: `{}`})
	refused(http.StatusNotFound, "legal_entity.not_found", testRequest{method: "POST", path: one + "/fix", token: german, body: `{"legal_entity":"USMF"}`})
	refused(http.StatusUnprocessableEntity, "projection.not_halted", testRequest{method: "POST", path: one + "/fix", token: german, body: `{"legal_entity":"DEMF"}`})

	for _, step := range []string{"rebuild", "switch", "rollback", "cancel", "drop", "snapshot"} {
		refused(http.StatusForbidden, "projection.affects_others", testRequest{method: "POST", path: one + "/" + step, token: german})
		refused(http.StatusNotFound, "legal_entity.not_found", testRequest{method: "POST", path: one + "/" + step, token: german, body: `{"legal_entity":"USMF"}`})
		refused(http.StatusForbidden, "auth.forbidden", testRequest{method: "POST", path: one + "/" + step, token: h.tokens["auditor"], body: `{"legal_entity":"USMF"}`})
	}
	refused(http.StatusNotFound, "legal_entity.not_found", testRequest{method: "POST", path: one + "/compare", token: german, body: `{"legal_entity":"USMF"}`})
	for _, snapshot := range []string{"newest", "0", "-1", "99999999999"} {
		refused(http.StatusBadRequest, "projection.snapshot_invalid", testRequest{method: "POST", path: one + "/rebuild", token: h.tokens["admin"], body: `{"from_snapshot":"` + snapshot + `"}`})
	}

	admin := h.tokens["admin"]
	refused(http.StatusBadRequest, "pii.in_text", testRequest{method: "POST", path: one + "/fix", token: admin, body: `{"reason":"mail of jane.doe@example.org"}`})
	refused(http.StatusNotFound, "projection.not_found", testRequest{method: "GET", path: "/api/admin/projections/no.such", token: admin})
	refused(http.StatusBadRequest, "projection.partition_missing", testRequest{method: "POST", path: one + "/skip", token: admin})
	refused(http.StatusBadRequest, "projection.partition_unwanted", testRequest{method: "POST", path: one + "/stop", token: admin, body: `{"legal_entity":"DEMF"}`})
	refused(http.StatusBadRequest, "projection.settings_invalid", testRequest{method: "PUT", path: one + "/settings", token: admin, body: `{"on_poison":"shrug"}`})
	refused(http.StatusBadRequest, "request.parameter_invalid", testRequest{method: "GET", path: "/api/admin/dead-letters?status=lost", token: admin})
	refused(http.StatusBadRequest, "request.parameter_invalid", testRequest{method: "GET", path: "/api/admin/dead-letters?cursor=x", token: admin})
	require.JSONEq(t, `{"dead_letters":[]}`, string(h.do(t, testRequest{method: "GET", path: "/api/admin/dead-letters", token: admin}).body))
	configured := h.do(t, testRequest{method: "PUT", path: one + "/settings", token: admin, body: `{"max_attempts":3}`}).json(t)
	require.EqualValues(t, 3, configured["settings"].(map[string]any)["max_attempts"])
}

func TestProjectionsNotServed(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	a := h.do(t, testRequest{method: "GET", path: "/api/admin/projections", token: h.tokens["admin"]})
	require.Equal(t, "projection.not_served", a.json(t)["code"])
}

func TestProjectionsOfOperatorTenant(t *testing.T) {
	t.Parallel()
	const one = "/api/admin/projections/note.list"
	for tenant, status := range map[string]int{"": http.StatusForbidden, "acme": http.StatusForbidden, "demo": http.StatusOK} {
		h := startProjectionAPI(t, func(c *httpapi.Config) { c.OperatorTenant = tenant })
		pause := testRequest{method: "POST", path: one + "/pause", token: h.tokens["operator"]}
		if tenant == "" {
			require.Equal(t, http.StatusOK, h.do(t, pause).status, "alone")
			require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "POST", path: one + "/resume", token: h.tokens["operator"]}).status)
		}
		_, err := h.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "ACME", Name: "Acme", TimeZone: "UTC", Status: "active", CreatedAt: system.Clock{}.Now()})
		require.NoError(t, err)
		require.Equal(t, status, h.do(t, pause).status, tenant)
		require.Equal(t, status, h.do(t, testRequest{method: "PUT", path: one + "/settings", token: h.tokens["operator"], body: `{}`}).status, tenant)
	}
}
