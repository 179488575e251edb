package opa

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// refusedBuiltins are functions, or families of them ("net."), that reach outside
// the input or whose answer differs between two calls.
var refusedBuiltins = []string{
	"http.send", "net.", "opa.runtime", "io.jwt.", "rand.", "uuid.", "time.now_ns", "trace", "print", "internal.print",
	// Beyond the list of the design: they fetch schemas, read the clock, or sign.
	"json.match_schema", "json.verify_schema", "crypto.x509.", "providers.",
}

// Capabilities are those of this version of OPA without the refused functions and
// without network access.
func Capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(slices.Clone(c.Builtins), func(b *ast.Builtin) bool { return isRefused(b.Name) })
	c.AllowNet = []string{}
	return c
}

func isRefused(name string) bool {
	return slices.ContainsFunc(refusedBuiltins, func(r string) bool {
		return name == r || (strings.HasSuffix(r, ".") && strings.HasPrefix(name, r))
	})
}

// findRefusedBuiltin finds a call of a refused function. The compiler does so too, but
// it silently erases print.
func findRefusedBuiltin(m *ast.Module) (found string) {
	ast.WalkRefs(m, func(r ast.Ref) bool {
		if name := r.String(); found == "" && isRefused(name) {
			found = name
		}
		return false
	})
	return found
}
