package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newEntity makes a legal entity for one test, without books.
func newEntity(t *testing.T, d *dev, code string) {
	t.Helper()
	require.NoError(t, d.as(t, "admin").want(http.StatusCreated, nil, "POST", "/api/admin/legal-entities",
		fmt.Sprintf(`{"code":%q,"name":"Test entity","time_zone":"Europe/Berlin"}`, code)))
}

// receipts are the answer to an append.
type receipts struct {
	Events []struct {
		ID            string `json:"id"`
		Sequence      string `json:"sequence"`
		StreamVersion int    `json:"stream_version"`
		Checksum      string `json:"checksum"`
	} `json:"events"`
}

// with adds members to an event that serviced made.
func with(event, members string) string { return strings.TrimSuffix(event, "}") + "," + members + "}" }

// TestRawEvents appends and reads events of types that a service has registered.
func TestRawEvents(t *testing.T) {
	t.Parallel()
	const entity = "RAWX"
	d := sharedDev(t)
	newEntity(t, d, entity)
	registerMachines(t, d)
	module, auditor := d.as(t, "module"), d.as(t, "auditor")
	post := func(body string, header ...string) answer {
		t.Helper()
		a, err := module.do("POST", "/api/events", body, header...)
		require.NoError(t, err)
		return a
	}
	one := func(members string) string {
		event := machineServiced(entity, "M-17", `{"hours":2.50}`)
		if members != "" {
			event = with(event, members)
		}
		return batch(event)
	}

	// The first event is stored once, also when the request is repeated.
	body := one(`"expected_version":"no_stream","tags":["q1"],"correlation_id":"repair-1","effective_date":"2026-03-31","source":{"system":"machines","channel":"api","reference":"order-9"}`)
	first := post(body, "Idempotency-Key", "raw-1")
	require.Equal(t, http.StatusCreated, first.status, first)
	require.Empty(t, first.header.Get("Idempotency-Replayed"))
	var receipt receipts
	require.NoError(t, first.decode(&receipt))
	require.Equal(t, "1", receipt.Events[0].Sequence)
	require.Equal(t, 1, receipt.Events[0].StreamVersion)
	again := post(body, "Idempotency-Key", "raw-1")
	require.Equal(t, http.StatusOK, again.status, again)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, string(first.body), string(again.body))
	other := post(one(`"tags":["q2"]`), "Idempotency-Key", "raw-1")
	require.Equal(t, http.StatusConflict, other.status)
	require.Equal(t, "idempotency.mismatch", other.code())

	// Read back as it was sent.
	var read struct {
		Event event `json:"event"`
	}
	require.NoError(t, auditor.want(200, &read, "GET", "/api/events/"+receipt.Events[0].ID+"?legal_entity="+entity, ""))
	require.Equal(t, `{"hours":2.50}`, string(read.Event.Data), "byte for byte")
	require.Equal(t, "2026-03-31", read.Event.EffectiveDate)
	require.Equal(t, "s-module", read.Event.Actor.ID)
	require.Equal(t, "order-9", read.Event.Metadata.Source.Reference)
	require.Equal(t, receipt.Events[0].Checksum, read.Event.Metadata.Checksum)

	// Expected versions, of streams and of entities, and conditions.
	for _, accepted := range []string{
		one(`"expected_version":1`),
		one(`"expected_version":"stream_exists"`),
		one(`"expected_version":"any"`),
		one(`"expected_entities":[{"entity_type":"machine","entity_id":"M-17","version":4}]`),
		strings.TrimSuffix(one(""), "}") + `,"append_condition":{"items":[{"types":["equipment.machine.serviced"],"tags":["q1"]}],"after":"1"}}`,
	} {
		require.Equal(t, http.StatusCreated, post(accepted).status, accepted)
	}
	for body, code := range map[string]string{
		one(`"expected_version":1`):           "append.wrong_expected_version",
		one(`"expected_version":0`):           "append.wrong_expected_version",
		one(`"expected_version":"no_stream"`): "append.wrong_expected_version",
		strings.ReplaceAll(one(`"expected_version":"stream_exists"`), "M-17", "M-NEW"):                                                                "append.wrong_expected_version",
		one(`"expected_entities":[{"entity_type":"machine","entity_id":"M-17","version":4}]`):                                                         "append.wrong_expected_version",
		strings.TrimSuffix(one(""), "}") + `,"append_condition":{"items":[{"tags":["q1"]}],"after":"0"}}`:                                             "append.condition_failed",
		strings.TrimSuffix(one(""), "}") + `,"append_condition":{"items":[{"entities":[{"entity_type":"machine","entity_id":"M-17"}]}],"after":"5"}}`: "append.condition_failed",
	} {
		a := post(body)
		require.Equal(t, http.StatusConflict, a.status, a)
		require.Equal(t, code, a.code(), body)
	}

	// A batch is all or nothing.
	refused := post(batch(machineServiced(entity, "M-18", `{"hours":1}`), with(machineServiced(entity, "M-17", `{"hours":1}`), `"expected_version":1`)))
	require.Equal(t, http.StatusConflict, refused.status, refused)
	accepted := post(batch(with(machineServiced(entity, "M-18", `{"hours":1}`), `"correlation_id":"repair-2"`), machineServiced(entity, "M-19", `{"hours":1}`), machineServiced(entity, "M-18", `{"hours":1}`)))
	require.Equal(t, http.StatusCreated, accepted.status, accepted)
	require.NoError(t, accepted.decode(&receipt))
	require.Equal(t, []string{"7", "8", "9"}, []string{receipt.Events[0].Sequence, receipt.Events[1].Sequence, receipt.Events[2].Sequence})
	require.Equal(t, []int{1, 1, 2}, []int{receipt.Events[0].StreamVersion, receipt.Events[1].StreamVersion, receipt.Events[2].StreamVersion})

	// Each of the stream types, page by page, both ways.
	for _, c := range []struct {
		streamType, streamID, entity string
		sequences                    string
	}{
		{"entity", "machine:M-17", entity, "1 2 3 4 5 6"},
		{"entity", "machine:M-18", entity, "7 9"},
		{"scope", entity, "", "1 2 3 4 5 6 7 8 9"},
		{"type", machineType, entity, "1 2 3 4 5 6 7 8 9"},
		{"correlation", "repair-1", "", "1"},
		{"correlation", "repair-2", entity, "7"},
		{"actor", "s-module", entity, "1 2 3 4 5 6 7 8 9"},
		{"actor", "s-importer", entity, ""},
		{"tag", "q1", entity, "1"},
	} {
		for _, direction := range []string{"forward", "backward"} {
			q := url.Values{"stream_type": {c.streamType}, "stream_id": {c.streamID}, "direction": {direction}, "limit": {"2"}}
			if c.entity != "" {
				q.Set("legal_entity", c.entity)
			}
			events, err := auditor.events(q)
			require.NoError(t, err)
			got := []string{}
			for _, e := range events {
				if direction == "forward" {
					got = append(got, e.Sequence)
				} else {
					got = append([]string{e.Sequence}, got...)
				}
			}
			require.Equal(t, c.sequences, strings.Join(got, " "), "%s %s %s", c.streamType, c.streamID, direction)
		}
	}

	// A cursor is pinned to the head at which its query began, and to its query.
	q := url.Values{"stream_type": {"scope"}, "stream_id": {entity}, "limit": {"5"}}
	_, cursor, err := auditor.page(q)
	require.NoError(t, err)
	require.NotEmpty(t, cursor)
	require.Equal(t, http.StatusCreated, post(one("")).status)
	q.Set("cursor", cursor)
	rest, _, err := auditor.page(q)
	require.NoError(t, err)
	require.Len(t, rest, 4)
	q.Set("direction", "backward")
	a, err := auditor.do("GET", "/api/events?"+q.Encode(), "")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, a.status, a)
	require.Equal(t, "cursor.foreign", a.code())
}

