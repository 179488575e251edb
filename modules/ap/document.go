package ap

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// documentDeclarations are the event types and intents of invoices and credit memos.
func documentDeclarations() (declarations, error) {
	holdReleased := []string{contract.Invoice.Event(contract.HoldReleased), contract.CreditMemo.Event(contract.HoldReleased)}
	d := declarations{intents: []declaredIntent{
		{schema: "release_hold", IntentType: module.IntentType{
			Type: contract.IntentReleaseHold, Description: "Release a hold on an invoice or credit memo.",
			Emits: holdReleased, Plan: module.PlanOf(planReleaseHold),
		}},
		{schema: "discard_draft", IntentType: module.IntentType{
			Type: contract.IntentDiscardDraft, Description: "Discard a draft of an invoice or credit memo.",
			Emits: []string{contract.Invoice.Event(contract.Discarded), contract.CreditMemo.Event(contract.Discarded)}, Plan: module.PlanOf(planDiscardDraft),
		}},
	}}
	schemas, err := schemasByKind()
	if err != nil {
		return declarations{}, err
	}
	for _, k := range contract.Kinds() {
		d.events = append(d.events, documentEvents(k, schemas[k])...)
		d.intents = append(d.intents, documentIntents(k, schemas[k])...)
	}
	return d, nil
}

// payeeMember is the member of a submission that no event and no draft has.
const payeeMember = "payee_accounts"

// buyerMember is the member of a submission or correction that no event, no draft and no stored
// intent has.
const buyerMember = "buyer"

// sellerMember is the member of a submission that no event and no draft has.
const sellerMember = "seller_name"

// bodySchemas are the schemas with the body of a document: any part of it in a draft, all of it
// with a reason in a correction.
type bodySchemas struct {
	drafted   json.RawMessage // event
	corrected json.RawMessage // event
	draft     json.RawMessage // intent
	submit    json.RawMessage // intent
	correct   json.RawMessage // intent
}

// schemasByKind makes them once: every command declares the modules several times.
var schemasByKind = sync.OnceValues(func() (map[contract.Kind]bodySchemas, error) {
	out := map[contract.Kind]bodySchemas{}
	for _, k := range contract.Kinds() {
		schemas, err := bodySchemasOf(k)
		if err != nil {
			return nil, err
		}
		out[k] = schemas
	}
	return out, nil
})

func bodySchemasOf(k contract.Kind) (bodySchemas, error) {
	id := json.RawMessage(`{"type": "string", "minLength": 1, "maxLength": 50, "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]*$"}`)
	reason := json.RawMessage(`{"type": "string", "minLength": 1, "maxLength": 500, "pattern": "[^\\s]"}`)
	body, payload := k.Event(contract.Submitted), "intent.submit_"+string(k)
	withID := map[string]json.RawMessage{k.IDField(): id}
	explained := map[string]json.RawMessage{k.IDField(): id, "reason": reason}
	total := []string{"invoice_date", "currency", "total_amount", "lines"}
	paper := append([]string{"invoice_number", "vendor_id"}, total...)
	var s bodySchemas
	for _, v := range []struct {
		schema   *json.RawMessage
		name     string
		without  []string
		with     map[string]json.RawMessage
		required []string
	}{
		{&s.drafted, payload, []string{payeeMember, buyerMember, sellerMember}, withID, []string{k.IDField()}},
		{&s.corrected, body, nil, map[string]json.RawMessage{"reason": json.RawMessage(`{"type": "string", "maxLength": 500}`)}, append([]string{k.IDField(), "due_date", "reason"}, paper...)},
		{&s.draft, payload, []string{payeeMember, buyerMember, sellerMember}, withID, nil},
		{&s.submit, payload, nil, withID, paper},
		{&s.correct, payload, []string{"vendor_id", "invoice_number", payeeMember, sellerMember, "seller_match"}, explained, append([]string{k.IDField(), "reason"}, total...)},
	} {
		var err error
		if *v.schema, err = variant(v.name, v.without, v.with, v.required...); err != nil {
			return s, err
		}
	}
	return s, nil
}

