package httpapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestRawEventRoundTrip(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	first := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", header: map[string]string{"Idempotency-Key": "k-1"},
		body: `{"events":[` + serviced(`"expected_version":0,"tags":["q1"],"occurred_at":"2026-03-31T12:00:00+02:00","effective_date":"2026-03-31"`) + `]}`})
	require.Equal(t, http.StatusCreated, first.status, string(first.body))
	receipt := first.json(t)["events"].([]any)[0].(map[string]any)
	require.Equal(t, "1", receipt["sequence"])
	require.EqualValues(t, 1, receipt["stream_version"])

	again := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", header: map[string]string{"Idempotency-Key": "k-1"},
		body: `{ "events": [` + serviced(`"expected_version":0,"tags":["q1"],"occurred_at":"2026-03-31T12:00:00+02:00","effective_date":"2026-03-31"`) + `] }`})
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, string(first.body), string(again.body))

	id := receipt["id"].(string)
	read := h.do(t, testRequest{method: "GET", path: "/api/events/" + id + "?legal_entity=USMF", token: "auditor"})
	require.Equal(t, http.StatusOK, read.status)
	e := read.json(t)["event"].(map[string]any)
	require.Equal(t, "2026-03-31T10:00:00.000000Z", e["occurred_at"])
	require.Equal(t, "2026-03-31", e["effective_date"])
	require.Equal(t, map[string]any{"type": "machine", "id": "M-17", "version": 1.0}, e["stream"])
	require.Equal(t, receipt["checksum"], e["metadata"].(map[string]any)["checksum"])
	require.Equal(t, "p-module", e["actor"].(map[string]any)["id"])
	require.NotContains(t, e, "caused_by")
	require.Contains(t, string(read.body), `"data":{"hours":2.5}`)

	// A second event, caused by the first, in another legal entity.
	second := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: `{"events":[` +
		strings.Replace(serviced(`"caused_by":"`+id+`","caused_by_legal_entity":"USMF","correlation_id":"c-1"`), "USMF", "DEMF", 1) + `]}`})
	require.Equal(t, http.StatusCreated, second.status, string(second.body))
	other := second.json(t)["events"].([]any)[0].(map[string]any)["id"].(string)
	lineage := h.do(t, testRequest{method: "GET", path: "/api/events/" + other + "/lineage", token: "auditor"}).json(t)
	require.EqualValues(t, 2, lineage["depth"])
	require.Equal(t, false, lineage["truncated"])
	chain := lineage["lineage"].([]any)
	require.Equal(t, id, chain[0].(map[string]any)["id"])
	require.Equal(t, "USMF", chain[1].(map[string]any)["caused_by_legal_entity"])

	// A caller who sees only DEMF learns that there are further causes, and not where.
	lineage = h.do(t, testRequest{method: "GET", path: "/api/events/" + other + "/lineage", token: "german_auditor"}).json(t)
	require.EqualValues(t, 1, lineage["depth"])
	require.Equal(t, true, lineage["truncated"])
	require.NotContains(t, lineage["lineage"].([]any)[0], "caused_by_legal_entity")

	for _, q := range []string{
		"stream_type=entity&stream_id=machine:M-17&legal_entity=USMF", "stream_type=scope&stream_id=USMF",
		"stream_type=type&stream_id=equipment.machine.serviced&legal_entity=USMF&effective_from=2026-03-31&effective_to=2026-03-31",
		"stream_type=scope&stream_id=USMF&from_date=2026-03-31&to_date=2026-03-31&event_types=note.page.added,equipment.machine.serviced",
		"stream_type=scope&stream_id=USMF&from_date=2026-03-31T10:00:00Z&to_date=2026-03-31T12:00:00%2B02:00&recorded_from=2020-01-01",
		"stream_type=tag&stream_id=q1&legal_entity=USMF",
		"stream_type=actor&stream_id=p-module&legal_entity=USMF&direction=backward", "stream_type=correlation&stream_id=c-1",
	} {
		page := h.do(t, testRequest{method: "GET", path: "/api/events?" + q, token: "auditor"})
		require.Equal(t, http.StatusOK, page.status, string(page.body))
		require.Len(t, page.json(t)["events"], 1, q)
		require.Equal(t, false, page.json(t)["has_more"])
	}
}

