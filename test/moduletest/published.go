package moduletest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
)

// RequirePublished compares every version of a module's event types with the digest of its
// schema as it was published, without the reasons of x-not-pii: databases hold these versions
// and start only with the same ones. testdata/published.txt of the test's package has a line
// "type version sha256" for each. A new version adds a line. A line changes only when its version
// gains optional members.
func RequirePublished(t testing.TB, catalog *module.Catalog, moduleName string) {
	t.Helper()
	var got []string
	for _, e := range catalog.EventTypes {
		if catalog.Owner(e.Type) == moduleName {
			got = append(got, fmt.Sprintf("%s %d %x", e.Type, e.SchemaVersion, sha256.Sum256(WithoutReasons(t, e.DataSchema))))
		}
	}
	slices.Sort(got)
	published, err := os.ReadFile("testdata/published.txt")
	require.NoError(t, err)
	want := slices.DeleteFunc(strings.Split(string(published), "\n"), func(line string) bool { return line == "" || line[0] == '#' })
	require.Equal(t, want, got)
}

// WithoutReasons is a schema without the reasons of x-not-pii, for schemas in which no member
// has that name.
func WithoutReasons(t testing.TB, schema json.RawMessage) json.RawMessage {
	t.Helper()
	var decoded any
	require.NoError(t, json.Unmarshal(schema, &decoded))
	removeReasons(decoded)
	out, err := json.Marshal(decoded)
	require.NoError(t, err)
	return out
}

func removeReasons(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "x-not-pii")
		for _, inner := range v {
			removeReasons(inner)
		}
	case []any:
		for _, inner := range v {
			removeReasons(inner)
		}
	}
}
