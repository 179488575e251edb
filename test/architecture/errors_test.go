package architecture

import (
	"encoding/json"
	"fmt"
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

// untestedCodes need more data than a test can make in reasonable time.
var untestedCodes = map[string]bool{
	"ap.payment_run.too_large": true, // 10,001 open documents
	"gl.year.too_large":        true, // 98,000 balances of income and expense
}

// TestAccountingCodesAreTested requires a test, or a table that one reads, for every code that the
// pages of the accounting modules describe. Codes of files that are imported are in the readers' own table.
func TestAccountingCodesAreTested(t *testing.T) {
	t.Parallel()
	root := testkit.RepoRoot(t)
	var tests strings.Builder
	for _, s := range readGoFiles(t) {
		if s.isTest() && !strings.HasPrefix(s.path, "test/architecture/") && !strings.HasPrefix(s.path, "test/e2e/business_year") {
			tests.Write(s.content)
		}
	}
	for _, tables := range []string{"modules/*/testdata/*.csv", "modules/*/testdata/*.txt"} {
		files, err := filepath.Glob(filepath.Join(root, tables))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			tests.Write(text)
		}
	}
	pages, row := readErrorPages(t), regexp.MustCompile("(?m)^\\| (`[^|]*)\\|")
	code := regexp.MustCompile("`((?:ap|gl|payment|sod|money|text)\\.[a-z][a-z0-9_.]*)`")
	var findings []string
	for _, page := range []string{"ledger.md", "payables.md"} {
		for _, cell := range row.FindAllStringSubmatch(pages[page], -1) {
			for _, m := range code.FindAllStringSubmatch(cell[1], -1) {
				if tested := strings.Contains(tests.String(), m[1]) || testedByKind(tests.String(), m[1]); !tested && !untestedCodes[m[1]] {
					findings = append(findings, page+": no test provokes "+m[1])
				}
			}
		}
	}
	report(t, findings, "codes without a test")
}

// TestAccountingProblems requires a problem document in the modules' testdata for every code that the pages of
// the accounting modules describe with a status, with that status. See moduletest.Problems.
func TestAccountingProblems(t *testing.T) {
	t.Parallel()
	problems := map[string]int{} // the status by code
	files, err := filepath.Glob(filepath.Join(testkit.RepoRoot(t), "modules", "*", "testdata", "problems.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var documents map[string]struct {
			Code   string
			Status int
		}
		require.NoError(t, json.Unmarshal(text, &documents))
		for _, d := range documents {
			problems[d.Code] = d.Status
		}
	}
	described := map[string]bool{}
	pages, row := readErrorPages(t), regexp.MustCompile("(?m)^\\| (`[^|]*)\\| ([0-9]{3})[^|]*\\|")
	code := regexp.MustCompile("`((?:ap|gl|payment|sod)\\.[a-z][a-z0-9_.]*)`")
	var findings []string
	for _, page := range []string{"ledger.md", "payables.md"} {
		for _, cells := range row.FindAllStringSubmatch(pages[page], -1) {
			for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
				described[m[1]] = true
				if status, ok := problems[m[1]]; !ok && !untestedCodes[m[1]] {
					findings = append(findings, page+": no problems.json has a document of "+m[1])
				} else if ok && strconv.Itoa(status) != cells[2] {
					findings = append(findings, fmt.Sprintf("%s: %s has status %s, and %d in its problem document", page, m[1], cells[2], status))
				}
			}
		}
	}
	for code := range problems {
		if !described[code] {
			findings = append(findings, "problems.json: no page describes "+code)
		}
	}
	report(t, findings, "problem documents that differ from the pages of docs/errors")
}

// testedByKind finds codes that tests of both kinds of documents put together: "ap." + kind + ".on_hold".
func testedByKind(tests, code string) bool {
	for _, kind := range []string{"ap.invoice", "ap.credit_memo"} {
		if name, of := strings.CutPrefix(code, kind); of {
			return strings.Contains(tests, `"ap." + kind + "`+name+`"`) || strings.Contains(tests, `"ap."+kind+"`+name+`"`) ||
				kind == "ap.credit_memo" && strings.Contains(tests, `"ap.invoice`+name+`"`)
		}
	}
	return false
}
