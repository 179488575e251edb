package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// eventView has the members of an event that these tests use.
type eventView struct {
	ID            string         `json:"id"`
	SchemaVersion int            `json:"schema_version"`
	Sequence      string         `json:"sequence"`
	CorrelationID string         `json:"correlation_id"`
	Data          map[string]any `json:"data"`
	Metadata      struct {
		Stored   int               `json:"stored_schema_version"`
		Error    string            `json:"upcast_error"`
		Checksum string            `json:"checksum"`
		PII      map[string]string `json:"pii"`
	} `json:"metadata"`
}

// TestUpcasters restructures an event type: a check names the event that the first upcaster
// cannot read, the repaired one is registered, and all reads return the new form, while stored
// events stay unchanged.
func TestUpcasters(t *testing.T) {
	t.Parallel()
	const entity, name = "UPCX", "fleet.tank.measured"
	d := sharedDev(t)
	newEntity(t, d, entity)
	module, auditor := d.as(t, "module"), d.as(t, "auditor")
	types := func(persona string, args ...string) result {
		return d.as(t, persona).command(t, append([]string{"types"}, args...)...)
	}
	dir := t.TempDir()
	file := func(version int, schema, upcasters string) {
		text := fmt.Sprintf(`{"type":%q,"schema_version":%d,"module":"fleet","data_schema":%s%s}`, name, version, schema, upcasters)
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.v%d.json", name, version)), []byte(text), 0o600))
	}
	measured := func(version int, data, more string) string {
		return fmt.Sprintf(`{"type":%q,"schema_version":%d,"scope":{"legal_entity":%q},"stream":{"type":"tank","id":"T-1"},"correlation_id":"tank-1","data":%s%s,
			"entities":[{"entity_type":"tank","entity_id":"T-1","role":"subject"}]}`, name, version, entity, data, more)
	}
	second := func(program string) {
		text, err := json.Marshal(program)
		require.NoError(t, err)
		file(2, `{"type":"object","additionalProperties":false,"required":["volume","unit"],"properties":{"volume":{"type":"number","minimum":0},"unit":{"type":"string","default":"l"}}}`,
			`,"upcasters":[{"from_version":1,"jq":`+string(text)+`}]`)
	}
	file(1, `{"type":"object","additionalProperties":false,"required":["litres"],"properties":{"litres":{"type":"number"}}}`, "")
	r := types("admin", "push", dir)
	require.Zero(t, r.code, r)
	ids := module.record(t, measured(1, `{"litres":12.10}`, ""), measured(1, `{"litres":-3}`, ""))
	ids = append(ids, module.record(t, measured(1, `{"litres":7}`, `,"caused_by":"`+ids[0]+`"`))...)

	// Invalid programs, then one that fails at a stored event.
	for program, message := range map[string]string{
		"{volume: .litres":          "cannot be read at line 1",
		"{volume: now}":             "now/0",
		"{volume: .litres}, {}":     "transform.output_invalid",
		"[range(1e9)]":              "transform.limit_exceeded",
		"def f: f; f":               "transform.limit_exceeded",
		"{volume: .litres}":         ids[1],
		"{volume: \"\\(.litres)\"}": "schema.type",
	} {
		second(program)
		r = types("module", "check", filepath.Join(dir, name+".v2.json"))
		require.Equal(t, 1, r.code, r)
		require.Contains(t, r.stdout, message, program)
		require.Contains(t, r.stdout, "REFUSED")
	}
	second("{volume: .litres}")
	r = types("admin", "push", dir)
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "types.refused")
	require.Equal(t, json.Number("12.10"), auditor.data(t, entity, ids[0])["litres"], "nothing was registered")

	second("{volume: (if .litres < 0 then 0 else .litres end)}")
	r = types("admin", "push", dir, "--dry-run")
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "3 stored events of earlier versions looked at")
	r = types("admin", "push", dir)
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "Registered 1, unchanged 1.")
	require.Equal(t, json.Number("12.10"), auditor.data(t, entity, ids[0])["litres"], "one person changes nothing of what others read")
	r = types("second_admin", "confirm", name)
	require.Zero(t, r.code, r)

	// All reads return the new form, and the stored one on request.
	volumes, litres := map[string]json.Number{ids[0]: "12.10", ids[1]: "0", ids[2]: "7"}, map[string]json.Number{ids[0]: "12.10", ids[1]: "-3", ids[2]: "7"}
	look := func(events []eventView, raw bool, n int) {
		t.Helper()
		seen := 0
		for _, e := range events {
			if _, mine := volumes[e.ID]; !mine {
				continue
			}
			seen++
			if raw {
				require.Equal(t, map[string]any{"litres": litres[e.ID]}, e.Data)
				require.Equal(t, [2]int{1, 0}, [2]int{e.SchemaVersion, e.Metadata.Stored})
				continue
			}
			require.Equal(t, map[string]any{"volume": volumes[e.ID], "unit": "l"}, e.Data)
			require.Equal(t, [2]int{2, 1}, [2]int{e.SchemaVersion, e.Metadata.Stored})
		}
		require.Equal(t, n, seen)
	}
	sums := map[bool]string{}
	for _, raw := range []bool{false, true} {
		suffix := fmt.Sprintf("&raw=%t", raw)
		read := func(method, path, body string, n int) {
			t.Helper()
			var out struct {
				Event       *eventView  `json:"event"`
				Events      []eventView `json:"events"`
				Lineage     []eventView `json:"lineage"`
				Descendants []struct {
					Event eventView `json:"event"`
				} `json:"descendants"`
			}
			require.NoError(t, auditor.want(http.StatusOK, &out, method, path+suffix, body), path)
			all := append(out.Events, out.Lineage...)
			if out.Event != nil {
				all, sums[raw] = append(all, *out.Event), out.Event.Metadata.Checksum
			}
			for _, d := range out.Descendants {
				all = append(all, d.Event)
			}
			look(all, raw, n)
		}
		read("GET", "/api/events/"+ids[0]+"?legal_entity="+entity, "", 1)
		read("GET", "/api/events?stream_type=type&stream_id="+name+"&legal_entity="+entity, "", 3)
		read("GET", "/api/events?stream_type=type&stream_id="+name+"&legal_entity="+entity+"&schema_version=1&path=$.litres&operator=lt&value=0", "", 1)
		read("GET", "/api/streams/tank/T-1?legal_entity="+entity, "", 3)
		read("GET", "/api/events/"+ids[2]+"/lineage?legal_entity="+entity, "", 2)
		read("GET", "/api/events/"+ids[0]+"/descendants?legal_entity="+entity, "", 1)
		read("GET", "/api/events/process/tank-1?limit=100", "", 3)
		read("POST", "/api/query?", fmt.Sprintf(`{"legal_entity":%q,"items":[{"types":[%q]}]}`, entity, name), 3)

		args := []string{"export", "--legal-entity", entity, "--event-types", name, "-"}
		if raw {
			args = append(args, "--raw")
		}
		exported := d.as(t, "auditor").command(t, args...)
		require.Zero(t, exported.code, exported)
		var lines []eventView
		for _, line := range strings.Split(strings.TrimSpace(exported.stdout), "\n") {
			var e eventView
			decoder := json.NewDecoder(strings.NewReader(line))
			decoder.UseNumber()
			require.NoError(t, decoder.Decode(&e))
			lines = append(lines, e)
		}
		look(lines, raw, 3)
	}
	var tank struct {
		State map[string]any `json:"state"`
	}
	require.NoError(t, auditor.want(http.StatusOK, &tank, "GET", "/api/entities/tank/T-1?legal_entity="+entity, ""))
	require.Equal(t, map[string]any{"volume": json.Number("7"), "unit": "l"}, tank.State, "entities are folded from what is read")
	require.Equal(t, sums[true], sums[false], "the checksum is that of what is stored")
	expect(t, http.StatusBadRequest, "request.parameter_invalid", must(auditor.do("GET", "/api/events/"+ids[0]+"?raw=perhaps", "")))

	// An earlier version still accepts events that can be read in the newest form.
	module.record(t, measured(1, `{"litres":1}`, ""), measured(2, `{"volume":1,"unit":"t"}`, ""))
	third := `{"type":"object","additionalProperties":false,"required":["volume","unit"],"properties":{"volume":{"type":"number","minimum":0,"maximum":100},"unit":{"type":"string"}}}`
	file(3, third, `,"upcasters":[{"from_version":2,"jq":"."}]`)
	r = types("admin", "push", dir)
	require.Zero(t, r.code, r)
	r = types("second_admin", "confirm", name)
	require.Zero(t, r.code, r)
	expect(t, http.StatusUnprocessableEntity, "event_type.not_upcastable", must(module.do("POST", "/api/events", batch(measured(1, `{"litres":101}`, "")))))
	module.record(t, measured(1, `{"litres":100}`, ""))
	require.Equal(t, json.Number("12.10"), auditor.data(t, entity, ids[0])["volume"])

	// A deprecated version remains the form in which events are read.
	module.record(t, measured(3, `{"volume":50,"unit":"hl"}`, ""))
	r = types("admin", "deprecate", name, "--schema-version", "3")
	require.Zero(t, r.code, r)
	r = types("second_admin", "confirm", name)
	require.Zero(t, r.code, r)
	expect(t, http.StatusUnprocessableEntity, "event_type.deprecated", must(module.do("POST", "/api/events", batch(measured(3, `{"volume":1,"unit":"l"}`, "")))))
	module.record(t, measured(2, `{"volume":60,"unit":"l"}`, ""))
	expect(t, http.StatusUnprocessableEntity, "event_type.not_upcastable", must(module.do("POST", "/api/events", batch(measured(2, `{"volume":101,"unit":"l"}`, "")))))
	var stream struct{ Events []eventView }
	require.NoError(t, auditor.want(http.StatusOK, &stream, "GET", "/api/streams/tank/T-1?legal_entity="+entity, ""))
	require.Len(t, stream.Events, 8)
	for _, e := range stream.Events {
		require.Equal(t, 3, e.SchemaVersion)
		require.Contains(t, e.Data, "volume")
	}
	require.NoError(t, auditor.want(http.StatusOK, &tank, "GET", "/api/entities/tank/T-1?consistency=strong&legal_entity="+entity, ""))
	require.Equal(t, map[string]any{"volume": json.Number("60"), "unit": "l"}, tank.State, "of one shape")

	pulled := t.TempDir()
	r = types("auditor", "pull", pulled)
	require.Zero(t, r.code, r)
	text, err := os.ReadFile(filepath.Join(pulled, name+".v2.json"))
	require.NoError(t, err)
	require.Contains(t, string(text), `"upcasters": [`)
	r = types("admin", "push", pulled)
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "Registered 0")
}

