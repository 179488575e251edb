package httpclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

func serve(t *testing.T, handler http.HandlerFunc) *httpclient.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := httpclient.New(httpclient.Config{Server: server.URL + "/", Token: "bbk_x", LongestWait: 10 * time.Millisecond})
	require.NoError(t, err)
	return c
}

func refuse(w http.ResponseWriter, status int, document string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, document)
}

func TestProblemsComeBackAsFaults(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, 409, `{"type":"/problems/ap.duplicate_invoice","title":"Conflict","status":409,"code":"ap.duplicate_invoice","detail":"100% the same; look at the holder","field":"/payload","intent_id":"01J","expected":3,"actual":"4","holder":{"event_id":"01H","document_id":"INV-1","sequence":"7"},"violations":[{"code":"x","line":2}],"vendor_id":"V-1"}`)
	})
	_, err := c.SubmitIntent(t.Context(), httpclient.Intent{Type: "ap.submit_invoice"}, "k")
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, fault.Conflict, f.Kind)
	require.Equal(t, "ap.duplicate_invoice", f.Code)
	require.Equal(t, "100% the same; look at the holder", f.Detail)
	require.Equal(t, "/payload", f.Field)
	require.Equal(t, "01J", f.IntentID)
	require.Equal(t, json.Number("3"), f.Expected)
	require.Equal(t, "4", f.Actual)
	require.Equal(t, &fault.Holder{EventID: "01H", DocumentID: "INV-1", Sequence: "7"}, f.Holder)
	require.Equal(t, []fault.Violation{{Code: "x", Line: 2}}, f.Violations)
	require.Equal(t, map[string]any{"vendor_id": "V-1"}, f.Attributes)
}

func TestUnavailableIsTriedAgain(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) < 3 {
			w.Header().Set("Retry-After", "1")
			refuse(w, 503, `{"code":"append.queue_full","detail":"later","retry_after_ms":5}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Idempotency-Key") != "k" || r.Header.Get("Authorization") != "Bearer bbk_x" || string(body) == "" {
			refuse(w, 400, `{"code":"test.bad","detail":"bad"}`)
			return
		}
		w.Header().Set("Idempotency-Replayed", "true")
		_, _ = fmt.Fprint(w, `{"intent_id":"01J","status":"executed","events":[{"id":"01E","stream":"invoice/1","sequence":"9","stream_version":1}]}`)
	})
	out, err := c.SubmitIntent(t.Context(), httpclient.Intent{Type: "x.y", Payload: json.RawMessage(`{"a":"<b>"}`)}, "k")
	require.NoError(t, err)
	require.True(t, out.Replayed)
	require.Equal(t, "9", out.Events[0].Sequence)
	require.EqualValues(t, 3, calls.Load())
}

func TestABrokenConnectionIsRepeatedOnlyWhenThatIsSafe(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		panic(http.ErrAbortHandler)
	})
	_, err := c.Approve(t.Context(), "USMF", "01J", "", "")
	require.Equal(t, "client.server_unreachable", fault.CodeOf(err))
	require.EqualValues(t, 1, calls.Load())
	_, _, err = c.Append(t.Context(), []httpclient.NewEvent{{}}, "k")
	require.Equal(t, "client.server_unreachable", fault.CodeOf(err))
	require.EqualValues(t, 6, calls.Load())
}

func TestPathsAreEscaped(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"path": r.URL.EscapedPath(), "query": r.URL.RawQuery})
	})
	var out map[string]string
	require.NoError(t, c.ReadModel(t.Context(), "gl/accounts/20 00/ledger", url.Values{"legal_entity": {"USMF"}}, &out))
	require.Equal(t, map[string]string{"path": "/api/gl/accounts/20%2000/ledger", "query": "legal_entity=USMF"}, out)
}

func TestAnAnswerThatIsNoProblem(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) })
	_, err := c.Event(t.Context(), "", "01J")
	require.Equal(t, "client.answer_unreadable", fault.CodeOf(err))
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

func TestAWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		refuse(w, 503, `{"code":"append.queue_full","detail":"later"}`)
	})
	_, err := c.GetIntent(ctx, "", "01J")
	require.ErrorIs(t, err, context.Canceled)
}

func TestServerMustBeAURL(t *testing.T) {
	t.Parallel()
	_, err := httpclient.New(httpclient.Config{Server: "127.0.0.1:8080"})
	require.Equal(t, "client.server_invalid", fault.CodeOf(err))
}
