package jq

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/itchyny/gojq"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// withLongTimeout has the default limits but for time, so that steps and work end every run on a
// machine of any speed.
func withLongTimeout() Compiler {
	l := DefaultLimits()
	l.Time = time.Minute
	return NewWithLimits(l)
}

func compile(t testing.TB, program string) ports.Transform {
	t.Helper()
	out, err := withLongTimeout().Compile(program)
	require.NoError(t, err, program)
	return out
}

func apply(t testing.TB, program, document string) (string, error) {
	t.Helper()
	out, err := compile(t, program).Apply(t.Context(), json.RawMessage(document))
	return string(out), err
}

// TestPrelude compiles every function that is written in jq by itself.
func TestPrelude(t *testing.T) {
	t.Parallel()
	for name := range prelude() {
		function, arity, _ := strings.Cut(name, "/")
		args := strings.TrimSuffix(strings.Repeat(".;", int(arity[0]-'0')), ";")
		if args != "" {
			args = "(" + args + ")"
		}
		compile(t, function+args)
	}
	for name := range library {
		function, arity, _ := strings.Cut(name, "/")
		if strings.HasPrefix(name, "_") {
			continue
		}
		args := strings.TrimSuffix(strings.Repeat(".;", int(arity[0]-'0')), ";")
		if args != "" {
			args = "(" + args + ")"
		}
		compile(t, function+args)
	}
}

// TestInternalNames: a function of the library with a name that this package uses would be
// called instead.
func TestInternalNames(t *testing.T) {
	t.Parallel()
	names := []string{"_each/0", "_paid/0", "_at/0", "_path/0", "_paths/0", "_pathlength/0", "_neg/0", "_pos/0", "_shallow/0", "_deep/0", "_nodes/0"}
	for _, name := range operators {
		names = append(names, name+"/2")
	}
	for _, name := range replacements {
		for _, arity := range []string{"/0", "/1", "/2"} {
			names = append(names, name+arity)
		}
	}
	for _, name := range names {
		function, arity, _ := strings.Cut(name, "/")
		q, err := gojq.Parse(function + map[string]string{"0": "", "1": "(.)", "2": "(.; .)"}[arity])
		require.NoError(t, err)
		_, err = gojq.Compile(q)
		require.ErrorContains(t, err, "function not defined", name)
	}
}

