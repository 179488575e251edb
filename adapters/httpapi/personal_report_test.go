package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// storedPerson is a person with one sealed event in each legal entity and in the administrative log.
type storedPerson struct {
	log  sealedLog
	fail error // of the events of DEMF, which come first

	intents []event.ID // in USMF
}

func (s storedPerson) Overview(context.Context, ports.Principal, disclosure.Purpose, []ports.LegalEntity) (disclosure.Overview, error) {
	return disclosure.Overview{Holds: []disclosure.HoldOfPerson{{ID: "H-1", LegalEntity: "USMF"}}}, nil
}

func (s storedPerson) Events(_ context.Context, le ports.LegalEntity, _ shredding.Subject, after event.Sequence) ([]event.Recorded, error) {
	if after > 0 {
		return nil, nil
	}
	if s.fail != nil && le.Code == "USMF" {
		return nil, s.fail
	}
	e := event.Recorded{Skeleton: event.Skeleton{
		Partition: le.Partition, ID: event.ID{1}, Type: "note.page.added", SchemaVersion: 1, Sequence: 1, Scope: event.Scope{TenantID: "demo", LegalEntity: le.Code},
	}, Payload: []byte(`{"data":{"number":"P-1","text":"call <Ada>"},"dimensions":{},"entity_refs":[]}`)}
	events := []event.Recorded{e}
	s.log.seal(events)
	return events, nil
}

func (s storedPerson) Intents(_ context.Context, le ports.LegalEntity, _ shredding.Subject, after event.ID) ([]event.ID, error) {
	if le.Code != "USMF" || after != (event.ID{}) {
		return nil, nil
	}
	return s.intents, nil
}

// personalIntents are stored intents with a sealed value, which events of USMF caused.
type personalIntents struct {
	httpapi.Intents
	keys *sealingStub
}

func (i personalIntents) Get(_ context.Context, le ports.LegalEntity, id event.ID) (intent.Intent, pipeline.Outcome, error) {
	stored := intent.Intent{ID: id, Type: "note.add_page", Partition: le.Partition, LegalEntity: le.Code, CausedBy: event.ID{9}, CausedByPartition: le.Partition}
	stored.Payload = i.keys.seal([]byte(`{"number":"P-1","text":"call <Ada>"}`), module.LocationOf(&stored), "/text")
	return stored, pipeline.Outcome{}, nil
}

// countedDirectory counts how often the legal entities are listed.
type countedDirectory struct {
	httpapi.Access
	lists atomic.Int32
}

func (d *countedDirectory) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	d.lists.Add(1)
	return d.Access.LegalEntities(ctx, tenantID)
}

// TestPersonalReport_Intents opens the intents of a page together, so that they are one access.
func TestPersonalReport_Intents(t *testing.T) {
	t.Parallel()
	keys, directory := newSealingStub(t), &countedDirectory{}
	h := startAPI(t, func(c *httpapi.Config) {
		directory.Access = c.Access
		c.Access, c.Intents, c.Personal = directory, personalIntents{c.Intents, keys}, keys
		c.PersonalReports = storedPerson{log: sealedLog{c.Events, keys}, intents: []event.ID{{1}, {2}, {3}}}
	})
	a := h.do(t, testRequest{method: "GET", path: "/api/personal-data/report?subject=person:P-1&legal_entity=USMF", token: "compliance", header: map[string]string{"Access-Reason": "ticket 4711"}})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, 1+3, strings.Count(string(a.body), `"text":"call <Ada>"`))
	require.Equal(t, 3, strings.Count(string(a.body), `"caused_by_legal_entity":"USMF"`))
	require.Equal(t, 2, keys.count(), "of the page of events, and of that of intents")
	require.Len(t, h.accesses(t, "kind=report&subject=person:P-1&person=p-compliance"), 2)
	require.EqualValues(t, 1, directory.lists.Load())
}

func startReportAPI(t *testing.T, fail error) *apiFixture {
	t.Helper()
	keys := newSealingStub(t)
	return startAPI(t, func(c *httpapi.Config) {
		c.Personal, c.PersonalReports = keys, storedPerson{log: sealedLog{c.Events, keys}, fail: fail}
	})
}

