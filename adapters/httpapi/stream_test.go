package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
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

// machines appends events of a machine, ten in a batch, each with its number.
func (h *house) machines(t *testing.T, legalEntity string, n int) {
	t.Helper()
	for done := 0; done < n; {
		var batch []string
		for ; done < n && len(batch) < 100; done++ {
			e := strings.Replace(serviced(fmt.Sprintf(`"tags":["t%d"],"source":{"system":"mes","channel":"api","reference":"r%d"}`, done%3, done%2)), `{"hours":2.5}`, fmt.Sprintf("{\n  \"hours\": %d\n}", done+1), 1)
			e = strings.Replace(e, `"legal_entity":"USMF"`, fmt.Sprintf(`"legal_entity":%q,"division":"D%d"`, legalEntity, done%2), 1)
			batch = append(batch, strings.Replace(e, `"department":"OPS"`, fmt.Sprintf(`"department":"P%d"`, done%4), 1))
		}
		a := h.do(t, ask{method: "POST", path: "/api/events", token: "module", body: events(batch...)})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
	}
}

type shownEvent struct {
	Sequence string          `json:"sequence"`
	Data     json.RawMessage `json:"data"`
	Scope    struct {
		LegalEntity string `json:"legal_entity"`
	} `json:"scope"`
}

type shownPage struct {
	Events     []shownEvent `json:"events"`
	HasMore    bool         `json:"has_more"`
	NextCursor string       `json:"next_cursor"`
	NextFrom   int          `json:"next_from"`
	Stream     struct {
		Version int `json:"version"`
	} `json:"stream"`
}

func (h *house) page(t *testing.T, path, token string) shownPage {
	t.Helper()
	a := h.do(t, ask{method: "GET", path: path, token: token})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	var out shownPage
	require.NoError(t, json.Unmarshal(a.body, &out))
	return out
}

func (p shownPage) sequences() string {
	out := make([]string, len(p.Events))
	for i, e := range p.Events {
		out[i] = e.Sequence
	}
	return strings.Join(out, " ")
}

func TestFiltersOfEvents(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
	h.machineType(t)
	h.machines(t, "USMF", 12)
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
	bare := h.do(t, ask{method: "GET", path: "/api/events?stream_type=scope&stream_id=USMF&include_data=false&limit=1", token: "auditor"})
	require.NotContains(t, string(bare.body), `"data"`)
	require.NotContains(t, string(bare.body), `"dimensions"`)
	require.NotContains(t, string(bare.body), `"entities"`)
	require.Contains(t, string(bare.body), `"metadata"`)
}