// TestApplyAgreesWithLibrary compares the results of rewritten programs with those of gojq
// itself, paths and errors included.
func TestApplyAgreesWithLibrary(t *testing.T) {
	t.Parallel()
	const document = `{"a":1,"b":{"c":[1,2,{"d":"x"}],"e":null},"s":"one, two,three","list":[3,1,2],"rows":[{"k":"p","n":2},{"k":"q","n":1},{"k":"p","n":5}],"t":true}`
	for _, program := range []string{
		`.`, `.a`, `.b.c[2].d`, `.b["c"]`, `.["s"]`, `.list[1:]`, `.list[:2]`, `.list[-1]`, `.list[.a]`, `[.list[]]`, `[.b[]?]`, `[.a[]?]`, `.a?`,
		`[.. | numbers]`, `{x: .a, y: (.a + 1)}`, `{a, "s": .t, "x\(.a)": 2, ("y" + "z"): 3}`, `. as {a: $x, b: {c: [$y]}} | [$x, $y]`,
		`. as [$x] ?// {a: $x} | $x`, `.a += 1`, `.list |= map(. * 2)`, `.list[1] = 9`, `.b.e //= "d"`, `.new.deep[1] = 2`, `del(.a, .list[0])`,
		`.rows |= map(.n -= 1)`, `.rows[] |= del(.k)`, `to_entries | map(.key)`, `with_entries(.value |= type)`, `.rows | group_by(.k) | map({k: .[0].k, n: (map(.n) | add)})`,
		`.rows | sort_by(.n) | map(.n)`, `.rows | unique_by(.k) | length`, `.rows | min_by(.n), max_by(.n)`, `[paths]`, `[paths(type == "number")]`, `pick(.b.c[0])`,
		`[path(..)] | length`, `path(.b.c[] | select(. == 2))`, `[limit(2; .list[])]`, `[range(5)]`, `[range(0; 10; 3)]`, `reduce .list[] as $x (0; . + $x)`,
		`[foreach .list[] as $x (0; . + $x; [$x, .])]`, `label $out | .list[] | ., break $out`, `try error("x") catch .`, `[.list[] | if . > 2 then "big" elif . > 1 then "mid" else "small" end]`,
		`.s | split(", ")`, `.s | test("two")`, `[.s | scan("[a-z]+")]`, `.s | gsub(",\\s*"; ";")`, `.s | sub("(?<first>[a-z]+)"; "<\(.first)>")`, `.s | capture("(?<x>t..)")`,
		`[.s | match("t"; "g").offset]`, `.s | ascii_upcase`, `.s | ltrimstr("one")`, `.s | explode | implode`, `[.list, .list] | flatten`, `.list | sort, min, max, add, reverse, unique`,
		`.list | any(. > 2), all(. > 2)`, `[first(.list[]), last(.list[])]`, `.list | first, last`, `@base64 "x\(.s)y"`, `.s | @uri`, `[1, "a"] | @csv`, `@json`, `.b | tojson | fromjson`,
		`"a\(.a)b\(.t)c"`, `.list - [1]`, `{x: {y: 1}} * {x: {z: 2}}`, `"ab" * 3`, `.s / ","`, `-(.a)`, `-.a`, `7 % 3, -7 % 3`, `.a == 1 and .t or false`, `.nothing // "none"`,
		`def f(x; $y): x + $y; f(.a; 2)`, `def fac: if . <= 1 then 1 else . * (. - 1 | fac) end; 5 | fac`, `def r: if . > 3 then . else . + 1 | r end; 0 | r`, `[.list[] as $x | .list[] as $y | $x * $y]`,
		`walk(if type == "number" then . + 1 else . end)`, `map_values(type)`, `[recurse(if . < 3 then . + 1 else empty end; true)?]`, `isempty(empty)`, `[splits("a")?]`, `.s | [splits(", *")]`,
		`getpath(["b", "c", 0])`, `setpath(["b", "x"]; 1)`, `delpaths([["a"], ["b", "c"]])`, `IN(.list[]; 1, 2)`, `.list | contains([1])`, `[.list[] | tostring]`, `"12" | tonumber`, `[1.5, -1.5, 2.5] | map(floor, ceil, round, trunc)`,
		`until(type == "number"; .a)`, `[1 | while(. < 20; . * 3)]`, `{"a b": 1} | ."a b"`, `.rows[0:2] = []`, `.. |= .`, `[.list[]] | .[1:] |= map(. + 10)`, `.a as $x | .rows | map(.n + $x)`, `error`, `.a.b`, `.s[0]`, `{} | .a.b.c`, `[nth(1; .list[])]`, `try (.a | keys) catch "no"`, `reduce (.rows | .[]) as {k: $k, n: $n} ({}; .[$k] += $n)`, `[.list | .[] | select(. != 1)]`, `input_line_number? // 1`,
	} {
		if strings.HasPrefix(program, "input_line") {
			continue
		}
		wrapped := "{out: [" + program + "]}"
		want := reference(t, wrapped, document)
		got, err := apply(t, wrapped, document)
		if want == "" {
			require.Equal(t, codeFailed, fault.CodeOf(err), program)
			continue
		}
		require.NoError(t, err, program)
		require.JSONEq(t, want, got, program)
	}
}

