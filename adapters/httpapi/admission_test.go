package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
)

// hold sends the head of a request with a body of so many bytes, -1 for an unknown number, and
// waits until the server has admitted it. finish sends the body and returns the status.
func (h *apiFixture) hold(t *testing.T, role string, size int64) (finish func() int) {
	t.Helper()
	body, sender := io.Pipe()
	admitted, status := make(chan struct{}), make(chan int, 1)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(admitted) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/api/events", body)
	require.NoError(t, err)
	r.ContentLength = size
	r.Header = h.bearer(role)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Expect", "100-continue")
	go func() {
		defer close(status)
		res, err := h.client.Do(r)
		if err == nil {
			_ = res.Body.Close()
			status <- res.StatusCode
		}
	}()
	<-admitted
	return func() int {
		text := events(serviced(""))
		if pad := int(size) - len(text); pad > 0 {
			text += strings.Repeat(" ", pad)
		}
		_, err := io.WriteString(sender, text)
		require.NoError(t, err)
		require.NoError(t, sender.Close())
		return <-status
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	small := testRequest{method: "POST", path: "/api/events", token: "module", body: events(serviced(""))}
	other := small
	other.token = "german_module"
	other.body = events(strings.Replace(serviced(""), "USMF", "DEMF", 1))
	start := func(t *testing.T, change func(*httpapi.Limits)) *apiFixture {
		h := startAPI(t, func(c *httpapi.Config) { c.Limits = limitsOf(change) })
		h.machineType(t)
		return h
	}
	refused := func(t *testing.T, h *apiFixture, r testRequest, status int, code string) {
		a := h.do(t, r)
		require.Equal(t, status, a.status, string(a.body))
		require.Equal(t, code, a.json(t)["code"])
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.Contains(t, h.log.String(), code)
	}
	t.Run("requests of a principal", func(t *testing.T) {
		t.Parallel()
		h := start(t, func(l *httpapi.Limits) { l.PrincipalRequests = 1 })
		finish := h.hold(t, "module", 4096)
		refused(t, h, small, http.StatusTooManyRequests, "http.principal_busy")
		denied := testRequest{method: "POST", path: "/api/intents/01JQ8E6Z6G3V5T8C9N2M4K7R1P/approve", token: "module"}
		refused(t, h, denied, http.StatusTooManyRequests, "http.principal_busy")
		denied.token = "german_module"
		require.Equal(t, http.StatusForbidden, h.do(t, denied).status)
		require.Equal(t, http.StatusCreated, h.do(t, other).status, "another principal is admitted")
		require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: "/api/event-types", token: "module"}).status, "a read is admitted")
		require.Equal(t, http.StatusCreated, finish())
		require.Equal(t, http.StatusCreated, h.do(t, small).status)
	})
	t.Run("bytes of a principal", func(t *testing.T) {
		t.Parallel()
		h := start(t, func(l *httpapi.Limits) { l.PrincipalBytes, l.BodyBytes = 8192, 8192 })
		finish := h.hold(t, "module", 8192)
		refused(t, h, small, http.StatusTooManyRequests, "http.principal_busy")
		require.Equal(t, http.StatusCreated, h.do(t, other).status)
		require.Equal(t, http.StatusCreated, finish())
		require.Equal(t, http.StatusCreated, h.do(t, small).status)
	})
	t.Run("requests of the node", func(t *testing.T) {
		t.Parallel()
		h := start(t, func(l *httpapi.Limits) { l.Requests = 1 })
		finish := h.hold(t, "module", 4096)
		refused(t, h, other, http.StatusServiceUnavailable, "http.server_busy")
		require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: "/livez"}).status)
		require.Equal(t, http.StatusCreated, finish())
		require.Equal(t, http.StatusCreated, h.do(t, other).status)
	})
	t.Run("bytes of the node, body of unknown size", func(t *testing.T) {
		t.Parallel()
		h := start(t, func(l *httpapi.Limits) { l.Bytes, l.BodyBytes = 8192, 8192 })
		finish := h.hold(t, "module", -1)
		refused(t, h, other, http.StatusServiceUnavailable, "http.server_busy")
		require.Equal(t, http.StatusCreated, finish())
		require.Equal(t, http.StatusCreated, h.do(t, other).status)
	})
	t.Run("after refusals and callers who leave", func(t *testing.T) {
		t.Parallel()
		h := start(t, func(l *httpapi.Limits) { l.PrincipalRequests = 1 })
		for range 3 {
			require.Equal(t, http.StatusBadRequest, h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: "{"}).status)
		}
		require.Equal(t, http.StatusCreated, h.do(t, small).status)
	})
}

// Before, 3.9 MB of empty events cost 1.7 GB: they were decoded and then counted. The test is not
// parallel, so that it measures its own memory.
func TestAppend_BatchOfEmptyEvents(t *testing.T) { //nolint:paralleltest // see above
	h := startAPI(t)
	body := events(strings.TrimSuffix(strings.Repeat("{},", 1_300_000), ","))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/api/events", strings.NewReader(body))
	require.NoError(t, err)
	r.Header = h.bearer("module")
	r.Header.Set("Content-Type", "application/json")
	res, err := h.client.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	runtime.ReadMemStats(&after)
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	require.Contains(t, string(text), "append.batch_too_large")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}
