package httpapi

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/test/testkit"
)

func TestStatusOfEveryFaultKind(t *testing.T) {
	t.Parallel()
	require.Len(t, statuses, len(fault.Kinds()))
	for _, k := range fault.Kinds() {
		require.GreaterOrEqual(t, statuses[k], 400, k.String())
	}
}

func coreOperations(t *testing.T) map[string]operation {
	t.Helper()
	derived, err := documentedOperations(Limits{BatchEvents: 100, EntityRefs: 128, Tags: 32})
	require.NoError(t, err)
	out := make(map[string]operation, len(derived))
	for _, o := range derived {
		out[o.id] = o
	}
	return out
}

// TestDocumentedOperations compares the derived routes with what a reader of OpenAPI
// documents finds in the same document.
func TestDocumentedOperations(t *testing.T) {
	t.Parallel()
	loader := openapi3.NewLoader()
	core, err := loader.LoadFromData(coreDocument)
	require.NoError(t, err)
	require.NoError(t, core.Validate(loader.Context, openapi3.EnableExamplesValidation()))
	derived, seen := coreOperations(t), 0
	for path, item := range core.Paths.Map() {
		for method, o := range item.Operations() {
			seen++
			op, known := derived[o.OperationID]
			require.True(t, known, "%s %s", method, path)
			require.Regexp(t, "^[a-z]+([A-Z][a-z]+)+$", o.OperationID)
			require.Equal(t, method, op.method)
			require.Equal(t, op.action == "", o.Security != nil && len(*o.Security) == 0, "%s %s", method, path)
			var listed []parameter
			for _, p := range o.Parameters {
				listed = append(listed, parameter{p.Value.Name, p.Value.In, p.Value.Required})
			}
			require.ElementsMatch(t, listed, op.parameters, "%s %s", method, path)
			use := noBody
			if o.RequestBody != nil {
				use = optionalBody
				if o.RequestBody.Value.Required {
					use = requiredBody
				}
			}
			require.Equal(t, use, op.body, "%s %s", method, path)
		}
	}
	require.Len(t, derived, seen)
}

// TestRequestBodies_ListsAreBounded finds every list and every map of typed values in the request
// bodies of the document, and holds that the scanner refuses one member too many there.
func TestRequestBodies_ListsAreBounded(t *testing.T) {
	t.Parallel()
	core, err := openapi3.NewLoader().LoadFromData(coreDocument)
	require.NoError(t, err)
	derived, lists := coreOperations(t), 0
	for path, item := range core.Paths.Map() {
		for method, o := range item.Operations() {
			if o.RequestBody == nil {
				continue
			}
			if derived[o.OperationID].binary {
				continue
			}
			shape := derived[o.OperationID].shape
			require.Len(t, o.RequestBody.Value.Content, 1)
			// before and after are the document around the place of the schema.
			var walk func(schema *openapi3.Schema, pointer, before, after string)
			walk = func(schema *openapi3.Schema, pointer, before, after string) {
				at := method + " " + path + " " + pointer
				for _, variant := range slices.Concat(schema.OneOf, schema.AllOf, schema.AnyOf) {
					walk(variant.Value, pointer, before, after)
				}
				open, member, end, bound := "[", "null", "]", schema.MaxItems
				if values := schema.AdditionalProperties.Schema; values != nil {
					walk(values.Value, pointer+"/0", before+`{"0":`, "}"+after)
					open, member, end, bound = "{", `"%d":null`, "}", schema.MaxProps
				}
				if schema.Type.Is("array") || open == "{" {
					lists++
					limit, isSetting := map[any]int{"limits.batch_events": 100, "limits.entity_refs": 128, "limits.tags": 32}[schema.Extensions["x-limit"]]
					if !isSetting {
						require.NotNil(t, bound, "%s needs maxItems, maxProperties or x-limit", at)
						limit = int(*bound)
					}
					document := func(members int) []byte {
						var list strings.Builder
						for i := range members {
							if i > 0 {
								list.WriteByte(',')
							}
							list.WriteString(strings.Replace(member, "%d", strconv.Itoa(i), 1))
						}
						return []byte(before + open + list.String() + end + after)
					}
					require.NoError(t, jsondoc.Check(document(limit), jsondoc.Limits{Shape: shape}), at)
					f, ok := fault.As(jsondoc.Check(document(limit+1), jsondoc.Limits{Shape: shape}))
					require.True(t, ok, at)
					require.Equal(t, fault.TooLarge, f.Kind, at)
					require.Equal(t, pointer, f.Field, at)
					require.Equal(t, limit, f.Attributes["limit"], at)
				}
				if schema.Items != nil {
					walk(schema.Items.Value, pointer+"/0", before+"[", "]"+after)
				}
				for name, property := range schema.Properties {
					walk(property.Value, pointer+"/"+name, before+`{"`+name+`":`, "}"+after)
				}
			}
			walk(o.RequestBody.Value.Content["application/json"].Schema.Value, "", "", "")
		}
	}
	require.Greater(t, lists, 50)
}

