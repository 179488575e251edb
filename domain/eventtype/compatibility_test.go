package eventtype_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

func version(n uint32, schema string) *eventtype.Registration {
	return &eventtype.Registration{Type: "crm.lead.won", SchemaVersion: n, Module: "crm", DataSchema: json.RawMessage(schema)}
}

// closed is an object without other members than these.
func closed(properties string, required ...string) string {
	list, _ := json.Marshal(append([]string{}, required...))
	return fmt.Sprintf(`{"type":"object","additionalProperties":false,"properties":{%s},"required":%s}`, properties, list)
}

func short(c eventtype.Comparison) []string {
	out := []string{}
	for _, d := range c.Differences {
		met := "met"
		if !d.Met {
			met = "unmet"
		}
		out = append(out, string(d.Kind)+" "+d.Pointer+" "+string(d.Demand)+" "+met)
	}
	return out
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const a, amount = `"a":{"type":"string"}`, `"amount":{"type":"number"}`
	for name, c := range map[string]struct {
		older, newer string
		compatible   bool
		want         []string
	}{
		"nothing":              {closed(a), `{"properties":{"a":{"type":"string","description":"A"}},"additionalProperties":false,"type":"object","required":[]}`, true, []string{}},
		"optional":             {closed(a), closed(a + "," + amount), true, []string{"optional_added /data_schema/properties/amount new_version met"}},
		"optional, open":       {`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"type":"string"},"b":{"type":"number"}}}`, false, []string{"optional_added /data_schema/properties/b new_version met"}},
		"optional, open, any":  {`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"type":"string"},"b":{}}}`, true, []string{"optional_added /data_schema/properties/b new_version met"}},
		"required":             {closed(a), closed(a+","+amount, "amount"), false, []string{"required_added /data_schema/properties/amount new_version_with_default unmet"}},
		"required, default":    {closed(a), closed(a+`,"amount":{"type":"number","minimum":0,"default":0}`, "amount"), false, []string{"required_added /data_schema/properties/amount new_version_with_default met"}},
		"required, default no": {closed(a), closed(a+`,"amount":{"type":"number","minimum":1,"default":0}`, "amount"), false, []string{"required_added /data_schema/properties/amount new_version_with_default unmet"}},
		"required, date":       {closed(a), closed(a+`,"day":{"type":"string","format":"date","default":"1970-01-01"}`, "day"), false, []string{"required_added /data_schema/properties/day new_version_with_default met"}},
		"required, by ref": {
			closed(a),
			`{"definitions":{"m":{"type":"string","enum":["check","wire"],"default":"check"}},"type":"object","additionalProperties":false,"properties":{"a":{"type":"string"},"m":{"$ref":"#/definitions/m"}},"required":["m"]}`, false,
			[]string{"required_added /data_schema/properties/m new_version_with_default met"},
		},
		"now required":   {closed(a), closed(a, "a"), false, []string{"required_added /data_schema/properties/a new_version_with_default unmet"}},
		"not required":   {closed(a, "a"), closed(a), true, []string{"required_dropped /data_schema/properties/a new_version met"}},
		"removed":        {closed(a + "," + amount), closed(a), false, []string{"removed /data_schema/properties/amount new_version met"}},
		"removed, open":  {`{"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`, `{"properties":{"a":{"type":"string"}}}`, true, []string{"removed /data_schema/properties/b new_version met"}},
		"renamed":        {closed(a), closed(`"b":{"type":"string"}`), false, []string{"renamed /data_schema/properties/a new_version_with_upcaster unmet"}},
		"not renamed":    {closed(a), closed(`"b":{"type":"string","default":""}`), false, []string{"removed /data_schema/properties/a new_version met", "optional_added /data_schema/properties/b new_version met"}},
		"two candidates": {closed(a), closed(`"b":{"type":"string"},"c":{"type":"string"}`), false, []string{"removed /data_schema/properties/a new_version met", "optional_added /data_schema/properties/b new_version met", "optional_added /data_schema/properties/c new_version met"}},
		"narrowed":       {closed(`"a":{"type":"string","maxLength":40}`), closed(`"a":{"type":"string","maxLength":20}`), false, []string{"narrowed /data_schema/properties/a new_version_with_upcaster unmet"}},
		"widened":        {closed(`"a":{"type":"string","maxLength":20}`), closed(`"a":{"type":"string","maxLength":40}`), true, []string{"widened /data_schema/properties/a new_version met"}},
		"integer":        {closed(`"a":{"type":"integer"}`), closed(`"a":{"type":"number"}`), true, []string{"widened /data_schema/properties/a new_version met"}},
		"number":         {closed(`"a":{"type":"number"}`), closed(`"a":{"type":"integer"}`), false, []string{"narrowed /data_schema/properties/a new_version_with_upcaster unmet"}},
		"type":           {closed(`"a":{"type":"number"}`), closed(`"a":{"type":"string"}`), false, []string{"type_changed /data_schema/properties/a new_version_with_upcaster unmet"}},
		"pattern":        {closed(`"a":{"type":"string","pattern":"^a"}`), closed(`"a":{"type":"string","pattern":"^b"}`), false, []string{"changed /data_schema/properties/a new_version_with_upcaster unmet"}},
		"enum grows":     {closed(`"a":{"enum":["x"]}`), closed(`"a":{"enum":["x","y"]}`), true, []string{"enum_extended /data_schema/properties/a new_version met"}},
		"enum shrinks":   {closed(`"a":{"enum":["x","y"]}`), closed(`"a":{"enum":["x"]}`), false, []string{"enum_reduced /data_schema/properties/a new_version_with_upcaster unmet"}},
		"enum differs":   {closed(`"a":{"enum":["x","y"]}`), closed(`"a":{"enum":["x","z"]}`), false, []string{"enum_changed /data_schema/properties/a new_version_with_upcaster unmet"}},
		"closed now":     {`{"type":"object","properties":{"a":{"type":"string"}}}`, closed(a), false, []string{"narrowed /data_schema new_version_with_upcaster unmet"}},
		"deep": {
			closed(`"lines":{"type":"array","items":` + closed(a) + `}`), closed(`"lines":{"type":"array","items":` + closed(a+","+amount, "amount") + `}`), false,
			[]string{"required_added /data_schema/properties/lines/items/properties/amount new_version_with_default unmet"},
		},
		"escaped":    {closed(a), closed(a + `,"x/y~z":{"type":"null"}`), true, []string{"optional_added /data_schema/properties/x~1y~0z new_version met"}},
		"recursive":  {recursive("string"), recursive("string"), true, []string{}},
		"recursion":  {recursive("string"), recursive("number"), false, []string{"type_changed /data_schema/definitions/node/properties/v new_version_with_upcaster unmet"}},
		"exclusive":  {closed(`"a":{"type":"number","minimum":1}`), closed(`"a":{"type":"number","exclusiveMinimum":1}`), false, []string{"narrowed /data_schema/properties/a new_version_with_upcaster unmet"}},
		"no schema":  {closed(a), `[]`, false, []string{"changed /data_schema new_type unmet"}},
		"loop":       {`{"$ref":"#"}`, closed(a), false, []string{"changed /data_schema new_version_with_upcaster unmet"}},
		"one of two": {closed(`"a":{"type":"string"}`), closed(`"a":{"anyOf":[{"type":"string"},{"type":"null"}]}`), true, []string{"widened /data_schema/properties/a new_version met"}},
		"required without a schema": {
			`{"type":"object"}`, `{"type":"object","required":["z"]}`, false, []string{"narrowed /data_schema new_version_with_upcaster unmet"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := eventtype.Compare(version(1, c.older), version(2, c.newer))
			require.Equal(t, c.want, short(got))
			require.Equal(t, c.compatible, got.Compatible)
			require.False(t, got.Truncated)
		})
	}
}

