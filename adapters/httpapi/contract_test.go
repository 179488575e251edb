package httpapi

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
)

func TestEveryKindHasAStatus(t *testing.T) {
	t.Parallel()
	require.Len(t, statuses, len(fault.Kinds()))
	for _, k := range fault.Kinds() {
		require.GreaterOrEqual(t, statuses[k], 400, k.String())
	}
}

// Every operation of the committed document has its right here, and is open in
// the document exactly when it needs none.
func TestEveryOperationIsGuarded(t *testing.T) {
	t.Parallel()
	loader := openapi3.NewLoader()
	committed, err := loader.LoadFromData(coreDocument)
	require.NoError(t, err)
	require.NoError(t, committed.Validate(loader.Context, openapi3.EnableExamplesValidation()))
	seen := map[string]bool{}
	for path, item := range committed.Paths.Map() {
		for method, o := range item.Operations() {
			op, known := operations[o.OperationID]
			require.True(t, known, "%s %s has no entry in operations", method, path)
			seen[o.OperationID] = true
			require.Equal(t, op.action == "", o.Security != nil && len(*o.Security) == 0, "%s %s", method, path)
			var listed []string
			for _, p := range o.Parameters {
				if p.Value.In == "query" {
					listed = append(listed, p.Value.Name)
				}
			}
			require.ElementsMatch(t, listed, op.filters, "%s %s", method, path)
			need := noBody
			if o.RequestBody != nil {
				need = optionalBody
				if o.RequestBody.Value.Required {
					need = requiredBody
				}
			}
			require.Equal(t, need, op.body, "%s %s", method, path)
		}
	}
	require.Len(t, operations, len(seen), "operations has entries that the document lacks")
}

type declared map[string]module.ReadModel

func (d declared) ReadModels() map[string]module.ReadModel { return d }
func (declared) IntentTypes() []module.IntentType          { return nil }
func (declared) Owner(string) string                       { return "" }

func TestReadModelsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	for path, params := range map[string][]module.Param{
		"events/latest":           nil,
		"gl/accounts/{account}/x": nil,
		"gl/accounts":             {{Name: "account", InPath: true}},
		"gl/{account}":            {{Name: "account"}},
		"gl/journal":              {{Name: "as_of"}},
	} {
		_, err := New(Config{Catalog: declared{path: {Params: params}}})
		require.Error(t, err, path)
		require.True(t, strings.Contains(err.Error(), path))
	}
}

func TestAWrongTypeIsLocated(t *testing.T) {
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
func TestTheDocumentOfTheBuiltInModules(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(jsonschema.New(), gl.New(), ap.New())
	require.NoError(t, err)
	s, err := New(Config{Catalog: catalog})
	require.NoError(t, err)
	loader := openapi3.NewLoader()
	served, err := loader.LoadFromData(s.document)
	require.NoError(t, err)
	require.NoError(t, served.Validate(loader.Context, openapi3.EnableExamplesValidation()))
	for path := range catalog.ReadModels() {
		require.NotNil(t, served.Paths.Value("/api/"+path), path)
	}
	intents, ok := served.Paths.Value("/api/intents").Post.Extensions["x-intents"].([]any)
	require.True(t, ok)
	require.Len(t, intents, len(catalog.IntentTypes()))
	again, err := New(Config{Catalog: catalog})
	require.NoError(t, err)
	require.Equal(t, string(s.document), string(again.document), "the same bytes every time")
	assembled, err := os.ReadFile("openapi/assembled.yaml")
	require.NoError(t, err)
	require.Equal(t, string(assembled), string(s.document), "openapi/assembled.yaml is not current; run make generate")
}
