package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/query"
)

const machineStream = "/api/streams/machine/M-17"

// change asks for a change of the machine's stream.
func (h *house) change(t *testing.T, method, rest, token, body string, header ...string) told {
	t.Helper()
	a := ask{method: method, path: machineStream + rest, token: token, body: body, header: map[string]string{}}
	for i := 0; i < len(header); i += 2 {
		a.header[header[i]] = header[i+1]
	}
	return h.do(t, a)
}

func TestAStreamIsDeletedRecreatedAndEnded(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
	h.machineType(t)
	h.machines(t, "USMF", 3)
	const here = "?legal_entity=USMF"

	wrong := h.change(t, "DELETE", here, "module", "", "Expected-Version", "2")
	require.Equal(t, http.StatusConflict, wrong.status)
	require.EqualValues(t, 2, wrong.json(t)["expected"])
	require.EqualValues(t, 3, wrong.json(t)["actual"])
	expect(t, "stream_wrong_version", wrong)

	deleted := h.change(t, "DELETE", here+"&reason=sold", "module", "", "Expected-Version", "3", "Idempotency-Key", "d-1")
	require.Equal(t, http.StatusOK, deleted.status, string(deleted.body))
	require.Equal(t, "deleted", deleted.json(t)["state"])
	again := h.change(t, "DELETE", here+"&reason=sold", "module", "", "Expected-Version", "3", "Idempotency-Key", "d-1")
	require.Equal(t, deleted.body, again.body)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	other := h.change(t, "DELETE", here+"&reason=scrapped", "module", "", "Expected-Version", "3", "Idempotency-Key", "d-1")
	require.Equal(t, "idempotency.mismatch", other.json(t)["code"], "the reason is a part of the request")

	gone := h.change(t, "GET", here, "auditor", "")
	require.Equal(t, http.StatusNotFound, gone.status)
	expect(t, "stream_deleted", gone)
	require.Equal(t, "1 2 3 4", h.page(t, "/api/events?stream_type=scope&stream_id=USMF", "auditor").sequences(), "the facts stay")
	twice := h.change(t, "DELETE", here, "module", "")
	require.Equal(t, http.StatusConflict, twice.status)
	expect(t, "stream_deleted_twice", twice)
	exists := h.do(t, ask{method: "POST", path: "/api/events", token: "module", body: events(serviced(`"expected_version":"stream_exists"`))})
	require.Equal(t, http.StatusConflict, exists.status)
	expect(t, "stream_deleted_append", exists)
	status := h.change(t, "GET", "/metadata"+here, "auditor", "")
	require.JSONEq(t, `{"stream":{"type":"machine","id":"M-17","version":4},"state":"deleted","metadata":{}}`, string(status.body))

	// Both doors recreate it.
	a := h.do(t, ask{method: "POST", path: "/api/events", token: "module", body: events(serviced(`"expected_version":"no_stream"`), serviced(`"expected_version":0`))})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	require.Len(t, a.json(t)["events"], 2)
	p := h.page(t, machineStream+here, "auditor")
	require.Equal(t, "5 6 7", p.sequences(), "what was deleted stays behind")
	require.Equal(t, 7, p.Stream.Version)
	require.Equal(t, http.StatusOK, h.change(t, "DELETE", here, "module", "").status)
	own := h.change(t, "POST", "/events"+here, "module", `{"expected_version":8,"events":[{"type":"equipment.machine.serviced","data":{"hours":1},"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":"M-17","role":"subject"}]}]}`)
	require.Equal(t, http.StatusCreated, own.status, string(own.body))
	p = h.page(t, machineStream+here+"&direction=backward&count=1", "auditor")
	require.Equal(t, "10", p.sequences())
	require.Equal(t, 9, p.NextFrom)
	require.Equal(t, "9", h.page(t, machineStream+here+"&direction=backward&from=9", "auditor").sequences())
	require.Equal(t, "9 10", h.page(t, machineStream+here+"&from=2", "auditor").sequences())

	require.Equal(t, http.StatusForbidden, h.change(t, "DELETE", here+"&hard=true", "module", "").status)
	require.Equal(t, http.StatusForbidden, h.change(t, "DELETE", here, "auditor", "").status)
	require.Equal(t, http.StatusNotFound, h.change(t, "DELETE", here, "german_module", "").status)
	ended := h.change(t, "DELETE", here+"&hard=true&reason=registered+twice", "admin", "")
	require.Equal(t, http.StatusOK, ended.status, string(ended.body))
	require.Equal(t, "tombstoned", ended.json(t)["state"])
	for name, a := range map[string]told{
		"stream_tombstoned_read":   h.change(t, "GET", here, "auditor", ""),
		"stream_tombstoned_append": h.do(t, ask{method: "POST", path: "/api/events", token: "module", body: events(serviced(""))}),
		"stream_tombstoned_delete": h.change(t, "DELETE", here, "module", ""),
	} {
		require.Equal(t, http.StatusGone, a.status, string(a.body))
		expect(t, name, a)
	}
	log := h.do(t, ask{method: "GET", path: "/api/events?stream_type=type&stream_id=stream.tombstoned&legal_entity=USMF", token: "auditor"})
	require.Contains(t, string(log.body), `"reason":"registered twice"`)
	require.Contains(t, string(log.body), `"id":"p-admin"`)
}

