package architecture

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
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

// TestFaultCodes requires a description in docs/errors for every code that a caller may get.
func TestFaultCodes(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(testkit.RepoRoot(t), "docs", "errors", "*.md"))
	require.NoError(t, err)
	var documented strings.Builder
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		documented.Write(text)
	}
	var findings []string
	for _, s := range readGoFiles(t) {
		if s.isTest() || s.generated || strings.HasPrefix(s.path, "test/") || strings.HasPrefix(s.path, "cmd/scaffold/skeleton/") {
			continue
		}
		for code, line := range faultCodes(s.positions, s.file) {
			if !internalCodes[code] && !strings.Contains(documented.String(), "`"+code+"`") {
				findings = append(findings, violation(s.path, line, "%s is on no page of docs/errors", code))
			}
		}
	}
	report(t, findings, "codes without a description")
}
