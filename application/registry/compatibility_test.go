package registry_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/domain/eventtype"
)

// Whatever an older schema accepts, the newer one accepts if the comparison says
// so; the validator of the server is the judge.
func TestCompatibility_RandomSchemas(t *testing.T) {
	t.Parallel()
	compatible, judged := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		older := object(t, 3)
		newer := mutate(t, older)
		before, after := marshal(t, older), marshal(t, newer)
		a, err := jsonschema.New().Compile(before)
		if err != nil {
			return
		}
		b, err := jsonschema.New().Compile(after)
		if err != nil {
			return
		}
		c := eventtype.Compare(&eventtype.Registration{SchemaVersion: 1, DataSchema: before}, &eventtype.Registration{SchemaVersion: 2, DataSchema: after})
		if !c.Compatible {
			return
		}
		compatible++
		for range 10 {
			doc := marshal(t, instance(t, older, 4))
			if v, err := a.Validate(doc); err != nil || len(v) > 0 {
				continue
			}
			judged++
			v, err := b.Validate(doc)
			require.NoError(t, err)
			require.Empty(t, v, "%s\nolder %s\nnewer %s", doc, before, after)
		}
	})
	require.Greater(t, compatible, 5, "the generator finds compatible pairs")
	require.Greater(t, judged, 20, "and documents for them")
}

// Where the policy is met, earlier data fit once what was removed is left out: no
// narrowing hides behind another difference.
func TestCompatibility_RemovedMember(t *testing.T) {
	t.Parallel()
	judged := 0
	rapid.Check(t, func(t *rapid.T) {
		older := object(t, 3)
		newer := mutate(t, older)
		before, after := marshal(t, older), marshal(t, newer)
		a, err := jsonschema.New().Compile(before)
		if err != nil {
			return
		}
		b, err := jsonschema.New().Compile(after)
		if err != nil {
			return
		}
		c := eventtype.Compare(&eventtype.Registration{SchemaVersion: 1, DataSchema: before}, &eventtype.Registration{SchemaVersion: 2, DataSchema: after})
		if len(c.Unmet()) > 0 {
			return
		}
		for _, d := range c.Differences {
			if d.Kind == eventtype.OptionalAdded {
				return // an open schema may have had anything there
			}
		}
		for range 5 {
			doc := instance(t, older, 4)
			text := marshal(t, doc)
			if v, err := a.Validate(text); err != nil || len(v) > 0 {
				continue
			}
			for _, d := range c.Differences {
				if d.Kind == eventtype.Removed {
					leaveOut(doc, strings.Split(strings.TrimPrefix(d.Pointer, "/data_schema/"), "/"))
				}
			}
			judged++
			text = marshal(t, doc)
			v, err := b.Validate(text)
			require.NoError(t, err)
			require.Empty(t, v, "%s\nolder %s\nnewer %s\n%v", text, before, after, c.Differences)
		}
	})
	require.Greater(t, judged, 20)
}

// leaveOut takes members out of a value, by the pointer of their schema.
func leaveOut(v any, path []string) {
	switch inner := v.(type) {
	case map[string]any:
		if path[0] != "properties" {
			return
		}
		if len(path) == 2 {
			delete(inner, path[1])
			return
		}
		leaveOut(inner[path[1]], path[2:])
	case []any:
		if path[0] == "items" {
			for _, x := range inner {
				leaveOut(x, path[1:])
			}
		}
	}
}

func marshal(t *rapid.T, v any) json.RawMessage {
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return out
}

var memberNames = []string{"a", "b", "c"}

func object(t *rapid.T, depth int) map[string]any {
	s := map[string]any{"type": "object"}
	props := map[string]any{}
	for _, name := range memberNames {
		if rapid.Bool().Draw(t, "has") {
			props[name] = anySchema(t, depth-1)
		}
	}
	s["properties"] = props
	if names := rapid.SliceOfDistinct(rapid.SampledFrom(memberNames), rapid.ID).Draw(t, "required"); len(names) > 0 {
		s["required"] = names
	}
	switch rapid.IntRange(0, 5).Draw(t, "additional") {
	case 0:
	case 1:
		s["additionalProperties"] = anySchema(t, depth-1)
	case 2:
		s["patternProperties"] = map[string]any{"^[ab]$": anySchema(t, depth-1)}
		s["additionalProperties"] = rapid.Bool().Draw(t, "open")
	default:
		s["additionalProperties"] = false
	}
	return s
}