// A cause that is in no log is refused, on each route that appends, unless it may be unknown.
func TestUnknownCauses(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	for path, body := range map[string]string{
		"/api/events": serviced(`"caused_by":"01JQ8E6Z6G3V5T8C9N2M4K7R1P"`),
		"/api/streams/machine/M-18/events?legal_entity=USMF": `{"type":"equipment.machine.serviced","data":{"hours":2.5},"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":"M-18","role":"subject"}],"caused_by":"01JQ8E6Z6G3V5T8C9N2M4K7R1P"}`,
	} {
		refused := h.do(t, testRequest{method: "POST", path: path, token: "module", body: `{"events":[` + body + `]}`})
		require.Equal(t, http.StatusNotFound, refused.status, string(refused.body))
		require.Equal(t, "request.cause_unknown", refused.json(t)["code"])
		require.Equal(t, "/events/0/caused_by", refused.json(t)["field"])
		imported := h.do(t, testRequest{method: "POST", path: path, token: "module", body: `{"allow_unknown_cause":true,"events":[` + strings.ReplaceAll(body, "M-17", "M-18") + `]}`})
		require.Equal(t, http.StatusCreated, imported.status, string(imported.body))
	}
}

func TestListEventsTimeFilters(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	require.Equal(t, 201, h.do(t, testRequest{method: "POST", path: "/api/events", token: "module",
		body: `{"events":[` + serviced(`"occurred_at":"2026-03-31T10:00:00Z","effective_date":"2026-03-31"`) + `]}`}).status)
	for _, q := range []string{
		"from_date=2026-04-01", "to_date=2026-03-30", "to_date=2026-03-31T09:59:59Z", "recorded_to=2020-01-01", "effective_from=2026-04-01", "event_types=note.page.added",
	} {
		page := h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=scope&stream_id=USMF&" + q, token: "auditor"})
		require.Equal(t, `{"events":[],"has_more":false}`, string(page.body), q)
	}
}

// clientOf calls the server with the generated client.
func (h *apiFixture) clientOf(t *testing.T, role string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Server: h.url, Token: h.tokens[role]})
	require.NoError(t, err)
	return c
}

func TestClientReadsEvents(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	ctx, auditor := t.Context(), h.clientOf(t, "auditor")
	replayed := true
	appended, err := h.clientOf(t, "module").AppendEvents(ctx, client.AppendEventsParams{IdempotencyKey: "k"}, client.AppendRequest{Events: []client.NewEvent{{
		Type: "equipment.machine.serviced", Scope: client.NewScope{LegalEntity: "USMF"}, Stream: client.Stream{Type: "machine", ID: "M-1"},
		ExpectedVersion: json.RawMessage("0"), Data: json.RawMessage(`{"hours":1.50}`), Dimensions: map[string]string{"department": "OPS"},
		Entities: []client.EntityReference{{EntityType: "machine", EntityID: "M-1", Role: "subject"}},
	}}}, client.Replayed(&replayed))
	require.NoError(t, err)
	require.False(t, replayed)
	receipt := appended.Events[0]
	found, err := auditor.GetEvent(ctx, receipt.ID, client.GetEventParams{})
	require.NoError(t, err)
	e := found.Event
	require.Equal(t, `{"hours":1.50}`, string(e.Data))
	require.Equal(t, receipt.RecordedAt, e.RecordedAt)
	chain, err := auditor.GetLineage(ctx, e.ID, client.GetLineageParams{LegalEntity: "USMF"})
	require.NoError(t, err)
	require.Equal(t, client.Lineage{Lineage: []client.Event{e}, Depth: 1}, chain)
	tree, err := auditor.GetDescendants(ctx, e.ID, client.GetDescendantsParams{LegalEntity: "USMF"})
	require.NoError(t, err)
	require.Equal(t, client.Descendants{Descendants: []client.Descendant{}}, tree)
	process, err := auditor.GetProcess(ctx, e.CorrelationID, client.GetProcessParams{})
	require.NoError(t, err)
	require.Equal(t, []client.Event{e}, process.Events)
	require.Equal(t, []string{e.Actor.ID}, process.ActorsInvolved)
	page, err := auditor.ListEvents(ctx, client.ListEventsParams{StreamType: "scope", StreamID: "USMF"})
	require.NoError(t, err)
	require.Equal(t, []client.Event{e}, page.Events)
	withoutData := false
	page, err = auditor.ListEvents(ctx, client.ListEventsParams{StreamType: "scope", StreamID: "USMF", IncludeData: &withoutData})
	require.NoError(t, err)
	require.Empty(t, page.Events[0].Data)
}

