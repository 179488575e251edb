package jsonschema

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

func mustCompile(t testing.TB, source string) *compiledSchema {
	t.Helper()
	s, err := New().Compile(json.RawMessage(source))
	require.NoError(t, err)
	return s.(*compiledSchema)
}

func TestCompileReferences(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"type":"string"}`))
	}))
	defer server.Close()
	// A compiler that opened this pipe, which has no writer, would hang. The access time of a
	// file is not reliable.
	pipe := filepath.Join(t.TempDir(), "schema.json")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))

	for name, source := range map[string]string{
		"http $ref":                `{"$ref":"` + server.URL + `/s.json"}`,
		"http $ref inside":         `{"properties":{"a":{"$ref":"` + server.URL + `/s.json#/x"}}}`,
		"file $ref":                `{"properties":{"a":{"$ref":"file://` + pipe + `"}}}`,
		"relative $ref":            `{"properties":{"a":{"$ref":"other.json"}}}`,
		"relative $ref over base":  `{"$id":"` + server.URL + `/","properties":{"a":{"$ref":"s.json"}}}`,
		"local $ref over inner id": `{"properties":{"a":{"$id":"` + server.URL + `/s.json","items":{"$ref":"#/x"}}}}`,
		"empty $ref":               `{"properties":{"a":{"$ref":""}}}`,
		"named $ref":               `{"properties":{"a":{"$ref":"#a"}}}`,
		"draft 4 id inside":        `{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"a":{"id":"file://` + pipe + `"}}}`,
		"file $id":                 `{"$id":"file://` + pipe + `"}`,
		"http $schema":             `{"$schema":"` + server.URL + `/draft"}`,
		"file $schema":             `{"$schema":"file://` + pipe + `"}`,
		"later $schema":            `{"$schema":"https://json-schema.org/draft/2020-12/schema"}`,
		"$schema inside":           `{"properties":{"a":{"$schema":"` + server.URL + `/draft"}}}`,
		"ref in definitions":       `{"definitions":{"a":{"$ref":"` + server.URL + `/s.json"}}}`,
		"ref in $defs":             `{"$defs":{"a":{"$ref":"` + server.URL + `/s.json"}}}`,
		"ref in allOf":             `{"allOf":[{"$ref":"` + server.URL + `/s.json"}]}`,
		"ref in dependencies":      `{"dependencies":{"a":{"$ref":"` + server.URL + `/s.json"}}}`,
		"ref in items list":        `{"items":[{"$ref":"` + server.URL + `/s.json"}]}`,
		"ref into an annotation":   `{"default":{"type":"string"},"properties":{"a":{"$ref":"#/default"}}}`,
		"ref to nothing":           `{"properties":{"a":{"$ref":"#/definitions/none"}}}`,
		"ref to itself":            `{"properties":{"a":{"$ref":"#/properties/a"}}}`,
		"ref to itself by allOf":   `{"allOf":[{"$ref":"#"}]}`,
		"ref in a circle":          `{"definitions":{"a":{"$ref":"#/definitions/b"},"b":{"anyOf":[{"$ref":"#/definitions/a"}]}}}`,
		"keyword beside ref":       `{"definitions":{"a":{}},"properties":{"x":{"$ref":"#/definitions/a","minimum":1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New().Compile(json.RawMessage(source))
			require.Equal(t, "event_type.schema_invalid", fault.CodeOf(err))
			require.Equal(t, fault.Invalid, fault.KindOf(err))
		})
	}
	require.Zero(t, asked.Load())
}

