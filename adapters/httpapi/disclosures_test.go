package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// accesses are those in the access log that one login made.
func (h *apiFixture) accesses(t *testing.T, query string) []map[string]any {
	t.Helper()
	a := h.do(t, testRequest{method: "GET", path: "/api/access-log?" + query, token: "compliance"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	var out []map[string]any
	for _, x := range a.json(t)["accesses"].([]any) {
		out = append(out, x.(map[string]any))
	}
	return out
}

func TestAccessLog_OpenedPersonalData(t *testing.T) {
	t.Parallel()
	h := startSealedAPI(t, newSealingStub(t))
	machine, _ := h.personalRecords(t)
	for _, c := range []struct {
		path, token, operation string
		records                int
	}{
		{"/api/events/" + machine, "module", "getEvent", 1},
		{"/api/events/" + machine, "auditor", "", 0},
		{"/api/events/" + machine, "controller", "", 0},
		{"/api/events?stream_type=scope&stream_id=USMF", "module", "listEvents", 1},
		{"/api/events?stream_type=scope&stream_id=DEMF", "module", "", 0},
		{"/api/note/pages?legal_entity=USMF", "ap_clerk", "/api/note/pages", 1},
	} {
		before := len(h.accesses(t, "limit=1000"))
		answer := h.do(t, testRequest{method: "GET", path: c.path, token: c.token, header: map[string]string{"Access-Reason": "ticket 4711", "X-Request-Id": "request-4711"}})
		require.Equal(t, http.StatusOK, answer.status, string(answer.body))
		all := h.accesses(t, "limit=1000")
		require.Len(t, all, before+c.records, "%s by %s", c.path, c.token)
		if c.records == 0 {
			continue
		}
		newest := all[0]
		delete(newest, "id")
		delete(newest, "at")
		require.Equal(t, map[string]any{
			"person_id": "p-" + c.token, "principal_id": "l-" + c.token, "kind": "personal_data", "operation": c.operation, "legal_entity": "USMF",
			"subject": "person:P-1", "class": "contact", "values": newest["values"], "reason": "ticket 4711", "request_id": "request-4711",
		}, newest)
	}
	require.Len(t, h.accesses(t, "person=p-ap_clerk&subject=person:P-1&class=contact&kind=personal_data&from=2020-01-01&to=2999-12-31"), 1)
	for _, query := range []string{"person=p-unknown", "subject=person:P-2", "class=bank", "kind=export", "to=2020-01-01"} {
		require.Empty(t, h.accesses(t, query), query)
	}
}

func TestAccessLog_Exports(t *testing.T) {
	t.Parallel()
	h := startSealedAPI(t, newSealingStub(t))
	h.personalRecords(t)
	const path = "/api/events/export?stream_type=scope&stream_id=USMF&legal_entity=USMF"
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: path, token: "auditor"}).status)
	exports := h.accesses(t, "kind=export&person=p-auditor")
	require.Len(t, exports, 1)
	require.Equal(t, "exportEvents", exports[0]["operation"])
	require.Equal(t, "USMF", exports[0]["legal_entity"])
	require.NotContains(t, exports[0], "subject")
}

func TestAccessLog_Refusals(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	for _, token := range []string{"ap_clerk", "admin", "module", "operator", "compliance_approver", "german_auditor"} {
		require.Equal(t, http.StatusForbidden, h.do(t, testRequest{method: "GET", path: "/api/access-log", token: token}).status, token)
	}
	for query, code := range map[string]string{
		"class=shoe_size": "request.parameter_invalid", "kind=peek": "request.parameter_invalid", "from=yesterday": "request.parameter_invalid",
		"limit=1001": "request.parameter_invalid", "cursor=x": "cursor.malformed", "who=p-1": "request.parameter_unknown",
	} {
		a := h.do(t, testRequest{method: "GET", path: "/api/access-log?" + query, token: "auditor"})
		require.Equal(t, http.StatusBadRequest, a.status, query)
		require.Equal(t, code, a.json(t)["code"], query)
	}
	a := h.do(t, testRequest{method: "GET", path: "/api/event-types", token: "auditor", header: map[string]string{"Access-Reason": "asked by olga@example.org"}})
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Equal(t, "pii.in_text", a.json(t)["code"])
}

// refusedRecord is a record of reads whose database is away.
type refusedRecord struct{ httpapi.Disclosures }

type refusedReader struct{ module.Reader }

func (refusedReader) Disclose(context.Context, []module.Opened) error { return errRecordAway }

var errRecordAway = fault.New(fault.Unavailable, "store.unavailable", "the database does not answer; try again")

func (r refusedRecord) Reader(ctx context.Context, p ports.Principal, why disclosure.Purpose) (module.Reader, error) {
	reader, err := r.Disclosures.Reader(ctx, p, why)
	return refusedReader{reader}, err
}

func (refusedRecord) Record(context.Context, ports.Principal, disclosure.Purpose, ...access.Access) error {
	return errRecordAway
}