func TestClientSubmitsIntents(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	ctx, clerk, controller := t.Context(), h.clientOf(t, "ap_clerk"), h.clientOf(t, "controller")
	out, err := clerk.SubmitIntent(ctx, client.SubmitIntentParams{IdempotencyKey: "k"}, client.IntentRequest{
		Type: "note.add_page", LegalEntity: "USMF", Payload: json.RawMessage(`{"number":"P-1","secret":true}`),
	})
	require.NoError(t, err)
	require.Equal(t, "pending_approval", out.Status)
	require.Equal(t, []string{"controller"}, out.Needs[0].Roles)
	_, err = controller.ApproveIntent(ctx, out.IntentID, client.ApproveIntentParams{}, client.ApproveRequest{PlanHash: "another plan"})
	require.Equal(t, "intent.plan_changed", fault.CodeOf(err))
	done, err := controller.ApproveIntent(ctx, out.IntentID, client.ApproveIntentParams{}, client.ApproveRequest{PlanHash: out.PlanHash, Comment: "fine"})
	require.NoError(t, err)
	require.Equal(t, "executed", done.Status)
	stored, err := clerk.GetIntent(ctx, out.IntentID, client.GetIntentParams{})
	require.NoError(t, err)
	require.Equal(t, done.Events, stored.Events)
	require.Equal(t, "note.add_page", stored.Type)
	var report struct {
		Header map[string]string `json:"header"`
	}
	require.NoError(t, h.clientOf(t, "auditor").ReadModel(ctx, "note/pages", url.Values{"legal_entity": {"USMF"}}, &report))
	require.Equal(t, "USMF", report.Header["legal_entity"])
}

func TestListEventsPaging(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	batch := strings.TrimSuffix(strings.Repeat(serviced("")+",", 5), ",")
	require.Equal(t, http.StatusCreated, h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: `{"events":[` + batch + `]}`}).status)
	path, seen := "/api/events?stream_type=scope&stream_id=USMF&limit=2", []string{}
	for next := path; next != ""; {
		page := h.do(t, testRequest{method: "GET", path: next, token: "auditor"}).json(t)
		for _, e := range page["events"].([]any) {
			seen = append(seen, e.(map[string]any)["sequence"].(string))
		}
		next = ""
		if page["has_more"] == true {
			next = path + "&cursor=" + page["next_cursor"].(string)
		}
	}
	require.Equal(t, []string{"1", "2", "3", "4", "5"}, seen)
}

func TestAppendExpectations(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	post := func(body string, header map[string]string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: body, header: header})
	}
	one := func(more string) string { return `{"events":[` + serviced(more) + `]}` }
	require.Equal(t, 201, post(one(`"expected_version":"no_stream"`), nil).status)
	require.Equal(t, 201, post(one(""), map[string]string{"Expected-Version": "1"}).status)
	require.Equal(t, 201, post(one(`"expected_entities":[{"entity_type":"machine","entity_id":"M-17","version":2}]`), nil).status)
	require.Equal(t, 201, post(`{"events":[`+serviced("")+`],"append_condition":{"legal_entity":"USMF","items":[{"entities":[{"entity_type":"machine","entity_id":"M-17"}]}],"after":"3"}}`, nil).status)

	stale := post(one(`"expected_version":1`), nil).json(t)
	require.Equal(t, "append.wrong_expected_version", stale["code"])
	require.EqualValues(t, 1, stale["expected"])
	require.EqualValues(t, 4, stale["actual"])
	for body, code := range map[string]string{
		one(`"expected_version":-1`):     "append.expected_version_invalid",
		one(`"expected_version":"soon"`): "append.expected_version_invalid",
		`{"events":[` + serviced(`"expected_version":4`) + `,` + serviced(`"expected_version":5`) + `]}`:                        "append.expected_version_conflict",
		one(`"expected_entities":[{"entity_type":"machine","entity_id":"M-17","version":"3"}]`):                                 "append.wrong_expected_version",
		`{"events":[` + serviced("") + `],"append_condition":{"items":[{"types":["equipment.machine.serviced"]}],"after":"3"}}`: "append.condition_failed",
		`{"events":[` + serviced("") + `],"append_condition":{"items":[{}],"after":"3"}}`:                                       "append.condition_invalid",
		`{"events":[` + serviced("") + `],"append_condition":{"legal_entity":"DEMF","items":[{"types":["x"]}],"after":"3"}}`:    "append.mixed_legal_entities",
	} {
		require.Equal(t, code, post(body, nil).json(t)["code"], body)
	}
}

