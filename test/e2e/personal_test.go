package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// personType has a personal field of every class and form: texts, a whole object, a
// whole array, elements of an array that are about other persons.
const (
	personType  = "crm.person.recorded"
	personTypes = `{"type":"crm.person.recorded","schema_version":1,"module":"crm","description":"What is known of a person.",
	"data_schema":{"type":"object","additionalProperties":false,"required":["person_id"],"properties":{
		"person_id":{"type":"string","maxLength":64},
		"name":{"type":"string","maxLength":200},"birth_name":{"type":"string"},
		"email":{"type":"string","pattern":"^[^@ ]+@[^@ ]+$"},"phone":{"type":"string"},"iban":{"type":"string"},"tax_id":{"type":"string"},
		"note":{"type":"string"},"letter":{"type":["string","object"],"x-not-pii":"declared as personal all the same"},
		"address":{"type":"object","additionalProperties":false,"properties":{"street":{"type":"string"},"city":{"type":"string"},
			"geo":{"type":"object","additionalProperties":false,"properties":{"hint":{"type":"string"}}}}},
		"diagnoses":{"type":"array","items":{"type":"string"}},
		"relatives":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["person_id"],"properties":{
			"person_id":{"type":"string"},"name":{"type":"string"},"email":{"type":"string"},"phone":{"type":"string"}}}},
		"code":{"type":"string"},"remark":{"type":"string","x-not-pii":"words of the trade"},"grade":{"type":"number"}}},
	"pii_fields":[
		{"path":"$.name","class":"identity","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.birth_name","class":"identity","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.email","class":"contact","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.phone","class":"contact","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.iban","class":"bank","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.tax_id","class":"tax","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.note","class":"free_text","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.letter","class":"free_text","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.address","class":"contact","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.diagnoses","class":"health","subject":{"path":"$.person_id","type":"employee"}},
		{"path":"$.relatives[*].name","class":"identity","subject":{"path":"$.relatives[*].person_id","type":"relative"}},
		{"path":"$.relatives[*].email","class":"contact","subject":{"path":"$.relatives[*].person_id","type":"relative"}},
		{"path":"$.relatives[*].phone","class":"contact","subject":{"path":"$.relatives[*].person_id","type":"relative"}}],
	"business_keys":[{"name":"crm.person.code","fields":["code"]}],
	"retention_class":"pii_subject",
	"examples":[{"person_id":"E-1","name":"An example"}]}`
)

// registerPersons registers personType once per run.
func registerPersons(t *testing.T, admin client) {
	t.Helper()
	a, err := admin.do("POST", "/api/event-types", personTypes)
	require.NoError(t, err)
	if a.status != http.StatusConflict {
		require.Equal(t, http.StatusCreated, a.status, a)
	}
}

// person is an event of personType in a stream of the person, with the id and the data.
func person(entity, id string, data object) string {
	with := object{"person_id": id}
	for k, v := range data {
		with[k] = v
	}
	return personEvent(entity, id, with)
}

func personEvent(entity, stream string, data object) string {
	text, err := json.Marshal(object{
		"type": personType, "scope": object{"legal_entity": entity}, "stream": object{"type": "person", "id": stream}, "data": data,
		"dimensions": object{}, "entities": []object{{"entity_type": "person", "entity_id": stream, "role": "subject"}},
	})
	if err != nil {
		panic(err) // texts and numbers encode
	}
	return string(text)
}

// record appends events and returns their ids.
func (c client) record(t *testing.T, events ...string) []string {
	t.Helper()
	var out receipts
	require.NoError(t, c.want(http.StatusCreated, &out, "POST", "/api/events", batch(events...)))
	ids := make([]string, len(out.Events))
	for i, e := range out.Events {
		ids[i] = e.ID
	}
	return ids
}

// data is the data of an event as the caller may see it.
func (c client) data(t *testing.T, entity, id string) map[string]any {
	t.Helper()
	var e struct {
		Event struct {
			Data map[string]any `json:"data"`
		} `json:"event"`
	}
	require.NoError(t, c.want(http.StatusOK, &e, "GET", "/api/events/"+id+"?legal_entity="+entity, ""))
	return e.Event.Data
}

