package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const waitLimit = time.Minute

// sseItem is a server-sent event.
type sseItem struct {
	id, name, data string
	comment        bool
}

// eventSource reads server-sent events as browsers do.
type eventSource struct {
	t      *testing.T
	res    *http.Response
	lines  *bufio.Reader
	lastID string
	retry  string
}

func (h *apiFixture) openEventSource(t *testing.T, path, token, lastID string) *eventSource {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", h.url+path, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+h.tokens[token])
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Accept-Encoding", "gzip")
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	res, err := h.client.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	require.Empty(t, res.Header.Get("Content-Encoding"))
	return &eventSource{t: t, res: res, lines: bufio.NewReader(res.Body), lastID: lastID}
}

// next returns the next event or heartbeat; io.EOF when the feed is over.
func (e *eventSource) next() (sseItem, error) {
	late := time.AfterFunc(waitLimit, func() { _ = e.res.Body.Close() })
	defer late.Stop()
	var out sseItem
	for {
		line, err := e.lines.ReadString('\n')
		if err != nil {
			return out, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && (out.name != "" || out.comment):
			return out, nil
		case strings.HasPrefix(line, ":"):
			out.comment = true
		case name == "id":
			out.id, e.lastID = value, value
		case name == "event":
			out.name = value
		case name == "data":
			out.data = value
		case name == "retry":
			e.retry = value
		}
	}
}

func (e *eventSource) event(want string) sseItem {
	e.t.Helper()
	for {
		got, err := e.next()
		require.NoError(e.t, err)
		if got.comment {
			continue
		}
		require.Equal(e.t, want, got.name, got.data)
		return got
	}
}

// sequence is that of the next event.
func (e *eventSource) sequence() string {
	e.t.Helper()
	var shown eventAnswer
	require.NoError(e.t, json.Unmarshal([]byte(e.event("event").data), &shown))
	return shown.Scope.LegalEntity + "/" + shown.Sequence
}

func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 3)
	e := h.openEventSource(t, "/api/subscribe/streams/$all", "auditor", "")
	for n := 1; n <= 3; n++ {
		require.Equal(t, fmt.Sprintf("USMF/%d", n), e.sequence())
	}
	require.Equal(t, "2000", e.retry)
	at := e.event("caughtUp")
	require.JSONEq(t, fmt.Sprintf(`{"cursor":%q}`, at.id), at.data)
	h.appendMachines(t, "DEMF", 2)
	require.Equal(t, "DEMF/1", e.sequence())
	middle := e.lastID // in the middle of an append
	require.Equal(t, "DEMF/2", e.sequence())

	again := h.openEventSource(t, "/api/subscribe/streams/$all?from=0", "auditor", middle)
	require.Equal(t, "DEMF/2", again.sequence())
	again.event("caughtUp")
	now := h.openEventSource(t, "/api/subscribe/streams/$all?from=now", "auditor", "")
	now.event("caughtUp")
	h.appendMachines(t, "USMF", 1)
	for _, each := range []*eventSource{e, again, now} {
		require.Equal(t, "USMF/4", each.sequence())
	}
	// The cursors are those of pages.
	require.Empty(t, h.page(t, "/api/streams/$all?from="+now.lastID, "auditor").Events)
	page := h.page(t, "/api/streams/$all?count=5", "auditor")
	require.Equal(t, "USMF/4", h.openEventSource(t, "/api/subscribe/streams/$all?from="+page.NextCursor, "auditor", "").sequence())
}

