package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

const (
	waitFor = time.Minute
	tick    = 5 * time.Millisecond
)

var update = flag.Bool("update", false, "rewrite the expected problem documents")

var ulids = regexp.MustCompile(`[0-7][0-9A-HJKMNP-TV-Z]{25}`)

// expect compares a problem document with the committed one.
func expect(t *testing.T, name string, a testAnswer) {
	t.Helper()
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), string(a.body))
	var shown bytes.Buffer
	require.NoError(t, json.Indent(&shown, ulids.ReplaceAll(a.body, []byte("ULID")), "", "  "))
	shown.WriteByte('\n')
	file := filepath.Join("testdata", "problems", name+".json")
	if *update {
		require.NoError(t, os.WriteFile(file, shown.Bytes(), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), shown.String())
}

func events(items ...string) string { return `{"events":[` + strings.Join(items, ",") + `]}` }

func intentBody(payload string) string {
	return `{"type":"note.add_page","legal_entity":"USMF","payload":` + payload + `}`
}

// TestProblemDocuments sends requests that the API must refuse. Each gets its own
// problem document, and nothing is written.
func TestProblemDocuments(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	data := func(json string) string { return strings.Replace(serviced(""), `{"hours":2.5}`, json, 1) }
	filler := `{"hours":1,"filler":["` + strings.Repeat(strings.Repeat("x", 60<<10)+`","`, 34) + `"]}`
	crowd := `{"hours":1,"filler":[` + strings.Repeat("1,", 60_000) + `1]}`
	post := func(body string) testRequest {
		return testRequest{method: "POST", path: "/api/events", token: "module", body: body}
	}
	submit := func(body string) testRequest {
		return testRequest{method: "POST", path: "/api/intents", token: "ap_clerk", body: body}
	}
	get := func(path string) testRequest { return testRequest{method: "GET", path: path, token: "auditor"} }
	register := func(schema, fields string) testRequest {
		return testRequest{method: "POST", path: "/api/event-types", token: "admin", body: `{"type":"a.b.c","schema_version":1,"module":"x","data_schema":` + schema + `,"pii_fields":` + fields + `}`}
	}
	id := "01JWZX3V9K5T7Q8R2M4N6P0ABC"
	with := func(a testRequest, token string) testRequest { a.token = token; return a }
	before := h.heads(t)
	for _, c := range []struct {
		name   string
		status int
		ask    testRequest
	}{
		{"token_missing", 401, testRequest{method: "GET", path: "/api/event-types"}},
		{"token_wrong", 401, testRequest{method: "GET", path: "/api/event-types", token: "bbk_01jwzx3v9k5t7q8r2m4n6p0abc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}},
		{"token_expired", 401, testRequest{method: "GET", path: "/api/event-types", token: "expired"}},
		{"role_before_body", 403, with(post(`{"events": [broken`), "ap_clerk")},
		{"auditor_writes_nothing", 403, with(submit(intentBody(`{"number":"1"}`)), "auditor")},
		{"builtin_type_raw", 403, post(events(strings.Replace(serviced(""), "equipment.machine.serviced", "note.page.added", 1)))},
		{"unknown_legal_entity", 404, post(events(strings.Replace(serviced(""), "USMF", "XXXX", 1)))},
		{"legal_entity_out_of_sight", 404, with(post(events(serviced(""))), "german_module")},
		{"malformed", 400, post(`{"events": [`)},
		{"empty_body", 400, post("")},
		{"not_json", 415, testRequest{method: "POST", path: "/api/events", token: "module", body: "a=b", header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}},
		{"nested_100_deep", 413, post(events(data(`{"hours":1,"filler":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`)))},
		{"duplicate_keys", 400, post(events(data(`{"hours":1,"hours":2}`)))},
		{"duplicate_keys_folded", 400, post(events(data(`{"hours":1,"Hours":2}`)))},
		{"invalid_utf8", 400, post(events(data("{\"hours\":1,\"note\":\"\xff\"}")))},
		{"lone_surrogate", 400, post(events(data(`{"hours":1,"note":"\ud800"}`)))},
		{"nul_character", 400, post(events(data(`{"hours":1,"note":"\u0000"}`)))},
		{"nan", 400, post(events(data(`{"hours":NaN}`)))},
		{"huge_exponent", 400, post(events(data(`{"hours":1e1000000}`)))},
		{"sixteen_digits", 400, post(events(data(`{"hours":1.234567890123456}`)))},
		{"large_integer", 400, post(events(data(`{"hours":9007199254740993}`)))},
		{"event_2_mib", 413, post(events(data(filler)))},
		{"too_many_values", 413, post(events(data(crowd)))},
		{"body_5_mib", 413, post(events(data(filler), data(filler), data(filler)))},
		{"batch_empty", 400, post(events())},
		{"batch_101", 413, post(events(strings.Split(strings.TrimSuffix(strings.Repeat(serviced("")+"|", 101), "|"), "|")...))},
		{"two_legal_entities", 400, post(events(serviced(""), strings.Replace(serviced(""), "USMF", "DEMF", 1)))},
		{"unknown_type", 404, post(events(strings.Replace(serviced(""), "machine.serviced", "machine.sold", 1)))},
		{"schema_violation", 400, post(events(data(`{"hours":"two","extra":1}`)))},
		{"dimension_missing", 400, post(events(strings.Replace(serviced(""), `"department"`, `"cost_center"`, 1)))},
		{"reference_missing", 400, post(events(strings.Replace(serviced(""), `"subject"`, `"witness"`, 1)))},
		{"data_not_object", 400, post(events(data(`[1]`)))},
		{"actor_in_body", 400, post(events(serviced(`"actor":{"type":"human","id":"p-cfo"}`)))},
		{"tenant_in_scope", 400, post(events(strings.Replace(serviced(""), `"legal_entity":"USMF"`, `"legal_entity":"USMF","tenant_id":"other"`, 1)))},
		{"member_of_wrong_type", 400, post(events(strings.Replace(serviced(""), `"M-17"`, `17`, 1)))},
		{"time_invalid", 400, post(events(serviced(`"occurred_at":"yesterday"`)))},
		{"date_invalid", 400, post(events(serviced(`"effective_date":"2026-02-30"`)))},
		{"intent_type_unknown", 404, submit(`{"type":"note.burn","legal_entity":"USMF","payload":{}}`)},
		{"intent_actor_in_body", 400, submit(`{"type":"note.add_page","legal_entity":"USMF","payload":{"number":"1"},"actor":"x"}`)},
		{"intent_dry_run_in_address", 400, testRequest{method: "POST", path: "/api/intents?dry_run=true", token: "ap_clerk", body: intentBody(`{"number":"1"}`)}},
		{"lineage_parameter", 400, get("/api/events/" + id + "/lineage?limit=5")},
		{"intent_legal_entity_missing", 400, submit(`{"type":"note.add_page","payload":{"number":"1"}}`)},
		{"intent_payload_missing", 400, submit(`{"type":"note.add_page","legal_entity":"USMF"}`)},
		{"intent_schema_violation", 400, submit(intentBody(`{"number":7}`))},
		{"intent_forbidden", 403, with(submit(intentBody(`{"number":"1"}`)), "controller")},
		{"intent_not_found", 404, with(get("/api/intents/"+id), "ap_clerk")},
		{"event_not_found", 404, get("/api/events/" + id)},
		{"event_id_malformed", 404, get("/api/events/17?legal_entity=USMF")},
		{"stream_type_missing", 400, get("/api/events?legal_entity=USMF")},
		{"stream_type_unknown", 400, get("/api/events?stream_type=x&stream_id=y&legal_entity=USMF")},
		{"stream_id_missing", 400, get("/api/events?stream_type=scope&legal_entity=USMF")},
		{"stream_of_unregistered_type", 400, get("/api/events?stream_type=type&stream_id=equipment.machine.serviecd&legal_entity=USMF")},
		{"filter_type_unregistered", 400, get("/api/events/export?stream_type=scope&stream_id=USMF&event_types=equipment.machine.serviced,equipment.machine.serviecd")},
		{"filter_repeated", 400, get("/api/events?stream_type=scope&stream_id=USMF&limit=1&limit=2")},
		{"filter_unknown", 400, get("/api/events?stream_type=scope&stream_id=USMF&form_date=2026-01-01")},
		{"filter_invalid", 400, get("/api/events?stream_type=scope&stream_id=USMF&from_date=1.1.2026")},
		{"filter_reversed", 400, get("/api/events?stream_type=scope&stream_id=USMF&from_date=2026-02-01&to_date=2026-01-31")},
		{"sequences_reversed", 400, get("/api/events?stream_type=scope&stream_id=USMF&from_sequence=8&to_sequence=7")},
		{"sequence_invalid", 400, get("/api/events?stream_type=scope&stream_id=USMF&from_sequence=0")},
		{"schema_version_zero", 400, post(events(serviced(`"schema_version":0`)))},
		{"schema_version_zero_stream", 400, testRequest{method: "POST", path: "/api/streams/machine/M-17/events?legal_entity=USMF", token: "module", body: `{"events":[{"type":"equipment.machine.serviced","schema_version":0,"data":{"hours":1}}]}`}},
		{"schema_version_zero_deprecated", 400, testRequest{method: "POST", path: "/api/event-types/equipment.machine.serviced/deprecate", token: "admin", body: `{"schema_version":0}`}},
		{"schema_version_invalid", 400, get("/api/events?stream_type=scope&stream_id=USMF&schema_version=v1")},
		{"module_unknown", 400, get("/api/events?stream_type=scope&stream_id=USMF&modules=note,nothing")},
		{"dimension_invalid", 400, get("/api/events?stream_type=dimension&stream_id=department&legal_entity=USMF")},
		{"predicate_path", 400, get("/api/events?stream_type=scope&stream_id=USMF&path=$..hours&operator=eq&value=1")},
		{"predicate_operator", 400, get("/api/events?stream_type=scope&stream_id=USMF&path=$.hours&operator=like&value=1")},
		{"predicate_value", 400, get("/api/events?stream_type=scope&stream_id=USMF&path=$.hours&operator=lt&value=true")},
		{"include_data_invalid", 400, get("/api/events?stream_type=scope&stream_id=USMF&include_data=no")},
		{"export_limit_invalid", 400, get("/api/events/export?stream_type=scope&stream_id=USMF&limit=-1")},
		{"export_not_allowed", 403, with(get("/api/events/export?stream_type=scope&stream_id=USMF"), "admin")},
		{"stream_delete_not_found", 404, testRequest{method: "DELETE", path: "/api/streams/machine/M-17?legal_entity=USMF", token: "module"}},
		{"stream_tombstone_role", 403, testRequest{method: "DELETE", path: "/api/streams/machine/M-17?legal_entity=USMF&hard=true", token: "module"}},
		{"stream_hard_invalid", 400, testRequest{method: "DELETE", path: "/api/streams/machine/M-17?legal_entity=USMF&hard=1", token: "admin"}},
		{"stream_of_module_deleted", 422, testRequest{method: "DELETE", path: "/api/streams/note.page/1?legal_entity=USMF", token: "admin"}},
		{"stream_expected_invalid", 400, testRequest{method: "DELETE", path: "/api/streams/machine/M-17?legal_entity=USMF", token: "admin", header: map[string]string{"Expected-Version": "-1"}}},
		{"stream_metadata_invalid", 400, testRequest{method: "PUT", path: "/api/streams/machine/M-17/metadata?legal_entity=USMF", token: "admin", body: `{"max_count":0}`}},
		{"stream_metadata_unknown", 400, testRequest{method: "PUT", path: "/api/streams/machine/M-17/metadata?legal_entity=USMF", token: "admin", body: `{"max_events":1}`}},
		{"stream_metadata_header", 400, testRequest{method: "PUT", path: "/api/streams/machine/M-17/metadata?legal_entity=USMF", token: "admin", body: `{"cache_control":"no-store\r\nX-Other: 1"}`}},
		{"stream_metadata_role", 400, testRequest{method: "PUT", path: "/api/streams/machine/M-17/metadata?legal_entity=USMF", token: "admin", body: `{"acl":{"read":["chef"]}}`}},
		{"stream_metadata_not_found", 404, get("/api/streams/machine/M-17/metadata?legal_entity=USMF")},
		{"stream_event_raw", 403, post(events(strings.Replace(serviced(""), "equipment.machine.serviced", "stream.tombstoned", 1)))},
		{"stream_not_found", 404, get("/api/streams/machine/M-17?legal_entity=USMF")},
		{"stream_count_invalid", 400, get("/api/streams/machine/M-17?legal_entity=USMF&count=0")},
		{"all_from_malformed", 400, get("/api/streams/$all?from=17")},
		{"limit_invalid", 400, get("/api/events?stream_type=scope&stream_id=USMF&limit=0")},
		{"cursor_malformed", 400, get("/api/events?stream_type=scope&stream_id=USMF&cursor=x")},
		{"query_separator", 400, get("/api/events?stream_type=scope&stream_id=USMF&event_types=note.page.added;x")},
		{"query_escape", 400, get("/api/note/pages?legal_entity=USMF&as_of=2026-01-01%zz")},
		{"query_name", 400, get("/api/note/pages?legal_entity=USMF&%ff=1")},
		{"query_nul", 400, get("/api/events?stream_type=scope&stream_id=USMF&event_types=%00")},
		{"query_not_utf8", 400, get("/api/note/pages?legal_entity=USMF&prefix=%ff")},
		{"path_nul", 400, get("/api/note/books/a%00b/pages?legal_entity=USMF")},
		{"path_not_utf8", 400, get("/api/note/books/%ff/pages?legal_entity=USMF")},
		{"stream_of_module", 403, post(events(serviced(""), strings.Replace(serviced(""), `"stream":{"type":"machine"`, `"stream":{"type":"note.page"`, 1)))},
		{"intent_unknown_legal_entity", 404, submit(`{"type":"note.add_page","legal_entity":"XXXX","payload":{"number":"1"}}`)},
		{"reject_blank_reason", 400, testRequest{method: "POST", path: "/api/intents/" + id + "/reject", token: "controller", body: `{"reason":" \t"}`}},
		{"path_unknown", 404, get("/api/nothing/here")},
		{"method_unknown", 405, testRequest{method: "DELETE", path: "/api/events", token: "admin"}},
		{"event_type_unknown", 404, get("/api/event-types/a.b")},
		{"event_type_of_module", 403, testRequest{method: "POST", path: "/api/event-types", token: "admin", body: `{"type":"note.page.burnt","schema_version":1,"module":"x","data_schema":{"type":"object"}}`}},
		{"event_type_pii", 400, register(`{"type":"object"}`, `[{"path":"/name","class":"contact"}]`)},
		{"event_type_pii_findings", 400, register(`{"type":"object","properties":{"email":{"type":"string"},"iban":{"type":"string"}}}`,
			`[{"path":"$.phone","class":"contact","subject":{"entity_role":"hired"}},{"path":"$.email","class":"letters","subject":{"role":"hired"}}]`)},
		{"event_type_pii_unreachable", 400, register(`{"type":"object","properties":{"email":{"type":"string"},"iban":{"type":"string"}}}`,
			`[{"path":"$.phone","class":"contact","subject":{"entity_role":"hired"}},{"path":"$.email","class":"contact","subject":{"path":"$.id","type":"employee"}}]`)},
		{"legal_entity_code", 400, testRequest{method: "POST", path: "/api/admin/legal-entities", token: "admin", body: `{"code":"no good"}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := h.do(t, c.ask)
			require.Equal(t, c.status, a.status, string(a.body))
			expect(t, c.name, a)
			if c.status == http.StatusUnauthorized {
				require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
			}
		})
	}
	for p, head := range before {
		since, err := h.store.Events.Events(t.Context(), ports.EventQuery{Partition: p, After: head})
		require.NoError(t, err)
		for _, e := range since {
			require.Contains(t, []string{intent.Refused, administration.TokenExpired}, e.Type, "nothing but refusals was written")
		}
	}
}

// A body that is over the limit is refused while its sender is still sending.
func TestEndlessBody(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	reader, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	go func() {
		_, _ = io.WriteString(writer, `{"events":[`+strings.Repeat(" ", 4<<20))
		// The rest never comes.
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/api/events", reader)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+h.tokens["module"])
	r.Header.Set("Content-Type", "application/json")
	res, err := h.client.Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	require.True(t, res.Close)
}

// A body that is announced as too large is refused before any of it is sent.
func TestAnnouncedBodyLength(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	connection, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	require.NoError(t, connection.SetDeadline(time.Now().Add(waitFor)))
	_, err = fmt.Fprintf(connection, "POST /api/intents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n", h.tokens["ap_clerk"])
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(connection), nil)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	require.True(t, res.Close)
}

// failingAccess is an access service that always fails.
type failingAccess struct {
	httpapi.Access
	err error
}

func (n failingAccess) Authenticate(context.Context, string) (ports.Principal, error) {
	if n.err == nil {
		panic("secret in a panic")
	}
	return ports.Principal{}, n.err
}

func TestUnexpectedErrors(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		err        error
		status     int
		retryAfter string
	}{
		"internal_panic":    {nil, 500, ""},
		"internal_error":    {fmt.Errorf("secret in an error"), 500, ""},
		"internal_fault":    {fault.New(fault.Internal, "append.rejected_by_store", "the store refused a value; tell an operator").WithCause(fmt.Errorf("secret")), 500, ""},
		"deadline_passed":   {fmt.Errorf("read: %w", context.DeadlineExceeded), 504, ""},
		"queue_full":        {fault.New(fault.Unavailable, "append.queue_full", "too many wait; send it again").WithRetryAfter(1500 * time.Millisecond), 503, "2"},
		"store_away":        {fault.New(fault.Unavailable, "store.unavailable", "the store is away; send it again"), 503, "1"},
		"attributes_nested": {fault.New(fault.Conflict, "x.y", "no; stop").With("status", "lost").With("needs", []string{"<b>"}).WithNumbers(0, "2"), 409, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, httpapi.Config{Access: failingAccess{err: c.err}, Catalog: catalog, Limits: limitsOf(nil)})
			answer := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/api/events/x", nil)
			r.Header.Set("X-Request-Id", "request-0001")
			s.Handler().ServeHTTP(answer, r)
			require.Equal(t, c.status, answer.Code)
			require.Equal(t, c.retryAfter, answer.Header().Get("Retry-After"))
			require.NotContains(t, answer.Body.String(), "secret")
			expect(t, name, testAnswer{status: answer.Code, header: answer.Header(), body: answer.Body.Bytes()})
		})
	}
}

// allowingAccess allows every request.
type allowingAccess struct{ httpapi.Access }

func (allowingAccess) Authenticate(context.Context, string) (ports.Principal, error) {
	return ports.Principal{TenantID: "demo", PersonID: "p-1", ActorType: event.Human}, nil
}

func (allowingAccess) Authorize(context.Context, ports.Principal, tenancy.Action) error { return nil }

// A sender that stalls does not hold a connection for ever.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		catalog, err := module.Build(nil)
		require.NoError(t, err)
		s := newServer(t, httpapi.Config{Access: allowingAccess{}, Catalog: catalog, Limits: limitsOf(nil)})
		h := &apiFixture{network: memoryNetwork}
		h.serve(t, s)
		for name, body := range map[string]string{"stalls": "2\r\n{}\r\n", "breaks off": "2\r\n{}\r\nnonsense\r\n"} {
			connection, begun := h.dialRaw(t), time.Now()
			_, err := io.WriteString(connection, "POST /api/intents HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"+body)
			require.NoError(t, err)
			res, err := http.ReadResponse(bufio.NewReader(connection), nil)
			require.NoError(t, err, name)
			text, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.True(t, res.Close)
			if name == "stalls" {
				require.Equal(t, http.StatusGatewayTimeout, res.StatusCode)
				require.Contains(t, string(text), "http.body_too_slow")
				require.Equal(t, limitsOf(nil).Body, time.Since(begun))
			} else {
				require.Equal(t, http.StatusBadRequest, res.StatusCode)
				require.Contains(t, string(text), "http.body_incomplete")
			}
		}
	})
}