// TestRawEventsOfModules refuses raw appends of the types of modules, and of every caller but
// services.
func TestRawEventsOfModules(t *testing.T) {
	t.Parallel()
	const entity = "RAWY"
	d := sharedDev(t)
	newEntity(t, d, entity)
	registerMachines(t, d)
	for _, builtIn := range []string{"gl.journal.posted", "ap.invoice.submitted", "gl.account.defined"} {
		a, err := d.as(t, "module").do("POST", "/api/events", strings.Replace(batch(machineServiced(entity, "M-1", `{"hours":1}`)), machineType, builtIn, 1))
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, a.status, "%s: %s", builtIn, a)
	}
	for _, persona := range personas {
		if persona == "module" {
			continue
		}
		a, err := d.as(t, persona).do("POST", "/api/events", batch(machineServiced(entity, "M-1", `{"hours":1}`)))
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, a.status, "%s: %s", persona, a)
	}
	for _, persona := range []string{"module", "controller", "auditor"} {
		a, err := d.as(t, persona).do("POST", "/api/event-types", `{"type":"equipment.machine.sold","schema_version":1,"module":"equipment","data_schema":{"type":"object"}}`)
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, a.status, "%s: %s", persona, a)
	}
	a, err := d.as(t, "admin").do("POST", "/api/event-types", `{"type":"gl.journal.burnt","schema_version":1,"module":"gl","data_schema":{"type":"object"}}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, a.status, a)

	head, err := d.as(t, "auditor").head(entity)
	require.NoError(t, err)
	require.Equal(t, "0", head)

	// Every role can read what is registered.
	var types struct {
		Versions []struct {
			SchemaVersion int             `json:"schema_version"`
			DataSchema    json.RawMessage `json:"data_schema"`
		} `json:"versions"`
	}
	require.NoError(t, d.as(t, "operator").want(200, &types, "GET", "/api/event-types/"+machineType, ""))
	require.Len(t, types.Versions, 1)
}
