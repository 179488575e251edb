package architecture

import (
	"go/ast"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maximumMethods is how many exported methods an object of a store may have. Beyond it the
// object serves several concerns, each of which deserves a type.
const maximumMethods = 25

// methodCounts counts the exported methods of each exported type that the files declare,
// those promoted from embedded types of the same package included. Types are named
// "folder.Type".
func methodCounts(files []goFile) map[string]int {
	methods := map[string]map[string]bool{}
	embedded := map[string][]string{}
	for _, s := range files {
		for _, declaration := range s.file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || !d.Name.IsExported() {
					continue
				}
				receiver := s.folder() + "." + typeName(d.Recv.List[0].Type)
				if methods[receiver] == nil {
					methods[receiver] = map[string]bool{}
				}
				methods[receiver][d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					declared, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					name := s.folder() + "." + declared.Name.Name
					embedded[name] = nil
					structure, ok := declared.Type.(*ast.StructType)
					if !ok {
						continue
					}
					for _, field := range structure.Fields.List {
						if inner := typeName(field.Type); len(field.Names) == 0 && inner != "" {
							embedded[name] = append(embedded[name], s.folder()+"."+inner)
						}
					}
				}
			}
		}
	}
	counts := map[string]int{}
	for name := range embedded {
		if !ast.IsExported(name[strings.LastIndex(name, ".")+1:]) {
			continue
		}
		all, reached := map[string]bool{}, map[string]bool{}
		for open := []string{name}; len(open) > 0; open = open[1:] {
			if reached[open[0]] {
				continue
			}
			reached[open[0]] = true
			for method := range methods[open[0]] {
				all[method] = true
			}
			open = append(open, embedded[open[0]]...)
		}
		counts[name] = len(all)
	}
	return counts
}

// typeName is the name of a type of the same package, or of a pointer to it or an instance of
// it; "" for a type of another package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return ""
}

// TestMethodCount limits the exported methods of the objects of stores, so that each of them
// stays about one concern and a caller finds its way in it.
func TestMethodCount(t *testing.T) {
	t.Parallel()
	var files []goFile
	for _, s := range readGoFiles(t) {
		store := strings.HasPrefix(s.path, "adapters/postgres/") || strings.HasPrefix(s.path, "adapters/memory/")
		if store && !s.isTest() && !s.generated {
			files = append(files, s)
		}
	}
	counts := methodCounts(files)
	require.NotEmpty(t, counts)
	for name, n := range counts {
		require.LessOrEqual(t, n, maximumMethods, "%s has %d exported methods; split it by concern", name, n)
	}
}

// TestMethodCounts checks the count itself on methods, embedded types and generics.
func TestMethodCounts(t *testing.T) {
	t.Parallel()
	s := source{path: "adapters/x/a.go", content: []byte(`package x

type Store struct {
	*reader
	inner[int]
	other.Type
	named reader
}

func (Store) A() {}
func (*Store) b() {}

type reader struct{ *Store }

func (*reader) A() {}
func (*reader) C() {}

type inner[T any] struct{}

func (inner[T]) D() {}

type Bare struct{}
`)}
	positions, file := s.parse()
	require.NotNil(t, file)
	require.Equal(t, map[string]int{"adapters/x.Store": 3, "adapters/x.Bare": 0}, methodCounts([]goFile{{s, positions, file}}))
}
