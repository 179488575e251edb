package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/blindindex"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// hired is one event of the module hr that refers to the machine of serviced.
func hired(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"type":"hr.employee.hired","scope":{"legal_entity":"USMF"},"stream":{"type":"employee","id":"E-1"},"data":{"grade":7},` +
		`"dimensions":{},"entities":[{"entity_type":"machine","entity_id":"M-17","role":"operator"}]` + more + `}`
}

// startServices starts a server with a service for each of two modules, and one that reads the
// other's events by contract. It returns the ids of one event of each module, of which the
// first led to the second.
func startServices(t *testing.T, change ...func(*httpapi.Config)) (h *apiFixture, machineEvent, hrEvent string) {
	t.Helper()
	tokens := map[string]string{}
	h = startAPI(t, func(c *httpapi.Config) {
		who, ok := c.Access.(*tenancy.Service)
		require.True(t, ok)
		for name, binding := range map[string]ports.Binding{
			"machines": {Modules: []string{"equipment"}}, "hr": {Modules: []string{"hr"}},
			"contracted": {Modules: []string{"crm"}, ContractedTypes: []string{"equipment.machine.serviced"}},
		} {
			binding.ResponsiblePerson = "p-controller"
			binding.TrustLevel = ports.TrustChecked
			token, err := who.Enroll(t.Context(), ports.Principal{
				TenantID: "demo", PersonID: "s-" + name, PrincipalID: "s-" + name, ActorType: event.System, Roles: []string{"module"}, Binding: binding,
			})
			require.NoError(t, err)
			tokens[name] = token
		}
		for _, f := range change {
			f(c)
		}
	})
	for name, token := range tokens {
		h.tokens[name] = token
	}
	h.machineType(t)
	a := h.do(t, testRequest{method: "POST", path: "/api/event-types", token: "admin", body: `{
		"type": "hr.employee.hired", "schema_version": 1, "module": "hr", "description": "An employee was hired.",
		"data_schema": {"type": "object", "properties": {"grade": {"type": "integer"}}, "additionalProperties": false}, "examples": [{"grade": 7}]}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	write := func(token, e string) string {
		t.Helper()
		a := h.do(t, testRequest{method: "POST", path: "/api/events", token: token, body: `{"allow_unknown_cause":true,"events":[` + e + `]}`})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		return a.json(t)["events"].([]any)[0].(map[string]any)["id"].(string)
	}
	machineEvent = write("machines", serviced(`"correlation_id":"c-1","tags":["q1"]`))
	hrEvent = write("hr", hired(`"correlation_id":"c-1","tags":["q1"],"caused_by":"`+machineEvent+`"`))
	a = h.do(t, testRequest{method: "POST", path: "/api/snapshots/machine/M-17?legal_entity=USMF", token: "machines", body: `{"version":1,"state_type":"machine","schema_version":1,"state":{"hours":2.5}}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	return h, machineEvent, hrEvent
}

// A service reads events of its modules only: others are left out of pages, and not found one
// by one.
func TestServices_Read(t *testing.T) {
	t.Parallel()
	h, machineEvent, hrEvent := startServices(t)
	for _, path := range []string{
		"/api/events?stream_type=scope&stream_id=USMF",
		"/api/events?stream_type=scope&stream_id=USMF&modules=hr",
		"/api/events?stream_type=entity&stream_id=machine:M-17&legal_entity=USMF",
		"/api/events?stream_type=correlation&stream_id=c-1&legal_entity=USMF",
		"/api/events?stream_type=correlation&stream_id=c-1",
		"/api/events?stream_type=tag&stream_id=q1&legal_entity=USMF",
		"/api/events/export?stream_type=scope&stream_id=USMF",
		"/api/events/process/c-1",
		"/api/events/" + hrEvent + "/lineage",
		"/api/streams/$all?from=0",
		"/api/event-types", "/api/event-types/history",
	} {
		a := h.do(t, testRequest{method: "GET", path: path, token: "hr"})
		require.Equal(t, http.StatusOK, a.status, "%s: %s", path, a.body)
		require.Contains(t, string(a.body), "hr.employee.hired", path)
		require.NotContains(t, string(a.body), "equipment.machine.serviced", path)
	}
	a := h.do(t, testRequest{method: "GET", path: "/api/events/" + hrEvent + "/lineage", token: "hr"})
	require.Contains(t, string(a.body), `"left_out":[{"reason":"event_type","event_id":"`+hrEvent+`"}]`)
	a = h.do(t, testRequest{method: "POST", path: "/api/query", token: "hr", body: `{"legal_entity":"USMF","items":[{"tags":["q1"]},{"types":["equipment.machine.serviced"]}]}`})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Len(t, a.json(t)["events"], 1)
	a = h.do(t, testRequest{method: "POST", path: "/api/query", token: "hr", body: `{"legal_entity":"USMF","items":[{"types":["equipment.machine.serviced"]}]}`})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Empty(t, a.json(t)["events"])
	a = h.do(t, testRequest{method: "GET", path: "/api/events?stream_type=actor&stream_id=s-machines&legal_entity=USMF", token: "hr"})
	require.Equal(t, http.StatusOK, a.status)
	require.Empty(t, a.json(t)["events"])
	state := h.do(t, testRequest{method: "GET", path: "/api/entities/machine/M-17?legal_entity=USMF", token: "hr"}).json(t)["state"]
	require.Equal(t, map[string]any{"grade": 7.0}, state)
	state = h.do(t, testRequest{method: "GET", path: "/api/entities/machine/M-17?legal_entity=USMF", token: "ap_clerk"}).json(t)["state"]
	require.Len(t, state, 2, "a person sees all of it")

	for path, code := range map[string]string{
		"/api/events/" + machineEvent:                                                         "event.not_found",
		"/api/events/" + machineEvent + "?legal_entity=USMF":                                  "event.not_found",
		"/api/events/" + machineEvent + "/lineage":                                            "event.not_found",
		"/api/events/" + machineEvent + "/descendants":                                        "event.not_found",
		"/api/streams/machine/M-17?legal_entity=USMF":                                         "stream.not_found",
		"/api/streams/machine/M-17/metadata?legal_entity=USMF":                                "stream.not_found",
		"/api/snapshots/machine/M-17/latest?legal_entity=USMF":                                "stream.not_found",
		"/api/snapshots/machine/M-17/1?legal_entity=USMF":                                     "stream.not_found",
		"/api/event-types/equipment.machine.serviced":                                         "event_type.not_found",
		"/api/event-types/equipment.machine.serviced/history":                                 "event_type.not_found",
		"/api/events?stream_type=scope&stream_id=USMF&modules=equipment":                      "query.module_unknown",
		"/api/events?stream_type=type&stream_id=equipment.machine.serviced&legal_entity=USMF": "query.event_type_unknown",
		"/api/events?stream_type=scope&stream_id=USMF&event_types=equipment.machine.serviced": "query.event_type_unknown",
		"/api/subscribe/streams/$all?event_types=equipment.machine.serviced":                  "query.event_type_unknown",
		"/api/note/pages?legal_entity=USMF":                                                   "auth.forbidden",
	} {
		a := h.do(t, testRequest{method: "GET", path: path, token: "hr"})
		require.Equal(t, code, a.json(t)["code"], "%s: %s", path, a.body)
	}
	other := machineEvent[:20] + "ZZZZZZ"
	unknown := h.do(t, testRequest{method: "GET", path: "/api/events/" + other + "?legal_entity=USMF", token: "hr"})
	hidden := h.do(t, testRequest{method: "GET", path: "/api/events/" + machineEvent + "?legal_entity=USMF", token: "hr"})
	require.Equal(t, strings.Replace(string(unknown.body), other, machineEvent, 1), string(hidden.body), "an event out of sight looks like none")

	feed := h.openEventSource(t, "/api/subscribe/streams/$all?from=0", "hr", "")
	require.Contains(t, feed.event("event").data, "hr.employee.hired")
	feed = h.openEventSource(t, "/api/subscribe/streams/machine/M-17?legal_entity=USMF", "hr", "")
	feed.event("caughtUp")

	for _, path := range []string{"/api/events/" + machineEvent, "/api/streams/machine/M-17?legal_entity=USMF"} {
		require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: path, token: "contracted"}).status, "by contract")
	}
	for _, path := range []string{"/api/events/" + hrEvent, "/api/streams/machine/M-17/metadata?legal_entity=USMF", "/api/snapshots/machine/M-17/1?legal_entity=USMF"} {
		require.Equal(t, http.StatusNotFound, h.do(t, testRequest{method: "GET", path: path, token: "contracted"}).status, "beyond the contract")
	}
}

// A service writes events, streams and intents of its modules only.
func TestServices_Write(t *testing.T) {
	t.Parallel()
	h, _, _ := startServices(t)
	const metadata = "/api/streams/machine/M-17/metadata?legal_entity=USMF"
	before := h.heads(t)
	for name, c := range map[string]struct {
		method, path, body, code string
	}{
		"event of another module":   {"POST", "/api/events", `{"events":[` + serviced("") + `]}`, "auth.forbidden"},
		"unknown event type":        {"POST", "/api/events", `{"events":[` + strings.Replace(serviced(""), "serviced", "sold", 1) + `]}`, "event_type.not_found"},
		"stream of another module":  {"POST", "/api/events", `{"events":[` + strings.Replace(hired(""), `"type":"employee","id":"E-1"`, `"type":"machine","id":"M-17"`, 1) + `]}`, "append.stream_owned_by_module"},
		"stream named for a module": {"POST", "/api/events", `{"events":[` + strings.Replace(hired(""), `"type":"employee"`, `"type":"equipment.machine"`, 1) + `]}`, "append.stream_owned_by_module"},
		"soft deletion":             {"DELETE", "/api/streams/machine/M-17?legal_entity=USMF", "", "stream.not_found"},
		"deletion by contract":      {"DELETE", "/api/streams/machine/M-17?legal_entity=USMF", "", "stream.not_found"},
		"metadata":                  {"PUT", metadata, `{"max_count":1}`, "stream.not_found"},
		"snapshot":                  {"POST", "/api/snapshots/machine/M-17?legal_entity=USMF", `{"version":1,"state_type":"m","schema_version":1,"state":{"hours":0}}`, "stream.not_found"},
		"intent":                    {"POST", "/api/intents", `{"type":"note.add_page","legal_entity":"USMF","payload":{"number":"1"}}`, "auth.forbidden"},
		"check of a type":           {"POST", "/api/event-types/check", `{"type":"equipment.machine.serviced","schema_version":2,"module":"hr","data_schema":{"type":"object"}}`, "auth.forbidden"},
	} {
		token := "hr"
		if strings.HasSuffix(name, "by contract") {
			token = "contracted"
		}
		a := h.do(t, testRequest{method: c.method, path: c.path, body: c.body, token: token})
		require.Equal(t, c.code, a.json(t)["code"], "%s: %s", name, a.body)
	}
	require.Equal(t, before, h.heads(t), "nothing was written")
	// A condition is about the events that the service sees, and tells nothing about others.
	a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + hired("") + `],"append_condition":{"after":"0","items":[{"types":["equipment.machine.serviced"]}]}}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	a = h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + hired("") + `],"append_condition":{"after":"0","items":[{"tags":["q1"]}]}}`})
	require.Equal(t, "append.condition_failed", a.json(t)["code"])
	for _, path := range []string{"/api/streams/employee/E-1/metadata?legal_entity=USMF"} {
		a = h.do(t, testRequest{method: "PUT", path: path, token: "hr", body: `{"max_count":10}`})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
	}
	a = h.do(t, testRequest{method: "DELETE", path: "/api/streams/employee/E-1?legal_entity=USMF", token: "hr"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
}

// The expected version of an entity is about the events that the service sees, and tells nothing
// about those of other modules.
func TestServices_ExpectedEntities(t *testing.T) {
	t.Parallel()
	h, _, _ := startServices(t) // the machine M-17 has an event of equipment, 1, and one of hr, 2
	expecting := func(version string) testAnswer {
		e := hired(`"expected_entities":[{"entity_type":"machine","entity_id":"M-17","version":` + version + `}]`)
		return h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + e + `]}`})
	}
	sequenceOf := func(a testAnswer) string {
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		return a.json(t)["events"].([]any)[0].(map[string]any)["sequence"].(string)
	}
	versionRead := func(token string) string {
		return h.do(t, testRequest{method: "GET", path: "/api/entities/machine/M-17?legal_entity=USMF", token: token}).json(t)["head_version"].(string)
	}
	byEquipment := func() string {
		return sequenceOf(h.do(t, testRequest{method: "POST", path: "/api/events", token: "machines", body: `{"events":[` + serviced("") + `]}`}))
	}
	require.Equal(t, "2", versionRead("hr"))
	hidden := byEquipment()
	require.Equal(t, "2", versionRead("hr"))
	for _, version := range []string{"0", "1"} {
		a := expecting(version)
		require.Equal(t, "append.wrong_expected_version", a.json(t)["code"], string(a.body))
		require.Equal(t, "2", a.json(t)["holder"].(map[string]any)["sequence"], "the first later event that the service sees")
		require.Nil(t, a.json(t)["actual"])
		require.NotContains(t, string(a.body), `"`+hidden+`"`)
	}
	own := sequenceOf(expecting("2")) // also after the hidden event
	require.Equal(t, own, versionRead("hr"))
	require.Equal(t, "append.wrong_expected_version", expecting("2").json(t)["code"])
	require.Equal(t, "append.condition_beyond_head", expecting("99").json(t)["code"])

	unseen := hired(`"expected_entities":[{"entity_type":"machine","entity_id":"M-18","version":0}]`)
	other := strings.ReplaceAll(serviced(""), "M-17", "M-18")
	sequenceOf(h.do(t, testRequest{method: "POST", path: "/api/events", token: "machines", body: `{"events":[` + other + `]}`}))
	sequenceOf(h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + unseen + `]}`}))

	entities := make([]string, 100*11) // in 100 events
	for i := range entities {
		entities[i] = fmt.Sprintf(`{"entity_type":"machine","entity_id":"N-%d","version":0}`, i)
	}
	events := make([]string, 100)
	for i := range events {
		events[i] = hired(`"expected_entities":[` + strings.Join(entities[11*i:11*(i+1)], ",") + `]`)
	}
	a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + strings.Join(events, ",") + `]}`})
	require.Equal(t, "append.condition_too_large", a.json(t)["code"], string(a.body))
	for i := range events {
		events[i] = hired(`"expected_entities":[` + strings.Join(entities[:11], ",") + `]`)
	}
	a = h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + strings.Join(events, ",") + `]}`})
	require.Equal(t, http.StatusCreated, a.status, "each entity counts once: %s", a.body)
}

