package e2e

import (
	"os"
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