func TestCompileOpensNoFileOrSocket(t *testing.T) {
	before := openDescriptors(t)
	for _, draft := range []string{"04", "06", "07"} {
		s := mustCompile(t, `{"$schema":"http://json-schema.org/draft-`+draft+`/schema#","$comment":"x",
			"id":"http://schemas.example.org/a.json",
			"default":{"$ref":"http://127.0.0.1:1/x","$id":"file:///etc/passwd"},
			"examples":[{"id":"#/definitions/n"}],
			"properties":{"$ref":{"type":"string"},"id":{"type":"string"},"n":{"$ref":"#/definitions/n"}},
			"definitions":{"n":{"type":"number","enum":[1,{"$ref":"http://127.0.0.1:1/y"}]}}}`)
		found, err := s.Validate(json.RawMessage(`{"$ref":"file:///etc/passwd","id":"http://127.0.0.1:1/","n":1}`))
		require.NoError(t, err)
		require.Empty(t, found)
		found, err = s.Validate(json.RawMessage(`{"$ref":1}`))
		require.NoError(t, err)
		require.Len(t, found, 1)
	}
	require.Equal(t, before, openDescriptors(t))

	_, err := closedLoader{}.LoaderFactory().New("file:///etc/hostname").LoadJSON()
	require.ErrorIs(t, err, errClosed)
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	return len(entries)
}

