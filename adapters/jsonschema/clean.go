package jsonschema

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// cleaned is a schema of which nothing is left but keywords that the drafts
// define, with every schema inside it known by its pointer. The library looks for
// ids and references in annotations and unknown keywords too; after cleaning
// there are none.
type cleaned struct {
	root              any
	schemas           map[string]any    // pointer → cleaned schema: an object or, from draft 6, a boolean
	refs              map[string]string // pointer of a schema with $ref → pointer of its target
	patternCount      int
	patternProperties bool
	largestEnum       int
	draft4            bool
	draftKnown        bool
}

// What may stand where a keyword holds schemas.
var (
	oneSchema  = []string{"additionalProperties", "additionalItems", "propertyNames", "contains", "not", "if", "then", "else"}
	schemaMaps = []string{"properties", "patternProperties", "definitions", "$defs"}
	schemaList = []string{"allOf", "anyOf", "oneOf"}
	assertions = []string{
		"type", "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
		"minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems",
		"minProperties", "maxProperties", "required",
	}
	// The library would silently ignore these.
	laterDrafts = []string{
		"prefixItems", "unevaluatedProperties", "unevaluatedItems", "dependentRequired", "dependentSchemas",
		"minContains", "maxContains", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",
		"$anchor", "$vocabulary",
	}
)

var draftURIs = map[string]string{
	"http://json-schema.org/draft-04/schema":  "http://json-schema.org/draft-04/schema#",
	"http://json-schema.org/draft-06/schema":  "http://json-schema.org/draft-06/schema#",
	"http://json-schema.org/draft-07/schema":  "http://json-schema.org/draft-07/schema#",
	"https://json-schema.org/draft-04/schema": "http://json-schema.org/draft-04/schema#",
	"https://json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema#",
	"https://json-schema.org/draft-07/schema": "http://json-schema.org/draft-07/schema#",
}

func clean(root any) (*cleaned, error) {
	c := &cleaned{schemas: map[string]any{}, refs: map[string]string{}}
	if _, ok := root.(map[string]any); !ok {
		return nil, refuse("", "must be a JSON object")
	}
	var err error
	if c.root, err = c.schema(root, "", 0); err != nil {
		return nil, err
	}
	places := make([]string, 0, len(c.refs))
	for at := range c.refs {
		places = append(places, at)
	}
	sort.Strings(places)
	for _, at := range places {
		if _, ok := c.schemas[c.refs[at]]; !ok {
			return nil, refuse(at+"/$ref", "refers to a place that is not a schema in it; refer to #/definitions/...")
		}
	}
	return c, nil
}

func (c *cleaned) schema(v any, at string, depth int) (any, error) {
	if depth > maxSchemaDepth {
		return nil, refuse("", "is nested deeper than %d; move parts to definitions", maxSchemaDepth)
	}
	if len(c.schemas) >= maxSchemaNodes {
		return nil, refuse("", "holds more than %d schemas; split the event type", maxSchemaNodes)
	}
	in, ok := v.(map[string]any)
	if !ok {
		if b, ok := v.(bool); ok {
			c.schemas[at] = b
			return b, nil
		}
		return nil, refuse(at, "must have an object or a boolean here")
	}
	out := make(map[string]any, len(in))
	c.schemas[at] = out
	if err := c.identity(in, out, at); err != nil {
		return nil, err
	}
	for _, k := range laterDrafts {
		if _, ok := in[k]; ok {
			return nil, refuse(at+"/"+jsondoc.EscapeToken(k), "uses a keyword of a later draft; use drafts 4, 6 or 7")
		}
	}
	if ref, ok := in["$ref"]; ok {
		if err := c.reference(ref, in, at); err != nil {
			return nil, err
		}
		out["$ref"] = ref
	}
	for _, k := range assertions {
		if x, ok := in[k]; ok {
			if err := c.assertion(k, x, at+"/"+k); err != nil {
				return nil, err
			}
			out[k] = x
		}
	}
	return out, c.applicators(in, out, at, depth)
}

// identity handles $schema and $id. Neither is ever fetched: $schema picks the
// draft, the id of the root means nothing because references are local, and an id
// further in would change what a local reference means.
func (c *cleaned) identity(in, out map[string]any, at string) error {
	if s, ok := in["$schema"]; ok {
		text, _ := s.(string)
		uri, ok := draftURIs[strings.TrimSuffix(text, "#")]
		if !ok {
			return refuse(at+"/$schema", "names an unknown draft; use http://json-schema.org/draft-07/schema#, draft-06 or draft-04")
		}
		if at == "" {
			out["$schema"] = uri
			c.draftKnown, c.draft4 = true, strings.Contains(uri, "draft-04")
		}
	}
	for _, k := range []string{"$id", "id"} {
		id, ok := in[k]
		if !ok || (k == "id" && c.draftKnown && !c.draft4) {
			continue // from draft 6 on "id" means nothing
		}
		text, ok := id.(string)
		switch {
		case !ok:
			return refuse(at+"/"+k, "has an id that is not text")
		case at != "":
			return refuse(at+"/"+k, "has an id inside; refer to parts with #/definitions/... instead")
		}
		u, err := url.Parse(text)
		if err != nil || !slices.Contains([]string{"", "http", "https", "urn"}, u.Scheme) {
			return refuse(at+"/"+k, "has an id that is not an http, https or urn name; leave it out")
		}
	}
	return nil
}

