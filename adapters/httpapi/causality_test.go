package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// appendCausedService appends one event to a legal entity and returns its id.
func (h *apiFixture) appendCausedService(t *testing.T, entity, more string) string {
	t.Helper()
	a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(strings.Replace(serviced(more), "USMF", entity, 1))})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	return a.json(t)["events"].([]any)[0].(map[string]any)["id"].(string)
}

func TestDescendantsAndProcess(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	caused := func(by, in string) string {
		return fmt.Sprintf(`"caused_by":%q,"caused_by_legal_entity":%q,"correlation_id":"c/1 ä"`, by, in)
	}
	a := h.appendCausedService(t, "USMF", `"correlation_id":"c/1 ä"`)
	b := h.appendCausedService(t, "USMF", caused(a, "USMF"))
	c := h.appendCausedService(t, "DEMF", caused(a, "USMF"))
	d := h.appendCausedService(t, "DEMF", caused(c, "DEMF"))
	h.appendCausedService(t, "USMF", "")
	get := func(path, token string) map[string]any {
		t.Helper()
		answer := h.do(t, testRequest{method: "GET", path: path, token: token})
		require.Equal(t, http.StatusOK, answer.status, string(answer.body))
		return answer.json(t)
	}

	tree := get("/api/events/"+a+"/descendants?legal_entity=USMF", "auditor")
	require.EqualValues(t, 3, tree["count"])
	require.Equal(t, false, tree["truncated"])
	require.NotContains(t, tree, "left_out")
	for i, want := range []struct {
		id, parent string
		depth      float64
	}{{b, a, 1}, {c, a, 1}, {d, c, 2}} {
		got := tree["descendants"].([]any)[i].(map[string]any)
		require.Equal(t, want.id, got["event"].(map[string]any)["id"])
		require.Equal(t, want.parent, got["parent"])
		require.Equal(t, want.depth, got["depth"])
	}
	require.Equal(t, "USMF", tree["descendants"].([]any)[1].(map[string]any)["event"].(map[string]any)["caused_by_legal_entity"])

	tree = get("/api/events/"+a+"/descendants?limit=2", "auditor")
	require.EqualValues(t, 2, tree["count"])
	require.Equal(t, []any{map[string]any{"reason": "count"}}, tree["left_out"])

	// A caller who sees only USMF learns at which event the branch in DEMF begins, and nothing of
	// its events.
	tree = get("/api/events/"+a+"/descendants", "american_auditor")
	require.EqualValues(t, 1, tree["count"])
	require.Equal(t, true, tree["truncated"])
	require.Equal(t, []any{map[string]any{"reason": "legal_entity", "event_id": a}}, tree["left_out"])
	lineage := get("/api/events/"+d+"/lineage", "german_auditor")
	require.EqualValues(t, 2, lineage["depth"])
	require.Equal(t, []any{map[string]any{"reason": "legal_entity", "event_id": c}}, lineage["left_out"])
	require.Equal(t, http.StatusNotFound, h.do(t, testRequest{method: "GET", path: "/api/events/" + a + "/descendants", token: "german_auditor"}).status)

	process := get("/api/events/process/"+url.PathEscape("c/1 ä"), "auditor")
	require.Equal(t, "c/1 ä", process["correlation_id"])
	require.Len(t, process["events"], 4)
	require.Equal(t, []any{"p-module"}, process["actors_involved"])
	require.Equal(t, []any{map[string]any{"entity_type": "machine", "entity_id": "M-17", "role": "subject"}}, process["entities_involved"])
	require.Equal(t, false, process["truncated"])
	steps := process["steps"].([]any)
	require.Equal(t, map[string]any{"event_id": a, "since_start_ms": 0.0, "since_previous_ms": 0.0}, steps[0])
	require.Equal(t, process["process_duration_ms"], steps[3].(map[string]any)["since_start_ms"])

	process = get("/api/events/process/"+url.PathEscape("c/1 ä")+"?limit=1", "german_auditor")
	require.Len(t, process["events"], 1)
	require.Equal(t, []any{map[string]any{"reason": "count"}, map[string]any{"reason": "legal_entity"}}, process["left_out"])

	for name, c := range map[string]testRequest{
		"descendants_not_found":  {path: "/api/events/01JWZX3V9K5T7Q8R2M4N6P0ABC/descendants"},
		"descendants_of_nothing": {path: "/api/events/17/descendants"},
		"descendants_limit":      {path: "/api/events/" + a + "/descendants?limit=1001"},
		"descendants_parameter":  {path: "/api/events/" + a + "/descendants?depth=3"},
		"process_not_found":      {path: "/api/events/process/c-2"},
		"process_limit":          {path: "/api/events/process/c-2?limit=0"},
		"process_role":           {path: "/api/events/process/c-2", token: "operator"},
		"figure_role":            {path: "/api/trace/" + a + "?legal_entity=USMF", token: "operator"},
		"figure_legal_entity":    {path: "/api/trace/" + a + "?legal_entity=USMF", token: "german_auditor"},
		"figure_unknown":         {path: "/api/trace/gl:nothing:1?legal_entity=USMF"},
		"figure_limit":           {path: "/api/trace/" + a + "?legal_entity=USMF&limit=51"},
	} {
		c.method = "GET"
		if c.token == "" {
			c.token = "auditor"
		}
		expect(t, name, h.do(t, c))
	}
}