// erasureRequest has the members of an erasure request that tests use.
type erasureRequest struct {
	ID            string   `json:"id"`
	Subject       string   `json:"subject"`
	LegalEntities []string `json:"legal_entities"`
	Basis         string   `json:"basis"`
	Reason        string   `json:"reason"`
	Status        string   `json:"status"`
	DueOn         string   `json:"due_on"`
	DaysLeft      *int     `json:"days_left"`
	RequestedBy   string   `json:"requested_by"`
	ApprovedBy    string   `json:"approved_by"`
	EndedBy       string   `json:"ended_by"`
	EndReason     string   `json:"end_reason"`
	Preview       struct {
		Events  int64 `json:"events"`
		Intents int64 `json:"intents"`
		Types   []struct {
			Type        string `json:"type"`
			LegalEntity string `json:"legal_entity"`
			Events      int64  `json:"events"`
			Fields      int64  `json:"fields"`
		} `json:"types"`
		LegalEntities []string `json:"legal_entities"`
		Projections   []string `json:"projections"`
	} `json:"preview"`
	Classes []struct {
		Class   string `json:"class"`
		Erased  bool   `json:"erased"`
		Refused string `json:"refused"`
	} `json:"classes"`
	Steps []struct {
		Step     string `json:"step"`
		Done     bool   `json:"done"`
		Attempts int    `json:"attempts"`
		Error    string `json:"error"`
	} `json:"steps"`
}

func erasureBody(subject, reason string, entities ...string) string {
	body := object{"subject": subject, "basis": "gdpr_art_17", "reason": reason}
	if len(entities) > 0 {
		body["legal_entities"] = entities
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// requestErasure requests an erasure.
func (c client) requestErasure(t *testing.T, subject string, entities ...string) (r erasureRequest) {
	t.Helper()
	require.NoError(t, c.want(http.StatusCreated, &r, "POST", "/api/erasure-requests", erasureBody(subject, "The person asked for it.", entities...)))
	return r
}

func (c client) approveErasure(t *testing.T, id string) (r erasureRequest) {
	t.Helper()
	require.NoError(t, c.want(http.StatusOK, &r, "POST", "/api/erasure-requests/"+id+"/approve", ""))
	return r
}

func (c client) erasure(t *testing.T, id string) (r erasureRequest) {
	t.Helper()
	require.NoError(t, c.want(http.StatusOK, &r, "GET", "/api/erasure-requests/"+id, ""))
	return r
}

// erasureTime is how long an erasure may take: the minute in which it waits for nodes that have
// not reported the eviction of its keys, and retries of a failed step.
const erasureTime = 4 * time.Minute

// awaitErasure waits for the end of a request.
func (c client) awaitErasure(t *testing.T, id string) (r erasureRequest) {
	t.Helper()
	testkit.EventuallyNoError(t, erasureTime, func() error {
		if r = c.erasure(t, id); r.Status != "completed" {
			return fmt.Errorf("it is %s: %+v", r.Status, r.Steps)
		}
		return nil
	})
	return r
}

// eraseSubject requests and approves an erasure and waits for its completion.
func eraseSubject(t *testing.T, officer, second client, subject string, entities ...string) erasureRequest {
	t.Helper()
	r := officer.requestErasure(t, subject, entities...)
	second.approveErasure(t, r.ID)
	return officer.awaitErasure(t, r.ID)
}

// receiptKey is the file with the verifier key of receipts and certificates in a folder of exports.
func receiptKey(t *testing.T, exports string) string {
	t.Helper()
	for _, file := range testkit.Must(filepath.Glob(filepath.Join(exports, "verifier-keys", "[^.]*"))) {
		if strings.HasPrefix(string(testkit.Must(os.ReadFile(file))), "receipts.") {
			return file
		}
	}
	t.Fatal("there is no verifier key of receipts")
	return ""
}