func TestMetadataOfAStream(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
	h.machineType(t)
	h.machines(t, "USMF", 5)
	const here = "?legal_entity=USMF"
	put := func(token, body string, header ...string) told {
		return h.change(t, "PUT", "/metadata"+here, token, body, header...)
	}
	document := `{"max_count":3,"cache_control":"max-age=60","acl":{"read":["controller"],"write":["module"],"metadata":["module"]},"custom":{"rate":12.10,"team":"a"}}`
	a := put("module", document, "Expected-Version", "5", "Idempotency-Key", "m-1")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, "active", a.json(t)["state"])
	require.Equal(t, a.body, put("module", document, "Expected-Version", "5", "Idempotency-Key", "m-1").body)
	require.Equal(t, "append.wrong_expected_version", put("module", "{}", "Expected-Version", "5").json(t)["code"])
	shown := h.change(t, "GET", "/metadata"+here, "module", "")
	require.JSONEq(t, fmt.Sprintf(`{"stream":{"type":"machine","id":"M-17","version":6},"state":"active","metadata":%s,"metadata_version":6}`, document), string(shown.body))
	require.Contains(t, string(shown.body), "12.10", "numbers stay as they are written")

	kept := func(rest, token string) (p shownPage) {
		read := h.do(t, ask{method: "GET", path: machineStream + here + rest, token: token, keep: "private, max-age=60"})
		require.Equal(t, http.StatusOK, read.status)
		require.Contains(t, read.header.Values("Vary"), "Authorization")
		require.NoError(t, json.Unmarshal(read.body, &p))
		return p
	}
	p := kept("&count=2", "controller")
	require.Equal(t, "4 5", p.sequences())
	require.Equal(t, 6, p.NextFrom)
	require.Equal(t, "6 5 4", kept("&direction=backward", "auditor").sequences(), "no list keeps auditors out")

	for path, field := range map[string]any{"/api/streams/machine/" + strings.Repeat("x", 600): "id", "/api/streams/" + strings.Repeat("x", 600) + "/M-1": "type"} {
		long := h.do(t, ask{method: "PUT", path: path + "/metadata" + here, token: "module", body: "{}"})
		require.Equal(t, http.StatusBadRequest, long.status)
		require.Equal(t, field, long.json(t)["field"], "the caller has sent no events")
	}
	require.Nil(t, put("module", `{"custom":{"$pii":{}}}`).json(t)["field"])

	denied := h.change(t, "GET", here, "module", "")
	require.Equal(t, http.StatusForbidden, denied.status)
	expect(t, "stream_access_denied", denied)
	require.Equal(t, "stream.access_denied", h.change(t, "GET", "/metadata"+here, "controller", "").json(t)["code"])
	require.Equal(t, http.StatusOK, put("admin", `{"acl":{"write":[]}}`).status)
	for _, path := range []string{"/api/events", machineStream + "/events" + here} {
		body := events(serviced(""))
		if path != "/api/events" {
			body = `{"events":[{"type":"equipment.machine.serviced","data":{"hours":1},"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":"M-17","role":"subject"}]}]}`
		}
		a := h.do(t, ask{method: "POST", path: path, token: "module", body: body})
		require.Equal(t, http.StatusForbidden, a.status, "%s: %s", path, a.body)
		require.Equal(t, "stream.access_denied", a.json(t)["code"])
	}
	require.Equal(t, http.StatusOK, put("module", "{}").status, "the list of those who change the metadata went with the old document")
	require.Equal(t, "1 2 3 4 5 6 7 8", h.page(t, machineStream+here, "module").sequences(), "without limits everything is shown again")

	var event struct {
		Events []struct {
			Data json.RawMessage `json:"data"`
		} `json:"events"`
	}
	log := h.do(t, ask{method: "GET", path: "/api/events?stream_type=type&stream_id=stream.metadata.changed&legal_entity=USMF&limit=1", token: "auditor"})
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

// A page with personal data is not kept, whatever the metadata say.
func TestPersonalDataAreNotKept(t *testing.T) {
	t.Parallel()
	personal := &personalLog{}
	h := openHouse(t, func(c *httpapi.Config) { personal.log, c.Events = c.Events, personal })
	h.machineType(t)
	h.machines(t, "USMF", 1)
	require.Equal(t, http.StatusOK, h.change(t, "PUT", "/metadata?legal_entity=USMF", "admin", `{"cache_control":"max-age=60"}`).status)
	read := ask{method: "GET", path: machineStream + "?legal_entity=USMF", token: "auditor", keep: "private, max-age=60"}
	require.Equal(t, http.StatusOK, h.do(t, read).status)
	personal.on.Store(true)
	read.keep = ""
	require.Equal(t, http.StatusOK, h.do(t, read).status)
}
