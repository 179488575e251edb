package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestWebhooksCommand operates a webhook from the command line.
func TestWebhooksCommand(t *testing.T) {
	t.Parallel()
	i := install(t, "BACKBONE_WEBHOOK_ALLOW_PRIVATE_NETWORKS=true", "BACKBONE_WEBHOOK_ALLOW_HTTP=true")
	token := i.enroll(t, "s-machines", "module", "--service")
	_, anonymous := i.serve(t)
	admin, module := anonymous.as(i.admin), anonymous.as(token)
	operator := admin.enroll(t, "p-op", "operator")
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"Manufacturing France","time_zone":"Europe/Paris"}`))
	i.machines(t, anonymous.server)
	webhooks := func(as string, args ...string) result {
		return anonymous.as(as).command(t, append([]string{"webhooks"}, args...)...)
	}
	works := func(r result, patterns ...string) string {
		t.Helper()
		require.Zero(t, r.code, r)
		for _, p := range patterns {
			require.Regexp(t, p, r.stdout)
		}
		return r.stdout
	}
	fails := func(r result, texts ...string) {
		t.Helper()
		require.NotZero(t, r.code, r)
		for _, text := range texts {
			require.Contains(t, r.stderr, text)
		}
	}

	receiver := newReceiver(t)
	fails(webhooks(token, "create", "machine-hook", "--url", receiver.URL), "webhook.host_not_allowed", "backbone webhooks allow")
	fails(webhooks(token, "allow", "127.0.0.2:1"), "auth.forbidden")
	works(webhooks(i.admin, "allow", "127.0.0.2:1"), `127\.0\.0\.2:1`)
	works(webhooks(i.admin, "allow", "hooks.example.org"), `hooks\.example\.org`)
	require.NotContains(t, works(webhooks(i.admin, "disallow", "hooks.example.org")), "hooks.example.org")
	works(webhooks(i.admin, "allow", strings.TrimPrefix(receiver.URL, "http://")))
	works(webhooks(token, "hosts"), `127\.0\.0\.2:1`)
	headers := filepath.Join(t.TempDir(), "gateway.txt")
	require.NoError(t, os.WriteFile(headers, []byte("Authorization: Bearer of-the-gateway\nX-Route: eu\n"), 0o600))
	out := works(webhooks(token, "create", "machine-hook", "--url", receiver.URL+"/hook", "--type", machineType, "--order", "stream", "--headers", headers), `shown once`, `whsec_\S+`)
	secret := strings.TrimSpace(out[strings.Index(out, "whsec_"):])
	works(webhooks(token, "test", "machine-hook"), `(?m)^Taken: the endpoint answered 204 after \d+ ms\.$`)
	first := receiver.taken()[0]
	require.NoError(t, checked(secret, first))
	require.Equal(t, "Bearer of-the-gateway", first.header.Get("Authorization"))
	require.Equal(t, "eu", first.header.Get("X-Route"))

	receiver.answering(func(n int) int {
		return map[bool]int{true: http.StatusInternalServerError, false: http.StatusNoContent}[n == 1]
	})
	require.NoError(t, module.want(201, nil, "POST", "/api/events", batch(machineServiced("FRMF", "M-1", `{"hours":1}`))))
	testkit.Eventually(t, time.Minute, func() bool { return len(receiver.taken()) == 1 })
	answers := func(as, path, pattern string, times int) func() bool {
		return func() bool {
			a := must(anonymous.as(as).do("GET", path, ""))
			require.Equal(t, http.StatusOK, a.status, a)
			return len(regexp.MustCompile(pattern).FindAll(a.body, -1)) == times
		}
	}
	testkit.Eventually(t, time.Minute, answers(operator, "/api/subscriptions/machine-hook/attempts", `"legal_entity":"FRMF"`, 2), "both attempts are written down")
	status := works(webhooks(operator, "show", "machine-hook"), `Own headers: Authorization, X-Route`, `Tried again after: 5s, 10s, 20s, 40s, 1m20s, `, `then a dead letter`,
		`(?m) FRMF +1 +\S+ +1 +webhook\.status_500 +500 +\d+ ms +\d{4}-\d\d-\d\d `, `(?m) FRMF +1 +\S+ +2 +taken +204 +\d+ ms +-$`)
	listed := works(webhooks(operator, "list"), `(?m)^machine-hook +active +http\S+/hook +s-machines +Authorization, X-Route +\d{4}\S+ \S+ +taken \(204\)`)
	asJSON := works(webhooks(operator, "show", "machine-hook", "--json"), `"retry_schedule_seconds": \[`)
	for _, text := range []string{status, listed, asJSON} {
		require.NotContains(t, text, "of-the-gateway")
		require.NotContains(t, text, "whsec_")
	}
	connection, err := pgx.Connect(t.Context(), i.owner)
	require.NoError(t, err)
	defer func() { _ = connection.Close(t.Context()) }()
	var row string
	require.NoError(t, connection.QueryRow(t.Context(), `SELECT encode(headers, 'escape') || w::text FROM backbone.webhook_endpoints w`).Scan(&row))
	require.NotContains(t, row, "of-the-gateway", "values are stored encrypted")

	rotated := works(webhooks(token, "rotate-secret", "machine-hook"), `secret number 2`, `whsec_\S+`)
	require.NotContains(t, rotated, secret)
	fails(webhooks(operator, "rotate-secret", "machine-hook"), "subscription.not_found")
	fails(webhooks(token, "create", "machine-hook", "--url", "http://127.0.0.2:1/"), "webhook.headers_missing")
	works(webhooks(token, "create", "machine-hook", "--url", "http://127.0.0.2:1/", "--no-headers"), `are sent to http://127\.0\.0\.2:1/`)
	fails(webhooks(token, "test", "machine-hook"), "webhook.connection", "see that the receiver runs")
	receiver.answering(func(int) int { return http.StatusForbidden })
	works(webhooks(token, "create", "machine-hook", "--url", receiver.URL))
	fails(webhooks(token, "test", "machine-hook"), "webhook.status_403", "--headers")

	// An endpoint that answers 410 is disabled until it is set again.
	receiver.answering(func(int) int { return http.StatusGone })
	require.NoError(t, module.want(201, nil, "POST", "/api/events", batch(machineServiced("FRMF", "M-1", `{"hours":2}`))))
	testkit.Eventually(t, time.Minute, answers(token, "/api/webhooks", `"disabled_code":"webhook\.status_410"`, 1))
	works(webhooks(token, "list"), `disabled: webhook\.status_410`)
	works(webhooks(token, "show", "machine-hook"), `is disabled since .* \(webhook\.status_410\); set it again`)
	receiver.answering(func(int) int { return http.StatusNoContent })
	works(webhooks(token, "create", "machine-hook", "--url", receiver.URL), `^Events of machine-hook are sent to `)
	testkit.Eventually(t, time.Minute, func() bool { return len(receiver.taken()) == 1 }, "what was refused comes again")
	require.NoError(t, module.want(200, nil, "POST", "/api/subscriptions/machine-hook/pause", ""))
	works(webhooks(token, "show", "machine-hook"), `waits: its subscription is paused; .backbone subscriptions resume machine-hook. resumes it`)
	works(webhooks(token, "create", "machine-hook", "--url", receiver.URL+"/v2"), `is set, and waits: its subscription is paused`)
	works(webhooks(token, "delete", "machine-hook"), `Nothing of machine-hook is sent any more`)
	fails(webhooks(token, "show", "machine-hook"), "webhook.endpoint_not_found")
	works(webhooks(token, "list"), `^SUBSCRIPTION [^\n]*\n$`)
}
