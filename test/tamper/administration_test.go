package tamper

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/test/testkit"
)

// spend is a projection of the tenant's own.
const spend = "spend"

// formerType is a built-in type of an earlier release.
const formerType = "depot.pump.sold"

// leaveFormerType leaves what the earlier release stored: a version, the chain of changes, which the
// administrative log seals when the node begins it, and a decision about a message of a subscription.
func (i *installation) leaveFormerType() {
	i.t.Helper()
	document := []byte(`{"type":"` + formerType + `","schema_version":1,"module":"depot","data_schema":{"type":"object"},"retention_class":"standard"}`)
	c := eventtype.Change{Number: 1, Action: eventtype.ActionRegistered, Type: formerType, SchemaVersion: 1, Digest: sha256.Sum256(document), Actor: "depot", At: time.Unix(1_700_000_000, 0)}
	checksum := c.ChainChecksum(eventtype.ChainStart(""))
	i.exec("SET session_replication_role = replica") // the tables are sealed
	for statement, values := range map[string][]any{
		"INSERT INTO backbone.event_types (type, number, is_shared) VALUES ($1, 1, true)": {formerType},
		`INSERT INTO backbone.event_type_registry (tenant_id, type, schema_version, module, retention_class, is_active, document, registered_at, registered_by)
			VALUES ('', $1, 1, 'depot', 'standard', true, $2, $3, $4)`: {formerType, document, c.At, c.Actor},
		`INSERT INTO backbone.event_type_history (tenant_id, type, schema_version, change, action, actor, reason, digest, changed_at, checksum)
			VALUES ('', $1, 1, 1, $2, $3, '', $4, $5, $6)`: {formerType, c.Action, c.Actor, c.Digest[:], c.At, checksum[:]},
		"UPDATE backbone.event_type_generation SET last_change = $1": {c.Number},
		`INSERT INTO backbone.subscription_decisions (partition_id, id, tenant_id, subscription, sequence, event_id, action, actor, reason, code, at)
			VALUES (7, gen_random_uuid(), $1, 'former', 4, gen_random_uuid(), 'discard', 'person-admin', 'corrected by hand', 'crm.invalid', now())`: {tenant},
	} {
		require.EqualValues(i.t, 1, i.exec(statement, values...), statement)
	}
	i.exec("RESET session_replication_role")
}

// readInClear reads personal data of a contact two hours ago, so that the administrative log
// binds the read when the node begins its work.
func (i *installation) readInClear(vendor string) {
	i.t.Helper()
	i.call("vendor_admin", http.MethodGet, "/api/entities/vendor/"+vendor+"?legal_entity=DEMF", nil, nil)
	require.NotZero(i.t, i.exec("UPDATE backbone.access_log SET at = at - interval '2 hours'"))
}

// administer makes what the administrative log records and verification compares with it.
func (i *installation) administer() {
	i.t.Helper()
	i.call("admin", http.MethodPost, "/api/event-types", object{
		"type": "fleet.truck.fuelled", "schema_version": 1, "module": "fleet",
		"data_schema": object{"type": "object", "additionalProperties": false, "properties": object{"litres": object{"type": "number"}}},
	}, nil)
	i.call("module", http.MethodPost, "/api/events", object{"events": []object{{
		"type": "fleet.truck.fuelled", "scope": object{"legal_entity": "DEMF"}, "stream": object{"type": "truck", "id": "T-9"}, "data": object{"litres": 40},
	}}}, nil)
	i.call("admin", http.MethodPost, "/api/subscriptions", object{
		"id": "trucks", "subscriber_type": "webhook", "subscriber_id": "crm", "event_types": []string{"fleet.truck.fuelled"}, "settings": object{"partition_by": "stream"},
	}, nil)
	i.parkMessage()
	i.call("admin", http.MethodPut, "/api/admin/webhook-hosts/127.0.0.1:9", nil, nil)
	i.call("admin", http.MethodPut, "/api/subscriptions/trucks/endpoint", object{"url": "https://127.0.0.1:9/hook"}, nil)
	i.call("admin", http.MethodPost, "/api/admin/projections", object{
		"name": spend, "filter": object{"types": []string{"ap.invoice.submitted"}}, "key": ".data.vendor_id", "fold": "{count: ((.state.count // 0) + 1)}",
	}, nil)
	i.skipEvent()
	i.call("compliance", http.MethodPost, "/api/legal-holds", object{"subject": "contact:C-3", "reason": "Case 17 is before the court."}, nil)
	i.requestErasure("contact:C-1")
	id := i.requestErasure("contact:C-2")
	i.call("compliance_approver", http.MethodPost, "/api/erasure-requests/"+id+"/approve", object{}, nil)
	i.awaitCompletion("/api/erasure-requests/" + id)
	testkit.Eventually(i.t, time.Minute, func() bool {
		return i.exec("SELECT FROM backbone.events WHERE type = '"+disclosure.AccessRecorded+"'") > 0
	}, "the read is bound")
}

