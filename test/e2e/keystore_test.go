package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestExternalKeyStore keeps the wrapped keys in a separate database.
// Two nodes that start concurrently share one KEK, and an erasure at one node reaches the
// other one.
func TestExternalKeyStore(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	log, keys := testkit.Database(t, nil, "e2e_empty"), testkit.Database(t, nil, "e2e_empty")
	migrated := command(t, []string{"BACKBONE_KEYSTORE_OWNER_DSN=" + keys}, "migrate", "--dsn", log)
	require.Zero(t, migrated.code, migrated)
	env := append(startKeyServer(t).settings(t),
		"BACKBONE_DATABASE_DSN="+asApplication(t, log), "BACKBONE_KEYSTORE_DSN="+asApplication(t, keys), "BACKBONE_KEYSTORE_ERASER_DSN="+asEraser(t, keys))
	boot := command(t, env, "bootstrap", "--tenant", "acme", "--admin", "p-0001", "--log-name", "ledger.example.org")
	require.Zero(t, boot.code, boot)
	_, one := startServe(t, asApplication(t, log), env...)
	_, other := startServe(t, asApplication(t, log), env...)
	admin := one.as(boot.stdout)
	require.NoError(t, admin.want(201, nil, "POST", "/api/event-types", hireType))
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`))
	token := func(person, role string, more ...string) string {
		t.Helper()
		r := command(t, env, append([]string{"enroll", "--tenant", "acme", "--person", person, "--role", role}, more...)...)
		require.Zero(t, r.code, r)
		return r.stdout
	}
	hr, officer, second := token("s-hr", "module", append([]string{"--service"}, serviceFlags("p-0001")...)...), token("p-0002", "compliance"), token("p-0003", "compliance_approver")

	var running sync.WaitGroup
	for i, node := range []client{one, other, one, other, one, other} {
		running.Go(func() {
			caller := node.as(hr)
			if err := caller.want(201, nil, "POST", "/api/events", batch(recordEmployee("FRMF", fmt.Sprintf("E-%d", i)))); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	list := command(t, env, "keys", "list", "--json")
	require.Zero(t, list.code, list)
	var listed struct {
		Epochs []struct {
			State string `json:"state"`
			Keys  int    `json:"keys"`
		} `json:"epochs"`
	}
	require.NoError(t, json.Unmarshal([]byte(list.stdout), &listed))
	require.Len(t, listed.Epochs, 1)
	require.Equal(t, "active", listed.Epochs[0].State)
	require.GreaterOrEqual(t, listed.Epochs[0].Keys, 6)

	var request struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	require.NoError(t, one.as(officer).want(201, &request, "POST", "/api/erasure-requests", `{"subject":"employee:E-1","basis":"gdpr_art_17","reason":"Letter of March"}`))
	began := time.Now()
	require.NoError(t, other.as(second).want(200, nil, "POST", "/api/erasure-requests/"+request.ID+"/approve", `{}`))
	testkit.Eventually(t, erasureTime, func() bool {
		require.NoError(t, one.as(officer).want(200, &request, "GET", "/api/erasure-requests/"+request.ID, ""))
		return request.Status == "completed"
	}, "the erasure is completed")
	t.Logf("completed after %s", time.Since(began).Round(time.Millisecond))
	for _, node := range []client{one, other} {
		var page struct {
			Events []struct {
				Data struct {
					Email string `json:"email"`
				} `json:"data"`
				Stream struct {
					ID string `json:"id"`
				} `json:"stream"`
			} `json:"events"`
		}
		caller := node.as(hr)
		require.NoError(t, caller.want(200, &page, "GET", "/api/events?stream_type=type&stream_id=hr.employee.hired&legal_entity=FRMF", ""))
		require.Len(t, page.Events, 6)
		for _, e := range page.Events {
			require.Equal(t, e.Stream.ID == "E-1", e.Data.Email == "[REDACTED]", e)
		}
		refused, err := caller.do("POST", "/api/events", batch(recordEmployee("FRMF", "E-1")))
		require.NoError(t, err)
		require.Equal(t, http.StatusGone, refused.status, refused)
	}
	verdict := command(t, env, "verify")
	require.Zero(t, verdict.code, verdict)
}
