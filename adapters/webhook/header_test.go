package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/webhook"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

func TestCheckHeader(t *testing.T) {
	t.Parallel()
	s := webhook.New(webhook.Config{Clock: testkit.NewClock(now)})
	for _, h := range []ports.Header{
		{Name: "Authorization", Value: "Bearer a.b-c_d=="}, {Name: "x-api-key", Value: "k"}, {Name: "X_Route", Value: "eu west"}, {Name: "X-Long", Value: strings.Repeat("v", 4096)},
	} {
		require.NoError(t, s.CheckHeader(h), h.Name)
	}
	const hidden = "s3cr3t"
	for _, h := range []ports.Header{
		{}, {Name: "X-A"}, {Name: "X A", Value: hidden}, {Name: "X-A\r\nHost", Value: hidden}, {Name: "X:A", Value: hidden}, {Name: "Ü", Value: hidden},
		{Name: strings.Repeat("x", 101), Value: hidden}, {Name: "X-A", Value: hidden + "\r\nHost: evil"}, {Name: "X-A", Value: hidden + "\n"}, {Name: "X-A", Value: " " + hidden},
		{Name: "X-A", Value: hidden + "\x00"}, {Name: "X-A", Value: hidden + "é"}, {Name: "X-A", Value: hidden + strings.Repeat("v", 4096)},
		{Name: "Content-Type", Value: hidden}, {Name: "content-length", Value: "1"}, {Name: "HOST", Value: hidden}, {Name: "User-Agent", Value: hidden}, {Name: "Content-Encoding", Value: "gzip"},
		{Name: "Webhook-Id", Value: hidden}, {Name: "webhook-signature", Value: hidden}, {Name: "Webhook-Anything", Value: hidden}, {Name: "Cookie", Value: hidden},
		{Name: "Connection", Value: "close"}, {Name: "Transfer-Encoding", Value: "chunked"}, {Name: "TE", Value: "trailers"}, {Name: "Upgrade", Value: "h2c"},
		{Name: "Keep-Alive", Value: "1"}, {Name: "Proxy-Authorization", Value: hidden}, {Name: "Trailer", Value: hidden}, {Name: "Expect", Value: "100-continue"},
	} {
		err := s.CheckHeader(h)
		require.Equal(t, "webhook.header_invalid", fault.CodeOf(err), h.Name)
		require.NotContains(t, err.Error(), hidden, "values are secrets")
	}
}

// TestSend_CustomHeaders compares what a receiver gets.
func TestSend_CustomHeaders(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got <- r.Header.Clone() }))
	defer receiver.Close()
	s := webhook.New(webhook.Config{AllowHTTP: true, AllowPrivateNetworks: true, Clock: testkit.NewClock(now)})
	request := ports.WebhookRequest{
		URL: receiver.URL, ID: "m-1", Timestamp: now, Signature: "v1,x", Body: []byte(`{}`), Timeout: waitFor,
		Headers: []ports.Header{{Name: "authorization", Value: "Bearer abc"}, {Name: "X-Route", Value: "eu"}},
	}
	answer, err := s.Send(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, 200, answer.Status)
	h := <-got
	require.Equal(t, "Bearer abc", h.Get("Authorization"))
	require.Equal(t, "eu", h.Get("X-Route"))
	require.Equal(t, "application/json", h.Get("Content-Type"))
	require.Equal(t, "m-1", h.Get("webhook-id"))

	// A stored header that is not allowed any more is not sent.
	request.Headers = []ports.Header{{Name: "Host", Value: "inner"}}
	_, err = s.Send(t.Context(), request)
	require.Equal(t, "webhook.header_invalid", fault.CodeOf(err))
	require.Empty(t, got)
}
