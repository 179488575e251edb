package jsondoc_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

const invoice = `{
  "type": "ap.invoice.submitted", "legal_entity": "USMF", "effective_date": "2026-03-31",
  "payload": {
    "vendor_id": "V-1001", "vendor_name": "Müller & Söhne \u20ac \ud83d\ude00", "invoice_number": "RE-2026/0042",
    "currency": "EUR", "total_amount": 12500.37, "tax_amount": -0.01, "exchange_rate": 1.085400000000, "ok": true, "note": null,
    "lines": [
      {"line": 1, "description": "Paper \"A4\"", "quantity": 10, "unit_price": 3.5500000001, "amount": 35.50, "dimensions": {"department": "OPS", "cost_center": "100"}},
      {"line": 2, "description": "Toner", "quantity": 0.5, "unit_price": 1E2, "amount": 50.00, "dimensions": {}}
    ], "tags": []
  }
}`

func TestCheck_Accepted(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		invoice, `{}`, `[]`, `null`, `true`, ` "x" `, `0`, `-0`, `-1.5e-3`, `1e30`, `1E+30`, `1e-30`, `1e+0000000030`,
		`9007199254740991`, `-9007199254740991`, `999999999999999`, `99999999999999.9`, `0.000000000000001`, `0.123456789012345`,
		`0.000000000000000000000000000001`, `123456789012.345e10`, `[[],{}, [ ] ,{"a":[{}]}]`,
		`{"a":1,"b":{"a":1,"b":[{"a":1},{"a":1}]},"c":1}`, `{"":1," ":2}`, `{"straße":1,"strasse":2}`, `{"İ":1,"i":2}`,
		`"\"\\\/\b\f\n\r\t\u0041\u00e9\ud834\udd1e"`, "\"\u007f\U0010ffff\ufffd\"", "\t\r\n 1 \n",
		strings.Repeat("[", 32) + strings.Repeat("]", 32),
	} {
		require.NoError(t, jsondoc.Check([]byte(in), jsondoc.Limits{}), in)
		require.True(t, json.Valid([]byte(in)))
	}
}