func documentEvents(k contract.Kind, schemas bodySchemas) []declaredEvent {
	refs := []eventtype.RequiredRef{vendorRefRule(), {EntityType: string(k), Role: contract.RoleDocument, Cardinality: eventtype.One}}
	drafted := module.EventType{
		Registration: eventtype.Registration{
			Type: k.Event(contract.Drafted), Description: "Any part of a future " + k.Noun() + ". It claims no number.",
			RequiredEntityRefs: refs[1:], DataSchema: schemas.drafted,
		},
		Redactable: bodyTexts(),
	}
	discarded := module.EventType{
		Registration: eventtype.Registration{
			Type: k.Event(contract.Discarded), Description: "The draft was discarded.", RequiredEntityRefs: refs[1:],
		},
		Redactable: []string{"$.reason"},
	}
	events := []declaredEvent{
		{EventType: drafted}, {schema: "document.discarded", kind: k, EventType: discarded},
		{schema: k.Event(contract.Submitted), EventType: submittedType(k, vendorRefRule())},
	}
	for _, body := range []struct{ action, description string }{
		{contract.Corrected, "The %s was corrected before its approval: it is as given here from now on."},
		{contract.Reinstated, "The rejected or voided %s is to be booked after all, as given here."},
	} {
		t := submittedType(k, vendorRefRule())
		t.Type, t.Description, t.DataSchema = k.Event(body.action), fmt.Sprintf(body.description, k.Noun()), schemas.corrected
		t.BusinessKeys, t.Examples = nil, nil // the submission holds the number
		t.RequiredEntityRefs, t.Redactable = refs, append(t.Redactable, "$.reason")
		events = append(events, declaredEvent{EventType: t})
	}
	for _, a := range documentActions(k) {
		t := module.EventType{Registration: eventtype.Registration{
			Type: k.Event(a.action), Description: fmt.Sprintf(a.description, k.Noun()), RequiredEntityRefs: refs,
		}}
		if a.redactable != "" {
			t.Redactable = []string{a.redactable}
		}
		events = append(events, declaredEvent{schema: "document." + a.action, kind: k, EventType: t})
	}
	matched := module.EventType{
		Registration: eventtype.Registration{
			Type: k.Event(contract.Validated), SchemaVersion: 2, RequiredEntityRefs: refs,
			Description: fmt.Sprintf("Every check of the %s passed. It says how the lines were compared with a purchase order.", k.Noun()),
		},
		Upcast: func(data json.RawMessage) (json.RawMessage, error) { return data, nil }, // match has more values
	}
	return append(events, declaredEvent{schema: "document.validated.v2", kind: k, EventType: matched})
}

func documentIntents(k contract.Kind, schemas bodySchemas) []declaredIntent {
	approves := []string{k.Event(contract.ApprovalRecorded), k.Event(contract.Approved), gl.EventJournalPosted, k.Event(contract.Posted), contract.EventOrderBilled}
	if k == contract.Invoice {
		approves = append(approves, k.Event(contract.Paid))
	}
	outcome := []string{k.Event(contract.Validated), k.Event(contract.Held), k.Event(contract.HoldReleased), contract.EventOrderBilled}
	emits := func(action string) []string { return append([]string{k.Event(action)}, outcome...) }
	verb := func(verb, description string) module.IntentType {
		return module.IntentType{Type: k.Intent(verb), Description: fmt.Sprintf(description, k.Noun())}
	}
	draft := verb("draft", "Keep any part of a future %s.")
	draft.Schema, draft.Emits, draft.Plan = schemas.draft, []string{k.Event(contract.Drafted)}, planDraft(k)
	submit := verb("submit", "Submit a vendor's %s.")
	submit.Schema, submit.Emits, submit.Plan, submit.OnDuplicate = schemas.submit, emits(contract.Submitted), planSubmit(k), onDuplicateDocument(k)
	submit.PIIFields, submit.RetentionClass = append(payeeFields(), sellerFields()...), eventtype.PIISubject
	submit.Opens = []shredding.Class{shredding.Bank, shredding.Identity}
	validate := verb("validate", "Check a submitted %s again.")
	validate.Emits, validate.Plan = outcome, planValidate(k)
	correct := verb("correct", "Correct a %s before its approval.")
	correct.Schema, correct.Emits, correct.Plan = schemas.correct, emits(contract.Corrected), planCorrect(k)
	hold := verb("hold", "Hold a %s, or dispute it.")
	hold.Emits, hold.Plan = []string{k.Event(contract.Held)}, planHold(k)
	approve := verb("approve", "Approve a submitted %s and post it.")
	approve.Emits, approve.Plan = approves, planApprove(k)
	reject := verb("reject", "Reject a submitted %s.")
	reject.Emits, reject.Plan = []string{k.Event(contract.Rejected), contract.EventOrderBilled}, planReject(k)
	void := verb("void", "Void a %s; the journal of a posted one is reversed.")
	void.Emits, void.Plan = []string{k.Event(contract.Voided), gl.EventJournalPosted, gl.EventJournalReversed, contract.EventOrderBilled}, planVoid(k)
	reinstate := verb("reinstate", "Book a rejected or voided %s after all.")
	reinstate.Schema, reinstate.Emits, reinstate.Plan = schemas.correct, emits(contract.Reinstated), planReinstate(k)
	return []declaredIntent{
		{IntentType: draft}, {IntentType: submit}, {IntentType: correct}, {IntentType: reinstate},
		{schema: "validate_document", kind: k, IntentType: validate}, {schema: "hold_document", kind: k, IntentType: hold},
		{schema: "approve_document", kind: k, IntentType: approve}, {schema: "reject_document", kind: k, IntentType: reject},
		{schema: "void_document", kind: k, IntentType: void},
	}
}

// bodyTexts are the texts of a body that only people read.
func bodyTexts() []string {
	return []string{"$.description", "$.vendor_name", "$.lines[*].description", "$.attachments[*].filename"}
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
		Redactable: bodyTexts(),
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
		{contract.Voided, "The %s was voided. The journal of a posted one is reversed.", "$.reason"},
	}
	if k == contract.Invoice {
		actions = append(actions, documentAction{contract.Paid, "Nothing of the %s is open any more.", ""})
	}
	return actions
}
