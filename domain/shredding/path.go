package shredding

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Limits of paths.
const (
	maxPath     = 1024 // bytes
	maxPathStep = 256  // bytes of one name, as in documents
	maxSteps    = 32   // as deep as documents may be
)

// each is the step into every element of an array; all other steps are names.
const each = "[*]"

// Path is a place in an event's data: "$", then ".name" for a
// member and "[*]" for every element of an array, and nothing else. Names are
// letters, digits, _ and -. It has one step at least and the first is a name,
// because data is an object and stays one.
type Path struct{ steps []string }

// ParsePath reads a path. pii.path_invalid if it does not follow the grammar.
func ParsePath(s string) (Path, error) {
	rest, ok := strings.CutPrefix(s, "$")
	if !ok || rest == "" || rest[0] != '.' || len(s) > maxPath || !utf8.ValidString(s) {
		return Path{}, invalidPath()
	}
	var p Path
	for rest != "" {
		if len(p.steps) == maxSteps {
			return Path{}, invalidPath()
		}
		if after, ok := strings.CutPrefix(rest, each); ok {
			p.steps, rest = append(p.steps, each), after
			continue
		}
		if rest[0] != '.' {
			return Path{}, invalidPath()
		}
		rest = rest[1:]
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		name := rest[:end]
		if !validStep(name) {
			return Path{}, invalidPath()
		}
		p.steps, rest = append(p.steps, name), rest[end:]
	}
	return p, nil
}

func validStep(name string) bool {
	return name != "" && len(name) <= maxPathStep && strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) < 0
}

func invalidPath() *fault.Error {
	return fault.New(fault.Invalid, "pii.path_invalid",
		"a path is $ followed by .name and [*] only, the first step a name; write it like $.contacts[*].email")
}

// String gives the path as it was read.
func (p Path) String() string { return pathText(p.steps) }

func pathText(steps []string) string {
	var b strings.Builder
	b.WriteByte('$')
	for _, s := range steps {
		if s != each {
			b.WriteByte('.')
		}
		b.WriteString(s)
	}
	return b.String()
}

// common returns the length of the common prefix.
func common(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// overlap reports whether one path is a prefix of the other.
func overlap(a, b []string) bool { return common(a, b) == min(len(a), len(b)) }
