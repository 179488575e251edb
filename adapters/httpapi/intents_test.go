package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
)

// submitPage submits an intent that waits for a controller if it is secret, and returns its answer.
func (h *apiFixture) submitPage(t *testing.T, legalEntity, number string, secret bool, more string) map[string]any {
	t.Helper()
	a := h.do(t, testRequest{method: "POST", path: "/api/intents", token: "ap_clerk",
		body: fmt.Sprintf(`{"type":"note.add_page","legal_entity":%q,"payload":{"number":%q,"secret":%v}%s}`, legalEntity, number, secret, more)})
	require.Contains(t, []int{http.StatusCreated, http.StatusAccepted}, a.status, "%s", a.body)
	return a.json(t)
}

// intents reads one page of a list and returns the ids.
func (h *apiFixture) intents(t *testing.T, token, query string) (ids []string, next string) {
	t.Helper()
	a := h.do(t, testRequest{method: "GET", path: "/api/intents?" + query, token: token})
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	page := a.json(t)
	ids = []string{}
	for _, in := range page["intents"].([]any) {
		in := in.(map[string]any)
		require.NotContains(t, in, "payload")
		ids = append(ids, in["intent_id"].(string))
	}
	next, _ = page["next_cursor"].(string)
	require.Equal(t, next != "", page["has_more"])
	return ids, next
}

func TestListIntents(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	open := h.submitPage(t, "DEMF", "P-1", false, "")
	first := h.submitPage(t, "USMF", "P-2", true, "")["intent_id"].(string)
	second := h.submitPage(t, "DEMF", "P-3", true, "")["intent_id"].(string)
	executed := open["intent_id"].(string)

	all, next := h.intents(t, "auditor", "")
	require.Equal(t, []string{executed, first, second}, all)
	require.Empty(t, next)
	got, next := h.intents(t, "auditor", "limit=2&direction=backward")
	require.Equal(t, []string{second, first}, got)
	got, next = h.intents(t, "auditor", "limit=2&direction=backward&cursor="+next)
	require.Equal(t, []string{executed}, got)
	require.Empty(t, next)

	one := func(token, query string) []string {
		ids, _ := h.intents(t, token, query)
		return ids
	}
	require.Equal(t, []string{first, second}, one("controller", "waiting_for_me=true"))
	require.Equal(t, []string{second}, one("german_controller", "waiting_for_me=true"), "only its own legal entities")
	require.Empty(t, one("ap_clerk", "waiting_for_me=true"), "none of its roles may decide, and it asked for them itself")
	require.Equal(t, []string{first}, one("auditor", "legal_entity=USMF&role=controller&type=note.add_page&status=pending_approval"))
	require.Equal(t, []string{executed}, one("auditor", "status=executed&actor=p-ap_clerk"))
	stream := open["events"].([]any)[0].(map[string]any)["stream"].(string)
	require.Equal(t, []string{executed}, one("auditor", "document="+url.QueryEscape(stream)))
	require.Empty(t, one("auditor", "min_age_hours=1"))
	require.Empty(t, one("auditor", "submitted_to=2026-01-01"))
	require.Equal(t, all, one("auditor", "submitted_from=2020-01-01"))

	item := h.do(t, testRequest{method: "GET", path: "/api/intents?waiting_for_me=true", token: "german_controller"}).json(t)["intents"].([]any)[0].(map[string]any)
	require.Equal(t, "p-ap_clerk", item["requested_by"])
	require.Equal(t, []any{"controller"}, item["needs"].([]any)[0].(map[string]any)["roles"])
	require.Regexp(t, `^page/`, item["documents"].([]any)[0])

	for _, q := range []string{"status=planned", "status=open", "role=controller&status=executed", "waiting_for_me=yes", "min_age_hours=0", "limit=1001", "cursor=x", "submitted_from=soon"} {
		require.Equal(t, http.StatusBadRequest, h.do(t, testRequest{method: "GET", path: "/api/intents?" + q, token: "auditor"}).status, q)
	}
	require.Equal(t, http.StatusNotFound, h.do(t, testRequest{method: "GET", path: "/api/intents?legal_entity=USMF", token: "german_controller"}).status)
	require.Equal(t, http.StatusForbidden, h.do(t, testRequest{method: "GET", path: "/api/intents", token: "compliance"}).status)
}

