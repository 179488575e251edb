package shredding

import (
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// each is the step into every element of an array; all other steps are names.
const each = event.EachElement

// maxPathName is the length of one name of a path in bytes, as in documents.
const maxPathName = 256

// parsePath reads a path of a declaration. pii.path_invalid if it does not follow the grammar
// of event.ParsePath.
func parsePath(s string) ([]string, error) {
	steps, ok := event.ParsePath(s)
	if !ok || slices.ContainsFunc(steps, func(name string) bool { return len(name) > maxPathName }) {
		return nil, invalidPath()
	}
	return steps, nil
}

func invalidPath() *fault.Error {
	return fault.New(fault.Invalid, "pii.path_invalid",
		"a path is $ followed by .name and [*] only, the first step a name; write it like $.contacts[*].email")
}

// pathText writes the steps of a path as parsePath reads them.
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
