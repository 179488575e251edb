package eventlog_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// boundWrite writes a revision of an intent's row with an event that binds it. The event is
// about the intent, or made by it.
func boundWrite(t *testing.T, le ports.LegalEntity, row intent.Intent, about bool) ports.AppendRequest {
	t.Helper()
	row.Revision++
	r := pgtest.Invoice(row.Partition, 1)
	r.Streams, r.Idempotency = nil, nil
	r.Intent = &ports.IntentWrite{ExpectedRevision: row.Revision - 1}
	if about {
		r.Intent.EventsAbout = 1
		r.Events[0].Type, r.Events[0].Stream = intent.Waiting, intent.StreamOf(row.ID)
	} else {
		row.EventCount = 1
	}
	binding, err := row.Bind()
	require.NoError(t, err)
	encoded, err := json.Marshal(binding)
	require.NoError(t, err)
	e := &r.Events[0]
	e.IntentID, e.Keys = row.ID, nil
	e.Scope = event.Scope{TenantID: le.TenantID, LegalEntity: le.Code}
	e.Payload = []byte(`{"data":{},"dimensions":{},"entity_refs":[],"intent":` + string(encoded) + `}`)
	e.PayloadHash, e.PayloadHashDone = event.HashPayload(e.Salt, e.Payload), true
	r.Intent.Intent = row
	return r
}

// TestVerify_Intents finds edits of the row of an executed intent. The tamper drill edits each
// column of one that waits, and deletes it.
func TestVerify_Intents(t *testing.T) {
	t.Parallel()
	c := newTamperFixture(t)
	const mine = " WHERE partition_id = $1 AND id = $2"
	for name, statement := range map[string]string{
		"untouched":          "",
		"approver":           `UPDATE backbone.intents SET approvals = replace(approvals::text, 'p-boss', 'p-other')::json` + mine,
		"outcome's start":    "UPDATE backbone.intents SET first_sequence = first_sequence - 1" + mine,
		"outcome's length":   "UPDATE backbone.intents SET event_count = 0, first_sequence = 0" + mine,
		"outcome's end":      "UPDATE backbone.intents SET last_sequence = 0" + mine,
		"older than binding": "UPDATE backbone.intents SET last_sequence = -1" + mine,
		"earlier revision":   "UPDATE backbone.intents SET last_sequence = last_sequence - 1" + mine,
		"unreadable":         "UPDATE backbone.intents SET approvals = '7'" + mine,
		"made up": `INSERT INTO backbone.intents (created_at, updated_at, first_sequence, partition_id, event_count, revision, id, legal_entity, type, status, actor_type, actor_id)
			SELECT created_at, updated_at, 0, partition_id, 0, 1, gen_random_uuid(), legal_entity, type, 'denied', actor_type, actor_id FROM backbone.intents` + mine,
		"copied": `INSERT INTO backbone.intents SELECT (x).* FROM (SELECT json_populate_record(i, json_build_object('id', gen_random_uuid())) AS x FROM backbone.intents i WHERE i.partition_id = $1 AND i.id = $2) c`,
	} {
		t.Run(name, func(t *testing.T) {
			code := "I" + ulid.Make().String()[20:]
			le := c.newLegalEntity(t, code)
			now := event.Micros(time.Now())
			row := intent.Intent{
				ID: ulid.Make(), Partition: le.Partition, LegalEntity: code, Type: "ap.approve", Payload: json.RawMessage(`{"amount": 1.50}`),
				Actor: event.Actor{Type: event.Human, ID: "u-1", Name: "clerk"}, PersonID: "p-1", Roles: []string{"clerk"}, CorrelationID: "c-1",
				EffectiveDate: event.DateOf(now), HasEffectiveDate: true, Rules: json.RawMessage(`[{"rule_id":"r"}]`),
				Status: intent.PendingApproval, CreatedAt: now, UpdatedAt: now,
				Needs: []intent.ApprovalNeed{{Roles: []string{"boss"}, Reason: "big", RuleID: "r"}},
			}
			_, err := c.Appender.Append(t.Context(), boundWrite(t, le, row, true))
			require.NoError(t, err)
			waiting, err := c.Intents.Intent(t.Context(), le.Partition, row.ID)
			require.NoError(t, err)
			waiting.Status = intent.Executed
			waiting.Approvals = []intent.Approval{{PersonID: "p-boss", ActorID: "p-boss", Role: "boss", Decision: "approved", At: now}}
			_, err = c.Appender.Append(t.Context(), boundWrite(t, le, waiting, false))
			require.NoError(t, err)
			require.True(t, c.verify(t, le).Sound(), "%v", c.verify(t, le).Findings)
			if statement == "" {
				return
			}
			require.EqualValues(t, 1, c.exec(t, statement, int32(le.Partition), row.ID[:]))
			report := c.verify(t, le)
			require.NotEmpty(t, report.Findings)
			for _, f := range report.Findings {
				require.Equal(t, verify.IntentMismatch, f.Kind, f.Detail)
			}
		})
	}
}
