package architecture

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// topLevelFolders are fixed by the owner of the product.
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

// TestTopLevelFolders keeps the fixed set of folders, so that a reader knows where to look.
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

// TestImports holds imports against the table of layers: dependencies point inwards, to the
// domain, so that an adapter can be replaced without changes elsewhere.
func TestImports(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readGoFiles(t) {
		for _, finding := range importViolations(s.folder(), s.isTest(), importPaths(s.file)) {
			findings = append(findings, violation(s.path, 1, "%s", finding))
		}
	}
	report(t, findings, "imports against the layers")
}

// TestFileLength limits the length of a file, since a longer one hardly holds one concept.
func TestFileLength(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readSources(t) {
		if lines := lineCount(s.content); !s.generated && lines > maximumLines {
			findings = append(findings, violation(s.path, lines, "%d lines, more than %d; one concept to a file", lines, maximumLines))
		}
	}
	report(t, findings, "files too long")
}

// TestNoSleepInTests forbids time.Sleep in tests: a sleep is too short on a busy machine and too
// long on an idle one.
func TestNoSleepInTests(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readGoFiles(t) {
		if !s.isTest() && !strings.HasPrefix(s.path, "test/") {
			continue
		}
		for _, line := range callsTo(s.positions, s.file, "time", "Sleep") {
			findings = append(findings, violation(s.path, line, "wait in simulated time (testing/synctest), or for a condition (testkit.Eventually)"))
		}
	}
	report(t, findings, "sleeping in tests")
}

// TestNoFloats forbids floats in the domain and in modules but for measurements, since a binary
// fraction cannot represent an amount such as 0.10 exactly.
func TestNoFloats(t *testing.T) {
	t.Parallel()
	var findings []string
	for _, s := range readGoFiles(t) {
		inside := strings.HasPrefix(s.path, "domain/") || strings.HasPrefix(s.path, "modules/")
		if !inside || s.isTest() || s.generated {
			continue
		}
		for _, line := range floats(s.positions, s.file) {
			findings = append(findings, violation(s.path, line, "use domain/money; only names with seconds, perSecond, millis or ratio may be floats"))
		}
	}
	report(t, findings, "binary fractions")
}
