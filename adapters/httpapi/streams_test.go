package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func init() {
	openapi3filter.RegisterBodyDecoder("application/jsonl", openapi3filter.FileBodyDecoder)
}

// appendMachines appends events of a machine, ten in a batch, each with its number.
func (h *apiFixture) appendMachines(t *testing.T, legalEntity string, n int) {
	t.Helper()
	for done := 0; done < n; {
		var batch []string
		for ; done < n && len(batch) < 100; done++ {
			e := strings.Replace(serviced(fmt.Sprintf(`"tags":["t%d"],"source":{"system":"mes","channel":"api","reference":"r%d"}`, done%3, done%2)), `{"hours":2.5}`, fmt.Sprintf("{\n  \"hours\": %d\n}", done+1), 1)
			e = strings.Replace(e, `"legal_entity":"USMF"`, fmt.Sprintf(`"legal_entity":%q,"division":"D%d"`, legalEntity, done%2), 1)
			batch = append(batch, strings.Replace(e, `"department":"OPS"`, fmt.Sprintf(`"department":"P%d"`, done%4), 1))
		}
		a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(batch...)})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
	}
}

type eventAnswer struct {
	Sequence       string          `json:"sequence"`
	GlobalPosition string          `json:"global_position"`
	Data           json.RawMessage `json:"data"`
	Scope          struct {
		LegalEntity string `json:"legal_entity"`
	} `json:"scope"`
}

type pageAnswer struct {
	Events       []eventAnswer `json:"events"`
	HasMore      bool          `json:"has_more"`
	NextCursor   string        `json:"next_cursor"`
	NextFrom     int           `json:"next_from"`
	NextPosition string        `json:"next_position"`
	Stream       struct {
		Version int `json:"version"`
	} `json:"stream"`
}

func (h *apiFixture) page(t *testing.T, path, token string) pageAnswer {
	t.Helper()
	a := h.do(t, testRequest{method: "GET", path: path, token: token})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	var out pageAnswer
	require.NoError(t, json.Unmarshal(a.body, &out))
	return out
}

func (p pageAnswer) sequences() string {
	out := make([]string, len(p.Events))
	for i, e := range p.Events {
		out[i] = e.Sequence
	}
	return strings.Join(out, " ")
}

func TestFiltersOfEvents(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 12)
	for filter, want := range map[string]string{
		"": "1 2 3 4 5 6 7 8 9 10 11 12",
		"&division=D1&from_sequence=3&to_sequence=8":                                   "4 6 8",
		"&direction=backward&from_sequence=10":                                         "12 11 10",
		"&source_reference=r0&source_system=mes&source_channel=api&to_sequence=5":      "1 3 5",
		"&source_system=other":                                                         "",
		"&schema_version=1&limit=2":                                                    "1 2",
		"&schema_version=2":                                                            "",
		"&modules=equipment&to_sequence=2":                                             "1 2",
		"&modules=note":                                                                "",
		"&modules=note,equipment&event_types=note.page.added":                          "",
		"&path=$.hours&operator=gt&value=10":                                           "11 12",
		"&path=$.hours&operator=eq&value=3.0":                                          "3",
		"&path=$.hours&operator=eq&value=%223%22":                                      "",
		"&path=$.hours&operator=exists&event_types=equipment.machine.serviced&region=": "1 2 3 4 5 6 7 8 9 10 11 12",
	} {
		require.Equal(t, want, h.page(t, "/api/events?stream_type=scope&stream_id=USMF"+filter, "auditor").sequences(), filter)
	}
	require.Equal(t, "1 5 9", h.page(t, "/api/events?stream_type=dimension&stream_id=department:P0&legal_entity=USMF", "auditor").sequences())
	require.Equal(t, "10 7 4 1", h.page(t, "/api/events?stream_type=tag&stream_id=t0&legal_entity=USMF&direction=backward", "auditor").sequences())
	bare := h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=scope&stream_id=USMF&include_data=false&limit=1", token: "auditor"})
	require.NotContains(t, string(bare.body), `"data"`)
	require.NotContains(t, string(bare.body), `"dimensions"`)
	require.NotContains(t, string(bare.body), `"entities"`)
	require.Contains(t, string(bare.body), `"metadata"`)
}