func TestIntentLifecycle(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	submit := func(payload, more, key string) testAnswer {
		header := map[string]string{}
		if key != "" {
			header["Idempotency-Key"] = key
		}
		return h.do(t, testRequest{method: "POST", path: "/api/intents", token: "ap_clerk", header: header,
			body: `{"type":"note.add_page","legal_entity":"USMF","payload":` + payload + more + `}`})
	}
	planned := submit(`{"number":"P-1"}`, `,"dry_run":true`, "")
	require.Equal(t, http.StatusOK, planned.status, string(planned.body))
	require.Equal(t, "planned", planned.json(t)["status"])
	require.Len(t, planned.json(t)["drafts"], 1)

	done := submit(`{"number":"P-1","text":"<b> & more"}`, "", "k")
	require.Equal(t, http.StatusCreated, done.status, string(done.body))
	made := done.json(t)["events"].([]any)[0].(map[string]any)
	require.Equal(t, "1", made["sequence"])
	require.True(t, strings.HasPrefix(made["stream"].(string), "page/"))
	again := submit(`{"number":"P-1","text":"<b> & more"}`, "", "k")
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, string(done.body), string(again.body))

	taken := submit(`{"number":"P-1"}`, "", "")
	require.Equal(t, http.StatusConflict, taken.status)
	require.Equal(t, made["id"], taken.json(t)["holder"].(map[string]any)["event_id"])
	refused := h.do(t, testRequest{method: "GET", path: "/api/intents/" + taken.json(t)["intent_id"].(string), token: "ap_clerk"}).json(t)
	require.Equal(t, "append.duplicate_business_key", refused["refusal"].(map[string]any)["code"])

	waiting := submit(`{"number":"P-2","secret":true}`, "", "w")
	require.Equal(t, http.StatusAccepted, waiting.status, string(waiting.body))
	require.Equal(t, "pending_approval", waiting.json(t)["status"])
	id := waiting.json(t)["intent_id"].(string)
	replayed := submit(`{"number":"P-2","secret":true}`, "", "w")
	require.Equal(t, http.StatusOK, replayed.status)
	require.Equal(t, string(waiting.body), string(replayed.body))

	require.Equal(t, http.StatusForbidden, h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/approve", token: "ap_clerk"}).status)
	require.Equal(t, http.StatusNotFound, h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/approve", token: "german_controller"}).status)
	approved := h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/approve", token: "controller"})
	require.Equal(t, http.StatusCreated, approved.status, string(approved.body))
	require.Equal(t, "executed", approved.json(t)["status"])
	stored := h.do(t, testRequest{method: "GET", path: "/api/intents/" + id + "?legal_entity=USMF", token: "ap_clerk"}).json(t)
	require.Equal(t, "p-controller", stored["approvals"].([]any)[0].(map[string]any)["person_id"])
	require.Equal(t, "5", stored["events"].([]any)[0].(map[string]any)["sequence"])
	late := h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/reject", token: "controller", body: `{"reason":"too late"}`})
	require.Equal(t, http.StatusUnprocessableEntity, late.status)

	id = submit(`{"number":"P-3","secret":true}`, "", "").json(t)["intent_id"].(string)
	rejected := h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/reject", token: "controller", body: `{"reason":"not ours"}`})
	require.Equal(t, http.StatusOK, rejected.status, string(rejected.body))
	require.Equal(t, "rejected", rejected.json(t)["status"])

	id = submit(`{"number":"P-4","secret":true}`, "", "").json(t)["intent_id"].(string)
	withdraw := func(token, body string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/withdraw", token: token, body: body})
	}
	require.Equal(t, http.StatusBadRequest, withdraw("ap_clerk", `{"reason":" "}`).status)
	require.Equal(t, http.StatusForbidden, withdraw("auditor", `{"reason":"no right to submit"}`).status)
	require.Equal(t, "intent.not_requester", withdraw("controller", `{"reason":"of another person"}`).json(t)["code"])
	withdrawn := withdraw("ap_clerk", `{"reason":"submitted twice"}`)
	require.Equal(t, http.StatusOK, withdrawn.status, string(withdrawn.body))
	require.Equal(t, "withdrawn", withdrawn.json(t)["status"])
	require.Equal(t, http.StatusUnprocessableEntity, withdraw("ap_clerk", `{"reason":"again"}`).status)
}

func TestRegistryAndLegalEntities(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	all := h.do(t, testRequest{method: "GET", path: "/api/event-types", token: "operator"}).json(t)
	others := slices.DeleteFunc(all["event_types"].([]any), func(typ any) bool { return typ.(map[string]any)["module"] == "administration" })
	require.Len(t, others, 6+9, "those of the module and the streams, and those about intents")
	one := h.do(t, testRequest{method: "GET", path: "/api/event-types/equipment.machine.serviced", token: "operator"}).json(t)
	require.Len(t, one["versions"], 1)

	made := h.do(t, testRequest{method: "POST", path: "/api/admin/legal-entities", token: "admin", body: `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`})
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	logs, err := h.store.Directory.AdministrativeLogs(t.Context(), "demo")
	require.NoError(t, err)
	recorded, err := h.store.Events.EventsOfStream(t.Context(), logs[0].Partition, event.StreamID{Type: "backbone.legal_entity", ID: "FRMF"}, 1, 10)
	require.NoError(t, err)
	require.Len(t, recorded, 1)
	require.Equal(t, "p-admin", recorded[0].ActorID)
	twice := h.do(t, testRequest{method: "POST", path: "/api/admin/legal-entities", token: "admin", body: `{"code":"FRMF"}`})
	require.Equal(t, http.StatusConflict, twice.status)
	require.Len(t, h.do(t, testRequest{method: "GET", path: "/api/admin/legal-entities", token: "auditor"}).json(t)["legal_entities"], 3)
	require.Len(t, h.do(t, testRequest{method: "GET", path: "/api/admin/legal-entities", token: "german_auditor"}).json(t)["legal_entities"], 1)
}

func TestReadModels(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	path := "/api/note/pages?legal_entity=USMF&as_of=2026-03-31&prefix=P&limit=1"
	page := h.do(t, testRequest{method: "GET", path: path, token: "auditor"})
	require.Equal(t, http.StatusOK, page.status, string(page.body))
	cursor := page.json(t)["next_cursor"].(string)
	require.Equal(t, `{"header":{"legal_entity":"USMF","as_of":"2026-03-31","known_at":"seq:0","sequence":"0","prefix":"P"},`+
		`"rows":[{"length":"1.50","number":"P-1"}],"footer":{"total":"1.50"},"has_more":true,"next_cursor":"`+cursor+`"}`, string(page.body))
	require.Equal(t, string(page.body), string(h.do(t, testRequest{method: "GET", path: path, token: "auditor"}).body), "the same bytes for ever")
	rest := h.do(t, testRequest{method: "GET", path: path + "&cursor=" + cursor, token: "auditor"})
	require.Contains(t, string(rest.body), `"rows":[],"footer":{"total":"1.50"},"has_more":false}`)

	flat := h.do(t, testRequest{method: "GET", path: "/api/note/books/B%2F1/pages?legal_entity=USMF&as_of=2026-03-31", token: "auditor"})
	require.Equal(t, `{"legal_entity":"USMF","as_of":"2026-03-31","known_at":"seq:0","sequence":"0","book":"B/1","pages":[],"total":"1.50"}`, string(flat.body))

	sheet := h.do(t, testRequest{method: "GET", path: path + "&format=csv", token: "auditor"})
	require.Equal(t, "number,length\r\nP-1,1.50\r\n", string(sheet.body))
	require.Equal(t, "text/csv; charset=utf-8; header=present", sheet.header.Get("Content-Type"))
	require.Equal(t, cursor, sheet.header.Get("Next-Cursor"))
	sheet = h.do(t, testRequest{method: "GET", path: path + "&format=csv&cursor=" + cursor, token: "auditor"})
	require.Equal(t, "number,length\r\n", string(sheet.body))
	require.Empty(t, sheet.header.Get("Next-Cursor"))
	sheet = h.do(t, testRequest{method: "GET", path: "/api/note/pages?legal_entity=USMF&prefix=%3DSUM(A1)&limit=1&format=csv", token: "auditor"})
	require.Equal(t, "number,length\r\n'=SUM(A1)-1,1.50\r\n", string(sheet.body), "no formula for a spreadsheet")

	for query, code := range map[string]string{
		"":                                    "request.parameter_missing",
		"legal_entity=USMF&format=xml":        "request.parameter_invalid",
		"legal_entity=USMF&x=1":               "report.parameter_unknown",
		"legal_entity=USMF&prefix=a&prefix=b": "request.parameter_repeated",
		"legal_entity=USMF&limit=1001":        "request.parameter_invalid",
		"legal_entity=USMF&as_of=31.3.2026":   "report.as_of_invalid",
		"legal_entity=USMF&known_at=seq:99":   "report.known_at_in_future",
		"legal_entity=USMF&cursor=abc":        "cursor.malformed",
		"legal_entity=XXXX":                   "legal_entity.not_found",
		"legal_entity=USMF&min_sequence=-1":   "report.min_sequence_invalid",
	} {
		require.Equal(t, code, h.do(t, testRequest{method: "GET", path: "/api/note/pages?" + query, token: "auditor"}).json(t)["code"], query)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: "/livez"}).status)
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: "/readyz"}).status)
	for _, path := range []string{"/livez", "/readyz"} {
		answer, err := http.Head(h.url + path)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, path)
	}
	h.ready = func() map[string]error {
		return map[string]error{"database": errors.New("password=x"), "policies": nil}
	}
	down := h.do(t, testRequest{method: "GET", path: "/readyz"})
	require.Equal(t, http.StatusServiceUnavailable, down.status)
	require.Equal(t, `{"checks":{"database":"failing","policies":"ok"},"status":"failing"}`, string(down.body))
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: "/metrics"}).status)
}