// The lineage of an intent's events leads into the legal entity of its cause.
func TestSubmitIntent_CauseInAnotherLegalEntity(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	cause := h.submitPage(t, "DEMF", "P-1", false, "")["events"].([]any)[0].(map[string]any)["id"].(string)
	made := h.submitPage(t, "USMF", "P-2", false, fmt.Sprintf(`,"caused_by":%q,"caused_by_legal_entity":"DEMF"`, cause))
	id := made["events"].([]any)[0].(map[string]any)["id"].(string)
	lineage := h.do(t, testRequest{method: "GET", path: "/api/events/" + id + "/lineage", token: "auditor"}).json(t)
	require.Len(t, lineage["lineage"], 2)
	require.Equal(t, false, lineage["truncated"])
	stored := h.do(t, testRequest{method: "GET", path: "/api/intents/" + made["intent_id"].(string), token: "auditor"}).json(t)
	require.Equal(t, "DEMF", stored["caused_by_legal_entity"])

	refuse := func(token, more, code, field string) {
		t.Helper()
		a := h.do(t, testRequest{method: "POST", path: "/api/intents", token: token, body: `{"type":"note.add_page","legal_entity":"USMF","payload":{"number":"P-9"}` + more + `}`}).json(t)
		require.Equal(t, code, a["code"])
		require.Equal(t, field, a["field"])
	}
	refuse("ap_clerk", fmt.Sprintf(`,"caused_by":%q`, cause), "request.cause_unknown", "/caused_by")
	refuse("american_ap_clerk", fmt.Sprintf(`,"caused_by":%q,"caused_by_legal_entity":"DEMF"`, cause), "legal_entity.not_found", "/caused_by_legal_entity")
	refuse("ap_clerk", `,"caused_by_legal_entity":"DEMF"`, "request.member_missing", "/caused_by")
	h.submitPage(t, "USMF", "P-9", false, fmt.Sprintf(`,"caused_by":%q,"allow_unknown_cause":true`, "01JQ8E6Z6G3V5T8C9N2M4K7R1P"))
}

// Who has approved a waiting intent is found by the events of the actor, and stands in the trace of
// its process, before the intent is executed.
func TestApprovers_InQueriesAndTraces(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	made := h.submitPage(t, "USMF", "P-1", true, "")
	id, correlation := made["intent_id"].(string), made["correlation_id"].(string)
	process := func() map[string]any {
		return h.do(t, testRequest{method: "GET", path: "/api/events/process/" + correlation, token: "auditor"}).json(t)
	}
	require.Equal(t, []any{"p-ap_clerk"}, process()["actors_involved"])
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/reject", token: "controller", body: `{"reason":"not ours"}`}).status)
	require.Equal(t, []any{"p-ap_clerk", "p-controller"}, process()["actors_involved"])
	events := h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=actor&stream_id=p-controller&legal_entity=USMF", token: "auditor"}).json(t)["events"].([]any)
	require.Len(t, events, 1)
	require.Equal(t, "backbone.intent.rejected", events[0].(map[string]any)["type"])
	require.Equal(t, id, events[0].(map[string]any)["intent_id"])
}

// Refused attempts are counted by person and rule, for those who approve, administer and audit.
func TestSegregationReport(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	id := h.submitPage(t, "USMF", "P-1", true, "")["intent_id"].(string)
	for range 2 {
		a := h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/withdraw", token: "american_ap_clerk", body: `{"reason":"mine"}`})
		require.Equal(t, http.StatusForbidden, a.status)
	}
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/reject", token: "controller", body: `{"reason":"not ours"}`}).status)
	report := func(token, query string) map[string]any {
		a := h.do(t, testRequest{method: "GET", path: "/api/sod/report?" + query, token: token})
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		return a.json(t)
	}
	all := report("auditor", "from=2020-01-01&to=2100-01-01")
	require.Empty(t, all["steps"])
	require.Len(t, all["refusals"], 1)
	row := all["refusals"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"p-american-ap_clerk", "withdraw", "intent.not_requester", 2.0, id}, []any{row["actor_id"], row["attempt"], row["code"], row["times"], row["last_intent"]})
	require.Empty(t, report("auditor", "to=2020-01-01")["refusals"])
	require.Empty(t, report("german_controller", "")["refusals"], "only its own legal entities")
	mine := report("controller", "person=p-controller&legal_entity=USMF")
	require.Empty(t, mine["refusals"])
	step := mine["steps"].([]any)[0].(map[string]any)
	require.Regexp(t, `^page/`, step["document"])
	require.Equal(t, "backbone.intent.rejected", step["steps"].([]any)[0].(map[string]any)["type"])
	for _, token := range []string{"ap_clerk", "module", "compliance"} {
		require.Equal(t, http.StatusForbidden, h.do(t, testRequest{method: "GET", path: "/api/sod/report", token: token}).status, token)
	}
	require.Equal(t, http.StatusBadRequest, h.do(t, testRequest{method: "GET", path: "/api/sod/report?from=soon", token: "auditor"}).status)
}

