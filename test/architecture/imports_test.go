package architecture

import (
	"fmt"
	"slices"
	"strings"
)

const module = "github.com/erpbackbone/backbone/"

// domainOrder is the order inside domain: a package may import packages of the same
// or a lower rank. Packages that are not listed are free.
var domainOrder = map[string]int{
	"domain/fault":       0,
	"domain/money":       1,
	"domain/event":       2,
	"domain/eventtype":   3,
	"domain/concurrency": 3,
	"domain/shredding":   3,
	"domain/projection":  3,
	"domain/intent":      4,
}

// layer is one row of the import table: which packages of this repository, and which
// libraries, the packages below a folder may import. Test files are free.
type layer struct {
	folder    string   // "*" matches one path element
	internal  []string // "{1}" is the match of the first "*" of the folder
	libraries []string // prefixes; nil: none, "": all
}

// layers are looked up in order; the first match decides.
var layers = []layer{
	{"domain/money/", []string{"domain/"}, []string{"github.com/cockroachdb/apd/"}},
	// Business keys are compared in Unicode's compatibility form: tables, no I/O.
	{"domain/eventtype/", []string{"domain/"}, []string{"github.com/oklog/ulid/", "golang.org/x/text/unicode/norm"}},
	// Names are found in whichever form of Unicode and case they are written.
	{"domain/blindindex/", []string{"domain/"}, []string{"golang.org/x/text/unicode/norm", "golang.org/x/text/cases"}},
	{"domain/companyname/", []string{"domain/"}, []string{"golang.org/x/text/unicode/norm", "golang.org/x/text/cases"}},
	// Compression of bytes in memory: no I/O.
	{"domain/archive/", []string{"domain/"}, []string{"github.com/klauspost/compress/zstd"}},
	// Hashes of Merkle trees: no I/O.
	{"domain/globallog/", []string{"domain/"}, []string{"golang.org/x/mod/sumdb/tlog"}},
	{"domain/", []string{"domain/"}, []string{"github.com/oklog/ulid/"}},
	{"ports/", []string{"domain/"}, nil},
	// Erasures and redactions are requests that two persons decide on.
	{"application/erasure/", []string{"domain/", "ports", "application/module", "application/requests", "application/erasure/"}, nil},
	{"application/redaction/", []string{"domain/", "ports", "application/module", "application/requests", "application/redaction/"}, nil},
	// Folded states are stored with a proof of their origin.
	{"application/*/", []string{"domain/", "ports", "application/module", "application/sharing", "application/snapshots", "application/{1}/"}, nil},
	// The document of the built-in modules, from which clients are generated.
	{"adapters/httpapi/openapi/", []string{"application/module", "adapters/", "modules"}, nil},
	{"adapters/httpapi/", []string{"domain/", "ports", "application/", "adapters/httpapi/"}, []string{""}},
	// Its rooms share internal/pg and know each other in these directions only.
	{"adapters/postgres/internal/", []string{"domain/", "ports", "adapters/postgres/internal/"}, []string{""}},
	{"adapters/postgres/eventlog/appender/", []string{"domain/", "ports", "adapters/postgres/internal/", "adapters/postgres/eventlog", "adapters/postgres/keystore"}, []string{""}},
	{"adapters/postgres/projections/", []string{"domain/", "ports", "adapters/postgres/internal/", "adapters/postgres/eventlog"}, []string{""}},
	{"adapters/postgres/subscriptions/", []string{"domain/", "ports", "adapters/postgres/internal/", "adapters/postgres/eventlog"}, []string{""}},
	{"adapters/postgres/monitor/", []string{"domain/", "ports", "adapters/postgres/internal/", "adapters/postgres/eventlog"}, []string{""}},
	{"adapters/postgres/intents/", []string{"domain/", "ports", "adapters/postgres/internal/", "adapters/postgres/directory", "adapters/postgres/eventlog"}, []string{""}},
	{"adapters/postgres/migrate/", []string{"domain/", "ports", "adapters/postgres/internal/", "sql/"}, []string{""}},
	{"adapters/postgres/*/", []string{"domain/", "ports", "adapters/postgres/internal/"}, []string{""}},
	{"adapters/postgres/", []string{"domain/", "ports", "adapters/postgres/"}, []string{""}},
	// The door for modules joins their declarations with their adapters.
	{"adapters/plugin", []string{"domain/fault", "ports", "application/module", "configs/demo"}, []string{""}},
	{"adapters/*/", []string{"domain/", "ports", "adapters/{1}/"}, []string{""}},
	{"modules", []string{"adapters/plugin", "modules/*/adapters/plugin"}, nil},
	{"modules/*/adapters/plugin", []string{"ports", "adapters/plugin", "configs/demo", "modules/{1}/", "sql/{1}/"}, []string{""}},
	// Commands of modules call the server like any other client.
	{"modules/*/adapters/cli", []string{"domain/", "ports", "adapters/client/", "adapters/plugin", "modules/{1}/", "modules/*/contract/", "test/samples"}, []string{""}},
	{"modules/*/adapters/*/", []string{"domain/", "ports", "adapters/plugin", "adapters/xmltree", "modules/{1}/", "adapters/{2}/", "adapters/client/", "sql/{1}/"}, []string{""}},
	{"modules/*/", []string{"domain/", "ports", "application/module", "modules/{1}/", "modules/*/contract/"}, nil},
	{"sql/", []string{"sql/"}, nil},
	{"configs/", []string{"domain/", "configs/"}, []string{""}},
	// The command line and the composition know modules through their door only.
	{"cmd/cli/", []string{"adapters/", "application/", "cmd/", "configs/", "domain/", "ports"}, []string{""}},
	{"cmd/wire/", []string{"adapters/", "application/", "cmd/wire/", "configs/", "domain/", "ports"}, []string{""}},
	{"cmd/scaffold/", []string{""}, []string{""}},
	{"cmd/app", []string{"cmd/cli", "adapters/plugin"}, nil},
	{"cmd/backbone", []string{"cmd/app", "modules"}, nil},
	{"cmd/", []string{"cmd/", "configs/", "domain/"}, []string{""}},
	{"test/testkit/", []string{"domain/", "ports", "adapters/embeddedpg/", "test/testkit/"}, []string{""}},
	{"test/", []string{""}, []string{""}},
}

