package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/snapshot"
)

// synchronous runs background work before the answer.
type synchronous struct{}

func (synchronous) Do(_ string, f func(context.Context)) bool { f(context.Background()); return true }

type entityAnswer struct {
	Entity       map[string]string `json:"entity"`
	LegalEntity  string            `json:"legal_entity"`
	State        json.RawMessage   `json:"state"`
	Version      string            `json:"version"`
	AsOfSequence string            `json:"as_of_sequence"`
	HeadVersion  string            `json:"head_version"`
	EventCount   int               `json:"event_count"`
	EventsFolded int               `json:"events_folded"`
	Consistency  string            `json:"consistency"`
	AsOf         string            `json:"as_of"`
	KnownAt      string            `json:"known_at"`
	Snapshot     *struct {
		AsOfSequence string `json:"as_of_sequence"`
	} `json:"snapshot"`
}

// appendServiced appends that a machine was serviced, to take effect on a day.
func (h *apiFixture) appendServiced(t *testing.T, hours, day string) {
	t.Helper()
	e := strings.Replace(serviced(fmt.Sprintf(`"effective_date":%q`, day)), `{"hours":2.5}`, `{"hours":`+hours+`}`, 1)
	a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(e)})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
}

func (h *apiFixture) entity(t *testing.T, query string) (e entityAnswer) {
	t.Helper()
	a := h.do(t, testRequest{method: "GET", path: "/api/entities/machine/M-17?legal_entity=USMF" + query, token: "auditor"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.NoError(t, json.Unmarshal(a.body, &e))
	return e
}

func TestEntities(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	h.appendServiced(t, "1.50", "2026-03-01")
	h.appendServiced(t, "2.5", "2026-03-05")
	h.appendServiced(t, "3", "2026-03-03")

	e := h.entity(t, "")
	require.Equal(t, `{"hours":3}`, string(e.State))
	require.Equal(t, map[string]string{"type": "machine", "id": "M-17"}, e.Entity)
	require.Equal(t, []any{"USMF", "3", "3", "3", 3, 3, "strong"}, []any{e.LegalEntity, e.Version, e.AsOfSequence, e.HeadVersion, e.EventCount, e.EventsFolded, e.Consistency})
	require.Nil(t, e.Snapshot)

	e = h.entity(t, "&as_of=2026-03-02")
	require.Equal(t, `{"hours":1.50}`, string(e.State), "its text stays")
	require.Equal(t, []any{"1", "3", "3", "2026-03-02", ""}, []any{e.Version, e.AsOfSequence, e.HeadVersion, e.AsOf, e.KnownAt})
	e = h.entity(t, "&known_at=seq:2")
	require.Equal(t, `{"hours":2.5}`, string(e.State))
	require.Equal(t, []any{"2", "2", "3", "seq:2"}, []any{e.Version, e.AsOfSequence, e.HeadVersion, e.KnownAt})
	require.Equal(t, `{"hours":1.50}`, string(h.entity(t, "&known_at=seq:2&as_of=2026-03-04").State), "both axes")

	for range 9 {
		h.appendServiced(t, "4", "2026-03-06")
	}
	h.entity(t, "") // takes a snapshot
	h.appendServiced(t, "5", "2026-03-07")
	for level, want := range map[string]string{"strong": "13", "verified": "12", "eventual": "12"} {
		e = h.entity(t, "&consistency="+level)
		require.Equal(t, []any{level, want, "13", "12"}, []any{e.Consistency, e.Version, e.HeadVersion, e.Snapshot.AsOfSequence})
	}

	for name, c := range map[string]struct{ path, token string }{
		"entity_not_found":           {"/api/entities/machine/M-18?legal_entity=USMF", "auditor"},
		"entity_not_yet":             {"/api/entities/machine/M-17?legal_entity=USMF&as_of=2026-02-01", "auditor"},
		"entity_consistency_invalid": {"/api/entities/machine/M-17?legal_entity=USMF&consistency=always", "auditor"},
		"entity_as_of_invalid":       {"/api/entities/machine/M-17?legal_entity=USMF&as_of=tomorrow", "auditor"},
		"entity_known_at_future":     {"/api/entities/machine/M-17?legal_entity=USMF&known_at=seq:99", "auditor"},
		"entity_parameter_unknown":   {"/api/entities/machine/M-17?legal_entity=USMF&asof=2026-02-01", "auditor"},
		"entity_role":                {"/api/entities/machine/M-17?legal_entity=USMF", "operator"},
		"entity_legal_entity":        {"/api/entities/machine/M-17?legal_entity=USMF", "german_auditor"},
	} {
		expect(t, name, h.do(t, testRequest{method: "GET", path: c.path, token: c.token}))
	}
}

func TestStreamsAsOf(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	for _, day := range []string{"2026-03-01", "2026-03-09", "2026-03-02", "2026-03-03", "2026-03-08"} {
		h.appendServiced(t, "1", day)
	}
	read := func(query string) (sequences []string, more bool) {
		a := h.do(t, testRequest{method: "GET", path: "/api/streams/machine/M-17?legal_entity=USMF&" + query, token: "auditor"})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		var page pageAnswer
		require.NoError(t, json.Unmarshal(a.body, &page))
		require.Equal(t, 5, page.Stream.Version, "of the stream now")
		for _, e := range page.Events {
			sequences = append(sequences, e.Sequence)
		}
		return sequences, page.HasMore
	}
	for query, want := range map[string]string{
		"as_of=2026-03-03": "1 3 4 ", "as_of=2026-03-03&count=3": "1 3 4 ", "as_of=2026-03-03&count=2": "1 3 +", "as_of=2026-03-03&from=4": "4 ",
		"as_of=2026-03-03&direction=backward&count=2": "4 3 +", "as_of=2026-03-03&direction=backward&from=2": "1 ", "as_of=2026-02-01": "",
		"known_at=seq:3": "1 2 3 ", "known_at=seq:3&direction=backward": "3 2 1 ", "known_at=seq:3&as_of=2026-03-03&include_data=false": "1 3 ",
		"known_at=seq:0": "", "known_at=2026-01-01T00:00:00Z": "",
	} {
		got, more := read(query)
		text := strings.Join(append(got, ""), " ")
		if more {
			text += "+"
		}
		require.Equal(t, want, text, query)
	}
	for query, want := range map[string]any{
		"known_at=seq:3": "3", "known_at=seq:0": "0", "known_at=2026-01-01T00:00:00Z": "0", "known_at=seq:3&from=4": "3", "as_of=2026-03-03": nil,
	} {
		a := h.do(t, testRequest{method: "GET", path: "/api/streams/machine/M-17?legal_entity=USMF&" + query, token: "auditor"})
		require.Equal(t, want, a.json(t)["as_of_sequence"], query)
	}
	for query, code := range map[string]string{
		"known_at=seq:6": "report.known_at_in_future", "known_at=2999-01-01T00:00:00Z": "report.known_at_in_future", "known_at=x": "report.known_at_invalid", "as_of=x": "request.parameter_invalid",
	} {
		a := h.do(t, testRequest{method: "GET", path: "/api/streams/machine/M-17?legal_entity=USMF&" + query, token: "auditor"})
		require.Equal(t, code, a.json(t)["code"], query)
	}
}

func TestStreamSnapshots(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	for range 5 {
		h.appendServiced(t, "1", "2026-03-01")
	}
	const at = "/api/snapshots/machine/M-17"
	save := func(body string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: at + "?legal_entity=USMF", token: "module", body: body})
	}
	get := func(which string) testAnswer {
		return h.do(t, testRequest{method: "GET", path: at + "/" + which + "?legal_entity=USMF", token: "auditor"})
	}
	expect(t, "snapshot_not_found", get("latest"))
	a := save(`{"version": 4, "state": {"hours": 10.50, "parts": [ 1 ]}, "state_type": "Machine", "schema_version": 2, "metadata": {"by": "fold 7"}}`)
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	receipt := a.json(t)
	require.NotContains(t, receipt, "state")
	require.EqualValues(t, 4, receipt["version"])
	require.EqualValues(t, len(`{"hours":10.50,"parts":[1]}`), receipt["size_bytes"])

	a = save(`{"version": 4, "state": {"hours": 10.50, "parts":[1]}, "state_type": "Machine", "schema_version": 2, "metadata": {"by":"fold 7"}}`)
	require.Equal(t, http.StatusOK, a.status, "the same again")
	require.Equal(t, receipt, a.json(t))
	for _, which := range []string{"latest", "4"} {
		a = get(which)
		require.Equal(t, http.StatusOK, a.status)
		var whole struct {
			SnapshotID string          `json:"snapshot_id"`
			State      json.RawMessage `json:"state"`
			Metadata   json.RawMessage `json:"metadata"`
		}
		require.NoError(t, json.Unmarshal(a.body, &whole))
		require.Equal(t, `{"hours":10.50,"parts":[1]}`, string(whole.State))
		require.Equal(t, `{"by":"fold 7"}`, string(whole.Metadata))
		require.Equal(t, receipt["snapshot_id"], whole.SnapshotID)
	}

	of := func(version int, state string) string {
		return fmt.Sprintf(`{"version": %d, "state": %s, "state_type": "Machine", "schema_version": 2}`, version, state)
	}
	expect(t, "snapshot_exists", save(of(4, `{}`)))
	expect(t, "snapshot_version_unknown", save(of(6, `{}`)))
	expect(t, "snapshot_version_invalid", save(of(0, `{}`)))
	expect(t, "snapshot_personal", save(of(5, `{"name": {"$pii": "AQ", "sub": "employee:E-1"}}`)))
	a = save(`{"version": 5, "state": {}, "state_type": "M", "schema_version": 1, "metadata": {"a": [{"\u0024pii": "AQ"}]}}`)
	require.Equal(t, "snapshot.personal_data", a.json(t)["code"], "in every spelling of the member")
	expect(t, "snapshot_too_large", save(of(5, `[`+strings.Repeat(`"`+strings.Repeat("x", 60_000)+`",`, snapshot.MaxBytes/60_000+1)+`1]`)))
	expect(t, "snapshot_role", h.do(t, testRequest{method: "POST", path: at + "?legal_entity=USMF", token: "ap_clerk", body: of(5, `{}`)}))
	expect(t, "snapshot_stream_not_found", h.do(t, testRequest{method: "POST", path: "/api/snapshots/machine/M-18?legal_entity=USMF", token: "module", body: of(1, `{}`)}))
	expect(t, "snapshot_which_invalid", get("newest"))
	for _, v := range []int{5, 3, 2} {
		a = save(of(v, `[`+fmt.Sprint(v)+`]`))
		if v == 2 {
			require.Equal(t, "snapshot.superseded", a.json(t)["code"], "three newer ones are kept")
			require.Equal(t, http.StatusUnprocessableEntity, a.status)
			continue
		}
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
	}
	require.EqualValues(t, 5, get("latest").json(t)["version"])

	a = h.do(t, testRequest{method: "DELETE", path: "/api/streams/machine/M-17?legal_entity=USMF", token: "module"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, "stream.deleted", get("latest").json(t)["code"])
	h.appendServiced(t, "1", "2026-03-01") // recreates it
	require.Equal(t, "snapshot.not_found", get("latest").json(t)["code"], "of before the deletion")
}
