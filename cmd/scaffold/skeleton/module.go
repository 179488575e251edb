// Package skeleton is a module that keeps a list of items. It declares its intents, events,
// policy and read model, and plans its intents. Backbone asks the policy for a decision,
// appends the planned events and serves the read model.
package skeleton

import (
	"embed"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

//go:embed schema/*.json policy/*.rego
var files embed.FS

// Names that the adapters use.
const (
	EventAdded   = "skeleton.item.added"
	EventRemoved = "skeleton.item.removed"

	StreamItem = "skeleton.item" // one stream per item

	ProjectionItems = "skeleton.items"
	ReadModelItems  = "items" // GET /api/skeleton/items
)

// Module implements module.Module.
type Module struct{}

// Name is the first part of the module's intents and read models, and its schema in PostgreSQL.
func (Module) Name() string { return "skeleton" }

// Register declares everything the module has.
func (Module) Register(r *module.Registrar) error {
	r.Prefixes("skeleton")
	r.Roles(
		module.Role{Name: "skeleton_clerk", Description: "adds and removes items"},
		module.Role{Name: "skeleton_manager", Description: "approves large quantities", Approves: true},
	)
	policy, err := files.ReadFile("policy/skeleton.rego")
	if err != nil {
		return err
	}
	r.Policy(ports.PolicyModule{Path: "skeleton.rego", Source: string(policy)})

	added := eventtype.Registration{
		Type: EventAdded, Description: "An item was added.",
		BusinessKeys: []eventtype.BusinessKeyRule{{Name: "code", Fields: []string{"code"}, Document: "item_id"}},
	}
	for _, t := range []eventtype.Registration{added, {Type: EventRemoved, Description: "An item was removed."}} {
		if t.DataSchema, err = files.ReadFile("schema/" + t.Type + ".json"); err != nil {
			return err
		}
		t.SchemaVersion, t.Module, t.RetentionClass = 1, "skeleton", eventtype.Standard
		t.RequiredEntityRefs = []eventtype.RequiredRef{{EntityType: "item", Role: "subject", Cardinality: eventtype.One}}
		r.EventType(module.EventType{Registration: t})
	}
	for _, t := range []module.IntentType{
		{Type: "skeleton.add_item", Description: "Add an item.", Emits: []string{EventAdded}, Plan: planAdd, OnDuplicate: onDuplicate},
		{Type: "skeleton.remove_item", Description: "Remove an item.", Emits: []string{EventRemoved}, Plan: planRemove},
	} {
		if t.Schema, err = files.ReadFile("schema/" + t.Type + ".json"); err != nil {
			return err
		}
		t.Policy = "backbone.rules.skeleton"
		r.Intent(t)
	}
	r.Fold(module.Fold{
		StreamType: StreamItem,
		New:        func() any { return &item{} },
		Clone:      func(s any) any { c := *s.(*item); return &c },
		Apply:      func(s any, e event.Recorded, _ []byte) error { s.(*item).apply(e.Type); return nil },
	})
	r.Projection(module.Projection{Name: ProjectionItems, Version: 1, EventTypes: []string{EventAdded, EventRemoved}})
	r.ReadModel(module.ReadModel{
		Name: ReadModelItems, Projection: ProjectionItems, Description: "Items that are not removed.",
		Columns: []module.Column{
			{Name: "item_id", Type: "string", Description: "item"},
			{Name: "code", Type: "string", Description: "the item's own number"},
			{Name: "quantity", Type: "integer", Description: "in pieces"},
		},
	})
	return nil
}
