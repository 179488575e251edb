package jsonschema

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/schema"
)

// stripped is a schema that has only the keywords that the drafts define, with every schema
// inside it by its pointer. The library looks for ids and references in annotations and unknown
// keywords too, so these are removed.
type stripped struct {
	root              any
	schemas           map[string]any            // pointer → cleaned schema: an object or, from draft 6, a boolean
	refs              map[string]string         // pointer of a schema with $ref → pointer of its target
	patterns          map[string]*regexp.Regexp // by text
	patternCount      int
	patternProperties bool
	largestEnum       int
	draft4            bool
	draftKnown        bool
}

var (
	assertions = []string{
		"type", "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
		"minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems",
		"minProperties", "maxProperties", "required",
	}
	// The library silently ignores the keywords of later drafts.
	laterDrafts = []string{
		"prefixItems", "unevaluatedProperties", "unevaluatedItems", "dependentRequired", "dependentSchemas",
		"minContains", "maxContains", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",
		"$anchor", "$vocabulary",
	}
)

// refusedBesideRef are all keywords but definitions.
var refusedBesideRef = func() []string {
	out := slices.Clone(assertions)
	for _, k := range schema.Keywords {
		if k.Target != schema.NoValue {
			out = append(out, k.Name)
		}
	}
	return out
}()

// draftURI gives the spelling of $schema that the library knows.
var draftURI = regexp.MustCompile(`^https?://json-schema\.org/(draft-0[467])/schema#?$`)

func strip(root any) (*stripped, error) {
	c := &stripped{schemas: map[string]any{}, refs: map[string]string{}, patterns: map[string]*regexp.Regexp{}}
	if _, ok := root.(map[string]any); !ok {
		return nil, refuse("", "must be a JSON object")
	}
	var err error
	if c.root, err = c.schema(root, "", 0); err != nil {
		return nil, err
	}
	for _, at := range slices.Sorted(maps.Keys(c.refs)) {
		if _, ok := c.schemas[c.refs[at]]; !ok {
			return nil, refuse(at+"/$ref", "refers to a place that is not a schema in it; refer to #/definitions/...")
		}
	}
	return c, nil
}

func (c *stripped) schema(v any, at string, depth int) (any, error) {
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
	return out, c.subschemas(in, out, at, depth)
}

// identity handles $schema and $id. Neither is ever fetched: $schema picks the
// draft, the id of the root means nothing because references are local, and an id
// further in would change what a local reference means.
func (c *stripped) identity(in, out map[string]any, at string) error {
	if s, ok := in["$schema"]; ok {
		text, _ := s.(string)
		draft := draftURI.FindStringSubmatch(text)
		if draft == nil {
			return refuse(at+"/$schema", "names an unknown draft; use http://json-schema.org/draft-07/schema#, draft-06 or draft-04")
		}
		if at == "" {
			out["$schema"] = "http://json-schema.org/" + draft[1] + "/schema#"
			c.draftKnown, c.draft4 = true, draft[1] == "draft-04"
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

func (c *stripped) reference(ref any, in map[string]any, at string) error {
	text, ok := ref.(string)
	if !ok || !strings.HasPrefix(text, "#") || (len(text) > 1 && text[1] != '/') {
		return refuse(at+"/$ref", "refers outside itself; only references that begin with #/ are followed")
	}
	target, ok := schema.LocalReference(ref)
	if !ok {
		return refuse(at+"/$ref", "has a malformed reference; write #/definitions/<name>")
	}
	// Drafts 4 to 7 ignore keywords beside a reference, which their author does not expect.
	for _, k := range refusedBesideRef {
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

func (c *stripped) assertion(keyword string, x any, at string) error {
	if !hasSmallNumbers(x) {
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

func (c *stripped) pattern(text, at string) error {
	if c.patternCount++; c.patternCount > maxPatterns {
		return refuse(at, "has more than %d patterns; split the event type", maxPatterns)
	}
	if len(text) > maxPatternBytes {
		return refuse(at, "has a pattern longer than %d bytes; shorten it", maxPatternBytes)
	}
	if c.patterns[text] != nil {
		return nil
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return refuse(at, "has a pattern that is not a regular expression in RE2 syntax; lookaround and backreferences do not exist there")
	}
	c.patterns[text] = compiled
	return nil
}

// subschemas strips the schemas inside a schema.
func (c *stripped) subschemas(in, out map[string]any, at string, depth int) (err error) {
	for _, k := range schema.Keywords {
		held, given := in[k.Name]
		if !given {
			continue
		}
		at := at + "/" + jsondoc.EscapeToken(k.Name)
		list, isList := held.([]any)
		switch {
		case k.Form == schema.Named:
			out[k.Name], err = c.stripNamed(k.Name, held, at, depth)
		case k.Form == schema.List && len(list) == 0:
			err = refuse(at, "must have a list of schemas here")
		case isList && k.Form != schema.Single:
			kept := make([]any, len(list))
			for i := 0; i < len(list) && err == nil; i++ {
				kept[i], err = c.schema(list[i], at+"/"+strconv.Itoa(i), depth+1)
			}
			out[k.Name] = kept
		default:
			out[k.Name], err = c.schema(held, at, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *stripped) stripNamed(keyword string, held any, at string, depth int) (any, error) {
	members, ok := held.(map[string]any)
	if !ok {
		return nil, refuse(at, "must have an object here")
	}
	kept := make(map[string]any, len(members))
	for name, v := range members {
		at := at + "/" + jsondoc.EscapeToken(name)
		if keyword == "patternProperties" {
			c.patternProperties = true
			if err := c.pattern(name, at); err != nil {
				return nil, err
			}
		}
		if names, isList := v.([]any); isList && keyword == "dependencies" {
			if slices.ContainsFunc(names, func(n any) bool { _, isText := n.(string); return !isText }) {
				return nil, refuse(at, "must list names of members here")
			}
			kept[name] = names
			continue
		}
		s, err := c.schema(v, at, depth+1)
		if err != nil {
			return nil, err
		}
		kept[name] = s
	}
	return kept, nil
}

// hasSmallNumbers reports whether no number in an assertion's value is long or has a large
// exponent.
func hasSmallNumbers(v any) bool {
	switch t := v.(type) {
	case json.Number:
		return len(t) <= 32 && isBoundedNumber(string(t))
	case []any:
		return !slices.ContainsFunc(t, func(x any) bool { return !hasSmallNumbers(x) })
	case map[string]any:
		return hasSmallNumbers(slices.Collect(maps.Values(t)))
	}
	return true
}