func TestCheck_Refused(t *testing.T) {
	t.Parallel()
	limits := jsondoc.Limits{Bytes: 400, Depth: 4, Nodes: 20, StringBytes: 16, NameBytes: 8}
	for _, c := range []struct{ code, in, field string }{
		{"json.too_large", `"` + strings.Repeat("x", 400) + `"`, ""},
		{"json.too_deep", `[[[[[`, "/0/0/0/0"},
		{"json.too_deep", `{"a":{"b":[{"c":{}}]}}`, "/a/b/0/c"},
		{"json.too_many_nodes", `[` + strings.Repeat("1,", 30) + `1]`, "/19"},
		{"json.string_too_long", `["12345678901234567"]`, "/0"},
		{"json.string_too_long", `{"a":"\u0041\u0042\u0043"}`, "/a"},
		{"json.string_too_long", `["1234567890123456ü"]`, "/0"},
		{"json.name_too_long", `{"a":{"123456789":1}}`, "/a"},
		{"json.name_too_long", `{"1234567ü":1}`, ""},

		{"json.duplicate_name", `{"a":1,"a":2}`, "/a"},
		{"json.duplicate_name", `{"x":[{"amount":1,"Amount":2}]}`, "/x/0/Amount"},
		{"json.duplicate_name", `{"ab":1,"a\u0062":2}`, "/ab"},
		{"json.duplicate_name", `{"a/~":1,"A/~":2}`, "/A~1~0"},
		{"json.duplicate_name", `{"k":1,"` + "\u212a" + `":2}`, "/\u212a"},
		{"json.duplicate_name", `{"s":1,"\u017f":2}`, "/\u017f"},
		{"json.duplicate_name", `{"ÄÖ":1,"äö":2}`, "/äö"},
		{"json.duplicate_name", `{"σ":1,"ς":2}`, "/ς"},
		{"json.duplicate_name", `{"a":{"b":1},"b":2,"A":3}`, "/A"},
		{"json.duplicate_name", `{"":1,"":2}`, "/"},

		{"json.invalid_utf8", "\"\xff\"", ""},
		{"json.invalid_utf8", "[\"\xc3\"]", "/0"},
		{"json.invalid_utf8", "\"\xed\xa0\x80\"", ""}, // a surrogate in UTF-8
		{"json.invalid_utf8", "\"\xc0\x80\"", ""},     // an overlong NUL
		{"json.invalid_utf8", "\"\xf4\x90\x80\x80\"", ""},
		{"json.invalid_utf8", "{\"a\xff\":1}", ""},
		{"json.invalid_utf8", "\xff\xfe{\x00}\x00", ""},
		{"json.invalid_utf8", "[1\xff]", "/0"},
		{"json.lone_surrogate", `"\ud800"`, ""},
		{"json.lone_surrogate", `"\udc00"`, ""},
		{"json.lone_surrogate", `["\ud800\ud800"]`, "/0"},
		{"json.lone_surrogate", `"\udc00\ud800"`, ""},
		{"json.lone_surrogate", `"\ud800x"`, ""},
		{"json.lone_surrogate", `"\ud800\n"`, ""},
		{"json.lone_surrogate", `{"\uDFFF":1}`, ""},
		{"json.nul_character", `"\u0000"`, ""},
		{"json.nul_character", `{"a":{"\u0000":1}}`, "/a"},

		{"json.number_out_of_range", `9007199254740992`, ""},
		{"json.number_out_of_range", `-9007199254740992`, ""},
		{"json.number_out_of_range", `{"a":[0,12345678901234567]}`, "/a/1"},
		{"json.number_out_of_range", strings.Repeat("9", 300), ""},
		{"json.number_out_of_range", `0.1234567890123456`, ""},
		{"json.number_out_of_range", `1234567890.123456`, ""},
		{"json.number_out_of_range", `12500.000000000000`, ""},
		{"json.number_out_of_range", `1234567890123456e1`, ""},
		{"json.number_out_of_range", `1e31`, ""},
		{"json.number_out_of_range", `1e-31`, ""},
		{"json.number_out_of_range", `1e1000000`, ""},
		{"json.number_out_of_range", `1e99999999999999999999999999999999999999`, ""},
		{"json.number_out_of_range", `1e` + strings.Repeat("0", 60) + `1`, ""},
		{"json.number_out_of_range", `0.` + strings.Repeat("0", 31), ""},

		{"json.malformed", ``, ""}, {"json.malformed", ` `, ""}, {"json.malformed", `{`, ""}, {"json.malformed", `[`, "/0"},
		{"json.malformed", `[1`, "/0"}, {"json.malformed", `{"a"`, ""}, {"json.malformed", `{"a":`, "/a"}, {"json.malformed", `{"a":1`, "/a"},
		{"json.malformed", `{"a":1,}`, ""}, {"json.malformed", `[1,]`, "/1"}, {"json.malformed", `[,1]`, "/0"}, {"json.malformed", `{,}`, ""},
		{"json.malformed", `{"a" 1}`, ""}, {"json.malformed", `{a:1}`, ""}, {"json.malformed", `{'a':1}`, ""}, {"json.malformed", `{1:1}`, ""},
		{"json.malformed", `[1}`, "/0"}, {"json.malformed", `{"a":1]`, "/a"}, {"json.malformed", `1 2`, ""}, {"json.malformed", `{}{}`, ""},
		{"json.malformed", `[1 2]`, "/0"}, {"json.malformed", `NaN`, ""}, {"json.malformed", `[Infinity]`, "/0"}, {"json.malformed", `-Infinity`, ""},
		{"json.malformed", `nul`, ""}, {"json.malformed", `nulls`, ""}, {"json.malformed", `True`, ""}, {"json.malformed", `01`, ""},
		{"json.malformed", `-01`, ""}, {"json.malformed", `+1`, ""}, {"json.malformed", `.5`, ""}, {"json.malformed", `5.`, ""},
		{"json.malformed", `-`, ""}, {"json.malformed", `1e`, ""}, {"json.malformed", `1e+`, ""}, {"json.malformed", `0x10`, ""},
		{"json.malformed", `"`, ""}, {"json.malformed", `"\`, ""}, {"json.malformed", `"\x"`, ""}, {"json.malformed", `"\u12"`, ""},
		{"json.malformed", `"\u12g4"`, ""}, {"json.malformed", "\"\n\"", ""}, {"json.malformed", "\"\x00\"", ""}, {"json.malformed", "{\"a\t\":1}", ""},
		{"json.malformed", "\ufeff{}", ""}, {"json.malformed", "\u00a01", ""}, {"json.malformed", `// x`, ""}, {"json.malformed", "\u22121", ""},
		{"json.malformed", "1\x00", ""}, {"json.malformed", `"a`, ""}, {"json.malformed", "\f1", ""},
	} {
		err := jsondoc.Check([]byte(c.in), limits)
		require.Equal(t, c.code, fault.CodeOf(err), "%.60q: %v", c.in, err)
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, c.field, f.Field, "%.60q", c.in)
		require.NotEmpty(t, f.Detail)
		switch c.code {
		case "json.too_large", "json.too_deep", "json.too_many_nodes", "json.string_too_long", "json.name_too_long":
			require.Equal(t, fault.TooLarge, f.Kind)
			require.Contains(t, f.Attributes, "limit")
		default:
			require.Equal(t, fault.Invalid, f.Kind)
			require.Contains(t, f.Attributes, "offset")
		}
	}
}

