package tamper

import (
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/test/testkit"
)

// spend is a projection of the tenant's own.
const spend = "spend"

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
	i.call("admin", http.MethodPut, "/api/admin/webhook-hosts/127.0.0.1:9", nil, nil)
	i.call("admin", http.MethodPut, "/api/subscriptions/trucks/endpoint", object{"url": "https://127.0.0.1:9/hook"}, nil)
	i.call("admin", http.MethodPost, "/api/admin/projections", object{
		"name": spend, "filter": object{"types": []string{"ap.invoice.submitted"}}, "key": ".data.vendor_id", "fold": "{count: ((.state.count // 0) + 1)}",
	}, nil)
	i.call("compliance", http.MethodPost, "/api/legal-holds", object{"subject": "contact:C-3", "reason": "Case 17 is before the court."}, nil)
	i.requestErasure("contact:C-1")
	id := i.requestErasure("contact:C-2")
	i.call("compliance_approver", http.MethodPost, "/api/erasure-requests/"+id+"/approve", object{}, nil)
	i.awaitCompletion("/api/erasure-requests/" + id)
	testkit.Eventually(i.t, time.Minute, func() bool {
		return i.exec("SELECT FROM backbone.events WHERE type = '"+disclosure.AccessRecorded+"'") > 0
	}, "the read is bound")
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
	testkit.Eventually(i.t, time.Minute, func() bool {
		var request struct {
			Status string `json:"status"`
		}
		i.call("auditor", http.MethodGet, path, nil, &request)
		return request.Status == "completed"
	})
}
