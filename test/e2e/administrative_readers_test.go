package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAdministrativeLogReaders follows, exports and subscribes to the administrative log while a
// person is enrolled. Only callers who see the whole tenant may.
func TestAdministrativeLogReaders(t *testing.T) {
	t.Parallel()
	i := install(t)
	_, anonymous := i.serve(t)
	admin := anonymous.as(i.admin)
	require.NoError(t, admin.want(http.StatusCreated, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`))
	auditor, clerk := anonymous.as(admin.enroll(t, "p-auditor", "auditor")), anonymous.as(admin.enroll(t, "p-clerk", "ap_clerk"))
	limited := []string{"--legal-entity", "FRMF"}
	auditorOfOne, adminOfOne := anonymous.as(i.enroll(t, "p-auditor-fr", "auditor", limited...)), anonymous.as(i.enroll(t, "p-admin-fr", "admin", limited...))

	const (
		feed   = "/api/subscribe/streams/$all?from=now&legal_entities=_ADMIN&event_types=backbone.principal.enrolled"
		export = "/api/events/export?legal_entity=_ADMIN&stream_type=type&stream_id=backbone.principal.enrolled"
	)
	definition := func(id string) string {
		return `{"id":"` + id + `","subscriber_type":"service","subscriber_id":"siem","legal_entities":["_ADMIN"],"event_types":["backbone.principal.enrolled"]}`
	}
	for name, refused := range map[string]struct {
		client
		read, subscribe string // codes of the refusals
	}{
		"clerk":                             {clerk, "auth.forbidden", "legal_entity.not_found"},
		"auditor of one legal entity":       {auditorOfOne, "legal_entity.not_found", "auth.forbidden"},
		"administrator of one legal entity": {adminOfOne, "auth.forbidden", "legal_entity.not_found"},
	} {
		status := map[string]int{"auth.forbidden": http.StatusForbidden, "legal_entity.not_found": http.StatusNotFound}
		for _, path := range []string{feed, export} {
			a := must(refused.do("GET", path, "", "Accept", "text/event-stream, application/json"))
			require.Equal(t, []any{status[refused.read], refused.read}, []any{a.status, a.code()}, "%s: %s: %s", name, path, a)
		}
		a := must(refused.do("POST", "/api/subscriptions", definition("refused")))
		require.Equal(t, []any{status[refused.subscribe], refused.subscribe}, []any{a.status, a.code()}, "%s: %s", name, a)
	}

	require.NoError(t, admin.want(http.StatusCreated, nil, "POST", "/api/subscriptions", definition("access")))
	require.NoError(t, admin.want(http.StatusCreated, nil, "POST", "/api/subscriptions", `{"id":"books","subscriber_type":"service","subscriber_id":"siem","event_types":["backbone.principal.enrolled"]}`))
	enrolled := openFeed(t, auditor, feed)
	const person = "p-followed"
	i.enroll(t, person, "ap_clerk")
	type enrolment struct {
		Type  string `json:"type"`
		Scope struct {
			LegalEntity string `json:"legal_entity"`
		} `json:"scope"`
		Data struct {
			PersonID string `json:"person_id"`
		} `json:"data"`
	}
	var followed enrolment
	require.NoError(t, json.Unmarshal([]byte(enrolled()), &followed))
	require.Equal(t, []string{"backbone.principal.enrolled", "_ADMIN", person}, []string{followed.Type, followed.Scope.LegalEntity, followed.Data.PersonID})

	persons := func(events ...enrolment) (out []string) {
		for _, e := range events {
			require.Equal(t, "_ADMIN", e.Scope.LegalEntity)
			out = append(out, e.Data.PersonID)
		}
		return out
	}
	all := []string{"p-0001", "p-auditor", "p-clerk", "p-auditor-fr", "p-admin-fr", person}
	exported := must(auditor.do("GET", export, ""))
	require.Equal(t, http.StatusOK, exported.status, exported)
	var lines []enrolment
	for line := range strings.Lines(string(exported.body)) {
		var e enrolment
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		lines = append(lines, e)
	}
	require.Equal(t, all, persons(lines...))
	var polled, books struct {
		Events []enrolment `json:"events"`
	}
	require.NoError(t, admin.want(http.StatusOK, &polled, "GET", "/api/subscriptions/access/poll?limit=100&wait_ms=20000", ""))
	require.Equal(t, all, persons(polled.Events...))
	require.NoError(t, admin.want(http.StatusOK, &books, "GET", "/api/subscriptions/books/poll?limit=100", ""))
	require.Empty(t, books.Events, "a subscription that does not name the administrative log never delivers it")
}

// openFeed opens a feed of server-sent events and returns once it has caught up. next waits for an event.
func openFeed(t *testing.T, c client, path string) (next func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveTime)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", c.server+path, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := bufio.NewScanner(res.Body)
	await := func(prefix string) string {
		for lines.Scan() {
			if text, found := strings.CutPrefix(lines.Text(), prefix); found {
				return text
			}
		}
		require.NoError(t, lines.Err())
		require.Fail(t, "the feed ended")
		return ""
	}
	await("event: caughtUp")
	await("data: ")
	return func() string { return await("data: ") }
}