// The events of a correlation id include those of the administrative log for an auditor of the
// whole tenant. Others get the answer for an unknown id.
func TestCorrelation_administrativeLog(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	get := func(path, token string) testAnswer {
		return h.do(t, testRequest{method: "GET", path: path, token: token})
	}
	made := h.do(t, testRequest{method: "POST", path: "/api/admin/legal-entities", token: "admin", body: `{"code":"FRMF"}`})
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	recorded := get("/api/events?legal_entity=_ADMIN&stream_type=type&stream_id=backbone.legal_entity.created&direction=backward&limit=1", "auditor")
	require.Equal(t, http.StatusOK, recorded.status, string(recorded.body))
	e := recorded.json(t)["events"].([]any)[0].(map[string]any)
	id, correlation := e["id"], e["correlation_id"].(string)
	h.appendCausedService(t, "USMF", fmt.Sprintf(`"correlation_id":%q`, correlation))

	process, search := "/api/events/process/"+correlation, "?stream_type=correlation&stream_id="+correlation
	for _, path := range []string{process, "/api/events" + search} {
		answer := get(path, "auditor")
		require.Equal(t, http.StatusOK, answer.status, string(answer.body))
		found := answer.json(t)["events"].([]any)
		require.Len(t, found, 2, path)
		require.Equal(t, id, found[0].(map[string]any)["id"])
	}
	first := get("/api/events"+search+"&limit=1", "auditor").json(t)
	second := get("/api/events"+search+"&limit=1&cursor="+first["next_cursor"].(string), "auditor").json(t)
	require.Len(t, second["events"], 1)
	require.Equal(t, false, second["has_more"])
	require.Len(t, bytes.Split(bytes.TrimSpace(get("/api/events/export"+search, "auditor").body), []byte("\n")), 2)

	for _, token := range []string{"ap_clerk", "american_auditor"} {
		answer := get(process, token)
		require.Equal(t, http.StatusOK, answer.status, string(answer.body))
		require.Len(t, answer.json(t)["events"], 1, token)
		require.NotContains(t, answer.json(t), "left_out", token)
		require.Len(t, get("/api/events"+search, token).json(t)["events"], 1, token)
		require.NotContains(t, string(get("/api/events/export"+search, token).body), "_ADMIN", token)
	}
	require.Equal(t, "process.not_found", get(process, "german_auditor").json(t)["code"])
}