// An intent of another module looks to a service like none, whatever it tries with the id.
func TestServices_IntentsOfOthers(t *testing.T) {
	t.Parallel()
	h, _, _ := startServices(t)
	waiting := h.submitPage(t, "USMF", "P-1", true, "")["intent_id"].(string)
	executed := h.submitPage(t, "USMF", "P-2", false, "")["intent_id"].(string)
	before := h.heads(t)
	for _, c := range []struct{ method, verb, body string }{
		{"GET", "", ""}, {"POST", "/withdraw", `{"reason":"mine"}`},
	} {
		for _, query := range []string{"", "?legal_entity=USMF"} {
			for _, id := range []string{waiting, executed} {
				other := id[:20] + "ZZZZZZ"
				unknown := h.do(t, testRequest{method: c.method, path: "/api/intents/" + other + c.verb + query, body: c.body, token: "hr"})
				hidden := h.do(t, testRequest{method: c.method, path: "/api/intents/" + id + c.verb + query, body: c.body, token: "hr"})
				require.Equal(t, "intent.not_found", hidden.json(t)["code"])
				require.Equal(t, unknown.json(t)["detail"], strings.ReplaceAll(hidden.json(t)["detail"].(string), id, other), "%s%s%s", c.method, c.verb, query)
			}
		}
	}
	require.Equal(t, before, h.heads(t), "nothing was recorded")
}