// TestUpcastersMovePersonalData requires that a sealed value is opened, masked and redacted
// after an upcaster has moved it.
func TestUpcastersMovePersonalData(t *testing.T) {
	t.Parallel()
	const entity, name = "UPCY", "crm.guest.arrived"
	d := sharedDev(t)
	newEntity(t, d, entity)
	admin, module, auditor := d.as(t, "admin"), d.as(t, "module"), d.as(t, "auditor")
	register := func(version int, schema, path, more string) answer {
		a := must(admin.do("POST", "/api/event-types", fmt.Sprintf(`{"type":%q,"schema_version":%d,"module":"crm","data_schema":%s,"retention_class":"pii_subject",
			"pii_fields":[{"path":%q,"class":"contact","subject":{"path":"$.guest_id","type":"guest"}}]%s}`, name, version, schema, path, more)))
		if a.status == http.StatusCreated && more != "" {
			require.Equal(t, http.StatusOK, must(d.as(t, "second_admin").do("POST", "/api/event-types/"+name+"/confirm", "{}")).status)
		}
		return a
	}
	require.Equal(t, http.StatusCreated, register(1, `{"type":"object","additionalProperties":false,"required":["guest_id"],"properties":{"guest_id":{"type":"string"},"email":{"type":"string"}}}`, "$.email", "").status)
	id := module.record(t, fmt.Sprintf(`{"type":%q,"scope":{"legal_entity":%q},"stream":{"type":"guest","id":"G-1"},"data":{"guest_id":"G-1","email":"ada@example.org"},"dimensions":{}}`, name, entity))[0]
	const nested = `{"type":"object","additionalProperties":false,"required":["guest_id"],"properties":{"guest_id":{"type":"string"},"reach":{"type":"object","additionalProperties":false,"properties":{"email":{"type":"string"}}}}}`
	a := register(2, nested, "$.reach.email", `,"upcasters":[{"from_version":1,"jq":"{guest_id, reach: {email: .guest_id}} "}]`)
	require.Equal(t, http.StatusCreated, a.status, a)
	a = register(3, nested, "$.reach.email", `,"upcasters":[{"from_version":1,"jq":"{guest_id, email}"}]`)
	expect(t, http.StatusUnprocessableEntity, "event_type.upcaster_failed", a)
	require.Contains(t, string(a.body), id)
	a = register(3, nested, "$.reach.email", `,"upcasters":[{"from_version":1,"jq":"{guest_id, reach: {email}}"}]`)
	require.Equal(t, http.StatusCreated, a.status, a)

	email := func(c client) any {
		t.Helper()
		reach, _ := c.data(t, entity, id)["reach"].(map[string]any)
		return reach["email"]
	}
	require.Equal(t, "ada@example.org", email(module))
	require.Equal(t, maskedValue, email(auditor))
	var one struct{ Event eventView }
	require.NoError(t, auditor.want(http.StatusOK, &one, "GET", "/api/events/"+id+"?legal_entity="+entity, ""))
	require.Equal(t, map[string]string{"/data/reach/email": "contact"}, one.Event.Metadata.PII)
	require.NoError(t, module.want(http.StatusOK, &one, "GET", "/api/events/"+id+"?raw=true&legal_entity="+entity, ""))
	require.Equal(t, "ada@example.org", one.Event.Data["email"])
	eraseSubject(t, d.as(t, "compliance"), d.as(t, "compliance_approver"), "guest:G-1", entity)
	require.Equal(t, redactedValue, email(module))
	require.Equal(t, redactedValue, email(auditor))
}