func TestQueryAppendCondition(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	for i := range 5 {
		h.appendCausedService(t, "USMF", fmt.Sprintf(`"tags":["plant-%d"]`, i%2))
	}
	h.appendCausedService(t, "DEMF", `"tags":["plant-0"]`)
	read := func(more string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/query", token: "module",
			body: `{"legal_entity":"USMF","items":[{"tags":["plant-0"]},{"types":["a.b.c"],"entities":[{"entity_type":"machine","entity_id":"M-17"}]}]` + more + `}`})
	}
	appendWith := func(condition string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/events", token: "module",
			body: `{"events":[` + serviced(`"tags":["plant-0"]`) + `],"append_condition":` + condition + `}`})
	}
	// condition is the text of the answer's member, taken as it is.
	condition := func(a testAnswer) string {
		_, rest, found := strings.Cut(string(a.body), `"append_condition":`)
		require.True(t, found)
		return strings.TrimSuffix(rest, "}")
	}

	first := read(`,"limit":2`)
	require.Equal(t, http.StatusOK, first.status, string(first.body))
	require.Len(t, first.json(t)["events"], 2)
	require.Equal(t, true, first.json(t)["has_more"])
	require.JSONEq(t, `{"legal_entity":"USMF","items":[{"tags":["plant-0"]},{"types":["a.b.c"],"entities":[{"entity_type":"machine","entity_id":"M-17"}]}],"after":"3"}`, condition(first))
	refused := appendWith(condition(first))
	require.Equal(t, http.StatusConflict, refused.status)
	require.Equal(t, "append.condition_failed", refused.json(t)["code"])
	require.Equal(t, "5", refused.json(t)["holder"].(map[string]any)["sequence"])

	last := read(`,"limit":2,"after":"3"`)
	require.Len(t, last.json(t)["events"], 1)
	require.Equal(t, false, last.json(t)["has_more"])
	require.Equal(t, "5", last.json(t)["append_condition"].(map[string]any)["after"])
	require.Equal(t, http.StatusCreated, appendWith(condition(last)).status)
	refused = appendWith(condition(last))
	expect(t, "query_condition_failed", refused)

	post := func(body string) testRequest {
		return testRequest{method: "POST", path: "/api/query", token: "module", body: body}
	}
	many := func(n int, text string) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	item := func(inner string) testRequest { return post(`{"legal_entity":"USMF","items":[` + inner + `]}`) }
	for name, a := range map[string]testRequest{
		"query_items_missing":       post(`{"legal_entity":"USMF"}`),
		"query_legal_entity":        post(`{"items":[{"tags":["x"]}]}`),
		"query_out_of_sight":        {method: "POST", path: "/api/query", token: "german_module", body: `{"legal_entity":"USMF","items":[{"tags":["x"]}]}`},
		"query_role":                {method: "POST", path: "/api/query", token: "operator", body: `{"legal_entity":"USMF","items":[{"tags":["x"]}]}`},
		"query_item_empty":          item(`{"tags":["x"]},{}`),
		"query_tag_empty":           item(`{"tags":[""]}`),
		"query_entity_empty":        item(`{"entities":[{"entity_type":"machine","entity_id":""}]}`),
		"query_items_many":          item(many(65, `{"tags":["x"]}`)),
		"query_tags_many":           item(`{"tags":[` + many(17, `"x"`) + `]}`),
		"query_types_many":          item(`{"types":[` + many(129, `"a.b"`) + `]}`),
		"query_limit":               post(`{"legal_entity":"USMF","items":[{"tags":["x"]}],"limit":0}`),
		"query_after":               post(`{"legal_entity":"USMF","items":[{"tags":["x"]}],"after":"-1"}`),
		"query_after_beyond":        post(`{"legal_entity":"USMF","items":[{"tags":["x"]}],"after":"7"}`),
		"query_member_unknown":      post(`{"legal_entity":"USMF","items":[{"tags":["x"],"tag":"y"}]}`),
		"append_condition_too_many": {method: "POST", path: "/api/events", token: "module", body: `{"events":[` + serviced("") + `],"append_condition":{"after":"0","items":[` + many(65, `{"tags":["x"]}`) + `]}}`},
	} {
		expect(t, name, h.do(t, a))
	}
}

func (l sealedLog) Descendants(ctx context.Context, le ports.LegalEntity, codes []string, id event.ID, limit int) (query.Descendants, error) {
	found, err := l.log.Descendants(ctx, le, codes, id, limit)
	for i := range found.Events {
		one := []event.Recorded{found.Events[i].Event}
		l.seal(one)
		found.Events[i].Event = one[0]
	}
	return found, err
}

func (l sealedLog) Process(ctx context.Context, q query.ProcessQuery) (query.Process, error) {
	found, err := l.log.Process(ctx, q)
	l.seal(found.Events)
	return found, err
}

func (l sealedLog) Match(ctx context.Context, q query.MatchQuery) (query.MatchPage, error) {
	page, err := l.log.Match(ctx, q)
	l.seal(page.Events)
	return page, err
}

func TestPersonalValuesInCausality(t *testing.T) {
	t.Parallel()
	keys := newSealingStub(t)
	h := startSealedAPI(t, keys)
	h.machineType(t)
	cause := h.appendCausedService(t, "USMF", `"correlation_id":"c-1"`)
	for _, note := range []string{"call <Ada>", "erased"} {
		a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(strings.Replace(
			serviced(`"correlation_id":"c-1","tags":["call"],"caused_by":"`+cause+`"`), `{"hours":2.5}`, `{"hours":2.5,"note":"`+note+`"}`, 1))})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
	}
	for name, a := range map[string]testRequest{
		"descendants": {method: "GET", path: "/api/events/" + cause + "/descendants"},
		"process":     {method: "GET", path: "/api/events/process/c-1"},
		"query":       {method: "POST", path: "/api/query", body: `{"legal_entity":"USMF","items":[{"tags":["call"]}]}`},
	} {
		for token, shown := range map[string][]string{
			"module": {`"note":"call <Ada>"`, `"note":"[REDACTED]"`}, "auditor": {`"note":"[MASKED]"`}, "controller": {`"note":"[MASKED]"`},
		} {
			keys.count()
			a.token = token
			got := h.do(t, a)
			require.Equal(t, http.StatusOK, got.status, "%s: %s", name, got.body)
			for _, want := range shown {
				require.Contains(t, string(got.body), want, "%s by %s", name, token)
			}
			require.NotContains(t, string(got.body), "$pii")
			require.Equal(t, 1, keys.count(), "%s by %s: one batch of keys for the whole answer", name, token)
		}
		keys.fail(fault.New(fault.Unavailable, "kms.unavailable", "the key service is away; try again"))
		require.Equal(t, http.StatusServiceUnavailable, h.do(t, a).status, "an outage is no redaction")
		keys.fail(nil)
	}
}