func anySchema(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth <= 0 && kind > 5 {
		kind -= 5
	}
	small := rapid.IntRange(0, 4)
	switch kind {
	case 0:
		return map[string]any{}
	case 1:
		s := map[string]any{"type": rapid.SampledFrom([]any{"string", []any{"string", "null"}}).Draw(t, "type")}
		if rapid.Bool().Draw(t, "bounded") {
			s["minLength"], s["maxLength"] = small.Draw(t, "min"), small.Draw(t, "max")
		}
		if rapid.IntRange(0, 4).Draw(t, "patterned") == 0 {
			s["pattern"] = "^x"
		}
		return s
	case 2, 3:
		s := map[string]any{"type": rapid.SampledFrom([]string{"integer", "number"}).Draw(t, "type")}
		for _, word := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
			if rapid.IntRange(0, 3).Draw(t, word+"?") == 0 {
				s[word] = small.Draw(t, word)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "step?") == 0 {
			s["multipleOf"] = rapid.SampledFrom([]any{1, 2, 0.5, 4}).Draw(t, "step")
		}
		return s
	case 4:
		return map[string]any{"enum": rapid.SliceOfNDistinct(rapid.SampledFrom([]any{"x", "xy", 1, 2.5, nil, true}), 1, 4, rapid.ID).Draw(t, "enum")}
	case 5:
		return map[string]any{"const": rapid.SampledFrom([]any{"x", 1, nil}).Draw(t, "const")}
	case 6:
		s := map[string]any{"type": "array"}
		switch rapid.IntRange(0, 2).Draw(t, "items") {
		case 0:
			s["items"] = anySchema(t, depth-1)
		case 1:
			s["items"], s["additionalItems"] = []any{anySchema(t, depth-1)}, anySchema(t, depth-1)
		}
		if rapid.Bool().Draw(t, "bounded") {
			s["minItems"], s["maxItems"] = small.Draw(t, "min"), small.Draw(t, "max")
		}
		s["uniqueItems"] = rapid.IntRange(0, 3).Draw(t, "unique") == 0
		return s
	case 7:
		return map[string]any{rapid.SampledFrom([]string{"anyOf", "allOf", "oneOf"}).Draw(t, "of"): []any{anySchema(t, depth-1), anySchema(t, depth-1)}}
	case 8:
		return map[string]any{"not": anySchema(t, depth-1), "type": "string"}
	default:
		return object(t, depth)
	}
}

// mutate changes one thing somewhere, or a few.
func mutate(t *rapid.T, schema any) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema
	}
	out := maps.Clone(s)
	words := slices.Sorted(maps.Keys(out))
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		if len(words) == 0 {
			return out
		}
		word := rapid.SampledFrom(words).Draw(t, "word")
		switch v := out[word].(type) {
		case int:
			out[word] = v + rapid.IntRange(-1, 1).Draw(t, "shift")
		case bool:
			out[word] = !v
		case string:
			if word == "type" && v == "integer" {
				out[word] = "number"
			}
		case []any:
			if word == "enum" {
				out[word] = append(slices.Clone(v), "new")
				break
			}
			list := slices.Clone(v)
			list[0] = mutate(t, list[0])
			out[word] = list
		case []string:
			out[word] = v[1:]
			if len(v) == 1 {
				delete(out, word)
			}
		case map[string]any:
			if word != "properties" && word != "patternProperties" {
				out[word] = mutate(t, v)
				break
			}
			members := maps.Clone(v)
			name := rapid.SampledFrom(memberNames).Draw(t, "member")
			if word == "patternProperties" {
				name = "^[ab]$"
			}
			switch inner, has := members[name]; {
			case !has:
				members[name] = anySchema(t, 1)
			case rapid.IntRange(0, 3).Draw(t, "drop") == 0:
				delete(members, name)
			default:
				members[name] = mutate(t, inner)
			}
			out[word] = members
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "drop a word") == 0 && len(words) > 0 {
		delete(out, rapid.SampledFrom(words).Draw(t, "dropped"))
	}
	return out
}

var scalars = []any{"", "x", "xy", "new", 0, 1, 2, 2.5, 3, 4, nil, true, []any{}, []any{1}, map[string]any{}}

// instance is a value that often fits.
func instance(t *rapid.T, schema any, depth int) any {
	s, _ := schema.(map[string]any)
	if depth <= 0 {
		return rapid.SampledFrom(scalars).Draw(t, "value")
	}
	if values, ok := s["enum"].([]any); ok {
		return rapid.SampledFrom(values).Draw(t, "listed")
	}
	if v, ok := s["const"]; ok {
		return v
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := s[word].([]any); ok {
			return instance(t, rapid.SampledFrom(list).Draw(t, "alternative"), depth-1)
		}
	}
	switch s["type"] {
	case "object":
		out := map[string]any{}
		props, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]string)
		for _, name := range []string{"a", "b", "c", "d"} {
			inner, named := props[name]
			if !slices.Contains(required, name) && rapid.Bool().Draw(t, "absent") {
				continue
			}
			if !named {
				inner = s["additionalProperties"]
				if inner == false && !slices.Contains(required, name) {
					continue
				}
			}
			out[name] = instance(t, inner, depth-1)
		}
		return out
	case "array":
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			inner := s["items"]
			if list, ok := inner.([]any); ok {
				inner = s["additionalItems"]
				if len(out) < len(list) {
					inner = list[len(out)]
				}
			}
			out = append(out, instance(t, inner, depth-1))
		}
		return out
	case "integer", "number":
		return rapid.SampledFrom([]any{0, 1, 2, 2.5, 3, 4, 5}).Draw(t, "number")
	}
	return rapid.SampledFrom(scalars).Draw(t, "value")
}
