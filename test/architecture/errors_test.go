package architecture

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// internalCodes are handled inside the program and never reach a caller.
var internalCodes = map[string]bool{
	"auth.token_unknown":       true, // becomes auth.token_invalid
	"kms.alias_taken":          true, // the caller that lost the race reads the winner's key
	"lease.invalid":            true, // refuses a request that no caller of leases makes
	"webhook.endpoint_deleted": true, // marks the row of a deleted endpoint
	"webhook.status_410":       true, // one of webhook.status_<status>
}

var codeForm = regexp.MustCompile(`^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$`)

// faultCodes lists the codes of faults in a file: the second argument of fault.New, and
// constants that are named for a code.
func faultCodes(positions *token.FileSet, file *ast.File) map[string]int {
	out := map[string]int{}
	add := func(e ast.Expr) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return
		}
		if code, err := strconv.Unquote(literal.Value); err == nil && codeForm.MatchString(code) {
			out[code] = positions.Position(literal.Pos()).Line
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if called, ok := n.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "New" && len(n.Args) > 2 {
				if pkg, ok := called.X.(*ast.Ident); ok && pkg.Name == "fault" {
					add(n.Args[1])
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if strings.HasPrefix(strings.ToLower(name.Name), "code") && i < len(n.Values) {
					add(n.Values[i])
				}
			}
		}
		return true
	})
	return out
}

// readErrorPages returns the pages of docs/errors by name.
func readErrorPages(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(testkit.RepoRoot(t), "docs", "errors", "*.md"))
	require.NoError(t, err)
	out := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		out[filepath.Base(page)] = string(text)
	}
	return out
}

// readProgram returns the Go files whose faults callers may get.
func readProgram(t *testing.T) []goFile {
	t.Helper()
	return slices.DeleteFunc(readGoFiles(t), func(s goFile) bool {
		return s.isTest() || s.generated || strings.HasPrefix(s.path, "test/") || strings.HasPrefix(s.path, "cmd/scaffold/skeleton/")
	})
}

// TestFaultCodes requires a description in docs/errors for every code that a caller may get.
func TestFaultCodes(t *testing.T) {
	t.Parallel()
	documented := strings.Join(slices.Collect(maps.Values(readErrorPages(t))), "")
	var findings []string
	for _, s := range readProgram(t) {
		for code, line := range faultCodes(s.positions, s.file) {
			if !internalCodes[code] && !strings.Contains(documented, "`"+code+"`") {
				findings = append(findings, violation(s.path, line, "%s is on no page of docs/errors", code))
			}
		}
	}
	report(t, findings, "codes without a description")
}

// TestDocumentedCodes requires that the program has each code in the first column of a table of
// docs/errors, and that the README leads from its prefix to the pages of answers.
func TestDocumentedCodes(t *testing.T) {
	t.Parallel()
	var program strings.Builder
	for _, s := range readProgram(t) {
		program.Write(s.content)
	}
	has := func(literal string) bool { return strings.Contains(program.String(), strconv.Quote(literal)) }
	pages := readErrorPages(t)
	row, code := regexp.MustCompile("(?m)^\\| (`[^|]*)\\|"), regexp.MustCompile("`([a-z][a-z0-9_]*)\\.([a-z][a-z0-9_]*)`")
	found := map[string]bool{}
	for page, text := range pages {
		for _, cell := range row.FindAllStringSubmatch(text, -1) {
			for _, m := range code.FindAllStringSubmatch(cell[1], -1) {
				prefix, rest := m[1], m[2]
				if !has(prefix+"."+rest) && (!has(prefix+".") || !has(rest)) { // a code may be put together from its two parts
					found[page+": no Go file has the code "+prefix+"."+rest] = true
				}
				if page != "commands.md" && page != "keys-and-erasure.md" && !strings.Contains(pages["README.md"], "`"+prefix+"`") {
					found["README.md: no page for codes that begin with "+prefix] = true
				}
			}
		}
	}
	report(t, slices.Sorted(maps.Keys(found)), "descriptions of codes that do not exist, or that are not found")
}
