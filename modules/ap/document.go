package ap

import (
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// documentDeclarations are the event types and intents of invoices and credit memos.
func documentDeclarations() declarations {
	d := declarations{intents: []declaredIntent{{schema: "release_hold", IntentType: module.IntentType{
		Type: contract.IntentReleaseHold, Description: "Release a hold on an invoice or credit memo.",
		Emits: []string{contract.Invoice.Event(contract.HoldReleased), contract.CreditMemo.Event(contract.HoldReleased)}, Plan: module.PlanOf(planReleaseHold),
	}}}}
	for _, k := range contract.Kinds() {
		d.events = append(d.events, documentEvents(k)...)
		d.intents = append(d.intents, documentIntents(k)...)
	}
	return d
}

func documentEvents(k contract.Kind) []declaredEvent {
	events := []declaredEvent{{schema: k.Event(contract.Submitted), EventType: submittedType(k, vendorRefRule())}}
	refs := []eventtype.RequiredRef{vendorRefRule(), {EntityType: string(k), Role: contract.RoleDocument, Cardinality: eventtype.One}}
	for _, a := range documentActions(k) {
		t := module.EventType{Registration: eventtype.Registration{
			Type: k.Event(a.action), Description: fmt.Sprintf(a.description, k.Noun()), RequiredEntityRefs: refs,
		}}
		if a.redactable != "" {
			t.Redactable = []string{a.redactable}
		}
		events = append(events, declaredEvent{schema: "document." + a.action, kind: k, EventType: t})
	}
	return events
}

func documentIntents(k contract.Kind) []declaredIntent {
	approves := []string{k.Event(contract.ApprovalRecorded), k.Event(contract.Approved), gl.EventJournalPosted, k.Event(contract.Posted)}
	if k == contract.Invoice {
		approves = append(approves, k.Event(contract.Paid))
	}
	return []declaredIntent{
		{schema: "submit_" + string(k), IntentType: module.IntentType{
			Type: k.Intent("submit"), Description: "Submit a vendor's " + k.Noun() + ".",
			Emits: []string{k.Event(contract.Submitted), k.Event(contract.Validated), k.Event(contract.Held)},
			Plan:  planSubmit(k), OnDuplicate: onDuplicateDocument(k),
		}},
		{schema: "approve_document", kind: k, IntentType: module.IntentType{
			Type: k.Intent("approve"), Description: "Approve a submitted " + k.Noun() + " and post it.", Emits: approves, Plan: planApprove(k),
		}},
		{schema: "reject_document", kind: k, IntentType: module.IntentType{
			Type: k.Intent("reject"), Description: "Reject a submitted " + k.Noun() + ".", Emits: []string{k.Event(contract.Rejected)}, Plan: planReject(k),
		}},
	}
}

func submittedType(k contract.Kind, vendorRef eventtype.RequiredRef) module.EventType {
	t := module.EventType{
		Registration: eventtype.Registration{
			Type:               k.Event(contract.Submitted),
			Description:        "Vendor invoice submitted for processing, with or without a purchase order.",
			RequiredDimensions: []string{gl.DimensionDepartment},
			OptionalDimensions: []string{"cost_center", "project"},
			RequiredEntityRefs: []eventtype.RequiredRef{vendorRef},
			BusinessKeys: []eventtype.BusinessKeyRule{{
				Name: "number", Fields: []string{"vendor_id", "invoice_number"}, Normalise: eventtype.NormaliseDocumentNumber, Document: k.IDField(),
			}},
			Examples: []json.RawMessage{json.RawMessage(submittedExample)},
		},
		Checks: []module.Check{func(data json.RawMessage, _ map[string]string) error {
			var d contract.Document
			if err := module.DecodePayload(data, &d); err != nil {
				return err
			}
			err := domain.CheckDocument(k, &d)
			if f, ok := fault.As(err); ok {
				return f.WithField("/data" + f.Field)
			}
			return err
		}},
		Redactable: []string{"$.description", "$.vendor_name", "$.lines[*].description", "$.attachments[*].filename"},
	}
	if k == contract.CreditMemo {
		t.Description = "Vendor credit memo submitted for processing. Amounts are positive."
	}
	return t
}

const submittedExample = `{"invoice_number":"INV-2025-001234","vendor_id":"V-1042","vendor_name":"Contoso Supply Ltd",
"invoice_date":"2025-03-15","due_date":"2025-04-14","currency":"USD","total_amount":12500.00,"tax_amount":0,
"description":"Raw materials order - March delivery","po_reference":"PO-2025-00891","lines":[{"line_number":1,
"description":"Widget Component A","quantity":500,"unit_price":25.00,"amount":12500.00,"account":"5100",
"po_line_reference":"PO-2025-00891-1","item_id":"ITEM-4820","dimensions":{"department":"PROD","cost_center":"CC-5100"}}]}`

// documentAction is an event after the submission. redactable is its member that only people
// read, "" for none.
type documentAction struct{ action, description, redactable string }

func documentActions(k contract.Kind) []documentAction {
	actions := []documentAction{
		{contract.Validated, "Every check of the %s passed.", ""},
		{contract.Held, "The %s is held for a finding.", "$.reason"},
		{contract.HoldReleased, "A hold on the %s was released.", "$.reason"},
		{contract.ApprovalRecorded, "The %s was approved by the first of two persons.", "$.comment"},
		{contract.Approved, "The %s was approved.", "$.comment"},
		{contract.Posted, "The %s was posted: a copy of its line on the control account.", ""},
		{contract.Rejected, "The %s was rejected before approval.", "$.reason"},
	}
	if k == contract.Invoice {
		actions = append(actions, documentAction{contract.Paid, "Nothing of the %s is open any more.", ""})
	}
	return actions
}