func recursive(of string) string {
	return `{"definitions":{"node":{"type":"object","additionalProperties":false,"properties":{"v":{"type":"` + of + `"},"next":{"$ref":"#/definitions/node"}}}},"type":"object","properties":{"tree":{"$ref":"#/definitions/node"}}}`
}

func TestCompare_Renames(t *testing.T) {
	t.Parallel()
	c := eventtype.Compare(version(1, closed(`"a":{"type":"string"}`)), version(2, closed(`"b":{"type":"string"}`)))
	require.True(t, c.Differences[0].Guess)
	require.Contains(t, c.Differences[0].Detail, `"b"`)
}

func TestCompare_Registrations(t *testing.T) {
	t.Parallel()
	base := func() *eventtype.Registration {
		r := version(1, closed(`"no":{"type":"string"},"email":{"type":"string"}`))
		r.RequiredDimensions = []string{"department"}
		r.RequiredEntityRefs = []eventtype.RequiredRef{{EntityType: "lead", Role: "subject", Cardinality: eventtype.One}}
		r.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "no", Fields: []string{"no"}}}
		r.PIIFields = []eventtype.PIIField{{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"entity_role":"subject"}`)}}
		return r
	}
	for name, c := range map[string]struct {
		change func(*eventtype.Registration)
		want   []string
	}{
		"none":         {func(r *eventtype.Registration) { r.RetentionClass = eventtype.Standard; r.Description = "other" }, []string{}},
		"owner":        {func(r *eventtype.Registration) { r.Module = "sales" }, []string{"owner_changed /module new_type unmet"}},
		"retention":    {func(r *eventtype.Registration) { r.RetentionClass = eventtype.Regulatory }, []string{"retention_changed /retention_class new_version met"}},
		"dimension":    {func(r *eventtype.Registration) { r.RequiredDimensions = []string{"department", "site"} }, []string{"dimension_required /required_dimensions/1 new_version met"}},
		"no dimension": {func(r *eventtype.Registration) { r.RequiredDimensions = nil }, []string{"dimension_not_required /required_dimensions/0 new_version met"}},
		"many":         {func(r *eventtype.Registration) { r.RequiredEntityRefs[0].Cardinality = eventtype.OneOrMore }, []string{"reference_required /required_entity_refs/0 new_version met"}},
		"no reference": {func(r *eventtype.Registration) { r.RequiredEntityRefs = nil }, []string{"reference_not_required /required_entity_refs/0 new_version met"}},
		"key":          {func(r *eventtype.Registration) { r.BusinessKeys[0].Normalise = "tax_id" }, []string{"business_key_changed /business_keys/0 new_type unmet"}},
		"no key":       {func(r *eventtype.Registration) { r.BusinessKeys = nil }, []string{"business_key_removed /business_keys/0 new_type unmet"}},
		"another key": {func(r *eventtype.Registration) {
			r.BusinessKeys = append(r.BusinessKeys, eventtype.BusinessKeyRule{Name: "e", Fields: []string{"no"}})
		}, []string{"business_key_added /business_keys/1 new_version met"}},
		"class":    {func(r *eventtype.Registration) { r.PIIFields[0].Class = "identity" }, []string{"pii_changed /pii_fields/0 new_version met"}},
		"in clear": {func(r *eventtype.Registration) { r.PIIFields = nil }, []string{"pii_not_declared /pii_fields/0 new_type unmet"}},
		"declared": {func(r *eventtype.Registration) {
			r.PIIFields = append(r.PIIFields, eventtype.PIIField{Path: "$.no", Class: "identity"})
		}, []string{"pii_declared /pii_fields/1 new_version met"}},
		"gone altogether": {func(r *eventtype.Registration) {
			r.PIIFields, r.DataSchema = nil, json.RawMessage(closed(`"no":{"type":"string"}`))
		}, []string{"removed /data_schema/properties/email new_version met"}},
		"subject reworded": {func(r *eventtype.Registration) {
			r.PIIFields[0].Subject = json.RawMessage(` {"entity_role" : "subject"}`)
		}, []string{}},
	} {
		newer := base()
		newer.SchemaVersion = 2
		c.change(newer)
		require.Equal(t, c.want, short(eventtype.Compare(base(), newer)), name)
	}
}

func TestComparisonRefusal(t *testing.T) {
	t.Parallel()
	c := eventtype.Compare(version(1, closed(`"a":{"type":"string"}`)), version(2, closed(`"a":{"type":"string"},"b":{"type":"null"}`)))
	require.NoError(t, c.Refusal("crm.lead.won"))
	c = eventtype.Compare(version(1, closed(`"a":{"type":"string"}`)), version(2, closed(`"a":{"type":"number"},"b":{"type":"null"}`, "b")))
	f, ok := fault.As(c.Refusal("crm.lead.won"))
	require.True(t, ok)
	require.Equal(t, fault.FailedPrecondition, f.Kind)
	require.Equal(t, "event_type.incompatible", f.Code)
	require.Len(t, f.Violations, 2)
	require.Equal(t, "event_type.required_added", f.Violations[1].Code)
	require.Equal(t, "/data_schema/properties/b", f.Violations[1].Field)
}

// TestCompare_Limits checks that a comparison of any schemas ends, and that parts that were not
// compared are not compatible.
func TestCompare_Limits(t *testing.T) {
	t.Parallel()
	var deep strings.Builder
	for range 5000 {
		deep.WriteString(`{"items":`)
	}
	deep.WriteString(`{}`)
	deep.WriteString(strings.Repeat(`}`, 5000))
	// Every level refers to the next one twice.
	var doubling strings.Builder
	doubling.WriteString(`{"definitions":{`)
	for i := range 40 {
		fmt.Fprintf(&doubling, `"d%d":{"allOf":[{"$ref":"#/definitions/d%d"},{"$ref":"#/definitions/d%d"}],"anyOf":[{"$ref":"#/definitions/d%d"},{"$ref":"#/definitions/d%d"}]},`, i, i+1, i+1, i+1, i+1)
	}
	doubling.WriteString(`"d40":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/d0"}}}`)
	other := strings.Replace(doubling.String(), `"d40":{"type":"string"}`, `"d40":{"type":"number"}`, 1)
	huge := `{"description":"` + strings.Repeat("x", 2<<20) + `"}`
	for name, pair := range map[string][2]string{"deep": {deep.String(), `{"items":{"items":{"type":"string"}}}`}, "doubling": {doubling.String(), other}, "huge": {huge, huge}} {
		c := eventtype.Compare(version(1, pair[0]), version(2, pair[1]))
		require.False(t, c.Compatible, name)
		require.NotEmpty(t, c.Unmet(), name)
	}
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf(`"m%d":{"type":"string"}`, i))
	}
	c := eventtype.Compare(version(1, closed(`"a":{"type":"null"}`)), version(2, closed(`"a":{"type":"null"},`+strings.Join(many, ","))))
	require.Len(t, c.Differences, 200)
	require.True(t, c.Truncated)
	require.Empty(t, c.Unmet())
	c = eventtype.Compare(version(1, closed(`"z":{"type":"null"}`)), version(2, closed(`"z":{"type":"null"},"zz":{"type":"null"},`+strings.Join(many, ","), "zz")))
	require.Len(t, c.Unmet(), 1, "what is not met is listed nevertheless")
}

