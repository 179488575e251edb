package shredding_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/shredding"
)

const contactSchema = `{
  "type": "object", "additionalProperties": false,
  "properties": {
    "contacts": {"type": ["array", "null"], "items": {"$ref": "#/definitions/contact"}},
    "bank": {"type": "object", "additionalProperties": false, "properties": {"iban": {"type": "string"}, "bank_name": {"type": "string", "x-not-pii": "the bank's, not a person's"}}},
    "number": {"type": "string"}, "amount": {"type": "number"}
  },
  "definitions": {"contact": {"type": "object", "additionalProperties": false, "required": ["person_id"],
    "properties": {"email": {"type": "string"}, "person_id": {"type": "string"}}}}
}`

var payeeRole = []shredding.Role{{Name: "payee", One: true}}

func TestCheck_Example(t *testing.T) {
	t.Parallel()
	require.Empty(t, contacts(t).Check(shredding.EventType{
		Schema: json.RawMessage(contactSchema), Roles: payeeRole,
		BusinessKeys: []shredding.BusinessKey{{Fields: []string{"number"}, Document: "number"}},
	}))
}

func TestCheck_Findings(t *testing.T) {
	t.Parallel()
	closed := func(properties string, more ...string) string {
		return `{"type":"object","additionalProperties":false,"properties":{` + properties + `}` + strings.Join(append([]string{""}, more...), ",") + `}`
	}
	text := `{"type":"string"}`
	role := func(path string) []shredding.Declaration {
		return []shredding.Declaration{byRole(path, "contact", "payee")}
	}
	for name, c := range map[string]struct {
		declared []shredding.Declaration
		schema   string
		want     []string
	}{
		"no object":       {nil, `[]`, []string{"/data_schema pii.schema_unreadable"}},
		"path to nothing": {role("$.mail"), closed(`"a":` + text), []string{"/pii_fields/0/path pii.path_not_in_schema"}},
		"never":           {role("$.a"), closed(`"a":false`), []string{"/pii_fields/0/path pii.path_not_in_schema"}},
		"member of array": {role("$.a.b"), closed(`"a":{"type":"array","items":` + closed(`"b":`+text) + `}`), []string{"/pii_fields/0/path pii.schema_open"}},
		"array of object": {role("$.a[*]"), closed(`"a":` + closed(`"b":`+text)), []string{"/pii_fields/0/path pii.schema_open"}},
		"tuple":           {role("$.a[*]"), closed(`"a":{"type":"array","items":[` + text + `]}`), []string{"/pii_fields/0/path pii.path_not_in_schema"}},
		"open root":       {role("$.a"), `{"type":"object","properties":{"a":` + text + `}}`, []string{"/pii_fields/0/path pii.schema_open"}},
		"untyped root":    {role("$.a"), `{"additionalProperties":false,"properties":{"a":` + text + `}}`, []string{"/pii_fields/0/path pii.schema_open"}},
		"open by schema":  {role("$.a"), `{"type":"object","additionalProperties":{"type":"number"},"properties":{"a":` + text + `}}`, []string{"/pii_fields/0/path pii.schema_open"}},
		"open by pattern": {role("$.a"), closed(`"a":`+text, `"patternProperties":{"^x":`+text+`}`), []string{"/pii_fields/0/path pii.schema_open"}},
		"or text":         {role("$.a.b"), closed(`"a":{"type":["object","string"],"additionalProperties":false,"properties":{"b":` + text + `}}`), []string{"/pii_fields/0/path pii.schema_open"}},
		"one branch open": {role("$.a.b"), closed(`"a":{"oneOf":[` + closed(`"b":`+text) + `,{"type":"object"}]}`), []string{"/pii_fields/0/path pii.schema_open"}},
		"branch is text":  {role("$.a.b"), closed(`"a":{"anyOf":[` + closed(`"b":`+text) + `,` + text + `]}`), []string{"/pii_fields/0/path pii.schema_open"}},
		"branches":        {role("$.a.b"), closed(`"a":{"oneOf":[` + closed(`"b":`+text) + `,` + closed(`"c":`+text) + `,{"type":"null"}]}`), nil},
		"all of":          {role("$.a.b"), closed(`"a":{"allOf":[{"minProperties":1},{"$ref":"#/definitions/x"}]}`, `"definitions":{"x":`+closed(`"b":`+text)+`}`), nil},
		"whole object":    {role("$.a"), closed(`"a":{"type":"object"}`), nil},
		"foreign":         {role("$.a.b"), closed(`"a":{"$ref":"http://example.org/x"}`), []string{"/pii_fields/0/path pii.path_not_in_schema", "/data_schema/properties/a pii.schema_unreadable"}},
		"circle":          {role("$.a.b"), closed(`"a":{"$ref":"#/properties/a"}`), []string{"/pii_fields/0/path pii.path_not_in_schema", "/data_schema/properties/a pii.schema_unreadable"}},
		"recursive": {role("$.a.b"), closed(`"a":{"$ref":"#/definitions/x"}`, `"definitions":{"x":`+closed(`"b":`+text+`,"c":{"type":"array","items":{"$ref":"#/definitions/x"}}`)+`}`),
			[]string{"/pii_fields/0/path pii.schema_recursive"}},
		"recursive by nesting": {role("$.a.b"), closed(`"a":{"$ref":"#/definitions/x/properties/y"}`, `"definitions":{"x":`+closed(`"y":`+closed(`"b":`+text+`,"c":{"$ref":"#/definitions/x"}`))+`}`),
			[]string{"/pii_fields/0/path pii.schema_recursive"}},
		"list branch open": {role("$.a[*].b"), closed(`"a":{"oneOf":[{"type":"array","items":` + closed(`"b":`+text) + `},{"type":"array"}]}`), []string{"/pii_fields/0/path pii.schema_open"}},
		"list branch any":  {role("$.a[*].b"), closed(`"a":{"anyOf":[{"type":"array","items":true},{"type":"array","items":` + closed(`"b":`+text) + `}]}`), []string{"/pii_fields/0/path pii.schema_open"}},
		"tuple branch":     {role("$.a[*].b"), closed(`"a":{"anyOf":[{"type":"array","items":[{}]},{"type":"array","items":` + closed(`"b":`+text) + `}]}`), []string{"/pii_fields/0/path pii.schema_open"}},
		"list branch none": {role("$.a[*].b"), closed(`"a":{"anyOf":[{"type":"array","items":false},{"type":"array","items":` + closed(`"b":`+text) + `}]}`), nil},
		"recursion sealed": {role("$.a"), closed(`"a":{"$ref":"#/definitions/x"}`, `"definitions":{"x":`+closed(`"name":`+text+`,"c":{"$ref":"#/definitions/x"}`)+`}`), nil},

		"subject optional":  {[]shredding.Declaration{byPath("$.a", "contact", "$.id")}, closed(`"a":` + text + `,"id":` + text), []string{"/pii_fields/0/subject/path pii.subject_not_required"}},
		"subject required":  {[]shredding.Declaration{byPath("$.a", "contact", "$.id")}, closed(`"a":`+text+`,"id":`+text, `"required":["id"]`), nil},
		"subject or null":   {[]shredding.Declaration{byPath("$.a", "contact", "$.id")}, closed(`"a":`+text+`,"id":{"type":["string","null"]}`, `"required":["id"]`), []string{"/pii_fields/0/subject/path pii.subject_not_required"}},
		"subject any null":  {[]shredding.Declaration{byPath("$.a", "contact", "$.id")}, closed(`"a":`+text+`,"id":{"anyOf":[`+text+`,{"type":"null"}]}`, `"required":["id"]`), []string{"/pii_fields/0/subject/path pii.subject_not_required"}},
		"subject a number":  {[]shredding.Declaration{byPath("$.a", "contact", "$.id")}, closed(`"a":`+text+`,"id":{"type":"integer"}`, `"required":["id"]`), []string{"/pii_fields/0/subject/path pii.subject_not_required"}},
		"subject nowhere":   {[]shredding.Declaration{byPath("$.a", "contact", "$.id")}, closed(`"a":` + text), []string{"/pii_fields/0/subject/path pii.path_not_in_schema"}},
		"subject deep":      {[]shredding.Declaration{byPath("$.a", "contact", "$.who.id")}, closed(`"a":`+text+`,"who":`+closed(`"id":`+text, `"required":["id"]`), `"required":["who"]`), nil},
		"subject half deep": {[]shredding.Declaration{byPath("$.a", "contact", "$.who.id")}, closed(`"a":` + text + `,"who":` + closed(`"id":`+text, `"required":["id"]`)), []string{"/pii_fields/0/subject/path pii.subject_not_required"}},
		"subject null deep": {[]shredding.Declaration{byPath("$.a", "contact", "$.who.id")}, closed(`"a":`+text+`,"who":{"oneOf":[{"type":"null"},`+closed(`"id":`+text, `"required":["id"]`)+`]}`, `"required":["who"]`),
			[]string{"/pii_fields/0/subject/path pii.subject_not_required"}},
		"subject in the branch": {[]shredding.Declaration{byPath("$.l[*].a", "contact", "$.l[*].id")},
			closed(`"l":{"type":"array","items":{"oneOf":[` + closed(`"a":`+text+`,"id":`+text, `"required":["id"]`) + `,` + closed(`"number":`+text) + `]}}`), nil},
		"subject in one branch": {[]shredding.Declaration{byPath("$.l[*].a", "contact", "$.l[*].id")},
			closed(`"l":{"type":"array","items":{"oneOf":[` + closed(`"a":`+text+`,"id":`+text, `"required":["id"]`) + `,` + closed(`"a":`+text) + `]}}`), []string{"/pii_fields/0/subject/path pii.subject_not_required"}},

		"undeclared": {nil, closed(`"vendor_name":` + text + `,"emailAddress":` + text + `,"e-mail":` + text + `,"phone2":` + text + `,"IBAN":` + text + `,"date_of_birth":` + text + `,"tax_id":` + text + `,"delivery_note":` + text + `,"note":` + text),
			[]string{"/data_schema/properties/IBAN pii.undeclared", "/data_schema/properties/date_of_birth pii.undeclared", "/data_schema/properties/e-mail pii.undeclared", "/data_schema/properties/emailAddress pii.undeclared",
				"/data_schema/properties/note pii.undeclared", "/data_schema/properties/phone2 pii.undeclared", "/data_schema/properties/tax_id pii.undeclared", "/data_schema/properties/vendor_name pii.undeclared"}},
		"no text":          {nil, closed(`"name":{"type":"integer"},"email":{"enum":["yes","no"]},"phone":{"type":["boolean","null"]},"iban":{"const":"x"},"note":false,"address":` + closed(`"number":{"type":"integer"}`)), nil},
		"reasons":          {nil, closed(`"name":{"type":"string","x-not-pii":"of a product"},"note":{"$ref":"#/definitions/t","x-not-pii":"printed"}`, `"definitions":{"t":`+text+`}`), nil},
		"no reason":        {nil, closed(`"name":{"type":"string","x-not-pii":" "},"note":{"type":"string","x-not-pii":true}`), []string{"/data_schema/properties/name/x-not-pii pii.reason_missing", "/data_schema/properties/note/x-not-pii pii.reason_missing"}},
		"untyped":          {nil, closed(`"name":{},"note":true`), []string{"/data_schema/properties/name pii.undeclared", "/data_schema/properties/note pii.undeclared"}},
		"list":             {nil, closed(`"emails":{"type":"array","items":` + text + `}`), []string{"/data_schema/properties/emails/items pii.undeclared"}},
		"list open":        {nil, closed(`"emails":{"type":"array"}`), []string{"/data_schema/properties/emails pii.undeclared"}},
		"list or object":   {nil, closed(`"emails":{"type":["object","array"],"additionalProperties":false}`), []string{"/data_schema/properties/emails pii.undeclared"}},
		"object or list":   {nil, closed(`"emails":{"type":["array","object"],"items":{"type":"integer"}}`), []string{"/data_schema/properties/emails pii.undeclared"}},
		"behind a tuple":   {nil, closed(`"emails":{"type":"array","items":[{"type":"integer"}]}`), []string{"/data_schema/properties/emails pii.undeclared"}},
		"nothing behind":   {nil, closed(`"emails":{"type":"array","items":[{"type":"integer"}],"additionalItems":false}`), nil},
		"texts behind":     {nil, closed(`"emails":{"type":"array","items":[{"type":"integer"}],"additionalItems":` + text + `}`), []string{"/data_schema/properties/emails/additionalItems pii.undeclared"}},
		"const of draft 4": {nil, closed(`"email":{"const":"x"}`, `"$schema":"http://json-schema.org/draft-04/schema#"`), []string{"/data_schema/properties/email pii.undeclared"}},
		"const of draft 7": {nil, closed(`"email":{"const":"x"}`, `"$schema":"http://json-schema.org/draft-07/schema#"`), nil},
		"named by pattern": {nil, closed(`"a":`+text, `"patternProperties":{"^(home_)?email$":`+text+`}`), []string{"/data_schema/patternProperties/^(home_)?email$ pii.undeclared"}},
		"any by pattern":   {nil, closed(`"a":`+text, `"patternProperties":{"^[a-z]+$":`+text+`}`), nil},
		"parts":            {nil, closed(`"address":` + closed(`"street":`+text+`,"code":{"type":"string","x-not-pii":"a region"}`)), []string{"/data_schema/properties/address/properties/street pii.undeclared"}},
		"open object":      {nil, closed(`"address":{"type":"object"}`), []string{"/data_schema/properties/address pii.undeclared"}},
		"in any":           {nil, closed(`"a":{"anyOf":[{"type":"integer"},` + closed(`"name":`+text) + `]}`), []string{"/data_schema/properties/a/anyOf/1/properties/name pii.undeclared"}},
		"by any":           {nil, closed(`"name":{"anyOf":[{"type":"integer"},{"$ref":"#/definitions/t"}]}`, `"definitions":{"t":`+text+`}`), []string{"/data_schema/properties/name/anyOf/1 pii.undeclared"}},
		"then":             {nil, closed(`"a":{"type":"integer"}`, `"if":{},"then":{"properties":{"name":`+text+`}}`), []string{"/data_schema/then/properties/name pii.undeclared"}},
		"then aside":       {nil, closed(`"name":{"type":"string","if":{},"then":{"type":"integer"},"dependencies":{"a":["b"]}}`), []string{"/data_schema/properties/name pii.undeclared"}},
		"unnamed":          {nil, closed(`"a":{"type":"object","additionalProperties":` + closed(`"name":`+text) + `}`), []string{"/data_schema/properties/a/additionalProperties/properties/name pii.undeclared"}},
		"again inside": {nil, closed(`"amount":{"type":"string"},"address":{"$ref":"#"}`),
			[]string{"/data_schema/properties/amount pii.undeclared"}},
		"covered":      {role("$.address"), closed(`"address":` + closed(`"name":`+text)), nil},
		"covered list": {role("$.l[*].name"), closed(`"l":{"type":"array","items":` + closed(`"name":`+text) + `}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := manifest(t, c.declared...).Check(shredding.EventType{Schema: json.RawMessage(c.schema), Roles: payeeRole})
			require.ElementsMatch(t, c.want, codes(found))
		})
	}
}

func TestCheck_RolesAndBusinessKeys(t *testing.T) {
	t.Parallel()
	m := contacts(t)
	for name, roles := range map[string][]shredding.Role{
		"absent": nil, "another": {{Name: "buyer", One: true}}, "several": {{Name: "payee"}},
		"two entity types": {{Name: "payee", One: true}, {Name: "payee", One: true}},
	} {
		found := m.Check(shredding.EventType{Schema: json.RawMessage(contactSchema), Roles: roles})
		require.Equal(t, []string{"/pii_fields/1/subject/entity_role pii.role_unknown"}, codes(found), name)
	}
	found := m.Check(shredding.EventType{
		Schema: json.RawMessage(contactSchema), Roles: payeeRole,
		BusinessKeys: []shredding.BusinessKey{{Fields: []string{"number"}}, {Fields: []string{"number", "bank"}, Document: "contacts"}},
	})
	require.Equal(t, []string{"/business_keys/1/fields/1 pii.business_key", "/business_keys/1/document pii.business_key"}, codes(found))
}

// Definitions that use one another twice spell out 2^40 places.
func TestCheck_HugeSchema(t *testing.T) {
	t.Parallel()
	var definitions []string
	for i := range 40 {
		definitions = append(definitions, fmt.Sprintf(`"d%d":{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"#/definitions/d%d"},"b":{"$ref":"#/definitions/d%d"}}}`, i, i+1, i+1))
	}
	schema := `{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"#/definitions/d0"}},"definitions":{` + strings.Join(definitions, ",") + `,"d40":{"type":"string"}}}`
	found := manifest(t, byRole("$.a"+strings.Repeat(".a", 31), "contact", "payee")).Check(shredding.EventType{Schema: json.RawMessage(schema), Roles: payeeRole})
	require.Equal(t, []string{"/data_schema pii.schema_unreadable"}, codes(found))
}