// searchStub counts the searches for persons.
type searchStub struct{ searches atomic.Int32 }

// Search implements httpapi.PersonalSearch.
func (s *searchStub) Search(context.Context, ports.Principal, disclosure.Purpose, blindindex.Query) (blindindex.Found, error) {
	s.searches.Add(1)
	return blindindex.Found{}, nil
}

// enrollService enrolls a service of the module note with the roles, and returns the name of its token.
func (h *apiFixture) enrollService(t *testing.T, roles ...string) string {
	t.Helper()
	name := "s-" + strings.Join(roles, "-")
	body, err := json.Marshal(map[string]any{"person_id": name, "kind": "service", "roles": roles, "modules": []string{"note"}, "pii_classes": []string{"contact"}, "responsible_person": "p-controller"})
	require.NoError(t, err)
	a := h.do(t, testRequest{method: "POST", path: "/api/admin/principals", token: "admin", body: string(body)})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	h.tokens[name] = a.json(t)["token"].(string)
	return name
}

// What shows personal data of every module, and who has read it, is for persons: the roles of an
// officer or auditor lead no service past its modules.
func TestServices_PersonalDataOfEveryModule(t *testing.T) {
	t.Parallel()
	keys, search := newSealingStub(t), &searchStub{}
	h := startAPI(t, func(c *httpapi.Config) {
		c.Personal, c.PersonalReports, c.PersonalSearch = keys, storedPerson{log: sealedLog{c.Events, keys}}, search
	})
	for _, roles := range [][]string{{"compliance"}, {"module", "compliance"}, {"compliance_approver"}, {"auditor"}} {
		token := h.enrollService(t, roles...)
		for _, c := range []testRequest{
			{method: "GET", path: "/api/personal-data/report?subject=person:P-1"},
			{method: "GET", path: "/api/personal-data/report?subject=person:P-1&legal_entity=USMF"},
			{method: "POST", path: "/api/personal-data/search", body: `{"name":"Ada"}`},
			{method: "GET", path: "/api/access-log"},
		} {
			c.token, c.header = token, map[string]string{"Access-Reason": "ticket 4711"}
			a := h.do(t, c)
			require.Equal(t, http.StatusForbidden, a.status, "%s as %s: %s", c.path, token, a.body)
			require.Equal(t, "auth.forbidden", a.json(t)["code"])
			if roles[len(roles)-1] == "compliance" {
				require.Contains(t, a.json(t)["detail"], "only a person may do this")
			}
		}
		logged := regexp.MustCompile(`"msg":"request".*"status":403.*"person_id":"` + token + `","code":"auth.forbidden"`)
		require.Eventually(t, func() bool { return len(logged.FindAllString(h.log.String(), -1)) == 4 }, waitFor, tick, token)
		require.Empty(t, h.accesses(t, "person="+token))
	}
	require.Zero(t, keys.count(), "nothing was opened")
	require.Zero(t, search.searches.Load())
	a := h.do(t, testRequest{method: "POST", path: "/api/personal-data/search", token: "compliance", body: `{"name":"Ada"}`, header: map[string]string{"Access-Reason": "ticket 4711"}})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
}

