package tamper

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// snapshotEntity is the type of the entity that has a snapshot.
const snapshotEntity = "pump"

// probe asks a reader of snapshots. It answers the same as long as the log stays the same.
type probe struct {
	name   string
	answer func(i *installation) string
}

var (
	readEntity         = probe{"entity", (*installation).answerEntity}
	readClientSnapshot = probe{"snapshot of a client", (*installation).answerClientSnapshot}
	planJournal        = probe{"plan", (*installation).answerPlan}
	restoreSnapshot    = probe{"rebuild", (*installation).answerRebuild}
)

// leaveSnapshots makes a snapshot of an entity, and one of a client. Planning has made some of
// the streams of the books.
func (i *installation) leaveSnapshots() {
	i.t.Helper()
	for n := range 12 { // more than snapshot_every
		i.call("module", http.MethodPost, "/api/events", object{"events": []object{{
			"type": "fleet.truck.fuelled", "scope": object{"legal_entity": "DEMF"}, "stream": object{"type": "fleet.truck", "id": "T-9"},
			"entities": []object{{"entity_type": snapshotEntity, "entity_id": "P-1", "role": "from"}}, "data": object{"litres": n},
		}}}, nil)
	}
	for n := range 12 {
		i.execute("gl_accountant", "gl.define_dimension_value", object{"dimension": "department", "value": fmt.Sprint("D-", n), "name": "Depot"})
	}
	i.answerEntity()
	i.saveClientSnapshot()
	i.answerPlan()
	testkit.Eventually(i.t, time.Minute, func() bool {
		var internal, entities int
		require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT count(*) FROM backbone.stream_snapshots WHERE internal AND stream_type = 'gl.dimension'").Scan(&internal))
		require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT count(*) FROM backbone.entity_snapshots WHERE entity_type = $1", snapshotEntity).Scan(&entities))
		return internal > 0 && entities == 1
	})
}

// answerEntity reads an entity at all levels of consistency, and as of a day before its events.
func (i *installation) answerEntity() (answer string) {
	i.t.Helper()
	at := "/api/entities/" + snapshotEntity + "/P-1?legal_entity=DEMF&"
	for _, query := range []string{"as_of=2000-01-02", "consistency=eventual", "consistency=verified", "consistency=strong"} {
		status, body := i.ask("auditor", http.MethodGet, at+query, nil)
		var read struct {
			State      json.RawMessage `json:"state"`
			Version    json.RawMessage `json:"version"`
			EventCount json.RawMessage `json:"event_count"`
		}
		require.NoError(i.t, json.Unmarshal(body, &read))
		answer += fmt.Sprintln(query, status, string(read.State), string(read.Version), string(read.EventCount))
	}
	return answer
}

const clientSnapshot = "/api/snapshots/fleet.truck/T-9"

func (i *installation) saveClientSnapshot() {
	i.t.Helper()
	var saved object
	i.call("module", http.MethodPost, clientSnapshot+"?legal_entity=DEMF", object{
		"version": 12, "state_type": "Truck", "schema_version": 1, "state": object{"litres": 66}, "metadata": object{"by": "fleet"},
	}, &saved)
	if i.snapshotID == nil {
		i.snapshotID = saved["snapshot_id"]
	}
}

// answerClientSnapshot reads the newest snapshot of a stream. A client that is answered none folds
// the events and stores it again.
func (i *installation) answerClientSnapshot() string {
	i.t.Helper()
	read := func() (int, object) {
		status, body := i.ask("auditor", http.MethodGet, clientSnapshot+"/latest?legal_entity=DEMF", nil)
		var answer object
		require.NoError(i.t, json.Unmarshal(body, &answer))
		return status, answer
	}
	status, answer := read()
	switch status {
	case http.StatusOK:
		require.Equal(i.t, i.snapshotID, answer["snapshot_id"])
	case http.StatusNotFound:
		i.saveClientSnapshot()
		status, answer = read()
		require.Equal(i.t, http.StatusOK, status)
	}
	delete(answer, "snapshot_id")
	delete(answer, "created_at")
	return string(testkit.Must(json.Marshal(answer)))
}

