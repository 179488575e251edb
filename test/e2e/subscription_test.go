package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pollResult is an answer to a poll.
type pollResult struct {
	Events []struct {
		ID       string `json:"id"`
		Sequence string `json:"sequence"`
		Delivery struct {
			Attempt  int       `json:"attempt"`
			Deadline time.Time `json:"deadline"`
		} `json:"delivery"`
		Data json.RawMessage `json:"data"`
	} `json:"events"`
	HasMore bool   `json:"has_more"`
	Status  string `json:"status"`
}

func (p pollResult) ids() string {
	var out []string
	for _, e := range p.Events {
		out = append(out, `"`+e.ID+`"`)
	}
	return "[" + strings.Join(out, ",") + "]"
}

// TestSubscriptions follows a subscription from its definition to its deletion.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	const entity = "SUBX"
	d := sharedDev(t)
	newEntity(t, d, entity)
	registerMachines(t, d)
	module, admin, auditor := d.as(t, "module"), d.as(t, "admin"), d.as(t, "auditor")
	write := func(n int) {
		t.Helper()
		for i := range n {
			var receipt receipts
			require.NoError(t, module.want(http.StatusCreated, &receipt, "POST", "/api/events", batch(machineServiced(entity, fmt.Sprintf("M-%d", i%2), `{"hours":1}`))))
		}
	}
	const at = "/api/subscriptions/machines"
	poll := func(query string) (out pollResult) {
		t.Helper()
		require.NoError(t, module.want(http.StatusOK, &out, "GET", at+"/poll"+query, ""))
		return out
	}
	refused := func(c client, code, method, path, body string) {
		t.Helper()
		a, err := c.do(method, path, body)
		require.NoError(t, err)
		require.Equal(t, code, a.code(), a)
	}

	definition := func(settings string) string {
		return `{"id":"machines","subscriber_type":"service","subscriber_id":"machines","event_types":["` + machineType + `"],"legal_entities":["` + entity + `"],"settings":{` + settings + `}}`
	}
	const settings = `"partition_by":"entity:machine","retry_first_ms":1,"retry_longest_ms":1,"max_retry_count":1`
	refused(module, "subscription.setting_unsupported", "POST", "/api/subscriptions", definition(`"resolve_links":true`))
	refused(module, "subscription.settings_invalid", "POST", "/api/subscriptions", definition(`"partition_by":"colour"`))
	refused(auditor, "auth.forbidden", "POST", "/api/subscriptions", definition(settings))
	write(4)
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/subscriptions", definition(settings)))
	again, err := module.do("POST", "/api/subscriptions", definition(settings))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, again.status, again)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	refused(module, "subscription.exists", "POST", "/api/subscriptions", definition(`"partition_by":"stream"`))
	refused(d.as(t, "controller"), "subscription.not_found", "GET", at+"/poll", "")
	refused(admin, "subscription.not_found", "GET", at+"/poll", "")

	asked := time.Now()
	first := poll("?limit=3")
	require.Len(t, first.Events, 3)
	require.True(t, first.HasMore)
	require.Equal(t, 1, first.Events[0].Delivery.Attempt)
	deadline := first.Events[0].Delivery.Deadline
	require.False(t, deadline.Before(asked.Add(30*time.Second).Truncate(time.Millisecond)), deadline)
	require.False(t, deadline.After(time.Now().Add(30*time.Second)), deadline)
	require.JSONEq(t, `{"hours":1}`, string(first.Events[0].Data))
	var done struct {
		Acknowledged int               `json:"acknowledged"`
		Ignored      []json.RawMessage `json:"ignored"`
	}
	one := fmt.Sprintf(`{"event_id":%q,"sequence":%q,"legal_entity":%q}`, first.Events[2].ID, first.Events[2].Sequence, entity)
	require.NoError(t, module.want(http.StatusOK, &done, "POST", at+"/acknowledge", one))
	require.Equal(t, 3, done.Acknowledged)
	require.NoError(t, module.want(http.StatusOK, &done, "POST", at+"/acknowledge", `{"event_ids":`+first.ids()+`}`))
	require.Zero(t, done.Acknowledged)
	require.Len(t, done.Ignored, 3)

	// A waiting poll is answered by the next write.
	rest := poll("")
	require.Len(t, rest.Events, 1)
	require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/acknowledge", `{"event_ids":`+rest.ids()+`}`))
	came := make(chan pollResult, 1)
	failed := make(chan error, 1)
	go func() {
		var out pollResult
		if err := module.want(http.StatusOK, &out, "GET", at+"/poll?wait_ms=30000", ""); err != nil {
			failed <- err
			return
		}
		came <- out
	}()
	write(1)
	var bad pollResult
	select {
	case bad = <-came:
	case err := <-failed:
		require.NoError(t, err)
	case <-time.After(liveTime): // a poll without a wake-up returns empty earlier
		require.Fail(t, "the poll was not woken")
	}
	require.Len(t, bad.Events, 1)

	// Failed events are retried and finally parked; they block their machine only.
	nack := func(ids, action string) {
		t.Helper()
		require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/nack", `{"event_ids":`+ids+`,"action":"`+action+`","code":"machine.closed","reason":"The machine is closed."}`))
	}
	nack(bad.ids(), "retry")
	second := poll("?wait_ms=20000")
	require.Equal(t, bad.ids(), second.ids())
	require.Equal(t, 2, second.Events[0].Delivery.Attempt)
	nack(bad.ids(), "retry")
	write(2)
	other := poll("")
	require.Len(t, other.Events, 1)
	require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/acknowledge", `{"event_ids":`+other.ids()+`}`))
	var state struct {
		Parked   int `json:"parked"`
		Waiting  int `json:"waiting"`
		InFlight int `json:"in_flight"`
	}
	require.NoError(t, admin.want(http.StatusOK, &state, "GET", at, ""))
	require.Equal(t, []int{1, 1, 0}, []int{state.Parked, state.Waiting, state.InFlight})

	for _, try := range []struct {
		want string
		args []string
	}{
		{"machines", []string{"list"}},
		{entity, []string{"show", "machines"}},
		{"machine.closed", []string{"parked", "machines", "--groups"}},
		{"The machine is closed.", []string{"parked", "machines"}},
	} {
		r := admin.command(t, append([]string{"subscriptions"}, try.args...)...)
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, try.want)
	}
	for _, args := range [][]string{{"deadletters", "--kind", "subscription"}, {"deadletters", "--name", "machines", "--json"}} {
		r := admin.command(t, args...)
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, "machine.closed")
	}
	var parked struct {
		Code  string          `json:"code"`
		Event json.RawMessage `json:"event"`
	}
	id := strings.Trim(bad.ids(), `[]"`)
	require.NoError(t, admin.want(http.StatusOK, &parked, "GET", at+"/parked/"+id, ""))
	require.Equal(t, "machine.closed", parked.Code)
	require.Empty(t, parked.Event, "an administrator reads no events")
	require.NoError(t, module.want(http.StatusOK, &parked, "GET", at+"/parked/"+id, ""))
	require.NotEmpty(t, parked.Event)
	require.Contains(t, admin.command(t, "subscriptions", "replay", "machines", "--all", "--code", "machine.closed").stdout, "1 message queued for delivery again.")
	both := poll("?wait_ms=20000")
	require.Len(t, both.Events, 2, "in order again")
	require.Equal(t, id, both.Events[0].ID)
	nack(both.ids(), "park")
	refused(admin, "subscription.reason_missing", "POST", at+"/parked/discard", `{"all":true}`)
	require.Contains(t, admin.command(t, "subscriptions", "discard", "machines", "--all", "--reason", "Serviced by hand").stdout, "2 messages")
	var decisions struct {
		Decisions []struct{ Action, Actor, Reason string }
	}
	require.NoError(t, admin.want(http.StatusOK, &decisions, "GET", at+"/decisions", ""))
	require.Len(t, decisions.Decisions, 3)
	require.Equal(t, "Serviced by hand", decisions.Decisions[0].Reason)

	// Paused, moved, deleted.
	require.NoError(t, admin.want(http.StatusOK, nil, "POST", at+"/pause", ""))
	require.NoError(t, admin.want(http.StatusOK, nil, "POST", at+"/reset", `{"to":"position","positions":{"`+entity+`":"6"}}`))
	idle := poll("")
	require.Empty(t, idle.Events)
	require.Equal(t, "paused", idle.Status)
	require.NoError(t, module.want(http.StatusOK, nil, "PUT", at+"/settings", `{"partition_by":"none"}`))
	require.NoError(t, admin.want(http.StatusOK, nil, "POST", at+"/resume", ""))
	last := poll("")
	require.Len(t, last.Events, 2)
	require.Equal(t, "6", last.Events[0].Sequence)
	refused(admin, "subscription.position_invalid", "POST", at+"/reset", `{"to":"position","positions":{"`+entity+`":"9"}}`)
	require.NoError(t, admin.want(http.StatusOK, nil, "DELETE", at, ""))
	refused(module, "subscription.not_found", "GET", at+"/poll", "")
}