// A predicate would compare sealed values; it is refused wherever it might.
func TestAPredicateOverPersonalFieldsIsRefused(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
	h.machineType(t)
	a := h.do(t, ask{method: "POST", path: "/api/event-types", token: "admin", body: `{"type":"hr.person.hired","schema_version":1,"module":"hr","description":"Hired.",
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
		a := h.do(t, ask{method: "GET", path: scope + path, token: "auditor"})
		require.Equal(t, status, a.status, "%s: %s", path, a.body)
		if status == 400 {
			require.Equal(t, "query.predicate_personal", a.json(t)["code"])
		}
	}
}

func TestAnswersArePacked(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
	h.machineType(t)
	h.machines(t, "USMF", 20)
	ask := func(path, accepted string) (*http.Response, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", h.url+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+h.tokens["auditor"])
		r.Header.Set("Accept-Encoding", accepted) // by hand, so that the client leaves it as it is
		res, err := http.DefaultClient.Do(r)
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
	require.Empty(t, res.Header.Get("Content-Encoding"), "a small answer is not worth it")
	require.True(t, json.Valid(body))
	res, body = get("/api/events?stream_type=what&stream_id=USMF&legal_entity=USMF")
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
	require.Empty(t, res.Header.Get("Content-Encoding"))
	require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
	require.True(t, json.Valid(body))
}

// export sends a request for an export and reads it to the end, if there is one.
func (h *house) export(t *testing.T, parameters, token string) (lines []string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", h.url+"/api/events/export?"+parameters, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+h.tokens[token])
	res, err := http.DefaultClient.Do(r)
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

func TestAnExportHasOneEventPerLine(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
	h.machineType(t)
	h.machines(t, "USMF", 350)
	lines, err := h.export(t, "stream_type=scope&stream_id=USMF", "auditor")
	require.NoError(t, err)
	require.Len(t, lines, 350)
	for i, line := range lines {
		var e shownEvent
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
		require.Equal(t, status, h.do(t, ask{method: "GET", path: "/api/events/export?" + parameters, token: "auditor"}).status, parameters)
	}
	require.Equal(t, http.StatusForbidden, h.do(t, ask{method: "GET", path: "/api/events/export?stream_type=scope&stream_id=USMF", token: "admin"}).status)
}

// failingLog is away once a number of pages have been read.
type failingLog struct {
	log
	left atomic.Int64
}

// log has another name than its method Events.
type log interface{ httpapi.Events }

func (f *failingLog) Events(ctx context.Context, sel query.Selection) (query.Page, error) {
	if f.left.Add(-1) < 0 {
		return query.Page{}, fault.New(fault.Unavailable, "store.unavailable", "the store is away; try again")
	}
	return f.log.Events(ctx, sel)
}

// An export that fails on the way says so in its last line, does not end like one
// that is complete, and goes on from its last checkpoint.
func TestAnExportThatFailsIsNotTakenForComplete(t *testing.T) {
	t.Parallel()
	away := &failingLog{}
	away.left.Store(1 << 30)
	h := openHouse(t, func(c *httpapi.Config) { away.log, c.Events = c.Events, away })
	h.machineType(t)
	h.machines(t, "USMF", 350)
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
	h.machines(t, "USMF", 5) // written since; the export is pinned
	rest, err := h.export(t, "stream_type=scope&stream_id=USMF&checkpoints=true&cursor="+url.QueryEscape(last.NextCursor), "auditor")
	require.NoError(t, err)
	require.Equal(t, all[300:], rest)
}

// expiring is access for callers whose token expires after so many looks.
type expiring struct {
	httpapi.Access
	left atomic.Int64
}

func (a *expiring) Authenticate(ctx context.Context, token string) (ports.Principal, error) {
	if a.left.Add(-1) < 0 {
		return ports.Principal{}, fault.New(fault.Unauthenticated, "auth.token_expired", "the access token has expired; ask an administrator for a new one")
	}
	return a.Access.Authenticate(ctx, token)
}

func TestAnExportEndsWithTheToken(t *testing.T) {
	t.Parallel()
	access := &expiring{}
	access.left.Store(1 << 30)
	h := openHouse(t, func(c *httpapi.Config) { access.Access, c.Access = c.Access, access })
	h.machineType(t)
	h.machines(t, "USMF", 350)
	access.left.Store(2) // the request and its second page
	lines, err := h.export(t, "stream_type=scope&stream_id=USMF", "auditor")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, lines, 301)
	require.Contains(t, lines[300], `{"error":{"type":"/problems/auth.token_expired"`)
}

// slowLog takes its time for every page.
type slowLog struct{ log }

func (l slowLog) Events(ctx context.Context, sel query.Selection) (query.Page, error) {
	select {
	case <-ctx.Done():
		return query.Page{}, ctx.Err()
	case <-time.After(1900 * time.Millisecond):
		return l.log.Events(ctx, sel)
	}
}

// The deadline is of a page, not of an export.
func TestDrillLongExport(t *testing.T) {
	t.Parallel()
	var slow httpapi.Config
	h := openHouse(t, func(c *httpapi.Config) { slow = *c })
	h.machineType(t)
	h.machines(t, "USMF", 1600)                                                      // pages of 100, 200, 400, 800 and 100
	limits := httpapi.Limits{Request: 9 * time.Second, Body: 100 * time.Millisecond} // with room for a busy machine
	slow.Events, slow.Limits = slowLog{slow.Events}, limits
	server, err := httpapi.New(slow)
	require.NoError(t, err)
	h.serve(t, server)
	started := time.Now()
	lines, err := h.export(t, "stream_type=scope&stream_id=USMF", "auditor")
	require.NoError(t, err)
	require.Len(t, lines, 1600)
	require.Greater(t, time.Since(started), limits.Request+limits.Body)
}

func TestStreams(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
	h.machineType(t)
	h.machines(t, "USMF", 5)
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

	body := func(expected, data string) string {
		return `{` + expected + `"events":[{"type":"equipment.machine.serviced","data":` + data + `,"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":"M 1/7","role":"subject"}]}]}`
	}
	odd := "/api/streams/machine/M%201%2F7"
	post := func(path, body string, header map[string]string) told {
		return h.do(t, ask{method: "POST", path: path + "/events?legal_entity=USMF", token: "module", body: body, header: header})
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
		answer told
		status int
		code   string
		field  string
	}{
		"no such stream":     {h.do(t, ask{method: "GET", path: "/api/streams/machine/none?legal_entity=USMF", token: "auditor"}), 404, "stream.not_found", ""},
		"no legal entity":    {h.do(t, ask{method: "GET", path: at, token: "auditor"}), 400, "request.parameter_missing", "legal_entity"},
		"out of sight":       {h.do(t, ask{method: "GET", path: at + "?legal_entity=USMF", token: "german_auditor"}), 404, "legal_entity.not_found", ""},
		"count":              {h.do(t, ask{method: "GET", path: at + "?legal_entity=USMF&count=1001", token: "auditor"}), 400, "request.parameter_invalid", "count"},
		"from":               {h.do(t, ask{method: "GET", path: at + "?legal_entity=USMF&from=-1", token: "auditor"}), 400, "request.parameter_invalid", "from"},
		"misspelt":           {h.do(t, ask{method: "GET", path: at + "?legal_entity=USMF&form=1", token: "auditor"}), 400, "request.parameter_unknown", "form"},
		"auditor writes":     {h.do(t, ask{method: "POST", path: at + "/events?legal_entity=USMF", token: "auditor", body: body("", `{"hours":1}`)}), 403, "auth.forbidden", ""},
		"unknown entity":     {h.do(t, ask{method: "POST", path: at + "/events?legal_entity=XX", token: "module", body: body("", `{"hours":1}`)}), 404, "legal_entity.not_found", "legal_entity"},
		"of a module":        {h.do(t, ask{method: "POST", path: "/api/streams/note/1/events?legal_entity=USMF", token: "module", body: body("", `{"hours":1}`)}), 403, "append.stream_owned_by_module", "type"},
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

func TestAllIsFollowedAcrossLegalEntities(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
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
	h.machines(t, "USMF", 30)
	h.machines(t, "DEMF", 4)
	cursor = follow("auditor", cursor)
	require.Equal(t, map[string]int{"USMF": 30, "DEMF": 4}, seen)
	h.machines(t, "DEMF", 3)
	require.NotEmpty(t, follow("auditor", cursor))
	require.Equal(t, map[string]int{"USMF": 30, "DEMF": 7}, seen)

	clear(seen)
	german := follow("german_auditor", "0")
	require.Equal(t, map[string]int{"DEMF": 7}, seen, "only what the reader may see")
	require.NotEmpty(t, follow("auditor", german), "a right that was granted later begins at the start")
	require.Equal(t, map[string]int{"USMF": 30, "DEMF": 7}, seen)

	other := h.page(t, "/api/events?stream_type=scope&stream_id=USMF&limit=1", "auditor").NextCursor
	for from, code := range map[string]string{"x": "cursor.malformed", "1": "cursor.malformed", other: "cursor.foreign"} {
		a := h.do(t, ask{method: "GET", path: "/api/streams/$all?from=" + from, token: "auditor"})
		require.Equal(t, code, a.json(t)["code"], from)
		require.Equal(t, "from", a.json(t)["field"])
	}
	a := h.do(t, ask{method: "GET", path: "/api/events?stream_type=scope&stream_id=USMF&cursor=" + cursor, token: "auditor"})
	require.Equal(t, http.StatusBadRequest, a.status)
}
