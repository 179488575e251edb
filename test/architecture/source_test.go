package architecture

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/erpbackbone/backbone/test/testkit"
)

// maximumLines is the length past which a file hardly holds one concept any more. Below it
// cohesion decides, not the count.
const maximumLines = 1200

// source is one file that is checked.
type source struct {
	path      string // from the repository's root, with slashes
	content   []byte
	generated bool
}

func (s source) folder() string { return path.Dir(s.path) }
func (s source) isGo() bool     { return strings.HasSuffix(s.path, ".go") }

// isTest reports whether only tests run the code.
func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || strings.HasPrefix(s.path, "adapters/postgres/internal/pgtest/") ||
		strings.HasPrefix(s.path, "test/") && !strings.HasPrefix(s.path, "test/testkit/")
}

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// readSources reads the sources of the repository, without build output and folders of tools.
func readSources(t *testing.T) []source { return readFiles(t, ".go", ".sql", ".rego", ".sh") }

// readFiles returns the files with the extensions.
func readFiles(t *testing.T, extensions ...string) (out []source) {
	t.Helper()
	repository.once.Do(func() { repository.files, repository.err = readRepository(testkit.RepoRoot(t)) })
	if repository.err != nil {
		t.Fatal(repository.err)
	}
	for _, s := range repository.files {
		if slices.Contains(extensions, path.Ext(s.path)) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		t.Fatal("no sources found; the test looks in the wrong place")
	}
	return out
}

// repository holds the files that the tests check, which are read once for all of them.
var repository struct {
	once  sync.Once
	files []source
	err   error
}

func readRepository(root string) (out []source, err error) {
	err = filepath.WalkDir(root, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || ignoredFolders[name]) {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".sql", ".rego", ".sh", ".md"}, path.Ext(name)) {
			return nil
		}
		content, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		out = append(out, source{path: name, content: content, generated: generatedLine.Match(content)})
		return nil
	})
	return out, err
}

// goFile is a Go source with its syntax tree.
type goFile struct {
	source
	positions *token.FileSet
	file      *ast.File
}

// readGoFiles returns the Go sources of the repository, parsed once. It leaves out files that do not
// parse, which the compiler reports.
func readGoFiles(t *testing.T) []goFile {
	t.Helper()
	sources := readSources(t)
	parsed.once.Do(func() {
		for _, s := range sources {
			if !s.isGo() {
				continue
			}
			if positions, file := s.parse(); file != nil {
				parsed.files = append(parsed.files, goFile{s, positions, file})
			}
		}
	})
	return slices.Clone(parsed.files)
}

var parsed struct {
	once  sync.Once
	files []goFile
}

// parse returns the syntax tree of a Go file, nil if it does not parse.
func (s source) parse() (*token.FileSet, *ast.File) {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, s.path, s.content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return positions, nil
	}
	return positions, file
}

func importPaths(file *ast.File) []string {
	var out []string
	for _, spec := range file.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil {
			out = append(out, path)
		}
	}
	return out
}

// callsTo lists the lines on which a function of an imported package is named.
func callsTo(positions *token.FileSet, file *ast.File, pkg, function string) []int {
	var lines []int
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != function {
			return true
		}
		if identifier, ok := selector.X.(*ast.Ident); ok && identifier.Name == pkg {
			lines = append(lines, positions.Position(selector.Pos()).Line)
		}
		return true
	})
	return lines
}

// measured are names of things for which a binary fraction is right.
var measured = regexp.MustCompile(`(?i)(seconds|persecond|millis|ratio)`)

// floats lists the lines on which a binary fraction appears that no surrounding
// name declares as a measurement.
func floats(positions *token.FileSet, file *ast.File) []int {
	var lines []int
	var stack []ast.Node
	ast.Inspect(file, func(node ast.Node) bool {
		if node == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, node)
		identifier, ok := node.(*ast.Ident)
		if !ok {
			return true
		}
		switch identifier.Name {
		case "float32", "float64", "ParseFloat", "FormatFloat", "AppendFloat", "Float64", "Float32":
			if !isMeasurement(stack) {
				lines = append(lines, positions.Position(node.Pos()).Line)
			}
		}
		return true
	})
	return lines
}

func isMeasurement(stack []ast.Node) bool {
	named := func(expressions ...ast.Expr) bool {
		for _, expression := range expressions {
			switch e := expression.(type) {
			case *ast.Ident:
				if measured.MatchString(e.Name) {
					return true
				}
			case *ast.SelectorExpr:
				if measured.MatchString(e.Sel.Name) {
					return true
				}
			}
		}
		return false
	}
	for _, node := range stack {
		var names []*ast.Ident
		switch n := node.(type) {
		case *ast.Field:
			names = n.Names
		case *ast.ValueSpec:
			names = n.Names
		case *ast.TypeSpec:
			names = []*ast.Ident{n.Name}
		case *ast.FuncDecl:
			names = []*ast.Ident{n.Name}
		case *ast.AssignStmt:
			if named(n.Lhs...) {
				return true
			}
		case *ast.KeyValueExpr:
			if named(n.Key) {
				return true
			}
		case *ast.CallExpr:
			if named(n.Fun) {
				return true
			}
		}
		for _, name := range names {
			if measured.MatchString(name.Name) {
				return true
			}
		}
	}
	return false
}

// violation renders a finding the way compilers do, so that editors can jump.
func violation(path string, line int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", path, line, fmt.Sprintf(format, args...))
}

func lineCount(content []byte) int {
	return bytes.Count(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) + 1
}
