package architecture

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"

	"github.com/erpbackbone/backbone/test/testkit"
)

// confined lists every library with the packages that may import it, so that replacing
// one touches nothing else. A trailing slash includes what lies below. Tests are free:
// they check what is behind a port from outside.
var confined = []struct {
	library string
	in      []string
}{
	// One technology, one adapter.
	{"github.com/aws/", []string{"adapters/awskms/", "adapters/kmsd/", "adapters/s3/", "test/testkit/s3test/"}},
	{"github.com/coder/websocket", []string{"adapters/httpapi/"}},
	{"github.com/getkin/kin-openapi", nil},
	{"github.com/google/uuid", []string{"adapters/kmsd/", "adapters/memory/"}},
	{"github.com/hashicorp/golang-lru", []string{"adapters/opa/"}},
	{"github.com/itchyny/gojq", []string{"adapters/jq/"}},
	{"github.com/jackc/", []string{"adapters/postgres/", "adapters/embeddedpg/", "adapters/plugin/", "modules/*/adapters/postgres/", "modules/*/adapters/plugin/", "cmd/scaffold/skeleton/", "cmd/cli/", "cmd/wire/", "test/testkit/"}},
	{"github.com/klauspost/compress/", []string{"domain/archive"}},
	{"github.com/labstack/", []string{"adapters/httpapi/"}},
	{"github.com/nats-io/nats-server/", []string{"test/testkit/natstest/"}},
	{"github.com/nats-io/nats.go", []string{"adapters/nats/"}},
	{"github.com/open-policy-agent/", []string{"adapters/opa/"}},
	{"github.com/pdfcpu/pdfcpu/", []string{"modules/ap/adapters/einvoice"}},
	{"github.com/pressly/goose", []string{"adapters/postgres/"}},
	{"github.com/prometheus/", []string{"adapters/prometheus/"}},
	{"github.com/xeipuuv/", []string{"adapters/jsonschema/"}},
	{"golang.org/x/mod/sumdb/note", []string{"adapters/signednote/"}},
	{"golang.org/x/mod/sumdb/tlog", []string{"domain/globallog"}},
	{"golang.org/x/text/", []string{"domain/blindindex/", "domain/companyname/", "domain/eventtype/", "modules/ap/adapters/csvinvoice/"}},
	// What has no side effects, and what has only them.
	{"github.com/cockroachdb/apd/", []string{"domain/money"}},
	{"github.com/oklog/ulid/", []string{"domain/event/", "adapters/system/"}},
	{"go.opentelemetry.io/", []string{"adapters/httpapi/", "adapters/telemetry/"}},
	{"google.golang.org/protobuf/", []string{"adapters/telemetry/"}},
	// The command line and its composition.
	{"github.com/exaring/otelpgx", []string{"cmd/wire/"}},
	{"github.com/knadh/koanf/", []string{"configs/"}},
	{"github.com/spf13/cobra", []string{"adapters/plugin/", "cmd/cli/", "modules/*/adapters/cli/"}},
	{"go.yaml.in/yaml/", []string{"adapters/httpapi/", "cmd/cli/", "modules/ap/adapters/csvinvoice/"}},
	{"golang.org/x/sync/", []string{"cmd/cli/"}},
	{"golang.org/x/term", []string{"cmd/cli/", "modules/*/adapters/cli/"}},
	// Tests only.
	{"github.com/anishathalye/porcupine", nil},
	{"github.com/spf13/pflag", nil},
	{"github.com/standard-webhooks/", nil},
	{"github.com/stretchr/testify/", nil},
	{"golang.org/x/mod/modfile", nil},
	{"golang.org/x/net/", nil},
	{"pgregory.net/rapid", nil},
}

// confinedTo returns the packages that may import a library.
func confinedTo(path string) (in []string, found bool) {
	for _, c := range confined {
		if path == strings.TrimSuffix(c.library, "/") || strings.HasPrefix(path, c.library) {
			return c.in, true
		}
	}
	return nil, false
}

// TestLibraries holds imports and the direct requirements of go.mod against the table of
// libraries: a library without an entry, an entry without imports, and an entry that names an
// unused package are findings.
func TestLibraries(t *testing.T) {
	t.Parallel()
	imported := map[string]bool{}
	used := map[string]bool{} // library and room
	var findings []string
	for _, s := range readGoFiles(t) {
		for _, path := range importPaths(s.file) {
			if isStandard(path) || strings.HasPrefix(path, module) {
				continue
			}
			imported[path] = true
			rooms, found := confinedTo(path)
			if !found {
				findings = append(findings, violation(s.path, 1, "imports %s, which has no room; add it to confined", path))
			}
			for _, room := range rooms {
				if _, ok := matchFolder(room, s.folder()); ok && !s.isTest() {
					used[libraryOf(path)+" "+room] = true
				}
			}
		}
	}
	for _, c := range confined {
		if !slices.ContainsFunc(keys(imported), func(path string) bool { return libraryOf(path) == c.library }) {
			findings = append(findings, c.library+" has a room and is imported nowhere")
		}
		for _, room := range c.in {
			if !used[c.library+" "+room] {
				findings = append(findings, c.library+" has the room "+room+" and is not used there")
			}
		}
	}
	root := testkit.RepoRoot(t)
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	parsed, err := modfile.Parse("go.mod", text, nil)
	require.NoError(t, err)
	for _, r := range parsed.Require {
		if r.Indirect {
			continue
		}
		if !slices.ContainsFunc(keys(imported), func(path string) bool { return path == r.Mod.Path || strings.HasPrefix(path, r.Mod.Path+"/") }) {
			findings = append(findings, "go.mod requires "+r.Mod.Path+" directly and nothing imports it")
		}
	}
	report(t, findings, "libraries without their room")
}

// libraryOf is the entry of confined that a path falls under, "" without one.
func libraryOf(path string) string {
	for _, c := range confined {
		if path == strings.TrimSuffix(c.library, "/") || strings.HasPrefix(path, c.library) {
			return c.library
		}
	}
	return ""
}

func keys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}