// What cannot be recorded is not answered; what needs no record is.
func TestAccessLog_Unavailable(t *testing.T) {
	t.Parallel()
	var config *httpapi.Config
	keys := newSealingStub(t)
	h := startAPI(t, func(c *httpapi.Config) {
		c.Personal, c.Events = keys, sealedLog{c.Events, keys}
		config = c
	})
	machine, _ := h.personalRecords(t)
	config.Disclosures = refusedRecord{config.Disclosures}
	away := &apiFixture{network: h.network, tokens: h.tokens, log: h.log, store: h.store, router: h.router}
	away.serve(t, newServer(t, *config))
	for path, token := range map[string]string{
		"/api/events/" + machine: "module", "/api/events/export?stream_type=scope&stream_id=USMF": "auditor",
	} {
		a := away.do(t, testRequest{method: "GET", path: path, token: token})
		require.Equal(t, http.StatusServiceUnavailable, a.status, path)
		require.NotContains(t, string(a.body), "Ada")
	}
	require.Equal(t, http.StatusOK, away.do(t, testRequest{method: "GET", path: "/api/events/" + machine, token: "auditor"}).status)
}

// An auditor sees values in clear while a grant lasts, with a reason, and every read is recorded.
func TestDisclosures(t *testing.T) {
	t.Parallel()
	h := startSealedAPI(t, newSealingStub(t))
	machine, _ := h.personalRecords(t)
	read := func(reason string) string {
		a := h.do(t, testRequest{method: "GET", path: "/api/events/" + machine, token: "auditor", header: map[string]string{"Access-Reason": reason}})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return string(a.body)
	}
	grant := func(token, body string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/disclosures", token: token, body: body, header: map[string]string{"Idempotency-Key": "audit-2026"}})
	}
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	body := `{"person_id":"p-auditor","classes":["contact"],"until":"` + until + `","reason":"audit 2026"}`
	for _, token := range []string{"auditor", "admin", "controller", "german_compliance", "compliance_approver", "compliance_service"} {
		require.Equal(t, http.StatusForbidden, grant(token, body).status, token)
	}
	for _, broken := range []string{
		`{"person_id":"p-auditor","classes":["contact"],"until":"tomorrow","reason":"audit 2026"}`, `{"person_id":"","classes":["contact"],"until":"` + until + `","reason":"x"}`,
		`{"person_id":"p-auditor","classes":["contact"],"until":"` + until + `","reason":""}`, `{"person_id":"p-auditor","classes":["shoe_size"],"until":"` + until + `","reason":"x"}`,
	} {
		require.Equal(t, http.StatusBadRequest, grant("compliance", broken).status, broken)
	}
	require.Contains(t, read("ticket 4711"), "[MASKED]")
	made := grant("compliance", body)
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	require.Equal(t, true, made.json(t)["active"])
	again := grant("compliance", body)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, made.json(t), again.json(t))
	require.Contains(t, read(""), "[MASKED]")
	require.Contains(t, read("ticket 4711"), "call <Ada>")
	seen := h.accesses(t, "person=p-auditor&kind=personal_data")
	require.Len(t, seen, 1)
	require.Equal(t, "ticket 4711", seen[0]["reason"])

	id := made.json(t)["id"].(string)
	list := h.do(t, testRequest{method: "GET", path: "/api/disclosures", token: "auditor"})
	require.Len(t, list.json(t)["disclosures"], 1)
	second := strings.Replace(body, "contact", "bank", 1)
	require.NotEqual(t, body, second)
	newer := h.do(t, testRequest{method: "POST", path: "/api/disclosures", token: "compliance", body: second}).json(t)["id"]
	page := h.do(t, testRequest{method: "GET", path: "/api/disclosures?limit=1", token: "auditor"}).json(t)
	require.Equal(t, newer, page["disclosures"].([]any)[0].(map[string]any)["id"], "the newest first")
	require.Equal(t, true, page["has_more"])
	page = h.do(t, testRequest{method: "GET", path: "/api/disclosures?limit=1&cursor=" + page["next_cursor"].(string), token: "auditor"}).json(t)
	require.Equal(t, id, page["disclosures"].([]any)[0].(map[string]any)["id"])
	require.Equal(t, false, page["has_more"])
	require.Equal(t, "request.parameter_invalid", h.do(t, testRequest{method: "GET", path: "/api/disclosures?cursor=AAAA", token: "auditor"}).json(t)["code"])
	end := testRequest{method: "POST", path: "/api/disclosures/" + id + "/end", token: "compliance", body: `{"reason":"the audit is over"}`}
	ended := h.do(t, end)
	require.Equal(t, http.StatusOK, ended.status, string(ended.body))
	require.Equal(t, false, ended.json(t)["active"])
	require.Equal(t, http.StatusConflict, h.do(t, end).status)
	end.path = "/api/disclosures/unknown/end"
	require.Equal(t, http.StatusNotFound, h.do(t, end).status)
	require.Contains(t, read("ticket 4711"), "[MASKED]")
}