// A service that is an auditor reads records without the names of persons, as others do who have no
// right to these.
func TestServices_NoNames(t *testing.T) {
	t.Parallel()
	h := startAPI(t, func(c *httpapi.Config) { c.Names, c.Personal = namedPersons{}, namedPersons{} })
	h.submitPage(t, "USMF", "P-1", true, "")
	service := h.enrollService(t, "auditor")
	a := h.do(t, testRequest{method: "GET", path: "/api/intents?legal_entity=USMF", token: service})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Len(t, a.json(t)["intents"], 1)
	require.Nil(t, a.json(t)["names"])
	require.Empty(t, h.accesses(t, "person="+service))
	a = h.do(t, testRequest{method: "GET", path: "/api/intents?legal_entity=USMF", token: "auditor"})
	require.Equal(t, map[string]any{"p-ap_clerk": "name of p-ap_clerk"}, a.json(t)["names"])
}

// racingStreams lets another writer in between the check of a stream and the append.
type racingStreams struct {
	ports.StreamReader
	then func()
}

func (r *racingStreams) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	events, more, err := r.StreamReader.ReadStream(ctx, q)
	if then := r.then; then != nil {
		r.then = nil
		then()
	}
	return events, more, err
}

// A stream that no event tells yet whose it is belongs to the service that writes it first, also when
// two services find it so at the same time.
func TestServices_FirstWriterOwnsStream(t *testing.T) {
	t.Parallel()
	var config httpapi.Config
	h, _, _ := startServices(t, func(c *httpapi.Config) { config = *c })
	racing := &racingStreams{StreamReader: h.store.Events}
	config.Streams = streams.New(streams.Config{Reader: racing})
	h.serve(t, newServer(t, config))
	write := func(token, e, stream string) testAnswer {
		e = strings.Replace(strings.Replace(e, `"type":"machine","id":"M-17"`, stream, 1), `"type":"employee","id":"E-1"`, stream, 1)
		return h.do(t, testRequest{method: "POST", path: "/api/events", token: token, body: `{"events":[` + e + `]}`})
	}
	for name, c := range map[string]struct {
		token, event, stream string
		status               int
		code                 any
	}{
		"another module": {"machines", serviced(""), `"type":"shared","id":"S-1"`, http.StatusForbidden, "append.stream_owned_by_module"},
		"the same":       {"hr", hired(""), `"type":"shared","id":"S-2"`, http.StatusCreated, nil},
	} {
		var first testAnswer
		racing.then = func() { first = write(c.token, c.event, c.stream) }
		a := write("hr", hired(""), c.stream)
		require.Equal(t, http.StatusCreated, first.status, "%s: %s", name, first.body)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		require.Equal(t, c.code, a.json(t)["code"], name)
	}
}

