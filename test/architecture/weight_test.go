package architecture

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestHeavyLibraries keeps libraries out of the program that were measured and dropped: each
// cost more to build or to link than its use was worth.
func TestHeavyLibraries(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "./cmd/backbone")
	list.Dir = testkit.RepoRoot(t)
	out, err := list.Output()
	require.NoError(t, err)
	for _, heavy := range []string{
		"github.com/nats-io/nats-server/",          // 24 s of CPU to build, 8 MB: `dev --nats` starts an installed one
		"google.golang.org/grpc",                   // 62 packages, with the OTLP exporters of the SDK
		"github.com/mattn/go-runewidth",            // 2.5 MB of tables, for a progress bar
		"github.com/open-policy-agent/opa/v1/rego", // 8 s: a planner, a WebAssembly compiler and a bundle loader
		"github.com/erpbackbone/backbone/adapters/memory",
	} {
		for dep := range strings.Lines(string(out)) {
			require.False(t, strings.HasPrefix(dep, heavy), "cmd/backbone links %s", strings.TrimSpace(dep))
		}
	}
}
