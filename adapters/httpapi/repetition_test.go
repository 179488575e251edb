package httpapi_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// Every write takes an idempotency key, leads to the same state when it is repeated (PUT, DELETE,
// x-repeatable), or is in the table of docs/api.md that says what its repetition does.
func TestWrites_RepetitionIsDocumented(t *testing.T) {
	t.Parallel()
	document, err := openapi3.NewLoader().LoadFromFile("openapi/openapi.yaml")
	require.NoError(t, err)
	var others []string
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			keyed := slices.ContainsFunc(operation.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.Name == "Idempotency-Key" })
			if _, repeatable := operation.Extensions["x-repeatable"]; keyed && repeatable {
				t.Errorf("%s takes a key, and is said to need none", operation.OperationID)
			} else if method == "POST" && !keyed && !repeatable {
				others = append(others, "POST "+path)
			}
		}
	}
	page, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## Repeat a write")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, match := range regexp.MustCompile("`(POST /api/[^`]*)`").FindAllStringSubmatch(section, -1) {
		documented = append(documented, match[1])
	}
	require.ElementsMatch(t, others, documented)
}