// A predicate over sealed values is refused.
func TestPredicateOverPersonalField(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	a := h.do(t, testRequest{method: "POST", path: "/api/event-types", token: "admin", body: `{"type":"hr.person.hired","schema_version":1,"module":"hr","description":"Hired.",
		"data_schema":{"type":"object","properties":{"person":{"type":"object","properties":{"email":{"type":"string"}},"additionalProperties":false},"grade":{"type":"integer"}},"additionalProperties":false},
		"required_entity_refs":[{"entity_type":"employee","role":"subject","cardinality":"one"}],
		"pii_fields":[{"path":"$.person.email","class":"contact","subject":{"entity_role":"subject"}}]}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	scope := "/api/events?stream_type=scope&stream_id=USMF&operator=exists&path="
	for path, status := range map[string]int{
		"$.person.email":        400,
		"$.person[*].email[*]":  400,
		"$.person.email.inside": 400,
		"$.person":              200,
		"$.grade":               200,
		"$.person.email&event_types=equipment.machine.serviced": 200,
		"$.person.email&modules=equipment":                      200,
		"$.person.email&modules=hr":                             400,
	} {
		a := h.do(t, testRequest{method: "GET", path: scope + path, token: "auditor"})
		require.Equal(t, status, a.status, "%s: %s", path, a.body)
		if status == 400 {
			require.Equal(t, "query.predicate_personal", a.json(t)["code"])
		}
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 20)
	ask := func(path, accepted string) (*http.Response, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", h.url+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+h.tokens["auditor"])
		r.Header.Set("Accept-Encoding", accepted) // set by the test, so that the client does not decompress
		res, err := h.client.Do(r)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res, body
	}
	get := func(path string) (*http.Response, []byte) { return ask(path, "gzip") }
	for accepted, encoding := range map[string]string{
		"identity": "", "br, gzip": "gzip", "gzip;q=0.5": "gzip", "gzip;q=1": "gzip",
		"gzip;q=0": "", "identity, gzip; q=0.000": "", "br;q=0, gzip": "gzip",
	} {
		res, _ := ask("/api/events?stream_type=scope&stream_id=USMF", accepted)
		require.Equal(t, encoding, res.Header.Get("Content-Encoding"), accepted)
	}
	res, body := get("/api/events?stream_type=scope&stream_id=USMF")
	require.Equal(t, "gzip", res.Header.Get("Content-Encoding"))
	packed, err := gzip.NewReader(bytes.NewReader(body))
	require.NoError(t, err)
	plain, err := io.ReadAll(packed)
	require.NoError(t, err)
	require.True(t, json.Valid(plain))
	require.Greater(t, len(plain), 2*len(body))

	res, body = get("/api/events?stream_type=scope&stream_id=DEMF")
	require.Empty(t, res.Header.Get("Content-Encoding"), "small answers are not compressed")
	require.True(t, json.Valid(body))
	res, body = get("/api/events?stream_type=what&stream_id=USMF&legal_entity=USMF")
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
	require.Empty(t, res.Header.Get("Content-Encoding"))
	require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
	require.True(t, json.Valid(body))
}

// export sends a request for an export and reads it to the end, if there is one.
func (h *apiFixture) export(t *testing.T, parameters, token string) (lines []string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", h.url+"/api/events/export?"+parameters, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+h.tokens[token])
	res, err := h.client.Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "application/jsonl", res.Header.Get("Content-Type"))
	scanner := bufio.NewScanner(res.Body)
	for scanner.Scan() {
		require.True(t, json.Valid(scanner.Bytes()), scanner.Text())
		lines = append(lines, scanner.Text())
	}
	return lines, scanner.Err()
}

func TestExportLines(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 350)
	lines, err := h.export(t, "stream_type=scope&stream_id=USMF", "auditor")
	require.NoError(t, err)
	require.Len(t, lines, 350)
	for i, line := range lines {
		var e eventAnswer
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		require.Equal(t, fmt.Sprint(i+1), e.Sequence)
		require.JSONEq(t, fmt.Sprintf(`{"hours":%d}`, i+1), string(e.Data))
	}
	lines, err = h.export(t, "stream_type=scope&stream_id=USMF&limit=7&direction=backward&include_data=false", "auditor")
	require.NoError(t, err)
	require.Len(t, lines, 7)
	require.Contains(t, lines[6], `"sequence":"344"`)
	require.NotContains(t, lines[6], `"data"`)
	lines, err = h.export(t, "stream_type=scope&stream_id=USMF&path=$.hours&operator=ge&value=349", "auditor")
	require.NoError(t, err)
	require.Len(t, lines, 2)
	empty, err := h.export(t, "stream_type=scope&stream_id=DEMF", "auditor")
	require.NoError(t, err)
	require.Empty(t, empty)
	for parameters, status := range map[string]int{
		"stream_type=scope&stream_id=USMF&limit=0":         400,
		"stream_type=scope&stream_id=USMF&checkpoints=yes": 400,
		"stream_type=scope&stream_id=XXXX":                 404,
		"stream_type=scope&stream_id=USMF&cursor=x":        400,
	} {
		require.Equal(t, status, h.do(t, testRequest{method: "GET", path: "/api/events/export?" + parameters, token: "auditor"}).status, parameters)
	}
	require.Equal(t, http.StatusForbidden, h.do(t, testRequest{method: "GET", path: "/api/events/export?stream_type=scope&stream_id=USMF", token: "admin"}).status)
}

// failingLog fails after a number of pages.
type failingLog struct {
	log
	left atomic.Int64
}

// log is embedded under a name that differs from its method Events.
type log interface{ httpapi.Events }

func (f *failingLog) Events(ctx context.Context, sel query.Selection) (query.Page, error) {
	if f.left.Add(-1) < 0 {
		return query.Page{}, fault.New(fault.Unavailable, "store.unavailable", "the store is away; try again")
	}
	return f.log.Events(ctx, sel)
}

// An export that fails has the problem in its last line, does not end like a complete
// one, and continues at its last checkpoint.
func TestExportFailure(t *testing.T) {
	t.Parallel()
	away := &failingLog{}
	away.left.Store(1 << 30)
	h := startAPI(t, func(c *httpapi.Config) { away.log, c.Events = c.Events, away })
	h.machineType(t)
	h.appendMachines(t, "USMF", 350)
	all, err := h.export(t, "stream_type=scope&stream_id=USMF", "auditor")
	require.NoError(t, err)

	away.left.Store(2) // pages of 100 and 200
	lines, err := h.export(t, "stream_type=scope&stream_id=USMF&checkpoints=true", "auditor")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, lines, 303) // with two cursors and the error
	var last struct {
		Error struct {
			Code   string `json:"code"`
			Status int    `json:"status"`
		} `json:"error"`
		NextCursor string `json:"next_cursor"`
	}
	require.NoError(t, json.Unmarshal([]byte(lines[302]), &last))
	require.Equal(t, "store.unavailable", last.Error.Code)
	require.Equal(t, http.StatusServiceUnavailable, last.Error.Status)
	require.Equal(t, fmt.Sprintf(`{"next_cursor":"%s"}`, last.NextCursor), lines[301])
	require.Eventually(t, func() bool { return strings.Contains(h.log.String(), `"code":"store.unavailable"`) }, waitFor, tick)

	away.left.Store(1 << 30)
	h.appendMachines(t, "USMF", 5) // written since; the export is pinned
	rest, err := h.export(t, "stream_type=scope&stream_id=USMF&checkpoints=true&cursor="+url.QueryEscape(last.NextCursor), "auditor")
	require.NoError(t, err)
	require.Equal(t, all[300:], rest)
}

// expiringAccess expires the token after a number of checks.
type expiringAccess struct {
	httpapi.Access
	left atomic.Int64
}

func (a *expiringAccess) Authenticate(ctx context.Context, token string) (ports.Principal, error) {
	if a.left.Add(-1) < 0 {
		return ports.Principal{}, fault.New(fault.Unauthenticated, "auth.token_expired", "the access token has expired; ask an administrator for a new one")
	}
	return a.Access.Authenticate(ctx, token)
}

func TestExportEndsWithToken(t *testing.T) {
	t.Parallel()
	access := &expiringAccess{}
	access.left.Store(1 << 30)
	h := startAPI(t, func(c *httpapi.Config) { access.Access, c.Access = c.Access, access })
	h.machineType(t)
	h.appendMachines(t, "USMF", 350)
	access.left.Store(2) // the request and its second page
	lines, err := h.export(t, "stream_type=scope&stream_id=USMF", "auditor")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, lines, 301)
	require.Contains(t, lines[300], `{"error":{"type":"/problems/auth.token_expired"`)
}

// pageDelay is almost as long as a request of TestLongExport may take.
const pageDelay = 1900 * time.Millisecond

// slowLog delays every page.
type slowLog struct{ log }

func (l slowLog) Events(ctx context.Context, sel query.Selection) (query.Page, error) {
	select {
	case <-ctx.Done():
		return query.Page{}, ctx.Err()
	case <-time.After(pageDelay):
		return l.log.Events(ctx, sel)
	}
}

// The deadline bounds a page, not an export.
func TestLongExport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow httpapi.Config
		h := startSimulatedAPI(t, func(c *httpapi.Config) { slow = *c })
		h.machineType(t)
		h.appendMachines(t, "USMF", 350) // pages of 100, 200 and 50
		limits := limitsOf(func(l *httpapi.Limits) { l.Request, l.Body = 2*time.Second, 100*time.Millisecond })
		slow.Events, slow.Limits = slowLog{slow.Events}, limits
		server := newServer(t, slow)
		h.serve(t, server)
		started := time.Now()
		lines, err := h.export(t, "stream_type=scope&stream_id=USMF", "auditor")
		require.NoError(t, err)
		require.Len(t, lines, 350)
		require.Equal(t, 3*pageDelay, time.Since(started), "longer than a request may take")
	})
}

func TestStreams(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 5)
	at := "/api/streams/machine/M-17"
	p := h.page(t, at+"?legal_entity=USMF&count=2", "auditor")
	require.Equal(t, "1 2", p.sequences())
	require.Equal(t, 5, p.Stream.Version)
	require.True(t, p.HasMore)
	require.Equal(t, 3, p.NextFrom)
	require.Equal(t, "3 4 5", h.page(t, at+"?legal_entity=USMF&from=3&count=3", "auditor").sequences())
	p = h.page(t, at+"?legal_entity=USMF&direction=backward&count=2&include_data=false", "auditor")
	require.Equal(t, "5 4", p.sequences())
	require.Equal(t, 3, p.NextFrom)
	require.Equal(t, "3 2 1", h.page(t, at+"?legal_entity=USMF&direction=backward&from=3", "auditor").sequences())
	require.Empty(t, h.page(t, at+"?legal_entity=USMF&from=6", "auditor").Events)
	first := h.do(t, testRequest{method: "GET", path: at + "?legal_entity=USMF&count=1", token: "auditor"}).json(t)["events"].([]any)[0].(map[string]any)
	require.Subset(t, first["metadata"], map[string]any{"content_type": "application/json", "content_encoding": "utf-8"})

	body := func(expected, data string) string {
		return `{` + expected + `"events":[{"type":"equipment.machine.serviced","data":` + data + `,"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":"M 1/7","role":"subject"}]}]}`
	}
	odd := "/api/streams/machine/M%201%2F7"
	post := func(path, body string, header map[string]string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: path + "/events?legal_entity=USMF", token: "module", body: body, header: header})
	}
	a := post(odd, body(`"expected_version":0,`, `{"hours":1}`), map[string]string{"Idempotency-Key": "k-1"})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	again := post(odd, body(`"expected_version":0,`, `{"hours":1}`), map[string]string{"Idempotency-Key": "k-1"})
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, a.body, again.body)
	elsewhere := post(at, body(`"expected_version":0,`, `{"hours":1}`), map[string]string{"Idempotency-Key": "k-1"})
	require.Equal(t, "idempotency.mismatch", elsewhere.json(t)["code"], "the address is a part of the request")
	require.Equal(t, http.StatusCreated, post(odd, body("", `{"hours":2}`), map[string]string{"Expected-Version": "1"}).status)
	wrong := post(odd, body(`"expected_version":1,`, `{"hours":3}`), nil)
	require.Equal(t, http.StatusConflict, wrong.status)
	require.EqualValues(t, 1, wrong.json(t)["expected"])
	require.EqualValues(t, 2, wrong.json(t)["actual"])
	p = h.page(t, odd+"?legal_entity=USMF", "auditor")
	require.Equal(t, 2, p.Stream.Version)
	require.Len(t, p.Events, 2)

	for name, c := range map[string]struct {
		answer testAnswer
		status int
		code   string
		field  string
	}{
		"no such stream":     {h.do(t, testRequest{method: "GET", path: "/api/streams/machine/none?legal_entity=USMF", token: "auditor"}), 404, "stream.not_found", ""},
		"no legal entity":    {h.do(t, testRequest{method: "GET", path: at, token: "auditor"}), 400, "request.parameter_missing", "legal_entity"},
		"out of sight":       {h.do(t, testRequest{method: "GET", path: at + "?legal_entity=USMF", token: "german_auditor"}), 404, "legal_entity.not_found", ""},
		"count":              {h.do(t, testRequest{method: "GET", path: at + "?legal_entity=USMF&count=1001", token: "auditor"}), 400, "request.parameter_invalid", "count"},
		"from":               {h.do(t, testRequest{method: "GET", path: at + "?legal_entity=USMF&from=-1", token: "auditor"}), 400, "request.parameter_invalid", "from"},
		"misspelt":           {h.do(t, testRequest{method: "GET", path: at + "?legal_entity=USMF&form=1", token: "auditor"}), 400, "request.parameter_unknown", "form"},
		"auditor writes":     {h.do(t, testRequest{method: "POST", path: at + "/events?legal_entity=USMF", token: "auditor", body: body("", `{"hours":1}`)}), 403, "auth.forbidden", ""},
		"unknown entity":     {h.do(t, testRequest{method: "POST", path: at + "/events?legal_entity=XX", token: "module", body: body("", `{"hours":1}`)}), 404, "legal_entity.not_found", "legal_entity"},
		"of a module":        {h.do(t, testRequest{method: "POST", path: "/api/streams/note/1/events?legal_entity=USMF", token: "module", body: body("", `{"hours":1}`)}), 403, "append.stream_owned_by_module", "type"},
		"expected":           {post(at, body(`"expected_version":-1,`, `{"hours":1}`), nil), 400, "append.expected_version_invalid", "/expected_version"},
		"nothing":            {post(at, `{"events":[]}`, nil), 400, "append.batch_empty", "/events"},
		"stream in the body": {post(at, strings.Replace(body("", `{"hours":1}`), `"type"`, `"stream":{"type":"x","id":"y"},"type"`, 1), nil), 400, "json.unknown_member", ""},
		"schema":             {post(at, body("", `{"hours":"x"}`), nil), 400, "append.schema_violation", "/events/0"},
	} {
		require.Equal(t, c.status, c.answer.status, "%s: %s", name, c.answer.body)
		require.Equal(t, c.code, c.answer.json(t)["code"], name)
		if c.field != "" && name != "schema" {
			require.Equal(t, c.field, c.answer.json(t)["field"], name)
		}
	}
}

// TestReadGlobalLog reads by position in both directions, and goes on by cursor where the global log ends.
func TestReadGlobalLog(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	heads, err := h.store.Events.PartitionHeads(t.Context())
	require.NoError(t, err)
	partitions := slices.Sorted(maps.Keys(heads)) // the administrative log has positions too, and is not shown
	extend := func() {
		t.Helper()
		_, err := h.store.GlobalLog.ExtendGlobalLog(t.Context(), partitions, 1000)
		require.NoError(t, err)
	}
	for range 3 {
		h.appendMachines(t, "USMF", 2)
		h.appendMachines(t, "DEMF", 1)
		extend()
	}
	h.appendMachines(t, "USMF", 2)
	h.appendMachines(t, "DEMF", 3)
	read := func(token, parameters string) (seen []string, p pageAnswer) {
		t.Helper()
		p = h.page(t, "/api/global-log/events?"+parameters, token)
		for _, e := range p.Events {
			require.NotEmpty(t, e.GlobalPosition)
			seen = append(seen, e.Scope.LegalEntity+" "+e.Sequence)
		}
		return seen, p
	}
	all, page := read("auditor", "")
	require.Len(t, all, 9)
	require.False(t, page.HasMore)
	var byPage []string
	for from, more := "0", true; more; {
		part, p := read("auditor", "count=2&from="+from)
		require.Equal(t, p.HasMore, p.NextCursor == "")
		byPage, from, more = append(byPage, part...), p.NextPosition, p.HasMore
	}
	require.Equal(t, all, byPage)
	back, first := read("auditor", "direction=backward&count=9")
	slices.Reverse(back)
	require.Equal(t, all, back)
	require.Empty(t, first.NextPosition)
	german, _ := read("german_auditor", "")
	require.Equal(t, []string{"DEMF 1", "DEMF 2", "DEMF 3"}, german, "only what the reader may see")

	rest := h.page(t, "/api/streams/$all?from="+url.QueryEscape(page.NextCursor), "auditor")
	require.Len(t, rest.Events, 5)
	require.Empty(t, rest.Events[0].GlobalPosition, "not in the global log yet")
	extend()
	late, _ := read("auditor", "from="+page.NextPosition)
	require.Len(t, late, 5)
	rest = h.page(t, "/api/streams/$all?from="+url.QueryEscape(page.NextCursor), "auditor")
	require.NotEmpty(t, rest.Events[0].GlobalPosition)

	cursorAt := func(position, token string) string {
		t.Helper()
		a := h.do(t, testRequest{method: "GET", path: "/api/global-log/cursor?position=" + position, token: token})
		cursor, _ := a.json(t)["cursor"].(string)
		require.NotEmpty(t, cursor, a)
		return cursor
	}
	all, _ = read("auditor", "")
	for position := range len(all) + 1 { // of events, which lie between those of the administrative log
		page := h.page(t, "/api/global-log/events", "auditor")
		at := page.NextPosition
		if position < len(all) {
			at = page.Events[position].GlobalPosition
		}
		var after []string
		for _, e := range h.page(t, "/api/streams/$all?from="+url.QueryEscape(cursorAt(at, "auditor")), "auditor").Events {
			after = append(after, e.Scope.LegalEntity+" "+e.Sequence)
		}
		require.ElementsMatch(t, all[position:], after, "from position %s", at)
	}
	require.Len(t, h.page(t, "/api/streams/$all?from="+url.QueryEscape(cursorAt("0", "german_auditor")), "german_auditor").Events, 6)
	for parameters, code := range map[string]string{"": "request.parameter_missing", "?position=-1": "request.parameter_invalid", "?position=x": "request.parameter_invalid", "?position=100": "global_log.beyond_end"} {
		a := h.do(t, testRequest{method: "GET", path: "/api/global-log/cursor" + parameters, token: "auditor"})
		require.Equal(t, code, a.json(t)["code"], parameters)
	}

	for parameters, code := range map[string]string{"from=-1": "request.parameter_invalid", "from=x": "request.parameter_invalid", "from=100": "global_log.beyond_end", "direction=up": "request.parameter_invalid", "count=0": "request.parameter_invalid"} {
		a := h.do(t, testRequest{method: "GET", path: "/api/global-log/events?" + parameters, token: "auditor"})
		require.Equal(t, code, a.json(t)["code"], parameters)
	}
	for _, path := range []string{"/api/global-log/events", "/api/global-log/cursor?position=0"} {
		a := h.do(t, testRequest{method: "GET", path: path, token: "admin"})
		require.Equal(t, http.StatusForbidden, a.status)
	}
}

func TestReadAllEvents(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	seen := map[string]int{}
	follow := func(token, cursor string) string {
		for {
			p := h.page(t, "/api/streams/$all?count=7&from="+url.QueryEscape(cursor), token)
			for _, e := range p.Events {
				seen[e.Scope.LegalEntity]++
				require.Equal(t, fmt.Sprint(seen[e.Scope.LegalEntity]), e.Sequence)
			}
			require.NotEmpty(t, p.NextCursor)
			if cursor = p.NextCursor; !p.HasMore {
				return cursor
			}
		}
	}
	cursor := follow("auditor", "0")
	require.Empty(t, seen)
	h.appendMachines(t, "USMF", 30)
	h.appendMachines(t, "DEMF", 4)
	cursor = follow("auditor", cursor)
	require.Equal(t, map[string]int{"USMF": 30, "DEMF": 4}, seen)
	h.appendMachines(t, "DEMF", 3)
	require.NotEmpty(t, follow("auditor", cursor))
	require.Equal(t, map[string]int{"USMF": 30, "DEMF": 7}, seen)

	clear(seen)
	german := follow("german_auditor", "0")
	require.Equal(t, map[string]int{"DEMF": 7}, seen, "only what the reader may see")
	require.NotEmpty(t, follow("auditor", german), "a right that was granted later begins at the start")
	require.Equal(t, map[string]int{"USMF": 30, "DEMF": 7}, seen)

	other := h.page(t, "/api/events?stream_type=scope&stream_id=USMF&limit=1", "auditor").NextCursor
	for from, code := range map[string]string{"x": "cursor.malformed", "1": "cursor.malformed", other: "cursor.foreign"} {
		a := h.do(t, testRequest{method: "GET", path: "/api/streams/$all?from=" + from, token: "auditor"})
		require.Equal(t, code, a.json(t)["code"], from)
		require.Equal(t, "from", a.json(t)["field"])
	}
	a := h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=scope&stream_id=USMF&cursor=" + cursor, token: "auditor"})
	require.Equal(t, http.StatusBadRequest, a.status)
}

const machineStream = "/api/streams/machine/M-17"

// changeStream sends a change of the machine's stream.
func (h *apiFixture) changeStream(t *testing.T, method, rest, token, body string, header ...string) testAnswer {
	t.Helper()
	a := testRequest{method: method, path: machineStream + rest, token: token, body: body, header: map[string]string{}}
	for i := 0; i < len(header); i += 2 {
		a.header[header[i]] = header[i+1]
	}
	return h.do(t, a)
}

func TestStreamDeletion(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 3)
	const here = "?legal_entity=USMF"

	wrong := h.changeStream(t, "DELETE", here, "module", "", "Expected-Version", "2")
	require.Equal(t, http.StatusConflict, wrong.status)
	require.EqualValues(t, 2, wrong.json(t)["expected"])
	require.EqualValues(t, 3, wrong.json(t)["actual"])
	expect(t, "stream_wrong_version", wrong)

	deleted := h.changeStream(t, "DELETE", here+"&reason=sold", "module", "", "Expected-Version", "3", "Idempotency-Key", "d-1")
	require.Equal(t, http.StatusOK, deleted.status, string(deleted.body))
	require.Equal(t, "deleted", deleted.json(t)["state"])
	again := h.changeStream(t, "DELETE", here+"&reason=sold", "module", "", "Expected-Version", "3", "Idempotency-Key", "d-1")
	require.Equal(t, deleted.body, again.body)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	other := h.changeStream(t, "DELETE", here+"&reason=scrapped", "module", "", "Expected-Version", "3", "Idempotency-Key", "d-1")
	require.Equal(t, "idempotency.mismatch", other.json(t)["code"], "the reason is a part of the request")

	gone := h.changeStream(t, "GET", here, "auditor", "")
	require.Equal(t, http.StatusNotFound, gone.status)
	expect(t, "stream_deleted", gone)
	require.Equal(t, "1 2 3 4", h.page(t, "/api/events?stream_type=scope&stream_id=USMF", "auditor").sequences(), "the facts stay")
	twice := h.changeStream(t, "DELETE", here, "module", "")
	require.Equal(t, http.StatusConflict, twice.status)
	expect(t, "stream_deleted_twice", twice)
	exists := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(serviced(`"expected_version":"stream_exists"`))})
	require.Equal(t, http.StatusConflict, exists.status)
	expect(t, "stream_deleted_append", exists)
	status := h.changeStream(t, "GET", "/metadata"+here, "auditor", "")
	require.JSONEq(t, `{"stream":{"type":"machine","id":"M-17","version":4},"state":"deleted","metadata":{}}`, string(status.body))

	// Both operations that append recreate it.
	a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(serviced(`"expected_version":"no_stream"`), serviced(`"expected_version":0`))})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	require.Len(t, a.json(t)["events"], 2)
	p := h.page(t, machineStream+here, "auditor")
	require.Equal(t, "5 6 7", p.sequences(), "deleted events are not returned")
	require.Equal(t, 7, p.Stream.Version)
	require.Equal(t, http.StatusOK, h.changeStream(t, "DELETE", here, "module", "").status)
	own := h.changeStream(t, "POST", "/events"+here, "module", `{"expected_version":8,"events":[{"type":"equipment.machine.serviced","data":{"hours":1},"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":"M-17","role":"subject"}]}]}`)
	require.Equal(t, http.StatusCreated, own.status, string(own.body))
	p = h.page(t, machineStream+here+"&direction=backward&count=1", "auditor")
	require.Equal(t, "10", p.sequences())
	require.Equal(t, 9, p.NextFrom)
	require.Equal(t, "9", h.page(t, machineStream+here+"&direction=backward&from=9", "auditor").sequences())
	require.Equal(t, "9 10", h.page(t, machineStream+here+"&from=2", "auditor").sequences())

	require.Equal(t, http.StatusForbidden, h.changeStream(t, "DELETE", here+"&hard=true", "module", "").status)
	require.Equal(t, http.StatusForbidden, h.changeStream(t, "DELETE", here, "auditor", "").status)
	require.Equal(t, http.StatusNotFound, h.changeStream(t, "DELETE", here, "german_module", "").status)
	ended := h.changeStream(t, "DELETE", here+"&hard=true&reason=registered+twice", "admin", "")
	require.Equal(t, http.StatusOK, ended.status, string(ended.body))
	require.Equal(t, "tombstoned", ended.json(t)["state"])
	for name, a := range map[string]testAnswer{
		"stream_tombstoned_read":   h.changeStream(t, "GET", here, "auditor", ""),
		"stream_tombstoned_append": h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(serviced(""))}),
		"stream_tombstoned_delete": h.changeStream(t, "DELETE", here, "module", ""),
	} {
		require.Equal(t, http.StatusGone, a.status, string(a.body))
		expect(t, name, a)
	}
	log := h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=type&stream_id=stream.tombstoned&legal_entity=USMF", token: "auditor"})
	require.Contains(t, string(log.body), `"reason":"registered twice"`)
	require.Contains(t, string(log.body), `"id":"p-admin"`)
}

func TestStreamMetadata(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 5)
	const here = "?legal_entity=USMF"
	put := func(token, body string, header ...string) testAnswer {
		return h.changeStream(t, "PUT", "/metadata"+here, token, body, header...)
	}
	document := `{"max_count":3,"cache_control":"max-age=60","acl":{"read":["controller"],"write":["module"],"metadata":["module"]},"custom":{"rate":12.10,"team":"a"}}`
	a := put("module", document, "Expected-Version", "5", "Idempotency-Key", "m-1")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, "active", a.json(t)["state"])
	require.Equal(t, a.body, put("module", document, "Expected-Version", "5", "Idempotency-Key", "m-1").body)
	require.Equal(t, "append.wrong_expected_version", put("module", "{}", "Expected-Version", "5").json(t)["code"])
	shown := h.changeStream(t, "GET", "/metadata"+here, "module", "")
	require.JSONEq(t, fmt.Sprintf(`{"stream":{"type":"machine","id":"M-17","version":6},"state":"active","metadata":%s,"metadata_version":6}`, document), string(shown.body))
	require.Contains(t, string(shown.body), "12.10", "numbers stay as they are written")

	kept := func(rest, token string) (p pageAnswer) {
		read := h.do(t, testRequest{method: "GET", path: machineStream + here + rest, token: token, cacheControl: "private, max-age=60"})
		require.Equal(t, http.StatusOK, read.status)
		require.Contains(t, read.header.Values("Vary"), "Authorization")
		require.NoError(t, json.Unmarshal(read.body, &p))
		return p
	}
	p := kept("&count=2", "controller")
	require.Equal(t, "4 5", p.sequences())
	require.Equal(t, 6, p.NextFrom)
	require.Equal(t, "6 5 4", kept("&direction=backward", "auditor").sequences(), "access lists do not bind auditors")

	for path, field := range map[string]any{"/api/streams/machine/" + strings.Repeat("x", 600): "id", "/api/streams/" + strings.Repeat("x", 600) + "/M-1": "type"} {
		long := h.do(t, testRequest{method: "PUT", path: path + "/metadata" + here, token: "module", body: "{}"})
		require.Equal(t, http.StatusBadRequest, long.status)
		require.Equal(t, field, long.json(t)["field"], "the caller has sent no events")
	}
	require.Nil(t, put("module", `{"custom":{"$pii":{}}}`).json(t)["field"])

	denied := h.changeStream(t, "GET", here, "module", "")
	require.Equal(t, http.StatusForbidden, denied.status)
	expect(t, "stream_access_denied", denied)
	require.Equal(t, "stream.access_denied", h.changeStream(t, "GET", "/metadata"+here, "controller", "").json(t)["code"])
	require.Equal(t, http.StatusOK, put("admin", `{"acl":{"write":[]}}`).status)
	for _, path := range []string{"/api/events", machineStream + "/events" + here} {
		body := events(serviced(""))
		if path != "/api/events" {
			body = `{"events":[{"type":"equipment.machine.serviced","data":{"hours":1},"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":"M-17","role":"subject"}]}]}`
		}
		a := h.do(t, testRequest{method: "POST", path: path, token: "module", body: body})
		require.Equal(t, http.StatusForbidden, a.status, "%s: %s", path, a.body)
		require.Equal(t, "stream.access_denied", a.json(t)["code"])
	}
	require.Equal(t, http.StatusOK, put("module", "{}").status, "the new document has no access list")
	require.Equal(t, "1 2 3 4 5 6 7 8", h.page(t, machineStream+here, "module").sequences(), "without limits all events are returned again")

	var event struct {
		Events []struct {
			Data json.RawMessage `json:"data"`
		} `json:"events"`
	}
	log := h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=type&stream_id=stream.metadata.changed&legal_entity=USMF&limit=1", token: "auditor"})
	require.NoError(t, json.Unmarshal(log.body, &event))
	require.JSONEq(t, `{"metadata":`+document+`}`, string(event.Events[0].Data))
}

// personalLog has a personal value in the last event of every page.
type personalLog struct {
	log
	on atomic.Bool
}

func (l *personalLog) Stream(ctx context.Context, q query.StreamQuery) (query.StreamPage, error) {
	page, err := l.log.Stream(ctx, q)
	if l.on.Load() && err == nil {
		page.Events[len(page.Events)-1].PII = map[string]string{"/data/remark": "contact"}
	}
	return page, err
}

// A page with personal data is not cached, whatever the metadata say.
func TestPersonalDataIsNotCached(t *testing.T) {
	t.Parallel()
	personal := &personalLog{}
	h := startAPI(t, func(c *httpapi.Config) { personal.log, c.Events = c.Events, personal })
	h.machineType(t)
	h.appendMachines(t, "USMF", 1)
	require.Equal(t, http.StatusOK, h.changeStream(t, "PUT", "/metadata?legal_entity=USMF", "admin", `{"cache_control":"max-age=60"}`).status)
	read := testRequest{method: "GET", path: machineStream + "?legal_entity=USMF", token: "auditor", cacheControl: "private, max-age=60"}
	require.Equal(t, http.StatusOK, h.do(t, read).status)
	personal.on.Store(true)
	read.cacheControl = ""
	require.Equal(t, http.StatusOK, h.do(t, read).status)
}