func TestCheck_Limits(t *testing.T) {
	t.Parallel()
	array := func(n int) string { return "[" + strings.Repeat("0,", n-2) + "0]" }
	for _, c := range []struct{ code, in string }{
		{"", array(50_000)}, {"json.too_many_nodes", array(50_001)},
		{"", `"` + strings.Repeat("x", 64<<10) + `"`}, {"json.string_too_long", `"` + strings.Repeat("x", 64<<10+1) + `"`},
		{"", `{"` + strings.Repeat("x", 256) + `":1}`}, {"json.name_too_long", `{"` + strings.Repeat("x", 257) + `":1}`},
		{"", strings.Repeat("[", 32) + strings.Repeat("]", 32)}, {"json.too_deep", strings.Repeat("[", 33) + strings.Repeat("]", 33)},
		{"", strings.Repeat(" ", 1<<20-1) + "1"}, {"json.too_large", strings.Repeat(" ", 1<<20) + "1"},
	} {
		require.Equal(t, c.code, fault.CodeOf(jsondoc.Check([]byte(c.in), jsondoc.DefaultLimits())), "%.40s", c.in)
	}
}

func TestCheck_LargeObjects(t *testing.T) {
	t.Parallel()
	object := func(n int, last string) []byte {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&b, `"name%d":{"x":[1],"name%d":2},`, i, i)
		}
		return append([]byte(b.String()), `"`+last+`":0}`...)
	}
	for _, n := range []int{1, 31, 32, 33, 34, 1000} {
		require.NoError(t, jsondoc.Check(object(n, "other"), jsondoc.Limits{}), n)
		for _, duplicate := range []string{"NAME0", fmt.Sprintf("n\\u0061me%d", n-1), fmt.Sprintf("Name%d", n/2)} {
			require.Equal(t, "json.duplicate_name", fault.CodeOf(jsondoc.Check(object(n, duplicate), jsondoc.Limits{})), "%d %s", n, duplicate)
		}
	}
}

func TestCheck_CaseFolding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringMatching(`[a-cA-CkKsSſKäÄσςΣßẞİı]{0,3}`).Draw(t, "a")
		b := rapid.StringMatching(`[a-cA-CkKsSſKäÄσςΣßẞİı]{0,3}`).Draw(t, "b")
		raw, err := json.Marshal(a)
		require.NoError(t, err)
		err = jsondoc.Check([]byte(`{`+string(raw)+`:1,"`+b+`":2}`), jsondoc.Limits{})
		require.Equal(t, strings.EqualFold(a, b), fault.CodeOf(err) == "json.duplicate_name")
	})
}