func TestStreamFeedVersions(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	path := "/api/subscribe/streams/machine/M-17?legal_entity=USMF"
	early := h.openEventSource(t, path, "auditor", "")
	require.JSONEq(t, `{"version":0}`, early.event("caughtUp").data)
	h.appendMachines(t, "USMF", 3)
	for n := 1; n <= 3; n++ {
		require.Equal(t, fmt.Sprintf("USMF/%d", n), early.sequence())
		require.Equal(t, fmt.Sprint(n), early.lastID)
	}
	require.Equal(t, "USMF/2", h.openEventSource(t, path+"&from=2", "auditor", "").sequence())
	require.Equal(t, "USMF/3", h.openEventSource(t, path+"&from=1", "auditor", "2").sequence())
	require.JSONEq(t, `{"version":3}`, h.openEventSource(t, path+"&from=now", "auditor", "").event("caughtUp").data)
	bare := h.openEventSource(t, path+"&include_data=false", "auditor", "").event("event").data
	require.NotContains(t, bare, `"data"`)
}

func TestFeedFilters(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	all := "/api/subscribe/streams/$all?from=0"
	german := h.openEventSource(t, all, "german_auditor", "")
	german.event("caughtUp")
	named := h.openEventSource(t, all+"&legal_entities=USMF", "auditor", "")
	named.event("caughtUp")
	equipment := h.openEventSource(t, all+"&modules=equipment", "auditor", "")
	equipment.event("caughtUp")
	notes := h.openEventSource(t, all+"&event_types=note.page.added", "auditor", "")
	notes.event("caughtUp")
	require.Equal(t, http.StatusCreated, h.do(t, testRequest{method: "POST", path: "/api/intents", token: "ap_clerk", body: `{"type":"note.add_page","legal_entity":"USMF","payload":{"number":"P-1"}}`, header: map[string]string{"Idempotency-Key": "k-1"}}).status)
	h.appendMachines(t, "USMF", 1)
	h.appendMachines(t, "DEMF", 1)
	require.Equal(t, "DEMF/1", german.sequence())
	require.Equal(t, "USMF/1", named.sequence())
	require.Equal(t, "USMF/2", named.sequence())
	require.Equal(t, "USMF/1", notes.sequence())
	require.Equal(t, "USMF/2", equipment.sequence())
	require.Equal(t, "DEMF/1", equipment.sequence())
	// A legal entity that joins is followed by itself.
	require.Equal(t, http.StatusCreated, h.do(t, testRequest{method: "POST", path: "/api/admin/legal-entities", token: "admin", body: `{"code":"FRMF"}`}).status)
	h.appendMachines(t, "FRMF", 1)
	require.Equal(t, "FRMF/1", equipment.sequence())
}