// answerPlan plans a journal on a node that has no states of streams in memory.
func (i *installation) answerPlan() string {
	i.t.Helper()
	return i.plan("gl_accountant", "gl.post_journal", object{"description": "Rent", "posting_date": time.Now().UTC().Format(time.DateOnly), "lines": []object{
		{"account": "6000", "debit_credit": "debit", "amount": 7, "dimensions": object{"department": "D-3"}}, {"account": "2200", "debit_credit": "credit", "amount": 7},
	}})
}

// plan plans an intent on a node that has no states of streams in memory.
func (i *installation) plan(role, intentType string, payload object) string {
	i.t.Helper()
	node, err := pipeline.New(i.server.App.Pipeline.Config)
	require.NoError(i.t, err)
	actor := event.Actor{Type: event.Human, ID: "person-" + role, Name: role}
	out, err := node.Submit(i.t.Context(), pipeline.Caller{
		Principal: ports.Principal{TenantID: tenant, PersonID: actor.ID, PrincipalID: actor.ID, ActorType: actor.Type, Roles: []string{role}},
		Actor:     actor,
	}, pipeline.Request{
		Type: intentType, LegalEntity: i.entity, Payload: testkit.Must(json.Marshal(payload)), DryRun: true, Source: event.Source{System: "test", Channel: "api", Reference: "paper"},
	})
	answer := fmt.Sprint(out.Status, " ", fault.CodeOf(err))
	for _, e := range out.Events {
		answer += " " + e.Type
	}
	return answer
}

// takeSnapshot takes a snapshot of the tenant's own projection, whose active version has read as
// much as the one that was rebuilt.
func (i *installation) takeSnapshot() {
	i.t.Helper()
	testkit.Eventually(i.t, time.Minute, func() bool { return i.comparesEqual(spend) })
	i.call("operator", http.MethodPost, "/api/admin/projections/"+spend+"/snapshot", object{"legal_entity": i.entity.Code}, nil)
	testkit.Eventually(i.t, time.Minute, func() bool {
		var saved int
		require.NoError(i.t, i.super.QueryRow(i.t.Context(), "SELECT count(*) FROM backbone.projections WHERE role = 'saved'").Scan(&saved))
		return saved == 1
	})
}

// answerRebuild begins a rebuild with the snapshot and reads what was copied. A version without a
// checkpoint reads the log from the beginning, and so does an operator who is refused the snapshot.
func (i *installation) answerRebuild() string {
	i.t.Helper()
	at := "/api/admin/projections/" + spend
	status, answer := i.ask("operator", http.MethodPost, at+"/rebuild", object{"switch": false, "from_snapshot": "latest", "legal_entity": i.entity.Code})
	if status >= http.StatusBadRequest {
		require.Contains(i.t, string(answer), "projection.snapshot_")
		return i.restored
	}
	require.NoError(i.t, i.server.App.CopySnapshots(i.t.Context()))
	var copied *string
	require.NoError(i.t, i.super.QueryRow(i.t.Context(), `
		SELECT c.sequence || (SELECT json_agg(to_jsonb(r) - 'version' ORDER BY r.key)::text FROM backbone.projection_rows r WHERE r.projection = p.name AND r.version = p.version)
		FROM backbone.projections p LEFT JOIN backbone.projection_checkpoints c ON c.projection = p.name AND c.version = p.version
		WHERE p.role = 'building' AND p.scope <> 0`).Scan(&copied))
	i.call("operator", http.MethodPost, at+"/cancel", object{"legal_entity": i.entity.Code}, nil)
	if copied == nil {
		return i.restored
	}
	if i.restored == "" {
		i.restored = *copied
	}
	return *copied
}
