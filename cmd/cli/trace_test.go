package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
)

// Names that the server joins stand beside the ids, in the text and in the JSON.
func TestTrace_Names(t *testing.T) {
	t.Setenv("BACKBONE_LEGAL_ENTITY", "")
	made := func(id, person string) client.Event {
		return client.Event{ID: id, Type: "ap.invoice.submitted", IntentID: intentID, Actor: client.Actor{Type: "human", ID: person, Name: "ap_clerk"}}
	}
	first := made(intentID, "p-1")
	effect := made("01JQ8E6Z6G3V5T8C9N2M4K7R1Q", "p-2")
	names := client.PersonNames{"p-1": "Anna Berg", "p-2": "Nadia Approver"}
	lineage := []any{
		client.EventAnswer{Event: effect}, client.Lineage{Lineage: []client.Event{first, effect}, Names: names},
		client.Intent{Type: "ap.submit_invoice", Approvals: []client.Approval{{PersonID: "p-3", Role: "cfo", Decision: "approved"}}, Names: client.PersonNames{"p-3": "Carla Chief"}},
	}
	effects := []any{
		client.EventAnswer{Event: first}, client.EventAnswer{Event: first},
		client.Descendants{Descendants: []client.Descendant{{Event: effect, Parent: first.ID, Depth: 1}}, Names: names},
	}
	for _, tc := range []struct {
		args    []string
		answers []any
		want    []string
	}{
		{nil, lineage, []string{"by human p-1 (Anna Berg, ap_clerk), intent", "by human p-2 (Nadia Approver, ap_clerk), intent", "approved by p-3 (Carla Chief) as cfo"}},
		{[]string{"--json"}, lineage, []string{`"p-2": "Nadia Approver"`, `"p-3": "Carla Chief"`}},
		{[]string{"--effects"}, effects, []string{"by human p-1 (Anna Berg)", "by human p-2 (Nadia Approver)"}},
		{[]string{"--effects", "--json"}, effects, []string{`"p-2": "Nadia Approver"`}},
	} {
		o := serveAnswers(t, tc.answers...)
		require.NoError(t, o.run(t, append([]string{"trace", intentID}, tc.args...)...))
		out := o.printed()
		for _, want := range tc.want {
			require.Contains(t, out, want, tc.args)
		}
	}
}

// Between two events of a document's chain stand the document's own steps: here a hold, and who
// released it.
func TestTrace_StepsBetween(t *testing.T) {
	t.Setenv("BACKBONE_LEGAL_ENTITY", "")
	ids := []string{intentID, "01JQ8E6Z6G3V5T8C9N2M4K7R1Q", "01JQ8E6Z6G3V5T8C9N2M4K7R1R", "01JQ8E6Z6G3V5T8C9N2M4K7R1S"}
	made := func(version int, eventType, person, data string) client.Event {
		return client.Event{
			ID: ids[version-1], Type: eventType, IntentID: ids[version-1], Actor: client.Actor{Type: "human", ID: person, Name: "role"}, Data: []byte(data),
			Stream: client.EventStream{Type: "ap.invoice", ID: "D-1", Version: int64(version)}, Scope: client.Scope{LegalEntity: "DEMF"},
		}
	}
	submitted, approved := made(1, "ap.invoice.submitted", "p-1", `{}`), made(4, "ap.invoice.approved", "p-2", `{}`)
	held := made(2, "ap.invoice.held", "p-1", `{"kind": "DISPUTE", "reason": "broken"}`)
	released := made(3, "ap.invoice.hold_released", "p-3", `{"kind": "DISPUTE", "reason": "credit \"agreed\""}`)
	answers := []any{
		client.EventAnswer{Event: approved}, client.Lineage{Lineage: []client.Event{submitted, approved}},
		client.StreamPage{Events: []client.Event{held, released, approved}},
		client.Intent{Type: "ap.submit_invoice"}, client.Intent{Type: "ap.approve_invoice"}, client.Intent{Type: "ap.hold_invoice"},
		client.Intent{Type: "ap.release_hold", Names: client.PersonNames{"p-3": "Carla Chief"}},
	}
	o := serveAnswers(t, answers...)
	require.NoError(t, o.run(t, "trace", intentID))
	require.Contains(t, o.asked[2], "/api/streams/ap.invoice/D-1?")
	require.Contains(t, o.asked[2], "from=2")
	out := o.printed()
	require.Contains(t, out, `   │ ap.invoice.held  DISPUTE, "broken"`)
	require.Contains(t, out, `   │ ap.invoice.hold_released  DISPUTE, "credit \"agreed\""`)
	require.Contains(t, out, "by human p-3 (Carla Chief, role), intent ap.release_hold "+ids[2])
	require.Equal(t, 1, strings.Count(out, "ap.invoice.approved"))

	o = serveAnswers(t, answers...)
	require.NoError(t, o.run(t, "trace", "--json", intentID))
	require.Contains(t, o.printed(), `"steps_between"`)
}

func TestAboutLine(t *testing.T) {
	t.Parallel()
	require.Empty(t, aboutLine(nil))
	require.Equal(t, "about vendor V-1, invoice V-1", aboutLine([]client.EntityReference{
		{EntityType: "vendor", EntityID: "V-1", Role: "subject"}, {EntityType: "invoice", EntityID: "V-1"}, {EntityType: "vendor", EntityID: "V-1", Role: "payee"},
	}))
	var many []client.EntityReference
	for n := range maxEntitiesListed + 2 {
		many = append(many, client.EntityReference{EntityType: "machine", EntityID: fmt.Sprint(n)})
	}
	line := aboutLine(many)
	require.Contains(t, line, "machine 19 and 2 more")
	require.NotContains(t, line, "machine 20")
}

// A process of a night's run is about hundreds of thousands of entities. The time only says
// that no entity is compared with every other one.
func TestAboutLineManyEntities(t *testing.T) {
	t.Parallel()
	const many = 300_000
	entities := make([]client.EntityReference, 0, 2*many)
	for range 2 {
		for n := range many {
			entities = append(entities, client.EntityReference{EntityType: "machine", EntityID: fmt.Sprintf("%09d", n)})
		}
	}
	line := make(chan string, 1)
	go func() { line <- aboutLine(entities) }()
	select {
	case got := <-line:
		require.Contains(t, got, "about machine 000000000, machine 000000001, ")
		require.Contains(t, got, fmt.Sprintf("machine 000000019 and %d more", many-maxEntitiesListed))
	case <-time.After(time.Minute):
		require.Fail(t, "it is still comparing")
	}
}
