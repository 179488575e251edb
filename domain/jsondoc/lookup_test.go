package jsondoc_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

func TestMember(t *testing.T) {
	t.Parallel()
	raw := []byte(` {"a" : 1.50 , "b":{"a":2, "c":"}\"]"}, "c\u00e9\ud83d\ude00":[ 1, {} ],"":null,"e":"x"} `)
	for name, want := range map[string]string{
		"a": "1.50", "b": `{"a":2, "c":"}\"]"}`, "cé😀": "[ 1, {} ]", "": "null", "e": `"x"`,
	} {
		value, found, err := jsondoc.Member(raw, name)
		require.NoError(t, err)
		require.True(t, found, name)
		require.Equal(t, want, string(value))
	}
	for _, name := range []string{"A", "x", "a ", "cé", "c\\u00e9\\ud83d\\ude00"} {
		_, found, err := jsondoc.Member(raw, name)
		require.NoError(t, err)
		require.False(t, found, name)
	}
	for _, in := range []string{"", "[]", "1", "null", "{", `{"a`, `{"a":`, `{"b":1`, `{"b":1,`, `{"b" 1}`, `{1:2}`, `{"b":}`, `{"b":"\`, `{"b":1]`} {
		_, _, err := jsondoc.Member([]byte(in), "a")
		require.Equal(t, "json.malformed", fault.CodeOf(err), in)
	}
	_, found, err := jsondoc.Member([]byte("{ }"), "a")
	require.NoError(t, err)
	require.False(t, found)
}

func TestMembers(t *testing.T) {
	t.Parallel()
	raw := []byte(` {"a" : 1.50 , "b":{"a":2, "c":"}\\\\\"]\\\\"}, "\u0063":[ 1, {} ]} `)
	values := [][]byte{[]byte("left over"), nil, nil}
	require.NoError(t, jsondoc.Members(raw, []string{"c", "x", "a"}, values))
	require.Equal(t, [][]byte{[]byte("[ 1, {} ]"), nil, []byte("1.50")}, values)
	require.NoError(t, jsondoc.Members([]byte(`{"a":1,"b":`), []string{"a"}, values[:1]), "nothing is read after the last one")
	require.Equal(t, "1", string(values[0]))
	for _, in := range []string{"", "[]", "{", `{"b":1`, `{"b":"\"`, `{"b":"\\\"}`, `{"b":1]`} {
		require.Equal(t, "json.malformed", fault.CodeOf(jsondoc.Members([]byte(in), []string{"a"}, values[:1])), in)
	}
}

func TestLocateAndSplice(t *testing.T) {
	t.Parallel()
	raw := []byte(` {"data": {"lines":[{"amount":1.50}, {"amount" : 2}],"a/b":1,"m~n":2,"":3, "0":4}} `)
	for pointer, want := range map[string]string{
		"/data/lines/0/amount": "1.50", "/data/lines/1/amount": "2", "/data/lines/1": `{"amount" : 2}`,
		"/data/a~1b": "1", "/data/m~0n": "2", "/data/": "3", "/data/0": "4",
		"": string(bytes.TrimSpace(raw)),
	} {
		start, end, found, err := jsondoc.Locate(raw, pointer)
		require.NoError(t, err)
		require.True(t, found, pointer)
		require.Equal(t, want, string(raw[start:end]), pointer)

		out, err := jsondoc.Splice([]byte("> "), raw, pointer, []byte(`"[REDACTED]"`))
		require.NoError(t, err)
		require.Equal(t, "> "+string(raw[:start])+`"[REDACTED]"`+string(raw[end:]), string(out))
	}
	for _, pointer := range []string{"/x", "/data/lines/2", "/data/lines/-", "/data/lines/00", "/data/lines/0/amount/0", "/data/lines/+1", "/data/lines/99999999999"} {
		_, _, found, err := jsondoc.Locate(raw, pointer)
		require.NoError(t, err)
		require.False(t, found, pointer)
		_, err = jsondoc.Splice(nil, raw, pointer, []byte("1"))
		require.Equal(t, "json.not_found", fault.CodeOf(err))
		require.Equal(t, fault.NotFound, fault.KindOf(err))
	}
	for _, pointer := range []string{"data", "/a~", "/a~2", "~0"} {
		_, _, _, err := jsondoc.Locate(raw, pointer)
		require.Equal(t, "json.pointer_invalid", fault.CodeOf(err), pointer)
	}
	_, _, found, err := jsondoc.Locate([]byte("[]"), "/0")
	require.NoError(t, err)
	require.False(t, found)
	for _, in := range []string{"", "[1", "[1 2]", "[", "]"} {
		_, _, _, err := jsondoc.Locate([]byte(in), "/1")
		_, _, _, whole := jsondoc.Locate([]byte(in), "")
		require.True(t, err != nil || whole != nil, in)
	}
}

func TestSetMember(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ raw, name, value, want string }{
		{`{}`, "n", `1`, `{"n":1}`},
		{` { } `, "n", `1`, ` { "n":1} `},
		{`{"a":1}`, "n", `"x"`, `{"a":1,"n":"x"}`},
		{`{"a":1, "n" : {"x":[2]} , "b":3}`, "n", `4`, `{"a":1, "n" : 4 , "b":3}`},
		{`{"a":{"n":1} }`, "n", `2`, `{"a":{"n":1} ,"n":2}`},
		{`{"a":1}`, "q\"\\\n", `2`, `{"a":1,"q\"\\\u000a":2}`},
		{`{"\u006e":1}`, "n", `2`, `{"\u006e":2}`},
	} {
		got, err := jsondoc.SetMember(nil, []byte(c.raw), c.name, []byte(c.value))
		require.NoError(t, err)
		require.Equal(t, c.want, string(got))
		value, found, err := jsondoc.Member(got, c.name)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, c.value, string(value))
	}
	_, err := jsondoc.SetMember(nil, []byte(`[1]`), "n", []byte("1"))
	require.Equal(t, "json.malformed", fault.CodeOf(err))
}

func TestAppendCompact(t *testing.T) {
	t.Parallel()
	for _, in := range []string{invoice, ` { "a b" : [ 1 , "x \" \\" , { } ] } `, ` 1 `, `"\\"`} {
		var want bytes.Buffer
		require.NoError(t, json.Compact(&want, []byte(in)))
		require.Equal(t, want.String(), string(jsondoc.AppendCompact(nil, []byte(in))))
	}
}

// FuzzLookup holds the lookup functions to their promise for documents that were
// never checked: any answer, no panic.
func FuzzLookup(f *testing.F) {
	f.Add([]byte(invoice), "/payload/lines/0/amount", "type")
	f.Add([]byte(`{"a\`), "/a", "a")
	f.Add([]byte(`[[1,2],{"":"\u12"}]`), "/1/", "")
	f.Fuzz(func(t *testing.T, raw []byte, pointer, name string) {
		value, found, err := jsondoc.Member(raw, name)
		several := make([][]byte, 2)
		if together := jsondoc.Members(raw, []string{name, "type"}, several); err == nil && together == nil {
			require.Equal(t, found, several[0] != nil)
			require.Equal(t, value, several[0])
		}
		_, _ = jsondoc.SetMember(nil, raw, name, []byte("1"))
		_ = jsondoc.AppendCompact(nil, raw)
		start, end, found, err := jsondoc.Locate(raw, pointer)
		if err != nil || !found || jsondoc.Check(raw, jsondoc.Limits{}) != nil {
			return
		}
		require.True(t, json.Valid(raw[start:end]))
		out, err := jsondoc.Splice(nil, raw, pointer, raw[start:end])
		require.NoError(t, err)
		require.Equal(t, raw, out)
		out, err = jsondoc.Splice(nil, raw, pointer, []byte("null"))
		require.NoError(t, err)
		require.True(t, json.Valid(out))
	})
}