func TestRequestLogHasNoContents(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.do(t, testRequest{method: "POST", path: "/api/intents", token: "ap_clerk", header: map[string]string{"X-Request-Id": "request-0001"},
		body: `{"type":"note.add_page","legal_entity":"USMF","payload":{"number":"NEVER-1"}}`})
	h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=entity&stream_id=page:NEVER-2&legal_entity=USMF", token: "auditor"})
	h.do(t, testRequest{method: "GET", path: "/api/NEVER-3", token: "auditor"})
	require.Eventually(t, func() bool { return strings.Count(h.log.String(), `"msg":"request"`) >= 3 }, waitFor, tick)
	text := h.log.String()
	require.NotContains(t, text, "NEVER")
	require.NotContains(t, text, "bbk_")
	require.Contains(t, text, `"request_id":"request-0001","method":"POST","route":"/api/intents","status":201`)
	require.Contains(t, text, `"person_id":"p-ap_clerk"`)
	require.Contains(t, text, `"route":"unmatched","status":404`)
}

// The personal fields of a registration come back as they were given.
func TestRegisterPersonalFields(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	fields := `[{"path":"$.contacts[*].email","class":"contact","subject":{"path":"$.contacts[*].person_id","type":"person"}},` +
		`{"path":"$.iban","class":"bank","subject":{"entity_role":"payee"}}]`
	body := `{"type":"hr.employee.hired","schema_version":1,"module":"hr","description":"Hired.","data_schema":{"type":"object","additionalProperties":false,"properties":{
		"iban":{"type":"string"},"contacts":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["person_id"],
		"properties":{"person_id":{"type":"string"},"email":{"type":"string"}}}}}},
		"required_entity_refs":[{"entity_type":"person","role":"payee","cardinality":"one"}],"pii_fields":` + fields + `}`
	key := map[string]string{"Idempotency-Key": "k-1"}
	made := h.do(t, testRequest{method: "POST", path: "/api/event-types", token: "admin", header: key, body: body})
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	again := h.do(t, testRequest{method: "POST", path: "/api/event-types", token: "admin", header: key, body: body})
	require.Equal(t, http.StatusOK, again.status, string(again.body))
	versions := h.do(t, testRequest{method: "GET", path: "/api/event-types/hr.employee.hired", token: "operator"}).json(t)["versions"].([]any)
	shown, err := json.Marshal(versions[0].(map[string]any)["pii_fields"])
	require.NoError(t, err)
	require.JSONEq(t, fields, string(shown))
}

