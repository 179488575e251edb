package shredding_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// box seals and opens everything with one key at one place.
type box struct {
	key shredding.Key
	at  shredding.Location
}

func (b box) seal(f shredding.Field, value []byte) (shredding.Envelope, error) {
	at := b.at
	at.Pointer = f.Pointer
	return shredding.Seal(b.key, at, f.Subject, value)
}

func (b box) open(s shredding.Sealed) (shredding.Answer, error) {
	at := b.at
	at.Pointer = s.Pointer
	plain, err := shredding.Open(b.key, at, s.Subject, s.Envelope)
	return shredding.Clear(plain), err
}

func newBox(t testing.TB) box { return box{testKey(t, 0, 1, run(0, 32)), knownLocation()} }

func TestSealedDocumentKnownAnswer(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	document := []byte(`{"data":{"email":"ada@example.org","grade":1.50},"dimensions":{},"entity_refs":[]}`)
	m := manifest(t, byRole("$.email", "contact", "hired"))
	fields, err := m.Resolve(document, "/data", []event.EntityRef{{Type: "employee", ID: "E-1", Role: "hired"}})
	require.NoError(t, err)
	sealed, err := shredding.SealDocument(nil, document, fields, func(f shredding.Field, value []byte) (shredding.Envelope, error) {
		at := b.at
		at.Pointer = f.Pointer
		return shredding.SealFixed(b.key, at, f.Subject, value, [24]byte(run(0x40, 24)), [12]byte(run(0x80, 12)))
	})
	require.NoError(t, err)
	require.Equal(t, `{"data":{"email":{"$pii":"`+knownEnvelope+`","sub":"employee:E-1"},"grade":1.50},"dimensions":{},"entity_refs":[]}`, string(sealed))
	hash := event.HashPayload(event.Salt(run(0x10, 16)), sealed)
	require.Equal(t, "387c6bc3c7d648ef02e0d18d22adfbd80c52a00c0386b9b53ab78b1dc428e652", hex.EncodeToString(hash[:]))

	opened, err := shredding.OpenDocument(nil, sealed, b.open)
	require.NoError(t, err)
	require.Equal(t, document, opened)
}

// jsonValue draws a JSON text with blanks in it.
func jsonValue(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		blank := rapid.SampledFrom([]string{"", "", " ", "\n", " \t"})
		kind := rapid.IntRange(0, 6).Draw(t, "kind")
		if depth == 0 {
			kind %= 5
		}
		switch kind {
		case 0:
			return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
		case 1:
			return rapid.SampledFrom([]string{"0", "-1.50", "1e3", "12345678901"}).Draw(t, "number")
		case 2, 3, 4:
			return rapid.SampledFrom([]string{`"x"`, `""`, `"a\"b\\"`, `"\u00e9é"`, `"{\"$pii\":\"\"}"`, `"$pii"`, `"]}"`}).Draw(t, "text")
		case 5:
			parts := rapid.SliceOfN(jsonValue(depth-1), 0, 3).Draw(t, "elements")
			for i := range parts {
				parts[i] = blank.Draw(t, "b") + parts[i] + blank.Draw(t, "b")
			}
			return "[" + strings.Join(parts, ",") + blank.Draw(t, "b") + "]"
		}
		parts := rapid.SliceOfN(jsonValue(depth-1), 0, 3).Draw(t, "members")
		names := []string{`"a"`, `"b~/c"`, `"\u0064\"é"`}
		for i := range parts {
			parts[i] = blank.Draw(t, "b") + names[i] + blank.Draw(t, "b") + ":" + blank.Draw(t, "b") + parts[i] + blank.Draw(t, "b")
		}
		return "{" + strings.Join(parts, ",") + blank.Draw(t, "b") + "}"
	})
}

