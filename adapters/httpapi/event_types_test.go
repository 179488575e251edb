package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// leadVersion is a registration of crm.lead.won.
func leadVersion(version int, properties, required string) string {
	return fmt.Sprintf(`{"type":"crm.lead.won","schema_version":%d,"module":"crm","data_schema":{"type":"object","additionalProperties":false,`+
		`"properties":{%s},"required":[%s]}}`, version, properties, required)
}

func requireProblem(t *testing.T, name string, a testAnswer, status int) {
	t.Helper()
	require.Equal(t, status, a.status, string(a.body))
	expect(t, name, a)
}

func TestEventTypeEvolution(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	post := func(path, token, body string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/event-types" + path, token: token, body: body})
	}
	const size, colour = `"size":{"type":"integer"}`, `"colour":{"type":"string"}`
	verdict := func(body string) map[string]any {
		a := post("/check", "module", body)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return a.json(t)
	}
	first := verdict(leadVersion(1, size, ""))
	require.Equal(t, "new_type", first["verdict"])
	require.NotContains(t, first, "compared_with")
	require.NotContains(t, first, "compatible")
	require.Equal(t, http.StatusCreated, post("", "admin", leadVersion(1, size, "")).status)
	require.Equal(t, "unchanged", verdict(leadVersion(1, size, ""))["verdict"])

	refused := verdict(leadVersion(2, size+","+colour, `"colour"`))
	require.Equal(t, "refused", refused["verdict"])
	require.Equal(t, false, refused["compatible"])
	require.EqualValues(t, 1, refused["compared_with"])
	require.Equal(t, []any{map[string]any{
		"kind": "required_added", "pointer": "/data_schema/properties/colour", "demands": "new_version_with_default", "met": false,
		"detail": "earlier events do not carry it; give its schema a default, or make it optional",
	}}, refused["differences"])
	require.Equal(t, "event_type.required_added", refused["findings"].([]any)[0].(map[string]any)["code"])
	requireProblem(t, "type_incompatible", post("", "admin", leadVersion(2, size+","+colour, `"colour"`)), http.StatusUnprocessableEntity)
	second := leadVersion(2, size+`,"colour":{"type":"string","default":"none"}`, `"colour"`)
	require.Equal(t, "new_version", verdict(second)["verdict"])
	require.Equal(t, http.StatusCreated, post("", "admin", second).status)

	// An administrator of one legal entity decides nothing that is for all of them.
	require.Equal(t, "auth.forbidden", post("", "german_admin", leadVersion(3, size, "")).json(t)["code"])
	for _, verb := range []string{"/deprecate", "/reactivate", "/confirm", "/reject"} {
		require.Equal(t, "auth.forbidden", post("/crm.lead.won"+verb, "german_admin", "").json(t)["code"], verb)
	}
	// A deprecated type takes no appends. Only an administrator may deprecate and reactivate.
	for _, verb := range []string{"/deprecate", "/reactivate"} {
		require.Equal(t, http.StatusForbidden, post("/crm.lead.won"+verb, "module", "").status)
		require.Equal(t, http.StatusNotFound, post("/crm.lead.lost"+verb, "admin", "").status)
	}
	requireProblem(t, "type_builtin_deprecated", post("/note.page.added/deprecate", "admin", ""), http.StatusForbidden)
	one := post("/crm.lead.won/deprecate", "admin", `{"schema_version":1,"reason":"superseded"}`)
	require.Equal(t, http.StatusOK, one.status, string(one.body))
	proposed := one.json(t)["versions"].([]any)[1].(map[string]any)
	require.Equal(t, []any{true, "active", "registry.type.deprecation_proposed", "p-admin"},
		[]any{proposed["is_active"], proposed["status"], proposed["proposal"].(map[string]any)["event"], proposed["proposal"].(map[string]any)["actor"]})
	// Another person confirms it, who is an administrator of all legal entities and not a service.
	requireProblem(t, "type_same_person", post("/crm.lead.won/confirm", "admin", ""), http.StatusForbidden)
	require.Equal(t, http.StatusForbidden, post("/crm.lead.won/confirm", "module", "").status)
	requireProblem(t, "type_person_required", post("/crm.lead.won/confirm", "admin_service", ""), http.StatusForbidden)
	confirm := func() {
		a := post("/crm.lead.won/confirm", "second_admin", `{"reason":"agreed"}`)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
	}
	confirm()
	requireProblem(t, "type_not_proposed", post("/crm.lead.won/confirm", "second_admin", ""), http.StatusUnprocessableEntity)
	require.Equal(t, http.StatusOK, post("/crm.lead.won/deprecate", "admin", "").status)
	require.Equal(t, http.StatusForbidden, post("/crm.lead.won/reject", "module", "").status)
	require.Equal(t, http.StatusOK, post("/crm.lead.won/reject", "admin", "").status)
	require.Equal(t, http.StatusOK, post("/crm.lead.won/deprecate", "admin", "").status)
	confirm()
	won := `{"events":[{"type":"crm.lead.won","scope":{"legal_entity":"USMF"},"stream":{"type":"lead","id":"L-1"},"data":{"size":1,"colour":"red"}}]}`
	appended := func() testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: won})
	}
	requireProblem(t, "type_deprecated", appended(), http.StatusUnprocessableEntity)
	require.Equal(t, http.StatusOK, post("/crm.lead.won/reactivate", "admin", `{"schema_version":2}`).status)
	confirm()
	require.Equal(t, http.StatusCreated, appended().status)

	history := h.do(t, testRequest{method: "GET", path: "/api/event-types/crm.lead.won/history", token: "auditor"}).json(t)
	var changes []string
	for _, c := range history["changes"].([]any) {
		c := c.(map[string]any)
		changes = append(changes, fmt.Sprint(strings.TrimPrefix(c["event"].(string), "registry.type."), " ", c["schema_version"], " ", c["actor"], " ", c["reason"]))
		require.Len(t, c["document_sha256"], 64)
	}
	require.Equal(t, []string{
		"registered 1 p-admin <nil>", "registered 2 p-admin <nil>",
		"deprecation_proposed 1 p-admin superseded", "deprecated 1 p-second_admin agreed",
		"deprecation_proposed 2 p-admin <nil>", "rejected 2 p-admin <nil>", "deprecation_proposed 2 p-admin <nil>", "deprecated 2 p-second_admin agreed",
		"reactivation_proposed 2 p-admin <nil>", "reactivated 2 p-second_admin agreed",
	}, changes)
	builtIn := h.do(t, testRequest{method: "GET", path: "/api/event-types/note.page.added/history", token: "ap_clerk"}).json(t)
	require.Equal(t, "module:notes", builtIn["changes"].([]any)[0].(map[string]any)["actor"])

	// One list for the auditor, in the order of the chain.
	all := h.do(t, testRequest{method: "GET", path: "/api/event-types/history", token: "auditor"}).json(t)
	require.NotContains(t, all, "type")
	list := all["changes"].([]any)
	require.Greater(t, len(list), len(changes))
	require.Equal(t, history["changes"], list[len(list)-len(changes):])
	require.Contains(t, list, builtIn["changes"].([]any)[0])
	for _, c := range list {
		require.Len(t, c.(map[string]any)["checksum"], 64)
	}
	require.Equal(t, http.StatusUnauthorized, h.do(t, testRequest{method: "GET", path: "/api/event-types/history"}).status)
}