// A feed, a durable subscription and a page of them select the same events: each part of the filter
// alone, and all together.
func TestFeedFilters_AreThoseOfSubscriptions(t *testing.T) {
	t.Parallel()
	h := startSubscriptions(t)
	h.machineType(t)
	write := func(stream, scope, more string) {
		t.Helper()
		body := strings.Replace(serviced(more), `"scope":{"legal_entity":"USMF"},"stream":{"type":"machine","id":"M-17"}`,
			`"scope":{"legal_entity":"USMF"`+scope+`},"stream":`+stream, 1)
		a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: `{"events":[` + body + `]}`})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
	}
	write(`{"type":"machine","id":"M-17"}`, ``, ``)
	write(`{"type":"truck","id":"T-1"}`, `,"division":"north","region":"emea","site":"B-7","custom":{"cost_center":"CC-1","plant":"P-1"}`, `"tags":["q1"]`)
	write(`{"type":"machine","id":"M-18"}`, `,"custom":{"cost_center":"CC-3"}`, ``)
	filters := map[string]string{
		"stream_types=truck":    `"stream_types":["truck"]`,
		"streams=truck/T-1":     `"streams":["truck/T-1"]`,
		"divisions=south,north": `"divisions":["south","north"]`,
		"regions=emea":          `"regions":["emea"]`,
		"sites=B-7":             `"sites":["B-7"]`,
		"tags=q1,q2":            `"tags":["q1","q2"]`,
		"custom=cost_center=CC-1,cost_center=CC-2":    `"custom":{"cost_center":["CC-1","CC-2"]}`,
		"custom=plant%3DP-1,cost_center%3DCC-1":       `"custom":{"plant":["P-1"],"cost_center":["CC-1"]}`,
		"stream_types=truck,machine&custom=plant=P-1": `"stream_types":["truck","machine"],"custom":{"plant":["P-1"]}`,
	}
	number := 0
	for parameters, members := range filters {
		require.Equal(t, "USMF/2", h.openEventSource(t, "/api/subscribe/streams/$all?from=0&"+parameters, "auditor", "").sequence(), parameters)
		number++
		id := fmt.Sprintf("s-%d", number)
		a := h.do(t, testRequest{method: "POST", path: "/api/subscriptions", token: "module", body: `{"id":"` + id + `","subscriber_type":"service","subscriber_id":"crm",` + members + `}`})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		if strings.HasPrefix(members, `"custom"`) {
			require.Contains(t, string(a.body), `"cost_center":["CC-1"`)
		}
		page := h.do(t, testRequest{method: "GET", path: "/api/subscriptions/" + id + "/poll?limit=10", token: "module"}).json(t)
		require.Len(t, page["events"], 1, members)
		require.Equal(t, "2", page["events"].([]any)[0].(map[string]any)["sequence"], members)
	}
	for query, field := range map[string]string{"custom=cost_center": "custom", "custom=cost_center=": "custom", "regions=a,,b": "regions", "streams=truck": "streams"} {
		a := h.do(t, testRequest{method: "GET", path: "/api/subscribe/streams/$all?" + query, token: "auditor"})
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Equal(t, field, a.json(t)["field"])
	}
}

func TestRefusedFeeds(t *testing.T) {
	t.Parallel()
	h := startAPIWithFeeds(t, live.Limits{PerPrincipal: 1})
	all, stream := "/api/subscribe/streams/$all", "/api/subscribe/streams/machine/M-17"
	upgrade := func(more map[string]string) map[string]string {
		out := map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	h.openEventSource(t, all, "controller", "").event("caughtUp") // the one that is allowed
	for name, c := range map[string]struct {
		ask    testRequest
		status int
		code   string
	}{
		"no token":         {testRequest{path: all}, 401, "auth.token_missing"},
		"token in address": {testRequest{path: all + "?access_token=x", token: "auditor"}, 400, "request.parameter_unknown"},
		"wrong role":       {testRequest{path: all, token: "admin"}, 403, "auth.forbidden"},
		"cursor":           {testRequest{path: all + "?from=abc", token: "auditor"}, 400, "cursor.malformed"},
		"legal entity":     {testRequest{path: all + "?legal_entities=XXXX", token: "auditor"}, 404, "legal_entity.not_found"},
		"foreign entity":   {testRequest{path: all + "?legal_entities=USMF", token: "german_auditor"}, 404, "legal_entity.not_found"},
		"event type":       {testRequest{path: all + "?event_types=note.page.added,note.page.aded", token: "auditor"}, 400, "query.event_type_unknown"},
		"type's socket":    {testRequest{path: all + "?event_types=note.page.aded", token: "auditor", header: upgrade(nil)}, 400, "query.event_type_unknown"},
		"module":           {testRequest{path: all + "?modules=nothing", token: "auditor"}, 400, "query.module_unknown"},
		"stream's entity":  {testRequest{path: stream + "?legal_entity=XXXX", token: "auditor"}, 404, "legal_entity.not_found"},
		"version":          {testRequest{path: stream + "?legal_entity=USMF&from=x", token: "auditor"}, 400, "request.parameter_invalid"},
		"transport":        {testRequest{path: all, token: "auditor", header: map[string]string{"Accept": "application/json"}}, 400, "feed.transport_missing"},
		"too many":         {testRequest{path: all, token: "controller"}, 429, "feed.too_many"},
		"origin":           {testRequest{path: all, token: "auditor", header: upgrade(map[string]string{"Origin": "https://evil.example"})}, 403, "feed.origin_refused"},
		"subprotocol":      {testRequest{path: all, header: upgrade(map[string]string{"Sec-WebSocket-Protocol": "bearer." + h.tokens["auditor"]})}, 400, "feed.subprotocol_missing"},
		"handshake":        {testRequest{path: all, token: "auditor", header: upgrade(map[string]string{"Sec-WebSocket-Version": "8"})}, 400, "feed.handshake_invalid"},
	} {
		c.ask.method = "GET"
		a := h.do(t, c.ask)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		require.Equal(t, c.code, a.json(t)["code"], name)
	}
}

// dial opens a WebSocket.
func (h *apiFixture) dial(t *testing.T, path string, header http.Header, protocols ...string) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, strings.Replace(h.url, "http", "ws", 1)+path, &websocket.DialOptions{HTTPClient: h.client, HTTPHeader: header, Subprotocols: protocols})
	if err != nil && res != nil {
		text, _ := io.ReadAll(res.Body)
		require.NoError(t, err, string(text))
	}
	require.NoError(t, err)
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func (h *apiFixture) bearer(role string) http.Header {
	return http.Header{"Authorization": {"Bearer " + h.tokens[role]}}
}