// A change of a stream that no event tells yet whose it is changes none that another service has begun
// in between.
func TestServices_ChangeOfUnclaimedStream(t *testing.T) {
	t.Parallel()
	var config httpapi.Config
	h, _, _ := startServices(t, func(c *httpapi.Config) { config = *c })
	racing := &racingStreams{StreamReader: h.store.Events}
	written := h.streams
	written.Reader = racing
	config.Streams = streams.New(written)
	h.serve(t, newServer(t, config))
	for reads, stream := range []string{"S-5", "S-6"} { // that find it unclaimed
		var first testAnswer
		racing.then = func() {
			e := strings.Replace(serviced(""), `"type":"machine","id":"M-17"`, `"type":"shared","id":"`+stream+`"`, 1)
			first = h.do(t, testRequest{method: "POST", path: "/api/events", token: "machines", body: `{"events":[` + e + `]}`})
		}
		for range reads {
			write := racing.then
			racing.then = func() { racing.then = write }
		}
		a := h.do(t, testRequest{method: "PUT", path: "/api/streams/shared/" + stream + "/metadata?legal_entity=USMF", token: "hr", body: `{"max_count":1}`})
		require.Equal(t, http.StatusCreated, first.status, "%s: %s", stream, first.body)
		require.Equal(t, http.StatusNotFound, a.status, "%s: %s", stream, a.body)
	}
}