// reference runs gojq itself; "" is an error.
func reference(t *testing.T, program, document string) string {
	q, err := gojq.Parse(program)
	require.NoError(t, err, program)
	code, err := gojq.Compile(q)
	require.NoError(t, err, program)
	var in any
	require.NoError(t, json.Unmarshal([]byte(document), &in))
	v, _ := code.Run(in).Next()
	if _, failed := v.(error); failed {
		return ""
	}
	out, err := gojq.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

func TestApplyNumbers(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		`{x: .a, y: .b, z: [.c]}`: `{"x":12.10,"y":12345678901234567.89,"z":[1e5]}`,
		`.a`:                      `12.10`, `.b`: `12345678901234567.89`, `.a + 1`: `13.10`, `.a * 3`: `36.30`, `.a - .a`: `0.00`, `.b * 10`: `123456789012345678.90`,
		`0.1 + 0.2`: `0.3`, `1 / 8`: `0.125`, `2 / 3`: `0.6666666666666666666666666666666667`, `-.a`: `-12.10`, `.a | tostring`: `"12.10"`, `[.a, .b] | add`: `12345678901234579.99`,
		`.a == 12.1`: `true`, `.b == 12345678901234567.90`: `false`, `.a | round`: `12`, `"12.10" | tonumber`: `12.10`, `[.a] | tojson`: `"[12.10]"`, `.big + 1`: `123456789012345678901234567891`,
		`"\(.a)"`: `"12.10"`, `.c`: `1e5`, `.c + 0`: `100000`, `1e-3 * 2`: `0.002`, `[.a, "x"] | join("-")`: `"12.10-x"`, `.a % 5`: `2`, `[12.10, 12.1] | unique | length`: `1`, `.5 + .5`: `1.0`, `.5`: `0.5`,
	} {
		got, err := apply(t, "{out: ("+program+")}", `{"a":12.10,"b":12345678901234567.89,"c":1e5,"big":123456789012345678901234567890}`)
		require.NoError(t, err, program)
		require.Equal(t, `{"out":`+want+`}`, got, program)
	}
	got, err := apply(t, `.`, `{"z": 1.50, "a": "<&>é\u0001"}`)
	require.NoError(t, err)
	require.Equal(t, `{"a":"<&>é\u0001","z":1.50}`, got)
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for program, names := range map[string]string{
		`input`: "input/0", `[inputs]`: "inputs/0", `$ENV`: "$ENV", `env.PATH`: "env/0", `now`: "now/0", `debug`: "debug/0", `debug("x")`: "debug/1", `stderr`: "stderr/0",
		`input_filename`: "input_filename/0", `localtime`: "localtime/0", `mktime`: "mktime/0", `gmtime`: "gmtime/0", `strftime("%Y")`: "strftime/1", `strptime("x")`: "strptime/1",
		`halt`: "halt/0", `halt_error`: "halt_error/0", `import "a" as a; .`: "modules", `include "a"; .`: "modules", `modulemeta`: "modulemeta/0", `$__loc__`: "$__loc__",
		`builtins`: "builtins/0", `sin`: "sin/0", `pow(2; 3)`: "pow/2", `infinite`: "infinite/0", `getpath(["a"]) | input`: "input/0", `_addition(1; 2)`: "_addition/2", `_each`: "_each/0",
		`def f: env; f`: "env/0", `. as $__ | .`: "$__", `$x`: "$x", `{$ENV}`: "$ENV", `[.[] | {a: (now)}]`: "now/0", `"\(now)"`: "now/0", `.[now]`: "now/0", `a::b`: "a::b",
		`def _shallow: 1; .`: "_shallow", `@text "\($ENV)"`: "$ENV", `reduce input as $x (0; .)`: "input/0", `.a |= now`: "now/0", `.["\(now)"]`: "now/0", `. as {(now): $x} | $x`: "now/0", `try now catch .`: "now/0",
		`transpose`: "transpose/0", `splits`: "splits/0", `getpath`: "getpath/0", `@nothing`: "@nothing", `limit(1)`: "limit/1",
		`.a.`: "line 1, column", "{\n  a: ]\n}": "line 2, column 6", ``: "", `{`: "line 1", `. as [$a] | $b`: "$b", `"\u00"`: "line 1",
	} {
		_, err := New().Compile(program)
		if program == `` {
			require.NoError(t, err, "the empty program is the identity")
			continue
		}
		f, is := fault.As(err)
		require.True(t, is, program)
		require.Equal(t, codeInvalid, f.Code, program)
		require.Contains(t, f.Detail, names, program)
	}
	_, err := New().Compile("{\n a: 1,\n b: now\n}")
	require.ErrorContains(t, err, "at line 3, column 5")
	_, err = New().Compile(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))
	require.Equal(t, codeInvalid, fault.CodeOf(err))
	_, err = New().Compile(strings.Repeat(" ", 70_000))
	require.Equal(t, codeInvalid, fault.CodeOf(err))
}