type message struct {
	Type    string      `json:"type"`
	Event   eventAnswer `json:"event"`
	Cursor  string      `json:"cursor"`
	Version *int        `json:"version"`
	Problem struct {
		Code   string `json:"code"`
		Status int    `json:"status"`
		Field  string `json:"field"`
	} `json:"problem"`
}

func readMessage(t *testing.T, conn *websocket.Conn) (message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	kind, text, err := conn.Read(ctx)
	if err != nil {
		return message{}, err
	}
	require.Equal(t, websocket.MessageText, kind)
	var m message
	require.NoError(t, json.Unmarshal(text, &m), string(text))
	return m, nil
}

// expectMessage returns the next message. It skips heartbeats unless want is one, because on a
// busy machine they come between any two messages.
func expectMessage(t *testing.T, conn *websocket.Conn, want string) message {
	t.Helper()
	for {
		m, err := readMessage(t, conn)
		require.NoError(t, err)
		if m.Type == "heartbeat" && want != "heartbeat" {
			continue
		}
		require.Equal(t, want, m.Type, m.Problem.Code)
		return m
	}
}

func TestWebSockets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := startSimulatedAPI(t)
		h.machineType(t)
		h.appendMachines(t, "USMF", 2)
		browser := h.dial(t, "/api/subscribe/streams/$all?from=0", nil, "backbone.v1", "bearer."+h.tokens["auditor"])
		require.Equal(t, "backbone.v1", browser.Subprotocol())
		first := expectMessage(t, browser, "event")
		require.Equal(t, "1", first.Event.Sequence)
		require.Equal(t, "2", expectMessage(t, browser, "event").Event.Sequence)
		require.NotEmpty(t, expectMessage(t, browser, "caughtUp").Cursor)
		begun := time.Now()
		expectMessage(t, browser, "heartbeat")
		require.Equal(t, configs.Default().Feeds.Heartbeat, time.Since(begun))
		require.NoError(t, browser.Close(websocket.StatusNormalClosure, ""))

		again := h.dial(t, "/api/subscribe/streams/$all?from="+first.Cursor, h.bearer("auditor"))
		require.Equal(t, "2", expectMessage(t, again, "event").Event.Sequence)
		expectMessage(t, again, "caughtUp")
		h.appendMachines(t, "DEMF", 1)
		require.Equal(t, "DEMF", expectMessage(t, again, "event").Event.Scope.LegalEntity)
		stream := h.dial(t, "/api/subscribe/streams/machine/M-17?legal_entity=USMF&from=2", h.bearer("auditor"))
		require.Equal(t, 2, *expectMessage(t, stream, "event").Version)
		require.Equal(t, 2, *expectMessage(t, stream, "caughtUp").Version)
	})
}