// A version that is registered again with optional members keeps its number; where an object is
// open, another person confirms it.
func TestEventTypeAmendment(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	register := func(key, body string) testAnswer {
		header := map[string]string{}
		if key != "" {
			header["Idempotency-Key"] = key
		}
		return h.do(t, testRequest{method: "POST", path: "/api/event-types", token: "admin", body: body, header: header})
	}
	version := func() map[string]any {
		a := h.do(t, testRequest{method: "GET", path: "/api/event-types/crm.lead.won", token: "admin"})
		return a.json(t)["versions"].([]any)[0].(map[string]any)
	}
	const size, colour = `"size":{"type":"integer"}`, `"colour":{"type":"string"}`
	require.NotContains(t, register("first", leadVersion(1, size, "")).json(t), "amended")
	amendment := leadVersion(1, size+","+colour, "")
	got := register("second", amendment)
	require.Equal(t, http.StatusCreated, got.status, string(got.body))
	require.Equal(t, true, got.json(t)["amended"])
	again := register("second", amendment)
	require.Equal(t, http.StatusOK, again.status)
	require.JSONEq(t, string(got.body), string(again.body))
	require.Equal(t, "event_type.duplicate", register("", amendment).json(t)["code"])
	schemas := version()["schemas"].([]any)
	require.Len(t, schemas, 2)
	require.Equal(t, "p-admin", schemas[1].(map[string]any)["by"])
	requireProblem(t, "type_not_amended", register("", leadVersion(1, `"size":{"type":"string"},`+colour, "")), http.StatusConflict)

	open := strings.Replace(leadVersion(2, size+","+colour, ""), `"additionalProperties":false,`, "", 1)
	require.Equal(t, http.StatusCreated, register("", open).status)
	wider := strings.Replace(open, size, size+`,"count":{"type":"integer"}`, 1)
	for _, status := range []int{http.StatusCreated, http.StatusOK} {
		got = register("third", wider)
		require.Equal(t, status, got.status, string(got.body))
		require.Equal(t, true, got.json(t)["amended"])
	}
	require.Equal(t, "event_type.proposal_open", register("", wider).json(t)["code"])
	proposed := version()
	require.Equal(t, "active", proposed["status"])
	require.Equal(t, "registry.type.amendment_proposed", proposed["proposal"].(map[string]any)["event"])
	require.NotContains(t, proposed["data_schema"].(map[string]any)["properties"], "count")
	require.Contains(t, proposed["amendment"].(map[string]any)["data_schema"].(map[string]any)["properties"], "count")
	confirmed := h.do(t, testRequest{method: "POST", path: "/api/event-types/crm.lead.won/confirm", token: "second_admin", body: `{"schema_version":2}`})
	require.Equal(t, http.StatusOK, confirmed.status, string(confirmed.body))
	require.NotContains(t, version(), "amendment")
	require.Contains(t, version()["data_schema"].(map[string]any)["properties"], "count")
}
