package jq

import (
	"context"
	"encoding/json"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

const fuzzed = `{"a":12.10,"b":[1,2,{"c":"x"}],"s":"text","o":{"p":null,"q":true}}`

// requireBounded runs a program twice. It must end soon both times, with the same object or fault.
func requireBounded(t require.TestingT, source string) {
	p, err := withLongTimeout().Compile(source)
	if err != nil {
		require.Equal(t, codeInvalid, fault.CodeOf(err), source)
		return
	}
	began := processorTime(t)
	out, err := p.Apply(context.Background(), json.RawMessage(fuzzed))
	require.Less(t, processorTime(t)-began, 1500*time.Millisecond*slowdown, source)
	again, errAgain := p.Apply(context.Background(), json.RawMessage(fuzzed))
	require.Equal(t, fault.CodeOf(err), fault.CodeOf(errAgain), source)
	require.Equal(t, string(out), string(again), source)
	if err != nil {
		require.Contains(t, []string{codeLimit, codeFailed, codeOutput}, fault.CodeOf(err), source)
		return
	}
	require.True(t, json.Valid(out), source)
	require.LessOrEqual(t, len(out), DefaultLimits().OutputBytes, source)
	_ = jsondoc.Check(out, jsondoc.DefaultLimits()) // must not panic
}

// expression makes random programs of every construct of the language.
func expression() *rapid.Generator[string] {
	leaf := rapid.SampledFrom([]string{
		".", ".a", ".b", ".b[]", ".s", ".o", "..", "1", "12.50", "1e9", "null", "true", `"x"`, "[]", "{}", "empty", ".[]?", ".b[0]", "error", "[range(1e9)]", "$x", "f", "keys", "length", "tojson",
		"to_entries", "add", "first", "flatten", "sort", "tostring", "[paths]", "reverse", "type", "not", ".b[2].c", `"\(.)"`, "@base64", "recurse", "[..]", "explode", "tonumber", "fromjson",
	})
	return rapid.Custom(func(t *rapid.T) string {
		var make func(depth int) string
		make = func(depth int) string {
			if depth == 0 {
				return leaf.Draw(t, "leaf")
			}
			shape := rapid.SampledFrom([]string{
				"(Ä | Ö)", "(Ä, Ö)", "(Ä + Ö)", "(Ä - Ö)", "(Ä * Ö)", "(Ä / Ö)", "(Ä % Ö)", "(Ä // Ö)", "(Ä == Ö)", "(Ä < Ö)", "(Ä and Ö)", "[Ä]", "{a: Ä, b: Ö}", "{(Ä): Ö}", "(Ä as $x | Ö)", "(Ä as {a: $x} | Ö)",
				"(reduce Ä as $x (Ö; Ü))", "(foreach Ä as $x (Ö; Ü))", "(if Ä then Ö else Ü end)", "(try Ä catch Ö)", "(Ä?)", "(def f: Ä; Ö)", "(Ä |= Ö)", "(Ä = Ö)", "(Ä += Ö)", "(Ä //= Ö)", "del(Ä)", "path(Ä)", "[path(Ä)]",
				"map(Ä)", "select(Ä)", "walk(Ä)", "with_entries(Ä)", "group_by(Ä)", "sort_by(Ä)", "[limit(3; Ä)]", "until(Ä; Ö)", "[repeat(Ä)]", "first(Ä)", "any(Ä)", "(Ä[])", "(Ä[Ö])", "(Ä[Ö:Ü])", "(Ä | join(Ö))", "(Ä | split(Ö))",
				"(Ä | test(Ö))", "(Ä | gsub(Ö; Ü))", "setpath(Ä; Ö)", "getpath(Ä)", "(label $o | Ä | ., break $o)", "[range(Ä; Ö)]", "(Ä | has(Ö))", "(Ä | contains(Ö))", "recurse(Ä)", "(-Ä)", "in(Ä)", "IN(Ä)", "pick(Ä)", "[while(Ä; Ö)]",
			}).Draw(t, "shape")
			for _, hole := range []string{"Ä", "Ö", "Ü"} {
				if strings.Contains(shape, hole) {
					shape = strings.ReplaceAll(shape, hole, make(depth-1-rapid.IntRange(0, depth-1).Draw(t, "less")))
				}
			}
			return shape
		}
		return make(rapid.IntRange(1, 4).Draw(t, "depth"))
	})
}

func TestApplyRandomPrograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		program := expression().Draw(t, "program")
		requireBounded(t, `def f: 1; 2 as $x | `+program)
		requireBounded(t, `def f: 1; 2 as $x | {out: [`+program+`]}`)
	})
}

// FuzzPrograms has the programs that explode as seeds while it fuzzes; else TestApplyLimits runs them.
func FuzzPrograms(f *testing.F) {
	if flag.Lookup("test.fuzz").Value.String() != "" {
		for _, program := range explosions {
			f.Add(program)
		}
	}
	f.Fuzz(func(t *testing.T, program string) { requireBounded(t, program) })
}