func TestWebSocketSubscribeMessage(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 3)
	begin := func(text string) *websocket.Conn {
		conn := h.dial(t, "/api/subscribe/streams/machine/M-17?legal_entity=USMF", h.bearer("auditor"))
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(text)))
		return conn
	}
	for _, from := range []string{"3", `"3"`} {
		conn := begin(`{"action":"subscribe","from":` + from + `,"options":{"batch_size":10,"resolve_links":false}}`)
		require.Equal(t, "3", expectMessage(t, conn, "event").Event.Sequence)
		expectMessage(t, conn, "caughtUp")
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"action":"subscribe"}`)))
		require.Equal(t, "feed.action_unknown", expectMessage(t, conn, "error").Problem.Code)
	}
	for text, code := range map[string]string{
		`{"action":"subscribe","options":{"resolve_links":true}}`: "feed.option_unsupported",
		`{"action":"subscribe","options":{"batch_size":5000}}`:    "request.parameter_invalid",
		`{"action":"subscribe","from":"x"}`:                       "request.parameter_invalid",
		`{"action":"ack"}`:                                        "feed.action_unknown",
		`{"action":"subscribe","stream_id":"x"}`:                  "feed.message_invalid",
		`hello`:                                                   "feed.message_invalid",
	} {
		conn := begin(text)
		require.Equal(t, code, expectMessage(t, conn, "error").Problem.Code, text)
		_, err := readMessage(t, conn)
		require.Equal(t, websocket.StatusCode(4400), websocket.CloseStatus(err), text)
	}
	large := begin(`{"action":"` + strings.Repeat("x", 128<<10) + `"}`)
	_, err := readMessage(t, large)
	require.Equal(t, websocket.StatusMessageTooBig, websocket.CloseStatus(err))
}

// changingAccess replaces the principal later.
type changingAccess struct {
	httpapi.Access
	now atomic.Pointer[func(ports.Principal) (ports.Principal, error)]
}

func (c *changingAccess) Authenticate(ctx context.Context, token string) (ports.Principal, error) {
	p, err := c.Access.Authenticate(ctx, token)
	if change := c.now.Load(); change != nil && err == nil {
		return (*change)(p)
	}
	return p, err
}

func TestFeedEndsWithLostRights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		access := &changingAccess{}
		h := startSimulatedAPI(t, func(c *httpapi.Config) { access.Access, c.Access = c.Access, access })
		h.machineType(t)
		h.appendMachines(t, "USMF", 1)
		for name, c := range map[string]struct {
			path   string
			change func(ports.Principal) (ports.Principal, error)
			code   string
			close  websocket.StatusCode
		}{
			"expired token": {"/api/subscribe/streams/$all?from=0", func(ports.Principal) (ports.Principal, error) {
				return ports.Principal{}, fault.New(fault.Unauthenticated, "auth.token_expired", "ask for a new one")
			}, "auth.token_expired", 4401},
			"role": {"/api/subscribe/streams/$all?from=0", func(p ports.Principal) (ports.Principal, error) {
				p.Roles = []string{"admin"}
				return p, nil
			}, "auth.forbidden", 4403},
			"legal entity of all": {"/api/subscribe/streams/$all?from=0", func(p ports.Principal) (ports.Principal, error) {
				p.LegalEntities = []string{"USMF"}
				return p, nil
			}, "feed.rights_changed", 4403},
			"named legal entity": {"/api/subscribe/streams/$all?from=0&legal_entities=USMF", func(p ports.Principal) (ports.Principal, error) {
				p.LegalEntities = []string{"DEMF"}
				return p, nil
			}, "legal_entity.not_found", 4404},
			"legal entity of a stream": {"/api/subscribe/streams/machine/M-17?legal_entity=USMF&from=1", func(p ports.Principal) (ports.Principal, error) {
				p.LegalEntities = []string{"DEMF"}
				return p, nil
			}, "legal_entity.not_found", 4404},
		} {
			access.now.Store(nil)
			begun := time.Now()
			conn := h.dial(t, c.path, h.bearer("auditor"))
			require.Equal(t, "1", expectMessage(t, conn, "event").Event.Sequence, name)
			expectMessage(t, conn, "caughtUp")
			access.now.Store(&c.change)
			m := expectMessage(t, conn, "error")
			require.Equal(t, c.code, m.Problem.Code, name)
			require.Equal(t, configs.Default().Feeds.Review, time.Since(begun), name)
			require.True(t, m.Cursor != "" || m.Version != nil, name)
			_, err := readMessage(t, conn)
			require.Equal(t, c.close, websocket.CloseStatus(err), name)
		}
	})
}

// The access list of a stream is checked against the present roles of its reader.
func TestStreamFeedLostRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		access := &changingAccess{}
		h := startSimulatedAPI(t, func(c *httpapi.Config) { access.Access, c.Access = c.Access, access })
		h.machineType(t)
		h.appendMachines(t, "USMF", 1)
		a := h.do(t, testRequest{method: "PUT", path: "/api/streams/machine/M-17/metadata?legal_entity=USMF", token: "admin", body: `{"acl":{"read":["auditor"]}}`})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		conn := h.dial(t, "/api/subscribe/streams/machine/M-17?legal_entity=USMF&from=1", h.bearer("auditor"))
		require.Equal(t, "1", expectMessage(t, conn, "event").Event.Sequence)
		change := func(p ports.Principal) (ports.Principal, error) {
			p.Roles = []string{"controller"} // who may follow feeds, but not this one
			return p, nil
		}
		access.now.Store(&change)
		for {
			m, err := readMessage(t, conn)
			require.NoError(t, err, "the feed continues")
			if m.Type == "error" {
				require.Equal(t, "stream.access_denied", m.Problem.Code)
				break
			}
		}
		_, err := readMessage(t, conn)
		require.Equal(t, websocket.StatusCode(4403), websocket.CloseStatus(err))
	})
}

// A server that stops informs its readers at once, with the cursor to continue at.
func TestFeedShutdown(t *testing.T) {
	t.Parallel()
	var service httpapi.Live
	h := startAPI(t, func(c *httpapi.Config) { service = c.Live.Live })
	h.machineType(t)
	h.appendMachines(t, "USMF", 1)
	conn := h.dial(t, "/api/subscribe/streams/$all?from=0", h.bearer("auditor"))
	e := h.openEventSource(t, "/api/subscribe/streams/$all", "auditor", "")
	last := expectMessage(t, conn, "event").Cursor
	expectMessage(t, conn, "caughtUp")
	e.sequence()
	e.event("caughtUp")
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- service.Close(ctx) }()
	m := expectMessage(t, conn, "error")
	require.Equal(t, "feed.server_stopping", m.Problem.Code)
	require.Equal(t, last, m.Cursor)
	_, err := readMessage(t, conn)
	require.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err))
	require.Contains(t, e.event("problem").data, `"feed.server_stopping"`)
	_, err = e.next()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-closed)
	require.Equal(t, http.StatusServiceUnavailable, h.do(t, testRequest{method: "GET", path: "/api/subscribe/streams/$all", token: "auditor"}).status)
}

// A reader that does not read is disconnected after WriteTimeout, and continues at its
// cursor without loss.
func TestSlowFeedReaderIsDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := startSimulatedAPI(t)
		h.machineType(t)
		filler := fmt.Sprintf(`"data":{"hours":1,"filler":[%s0]}`, strings.Repeat("1000000000,", 8000))
		one := strings.Replace(serviced(""), `"data":{"hours":2.5}`, filler, 1)
		a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(one, one, one, one, one, one, one, one, one, one)})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		conn := h.dialRaw(t)
		_, err := fmt.Fprintf(conn, "GET /api/subscribe/streams/$all HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", h.tokens["auditor"])
		require.NoError(t, err)
		text := make([]byte, 400<<10) // four events and a part of the fifth
		_, err = io.ReadFull(conn, text)
		require.NoError(t, err)
		tooSlow := func(after time.Duration) bool {
			<-time.After(after)
			synctest.Wait()
			return strings.Contains(h.log.String(), "feed.reader_too_slow")
		}
		require.False(t, tooSlow(configs.Default().Feeds.WriteTimeout-1))
		require.True(t, tooSlow(1))
		rest, _ := io.ReadAll(conn) // the connection is aborted
		text = append(text, rest...)
		ids := strings.Split(string(text), "\nid: ")
		require.Greater(t, len(ids), 1)
		seen := strings.Count(string(text), "\n\n") - 2 // header, retry; the last event may be cut
		e := h.openEventSource(t, "/api/subscribe/streams/$all", "auditor", strings.SplitN(ids[len(ids)-2], "\n", 2)[0])
		require.Equal(t, fmt.Sprintf("USMF/%d", len(ids)-1), e.sequence(), "%d whole events were seen", seen)
	})
}

// TestFeedPositionAheadOfLog uses server-sent events, which must be
// refused before a status of 200 is sent.
func TestFeedPositionAheadOfLog(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendMachines(t, "USMF", 3)
	path := "/api/subscribe/streams/machine/M-17?legal_entity=USMF"
	for name, position := range map[string]testRequest{
		"Last-Event-ID": {method: "GET", path: path, token: "auditor", header: map[string]string{"Last-Event-ID": "7"}},
		"from":          {method: "GET", path: path + "&from=8", token: "auditor"},
	} {
		ahead := h.do(t, position)
		require.Equal(t, http.StatusConflict, ahead.status, name)
		require.Equal(t, "application/problem+json", ahead.header.Get("Content-Type"))
		require.Equal(t, "feed.version_ahead", ahead.json(t)["code"], name)
	}
}

// TestFeedRefusedCount allows one feed, and asks for positions that the log
// cannot continue from.
func TestFeedRefusedCount(t *testing.T) {
	t.Parallel()
	h := startAPIWithFeeds(t, live.Limits{PerPrincipal: 1})
	h.machineType(t)
	h.appendMachines(t, "USMF", 1)
	path := "/api/subscribe/streams/machine/M-17?legal_entity=USMF"
	for range 3 {
		require.Equal(t, "feed.version_ahead", h.do(t, testRequest{method: "GET", path: path + "&from=9", token: "auditor"}).json(t)["code"])
	}
	h.openEventSource(t, path, "auditor", "").event("event")
}

// TestFeedCursorOfThousandLegalEntities resumes with such a cursor in every way.
func TestFeedCursorOfThousandLegalEntities(t *testing.T) {
	t.Parallel()
	const n = 1000
	h := startAPI(t)
	h.machineType(t)
	for i := range n {
		le, err := h.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "demo", Code: fmt.Sprintf("L%03d", i), Status: "active"})
		require.NoError(t, err)
		e := event.Prepared{
			Skeleton: event.Skeleton{
				ID: event.ID{1, 14: byte(i >> 8), 15: byte(i)}, Type: "equipment.machine.serviced", SchemaVersion: 1, OccurredAt: time.Now(),
				EffectiveDate: event.MustDate("2026-03-01"), Scope: event.Scope{TenantID: "demo", LegalEntity: le.Code}, ActorType: event.Human,
				ActorID: "p-1", CorrelationID: "c-1", Stream: event.StreamID{Type: "machine", ID: "M-17"},
			},
			Payload: []byte(`{"data":{"hours":1},"dimensions":{},"entity_refs":[]}`),
		}
		_, err = h.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{e}})
		require.NoError(t, err)
	}
	page := h.page(t, "/api/streams/$all?count=1000", "auditor")
	for page.HasMore {
		page = h.page(t, "/api/streams/$all?count=1000&from="+page.NextCursor, "auditor")
	}
	cursor := page.NextCursor
	perEntity := float64(len(cursor)) / n
	t.Logf("%.1f bytes for each legal entity", perEntity)
	require.Less(t, perEntity, 24.0, "headerBytes assumes at most 24 bytes for each legal entity")

	resumed := h.openEventSource(t, "/api/subscribe/streams/$all", "auditor", cursor)
	resumed.event("caughtUp")
	addressed := h.openEventSource(t, "/api/subscribe/streams/$all?from="+cursor, "auditor", "")
	addressed.event("caughtUp")
	conn := h.dial(t, "/api/subscribe/streams/$all", h.bearer("auditor"), "backbone.v1")
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"action":"subscribe","from":"`+cursor+`"}`)))
	expectMessage(t, conn, "caughtUp")
	h.appendMachines(t, "L500", 1)
	require.Equal(t, "L500/2", resumed.sequence())
	require.Equal(t, "L500/2", addressed.sequence())
	require.Equal(t, "2", expectMessage(t, conn, "event").Event.Sequence)
}