// A submission that waited is answered with the executed intent when it is repeated after its approval,
// and executes nothing a second time.
func TestSubmit_RepeatedAfterApproval(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	submit := func() testAnswer {
		return h.do(t, testRequest{method: "POST", path: "/api/intents", token: "ap_clerk", header: map[string]string{"Idempotency-Key": "k-1"},
			body: `{"type":"note.add_page","legal_entity":"USMF","payload":{"number":"P-1","secret":true}}`})
	}
	log := func() string {
		read := h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=scope&stream_id=USMF", token: "auditor"})
		require.Equal(t, http.StatusOK, read.status, string(read.body))
		events, err := json.Marshal(read.json(t)["events"])
		require.NoError(t, err)
		return string(events)
	}
	waiting := submit()
	require.Equal(t, http.StatusAccepted, waiting.status, string(waiting.body))
	require.Empty(t, waiting.header.Get("Idempotency-Replayed"))
	approved := h.do(t, testRequest{method: "POST", path: "/api/intents/" + waiting.json(t)["intent_id"].(string) + "/approve", token: "controller"})
	require.Equal(t, http.StatusCreated, approved.status, string(approved.body))
	require.NotEmpty(t, approved.json(t)["events"])
	written := log()
	require.Contains(t, written, `"note.page.added"`)
	again := submit()
	require.Equal(t, http.StatusOK, again.status, string(again.body))
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, "executed", again.json(t)["status"])
	require.Equal(t, waiting.json(t)["intent_id"], again.json(t)["intent_id"])
	require.Equal(t, approved.json(t)["events"], again.json(t)["events"])
	require.Equal(t, written, log())
}

