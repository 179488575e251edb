package module_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// declared is a module made of a function.
type declared struct {
	name     string
	register func(*module.Registrar) error
}

func (d declared) Name() string { return d.name }

func (d declared) Register(r *module.Registrar) error { return d.register(r) }

var object = json.RawMessage(`{"type":"object"}`)

func eventType(name string, version uint32) module.EventType {
	return module.EventType{Registration: eventtype.Registration{Type: name, SchemaVersion: version, Module: "shop", DataSchema: object}}
}

// keyedType has a business key over a member of a JSON type.
func keyedType(version uint32, of string) module.EventType {
	e := eventType("shop.x", version)
	e.DataSchema = json.RawMessage(`{"type":"object","properties":{"number":{"type":"` + of + `"}}}`)
	e.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "x", Fields: []string{"number"}}}
	return e
}

func plan(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.Plan{}, nil
}

func placeOrder() module.IntentType {
	return module.IntentType{Type: "shop.place_order", Schema: object, Emits: []string{"shop.order.placed"}, Policy: "backbone.rules.shop", Plan: plan}
}

func orders() module.Fold {
	return module.Fold{
		StreamType: "order", New: func() any { return 0 }, Clone: func(s any) any { return s },
		Apply: func(any, event.Recorded, []byte) error { return nil },
	}
}

// shop is a sound module; with adds to it.
func shop(with func(*module.Registrar)) module.Module {
	return declared{"shop", func(r *module.Registrar) error {
		r.Prefixes("shop")
		r.Policy(ports.PolicyModule{Path: "shop.rego", Source: "# rules of the shop\npackage backbone.rules.shop # here\n"})
		r.EventType(eventType("shop.order.placed", 1))
		r.Intent(placeOrder())
		r.Fold(orders())
		r.Projection(module.Projection{Name: "shop.orders", Version: 1, EventTypes: []string{"shop.order.placed"}})
		r.ReadModel(module.ReadModel{Name: "open-orders", Projection: "shop.orders"})
		if with != nil {
			with(r)
		}
		return nil
	}}
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	c, err := module.Build(jsonschema.New(), shop(func(r *module.Registrar) {
		v2 := eventType("shop.order.placed", 2)
		v2.Checks = []module.Check{func(json.RawMessage, map[string]string) error { return nil }}
		r.EventType(v2)
		cancel := placeOrder()
		cancel.Type = "shop.cancel_order"
		r.Intent(cancel)
	}), declared{"empty", func(*module.Registrar) error { return nil }})
	require.NoError(t, err)
	require.Equal(t, "shop", c.Owner("shop.anything"))
	require.Empty(t, c.Owner("crm.lead.won"))
	_, ok := c.Intent("shop.place_order")
	require.True(t, ok)
	_, ok = c.Intent("shop.unknown")
	require.False(t, ok)
	_, ok = c.Fold("order")
	require.True(t, ok)
	_, ok = c.Fold("unknown")
	require.False(t, ok)
	require.Empty(t, c.Checks("shop.order.placed", 1))
	require.Len(t, c.Checks("shop.order.placed", 2), 1)
	require.Empty(t, c.Checks("shop.order.placed", 3))
	require.Contains(t, c.ReadModels(), "shop/open-orders")
	types := c.IntentTypes()
	require.Equal(t, []string{"shop.cancel_order", "shop.place_order"}, []string{types[0].Type, types[1].Type})
	require.Equal(t, eventtype.Standard, c.EventTypes[0].RetentionClass)
}

func TestCatalog_Roles(t *testing.T) {
	t.Parallel()
	c, err := module.Build(jsonschema.New(), shop(func(r *module.Registrar) {
		r.Roles(module.Role{Name: "seller"}, module.Role{Name: "shop_manager", Approves: true, Reads: []shredding.Class{shredding.Contact}})
	}))
	require.NoError(t, err)
	require.Equal(t, []string{"module", "importer", "seller", "shop_manager", "auditor", "compliance", "compliance_approver", "admin", "operator"}, c.RoleNames())
	rights, err := json.Marshal(c.RoleRights())
	require.NoError(t, err)
	require.JSONEq(t, `{"seller": {"approves": false, "reads": []}, "shop_manager": {"approves": true, "reads": ["contact"]}}`, string(rights))
}

