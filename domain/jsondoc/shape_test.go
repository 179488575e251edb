package jsondoc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// orderShape bounds {"Lines": [{"tags": [...]}], "Map": {...}, "Scopes": {"any": [...]}}.
func orderShape() *jsondoc.Shape {
	line := &jsondoc.Shape{}
	line.SetMember("tags", &jsondoc.Shape{Max: 3, Code: "order.too_many_tags"})
	order := &jsondoc.Shape{}
	order.SetMember("Lines", &jsondoc.Shape{Max: 2, Item: line})
	order.SetMember("Map", &jsondoc.Shape{Max: 1})
	order.SetMember("Scopes", &jsondoc.Shape{Max: 2, Item: &jsondoc.Shape{Max: 1}})
	return order
}

func TestCheck_Shape(t *testing.T) {
	t.Parallel()
	const tooMany = "json.too_many_members"
	for name, c := range map[string]struct{ raw, code, field string }{
		"at the limits":         {`{"Lines":[{"tags":[1,2,3]},{"tags":[]}],"Map":{"a":1}}`, "", ""},
		"free places":           {`{"other":[1,2,3,4],"Lines":[{"other":{"tags":[1,2,3,4]}}],"x":{"Lines":[1,2,3]}}`, "", ""},
		"another type":          {`{"Lines":{"a":1,"b":2},"Map":[1]}`, "", ""},
		"scalars":               {`{"Lines":1,"Map":null}`, "", ""},
		"list":                  {`{"Lines":[{},{},{}]}`, tooMany, "/Lines"},
		"list of nulls":         {`{"Lines":[null,null,null]}`, tooMany, "/Lines"},
		"list of lists":         {`{"Lines":[[],[[]],[]]}`, tooMany, "/Lines"},
		"inner list":            {`{"Lines":[{},{"tags":["a","b","c","d"]}]}`, "order.too_many_tags", "/Lines/1/tags"},
		"object":                {`{"Map":{"a":1,"b":{"c":[2]}}}`, tooMany, "/Map"},
		"object for a list":     {`{"Lines":{"a":1,"b":2,"c":3}}`, tooMany, "/Lines"},
		"other capitals":        {`{"lINEs":[1,2,3]}`, tooMany, "/lINEs"},
		"escaped name":          {`{"L\u0069nes":[1,2,3]}`, tooMany, "/Lines"},
		"Kelvin and long s":     {`{"Line` + "\u017f" + `":[1,2,3]}`, tooMany, "/Line\u017f"},
		"after a bounded list":  {`{"Lines":[{"tags":[1,2,3]},{}],"Map":{"a":1,"b":1}}`, tooMany, "/Map"},
		"before what is broken": {`{"Lines":[1,2,3,`, tooMany, "/Lines"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := jsondoc.Check([]byte(c.raw), jsondoc.Limits{Shape: orderShape()})
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, c.code, f.Code)
			require.Equal(t, fault.TooLarge, f.Kind)
			require.Equal(t, c.field, f.Field)
			require.NotZero(t, f.Attributes["limit"])
		})
	}
	require.NoError(t, jsondoc.Check([]byte(`{"Lines":[1,2,3]}`), jsondoc.Limits{}), "a pooled scanner forgets the shape")
}

func TestCheck_ShapeAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector changes times and allocations")
	}
	raw, limits := []byte(`{"Lines":[{"tags":[1,2,3]},{"tags":[]}],"Map":{"a":1}}`), jsondoc.Limits{Shape: orderShape()}
	require.NoError(t, jsondoc.Check(raw, limits))
	require.Less(t, testing.AllocsPerRun(1000, func() { _ = jsondoc.Check(raw, limits) }), 1.0)
}

// FuzzShape compares the scanner with what encoding/json makes of a document.
func FuzzShape(f *testing.F) {
	for _, seed := range []string{
		`{"Lines":[{"tags":[1,2,3]},{}],"Map":{"a":1}}`, `{"lines":[{},{},{}]}`, `{"LINES":[{"TAGS":[1,2,3,4]}]}`, `{"Map":{"a":1,"b":2}}`, `[{"Lines":[1,2,3]}]`,
		`{"L\u0069nes":[1,2,3]}`, `{"Line` + "\u017f" + `":[1,2,3]}`, `{"Lines":[` + strings.Repeat("{},", 1000) + `{}]}`,
	} {
		f.Add([]byte(seed))
	}
	limits := jsondoc.Limits{Shape: orderShape()}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if jsondoc.Check(raw, limits) != nil {
			return
		}
		var order struct {
			Lines []json.RawMessage
			Map   map[string]json.RawMessage
		}
		_ = json.Unmarshal(raw, &order) // a member of another type leaves the others
		require.LessOrEqual(t, len(order.Lines), 2)
		require.LessOrEqual(t, len(order.Map), 1)
		for _, line := range order.Lines {
			var l struct{ Tags []json.RawMessage }
			_ = json.Unmarshal(line, &l)
			require.LessOrEqual(t, len(l.Tags), 3)
		}
	})
}
