package pipeline_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// diaryModule has notes that wait for a supervisor, and closes that no note may wait for.
type diaryModule struct{}

func (diaryModule) Name() string { return "diary" }

func (diaryModule) Register(r *module.Registrar) error {
	r.Prefixes("diary")
	r.Policy(ports.PolicyModule{Path: "diary.rego", Source: `package backbone.rules.diary
import rego.v1
submit := {"allow": true}
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": []} if input.intent.type == "diary.close_pages"
decision := {"outcome": "needs_approval", "denials": [], "needs": [{"roles": ["supervisor"], "reason": "always", "rule_id": "diary.note"}], "rules": []} if input.intent.type == "diary.write_note"
`})
	for _, name := range []string{"diary.note.written", "diary.pages.closed"} {
		r.EventType(module.EventType{Registration: eventtype.Registration{
			Type: name, SchemaVersion: 1, Module: "diary", DataSchema: json.RawMessage(`{"type":"object"}`), RetentionClass: eventtype.Standard,
		}})
	}
	type days struct{ From, To event.Date }
	plan := func(in module.Input, name string, d days) module.Plan {
		return module.Plan{Events: []event.Draft{{
			Type: name, Stream: event.StreamID{Type: "diary.page", ID: in.DocumentID(0).String()}, EffectiveDate: d.From, Data: struct{}{},
		}}}
	}
	schema := json.RawMessage(`{"type":"object","required":["from"],"additionalProperties":false,"properties":{"from":{"type":"string"},"to":{"type":"string"}}}`)
	r.Intent(module.IntentType{
		Type: "diary.write_note", Schema: schema, Emits: []string{"diary.note.written"}, Policy: "backbone.rules.diary",
		Plan: module.PlanOf(func(_ context.Context, in module.Input, _ module.State, d days) (module.Plan, error) {
			return plan(in, "diary.note.written", d), nil
		}),
	})
	r.Intent(module.IntentType{
		Type: "diary.close_pages", Schema: schema, Emits: []string{"diary.pages.closed"}, Policy: "backbone.rules.diary",
		Plan: module.PlanOf(func(ctx context.Context, in module.Input, s module.State, d days) (module.Plan, error) {
			waiting, err := s.Waiting(ctx, []string{"diary.write_note"}, d.From, d.To)
			if err == nil && waiting.Count > 0 {
				err = fault.New(fault.FailedPrecondition, "diary.notes_wait", "%d notes wait", waiting.Count)
			}
			return plan(in, "diary.pages.closed", d), err
		}),
	})
	return nil
}

// An intent that begins to wait beside a planner that asked for waiting intents makes it plan again
// if the two concern the same month, and else leaves its plan alone.
func TestWaiting_BesideSubmissions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		attempts int
		code     string
	}{
		"2025-03-01": {1, ""}, "2026-01-31": {1, ""}, "2026-04-01": {1, ""},
		"2026-02-01": {2, ""}, "2026-02-14": {2, ""}, "2026-03-31": {2, ""}, // the month, not the range
		"2026-02-15": {2, "diary.notes_wait"}, "2026-03-14": {2, "diary.notes_wait"},
	}
	for day, want := range cases {
		t.Run(day, func(t *testing.T) {
			t.Parallel()
			b := newFixtureWith(t, diaryModule{})
			other, planned := b.secondNode(t), 0
			b.appender.before = func(r ports.AppendRequest) {
				if planned++; planned > 1 {
					return
				}
				o, err := other.Submit(t.Context(), cashier, pipeline.Request{Type: "diary.write_note", LegalEntity: b.entity, Payload: json.RawMessage(`{"from":"` + day + `"}`)})
				require.NoError(t, err)
				require.Equal(t, intent.PendingApproval, o.Status)
			}
			_, err := b.service.Submit(t.Context(), cashier, pipeline.Request{Type: "diary.close_pages", LegalEntity: b.entity, Payload: json.RawMessage(`{"from":"2026-02-15","to":"2026-03-14"}`)})
			require.Equal(t, want.attempts, planned)
			require.Equal(t, want.code, fault.CodeOf(err))
		})
	}
}
