package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

func serve(t *testing.T, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{Server: server.URL + "/", Token: "bbk_x", LongestWait: 10 * time.Millisecond})
	require.NoError(t, err)
	return c
}

func refuse(w http.ResponseWriter, status int, document string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, document)
}

func TestProblemToFault(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, 409, `{"type":"/problems/ap.duplicate_invoice","title":"Conflict","status":409,"code":"ap.duplicate_invoice","detail":"100% the same; look at the holder","field":"/payload","intent_id":"01J","expected":3,"actual":"4","holder":{"event_id":"01H","document_id":"INV-1","sequence":"7"},"violations":[{"code":"x","line":2}],"vendor_id":"V-1"}`)
	})
	_, err := c.SubmitIntent(t.Context(), client.SubmitIntentParams{IdempotencyKey: "k"}, client.IntentRequest{Type: "ap.submit_invoice", Payload: json.RawMessage(`{}`)})
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

func TestRetryWhileUnavailable(t *testing.T) {
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
	var replayed bool
	var document json.RawMessage
	out, err := c.SubmitIntent(t.Context(), client.SubmitIntentParams{IdempotencyKey: "k"}, client.IntentRequest{Type: "x.y", Payload: json.RawMessage(`{"a":"<b>"}`)},
		client.Replayed(&replayed), client.Document(&document))
	require.NoError(t, err)
	require.True(t, replayed)
	require.Contains(t, string(document), `"sequence":"9"`)
	require.Equal(t, "9", out.Events[0].Sequence)
	require.EqualValues(t, 3, calls.Load())
}

func TestRetryAfterBrokenConnection(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		panic(http.ErrAbortHandler)
	})
	_, err := c.ApproveIntent(t.Context(), "01J", client.ApproveIntentParams{LegalEntity: "USMF"}, client.ApproveRequest{})
	require.Equal(t, "client.server_unreachable", fault.CodeOf(err))
	require.EqualValues(t, 1, calls.Load())
	_, err = c.AppendEvents(t.Context(), client.AppendEventsParams{IdempotencyKey: "k"}, client.AppendRequest{Events: []client.NewEvent{{Data: json.RawMessage(`{}`)}}})
	require.Equal(t, "client.server_unreachable", fault.CodeOf(err))
	require.EqualValues(t, 6, calls.Load())
}

func TestPathEscaping(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"path": r.URL.EscapedPath(), "query": r.URL.RawQuery})
	})
	var document json.RawMessage
	_, err := c.ReadGlAccountsAccountLedger(t.Context(), "20 00", client.ReadGlAccountsAccountLedgerParams{LegalEntity: "USMF", Limit: 5}, client.Document(&document))
	require.NoError(t, err)
	require.JSONEq(t, `{"path": "/api/gl/accounts/20%2000/ledger", "query": "legal_entity=USMF&limit=5"}`, string(document))
}

func TestAnswerWithoutProblemDocument(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) })
	_, err := c.GetEvent(t.Context(), "01J", client.GetEventParams{})
	require.Equal(t, "client.answer_unreadable", fault.CodeOf(err))
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

func TestRetryEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		refuse(w, 503, `{"code":"append.queue_full","detail":"later"}`)
	})
	_, err := c.GetIntent(ctx, "01J", client.GetIntentParams{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestNewRefusesServerWithoutScheme(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{Server: "127.0.0.1:8080"})
	require.Equal(t, "client.server_invalid", fault.CodeOf(err))
}