func (c *cleaned) reference(ref any, in map[string]any, at string) error {
	text, ok := ref.(string)
	if !ok || !strings.HasPrefix(text, "#") || (len(text) > 1 && text[1] != '/') {
		return refuse(at+"/$ref", "refers outside itself; only references that begin with #/ are followed")
	}
	target, err := url.PathUnescape(text[1:])
	if err != nil {
		return refuse(at+"/$ref", "has a malformed reference; write #/definitions/<name>")
	}
	// Drafts 4 to 7 ignore whatever stands beside a reference. An author who
	// wrote it there expects otherwise.
	for _, k := range slices.Concat(assertions, oneSchema, schemaList, []string{"properties", "patternProperties", "items", "dependencies"}) {
		if _, ok := in[k]; ok {
			return refuse(at+"/"+k, "has a keyword beside $ref, which is ignored there; put both into allOf")
		}
	}
	if len(c.refs) >= maxReferences {
		return refuse("", "has more than %d references; split the event type", maxReferences)
	}
	c.refs[at] = target
	return nil
}

func (c *cleaned) assertion(keyword string, x any, at string) error {
	if !smallNumbers(x) {
		return refuse(at, "has a number of more than 30 digits or with a large exponent; use a plain decimal")
	}
	switch keyword {
	case "pattern":
		text, ok := x.(string)
		if !ok {
			return refuse(at, "has a pattern that is not text")
		}
		return c.pattern(text, at)
	case "enum":
		values, ok := x.([]any)
		if !ok || len(values) == 0 {
			return refuse(at, "has an enum that is not a list of values")
		}
		text, err := json.Marshal(values)
		if err != nil || len(values) > maxEnumValues || len(text) > maxEnumBytes {
			return refuse(at, "has an enum of more than %d values or %d bytes; use a pattern and a reference list", maxEnumValues, maxEnumBytes)
		}
		c.largestEnum = max(c.largestEnum, len(text))
	}
	return nil
}

func (c *cleaned) pattern(text, at string) error {
	if c.patternCount++; c.patternCount > maxPatterns {
		return refuse(at, "has more than %d patterns; split the event type", maxPatterns)
	}
	if len(text) > maxPatternBytes {
		return refuse(at, "has a pattern longer than %d bytes; shorten it", maxPatternBytes)
	}
	if _, err := regexp.Compile(text); err != nil {
		return refuse(at, "has a pattern that is not a regular expression in RE2 syntax; lookaround and backreferences do not exist there")
	}
	return nil
}

func (c *cleaned) applicators(in, out map[string]any, at string, depth int) error {
	one := func(v any, at string) (any, error) { return c.schema(v, at, depth+1) }
	for _, k := range oneSchema {
		if x, ok := in[k]; ok {
			s, err := one(x, at+"/"+k)
			if err != nil {
				return err
			}
			out[k] = s
		}
	}
	for _, k := range schemaMaps {
		if err := c.mapped(in, out, k, at, one); err != nil {
			return err
		}
	}
	for _, k := range schemaList {
		x, ok := in[k]
		if !ok {
			continue
		}
		parts, ok := x.([]any)
		if !ok || len(parts) == 0 {
			return refuse(at+"/"+k, "must have a list of schemas here")
		}
		list, err := c.listed(parts, at+"/"+k, one)
		if err != nil {
			return err
		}
		out[k] = list
	}
	if x, ok := in["items"]; ok {
		var s any
		var err error
		if parts, isList := x.([]any); isList {
			s, err = c.listed(parts, at+"/items", one)
		} else {
			s, err = one(x, at+"/items")
		}
		if err != nil {
			return err
		}
		out["items"] = s
	}
	return c.mapped(in, out, "dependencies", at, func(v any, at string) (any, error) {
		if names, ok := v.([]any); ok { // names of members, not schemas
			for _, n := range names {
				if _, ok := n.(string); !ok {
					return nil, refuse(at, "must list names of members here")
				}
			}
			return names, nil
		}
		return one(v, at)
	})
}

func (c *cleaned) mapped(in, out map[string]any, k, at string, one func(any, string) (any, error)) error {
	x, ok := in[k]
	if !ok {
		return nil
	}
	members, ok := x.(map[string]any)
	if !ok {
		return refuse(at+"/"+jsondoc.EscapeToken(k), "must have an object here")
	}
	kept := make(map[string]any, len(members))
	for name, v := range members {
		where := at + "/" + jsondoc.EscapeToken(k) + "/" + jsondoc.EscapeToken(name)
		if k == "patternProperties" {
			c.patternProperties = true
			if err := c.pattern(name, where); err != nil {
				return err
			}
		}
		s, err := one(v, where)
		if err != nil {
			return err
		}
		kept[name] = s
	}
	out[k] = kept
	return nil
}

func (c *cleaned) listed(parts []any, at string, one func(any, string) (any, error)) ([]any, error) {
	list := make([]any, len(parts))
	for i, p := range parts {
		s, err := one(p, at+"/"+itoa(i))
		if err != nil {
			return nil, err
		}
		list[i] = s
	}
	return list, nil
}

// smallNumbers walks values of assertions.
func smallNumbers(v any) bool {
	switch t := v.(type) {
	case json.Number:
		s := string(t)
		return len(s) <= 32 && boundedNumber(s)
	case []any:
		return !slices.ContainsFunc(t, func(x any) bool { return !smallNumbers(x) })
	case map[string]any:
		for _, x := range t {
			if !smallNumbers(x) {
				return false
			}
		}
	}
	return true
}