// completeTile appends events until the global log has a complete tile, and a checkpoint of it is exported that a
// witness signed too.
func (i *installation) completeTile() {
	i.t.Helper()
	witnessKey := i.startWitness()
	work, end := i.serve()
	defer end()
	work()
	for range 3 {
		events := make([]object, 100)
		for n := range events {
			events[n] = object{"type": "fleet.truck.fuelled", "scope": object{"legal_entity": "DEMF"}, "stream": object{"type": "truck", "id": "T-11"}, "data": object{"litres": n}}
		}
		i.call("module", http.MethodPost, "/api/events", object{"events": events}, nil)
	}
	testkit.Eventually(i.t, time.Minute, func() bool {
		return i.exec("SELECT FROM backbone.log_tiles") > 0 && slices.ContainsFunc(i.keptCheckpoints(witnessKey), func(c globallog.Checkpoint) bool { return c.Size >= 300 })
	}, "a checkpoint of the tile is exported")
}

// parkMessage leaves a dead letter of a subscription, and a message that its consumer has.
func (i *installation) parkMessage() {
	i.t.Helper()
	i.call("module", http.MethodPost, "/api/events", object{"events": []object{{
		"type": "fleet.truck.fuelled", "scope": object{"legal_entity": "DEMF"}, "stream": object{"type": "truck", "id": "T-10"}, "data": object{"litres": 50},
	}}}, nil)
	i.call("module", http.MethodPost, "/api/subscriptions", object{
		"id": "watch", "subscriber_type": "service", "subscriber_id": "crm", "event_types": []string{"fleet.truck.fuelled"},
		"settings": object{"partition_by": "none", "message_timeout_ms": 3_600_000},
	}, nil)
	var batch struct {
		Events []struct {
			ID string `json:"id"`
		} `json:"events"`
	}
	i.call("module", http.MethodGet, "/api/subscriptions/watch/poll?limit=10&consumer=a&wait_ms=20000", nil, &batch)
	require.Len(i.t, batch.Events, 2)
	i.call("module", http.MethodPost, "/api/subscriptions/watch/nack", object{"event_ids": []string{batch.Events[0].ID}, "action": "park", "code": "crm.invalid"}, nil)
}

// skipEvent has the operator skip an event that a projection cannot process.
func (i *installation) skipEvent() {
	i.t.Helper()
	const name = "strict"
	path := "/api/admin/projections/" + name
	i.call("admin", http.MethodPost, "/api/admin/projections?untried=true", object{
		"name": name, "filter": object{"types": []string{"fleet.truck.fuelled"}}, "key": ".stream.id", "fold": `if .event.data.litres == 40 then error("no") else 1 end`,
	}, nil)
	i.call("operator", http.MethodPut, path+"/settings", object{
		"checkpoint": object{"mode": "synchronous"}, "max_attempts": 1, "retry_ms": 1, "retry_max_ms": 1, "on_poison": "stop_partition",
	}, nil)
	testkit.Eventually(i.t, time.Minute, func() bool { return i.exec("SELECT FROM backbone.dead_letters WHERE status = 'waiting'") > 0 }, "an event is halted at")
	i.call("operator", http.MethodPost, path+"/skip", object{"legal_entity": i.entity.Code, "reason": "a test of the importer"}, nil)
}

func (i *installation) requestErasure(subject string) (id string) {
	i.t.Helper()
	var request struct {
		ID string `json:"id"`
	}
	i.call("compliance", http.MethodPost, "/api/erasure-requests", object{"subject": subject, "basis": "gdpr_art_17", "reason": "Letter of March"}, &request)
	return request.ID
}

// awaitCompletion waits until a request for a redaction or erasure has been carried out.
func (i *installation) awaitCompletion(path string) {
	i.t.Helper()
	testkit.Eventually(i.t, 4*time.Minute, func() bool { // an erasure may wait a minute, and try a step again
		var request struct {
			Status string `json:"status"`
		}
		i.call("auditor", http.MethodGet, path, nil, &request)
		return request.Status == "completed"
	})
}
