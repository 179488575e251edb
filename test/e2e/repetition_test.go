package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// write is a request and one with other content, for the same operation.
type write struct {
	operation    string // id in the OpenAPI document
	as           client
	actor        string // of the events that the caller writes
	method, path string
	body         string
	otherPath    string // "": path
	otherBody    string
	mismatch     string // code of the refusal of the other content
}

// TestWrites_RepeatedWithKey sends each write that takes an idempotency key twice: the second
// answer is the first one's, its caller writes nothing twice, and other content under the key is refused. A
// legal entity and a version of a type are compared with what is stored under their name.
func TestWrites_RepeatedWithKey(t *testing.T) {
	t.Parallel()
	i := install(t)
	_, anonymous := i.serve(t)
	i.machines(t, anonymous.server)
	admin := anonymous.as(i.admin)
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"USMF","name":"US","time_zone":"UTC"}`))
	accountant := admin.enroll(t, "p-accountant", "gl_accountant")
	controller := configureLedger(t, admin, accountant)
	books, auditor := admin.as(accountant), admin.as(admin.enroll(t, "p-auditor", "auditor"))
	officer, module := admin.as(admin.enroll(t, "p-officer", "compliance")), admin.as(i.enroll(t, "s-module", "module", "--service"))
	journal := func(description string) string {
		body, err := json.Marshal(object{"type": "gl.post_journal", "legal_entity": "USMF", "payload": object{
			"description": description, "posting_date": "2026-03-15", "dimensions": object{"department": "OPS"}, "lines": []object{
				{"account": "1000", "debit_credit": "debit", "amount": 1}, {"account": "1000", "debit_credit": "credit", "amount": 1},
			},
		}})
		require.NoError(t, err)
		return string(body)
	}
	var posted outcome
	require.NoError(t, books.want(201, &posted, "POST", "/api/intents", journal("rent")))
	controller.must(t, "USMF", "gl.close_period", object{"module": "gl", "period": "2026-03", "level": "soft"})
	waiting := func(decision string) string {
		var out outcome
		require.NoError(t, books.want(202, &out, "POST", "/api/intents", journal("to "+decision)))
		return "/api/intents/" + out.IntentID + "/" + decision + "?legal_entity=USMF"
	}
	const machine = "/api/streams/machine/M-2"
	serviced := func(hours int) string {
		return strings.Replace(batch(machineServiced("USMF", "M-2", fmt.Sprintf(`{"hours":%d}`, hours))),
			`"scope":{"legal_entity":"USMF"},"stream":{"type":"machine","id":"M-2"},`, "", 1)
	}
	eventType := func(price string) string {
		return fmt.Sprintf(`{"type":"equipment.machine.sold","schema_version":1,"module":"equipment","examples":[{}],
			"data_schema":{"type":"object","properties":{"price":{"type":%q}},"additionalProperties":false}}`, price)
	}
	until := time.Now().AddDate(0, 0, 7).UTC().Format(time.RFC3339)
	disclosure := func(reason string) string {
		return fmt.Sprintf(`{"person_id":"p-auditor","classes":["contact"],"until":%q,"reason":%q}`, until, reason)
	}
	redaction := func(reason string) string {
		return fmt.Sprintf(`{"legal_entity":"USMF","event_id":%q,"pointers":["/data/description"],"reason":%q}`, posted.event("gl.journal.posted"), reason)
	}
	const mismatch, intentMismatch = "idempotency.mismatch", "intent.idempotency_mismatch"
	writes := []write{
		{"createLegalEntity", admin, "p-0001", "POST", "/api/admin/legal-entities", `{"code":"DEMF","name":"DE","time_zone":"UTC"}`, "", `{"code":"DEMF","name":"Germany","time_zone":"UTC"}`, "legal_entity.duplicate"},
		{"registerEventType", admin, "p-0001", "POST", "/api/event-types", eventType("number"), "", eventType("string"), "event_type.duplicate"},
		{"appendEvents", module, "s-module", "POST", "/api/events", batch(machineServiced("USMF", "M-1", `{"hours":1}`)), "", batch(machineServiced("USMF", "M-1", `{"hours":2}`)), mismatch},
		{"appendToStream", module, "s-module", "POST", machine + "/events?legal_entity=USMF", serviced(1), "", serviced(2), mismatch},
		{"setStreamMetadata", module, "s-module", "PUT", machine + "/metadata?legal_entity=USMF", `{"max_count":7}`, "", `{"max_count":8}`, mismatch},
		{"deleteStream", module, "s-module", "DELETE", machine + "?legal_entity=USMF&reason=sold", "", machine + "?legal_entity=USMF&reason=scrapped", "", mismatch},
		{"submitIntent", books, "p-accountant", "POST", "/api/intents", journal("lease"), "", journal("leases"), intentMismatch},
		{"approveIntent", controller, "p-controller", "POST", waiting("approve"), `{"comment":"late"}`, "", `{"comment":"very late"}`, intentMismatch},
		{"rejectIntent", controller, "p-controller", "POST", waiting("reject"), `{"reason":"late"}`, "", `{"reason":"very late"}`, intentMismatch},
		{"withdrawIntent", books, "p-accountant", "POST", waiting("withdraw"), `{"reason":"late"}`, "", `{"reason":"very late"}`, intentMismatch},
		{"requestErasure", officer, "p-officer", "POST", "/api/erasure-requests", `{"subject":"employee:E-1","basis":"gdpr_art_17","reason":"Letter."}`, "", `{"subject":"employee:E-2","basis":"gdpr_art_17","reason":"Letter."}`, mismatch},
		{"grantDisclosure", officer, "p-officer", "POST", "/api/disclosures", disclosure("Audit."), "", disclosure("Another audit."), mismatch},
		{"requestRedaction", officer, "p-officer", "POST", "/api/redaction-requests", redaction("A name."), "", redaction("Another name."), mismatch},
		{"placeLegalHold", officer, "p-officer", "POST", "/api/legal-holds", `{"subject":"employee:E-1","reason":"Proceedings."}`, "", `{"subject":"employee:E-2","reason":"Proceedings."}`, mismatch},
	}
	// The workers of erasures and redactions advance the requests in between and append events of their own.
	newest := func(actor string) (sequences []string) {
		t.Helper()
		for _, entity := range []string{"USMF", "_ADMIN"} {
			events, _, err := auditor.page(url.Values{"stream_type": {"actor"}, "stream_id": {actor}, "legal_entity": {entity}, "direction": {"backward"}, "limit": {"1"}})
			require.NoError(t, err)
			sequence := "none"
			if len(events) > 0 {
				sequence = events[0].Sequence
			}
			sequences = append(sequences, sequence)
		}
		return sequences
	}
	keyed := operationsWithKey(t)
	for _, w := range writes {
		require.Contains(t, keyed, w.operation)
		delete(keyed, w.operation)
		key := []string{"Idempotency-Key", "key-" + w.operation}
		before := newest(w.actor)
		first, err := w.as.do(w.method, w.path, w.body, key...)
		require.NoError(t, err)
		require.Less(t, first.status, 300, "%s: %s", w.operation, first)
		require.Empty(t, first.header.Get("Idempotency-Replayed"), w.operation)
		written := newest(w.actor)
		require.NotEqual(t, before, written, w.operation)
		again, err := w.as.do(w.method, w.path, w.body, key...)
		require.NoError(t, err)
		require.Less(t, again.status, 300, "%s: %s", w.operation, again)
		require.Equal(t, "true", again.header.Get("Idempotency-Replayed"), w.operation)
		require.Equal(t, answered(first), answered(again), w.operation)
		other, err := w.as.do(w.method, cmp.Or(w.otherPath, w.path), w.otherBody, key...)
		require.NoError(t, err)
		require.Equal(t, http.StatusConflict, other.status, "%s: %s", w.operation, other)
		require.Equal(t, w.mismatch, other.code(), w.operation)
		require.Equal(t, written, newest(w.actor), "%s is written once", w.operation)
	}
	require.Empty(t, slices.Sorted(maps.Keys(keyed)), "repeat these operations here")

	for _, w := range []write{
		{operation: "createLegalEntity", path: "/api/admin/legal-entities", body: `{"code":"FRMF","name":"DE","time_zone":"UTC"}`},
		{operation: "registerEventType", path: "/api/event-types", body: strings.Replace(eventType("number"), "machine.sold", "machine.scrapped", 1)},
	} {
		renamed, err := admin.do("POST", w.path, w.body, "Idempotency-Key", "key-"+w.operation)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, renamed.status, "%s: %s", w.operation, renamed)
		require.Empty(t, renamed.header.Get("Idempotency-Replayed"), w.operation)
	}

	submit := func() answer {
		t.Helper()
		a, err := books.do("POST", "/api/intents", journal("late lease"), "Idempotency-Key", "key-waiting")
		require.NoError(t, err)
		return a
	}
	first := submit()
	require.Equal(t, http.StatusAccepted, first.status, first)
	var parked, approved, repeated outcome
	require.NoError(t, json.Unmarshal(first.body, &parked))
	require.NoError(t, controller.want(http.StatusCreated, &approved, "POST", "/api/intents/"+parked.IntentID+"/approve?legal_entity=USMF", ""))
	before, err := auditor.head("USMF")
	require.NoError(t, err)
	again := submit()
	require.Equal(t, http.StatusOK, again.status, again)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.NoError(t, json.Unmarshal(again.body, &repeated))
	require.Equal(t, "executed", repeated.Status)
	require.Equal(t, parked.IntentID, repeated.IntentID)
	require.Equal(t, approved.Events, repeated.Events)
	after, err := auditor.head("USMF")
	require.NoError(t, err)
	require.Equal(t, before, after, "the repetition appends nothing")
}

// answered is the body of an answer; of a request that a worker takes on, its id, since the request is
// answered as it is now.
func answered(a answer) string {
	var request struct{ ID, Status string }
	if json.Unmarshal(a.body, &request) == nil && request.ID != "" && request.Status != "" {
		return request.ID
	}
	return string(a.body)
}

// operationsWithKey are the ids of the operations that take an idempotency key.
func operationsWithKey(t *testing.T) map[string]bool {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromFile(repository(t, "adapters", "httpapi", "openapi", "assembled.yaml"))
	require.NoError(t, err)
	out := map[string]bool{}
	for _, item := range document.Paths.Map() {
		for _, operation := range item.Operations() {
			if slices.ContainsFunc(operation.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.Name == "Idempotency-Key" }) {
				out[operation.OperationID] = true
			}
		}
	}
	require.NotEmpty(t, out)
	return out
}