// pointers lists every place of a document with the bytes there.
func pointers(t require.TestingT, raw []byte) map[string]string {
	out := map[string]string{}
	var walk func(v any, at string)
	walk = func(v any, at string) {
		start, end, found, err := jsondoc.Locate(raw, at)
		require.NoError(t, err)
		require.True(t, found)
		out[at] = string(raw[start:end])
		switch v := v.(type) {
		case []any:
			for i := range v {
				walk(v[i], fmt.Sprint(at, "/", i))
			}
		case map[string]any:
			for name := range v {
				walk(v[name], at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
			}
		}
	}
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	walk(v, "")
	return out
}

// TestSealAndOpenDocument checks that sealing and opening random fields changes no byte.
func TestSealAndOpenDocument(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	rapid.Check(t, func(t *rapid.T) {
		document := []byte(jsonValue(4).Draw(t, "document"))
		places := pointers(t, document)
		var fields []shredding.Field
		taken := func(p string) bool {
			for _, f := range fields {
				if strings.HasPrefix(p+"/", f.Pointer+"/") || strings.HasPrefix(f.Pointer+"/", p+"/") {
					return true
				}
			}
			return false
		}
		for _, p := range rapid.Permutation(keys(places)).Draw(t, "order") {
			if !taken(p) && rapid.Bool().Draw(t, "personal") {
				fields = append(fields, shredding.Field{Pointer: p, Class: shredding.Contact, Subject: employee})
			}
		}
		sealed, err := shredding.SealDocument([]byte("before"), document, fields, b.seal)
		require.NoError(t, err)
		sealed, ok := bytes.CutPrefix(sealed, []byte("before"))
		require.True(t, ok)
		require.True(t, json.Valid(sealed))

		found, err := shredding.FindSealed(sealed)
		require.NoError(t, err)
		require.Len(t, found, len(fields))
		rest := sealed
		for _, s := range found {
			text := s.Append(nil)
			i := bytes.Index(rest, text)
			require.GreaterOrEqual(t, i, 0)
			rest = append(append(bytes.Clone(rest[:i]), places[s.Pointer]...), rest[i+len(text):]...)
		}
		require.Equal(t, string(document), string(rest), "nothing but the values was replaced")

		opened, err := shredding.OpenDocument(nil, sealed, b.open)
		require.NoError(t, err)
		require.Equal(t, string(document), string(opened))
	})
}

func keys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestOpenDocumentAnswers(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	document := []byte(`{"a":{"x":[1, 2]},"b":"two","c":[true],"d":4}`)
	var fields []shredding.Field
	for i, p := range []string{"/c", "/a/x", "/b"} { // in any order
		fields = append(fields, shredding.Field{Pointer: p, Subject: shredding.Subject(fmt.Sprintf("person:%d", i))})
	}
	sealed, err := shredding.SealDocument(nil, document, fields, b.seal)
	require.NoError(t, err)
	found, err := shredding.FindSealed(sealed)
	require.NoError(t, err)
	require.Equal(t, []string{"/a/x", "/b", "/c"}, []string{found[0].Pointer, found[1].Pointer, found[2].Pointer})
	require.Equal(t, shredding.Subject("person:2"), found[1].Subject)
	require.Nil(t, found[0].Origin)

	opened, err := shredding.OpenDocument(nil, sealed, func(s shredding.Sealed) (shredding.Answer, error) {
		switch s.Pointer {
		case "/a/x":
			return shredding.Destroyed(), nil
		case "/b":
			return shredding.Withheld(), nil
		}
		return b.open(s)
	})
	require.NoError(t, err)
	require.Equal(t, `{"a":{"x":"[REDACTED]"},"b":"[MASKED]","c":[true],"d":4}`, string(opened))

	described, err := shredding.DescribeDocument(nil, document, []shredding.Field{{Pointer: "/b", Class: "bank"}, {Pointer: "/a", Class: "health"}})
	require.NoError(t, err)
	require.Equal(t, `{"a":{"present":true,"class":"health"},"b":{"present":true,"class":"bank"},"c":[true],"d":4}`, string(described))

	outage := errors.New("outage")
	for code, open := range map[string]func(shredding.Sealed) (shredding.Answer, error){
		"internal":        func(shredding.Sealed) (shredding.Answer, error) { return shredding.Destroyed(), outage },
		"pii.unanswered":  func(shredding.Sealed) (shredding.Answer, error) { return shredding.Answer{}, nil },
		"pii.key_evicted": func(shredding.Sealed) (shredding.Answer, error) { return shredding.Clear(shredding.Plain{}), nil },
	} {
		out, err := shredding.OpenDocument([]byte("dst"), sealed, open)
		require.Equal(t, code, fault.CodeOf(err))
		require.Equal(t, "dst", string(out), "an error never becomes a redaction")
	}
	same, err := shredding.OpenDocument(nil, document, nil)
	require.NoError(t, err)
	require.Equal(t, document, same)

	// A value that was moved to another field of its document does not open.
	moved := bytes.Replace(sealed, found[1].Append(nil), found[2].Append(nil), 1)
	_, err = shredding.OpenDocument(nil, moved, b.open)
	require.Equal(t, "pii.unsealable", fault.CodeOf(err))
}

func TestSealDocument_Refusals(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	document := []byte(`{"a":{"b":1}}`)
	field := func(p string) shredding.Field { return shredding.Field{Pointer: p, Subject: employee} }
	failed := errors.New("failed")
	for code, c := range map[string]struct {
		fields []shredding.Field
		seal   func(shredding.Field, []byte) (shredding.Envelope, error)
	}{
		"json.not_found":       {[]shredding.Field{field("/b")}, b.seal},
		"json.pointer_invalid": {[]shredding.Field{field("b")}, b.seal},
		"pii.paths_overlap":    {[]shredding.Field{field("/a/b"), field("/a")}, b.seal},
		"internal":             {[]shredding.Field{field("/a")}, func(shredding.Field, []byte) (shredding.Envelope, error) { return nil, failed }},
	} {
		out, err := shredding.SealDocument([]byte("dst"), document, c.fields, c.seal)
		require.Equal(t, code, fault.CodeOf(err))
		require.Equal(t, "dst", string(out))
	}
}

// Copies name the place a value was sealed at; stores may turn its members round.
func TestOriginsOfCopies(t *testing.T) {
	t.Parallel()
	e, err := shredding.ParseEnvelope(knownEnvelope)
	require.NoError(t, err)
	at := knownLocation()
	at.Pointer = `/data/<a>"é`
	s := shredding.Sealed{Envelope: e, Subject: employee, Origin: &at}
	text := s.Append(nil)
	require.True(t, json.Valid(text))
	found, err := shredding.FindSealed([]byte(`{"x":[null, ` + string(text) + `]}`))
	require.NoError(t, err)
	s.Pointer = "/x/1"
	require.EqualExportedValues(t, []shredding.Sealed{s}, found)

	turned := `{ "at" : [7, "event", "` + at.Record.String() + `", "hr.employee.hired", 1, "/data/email"], "sub": "employee:E-1", "$pii": "` + knownEnvelope + `" }`
	found, err = shredding.FindSealed([]byte(turned))
	require.NoError(t, err)
	require.Equal(t, knownLocation(), *found[0].Origin)

	for _, broken := range []string{
		`{"$pii":"` + knownEnvelope + `"}`, `{"$pii":"x","sub":"employee:E-1"}`, `{"$pii":1,"sub":"employee:E-1"}`, `{"$pii":null,"sub":"employee:E-1"}`,
		`{"$pii":"` + knownEnvelope + `","sub":"E-1"}`, `{"$pii":"` + knownEnvelope + `","sub":null}`, `{"$pii":"` + knownEnvelope + `","sub":"employee:E-1","x":1}`,
		strings.Replace(turned, "[7,", "[-7,", 1), strings.Replace(turned, "[7,", "[null,", 1), strings.Replace(turned, "[7,", "[", 1), strings.Replace(turned, at.Record.String(), "x", 1),
	} {
		_, err := shredding.FindSealed([]byte(broken))
		require.Equal(t, "pii.unsealable", fault.CodeOf(err), broken)
	}
}

// FuzzOpenDocument holds opening to its promise for any document: no panic, and
// what it gives back of a sound one is sound.
func FuzzOpenDocument(f *testing.F) {
	f.Add([]byte(`{"a":{"$pii":"` + knownEnvelope + `","sub":"employee:E-1"}}`))
	f.Add([]byte(`{"$pii":"`))
	f.Add([]byte(`[{"x":"$pii"},{"$pii":1}]`))
	m := manifest(f, byRole("$.a[*].b", "contact", "payee"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = m.Resolve(raw, "", nil)
		out, err := shredding.OpenDocument(nil, raw, func(shredding.Sealed) (shredding.Answer, error) { return shredding.Destroyed(), nil })
		if err == nil && jsondoc.Check(raw, jsondoc.Limits{}) == nil {
			require.True(t, json.Valid(out))
		}
	})
}

// BenchmarkSealDocument seals three fields of 100 bytes; the target is 30 µs.
func BenchmarkSealDocument(b *testing.B) {
	text := strings.Repeat("x", 98)
	document := []byte(`{"data":{"email":"` + text + `","name":"` + text + `","grade":1.50,"bank":{"iban":"` + text + `"}},"dimensions":{},"entity_refs":[]}`)
	m := manifest(b, byRole("$.email", "contact", "hired"), byRole("$.name", "identity", "hired"), byRole("$.bank.iban", "bank", "hired"))
	entities := []event.EntityRef{{Type: "employee", ID: "E-1", Role: "hired"}}
	x := newBox(b)
	b.Run("seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fields, err := m.Resolve(document, "/data", entities)
			if err != nil || len(fields) != 3 {
				b.Fatal(err)
			}
			if _, err := shredding.SealDocument(nil, document, fields, x.seal); err != nil {
				b.Fatal(err)
			}
		}
	})
	fields, err := m.Resolve(document, "/data", entities)
	require.NoError(b, err)
	sealed, err := shredding.SealDocument(nil, document, fields, x.seal)
	require.NoError(b, err)
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := shredding.OpenDocument(nil, sealed, x.open); err != nil {
				b.Fatal(err)
			}
		}
	})
}