// processorTime is the time that this process has used so far, other tests included.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func TestCompileRefuses(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 80) + `{}` + strings.Repeat(`}`, 80)
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf(`"p%d":{"pattern":"a%d"}`, i, i)
	}
	for name, source := range map[string]string{
		"too large":               `{"description":"` + strings.Repeat("x", MaxSchemaBytes) + `"}`,
		"too deep":                deep,
		"too many patterns":       `{"properties":{` + strings.Join(many, ",") + `}}`,
		"long pattern":            `{"pattern":"` + strings.Repeat("a", maxPatternBytes+1) + `"}`,
		"backreference":           `{"pattern":"(a)\\1"}`,
		"repeat bomb":             `{"pattern":"((a{0,1000}){0,1000}){0,1000}"}`,
		"bad name pattern":        `{"patternProperties":{"(":{}}}`,
		"large enum":              `{"enum":["` + strings.Repeat("x", maxEnumBytes) + `"]}`,
		"huge exponent":           `{"minimum":1e1000000}`,
		"definitions not object":  `{"definitions":true}`,
		"type of number":          `{"type":[1]}`,
		"unknown type":            `{"type":"money"}`,
		"required not list":       `{"required":"a"}`,
		"not JSON":                `{`,
		"two values":              `{} {}`,
		"array":                   `[]`,
		"boolean":                 `true`,
		"later keyword":           `{"unevaluatedProperties":false}`,
		"doubling":                doubling(12),
		"doubling with the depth": `{"definitions":{"a":{"properties":{"n":{"allOf":[{"$ref":"#/definitions/a"},{"$ref":"#/definitions/a"}]}}}},"allOf":[{"$ref":"#/definitions/a"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			began := processorTime(t)
			_, err := New().Compile(json.RawMessage(source))
			took := processorTime(t) - began
			t.Logf("refused in %s", took)
			require.Equal(t, "event_type.schema_invalid", fault.CodeOf(err))
			require.Less(t, took, 2*time.Second)
		})
	}
}

// doubling is a schema of n definitions that applies 2^n schemas to one value.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString(`{"definitions":{"d0":{}`)
	for i := range n {
		fmt.Fprintf(&b, `,"d%d":{"allOf":[{"$ref":"#/definitions/d%d"},{"$ref":"#/definitions/d%d"}]}`, i+1, i, i)
	}
	fmt.Fprintf(&b, `},"properties":{"a":{"$ref":"#/definitions/d%d"}}}`, n)
	return b.String()
}

func TestCompileRecursiveSchemas(t *testing.T) {
	t.Parallel()
	tree := mustCompile(t, `{"type":"object","required":["name"],"properties":{"name":{"type":"string"},
		"children":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false}`)
	require.NotNil(t, tree.acceptor)
	found, err := tree.Validate(json.RawMessage(`{"name":"a","children":[{"name":"b","children":[]},{"children":[]}]}`))
	require.NoError(t, err)
	require.Equal(t, []fault.Violation{{Field: "/children/1/name", Code: "schema.required", Detail: "This member is required."}}, found)

	value := mustCompile(t, `{"anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#"}},{"type":"object","additionalProperties":{"$ref":"#"}}]}`)
	found, err = value.Validate(json.RawMessage(`{"a":["b",{"c":"d"}]}`))
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestValidateViolations(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",
		"required":["must"],"additionalProperties":false,
		"properties":{
			"must":{}, "t":{"type":"integer"}, "c":{"const":"SECRET-C"}, "e":{"enum":["x"]},
			"any":{"anyOf":[{"type":"null"}]}, "one":{"oneOf":[{"type":"null"}]}, "all":{"allOf":[{"type":"null"}]},
			"no":{"not":{}}, "never":false, "if":{"if":{},"then":{"type":"null"}}, "else":{"if":false,"else":{"type":"null"}},
			"dep":{"dependencies":{"a":["b"]}}, "few":{"minItems":2}, "many":{"maxItems":0}, "same":{"uniqueItems":true},
			"more":{"items":[{}],"additionalItems":false}, "has":{"contains":{"type":"null"}},
			"minp":{"minProperties":2}, "maxp":{"maxProperties":0}, "names":{"propertyNames":{"maxLength":1}},
			"short":{"minLength":9}, "long":{"maxLength":1}, "form":{"pattern":"^a$"}, "day":{"format":"date"},
			"step":{"multipleOf":5}, "min":{"minimum":5}, "xmin":{"exclusiveMinimum":5}, "max":{"maximum":5}, "xmax":{"exclusiveMaximum":5},
			"a/b~c":{"type":"object","properties":{"list":{"items":{"type":"string"}}}}}}`)
	found, err := s.Validate(json.RawMessage(`{"t":"SECRET","c":"SECRET","e":"SECRET","any":"SECRET","one":"SECRET","all":"SECRET",
		"no":"SECRET","never":"SECRET","if":"SECRET","else":"SECRET","dep":{"a":"SECRET"},"few":["SECRET"],"many":["SECRET"],
		"same":["SECRET","SECRET"],"more":["SECRET","SECRET"],"has":["SECRET"],"minp":{"a":"SECRET"},"maxp":{"a":"SECRET"},
		"names":{"ab":"SECRET"},"short":"SECRET","long":"SECRET","form":"SECRET","day":"SECRET","step":7.5,"min":4.25,"xmin":5,"max":5.25,"xmax":5.0,
		"a/b~c":{"list":["x",4711]},"extra":"SECRET"}`))
	require.NoError(t, err)
	byPlace := map[string][]string{}
	for i, v := range found {
		require.NotContains(t, fmt.Sprintf("%+v", v), "SECRET")
		require.NotContains(t, fmt.Sprintf("%+v", v), "4711")
		require.NotEmpty(t, v.Detail, v.Code)
		require.Empty(t, v.Got)
		if i > 0 {
			require.LessOrEqual(t, found[i-1].Field, v.Field)
		}
		byPlace[v.Field] = append(byPlace[v.Field], strings.TrimPrefix(v.Code, "schema."))
	}
	require.Equal(t, map[string][]string{
		"/must": {"required"}, "/extra": {"additional_properties"}, "/t": {"type"}, "/c": {"const"}, "/e": {"enum"},
		"/any": {"any_of", "type"}, "/one": {"one_of", "type"}, "/all": {"all_of", "type"}, "/no": {"not"}, "/never": {"false_schema"},
		"/if": {"then", "type"}, "/else": {"else", "type"}, "/dep": {"dependencies"}, "/few": {"min_items"}, "/many": {"max_items"},
		"/same": {"unique_items"}, "/more": {"additional_items"}, "/has": {"contains"}, "/has/0": {"type"}, "/minp": {"min_properties"}, "/maxp": {"max_properties"},
		"/names": {"max_length"}, "/names/ab": {"property_names"}, "/short": {"min_length"}, "/long": {"max_length"}, "/form": {"pattern"},
		"/day": {"format"}, "/step": {"multiple_of"}, "/min": {"minimum"}, "/xmin": {"exclusive_minimum"}, "/max": {"maximum"}, "/xmax": {"exclusive_maximum"},
		"/a~1b~0c/list/1": {"type"},
	}, byPlace)
	for name, keyword := range keywords {
		require.NotEmpty(t, sentences[keyword], name)
	}
}

