package scaffold_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/cmd/scaffold"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestWrite builds a generated module and runs its tests, in a repository of its own and
// without a network: what it imports is in the module cache, since this repository does.
func TestWrite(t *testing.T) {
	t.Parallel()
	root, dir := testkit.RepoRoot(t), filepath.Join(t.TempDir(), "asset")
	written, err := scaffold.Write(scaffold.Options{Name: "asset", Path: "example.com/asset", Dir: dir, Checkout: root})
	require.NoError(t, err)
	for _, path := range written {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, strings.ToLower(path+string(content)), "skeleton", path)
	}
	for _, args := range [][]string{{"build", "-o", os.DevNull, "./..."}, {"test", "./..."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false -trimpath", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "notes.txt"), nil, 0o600))
	for name, c := range map[string]struct{ module, dir, code string }{
		"capital letters":       {"Asset", t.TempDir(), "scaffold.name_invalid"},
		"word of Go":            {"func", t.TempDir(), "scaffold.name_invalid"},
		"built-in module":       {"gl", t.TempDir(), "scaffold.name_invalid"},
		"no name":               {"", t.TempDir(), "scaffold.name_invalid"},
		"folder that has files": {"asset", full, "scaffold.folder_not_empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := scaffold.Write(scaffold.Options{Name: c.module, Path: "example.com/asset", Dir: c.dir})
			require.Equal(t, c.code, fault.CodeOf(err))
		})
	}
}
