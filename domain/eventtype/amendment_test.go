package eventtype_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestAmend(t *testing.T) {
	t.Parallel()
	const a, b = `"a":{"type":"integer"}`, `"b":{"type":"integer"}`
	const person = `"person":{"type":"string"},"name":{"type":"string"}`
	name := eventtype.PIIField{Path: "$.name", Class: "name", Subject: json.RawMessage(`{"kind":"person","id_path":"$.person"}`)}
	open := `{"type":"object","properties":{` + a + `}}`
	plain := func(schema string) *eventtype.Registration { return version(1, schema) }
	with := func(schema string, change func(r *eventtype.Registration)) *eventtype.Registration {
		r := plain(schema)
		change(r)
		return r
	}
	for title, c := range map[string]struct {
		have, reg  *eventtype.Registration
		compatible bool
		found      []string
	}{
		"optional":                 {plain(closed(a)), plain(closed(a + "," + b)), true, nil},
		"optional, open":           {plain(open), plain(strings.Replace(open, a, a+","+b, 1)), false, nil},
		"inside":                   {plain(closed(`"o":` + closed(a))), plain(closed(`"o":` + closed(a+","+b))), true, nil},
		"in a list":                {plain(closed(`"o":{"type":"array","items":` + closed(a) + `}`)), plain(closed(`"o":{"type":"array","items":` + closed(a+","+b) + `}`)), true, nil},
		"by a definition":          {plain(closed(a)), plain(strings.Replace(closed(a+`,"b":{"$ref":"#/definitions/b"}`), `{`, `{"definitions":{`+b+`},`, 1)), true, nil},
		"with another description": {plain(closed(a)), with(closed(a+","+b), func(r *eventtype.Registration) { r.Description = "More." }), true, nil},
		"personal":                 {plain(closed(a)), with(closed(a+","+person), func(r *eventtype.Registration) { r.PIIFields = []eventtype.PIIField{name} }), true, nil},
		"nothing":                  {plain(closed(a)), with(closed(a), func(r *eventtype.Registration) { r.Description = "More." }), true, []string{"/data_schema event_type.changed"}},
		"required":                 {plain(closed(a)), plain(closed(a+","+b, "b")), false, []string{"/data_schema/properties/b event_type.required_added"}},
		"required, default":        {plain(closed(a)), plain(closed(a+`,"b":{"type":"integer","default":1}`, "b")), false, []string{"/data_schema/properties/b event_type.required_added"}},
		"removed":                  {plain(closed(a + "," + b)), plain(closed(b)), false, []string{"/data_schema/properties/a event_type.removed"}},
		"narrowed beside":          {plain(closed(a)), plain(closed(`"a":{"type":"integer","minimum":1},` + b)), false, []string{"/data_schema/properties/a event_type.narrowed"}},
		"widened beside":           {plain(closed(a)), plain(closed(`"a":{"type":"number"},` + b)), true, []string{"/data_schema/properties/a event_type.widened"}},
		"another default beside":   {plain(closed(`"a":{"type":"integer","default":1}`, "a")), plain(closed(`"a":{"type":"integer","default":2},`+b, "a")), true, []string{"/data_schema event_type.changed"}},
		"described otherwise":      {plain(closed(`"a":{"type":"integer","title":"A","description":"one"},"o":{"type":"array","items":{"description":"one"}}`)), plain(closed(`"a":{"type":"integer","description":"two"},"o":{"type":"array","items":{"title":"O"}},` + b)), true, nil},
		"a member description":     {plain(closed(`"description":{"type":"string","default":"a"}`, "description")), plain(closed(`"description":{"type":"string","default":"b"},`+b, "description")), true, []string{"/data_schema event_type.changed"}},
		"only described otherwise": {plain(closed(`"a":{"type":"integer"}`)), plain(closed(`"a":{"type":"integer","description":"two"}`)), true, []string{"/data_schema event_type.changed"}},
		"declared personal":        {plain(closed(person)), with(closed(person+","+a), func(r *eventtype.Registration) { r.PIIFields = []eventtype.PIIField{name} }), true, []string{"/pii_fields/0 event_type.pii_declared"}},
		"another subject": {
			with(closed(person), func(r *eventtype.Registration) { r.PIIFields = []eventtype.PIIField{name} }),
			with(closed(person+","+a), func(r *eventtype.Registration) {
				changed := name
				changed.Subject = json.RawMessage(`{"kind":"person","id_path":"$.name"}`)
				r.PIIFields = []eventtype.PIIField{changed}
			}), true, []string{"/pii_fields/0 event_type.pii_changed"},
		},
		"no longer personal": {
			with(closed(person), func(r *eventtype.Registration) { r.PIIFields = []eventtype.PIIField{name} }), plain(closed(person + "," + a)), true,
			[]string{"/pii_fields/0 event_type.pii_not_declared"},
		},
		"business key": {
			plain(closed(a)), with(closed(a+","+b), func(r *eventtype.Registration) {
				r.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "b", Fields: []string{"b"}}}
			}), true, []string{"/business_keys/0 event_type.business_key_added"},
		},
		"retention":          {plain(closed(a)), with(closed(a+","+b), func(r *eventtype.Registration) { r.RetentionClass = eventtype.Regulatory }), true, []string{"/retention_class event_type.retention_changed"}},
		"dimension":          {plain(closed(a)), with(closed(a+","+b), func(r *eventtype.Registration) { r.RequiredDimensions = []string{"site"} }), true, []string{"/required_dimensions/0 event_type.dimension_required"}},
		"optional dimension": {plain(closed(a)), with(closed(a+","+b), func(r *eventtype.Registration) { r.OptionalDimensions = []string{"site"} }), true, []string{"/optional_dimensions event_type.changed"}},
		"owner":              {plain(closed(a)), with(closed(a+","+b), func(r *eventtype.Registration) { r.Module = "hr" }), true, []string{"/module event_type.owner_changed"}},
		"upcaster":           {plain(closed(a)), with(closed(a+","+b), func(r *eventtype.Registration) { r.Upcasters = []eventtype.Upcaster{{FromVersion: 7, JQ: "."}} }), true, []string{"/upcasters event_type.changed"}},
		"closed on the way":  {plain(open), plain(closed(a + "," + b)), false, []string{"/data_schema event_type.narrowed"}},
	} {
		got, err := eventtype.Amend(c.have, c.reg)
		var found []string
		if f, ok := fault.As(err); ok {
			require.Equal(t, "event_type.duplicate", f.Code)
			for _, v := range f.Violations {
				found = append(found, v.Field+" "+v.Code)
			}
		}
		require.Equal(t, c.found, found, title)
		require.Equal(t, c.compatible, got.Compatible, title)
		require.Equal(t, len(c.found) > 0 && !slices.ContainsFunc(c.found, func(f string) bool { return strings.HasSuffix(f, ".changed") }), len(got.Unmet()) > 0, title)
	}
}