// Who sees a waiting intent and lacks the right to decide on it is refused as ever, and the attempt is
// an event of the intent. Who does not see it leaves no trace on it.
func TestDeniedDecisions(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	executed := h.submitPage(t, "USMF", "P-1", false, "")["intent_id"].(string)
	waiting := h.submitPage(t, "USMF", "P-2", true, "")["intent_id"].(string)
	try := func(token, id, verb, query string) {
		t.Helper()
		a := h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/" + verb + query, token: token, body: `{"reason":`})
		require.Equal(t, http.StatusForbidden, a.status, "%s: %s", token, a.body)
		require.Equal(t, "auth.forbidden", a.json(t)["code"])
		require.NotContains(t, string(a.body), id+`"`)
	}
	before := h.heads(t)
	for _, token := range []string{"german_ap_clerk", "german_auditor", "compliance", "operator"} {
		try(token, waiting, "approve", "")
		try(token, waiting, "reject", "?legal_entity=USMF")
	}
	for _, id := range []string{executed, waiting[:20] + "ZZZZZZ", "none"} {
		try("ap_clerk", id, "approve", "")
	}
	try("ap_clerk", waiting, "approve", "?legal_entity=DEMF")
	try("ap_clerk", waiting, "approve", "?legal_entity=USMF%00")
	require.Equal(t, before, h.heads(t), "not seen, or not waiting")

	try("ap_clerk", waiting, "approve", "")
	try("ap_clerk", waiting, "approve", "?legal_entity=USMF&wrong=1")
	try("ap_clerk", waiting, "reject", "")
	for _, token := range []string{"american_ap_clerk", "module", "admin_service", "auditor"} {
		try(token, waiting, "approve", "")
	}
	try("auditor", waiting, "withdraw", "")
	a := h.do(t, testRequest{method: "GET", path: "/api/sod/report", token: "auditor"})
	var got []string
	for _, r := range a.json(t)["refusals"].([]any) {
		r := r.(map[string]any)
		require.Equal(t, []any{"USMF", "note.add_page", "auth.forbidden", waiting}, []any{r["legal_entity"], r["intent_type"], r["code"], r["last_intent"]})
		got = append(got, fmt.Sprint(r["actor_id"], " ", r["attempt"], " ", r["times"]))
	}
	require.Equal(t, []string{
		"p-admin_service approve 1", "p-american-ap_clerk approve 1", "p-ap_clerk approve 2", "p-ap_clerk reject 1", "p-auditor approve 1", "p-auditor withdraw 1", "p-module approve 1",
	}, got)
	require.Equal(t, http.StatusCreated, h.do(t, testRequest{method: "POST", path: "/api/intents/" + waiting + "/approve", token: "controller"}).status, "it waited as before")
}

// unreadableIntents cannot read any intent.
type unreadableIntents struct{ httpapi.Intents }

func (unreadableIntents) RefuseDecision(context.Context, pipeline.Caller, pipeline.Decision, string, error) error {
	return fault.New(fault.Unavailable, "store.unavailable", "the database does not answer; try again")
}

// An attempt that cannot be recorded because the intent cannot be read is not answered as if it had been.
func TestDeniedDecisions_Unavailable(t *testing.T) {
	t.Parallel()
	h := startAPI(t, func(c *httpapi.Config) { c.Intents = unreadableIntents{c.Intents} })
	id := h.submitPage(t, "USMF", "P-1", true, "")["intent_id"].(string)
	a := h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/approve", token: "ap_clerk"})
	require.Equal(t, http.StatusServiceUnavailable, a.status, "%s", a.body)
}
