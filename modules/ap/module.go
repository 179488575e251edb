// Package ap is accounts payable: it registers vendors, and takes invoices and credit
// memos from submission to posting. Module declares the intents, events, policy and read
// models; the plan functions turn an intent into drafts of events. The pipeline calls
// them, asks the policy for its decision and appends the drafts.
package ap

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/ports"
)

//go:embed schema/*.json policy/*.rego
var files embed.FS

const (
	// policyPackage is the Rego package with the rules submit (may the actor submit the
	// intent?) and decision (may the plan take effect?).
	policyPackage = "backbone.rules.ap"
	policyFile    = "policy/ap.rego"
	// longName is the owner of the event types as the registry shows it.
	longName = "accounts_payable"
	// retentionYears is how long tax law requires documents to be kept.
	retentionYears = 7
)

// OpenItems is the projection of open documents and its read model. A change of the rows
// needs a higher version, which a rebuild builds from the events beside the active one.
const (
	OpenItems          = "ap.open-items"
	OpenItemsVersion   = 1
	ReadModelOpenItems = "open-items"
)

// Vendors is the projection of vendors and their contacts, and its read model.
const (
	Vendors          = "ap.vendors"
	VendorsVersion   = 1
	ReadModelVendors = "vendors"
)

// eventLedgerConfigured is an event of the general ledger. The projection of open items
// reads it for the functional currency.
const eventLedgerConfigured = "gl.ledger.configured"

// Module is accounts payable.
type Module struct{}

// New makes the module.
func New() Module { return Module{} }

// Name is "ap".
func (Module) Name() string { return contract.ModuleName }

// Register declares everything the module has.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes("ap", "payment")
	r.Roles(roles()...)
	policy, err := files.ReadFile(policyFile)
	if err != nil {
		return err
	}
	r.Policy(ports.PolicyModule{Path: "modules/ap/" + policyFile, Source: string(policy)})
	for _, register := range []func(*module.Registrar) error{registerEvents, registerIntents} {
		if err := register(r); err != nil {
			return err
		}
	}
	registerFolds(r)
	registerEntities(r)
	registerReadModels(r)
	return nil
}

// schema reads a schema file. Invoices and credit memos share some files, in which the
// placeholder @document_id@ is replaced by the kind's id field.
func schema(name string, k contract.Kind) (json.RawMessage, error) {
	b, err := files.ReadFile("schema/" + name + ".json")
	if err != nil {
		return nil, err
	}
	if k != "" {
		b = []byte(strings.ReplaceAll(string(b), "@document_id@", k.IDField()))
	}
	return b, nil
}

