package eventtype_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestDefaultsFill(t *testing.T) {
	t.Parallel()
	const schema = `{"definitions":{"day":{"type":"string","default":"2020-01-01"},"self":{"type":"object","required":["next"],"properties":{"next":{"$ref":"#/definitions/self"}}}},
		"type":"object","required":["a","b","c"],"properties":{"a":{"type":"number","default":12.10},"b":{"$ref":"#/definitions/day"},"c":{"type":"string"},
		"in":{"type":"object","required":["x/y"],"properties":{"x/y":{"type":"string","default":"<&>"}}},
		"rows":{"type":"array","items":{"type":"object","required":["n"],"properties":{"n":{"default":1}}}},
		"deep":{"type":"object"}, "self":{"$ref":"#/definitions/self"}},
		"allOf":[{"required":["d"],"properties":{"d":{"type":"object","default":{"e":1},"required":["f"],"properties":{"f":{"default":[]}}}}}]}`
	d := eventtype.DefaultsOf(json.RawMessage(schema))
	for in, want := range map[string]string{
		`{"c": "x"}`:                     `{"c": "x","d":{"e":1,"f":[]},"a":12.10,"b":"2020-01-01"}`,
		`{"a":1,"b":"","c":"","d":null}`: `{"a":1,"b":"","c":"","d":null}`,
		`{"a":1,"b":"","d":{"f":1}, "in": { }, "rows":[{"n":2},{ "z":3 },4]}`: `{"a":1,"b":"","d":{"f":1}, "in": { "x/y":"<&>"}, "rows":[{"n":2},{ "z":3 ,"n":1},4]}`,
		`{"a":1,"b":"","d":{"$pii":"0"},"in":{"$pii":"1"}}`:                   `{"a":1,"b":"","d":{"$pii":"0"},"in":{"$pii":"1"}}`,
		`{"a":1,"b":"","d":1,"self":{}}`:                                      `{"a":1,"b":"","d":1,"self":{}}`,
	} {
		out, err := d.Fill(json.RawMessage(in))
		require.NoError(t, err, in)
		require.Equal(t, want, string(out))
		again, err := d.Fill(out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again), "filling twice is filling once")
	}
	out, err := eventtype.DefaultsOf(json.RawMessage(`{"required":["a"]}`)).Fill(json.RawMessage(`{ }`))
	require.NoError(t, err)
	require.Equal(t, `{ }`, string(out))
	endless := eventtype.DefaultsOf(json.RawMessage(`{"required":["n"],"properties":{"n":{"$ref":"#/definitions/n"}},"definitions":{"n":{"default":{},"required":["n"],"properties":{"n":{"$ref":"#/definitions/n"}}}}}`))
	_, err = endless.Fill(json.RawMessage(`{}`))
	require.Equal(t, "event_type.default_endless", fault.CodeOf(err))
}

// TestCompare_Upcasters is the part of the policy that an upcaster changes:
// a difference that an upcaster covers demands a new version instead of a new type.
func TestCompare_Upcasters(t *testing.T) {
	t.Parallel()
	base := eventtype.Registration{
		Type: "crm.lead.won", SchemaVersion: 1, Module: "crm", DataSchema: json.RawMessage(closed(`"a":{"type":"string"},"n":{"type":"number"}`)),
		BusinessKeys: []eventtype.BusinessKeyRule{{Name: "k", Fields: []string{"a"}}}, PIIFields: []eventtype.PIIField{{Path: "$.a", Class: "contact"}},
	}
	for name, c := range map[string]struct {
		change func(*eventtype.Registration)
		unmet  string // with an upcaster
	}{
		"renamed": {func(r *eventtype.Registration) {
			r.PIIFields, r.DataSchema = nil, json.RawMessage(closed(`"b":{"type":"string"},"n":{"type":"number"}`))
		}, ""},
		"narrowed": {func(r *eventtype.Registration) {
			r.DataSchema = json.RawMessage(closed(`"a":{"type":"string","maxLength":2},"n":{"type":"number"}`))
		}, ""},
		"type": {func(r *eventtype.Registration) {
			r.DataSchema = json.RawMessage(closed(`"a":{"type":"string"},"n":{"type":"string"}`))
		}, ""},
		"required": {func(r *eventtype.Registration) {
			r.DataSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"required":["z"],"properties":{"a":{"type":"string"},"n":{"type":"number"},"z":{"type":"integer"}}}`)
		}, ""},
		"owner":    {func(r *eventtype.Registration) { r.Module = "sales" }, "owner_changed"},
		"key":      {func(r *eventtype.Registration) { r.BusinessKeys = nil }, "business_key_removed"},
		"in clear": {func(r *eventtype.Registration) { r.PIIFields = nil }, "pii_not_declared"},
	} {
		newer := base
		newer.SchemaVersion = 2
		c.change(&newer)
		without := eventtype.Compare(&base, &newer)
		require.NotEmpty(t, without.Unmet(), name)
		newer.Upcasters = []eventtype.Upcaster{{FromVersion: 7, JQ: "."}}
		elsewhere := eventtype.Compare(&base, &newer)
		require.Equal(t, without, elsewhere, "%s: it leads from another version", name)
		newer.Upcasters[0].FromVersion = 1
		with := eventtype.Compare(&base, &newer)
		if c.unmet == "" {
			require.Empty(t, with.Unmet(), name)
			require.NoError(t, with.Refusal("crm.lead.won"))
			continue
		}
		require.Len(t, with.Unmet(), 1, name)
		require.EqualValues(t, c.unmet, with.Unmet()[0].Kind)
	}
}

func TestValidate_Upcasters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		all   []eventtype.Upcaster
		field string
	}{
		"itself":  {[]eventtype.Upcaster{{FromVersion: 3, JQ: "."}}, "/upcasters/0/from_version"},
		"none":    {[]eventtype.Upcaster{{JQ: "."}}, "/upcasters/0/from_version"},
		"twice":   {[]eventtype.Upcaster{{FromVersion: 1, JQ: "."}, {FromVersion: 1, JQ: "."}}, "/upcasters/1/from_version"},
		"program": {[]eventtype.Upcaster{{FromVersion: 1, JQ: " "}}, "/upcasters/0/jq"},
		"many":    {make([]eventtype.Upcaster, 17), "/upcasters"},
	} {
		r := eventtype.Registration{Type: "crm.lead.won", SchemaVersion: 3, Module: "crm", DataSchema: json.RawMessage(`{}`), Upcasters: c.all}
		f, is := fault.As(r.Validate())
		require.True(t, is, name)
		require.Equal(t, c.field, f.Violations[0].Field, name)
		require.Equal(t, "event_type.upcaster_invalid", f.Violations[0].Code, name)
	}
	r := eventtype.Registration{Type: "crm.lead.won", SchemaVersion: 3, Module: "crm", DataSchema: json.RawMessage(`{}`), Upcasters: []eventtype.Upcaster{{FromVersion: 1, JQ: "."}, {FromVersion: 2, JQ: "."}}}
	require.NoError(t, r.Validate())
	document, err := r.Document()
	require.NoError(t, err)
	require.Contains(t, string(document), `"upcasters":[{"from_version":1,"jq":"."}`, "kept with the version and in its digest")
}
