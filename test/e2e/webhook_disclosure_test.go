package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestWebhookDisclosure: personal values leave in clear only to an allowed host, for a reason, and
// by an owner with the right to disclose. Every delivery is in the access log.
func TestWebhookDisclosure(t *testing.T) {
	t.Parallel()
	i := install(t)
	plain, disclosing := i.enroll(t, "s-plain", "module", "--service"), i.enroll(t, "s-disclosing", "module", "--role", "compliance", "--service")
	_, server := i.serve(t, "BACKBONE_WEBHOOK_ALLOW_PRIVATE_NETWORKS=true", "BACKBONE_WEBHOOK_ALLOW_HTTP=true")
	admin := server.as(i.admin)
	officer := admin.enroll(t, "p-officer", "compliance")
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"Manufacturing France","time_zone":"Europe/Paris"}`))
	registerPersons(t, admin)
	r := newReceiver(t)
	masked, clear := fmt.Sprintf(`{"url":%q}`, r.URL+"/hook"), fmt.Sprintf(`{"url":%q,"personal_data":{"reason":"ticket 4711"}}`, r.URL+"/hook")
	subscribe := func(c client, id string) string {
		require.NoError(t, c.want(201, nil, "POST", "/api/subscriptions", `{"id":"`+id+`","subscriber_type":"webhook","subscriber_id":"crm","event_types":["`+personType+`"],"settings":{"partition_by":"stream"}}`))
		return "/api/subscriptions/" + id + "/endpoint"
	}
	shown := func() string {
		t.Helper()
		r.answering(nil)
		server.as(plain).record(t, person("FRMF", "E-1", object{"email": "ada@example.org"}))
		var body struct {
			Data struct {
				Data map[string]any `json:"data"`
			} `json:"data"`
		}
		testkit.Eventually(t, time.Minute, func() bool {
			taken := r.taken()
			return len(taken) > 0 && json.Unmarshal(taken[0].body, &body) == nil
		})
		return body.Data.Data["email"].(string)
	}

	// Without the right a reason is refused, and without a reason values are masked.
	at := subscribe(server.as(plain), "plain")
	unlisted, err := server.as(plain).do("PUT", at, masked)
	require.NoError(t, err)
	require.Equal(t, "webhook.host_not_allowed", unlisted.code(), unlisted)
	allowHosts(t, admin, r.URL)
	refused, err := server.as(plain).do("PUT", at, clear)
	require.NoError(t, err)
	require.Equal(t, 403, refused.status, refused)
	require.NoError(t, server.as(plain).want(201, nil, "PUT", at, masked))
	require.Equal(t, maskedValue, shown())
	require.NoError(t, server.as(plain).want(200, nil, "DELETE", "/api/subscriptions/plain", ""))

	at = subscribe(server.as(disclosing), "disclosing")
	require.NoError(t, server.as(disclosing).want(201, nil, "PUT", at, clear))
	require.Equal(t, "ada@example.org", shown())
	var log struct {
		Accesses []struct {
			Subject string `json:"subject"`
			Class   string `json:"class"`
			Reason  string `json:"reason"`
		} `json:"accesses"`
	}
	require.NoError(t, server.as(officer).want(200, &log, "GET", "/api/access-log?person=s-disclosing", ""))
	require.NotEmpty(t, log.Accesses)
	require.Equal(t, []string{"employee:E-1", "contact", "ticket 4711"}, []string{log.Accesses[0].Subject, log.Accesses[0].Class, log.Accesses[0].Reason})
}