func TestValidateNumbers(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"properties":{"a":{"type":"number","multipleOf":0.01,"maximum":12500.00},"n":{"type":"integer"}}}`)
	for document, valid := range map[string]bool{
		`{"a":12500.00}`: true, `{"a":0.07}`: true, `{"a":12500.01}`: false, `{"a":0.001}`: false,
		`{"n":1.0}`: true, `{"n":1e2}`: true, `{"n":1.5}`: false, `{"n":9007199254740993}`: true,
	} {
		found, err := s.Validate(json.RawMessage(document))
		require.NoError(t, err)
		require.Equal(t, valid, len(found) == 0, document)
	}
	for _, document := range []string{`{"a":1e1000000}`, `{"a":1e99999999999}`, `{"a":` + strings.Repeat("9", 70) + `}`, `{"a":1} x`, `{`, ``} {
		_, err := s.Validate(json.RawMessage(document))
		require.Equal(t, "schema.document_invalid", fault.CodeOf(err), document)
	}
}

func TestValidateDates(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"properties":{"d":{"format":"date"},"t":{"format":"date-time"}}}`)
	for document, valid := range map[string]bool{
		`{"d":"2026-03-31"}`: true, `{"d":"2024-02-29"}`: true, `{"d":"2000-02-29"}`: true, `{"d":"0001-01-01"}`: true,
		`{"d":"2026-02-29"}`: false, `{"d":"1900-02-29"}`: false, `{"d":"2026-04-31"}`: false, `{"d":"2026-13-01"}`: false,
		`{"d":"2026-3-1"}`: false, `{"d":"0000-01-01"}`: false, `{"d":"2026-03-31T00:00:00Z"}`: false, `{"d":" 2026-03-31"}`: false,
		`{"d":"２０26-03-31"}`: false, `{"d":""}`: false, `{"d":"+026-03-31"}`: false, `{"d":5}`: false,
		`{"t":"2026-03-31T10:00:00Z"}`: true, `{"t":"2026-03-31T10:00:00.123456+02:00"}`: true,
		`{"t":"2026-03-31"}`: false, `{"t":"10:00:00"}`: false, `{"t":"2026-03-31T1:00:00Z"}`: false, `{"t":"2026-03-31 10:00:00Z"}`: false,
	} {
		found, err := s.Validate(json.RawMessage(document))
		require.NoError(t, err)
		require.Equal(t, valid, len(found) == 0, document)
	}
}

func TestValidateHostileDocuments(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"type":"array","items":{"type":"string"}}`)
	found, err := s.Validate(json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 5000), ",") + "]"))
	require.NoError(t, err)
	require.Len(t, found, maxViolations)

	names := make([]string, maxPatternedNames+1)
	for i := range names {
		names[i] = fmt.Sprintf(`"n%d":1`, i)
	}
	s = mustCompile(t, `{"patternProperties":{"^n":{"type":"string"}}}`)
	found, err = s.Validate(json.RawMessage("{" + strings.Join(names, ",") + "}"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "schema.pattern_properties", found[0].Code)
}

func TestValidatePatternCost(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"type":"string","pattern":"^(a+)+$"}`)
	done := make(chan error, 1)
	go func() {
		_, err := s.Validate(json.RawMessage(`"` + strings.Repeat("a", 64_000) + `!"`))
		done <- err
	}()
	// A backtracking matcher would try 2^64000 ways, so any limit finds it.
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "the pattern is matched by backtracking")
	}
}

func TestValidate_SizeLimits(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"properties":{"lines":{"type":"array","minItems":2,"maxItems":1000},"text":{"type":"string","minLength":3,"maxLength":5},
		"map":{"type":"object","minProperties":1,"maxProperties":1}}}`)
	for document, detail := range map[string]string{
		`{"lines":[` + strings.Repeat("1,", 1000) + `1]}`: "The limit is 1,000 elements; this value has 1,001.",
		`{"lines":[1]}`:         "The minimum is 2 elements; this value has 1.",
		`{"text":"Größer"}`:     "The limit is 5 characters; this value has 6.",
		`{"text":"ö"}`:          "The minimum is 3 characters; this value has 1.",
		`{"map":{"a":1,"b":2}}`: "The limit is 1 member; this value has 2.",
		`{"map":{}}`:            "The minimum is 1 member; this value has 0.",
	} {
		found, err := s.Validate(json.RawMessage(document))
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, detail, found[0].Detail)
	}
}
