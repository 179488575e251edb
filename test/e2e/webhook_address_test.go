package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWebhookAddresses requires that a server refuses endpoints with private addresses: in
// other spellings, through names, and through redirects.
func TestWebhookAddresses(t *testing.T) {
	t.Parallel()
	i := install(t, "BACKBONE_WEBHOOK_ALLOW_HTTP=true")
	owner := i.enroll(t, "s-machines", "module", "--service")
	const at = "/api/subscriptions/hooks"
	inside := newReceiver(t)
	port := inside.URL[strings.LastIndex(inside.URL, ":"):]

	strict, server := i.serve(t)
	admin, module := server.as(i.admin), server.as(owner)
	require.NoError(t, admin.want(http.StatusCreated, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"Manufacturing France","time_zone":"Europe/Paris"}`))
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/subscriptions", `{"id":"hooks","subscriber_type":"webhook","subscriber_id":"crm"}`))
	allowHosts(t, admin, "http://localhost"+port, "http://2130706433"+port, "http://127.1"+port)
	var tested struct {
		Delivered bool   `json:"delivered"`
		Status    int    `json:"status"`
		Code      string `json:"code"`
	}
	try := func(module client, address string) (refused string) {
		t.Helper()
		a := must(module.do("PUT", at+"/endpoint", fmt.Sprintf(`{"url":%q}`, address)))
		if a.status >= 400 {
			return a.code()
		}
		require.NoError(t, module.want(http.StatusOK, &tested, "POST", at+"/test", ""))
		return ""
	}
	for _, host := range []string{
		"127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]",
		"[64:ff9b::127.0.0.1]", "[fe80::1%25lo]", "[fd00::1]",
	} {
		require.Equal(t, "webhook.url_invalid", try(module, "http://"+host+port+"/"), host)
	}
	// A name is accepted; its address is checked when the connection is made.
	require.Empty(t, try(module, "http://localhost"+port+"/"))
	require.False(t, tested.Delivered)
	require.Equal(t, "webhook.dns", tested.Code)
	// Spellings that Go does not read as addresses are names.
	for _, host := range []string{"2130706433", "127.1", "LOCALHOST"} {
		if refused := try(module, "http://"+host+port+"/"); refused == "" {
			require.False(t, tested.Delivered, host)
			require.Contains(t, []string{"webhook.dns", "webhook.timeout"}, tested.Code, host)
		} else {
			require.Equal(t, "webhook.url_invalid", refused, host)
		}
	}
	inside.mu.Lock()
	require.Empty(t, inside.got, "nothing was sent inside")
	inside.mu.Unlock()
	require.NoError(t, strict.end())

	// A server in the allowed network redirects to an address outside it.
	elsewhere := "http://169.254.169.254/latest/meta-data"
	pointing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, map[bool]string{true: elsewhere, false: inside.URL}[strings.HasPrefix(r.URL.Path, "/away")], http.StatusTemporaryRedirect)
	}))
	t.Cleanup(pointing.Close)
	_, server = i.serve(t, "BACKBONE_WEBHOOK_ALLOWED_NETWORKS=127.0.0.1/32")
	module = server.as(owner)
	allowHosts(t, server.as(i.admin), pointing.URL)
	u, err := url.Parse(pointing.URL)
	require.NoError(t, err)
	for _, path := range []string{"/away", "/near"} {
		require.Empty(t, try(module, u.JoinPath(path).String()))
		require.Equal(t, []any{false, http.StatusTemporaryRedirect, "webhook.status_307"}, []any{tested.Delivered, tested.Status, tested.Code}, path)
	}
	require.Equal(t, "webhook.url_invalid", try(module, "http://127.0.0.2"+port+"/"), "the network that is allowed, and no other")
	inside.mu.Lock()
	defer inside.mu.Unlock()
	require.Empty(t, inside.got, "redirects are not followed")
}
