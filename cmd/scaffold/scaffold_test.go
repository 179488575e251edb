package scaffold_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/cmd/scaffold"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	quotedFile = regexp.MustCompile("(?s)\n`([^`\n]+)`:\n\n```[a-z]+\n(.*?)```")
)

// page is docs/write-a-module.md, which explains a module named asset.
func page(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), "docs", "write-a-module.md"))
	require.NoError(t, err)
	return text
}

// TestWrite writes the module that the page explains. Its files do not name the skeleton,
// and what the page quotes of a file is in that file.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "asset")
	written, err := scaffold.Write(scaffold.Options{Name: "asset", Path: "example.com/asset", Dir: dir})
	require.NoError(t, err)
	for _, path := range written {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, strings.ToLower(path+string(content)), "skeleton", path)
	}
	quotes := quotedFile.FindAllSubmatch(page(t), -1)
	require.Len(t, quotes, 7)
	for _, quote := range quotes {
		content, err := os.ReadFile(filepath.Join(dir, string(quote[1])))
		require.NoError(t, err)
		require.Contains(t, string(content), string(quote[2]), "%s", quote[1])
	}
}

// TestDrillOwnRepository runs the commands of the page unchanged: they generate a module in
// a repository of its own, build it and run its tests. It compiles the product once more,
// as a dependency.
func TestDrillOwnRepository(t *testing.T) {
	t.Parallel()
	root, dir := testkit.RepoRoot(t), t.TempDir()
	folder := filepath.Join(dir, "work")
	require.NoError(t, os.Mkdir(folder, 0o750))
	require.NoError(t, os.Symlink(root, filepath.Join(dir, "backbone")))
	program := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "bin", "backbone"), "./cmd/backbone")
	program.Dir = root
	out, err := program.CombinedOutput()
	require.NoError(t, err, "%s", out)
	script := shellBlock.FindSubmatch(page(t))
	require.NotNil(t, script)
	shell := exec.CommandContext(t.Context(), "sh", "-e", "-c", string(script[1]))
	shell.Dir = folder
	shell.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"), "GOWORK=off")
	out, err = shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestWrite_Refusals(t *testing.T) {
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