// Registrations store no idempotency keys: the stored version shows whether the same
// request was sent before, and the same key for another name takes effect.
func TestRepeatedAdministration(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	key := map[string]string{"Idempotency-Key": "k-1"}
	for path, bodies := range map[string][3]string{
		"/api/event-types": {
			`{"type":"desk.note.left","schema_version":1,"module":"desk","data_schema":{"type":"object"},"description":"a note"}`,
			`{"type":"desk.note.left","schema_version":1,"module":"desk","data_schema":{"type":"array"},"description":"a note"}`,
			`{"type":"desk.note.found","schema_version":1,"module":"desk","data_schema":{"type":"object"},"description":"a note"}`,
		},
		"/api/admin/legal-entities": {`{"code":"FRMF","name":"France"}`, `{"code":"FRMF","name":"Another"}`, `{"code":"ITMF","name":"France"}`},
	} {
		first := h.do(t, testRequest{method: "POST", path: path, token: "admin", header: key, body: bodies[0]})
		require.Equal(t, http.StatusCreated, first.status, string(first.body))
		again := h.do(t, testRequest{method: "POST", path: path, token: "admin", header: key, body: bodies[0]})
		require.Equal(t, http.StatusOK, again.status, string(again.body))
		require.JSONEq(t, string(first.body), string(again.body))
		other := h.do(t, testRequest{method: "POST", path: path, token: "admin", header: key, body: bodies[1]})
		require.Equal(t, http.StatusConflict, other.status, string(other.body))
		bare := h.do(t, testRequest{method: "POST", path: path, token: "admin", body: bodies[0]})
		require.Equal(t, http.StatusConflict, bare.status)
		renamed := h.do(t, testRequest{method: "POST", path: path, token: "admin", header: key, body: bodies[2]})
		require.Equal(t, http.StatusCreated, renamed.status, string(renamed.body))
		require.Empty(t, renamed.header.Get("Idempotency-Replayed"))
	}
}