// What a service writes is checked against the event types in memory. A registry that cannot be
// asked holds up no append and no intent, and above all makes no executed intent look failed.
func TestServices_WriteWithoutRegistry(t *testing.T) {
	t.Parallel()
	h, _, _ := startServices(t)
	a := h.do(t, testRequest{method: "POST", path: "/api/admin/principals", token: "admin", body: `{"person_id":"s-notes","kind":"service","roles":["ap_clerk"],"modules":["note"],"responsible_person":"p-controller"}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	h.tokens["notes"] = a.json(t)["token"].(string)
	h.registry.away.Store(true)
	for body, status := range map[string]int{`"dry_run":true`: http.StatusOK, `"dry_run":false`: http.StatusCreated} {
		a = h.do(t, testRequest{method: "POST", path: "/api/intents", token: "notes", body: `{"type":"note.add_page","legal_entity":"DEMF","payload":{"number":"1"},` + body + `}`})
		require.Equal(t, status, a.status, string(a.body))
	}
	a = h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + hired("") + `]}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	a = h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + strings.Replace(hired(""), "hired", "fired", 1) + `]}`})
	require.Equal(t, http.StatusServiceUnavailable, a.status, "unknown is not the same as not registered")
	for condition, status := range map[string]int{
		`[{"types":["hr.employee.hired"],"tags":["x"]}]`: http.StatusCreated,
		`[{"tags":["x"]}]`:                     http.StatusServiceUnavailable,
		`[{"types":["hr.employee.promoted"]}]`: http.StatusServiceUnavailable,
	} {
		a = h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + hired("") + `],"append_condition":{"after":"1","items":` + condition + `}}`})
		require.Equal(t, status, a.status, "%s, which could lack a type that is new: %s", condition, a.body)
	}
	a = h.do(t, testRequest{method: "POST", path: "/api/events", token: "hr", body: `{"events":[` + hired(`"expected_entities":[{"entity_type":"machine","entity_id":"M-17","version":2}]`) + `]}`})
	require.Equal(t, http.StatusServiceUnavailable, a.status, "so could an expected version")
	a = h.do(t, testRequest{method: "GET", path: "/api/streams/$all?from=0", token: "hr"})
	require.Equal(t, http.StatusServiceUnavailable, a.status, "a page could lack events of a type that is new")
}

