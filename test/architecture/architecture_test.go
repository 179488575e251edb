package architecture

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// topLevelFolders are fixed by the product's owner.
var topLevelFolders = map[string]bool{
	"domain": true, "application": true, "ports": true, "adapters": true, "modules": true,
	"sql": true, "cmd": true, "configs": true, "test": true, "docs": true,
}

// ignoredFolders are made by the build and by running, and never committed.
var ignoredFolders = map[string]bool{"bin": true, "dev-data": true}

// report fails the test once, with every finding.
func report(t *testing.T, findings []string, rule string) {
	t.Helper()
	require.Empty(t, strings.Join(findings, "\n"), rule)
}

func TestTopLevelFolders(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(testkit.RepoRoot(t))
	require.NoError(t, err)
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() || strings.HasPrefix(name, ".") || ignoredFolders[name] {
			continue
		}
		require.True(t, topLevelFolders[name], "%s is not one of the fixed top-level folders", name)
	}
}

func TestImportsFollowTheTable(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readSources(t) {
		if !s.isGo() {
			continue
		}
		_, file := s.parse()
		if file == nil {
			continue
		}
		for _, finding := range importViolations(s.folder(), s.isTest(), importPaths(file)) {
			findings = append(findings, violation(s.path, 1, "%s", finding))
		}
	}
	report(t, findings, "imports against the layers")
}

func TestFilesStayReadable(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readSources(t) {
		if lines := lineCount(s.content); !s.generated && lines > maximumLines {
			findings = append(findings, violation(s.path, lines, "%d lines, more than %d; one concept to a file", lines, maximumLines))
		}
	}
	report(t, findings, "files too long")
}

func TestTestsDoNotSleep(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readSources(t) {
		if !s.isGo() || !s.isTest() && !strings.HasPrefix(s.path, "test/") {
			continue
		}
		positions, file := s.parse()
		if file == nil {
			continue
		}
		for _, line := range callsTo(positions, file, "time", "Sleep") {
			findings = append(findings, violation(s.path, line, "wait on a condition instead (testkit.Eventually)"))
		}
	}
	report(t, findings, "sleeping in tests")
}

func TestMoneyIsNeverABinaryFraction(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readSources(t) {
		inside := strings.HasPrefix(s.path, "domain/") || strings.HasPrefix(s.path, "modules/")
		if !s.isGo() || !inside || s.isTest() || s.generated {
			continue
		}
		positions, file := s.parse()
		if file == nil {
			continue
		}
		for _, line := range floats(positions, file) {
			findings = append(findings, violation(s.path, line, "use domain/money; only names with seconds, perSecond, millis or ratio may be floats"))
		}
	}
	report(t, findings, "binary fractions")
}
