// Package ap is accounts payable: it registers vendors, takes invoices and credit memos
// from submission to posting, and pays them. Module declares the intents, events, policy and read
// models; the plan functions turn an intent into drafts of events. The pipeline calls
// them, asks the policy for its decision and appends the drafts.
package ap

import (
	"embed"
	"encoding/json"
	"io/fs"
	"maps"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

//go:embed schema/*.json policy/*.rego
var files embed.FS

const (
	// policyPackage is the Rego package with the rules submit (may the actor submit the
	// intent?) and decision (may the plan take effect?).
	policyPackage = "backbone.rules.ap"
	// longName is the owner of the event types as the registry shows it.
	longName = "accounts_payable"
	// retentionYears is how long tax law requires documents to be kept.
	retentionYears = 7
)

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
	policies, err := fs.Glob(files, "policy/*.rego")
	if err != nil {
		return err
	}
	for _, path := range policies {
		source, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		r.Policy(ports.PolicyModule{Path: "modules/ap/" + path, Source: string(source)})
	}
	documents, err := documentDeclarations()
	if err != nil {
		return err
	}
	for _, declarations := range []declarations{
		settingsDeclarations(), vendorDeclarations(), vendorChangeDeclarations(), documents, settlementDeclarations(), orderDeclarations(),
		bankDeclarations(), paymentDeclarations(), paymentStatusDeclarations(),
	} {
		if err := declarations.register(r); err != nil {
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

// variant makes a schema from one in a file, so that the bodies of documents are described once:
// it removes members, adds others and replaces the list of required ones.
func variant(name string, without []string, with map[string]json.RawMessage, required ...string) (json.RawMessage, error) {
	b, err := schema(name, "")
	if err != nil {
		return nil, err
	}
	var root map[string]json.RawMessage
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(b, &root); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(root["properties"], &properties); err != nil {
		return nil, err
	}
	for _, member := range without {
		delete(properties, member)
	}
	maps.Copy(properties, with)
	if root["properties"], err = json.Marshal(properties); err != nil {
		return nil, err
	}
	if delete(root, "required"); len(required) > 0 {
		if root["required"], err = json.Marshal(required); err != nil {
			return nil, err
		}
	}
	return json.Marshal(root)
}

// declarations are the event types, intents and files of one concept.
type declarations struct {
	events  []declaredEvent
	intents []declaredIntent
	files   []module.File
}

// declaredEvent is an event type with the name of its schema file. kind is that of a file that
// invoices and credit memos share. A DataSchema that is set has no file.
type declaredEvent struct {
	schema string
	kind   contract.Kind
	module.EventType
}

// declaredIntent is an intent with the name of its schema file, without the prefix "intent.". A
// Schema that is set has no file.
type declaredIntent struct {
	schema string
	kind   contract.Kind
	module.IntentType
}

// register fills in what all types of the module share and declares them.
func (d declarations) register(r *module.Registrar) error {
	for _, e := range d.events {
		t := e.EventType
		if t.DataSchema == nil {
			data, err := schema(e.schema, e.kind)
			if err != nil {
				return err
			}
			t.DataSchema = data
		}
		t.Module, t.Active = longName, true
		if t.SchemaVersion == 0 {
			t.SchemaVersion = 1
		}
		if t.RetentionClass == "" {
			t.RetentionClass, t.MinRetentionYears = eventtype.Regulatory, retentionYears
		}
		r.EventType(t)
	}
	for _, i := range d.intents {
		t := i.IntentType
		if t.Schema == nil {
			payload, err := schema("intent."+i.schema, i.kind)
			if err != nil {
				return err
			}
			t.Schema = payload
		}
		if t.Policy == "" {
			t.Policy = policyPackage
		}
		t.Plan = module.WithTextCheck(t.Plan, checkText)
		r.Intent(t)
	}
	for _, f := range d.files {
		r.File(f)
	}
	return nil
}

func registerFolds(r *module.Registrar) {
	r.Fold(module.FoldOf(contract.StreamSettings, domain.NewSettings))
	r.Fold(module.LongFoldOf(contract.StreamVendor, 3, func() *domain.Vendor { return &domain.Vendor{} }))
	r.Fold(module.StoredFoldOf(contract.StreamPaymentRun, 1, func() *domain.PaymentRun { return &domain.PaymentRun{} }))
	r.Fold(module.StoredFoldOf(contract.StreamPayment, 1, func() *domain.Payment { return &domain.Payment{} }))
	r.Fold(module.LongFoldOf(contract.StreamReservations, 1, domain.NewReservations))
	r.Fold(module.LongFoldOf(contract.StreamOrder, 2, domain.NewPurchaseOrder))
	for _, k := range contract.Kinds() {
		r.Fold(module.StoredFoldOf(k.StreamType(), 1, func() *domain.Document { return &domain.Document{Kind: k} }))
	}
}
