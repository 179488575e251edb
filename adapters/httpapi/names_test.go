package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// namedPersons names each person after the id, and opens these names.
type namedPersons struct{}

func (namedPersons) SealedNames(_ context.Context, _ string, persons []string) (map[string]module.SealedDocument, error) {
	found := map[string]module.SealedDocument{}
	for _, id := range persons {
		found[id] = module.SealedDocument{At: shredding.Location{Kind: shredding.KindEvent, Record: event.ID{1}, Type: "backbone.principal.named"}, Document: []byte(id)}
	}
	return found, nil
}

func (namedPersons) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	var opened []module.Opened
	for i, d := range documents {
		if !r.Reads(d.At.Type, shredding.Identity) {
			continue
		}
		opened = append(opened, module.Opened{Subject: shredding.Subject("person:" + string(d.Document)), Class: shredding.Identity, Values: 1})
		documents[i].Document = []byte(`{"data":{"name":"name of ` + string(d.Document) + `"}}`)
	}
	return r.Disclose(ctx, opened)
}

// noNames knows no name.
type noNames struct{}

func (noNames) SealedNames(context.Context, string, []string) (map[string]module.SealedDocument, error) {
	return nil, nil
}

// TestNames joins names for auditors, and records who saw which.
func TestNames(t *testing.T) {
	t.Parallel()
	h := startAPI(t, func(c *httpapi.Config) { c.Names, c.Personal = namedPersons{}, namedPersons{} })
	made := h.submitPage(t, "USMF", "P-1", true, "")
	refused := h.submitPage(t, "DEMF", "P-2", true, "")["intent_id"].(string)
	require.Equal(t, http.StatusForbidden, h.do(t, testRequest{method: "POST", path: "/api/intents/" + refused + "/withdraw", token: "controller", body: `{"reason":"mine"}`}).status)
	id, correlation := made["intent_id"].(string), made["correlation_id"].(string)
	require.Equal(t, http.StatusOK, h.do(t, testRequest{method: "POST", path: "/api/intents/" + id + "/reject", token: "controller", body: `{"reason":"not ours"}`}).status)
	events := h.do(t, testRequest{method: "GET", path: "/api/events/process/" + correlation, token: "auditor"}).json(t)["events"].([]any)
	last := events[len(events)-1].(map[string]any)["id"].(string)
	first := h.submitPage(t, "USMF", "P-3", false, "")["events"].([]any)[0].(map[string]any)["id"].(string)
	h.submitPage(t, "USMF", "P-4", false, fmt.Sprintf(`,"caused_by":%q`, first))

	clerk, controller := "name of p-ap_clerk", "name of p-controller"
	both := map[string]any{"p-ap_clerk": clerk, "p-controller": controller}
	for _, c := range []struct {
		path, operation string
		names           map[string]any
	}{
		{"/api/events/process/" + correlation, "getProcess", both},
		{"/api/intents/" + id, "getIntent", both},
		{"/api/intents?legal_entity=USMF", "listIntents", both},
		{"/api/sod/report?legal_entity=DEMF", "reportSegregation", map[string]any{"p-controller": controller}},
		{"/api/sod/report?legal_entity=USMF&person=p-controller", "reportSegregation", map[string]any{"p-controller": controller}},
		{"/api/events/" + last + "/lineage", "getLineage", map[string]any{"p-controller": controller}},
		{"/api/events/" + first + "/descendants", "getDescendants", map[string]any{"p-ap_clerk": clerk}},
	} {
		require.Equal(t, c.names, h.do(t, testRequest{method: "GET", path: c.path, token: "auditor"}).json(t)["names"], c.path)
		require.Nil(t, h.do(t, testRequest{method: "GET", path: c.path, token: "controller"}).json(t)["names"], c.path)
		for person := range c.names {
			seen := 0
			for _, a := range h.accesses(t, "subject=person:"+person+"&person=p-auditor") {
				if a["operation"] == c.operation {
					seen++
				}
			}
			require.Positive(t, seen, "%s of %s", c.operation, person)
		}
	}
	require.Empty(t, h.accesses(t, "person=p-controller"))
}