// TestPersonalReport opens what no role of the officer reads, and records it.
func TestPersonalReport(t *testing.T) {
	t.Parallel()
	h := startReportAPI(t, nil)
	report := func(query string) testAnswer {
		return h.do(t, testRequest{method: "GET", path: "/api/personal-data/report?subject=person:P-1" + query, token: "compliance", header: map[string]string{"Access-Reason": "ticket 4711"}})
	}
	a := report("")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	lines := strings.Split(strings.TrimSpace(string(a.body)), "\n")
	require.Contains(t, lines[0], `{"kind":"report",`)
	require.Equal(t, `{"kind":"hold","hold":{"id":"H-1","legal_entity":"USMF","placed_at":"0001-01-01T00:00:00Z"}}`, lines[1])
	require.Contains(t, lines[0], `"legal_entities":["DEMF","USMF","_ADMIN"]`)
	require.Equal(t, 3, strings.Count(string(a.body), `"text":"call <Ada>"`), "in two legal entities and the administrative log")
	require.Contains(t, lines[len(lines)-2], `"kind":"report"`, "who read the person's data, this report included")
	require.Equal(t, `{"kind":"end","accesses":3,"events":3,"intents":0}`, lines[len(lines)-1])
	require.Equal(t, 1, strings.Count(string(report("&legal_entity=USMF").body), "call <Ada>"))
	require.Len(t, h.accesses(t, "kind=report&subject=person:P-1&person=p-compliance"), 4)

	for query, status := range map[string]int{"?subject=Ada": http.StatusBadRequest, "": http.StatusBadRequest, "?subject=person:P-1": http.StatusBadRequest} {
		require.Equal(t, status, h.do(t, testRequest{method: "GET", path: "/api/personal-data/report" + query, token: "compliance"}).status)
	}
	require.Equal(t, http.StatusNotFound, report("&legal_entity=NONE").status)
	require.Equal(t, http.StatusForbidden, h.do(t, testRequest{method: "GET", path: "/api/personal-data/report?subject=person:P-1", token: "auditor"}).status)
}

// An officer of some legal entities does not learn who read the person's data in others, nor
// does one who asks for one legal entity.
func TestPersonalReport_OfSomeLegalEntities(t *testing.T) {
	t.Parallel()
	h := startReportAPI(t, nil)
	for _, c := range []struct {
		token, query     string
		events, accesses int
	}{
		{"compliance", "", 3, 3},
		{"compliance", "&legal_entity=USMF", 1, 0},
		{"american_compliance", "", 1, 0},
		{"american_compliance", "&legal_entity=USMF", 1, 0},
	} {
		a := h.do(t, testRequest{method: "GET", path: "/api/personal-data/report?subject=person:P-1" + c.query, token: c.token, header: map[string]string{"Access-Reason": "ticket 4711"}})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, c.events, strings.Count(string(a.body), `"kind":"event"`), c)
		require.Equal(t, c.accesses, strings.Count(string(a.body), `"kind":"access"`), c)
	}
	require.Equal(t, http.StatusNotFound, h.do(t, testRequest{
		method: "GET", path: "/api/personal-data/report?subject=person:P-1&legal_entity=DEMF", token: "american_compliance", header: map[string]string{"Access-Reason": "ticket 4711"},
	}).status)
}

// A report that fails on the way ends with the problem and cannot be taken for complete.
func TestPersonalReport_BreaksOff(t *testing.T) {
	t.Parallel()
	h := startReportAPI(t, fault.New(fault.Unavailable, "store.unavailable", "the database does not answer; try again"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/api/personal-data/report?subject=person:P-1", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+h.tokens["compliance"])
	r.Header.Set("Access-Reason", "ticket 4711")
	res, err := h.client.Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Contains(t, string(body), "\n"+`{"error":{"type":"/problems/store.unavailable"`)
	require.NotContains(t, string(body), `"kind":"end"`)
}
