package shredding_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

const (
	knownEnvelope = "AQAAAAABQEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZX2bbjpeZ5xwtyGu8TLIlGyC_fsXfZ3jQ7m1cFfvIapIyAgYKDhIWGh4iJiotYL4CleetSEaNwXFzqOG3s4t2BF9GXLynK4JwmLAOpysuKc1iFkbYMLgplozxSbos"
	employee      = shredding.Subject("employee:E-1")
)

// run gives n bytes that count up from first.
func run(first byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

func testKey(t testing.TB, class shredding.KeyClass, version uint32, dek []byte) shredding.Key {
	t.Helper()
	k, err := shredding.NewKey(class, version, slices.Clone(dek))
	require.NoError(t, err)
	return k
}

func knownLocation() shredding.Location {
	return shredding.Location{
		Partition: 7, Kind: shredding.KindEvent, Record: event.ID(run(0xa0, 16)),
		Type: "hr.employee.hired", SchemaVersion: 1, Pointer: "/data/email",
	}
}

func TestEnvelopeKnownAnswers(t *testing.T) {
	t.Parallel()
	key := testKey(t, shredding.KeyStandard, 1, run(0, 32))
	at := knownLocation()
	digest := sha256.Sum256(at.AppendAAD(nil, employee, key.Class, key.Version))
	require.Equal(t, "1eba0a51abc46f003a8395400537475f9d2468b8ae9cf111b20d7631416cd121", hex.EncodeToString(digest[:]))

	e, err := shredding.SealFixed(key, at, employee, []byte(`"ada@example.org"`), [24]byte(run(0x40, 24)), [12]byte(run(0x80, 12)))
	require.NoError(t, err)
	require.Equal(t, knownEnvelope, e.String())

	parsed, err := shredding.ParseEnvelope(knownEnvelope)
	require.NoError(t, err)
	require.Equal(t, e, parsed)
	plain, err := shredding.Open(key, at, employee, parsed)
	require.NoError(t, err)
	require.Equal(t, `"ada@example.org"`, string(plain.Reveal()))

	// Computed by a second implementation, in another language.
	f, err := key.Fingerprint()
	require.NoError(t, err)
	require.Equal(t, "8fb0bdd1171ff05b8fc2f54f01310192", hex.EncodeToString(f[:]))
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := []byte(`"` + rapid.StringMatching(`[ -!#-\[\]-~é]{0,200}`).Draw(t, "text") + `"`)
		class := rapid.SampledFrom(shredding.KeyClasses()).Draw(t, "class")
		key, err := shredding.NewKey(class, rapid.Uint32Min(1).Draw(t, "version"), rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "dek"))
		require.NoError(t, err)
		at := knownLocation()
		at.Pointer, at.Type = rapid.String().Draw(t, "pointer"), rapid.String().Draw(t, "type")
		e, err := shredding.Seal(key, at, employee, value)
		require.NoError(t, err)
		require.Zero(t, (len(e)-90)%32, "lengths are hidden")
		e, err = shredding.ParseEnvelope(e.String())
		require.NoError(t, err)
		h, err := e.Header()
		require.NoError(t, err)
		require.Equal(t, shredding.Header{Class: class, Version: key.Version}, h)
		plain, err := shredding.Open(key, at, employee, e)
		require.NoError(t, err)
		require.Equal(t, value, plain.Reveal())
	})
}

func TestSeal_Refusals(t *testing.T) {
	t.Parallel()
	key := testKey(t, shredding.KeyStandard, 1, run(0, 32))
	for _, value := range []string{"", " ", `"x" `, "\n1"} {
		_, err := shredding.Seal(key, knownLocation(), employee, []byte(value))
		require.Equal(t, "pii.value_invalid", fault.CodeOf(err), "%q", value)
	}
	_, err := shredding.Seal(shredding.Key{Class: 9, Version: 1, DEK: key.DEK}, knownLocation(), employee, []byte("1"))
	require.Equal(t, "pii.key_invalid", fault.CodeOf(err))
	_, err = shredding.Seal(shredding.Key{Version: 1}, knownLocation(), employee, []byte("1"))
	require.Equal(t, "pii.key_evicted", fault.CodeOf(err), "a key without DEK seals nothing")

	for _, dek := range [][]byte{nil, run(0, 31), run(0, 33)} {
		_, err = shredding.NewKey(shredding.KeyStandard, 1, dek)
		require.Equal(t, "pii.key_invalid", fault.CodeOf(err))
	}
	_, err = shredding.NewKey(3, 1, run(0, 32))
	require.Equal(t, "pii.key_invalid", fault.CodeOf(err))
	_, err = shredding.NewKey(shredding.KeyStandard, 0, run(0, 32))
	require.Equal(t, "pii.key_invalid", fault.CodeOf(err))
}