// Programs of the largest size are compiled or refused soon.
func TestCompileLongPrograms(t *testing.T) {
	for part, end := range map[string]string{"1+": "1", "add|": ".", ". as $a|": ".", "-": "1", "try ": ".", ".?//": ".", "label $a|": "."} {
		began := processorTime(t)
		_, err := New().Compile(strings.Repeat(part, 65_000/len(part)) + end)
		require.Less(t, processorTime(t)-began, 2*time.Second*slowdown, part)
		if err != nil {
			require.Equal(t, codeInvalid, fault.CodeOf(err), part)
		}
	}
	_, err := New().Compile(strings.Repeat(".a = 1 | ", 900) + ".")
	require.NoError(t, err)
}

func TestApplyOutput(t *testing.T) {
	t.Parallel()
	for _, program := range []string{`empty`, `., .`, `.a`, `[.]`, `null`, `"x"`, `.[]`, `select(false)`} {
		_, err := apply(t, program, `{"a":1,"b":2}`)
		require.Equal(t, codeOutput, fault.CodeOf(err), program)
	}
	_, err := apply(t, `., error("ada@example.org")`, `{}`)
	require.Equal(t, codeFailed, fault.CodeOf(err))
	require.NotContains(t, err.Error(), "ada")
	_, err = apply(t, `.a | keys`, `{"a":"ada@example.org"}`)
	require.Equal(t, codeFailed, fault.CodeOf(err))
	require.NotContains(t, fmt.Sprintf("%+v", err), "ada")
}