// TestFeedFromPosition shows the events of the global log in its order, then those that are not in it, and what comes.
func TestFeedFromPosition(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	for range 2 {
		h.appendMachines(t, "USMF", 1)
		h.appendMachines(t, "DEMF", 1)
		h.signLog(t)
	}
	h.appendMachines(t, "DEMF", 1)
	h.appendMachines(t, "USMF", 1)
	page := h.page(t, "/api/global-log/events", "auditor")
	require.Len(t, page.Events, 4)
	want := make([]string, 3)
	for i, e := range page.Events[1:] {
		want[i] = e.Scope.LegalEntity + "/" + e.Sequence
	}
	feed := h.openEventSource(t, "/api/subscribe/streams/$all?from=position:"+page.Events[1].GlobalPosition, "auditor", "")
	require.Equal(t, want, []string{feed.sequence(), feed.sequence(), feed.sequence()})
	require.ElementsMatch(t, []string{"USMF/3", "DEMF/3"}, []string{feed.sequence(), feed.sequence()})
	feed.event("caughtUp")
	h.appendMachines(t, "DEMF", 1)
	require.Equal(t, "DEMF/4", feed.sequence())
	for from, code := range map[string]string{"position:x": "request.parameter_invalid", "position:999": "global_log.beyond_end"} {
		a := h.do(t, testRequest{method: "GET", path: "/api/subscribe/streams/$all?from=" + from, token: "auditor", header: map[string]string{"Accept": "text/event-stream"}})
		require.Equal(t, code, a.json(t)["code"])
	}
}

// A live feed of waiting intents tells an approver what waits, for whom and about what, as soon as
// it is submitted.
func TestFeedOfWaitingIntents(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	waiting := h.openEventSource(t, "/api/subscribe/streams/$all?from=0&event_types=backbone.intent.waiting", "controller", "")
	waiting.event("caughtUp")
	h.submitPage(t, "USMF", "P-1", false, "")
	id := h.submitPage(t, "USMF", "P-2", true, "")["intent_id"].(string)
	var got struct {
		IntentID string `json:"intent_id"`
		Data     struct {
			IntentType  string `json:"intent_type"`
			RequestedBy string `json:"requested_by"`
			Documents   []string
			Needs       []struct{ Roles []string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(waiting.event("event").data), &got))
	require.Equal(t, id, got.IntentID)
	require.Equal(t, []any{"note.add_page", "p-ap_clerk"}, []any{got.Data.IntentType, got.Data.RequestedBy})
	require.Len(t, got.Data.Documents, 1)
	require.Equal(t, []string{"controller"}, got.Data.Needs[0].Roles)
}
