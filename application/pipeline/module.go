package pipeline

import (
	"context"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Module declares the types of the events about intents. It has no intents: only Service
// appends them.
type Module struct{}

var _ module.Module = Module{}

// Name implements module.Module.
func (Module) Name() string { return "backbone" }

// Register implements module.Module.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes(intent.EventPrefix)
	for _, t := range []struct{ name, description string }{
		{intent.Waiting, "The intent waits until persons have met its needs. The event comes again when its plan has changed."},
		{intent.ApprovalRecorded, "A person approved the intent, which waits for another one."},
		{intent.Approved, "The last person that was needed approved the intent, and it was executed."},
		{intent.RejectedEvent, "A person rejected the intent."},
		{intent.WithdrawnEvent, "The requester took the intent back."},
		{intent.ExpiredEvent, "The intent waited too long, and the log ended it."},
		{intent.Refused, "The intent was refused: by a right, its schema, its planner, a policy or the store."},
		{intent.DecisionRefused, "A person tried to approve, reject or withdraw the intent and may not. The intent waits as before."},
		{intent.ExecutedEmpty, "The intent was executed, and its plan had no events."},
	} {
		r.EventType(module.EventType{Registration: eventtype.Registration{
			Type: t.name, SchemaVersion: 1, Module: "intents", Description: t.description,
			DataSchema: json.RawMessage(aboutSchema), Examples: []json.RawMessage{json.RawMessage(aboutExample)},
			RetentionClass: eventtype.Regulatory, MinRetentionYears: retentionYears,
		}})
	}
	return nil
}

// retentionYears is how long it must be possible to tell who decided.
const retentionYears = 10

const aboutSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["intent_type", "status", "revision", "requested_by"],
  "properties": {
    "intent_type": {"type": "string", "maxLength": 512},
    "status": {"type": "string", "maxLength": 64},
    "revision": {"type": "integer", "minimum": 1, "description": "of the intent's row, which the event's payload binds"},
    "requested_by": {"type": "string", "maxLength": 512, "description": "person id, a pseudonym"},
    "plan_hash": {"type": "string", "maxLength": 64, "description": "of the plan that waits"},
    "amount": {"type": "object", "additionalProperties": false, "required": ["value", "currency"], "description": "that the plan is about, in units of the currency",
      "properties": {"value": {"type": "number"}, "currency": {"type": "string", "maxLength": 3}}},
    "effective_date": {"type": "string", "format": "date", "description": "of the first event of the plan that waits"},
    "documents": {"type": "array", "maxItems": 32, "items": {"type": "string"}, "description": "streams that its plan writes, as type/id"},
    "needs": {"type": "array", "description": "of that plan, met or not", "items": {
      "type": "object", "additionalProperties": false, "required": ["roles", "reason", "rule_id"],
      "properties": {"roles": {"type": ["array", "null"], "items": {"type": "string"}}, "reason": {"type": "string"}, "rule_id": {"type": "string"}}}},
    "decision": {"type": "object", "additionalProperties": false, "required": ["person_id", "actor_id", "role", "decision", "plan_hash", "at"],
      "properties": {
        "person_id": {"type": "string", "maxLength": 512}, "actor_id": {"type": "string", "maxLength": 512}, "role": {"type": "string", "maxLength": 512},
        "decision": {"enum": ["approved", "rejected", "withdrawn"]}, "plan_hash": {"type": "string", "maxLength": 64},
        "comment": {"type": "string", "maxLength": 2000, "description": "no personal data"}, "at": {"type": "string", "maxLength": 40}}},
    "attempt": {"enum": ["approve", "reject", "withdraw"], "description": "of the decision that was refused"},
    "refusal": {"type": "object", "additionalProperties": false, "required": ["code", "kind"],
      "properties": {"code": {"type": "string"}, "kind": {"type": "string"}, "rule": {"type": "string", "maxLength": 64, "description": "of segregation of duties, such as S1"}}, "description": "the intent's row has the words, which may quote the request"}
  }
}`

const aboutExample = `{"intent_type":"gl.post_journal","status":"rejected","revision":2,"requested_by":"p-1","plan_hash":"63b2","decision":{"person_id":"p-2","actor_id":"p-2","role":"controller","decision":"rejected","plan_hash":"63b2","comment":"wrong period","at":"2026-03-20T10:00:00Z"}}`

// about is the data of the events about an intent.
type about struct {
	IntentType  string                `json:"intent_type"`
	Status      intent.Status         `json:"status"`
	Revision    int                   `json:"revision"`
	RequestedBy string                `json:"requested_by"`
	PlanHash    string                `json:"plan_hash,omitempty"`
	Effective   *event.Date           `json:"effective_date,omitempty"` // of an intent that waits
	Documents   []string              `json:"documents,omitempty"`
	Amount      *module.Amount        `json:"amount,omitempty"` // of an intent that waits
	Needs       []intent.ApprovalNeed `json:"needs,omitempty"`
	Decision    *intent.Approval      `json:"decision,omitempty"`
	Attempt     string                `json:"attempt,omitempty"`
	Refusal     *refusalReason        `json:"refusal,omitempty"`
}

type refusalReason struct {
	Code string `json:"code"`
	Kind string `json:"kind"`
	Rule string `json:"rule,omitempty"`
}

// aboutEventIDBase separates the ids of these events from those of documents and plans.
const aboutEventIDBase = 100_000

// eventAbout makes the batch with the event about a new revision of an intent's row. The
// caller is its actor, who is the requester, an approver or the log itself.
func (a *attempt) eventAbout(row *intent.Intent, w outcomeWrite, binding intent.Binding) module.Batch {
	data := about{
		IntentType: row.Type, Status: row.Status, Revision: row.Revision, RequestedBy: row.PersonID, PlanHash: row.PlanHash, Documents: row.Documents,
	}
	if w.about == intent.Waiting || w.about == intent.ApprovalRecorded {
		data.Effective = &row.EffectiveDate
	}
	switch w.about {
	case intent.Waiting:
		data.Needs, data.Amount = row.Needs, w.amount
	case intent.ApprovalRecorded, intent.Approved, intent.RejectedEvent, intent.WithdrawnEvent:
		data.Decision = &row.Approvals[len(row.Approvals)-1]
	case intent.Refused:
		data.Refusal = &refusalReason{row.Refusal.Code, row.Refusal.Kind, row.Refusal.Rule}
	}
	b := a.batchAbout(row, w.about, data, row.UpdatedAt)
	if data.Effective != nil {
		b.Drafts[0].Tags = []string{intent.WaitingTag(row.EffectiveDate)}
	}
	b.Rules, b.Binding = row.Rules, &binding
	b.EventIDs = []event.ID{module.DeriveID(row.ID, aboutEventIDBase+row.Revision)}
	return b
}

// batchAbout makes the batch of an event about an intent.
func (a *attempt) batchAbout(row *intent.Intent, eventType string, data about, now time.Time) module.Batch {
	return module.Batch{
		Drafts: []event.Draft{{
			Type: eventType, SchemaVersion: 1, EffectiveDate: a.entity.Today(now), Stream: intent.StreamOf(row.ID), Data: data,
			CausedBy: row.CausedBy, CausedByPartition: row.CausedByPartition,
		}},
		LegalEntity: a.entity, Actor: a.caller.Actor, CorrelationID: row.CorrelationID, IntentID: row.ID, Source: row.Source,
		Now: now, AboutIntent: true,
	}
}

// recordRefusedDecision appends that the caller tried to decide on a waiting intent and may
// not. The row stays as it is. If it cannot be recorded, the log of the program says so: the
// decision is refused either way.
func (a *attempt) recordRefusedDecision(ctx context.Context, verb string, refusal error) {
	if fault.KindOf(refusal) != fault.Forbidden {
		return
	}
	ctx = context.WithoutCancel(ctx) // a caller who leaves cannot keep it from being recorded
	row := &a.stored
	events, err := a.service.Preparer.Prepare(ctx, a.batchAbout(row, intent.DecisionRefused, about{
		IntentType: row.Type, Status: row.Status, Revision: row.Revision, RequestedBy: row.PersonID, PlanHash: row.PlanHash, Documents: row.Documents,
		Attempt: verb, Refusal: &refusalReason{fault.CodeOf(refusal), fault.KindOf(refusal).String(), ruleOf(refusal)},
	}, event.Micros(a.service.Clock.Now())))
	if err == nil {
		_, err = a.service.Appender.Append(ctx, ports.AppendRequest{Partition: a.entity.Partition, Events: events})
	}
	if err != nil {
		a.service.Logger.WarnContext(ctx, "refused decision could not be recorded", "intent_id", row.ID.String(), "code", fault.CodeOf(err))
	}
}

// ruleOf is the rule of segregation of duties that a refusal names.
func ruleOf(refusal error) string {
	f, ok := fault.As(refusal)
	if !ok {
		return ""
	}
	rule, _ := f.Attributes["rule"].(string)
	return rule
}