// A subscription of a service tells nothing about types and modules that it does not see: not that
// there are some, and not which of their fields are personal.
func TestServices_SubscribeToOwnTypes(t *testing.T) {
	t.Parallel()
	service := &lateSubscriptions{}
	h, _, _ := startServices(t, func(c *httpapi.Config) { c.Subscriptions = service })
	service.Subscriptions = subscriptionsOf(h)
	a := h.do(t, testRequest{method: "POST", path: "/api/event-types", token: "admin", body: `{
		"type": "crm.contact.met", "schema_version": 1, "module": "crm", "description": "A contact was met.", "retention_class": "regulatory",
		"data_schema": {"type": "object", "properties": {"person": {"type": "string"}, "nick": {"type": "string"}}, "required": ["person"], "additionalProperties": false},
		"pii_fields": [{"path": "$.nick", "class": "contact", "subject": {"path": "$.person", "type": "person"}}], "examples": [{"nick": "A", "person": "p-17"}]}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	for body, code := range map[string]any{
		`"event_types":["equipment.machine.serviced"]`:                             "query.event_type_unknown",
		`"event_types":["equipment.machine.sold"]`:                                 "query.event_type_unknown",
		`"modules":["equipment"]`:                                                  "query.module_unknown",
		`"id":"s-1","predicate":{"path":"$.nick","operator":"eq","value":"\"A\""}`: nil,
		`"id":"s-2","event_types":["hr.employee.hired"]`:                           nil,
	} {
		a := h.do(t, testRequest{method: "POST", path: "/api/subscriptions", token: "hr", body: `{"subscriber_type":"service","subscriber_id":"x",` + body + `}`})
		require.Equal(t, code, a.json(t)["code"], "%s: %s", body, a.body)
	}
}

// A service whose modules become fewer sees no more of the others' events, also in an export that
// has begun.
func TestServices_ExportAfterNarrowing(t *testing.T) {
	t.Parallel()
	access := &changingAccess{}
	h := startAPI(t, func(c *httpapi.Config) { access.Access, c.Access = c.Access, access })
	h.machineType(t)
	h.appendMachines(t, "USMF", 350)
	requests := 0
	narrow := func(p ports.Principal) (ports.Principal, error) {
		if requests++; requests > 1 {
			p.Binding.Modules = []string{"hr"}
		}
		return p, nil
	}
	access.now.Store(&narrow)
	lines, err := h.export(t, "stream_type=scope&stream_id=USMF", "module")
	require.NoError(t, err)
	require.Len(t, lines, 100, "the first page")
}

// The events of a service name the person who answers for it.
func TestServices_ActFor(t *testing.T) {
	t.Parallel()
	h, machineEvent, _ := startServices(t)
	e := h.do(t, testRequest{method: "GET", path: "/api/events/" + machineEvent, token: "machines"}).json(t)["event"].(map[string]any)
	actor := e["actor"].(map[string]any)
	require.Equal(t, map[string]any{"type": "human", "id": "p-controller"}, actor["on_behalf_of"])
	require.Equal(t, "checked", actor["trust_level"])
	require.Equal(t, "s-machines", actor["id"])
}

// A service from before services were bound is refused with the next step.
func TestServices_Unbound(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.tokens["old"] = "bbk_old_service"
	require.NoError(t, h.principals.SavePrincipal(t.Context(), ports.Principal{
		TenantID: "demo", PersonID: "s-old", PrincipalID: "s-old", ActorType: event.System, Roles: []string{"module"}, TokenHash: tenancy.HashToken("bbk_old_service"),
	}, "", event.Actor{}))
	a := h.do(t, testRequest{method: "GET", path: "/api/streams/$all?from=0", token: "old"})
	require.Equal(t, http.StatusForbidden, a.status)
	require.Equal(t, "auth.service_unbound", a.json(t)["code"])
	require.Contains(t, a.json(t)["detail"], "--responsible")
}

// Who answers for a service does not approve what it submits.
func TestServices_RequestForTheirPerson(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	a := h.do(t, testRequest{method: "POST", path: "/api/admin/principals", token: "admin", body: `{"person_id":"s-notes","kind":"service","roles":["ap_clerk"],"modules":["note"],"responsible_person":"p-controller"}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	h.tokens["notes"] = a.json(t)["token"].(string)
	a = h.do(t, testRequest{method: "POST", path: "/api/intents", token: "notes", body: `{"type":"note.add_page","legal_entity":"DEMF","payload":{"number":"1","secret":true}}`})
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	at := "/api/intents/" + a.json(t)["intent_id"].(string)
	for token, code := range map[string]string{"controller": "sod.same_person", "notes": "auth.forbidden"} {
		a = h.do(t, testRequest{method: "POST", path: at + "/approve", token: token, body: `{}`})
		require.Equal(t, code, a.json(t)["code"], string(a.body))
	}
	a = h.do(t, testRequest{method: "POST", path: at + "/approve", token: "german_controller", body: `{}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	a = h.do(t, testRequest{method: "GET", path: "/api/sod/report?person=s-notes", token: "auditor"})
	require.NotEmpty(t, a.json(t)["steps"], "a service has a report of its own")
	a = h.do(t, testRequest{method: "GET", path: "/api/sod/report?person=p-controller", token: "auditor"})
	require.Empty(t, a.json(t)["steps"], "which its person's does not repeat")
}

func TestEnrollPrincipal(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	enroll := func(token, body string) testAnswer {
		t.Helper()
		return h.do(t, testRequest{method: "POST", path: "/api/admin/principals", token: token, body: body})
	}
	a := enroll("german_admin", `{"person_id":"p-new","kind":"person","roles":["ap_clerk"],"legal_entities":["DEMF"]}`)
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	made := a.json(t)
	require.Equal(t, []any{"DEMF"}, made["legal_entities"])
	h.tokens["new"] = made["token"].(string)
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "GET", path: "/api/admin/legal-entities", token: "new"}).status)
	require.Contains(t, h.log.String(), `"by":"p-german-admin"`)
	require.NotContains(t, h.log.String(), h.tokens["new"])

	for name, c := range map[string]struct{ token, body, code string }{
		"no administrator":            {"controller", `{"person_id":"p-x","kind":"person","roles":["cfo"]}`, "auth.forbidden"},
		"all legal entities by some":  {"german_admin", `{"person_id":"p-y","kind":"person","roles":["ap_clerk"]}`, "auth.forbidden"},
		"legal entity out of sight":   {"german_admin", `{"person_id":"p-y","kind":"person","roles":["ap_clerk"],"legal_entities":["USMF"]}`, "auth.forbidden"},
		"unknown legal entity":        {"admin", `{"person_id":"p-y","kind":"person","roles":["ap_clerk"],"legal_entities":["XX"]}`, "legal_entity.not_found"},
		"a principal of wider rights": {"german_admin", `{"person_id":"p-admin","kind":"person","renew":true}`, "auth.forbidden"},
		"themselves":                  {"admin", `{"person_id":"p-admin","kind":"person","roles":["admin","controller"],"renew":true}`, "auth.forbidden"},
		"a service of their own":      {"admin", `{"person_id":"s-y","kind":"service","roles":["module"],"modules":["hr"],"responsible_person":"p-admin"}`, "auth.forbidden"},
		"unknown kind":                {"admin", `{"person_id":"p-y","kind":"robot","roles":["ap_clerk"]}`, "principal.kind_unknown"},
		"no person":                   {"admin", `{"person_id":"","kind":"person","roles":["ap_clerk"]}`, "request.member_missing"},
		"both":                        {"admin", `{"person_id":"p-y","kind":"person","roles":["ap_clerk"],"legal_entities":["DEMF"],"all_legal_entities":true}`, "principal.legal_entities_ambiguous"},
		"no role":                     {"admin", `{"person_id":"p-y","kind":"person"}`, "principal.role_missing"},
		"known":                       {"admin", `{"person_id":"p-controller","kind":"person","roles":["cfo"]}`, "principal.duplicate"},
		"event type by some":          {"german_admin", "", "auth.forbidden"},
	} {
		a := enroll(c.token, c.body)
		if c.body == "" {
			a = h.do(t, testRequest{method: "POST", path: "/api/event-types", token: c.token, body: `{"type":"hr.x.y","schema_version":1,"module":"hr","data_schema":{"type":"object"}}`})
		}
		require.Equal(t, c.code, a.json(t)["code"], "%s: %s", name, a.body)
	}
}