// importViolations checks one file's imports; pkg is the package's folder from
// the repository's root.
func importViolations(pkg string, isTest bool, imports []string) []string {
	var out []string
	for _, path := range imports {
		if reason := importViolation(pkg, isTest, path); reason != "" {
			out = append(out, fmt.Sprintf("imports %s: %s", path, reason))
		}
	}
	return out
}

func importViolation(pkg string, isTest bool, path string) string {
	fits := func(folder string) bool { _, ok := matchFolder(folder, pkg); return ok }
	if in, found := confinedTo(path); found && !isTest && !slices.ContainsFunc(in, fits) {
		return "that library is kept inside " + strings.Join(append(in, "tests"), ", ")
	}
	if isTest || isStandard(path) {
		return ""
	}
	for _, l := range layers {
		elements, ok := matchFolder(l.folder, pkg)
		if !ok {
			continue
		}
		internal, isInternal := strings.CutPrefix(path, module)
		if !isInternal {
			if slices.ContainsFunc(l.libraries, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				return ""
			}
			return "no such library in " + l.folder
		}
		if !slices.ContainsFunc(l.internal, func(allowed string) bool {
			for i, element := range elements {
				allowed = strings.ReplaceAll(allowed, fmt.Sprintf("{%d}", i+1), element)
			}
			_, ok := matchFolder(allowed, internal)
			return ok
		}) {
			return l.folder + " may import only " + strings.Join(l.internal, ", ")
		}
		return orderViolation(pkg, internal)
	}
	return "package " + pkg + " has no place in the import table"
}

// orderViolation checks the two rules about direction inside a layer.
func orderViolation(pkg, imported string) string {
	if from, ok := domainOrder[pkg]; ok {
		to, ok := domainOrder[imported]
		if ok && to > from {
			return "it comes later in the order of the domain"
		}
		if pkg == "domain/fault" {
			return "fault imports nothing"
		}
	}
	parts := strings.Split(pkg, "/")
	if parts[0] == "modules" && len(parts) > 1 && (len(parts) < 3 || parts[2] != "adapters") && strings.HasPrefix(imported, "modules/"+parts[1]+"/adapters/") {
		return "a module does not know its adapters"
	}
	return ""
}

// matchFolder reports whether a package is the folder of a pattern, or, when the
// pattern ends in a slash, lies below it; it returns the matches of the stars.
func matchFolder(pattern, pkg string) (elements []string, ok bool) {
	if pattern == "" {
		return nil, true
	}
	below := strings.HasSuffix(pattern, "/")
	want := strings.Split(strings.TrimSuffix(pattern, "/"), "/")
	have := strings.Split(pkg, "/")
	if len(have) < len(want) || !below && len(have) > len(want) {
		return nil, false
	}
	for i, element := range want {
		switch {
		case element == "*":
			elements = append(elements, have[i])
		case element != have[i]:
			return nil, false
		}
	}
	return elements, true
}

// isStandard reports whether a path is of the standard library, whose first element has no
// dot.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