// hostile documents, each to be refused quickly and in little memory.
func hostile() map[string][]byte {
	var names strings.Builder
	names.WriteByte('{')
	for i := range 1_000_000 {
		fmt.Fprintf(&names, `"n%d":0,`, i)
	}
	return map[string][]byte{
		"names":    []byte(names.String()),
		"nested":   []byte(strings.Repeat("[", 4<<20)),
		"objects":  []byte(strings.Repeat(`{"a":`, 1<<20)),
		"nodes":    []byte("[" + strings.Repeat("0,", 2<<20)),
		"string":   []byte(`"` + strings.Repeat("x", 16<<20) + `"`),
		"escapes":  []byte(`"` + strings.Repeat(`\u0041`, 1<<20) + `"`),
		"digits":   []byte(strings.Repeat("9", 4<<20)),
		"exponent": []byte("1e" + strings.Repeat("9", 4<<20)),
		"name":     []byte(`{"` + strings.Repeat("x", 4<<20)),
	}
}

// processorTime is what this process has taken so far: other work on the machine does not
// count.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func TestCheck_HostileDocuments(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector changes times and allocations")
	}
	const attempts = 50 // other work on the machine and the collector only add, so one good attempt is enough
	for name, raw := range hostile() {
		limits := jsondoc.Limits{Bytes: len(raw)} // so that the other limits have to hold
		fastest, least := time.Hour, uint64(1<<62)
		for i := 0; i < attempts && (fastest > 10*time.Millisecond || least > 10<<20); i++ {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := processorTime(t)
			err := jsondoc.Check(raw, limits)
			took := processorTime(t) - began
			runtime.ReadMemStats(&after)
			require.Error(t, err, name)
			fastest, least = min(fastest, took), min(least, after.TotalAlloc-before.TotalAlloc)
		}
		t.Logf("%s: %d bytes refused in %s with %d bytes of heap", name, len(raw), fastest, least)
		require.LessOrEqual(t, fastest, 10*time.Millisecond, name)
		require.LessOrEqual(t, least, uint64(10<<20), name)
	}
}

func TestCheck_Allocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector changes times and allocations")
	}
	raw := []byte(invoice)
	require.NoError(t, jsondoc.Check(raw, jsondoc.Limits{}))
	require.Less(t, testing.AllocsPerRun(1000, func() { _ = jsondoc.Check(raw, jsondoc.Limits{}) }), 1.0)
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		invoice, `{}`, `[1,2.5,-3e4,"\u00e9\ud83d\ude00",true,null]`, `{"a":{"b":[{}]},"A":1}`, `"\ud800"`, "\"\xff\"", `1e1000000`,
		`[[[[`, `{"a":1,`, `9007199254740993`, `-0.00`, "\ufeff{}", `{"k":1,"` + "\u212a" + `":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := jsondoc.Check(raw, jsondoc.Limits{})
		if err != nil {
			_, ok := fault.As(err)
			require.True(t, ok)
			if fault.CodeOf(err) == "json.malformed" {
				require.False(t, json.Valid(raw), "refused as malformed, but encoding/json reads it")
			}
			return
		}
		require.True(t, json.Valid(raw), "accepted, but encoding/json does not read it")
		var v any
		require.NoError(t, json.Unmarshal(raw, &v))
		compact := jsondoc.AppendCompact(nil, raw)
		require.NoError(t, jsondoc.Check(compact, jsondoc.Limits{}))
		object, isObject := v.(map[string]any)
		for name, want := range object {
			value, found, err := jsondoc.Member(raw, name)
			require.NoError(t, err)
			require.True(t, found)
			var got any
			require.NoError(t, json.Unmarshal(value, &got))
			require.Equal(t, want, got)
		}
		if isObject {
			_, found, err := jsondoc.Member(raw, "\x00no such name")
			require.NoError(t, err)
			require.False(t, found)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	large := []byte("[" + strings.Repeat(invoice+",", 99) + invoice + "]")
	for name, raw := range map[string][]byte{"invoice": []byte(invoice), "batch": large} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := jsondoc.Check(raw, jsondoc.Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheckHostile(b *testing.B) {
	for name, raw := range hostile() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if jsondoc.Check(raw, jsondoc.Limits{Bytes: len(raw)}) == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