func TestParseEnvelope_Refusals(t *testing.T) {
	t.Parallel()
	raw, err := base64.RawURLEncoding.DecodeString(knownEnvelope)
	require.NoError(t, err)
	change := func(i int, b byte) string {
		c := slices.Clone(raw)
		c[i] = b
		return base64.RawURLEncoding.EncodeToString(c)
	}
	last := knownEnvelope[len(knownEnvelope)-1:]
	for name, text := range map[string]string{
		"empty":           "",
		"padding":         knownEnvelope + "=",
		"standard base64": strings.ReplaceAll(knownEnvelope, "_", "/"),
		"line break":      knownEnvelope[:40] + "\n" + knownEnvelope[40:],
		"spare bits":      strings.TrimSuffix(knownEnvelope, last) + "t",
		"format 0":        change(0, 0),
		"format 2":        change(0, 2),
		"key class":       change(1, 3),
		"cut":             base64.RawURLEncoding.EncodeToString(raw[:len(raw)-1]),
		"no ciphertext":   base64.RawURLEncoding.EncodeToString(raw[:90]),
		"longer":          base64.RawURLEncoding.EncodeToString(append(slices.Clone(raw), 0)),
	} {
		_, err := shredding.ParseEnvelope(text)
		require.Equal(t, "pii.unsealable", fault.CodeOf(err), name)
	}
	_, err = shredding.Envelope(nil).Header()
	require.Equal(t, "pii.unsealable", fault.CodeOf(err))
}

// FuzzEnvelope holds the decoder to its promise: no panic, one error, and one
// spelling per envelope.
func FuzzEnvelope(f *testing.F) {
	f.Add(knownEnvelope)
	f.Add("")
	f.Add(strings.Repeat("A", 163))
	key := testKey(f, shredding.KeyStandard, 1, run(0, 32))
	f.Fuzz(func(t *testing.T, text string) {
		e, err := shredding.ParseEnvelope(text)
		if err != nil {
			require.Equal(t, "pii.unsealable", fault.CodeOf(err))
			return
		}
		require.Equal(t, text, e.String())
		plain, err := shredding.Open(key, knownLocation(), employee, e)
		if text == knownEnvelope {
			require.Equal(t, `"ada@example.org"`, string(plain.Reveal()))
			return
		}
		require.Equal(t, "pii.unsealable", fault.CodeOf(err))
	})
}

// FuzzAAD holds the authenticated data to its promise: other values have other bytes, wherever a
// text ends and the next one begins.
func FuzzAAD(f *testing.F) {
	f.Add("hr.employee.hired", "/data/email", "employee:E-1", "hr.employee.hired", "/data/email", "employee:E-1", uint32(1), uint32(1))
	f.Add("a", "b", "c", "ab", "", "c", uint32(1), uint32(1))
	f.Add("a", "\x00\x00\x00\x01b", "c", "a\x00\x00\x00\x01", "b", "c", uint32(0), uint32(1<<31))
	f.Fuzz(func(t *testing.T, type1, pointer1, subject1, type2, pointer2, subject2 string, version1, version2 uint32) {
		aad := func(eventType, pointer, subject string, version uint32) string {
			at := knownLocation()
			at.Type, at.Pointer = eventType, pointer
			return string(at.AppendAAD(nil, shredding.Subject(subject), shredding.KeyStandard, version))
		}
		same := type1 == type2 && pointer1 == pointer2 && subject1 == subject2 && version1 == version2
		require.Equal(t, same, aad(type1, pointer1, subject1, version1) == aad(type2, pointer2, subject2, version2))
	})
}