// Where every event claimed a key, a version under which one may claim nothing takes a type of its own.
func TestCompare_BusinessKeyFields(t *testing.T) {
	t.Parallel()
	const key, lost = `"no":{"type":"string"}`, "business_key_changed /business_keys/0/fields/0 new_type unmet"
	required := func(members string) string {
		return `{"type":"object","required":["no"],"properties":{` + members + `}}`
	}
	optional := func(members string) string { return `{"type":"object","properties":{` + members + `}}` }
	for name, c := range map[string]struct {
		older, newer string
		lost         bool
	}{
		"required":            {required(key), required(key + `,"b":{"type":"string"}`), false},
		"required now":        {optional(key), required(`"no":{"type":"string","default":"x"}`), false},
		"optional as before":  {optional(key), optional(key + `,"b":{"type":"string"}`), false},
		"required beside":     {required(key), `{"properties":{` + key + `},"allOf":[{"required":["no"]}]}`, false},
		"required behind":     {required(key), `{"$ref":"#/definitions/d","definitions":{"d":` + required(key) + `}}`, false},
		"optional":            {required(key), optional(key), true},
		"optional beside":     {`{"properties":{` + key + `},"allOf":[{"required":["no"]}]}`, optional(key), true},
		"required in a case":  {required(key), `{"properties":{` + key + `},"anyOf":[{"required":["no"]},{"required":["b"]}]}`, true},
		"null":                {required(key), required(`"no":{"type":["string","null"]}`), true},
		"null in an optional": {optional(key), optional(`"no":{"type":["string","null"]}`), false},
	} {
		older, newer := version(1, c.older), version(2, c.newer)
		older.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "no", Fields: []string{"no"}}}
		newer.BusinessKeys, newer.Upcasters = older.BusinessKeys, []eventtype.Upcaster{{FromVersion: 1, JQ: "."}}
		require.Equal(t, c.lost, slices.Contains(short(eventtype.Compare(older, newer)), lost), name)
	}
}

// A schema that no store would take is compared in bounded time too: here a member lies behind 2^60 ways.
func TestCompare_BusinessKeyFieldsBounded(t *testing.T) {
	t.Parallel()
	schema := `{"allOf":[{"$ref":"#/definitions/d0"}],"definitions":{`
	for i := range 60 {
		schema += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/definitions/d%d"},{"$ref":"#/definitions/d%d"}]},`, i, i+1, i+1)
	}
	r := version(1, schema+`"d60":{}}}`)
	r.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "no", Fields: []string{"no"}}}
	require.Equal(t, []string{"changed /data_schema new_version_with_upcaster unmet"}, short(eventtype.Compare(r, r)))
}