func registerEvents(r *module.Registrar) error {
	vendorRef := eventtype.RequiredRef{EntityType: contract.EntityVendor, Role: contract.RoleSubject, Cardinality: eventtype.One}
	declare := func(t module.EventType, schemaName string, k contract.Kind) error {
		s, err := schema(schemaName, k)
		if err != nil {
			return err
		}
		t.Module, t.DataSchema, t.Active = longName, s, true
		if t.SchemaVersion == 0 {
			t.SchemaVersion = 1
		}
		if t.RetentionClass == "" {
			t.RetentionClass, t.MinRetentionYears = eventtype.Regulatory, retentionYears
		}
		r.EventType(t)
		return nil
	}
	for _, t := range vendorTypes(vendorRef) {
		name := t.Type
		if t.SchemaVersion > 1 {
			name = fmt.Sprintf("%s.v%d", t.Type, t.SchemaVersion)
		}
		if err := declare(t, name, ""); err != nil {
			return err
		}
	}
	if err := declare(module.EventType{Registration: eventtype.Registration{
		Type: contract.EventSettingsChanged, Description: "Settings of payables changed: the sections given replace the earlier ones.",
	}}, contract.EventSettingsChanged, ""); err != nil {
		return err
	}
	for _, k := range contract.Kinds() {
		if err := declare(submittedType(k, vendorRef), k.Event(contract.Submitted), ""); err != nil {
			return err
		}
		documentRef := eventtype.RequiredRef{EntityType: string(k), Role: contract.RoleDocument, Cardinality: eventtype.One}
		for _, a := range documentActions(k) {
			t := module.EventType{Registration: eventtype.Registration{
				Type: k.Event(a.action), Description: fmt.Sprintf(a.description, k.Noun()),
				RequiredEntityRefs: []eventtype.RequiredRef{vendorRef, documentRef},
			}}
			if a.redactable != "" {
				t.Redactable = []string{a.redactable}
			}
			if err := declare(t, "document."+a.action, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// vendorTypes are the event types of the vendor master. Those with personal data have
// the retention class PIISubject: their sealed values can be erased on request, while
// figures and ids are kept as long as tax law requires.
func vendorTypes(vendorRef eventtype.RequiredRef) []module.EventType {
	registered := eventtype.Registration{
		Type: contract.EventVendorRegistered, SchemaVersion: 1,
		Description:        "Vendor registered. Of a natural person neither name nor VAT id is kept.",
		RequiredEntityRefs: []eventtype.RequiredRef{vendorRef},
		BusinessKeys: []eventtype.BusinessKeyRule{
			{Name: "vendor_id", Fields: []string{"vendor_id"}, Document: "vendor_id"},
			{Name: "vat_id", Fields: []string{"vat_id"}, Normalise: eventtype.NormaliseTaxID, Document: "vendor_id"},
			{Name: "identity", Fields: []string{"identity"}, Normalise: eventtype.NormaliseTaxID, Document: "vendor_id"},
		},
	}
	sealed := registered
	sealed.SchemaVersion, sealed.PIIFields, sealed.RetentionClass = 2, personFields(), eventtype.PIISubject
	sealed.Description = "Vendor registered. Name, address and VAT id of a natural person are sealed under the vendor's id."
	contactRefs := []eventtype.RequiredRef{
		vendorRef, {EntityType: contract.EntityContact, Role: contract.RoleContact, Cardinality: eventtype.One},
	}
	return []module.EventType{
		{Registration: registered, Checks: []module.Check{checkPersonSealed}, Redactable: []string{"$.name"}},
		{Registration: sealed, Redactable: []string{"$.name"}},
		{Registration: eventtype.Registration{
			Type: contract.EventContactRecorded, Description: "Contact of a vendor recorded, new or changed. All but the ids is sealed under the contact's id.",
			RequiredEntityRefs: contactRefs, PIIFields: contactFields(), RetentionClass: eventtype.PIISubject,
		}},
		{Registration: eventtype.Registration{
			Type: contract.EventContactRemoved, Description: "Contact of a vendor removed.",
			RequiredEntityRefs: contactRefs, RetentionClass: eventtype.PIISubject,
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

func registerIntents(r *module.Registrar) error {
	declare := func(t module.IntentType, schemaName string, k contract.Kind) error {
		s, err := schema("intent."+schemaName, k)
		if err != nil {
			return err
		}
		t.Schema, t.Policy = s, policyPackage
		r.Intent(t)
		return nil
	}
	for name, t := range vendorIntents() {
		if err := declare(t, name, ""); err != nil {
			return err
		}
	}
	if err := declare(module.IntentType{
		Type: contract.IntentConfigure, Description: "Change limits, tolerances, terms, the coding table or withholding codes.",
		Emits: []string{contract.EventSettingsChanged}, Plan: module.PlanOf(planConfigure),
	}, "configure", ""); err != nil {
		return err
	}
	if err := declare(module.IntentType{
		Type: contract.IntentReleaseHold, Description: "Release a hold on an invoice or credit memo.",
		Emits: []string{contract.Invoice.Event(contract.HoldReleased), contract.CreditMemo.Event(contract.HoldReleased)}, Plan: module.PlanOf(planReleaseHold),
	}, "release_hold", ""); err != nil {
		return err
	}
	for _, k := range contract.Kinds() {
		approves := []string{k.Event(contract.ApprovalRecorded), k.Event(contract.Approved), gl.EventJournalPosted, k.Event(contract.Posted)}
		if k == contract.Invoice {
			approves = append(approves, k.Event(contract.Paid))
		}
		intents := []struct {
			schema string
			shared contract.Kind
			t      module.IntentType
		}{
			{"submit_" + string(k), "", module.IntentType{
				Type: k.Intent("submit"), Description: "Submit a vendor's " + k.Noun() + ".",
				Emits: []string{k.Event(contract.Submitted), k.Event(contract.Validated), k.Event(contract.Held)},
				Plan:  planSubmit(k), OnDuplicate: onDuplicateDocument(k),
			}},
			{"approve_document", k, module.IntentType{
				Type: k.Intent("approve"), Description: "Approve a submitted " + k.Noun() + " and post it.", Emits: approves, Plan: planApprove(k),
			}},
			{"reject_document", k, module.IntentType{
				Type: k.Intent("reject"), Description: "Reject a submitted " + k.Noun() + ".", Emits: []string{k.Event(contract.Rejected)}, Plan: planReject(k),
			}},
		}
		for _, i := range intents {
			if err := declare(i.t, i.schema, i.shared); err != nil {
				return err
			}
		}
	}
	return nil
}

// vendorIntents are the intents of the vendor master, by the names of their schemas.
func vendorIntents() map[string]module.IntentType {
	return map[string]module.IntentType{
		"register_vendor": {
			Type: contract.IntentRegisterVendor, Description: "Register a vendor.", Emits: []string{contract.EventVendorRegistered},
			PIIFields: personFields(), RetentionClass: eventtype.PIISubject, Complete: withVendorID,
			Plan: planRegisterVendor, OnDuplicate: onDuplicateVendor,
		},
		"set_vendor_contact": {
			Type: contract.IntentSetVendorContact, Description: "Record a contact of a vendor, new or changed.", Emits: []string{contract.EventContactRecorded},
			PIIFields: contactFields(), RetentionClass: eventtype.PIISubject, Plan: planSetVendorContact,
		},
		"remove_vendor_contact": {
			Type: contract.IntentRemoveVendorContact, Description: "Remove a contact of a vendor.", Emits: []string{contract.EventContactRemoved},
			Plan: module.PlanOf(planRemoveVendorContact),
		},
	}
}

func registerFolds(r *module.Registrar) {
	r.Fold(module.FoldOf(contract.StreamSettings, domain.NewSettings))
	vendor := module.FoldOf(contract.StreamVendor, func() *domain.Vendor { return &domain.Vendor{} })
	vendor.Codec = module.JSONCodec[domain.Vendor](1) // contacts change for years
	r.Fold(vendor)
	for _, k := range contract.Kinds() {
		r.Fold(module.FoldOf(k.StreamType(), func() *domain.Document { return &domain.Document{Kind: k} }))
	}
}

func registerReadModels(r *module.Registrar) {
	types := []string{eventLedgerConfigured}
	for _, k := range contract.Kinds() {
		for _, action := range []string{contract.Submitted, contract.Held, contract.HoldReleased, contract.Posted} {
			types = append(types, k.Event(action))
		}
	}
	r.Projection(module.Projection{Name: OpenItems, Version: OpenItemsVersion, EventTypes: types})
	r.ReadModel(module.ReadModel{
		Name: ReadModelOpenItems, Projection: OpenItems,
		Description: "Posted documents that are not settled. Amounts are payable positive: those of credit memos are negative, so that open_functional over all rows is the credit balance of the control account.",
		Params: []module.Param{
			{Name: "vendor", Type: module.ParamString, Description: "vendor id"},
			{Name: "currency", Type: module.ParamString, Description: "document currency, ISO 4217"},
			{Name: "due_before", Type: module.ParamDate, Description: "due on an earlier date"},
			{Name: "held", Type: module.ParamBool, Description: "with (true) or without (false) open holds"},
			{Name: "kind", Type: module.ParamString, Description: "invoice, prepayment, opening or credit_memo"},
		},
		Columns: []module.Column{
			{Name: "vendor_id", Type: "string", Description: "vendor"},
			{Name: "document_id", Type: "string", Description: "id of the document, the last part of its stream"},
			{Name: "number", Type: "string", Description: "the vendor's document number"},
			{Name: "kind", Type: "string", Description: "invoice, prepayment, opening or credit_memo"},
			{Name: "invoice_date", Type: "date", Description: "date of the document"},
			{Name: "due_date", Type: "date", Description: "due date"},
			{Name: "currency", Type: "string", Description: "document currency"},
			{Name: "total", Type: "amount", Description: "what was posted to the control account, document currency"},
			{Name: "applied", Type: "amount", Description: "payments and credits, document currency"},
			{Name: "open", Type: "amount", Description: "total less applied, document currency"},
			{Name: "open_functional", Type: "amount", Description: "carrying amount of open, functional currency"},
			{Name: "state", Type: "string", Description: "posted or partially_paid"},
			{Name: "holds", Type: "object", Description: "open holds: id, kind, blocks"},
			{Name: "days_overdue", Type: "integer", Description: "days from the due date to as_of, 0 if not due"},
			{Name: "dimensions", Type: "object", Description: "dimensions of the document as a whole"},
			{Name: "event_id", Type: "string", Description: "event that posted the document"},
		},
	})
	r.Projection(module.Projection{Name: Vendors, Version: VendorsVersion, EventTypes: []string{
		contract.EventVendorRegistered, contract.EventContactRecorded, contract.EventContactRemoved,
	}})
	r.ReadModel(module.ReadModel{
		Name: ReadModelVendors, Projection: Vendors,
		Description: "Vendors and their contacts. Personal data is shown to those who may read its class: [MASKED] is not for the reader, [REDACTED] was erased.",
		Params:      []module.Param{{Name: "vendor", Type: module.ParamString, Description: "vendor id"}},
		Columns: []module.Column{
			{Name: "vendor_id", Type: "string", Description: "vendor"},
			{Name: "name", Type: "object", Description: "a company's name, a text; of a natural person name, address and vat_id as far as they are known; null if not known"},
			{Name: "country", Type: "string", Description: "ISO 3166-1 alpha-2"},
			{Name: "status", Type: "string", Description: "active"},
			{Name: "natural_person", Type: "bool", Description: "the vendor is a person, not a company"},
			{Name: "contacts", Type: "object", Description: "contacts: contact_id, name, email, phone, function"},
			{Name: "event_id", Type: "string", Description: "event that registered the vendor"},
		},
	})
}