func TestBuild_Parts(t *testing.T) {
	t.Parallel()
	columns := []module.Column{{Name: "item", Type: "string"}}
	c, err := module.Build(jsonschema.New(), shop(func(r *module.Registrar) {
		r.Projection(module.Projection{Name: "shop.stock", Version: 1, EventTypes: []string{"shop.order.placed"}})
		r.ReadModel(module.ReadModel{Name: "checklist", Projection: "shop.orders", Columns: columns})
		r.ReadModel(module.ReadModel{Name: "stock", PartOf: "shop/checklist", Projection: "shop.stock", Columns: columns})
		r.ReadModel(module.ReadModel{Name: "alone", PartOf: "rival/checklist", Projection: "shop.stock", Columns: columns})
	}))
	require.NoError(t, err)
	whole := c.ReadModels()["shop/checklist"]
	require.Equal(t, []string{"shop/stock"}, whole.Parts)
	require.Equal(t, []string{"shop.stock"}, whole.Reads)
	require.Empty(t, c.ReadModels()["shop/alone"].Parts)
}

func TestBuild_Refuses(t *testing.T) {
	t.Parallel()
	change := func(change func(*module.IntentType)) func(*module.Registrar) {
		return func(r *module.Registrar) {
			i := placeOrder()
			i.Type = "shop.other"
			change(&i)
			r.Intent(i)
		}
	}
	for name, c := range map[string]struct {
		with func(*module.Registrar)
		want string
	}{
		"event type twice":     {func(r *module.Registrar) { r.EventType(eventType("shop.order.placed", 1)) }, "event type shop.order.placed version 1 is declared twice"},
		"role of the platform": {func(r *module.Registrar) { r.Roles(module.Role{Name: "auditor"}) }, "role auditor belongs to the platform"},
		"role twice":           {func(r *module.Registrar) { r.Roles(module.Role{Name: "cook"}, module.Role{Name: "cook"}) }, "role cook is declared twice"},
		"role with a blank":    {func(r *module.Registrar) { r.Roles(module.Role{Name: "sous chef"}) }, `role "sous chef": a name`},
		"role without a name":  {func(r *module.Registrar) { r.Roles(module.Role{}) }, `role "": a name`},
		"role with an unknown class": {
			func(r *module.Registrar) { r.Roles(module.Role{Name: "cook", Reads: []shredding.Class{"recipe"}}) }, `role cook reads "recipe"`,
		},
		"event type outside":        {func(r *module.Registrar) { r.EventType(eventType("crm.lead.won", 1)) }, `event type crm.lead.won: prefix "crm" is not declared`},
		"event type with findings":  {func(r *module.Registrar) { r.EventType(eventType("shop.order.lost", 0)) }, "event type shop.order.lost: event_type.invalid"},
		"event type without schema": {func(r *module.Registrar) { e := eventType("shop.x", 1); e.DataSchema = nil; r.EventType(e) }, "event_type.invalid"},
		"schema that does not build": {func(r *module.Registrar) {
			e := eventType("shop.x", 1)
			e.DataSchema = json.RawMessage(`{"type":"thing"}`)
			r.EventType(e)
		}, "schema of shop.x"},
		"business key over an object": {func(r *module.Registrar) { r.EventType(keyedType(1, "object")) }, "business keys of shop.x: event_type.business_key_field_type at /business_keys/0/fields/0"},
		"fold twice":                  {func(r *module.Registrar) { r.Fold(orders()) }, "fold of order is declared twice"},
		"fold without clone":          {func(r *module.Registrar) { f := orders(); f.StreamType, f.Clone = "x", nil; r.Fold(f) }, `fold "x" lacks`},
		"fold without stream type":    {func(r *module.Registrar) { f := orders(); f.StreamType = ""; r.Fold(f) }, `fold "" lacks`},
		"intent twice":                {func(r *module.Registrar) { r.Intent(placeOrder()) }, "intent shop.place_order is declared twice"},
		"intent of another module":    {change(func(i *module.IntentType) { i.Type = "shopping.x" }), `intent shopping.x must begin with "shop."`},
		"intent without policy":       {change(func(i *module.IntentType) { i.Policy = "" }), "intent shop.other has no policy"},
		"intent without plan":         {change(func(i *module.IntentType) { i.Plan = nil }), "intent shop.other has no plan"},
		"intent without schema":       {change(func(i *module.IntentType) { i.Schema = nil }), "intent shop.other has no schema"},
		"intent with broken schema":   {change(func(i *module.IntentType) { i.Schema = json.RawMessage(`{"type":1}`) }), "schema of shop.other"},
		"intent with outside schema":  {change(func(i *module.IntentType) { i.Schema = json.RawMessage(`{"$ref":"http://127.0.0.1:9/x"}`) }), "schema of shop.other"},
		"unknown emitted type":        {change(func(i *module.IntentType) { i.Emits = []string{"shop.order.lost"} }), "intent shop.other emits shop.order.lost"},
		"unknown policy":              {change(func(i *module.IntentType) { i.Policy = "backbone.rules.other" }), "names policy backbone.rules.other"},
		"beginning of a policy":       {change(func(i *module.IntentType) { i.Policy = "backbone.rules.sho" }), "names policy backbone.rules.sho"},
		"parent of a policy":          {change(func(i *module.IntentType) { i.Policy = "backbone.rules" }), "names policy backbone.rules"},
		"policy in a comment": {func(r *module.Registrar) {
			r.Policy(ports.PolicyModule{Path: "x.rego", Source: "# package backbone.rules.said\npackage backbone.rules.meant\n"})
			i := placeOrder()
			i.Type, i.Policy = "shop.other", "backbone.rules.said"
			r.Intent(i)
		}, "names policy backbone.rules.said"},
		"projection twice": {func(r *module.Registrar) {
			r.Projection(module.Projection{Name: "shop.orders", Version: 2, EventTypes: []string{"shop.order.placed"}})
		}, "projection shop.orders is declared twice"},
		"projection without version": {func(r *module.Registrar) {
			r.Projection(module.Projection{Name: "x", EventTypes: []string{"shop.order.placed"}})
		}, `projection "x" lacks`},
		"projection without types": {func(r *module.Registrar) { r.Projection(module.Projection{Name: "x", Version: 1}) }, `projection "x" lacks`},
		"projection of unknown type": {func(r *module.Registrar) {
			r.Projection(module.Projection{Name: "x", Version: 1, EventTypes: []string{"shop.order.lost"}})
		}, "projection x reads shop.order.lost"},
		"read model twice": {func(r *module.Registrar) {
			r.ReadModel(module.ReadModel{Name: "open-orders", Projection: "shop.orders"})
		}, "read model shop/open-orders is declared twice"},
		"read model reads an unknown projection": {func(r *module.Registrar) {
			r.ReadModel(module.ReadModel{Name: "x", Projection: "shop.orders", Reads: []string{"shop.y"}})
		}, `read model shop/x reads projection "shop.y"`},
		"whole path twice": {func(r *module.Registrar) {
			r.ReadModel(module.ReadModel{Name: "/shop/open-orders", Projection: "shop.orders"})
		}, "read model shop/open-orders is declared twice"},
		"part with other columns": {func(r *module.Registrar) {
			r.ReadModel(module.ReadModel{Name: "x", Projection: "shop.orders", PartOf: "shop/open-orders", Columns: []module.Column{{Name: "other", Type: "string"}}})
		}, "read model shop/x is part of shop/open-orders"},
		"figure without a read model": {func(r *module.Registrar) {
			r.Figure(module.Figure{Name: "x", ReadModel: "shop/y", Param: "id", Values: func(event.Recorded, json.RawMessage) []string { return nil }})
		}, "figure shop:x: read model shop/y"},
		"figure without values": {func(r *module.Registrar) {
			r.Figure(module.Figure{Name: "x", ReadModel: "shop/open-orders", Param: "id"})
		}, "figure shop:x"},
		"read model of no projection":  {func(r *module.Registrar) { r.ReadModel(module.ReadModel{Name: "x"}) }, `read model shop/x names projection ""`},
		"read model of an unknown one": {func(r *module.Registrar) { r.ReadModel(module.ReadModel{Name: "x", Projection: "shop.x"}) }, `read model shop/x names projection "shop.x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			catalog, err := module.Build(jsonschema.New(), shop(c.with))
			require.ErrorContains(t, err, c.want)
			require.Nil(t, catalog)
		})
	}
}

func TestBuild_RefusesNamesOfOtherModules(t *testing.T) {
	t.Parallel()
	_, err := module.Build(jsonschema.New(), shop(nil), shop(nil))
	require.ErrorContains(t, err, "module shop is given twice")

	_, err = module.Build(jsonschema.New(), shop(nil), declared{"rival", func(r *module.Registrar) error {
		r.Prefixes("shop")
		r.EventType(eventType("shop.order.stolen", 1))
		return nil
	}})
	require.ErrorContains(t, err, `module rival: prefix "shop" belongs to module shop`)
	require.ErrorContains(t, err, `module rival: event type shop.order.stolen: prefix "shop" is not declared`)

	// What another module declares may be emitted and projected.
	_, err = module.Build(jsonschema.New(), declared{"desk", func(r *module.Registrar) error {
		i := placeOrder()
		i.Type = "desk.place_order"
		r.Intent(i)
		return nil
	}}, shop(nil))
	require.NoError(t, err)
}

func TestBuild_ReportsAllErrors(t *testing.T) {
	t.Parallel()
	own := errors.New("no configuration")
	catalog, err := module.Build(jsonschema.New(),
		declared{"a", func(r *module.Registrar) error {
			r.Intent(module.IntentType{Type: "b.x"})
			return own
		}},
		declared{"b", func(r *module.Registrar) error {
			r.Projection(module.Projection{Name: "p", Version: 1, EventTypes: []string{"no.type"}})
			r.ReadModel(module.ReadModel{Name: "m", Projection: "q"})
			return nil
		}},
	)
	require.Nil(t, catalog)
	require.ErrorIs(t, err, own)
	for _, want := range []string{
		"module a: no configuration", `module a: intent b.x must begin with "a."`, "module a: intent b.x has no policy", "module a: intent b.x has no plan",
		"module a: intent b.x has no schema", "projection p reads no.type", `read model b/m names projection "q"`,
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestBuild_OrdersErrors(t *testing.T) {
	t.Parallel()
	build := func() string {
		_, err := module.Build(jsonschema.New(), declared{"a", func(r *module.Registrar) error {
			for _, name := range []string{"d", "c", "b", "a", "e"} {
				r.ReadModel(module.ReadModel{Name: name, Projection: "no"})
			}
			return nil
		}})
		return err.Error()
	}
	first := build()
	for range 20 {
		require.Equal(t, first, build())
	}
}

func TestDeriveID(t *testing.T) {
	t.Parallel()
	parent, err := event.ParseID("01JQ8E6Z6G3V5T8C9N2M4K7R1P")
	require.NoError(t, err)
	other := parent
	other[15]++
	require.Equal(t, parent, module.DeriveID(parent, 0))
	require.Equal(t, parent, module.Input{IntentID: parent}.DocumentID(0))

	seen := map[event.ID]bool{}
	for _, p := range []event.ID{parent, other} {
		for n := range 1000 {
			for _, id := range []event.ID{module.DeriveID(p, n), module.EventID(p, n)} {
				require.False(t, seen[id], "%d", n)
				seen[id] = true
				require.Equal(t, parent.Time(), id.Time(), "the parent's time")
			}
			require.Equal(t, module.DeriveID(p, n), module.Input{IntentID: p}.DocumentID(n))
		}
	}
	// A known answer: intents that wait for approval must derive the same ids after an upgrade.
	require.Equal(t, "01JQ8E6Z6GS8N8424AKGC5EXYC", module.DeriveID(parent, 1).String())
	require.Equal(t, module.EventID(parent, 0), module.DeriveID(parent, 1000))
}

func TestInput_HasRole(t *testing.T) {
	t.Parallel()
	in := module.Input{Roles: []string{"clerk", "cfo"}}
	require.True(t, in.HasRole("cfo"))
	require.True(t, in.HasRole("admin", "clerk"))
	require.False(t, in.HasRole("admin"))
	require.False(t, in.HasRole())
	require.False(t, module.Input{}.HasRole(""))
}

type state struct{ value any }

func (s state) Stream(_ context.Context, id event.StreamID) (any, event.Version, error) {
	if id.ID == "broken" {
		return nil, 0, errors.New("broken")
	}
	return s.value, 7, nil
}

func (state) Tagged(context.Context, ...string) ([]event.Recorded, error) { return nil, nil }

func (state) Decide(context.Context, ...module.Projector) error { return nil }

func (s state) Report(context.Context, module.ReportRead) ([]any, error) {
	rows, ok := s.value.([]any)
	if !ok {
		return nil, errors.New("broken")
	}
	return rows, nil
}

func (state) Open(_ context.Context, document json.RawMessage) (json.RawMessage, error) {
	return document, nil
}

func (s state) StreamOf(ctx context.Context, _ string, id event.StreamID) (any, event.Version, error) {
	return s.Stream(ctx, id)
}

func (state) Waiting(context.Context, []string, event.Date, event.Date) (module.WaitingIntents, error) {
	return module.WaitingIntents{}, nil
}

func TestReportRows(t *testing.T) {
	t.Parallel()
	type row struct {
		Account string `json:"account"`
		Balance string `json:"balance"`
	}
	read := func(value any) ([]row, error) {
		return module.ReportRows[row](t.Context(), state{value}, module.ReportRead{Path: "gl/balances"})
	}
	rows, err := read([]any{map[string]any{"account": "6100", "balance": "2.50", "name": "Supplies"}, row{Account: "6200"}})
	require.NoError(t, err)
	require.Equal(t, []row{{"6100", "2.50"}, {"6200", ""}}, rows)
	rows, err = read([]any(nil))
	require.NoError(t, err)
	require.Empty(t, rows)
	_, err = read(nil)
	require.ErrorContains(t, err, "broken")
	_, err = read([]any{map[string]any{"account": 7}})
	require.ErrorContains(t, err, "gl/balances")
	_, err = read([]any{make(chan int)})
	require.ErrorContains(t, err, "gl/balances")
}

func TestLoad(t *testing.T) {
	t.Parallel()
	s := state{&event.Source{System: "x"}}
	got, err := module.Load[*event.Source](t.Context(), s, event.StreamID{Type: "order", ID: "O-1"})
	require.NoError(t, err)
	require.Same(t, s.value, got)
	_, err = module.Load[string](t.Context(), s, event.StreamID{Type: "order", ID: "O-1"})
	require.ErrorContains(t, err, "fold of order gives *event.Source, not string")
	_, err = module.Load[string](t.Context(), s, event.StreamID{Type: "order", ID: "broken"})
	require.EqualError(t, err, "broken")
}

// TestBuild_RefusesUndeclaredPersonalData checks that Build refuses types whose personal data
// would be stored in clear, or without the person it belongs to.
// Earlier versions of a type stay as they were stored.
func TestBuild_BusinessKeysOfNewestVersion(t *testing.T) {
	t.Parallel()
	_, err := module.Build(jsonschema.New(), shop(func(r *module.Registrar) {
		r.EventType(keyedType(1, "object"))
		r.EventType(keyedType(2, "string"))
	}))
	require.NoError(t, err)
}

func TestBuild_RefusesUndeclaredPersonalData(t *testing.T) {
	t.Parallel()
	const closed = `{"type":"object","additionalProperties":false,"properties":{"customer":{"type":"string"},"email":{"type":"string"}}}`
	field := eventtype.PIIField{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"path":"$.customer","type":"customer"}`)}
	build := func(change func(*module.IntentType)) error {
		_, err := module.Build(jsonschema.New(), shop(func(r *module.Registrar) {
			i := placeOrder()
			i.Type = "shop.greet"
			i.Schema, i.PIIFields = json.RawMessage(closed), []eventtype.PIIField{field}
			change(&i)
			r.Intent(i)
		}))
		return err
	}
	err := build(func(i *module.IntentType) { i.PIIFields = nil })
	require.ErrorContains(t, err, "personal data of shop.greet: pii.undeclared at /data_schema/properties/email")
	err = build(func(*module.IntentType) {})
	require.ErrorContains(t, err, "pii.subject_not_required at /pii_fields/0/subject/path")
	require.NoError(t, build(func(i *module.IntentType) {
		i.Complete = func(_ event.ID, payload json.RawMessage) json.RawMessage { return payload }
	}), "the planner's module fills the subject in")
	err = build(func(i *module.IntentType) { i.PIIFields[0].Class, i.RetentionClass = "secret", "for_ever" })
	require.ErrorContains(t, err, "pii.class_invalid at /pii_fields/0/class")
	require.ErrorContains(t, err, "pii.key_class_invalid")
	_, err = module.Build(jsonschema.New(), shop(func(r *module.Registrar) {
		r.EventType(module.EventType{Registration: eventtype.Registration{Type: "shop.order.lost", SchemaVersion: 1, Module: "shop", DataSchema: json.RawMessage(closed)}})
	}))
	require.ErrorContains(t, err, "personal data of shop.order.lost: pii.undeclared")

	catalog, err := module.Build(jsonschema.New(), shop(func(r *module.Registrar) {
		i := placeOrder()
		i.Type = "shop.greet"
		i.Schema = json.RawMessage(strings.Replace(closed, `"properties"`, `"required":["customer"],"properties"`, 1))
		i.PIIFields, i.RetentionClass = []eventtype.PIIField{field}, eventtype.Regulatory
		r.Intent(i)
	}))
	require.NoError(t, err)
	i, _ := catalog.Intent("shop.greet")
	class, known := i.Manifest().ClassAt("/email", "")
	require.True(t, known)
	require.Equal(t, shredding.Contact, class)
	require.Equal(t, shredding.KeyRegulatory, i.KeyClass())
}