// explosions are programs that would run for ever or fill the memory.
var explosions = []string{
	`[range(1e9)]`, `def f: f; f`, `def f: 1 + f; f`, `def f: f | f; f`, `def f: f, f; [f]`, `[repeat(1)]`, `[.. | repeat(.)]`, `until(false; .)`, `[while(true; .)]`, `last(repeat(1))`, `isempty(repeat(empty))`,
	`"x" * 1e9`, `"x" * 1e300`, `reduce range(64) as $i ("x"; . + .)`, `reduce range(64) as $i ([1]; . + .)`, `reduce range(40) as $i ("ab"; . * 4)`,
	`reduce range(64) as $i (1; [., .]) | tojson`, `reduce range(64) as $i (1; [., .]) | {a: .}`, `reduce range(64) as $i (1; {a: ., b: .}) | {a: (. == .)}`, `reduce range(64) as $i ([1]; [., .]) | flatten`,
	`reduce range(64) as $i (1; [., .]) | [..]`, `reduce range(1e6) as $i (.; {a: .})`, `reduce range(1e6) as $i (.; [.]) | tojson`, `reduce range(50) as $i (2; . * .) | {a: .}`, `reduce range(1e6) as $i (1; . * 7) | {a: .}`,
	`.[500000000] = 1`, `[] | .[99999999] = 1`, `{a: ([] | .[1e8] |= 1)}`, `[] | setpath([1e8]; 1)`, `[] | getpath([1e8]) |= 1`, `[range(99999)] | [.[] as $x | .[]]`, `[range(5000)] | [.[] as $x | .[] as $y | .[] as $z | 1]`,
	`[range(50000)] | . as $d | def f: .[] | $d | f; f`, `[range(50000)] | reduce range(1e6) as $i (.; first(.[]) as $x | .)`, `[range(50000)] | reduce range(1e6) as $i (.; .[0] = $i)`, `[range(3000)] | [.[] as $x | . - [$x]]`,
	`null | [path(recurse(.[0]))]`, `[path(def r: .[0] | ., r; r)]`, `"a" * 100000 | [match("";"g")] | length`, `"a" * 1000000 | test("(a{1,500}){1,2}b")`, `"a" * 100000 | [splits("")]`, `"ab" * 50000 | gsub("a"; "bbbbbbbbbbbbbbbb" * 100)`,
	`[range(100000)] | map(tostring * 100) | join("x" * 1000)`, `[range(200000)] | sort | group_by(.) | tojson`, `[range(10000)] | until(false; sort)`, `try ([range(1e9)]) catch {}`, `[range(1e9)]? // {}`, `[range(1e9)] // {}`, `label $f | repeat(try error("x") catch .)`,
	`[limit(1e9; repeat("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"))]`, `def f(x): f(x | x); f(.)`, `def f(x): f(x, x); f(.)`, `[range(1000)] | combinations?`, `"x" * 2000000 | {a: (. + .)}`,
	`"[" * 100000 | fromjson`, `("[" * 100000) + ("]" * 100000) | fromjson | tojson`, `[range(1e5)] | implode | explode | {a: .} | tojson | tojson | tojson | tojson`, `[range(30000) | {a: ., b: "xxxxxxxxxxxxxxxx"}] | with_entries(.) | tojson`, `{} | .["x" * 1000000] = 1 | reduce range(100) as $i (.; .["y\($i)" + "x" * 1000000] = 1)`,
	`[range(100000)] as $x | [$x, $x, $x, $x] | flatten | unique`, `[range(1000)] | map([range(1000)]) | tojson`, `reduce range(30) as $i ({}; . * {a: ., b: .})`, `[.. , ..] | until(false; . + .)`, `1e400 * 1e400`, `"9" * 1000000 | tonumber`, `[range(1e6)|1/3] | add`, `def f($a): f([$a, $a]); f(1)`,
}

// processorTime is the time that this process has used so far, without that of other processes.
func processorTime(t require.TestingT) time.Duration {
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestApplyLimits runs programs that explode on two documents: each run ends soon, with little memory,
// with the same error.
func TestApplyLimits(t *testing.T) {
	var before, after runtime.MemStats
	for _, program := range explosions {
		p, err := withLongTimeout().Compile(program)
		if err != nil {
			require.Equal(t, codeInvalid, fault.CodeOf(err), program)
			continue
		}
		var codes [2]string
		for i, document := range []string{`{"a":1}`, fuzzed} {
			runtime.GC()
			runtime.ReadMemStats(&before)
			began := processorTime(t)
			_, err = p.Apply(t.Context(), json.RawMessage(document))
			took := processorTime(t) - began
			runtime.ReadMemStats(&after)
			require.Error(t, err, program)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			codes[i] = fault.CodeOf(err)
			if testing.Verbose() {
				t.Logf("%6.1f ms %5d MiB  %s  %s", float64(took.Microseconds())/1000, allocated, codes[i], program)
			}
			require.Contains(t, []string{codeLimit, codeFailed, codeOutput}, codes[i], program)
			require.Less(t, took, time.Second*slowdown, program)
			require.Less(t, allocated, uint64(600), program)
		}
		require.Equal(t, codes[0], codes[1], program)
	}
}

func TestApplyCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := compile(t, `.`).Apply(ctx, json.RawMessage(`{}`))
	require.ErrorIs(t, err, context.Canceled)
}
