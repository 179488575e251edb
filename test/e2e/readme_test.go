package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	readmeServer = "http://127.0.0.1:8080"
	readmeData   = "dev-data"
	readmeBinary = "bin/backbone"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(repository(t, "README.md"))
	require.NoError(t, err)
	return string(text)
}

// compareReadme holds the output that the README shows against what was printed,
// but for what differs from run to run: ids, numbers given in a race, times, ports,
// folders, the width of columns, and the set-up, which copied books have behind
// them.
func compareReadme(t *testing.T, d *dev, printed string) {
	t.Helper()
	_, shown, found := strings.Cut(readme(t), "<!-- output: make run -->\n```\n")
	require.True(t, found, "the README marks the output of make run")
	shown, _, _ = strings.Cut(shown, "```")
	printed = strings.NewReplacer(d.HTTP, readmeServer, d.dataDir, readmeData, program(t), readmeBinary).Replace(printed)
	for _, r := range []struct{ pattern, replacement string }{
		{`[0-7][0-9A-HJKMNP-TV-Z]{25}`, "ULID"}, {`bbk_\S+`, "TOKEN"}, {`V-\d{6}`, "V-N"}, {`sequence \d+`, "sequence N"},
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`, "TIME"}, {`(?m)(PostgreSQL is up on 127\.0\.0\.1:)\d+$`, "${1}PORT"},
		{`(?s)Setting up .*?\n(Ready: )`, "$1"}, {` +`, " "},
	} {
		pattern := regexp.MustCompile(r.pattern)
		shown, printed = pattern.ReplaceAllString(shown, r.replacement), pattern.ReplaceAllString(printed, r.replacement)
	}
	require.Equal(t, shown, printed)
}

var shellBlock = regexp.MustCompile("(?ms)^( *)```sh\n(.*?)^ *```$")

// runReadme runs the commands that the README says to try, in its order, in a
// folder that looks like a checkout after make run.
func runReadme(t *testing.T, d *dev) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed on this machine")
	}
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o750))
	require.NoError(t, os.Symlink(program(t), filepath.Join(folder, readmeBinary)))
	require.NoError(t, os.Symlink(d.dataDir, filepath.Join(folder, readmeData)))
	require.NoError(t, os.Symlink(repository(t, "test"), filepath.Join(folder, "test")))

	_, section, found := strings.Cut(readme(t), "\n## Try it\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := shellBlock.FindAllStringSubmatch(section, -1)
	require.GreaterOrEqual(t, len(blocks), 5)
	preface := ""
	for i, block := range blocks {
		script := strings.ReplaceAll(block[2], readmeServer, d.HTTP)
		if i == 0 {
			preface = script
			continue
		}
		shell := exec.Command("sh", "-e", "-c", preface+script)
		shell.Dir, shell.Env = folder, cleanEnvironment()
		out, err := shell.CombinedOutput()
		require.NotContains(t, string(out), "/problems/", script)
		if strings.Contains(script, "ap import") {
			var exited *exec.ExitError
			require.True(t, errors.As(err, &exited), "three of the sample documents are refused\n%s", out)
			require.Equal(t, 1, exited.ExitCode(), "%s", out)
			require.Contains(t, string(out), "6 accepted")
			continue
		}
		require.NoError(t, err, "%s\n%s", script, out)
	}
}
