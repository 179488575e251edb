package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStreamLifecycle takes a stream of a service through all of its states, through the API
// and the command line, and verifies the log.
func TestStreamLifecycle(t *testing.T) {
	t.Parallel()
	const entity, name, at = "STRX", "press.line.stopped", "/api/streams/line/L%2F7?legal_entity=STRX"
	d := sharedDev(t)
	newEntity(t, d, entity)
	module, auditor := d.as(t, "module"), d.as(t, "auditor")
	require.NoError(t, d.as(t, "admin").want(http.StatusCreated, nil, "POST", "/api/event-types", fmt.Sprintf(
		`{"type":%q,"schema_version":1,"module":"press","data_schema":{"type":"object","additionalProperties":false,"properties":{"minutes":{"type":"integer"}}}}`, name)))
	stop := func(minutes int, expected string) answer {
		a, err := module.do("POST", "/api/streams/line/L%2F7/events?legal_entity=STRX", fmt.Sprintf(`{"events":[{"type":%q,"data":{"minutes":%d}}]}`, name, minutes), "Expected-Version", expected)
		require.NoError(t, err)
		return a
	}
	streams := func(persona string, args ...string) result {
		environment := append(d.as(t, persona).environment(), "BACKBONE_LEGAL_ENTITY="+entity)
		return command(t, environment, append([]string{"streams"}, args...)...)
	}
	versions := func(c client, more string) []int {
		var page struct {
			Events []event `json:"events"`
		}
		require.NoError(t, c.want(http.StatusOK, &page, "GET", at+more, ""))
		out := []int{}
		for _, e := range page.Events {
			out = append(out, e.Stream.Version)
		}
		return out
	}

	for i, expected := range []string{"no_stream", "1", "2"} {
		require.Equal(t, http.StatusCreated, stop(i, expected).status)
	}
	file := filepath.Join(t.TempDir(), "metadata.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"max_count": 2, "cache_control": "max-age=5", "acl": {"write": ["module"], "delete": ["admin"]}, "custom": {"hall": 3}}`), 0o600))
	r := streams("module", "metadata", "line/L/7", "--set", file, "--expected-version", "9")
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "append.wrong_expected_version")
	r = streams("module", "metadata", "line/L/7", "--set", file, "--expected-version", "3", "--reason", "a test")
	require.Zero(t, r.code, r)
	require.Equal(t, []int{3, 4}, versions(auditor, ""))
	require.Equal(t, []int{4, 3}, versions(auditor, "&direction=backward"))
	r = streams("auditor", "show", "line/L/7")
	require.Zero(t, r.code, r)
	require.Regexp(t, `state +active\nversion +4\nmetadata +set at version 4\n +max_count +2\n`, r.stdout)
	r = streams("auditor", "metadata", "line/L/7")
	require.Zero(t, r.code, r)
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(kept), r.stdout)

	r = streams("module", "delete", "line/L/7")
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "stream.access_denied")
	r = streams("admin", "delete", "line/L/7", "--reason", "line is dismantled", "--json")
	require.Zero(t, r.code, r)
	var change struct {
		State  string `json:"state"`
		Stream struct {
			Version int `json:"version"`
		} `json:"stream"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &change))
	require.Equal(t, "deleted", change.State)
	require.Equal(t, 5, change.Stream.Version)
	a, err := auditor.do("GET", at, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, a.status)
	require.Equal(t, "stream.deleted", a.code())
	require.Equal(t, "stream.deleted", stop(4, "stream_exists").code())
	require.Equal(t, http.StatusCreated, stop(5, "5").status)
	require.Equal(t, []int{6, 7}, versions(auditor, ""))

	r = streams("admin", "tombstone", "line/L/7")
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "streams.not_confirmed")
	r = streams("module", "tombstone", "line/L/7", "--yes")
	require.Contains(t, r.stderr, "auth.forbidden")
	r = streams("admin", "tombstone", "line/L/7", "--yes")
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "is tombstoned at version 8")
	a = stop(6, "any")
	require.Equal(t, http.StatusGone, a.status)
	require.Equal(t, "stream.tombstoned", a.code())
	r = streams("auditor", "show", "line/L/7")
	require.Contains(t, r.stdout, "tombstoned")

	facts, err := auditor.events(url.Values{"stream_type": {"scope"}, "stream_id": {entity}})
	require.NoError(t, err)
	var types []string
	for _, e := range facts {
		types = append(types, e.Type)
	}
	require.Equal(t, []string{name, name, name, "stream.metadata.changed", "stream.deleted", "stream.recreated", name, "stream.tombstoned"}, types, "no fact is gone")

	// No role may delete the streams of the books.
	r = streams("admin", "delete", "ap.invoice/X")
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "stream.owned_by_module")
}