// TestListSchemas holds the shape of lists: one array of rows, and the cursor of the
// next page under one name.
func TestListSchemas(t *testing.T) {
	t.Parallel()
	core, err := openapi3.NewLoader().LoadFromData(coreDocument)
	require.NoError(t, err)
	for path, item := range core.Paths.Map() {
		for method, o := range item.Operations() {
			if !strings.HasPrefix(o.OperationID, "list") && o.OperationID != "getProjectionRows" {
				continue
			}
			list := o.Responses.Value("200").Value.Content.Get("application/json").Schema.Value
			rows := 0
			for _, member := range list.Properties {
				if member.Value.Type.Is("array") {
					rows++
				}
			}
			require.Equal(t, 1, rows, "%s %s", method, path)
			require.Equal(t, "#/components/schemas/NextCursor", list.Properties["next_cursor"].Ref, "%s %s", method, path)
		}
	}
}

type catalogStub map[string]module.ReadModel

func (d catalogStub) ReadModels() map[string]module.ReadModel { return d }
func (catalogStub) IntentTypes() []module.IntentType          { return nil }
func (catalogStub) Files() map[string]module.File             { return nil }
func (catalogStub) Owner(string) string                       { return "" }

func (catalogStub) StreamOwner(string) string { return "" }

// anyLimits are for servers that answer no request.
var anyLimits = Limits{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}

func TestInvalidReadModels(t *testing.T) {
	t.Parallel()
	for path, params := range map[string][]module.Param{
		"events/latest":           nil,
		"gl/accounts/{account}/x": nil,
		"gl/accounts":             {{Name: "account", InPath: true}},
		"gl/{account}":            {{Name: "account"}},
		"gl/journal":              {{Name: "as_of"}},
	} {
		_, err := New(Config{Catalog: catalogStub{path: {Params: params}}, Limits: anyLimits, Logger: slog.New(slog.DiscardHandler)})
		require.Error(t, err, path)
		require.True(t, strings.Contains(err.Error(), path))
	}
}

func TestPointerAt(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"events":[{"type":"a","tags":["x"]},{"type":"b","stream":{"type":"m","id":17}}]}`: "/events/1/stream/id",
		`{"events":[{"type":"a","tags":["x",1]}]}`:                                          "/events/0/tags/1",
		`{"events":[{"type":"a","tags":{"x":1}}]}`:                                          "/events/0/tags",
		`{"events":[{"type":"a","stream":[]}]}`:                                             "/events/0/stream",
		`{"events":[{"dimensions":{"a/b":{}}}]}`:                                            "/events/0/dimensions/a~1b",
		`{"events":7}`:                                                                      "/events",
		`[]`:                                                                                "",
	} {
		var decoded api.AppendRequest
		var mistyped *json.UnmarshalTypeError
		require.ErrorAs(t, json.Unmarshal([]byte(body), &decoded), &mistyped, body)
		require.Equal(t, want, pointerAt([]byte(body), mistyped.Offset), body)
	}
}

// The document of the built-in modules is a valid one and has all their read
// models and intents.
func TestDocumentOfBuiltInModules(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(jsonschema.New(), gl.New(), ap.New())
	require.NoError(t, err)
	s, err := New(Config{Catalog: catalog, Limits: anyLimits, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	document := string(testkit.Must(s.document()))
	loader := openapi3.NewLoader()
	served, err := loader.LoadFromData([]byte(document))
	require.NoError(t, err)
	require.NoError(t, served.Validate(loader.Context, openapi3.EnableExamplesValidation()))
	for path := range catalog.ReadModels() {
		require.NotNil(t, served.Paths.Value("/api/"+path), path)
	}
	intents, ok := served.Paths.Value("/api/intents").Post.Extensions["x-intents"].([]any)
	require.True(t, ok)
	require.Len(t, intents, len(catalog.IntentTypes()))
	again, err := New(Config{Catalog: catalog, Limits: anyLimits, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.Equal(t, document, string(testkit.Must(again.document())), "the same bytes every time")
	assembled, err := os.ReadFile("openapi/assembled.yaml")
	require.NoError(t, err)
	require.Equal(t, string(assembled), document, "openapi/assembled.yaml is not current; run make generate")
}

// FuzzDecodeBody decodes what the scanner accepts into the largest request: no panic, and a
// typed refusal that points into the document.
func FuzzDecodeBody(f *testing.F) {
	operations, err := documentedOperations(Limits{BatchEvents: 2, EntityRefs: 2, Tags: 2})
	require.NoError(f, err)
	at := slices.IndexFunc(operations, func(o operation) bool { return o.id == "appendEvents" })
	limits := jsondoc.Limits{Shape: operations[at].shape}
	for _, seed := range []string{
		`{"events":[{"type":"a.b.c","data":{"x":[1,{}]},"tags":["a","b"],"expected_version":3}]}`, `{"events":[{},{},{}]}`, `{"EVENTS":[1]}`, `{"events":[{"data":1,"tags":[{}]}]}`,
		`{"events":[{"scope":{"custom":{"a":1}},"stream":{"id":7}}]}`, `{"tenant_id":"x"}`, `null`, `[]`, `{"append_condition":{"items":[{"types":[""]}],"after":5}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if jsondoc.Check(raw, limits) != nil {
			return
		}
		var request api.AppendRequest
		err := decodeBody(raw, &request)
		require.LessOrEqual(t, len(request.Events), 2)
		if err == nil {
			return
		}
		refusal, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, fault.Invalid, refusal.Kind)
		if refusal.Code == "json.wrong_type" {
			_, _, found, err := jsondoc.Locate(raw, refusal.Field)
			require.NoError(t, err)
			require.True(t, found, refusal.Field)
		}
	})
}
