package shredding_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// place is everything a ciphertext is bound to.
type place struct {
	at      shredding.Location
	subject shredding.Subject
	class   shredding.KeyClass
	version uint32
}

func (p place) key(t testing.TB, dek []byte) shredding.Key {
	return testKey(t, p.class, p.version, dek)
}

// refused wants the one error, without any difference.
func refused(t testing.TB, err error, context ...any) {
	t.Helper()
	_, want := shredding.ParseEnvelope("")
	require.Error(t, want)
	require.Equal(t, want, err, context...)
}

// exchanges moves one authenticated field from one place to another.
var exchanges = map[string]func(to, from *place){
	"partition":      func(to, from *place) { to.at.Partition = from.at.Partition },
	"kind":           func(to, from *place) { to.at.Kind = from.at.Kind },
	"record":         func(to, from *place) { to.at.Record = from.at.Record },
	"type":           func(to, from *place) { to.at.Type = from.at.Type },
	"schema version": func(to, from *place) { to.at.SchemaVersion = from.at.SchemaVersion },
	"pointer":        func(to, from *place) { to.at.Pointer = from.at.Pointer },
	"subject":        func(to, from *place) { to.subject = from.subject },
	"key class":      func(to, from *place) { to.class = from.class },
	"key version":    func(to, from *place) { to.version = from.version },
}

func TestOpen_SwappedCiphertexts(t *testing.T) {
	t.Parallel()
	dek := run(0, 32) // one DEK everywhere, so that the place alone decides
	a := place{knownLocation(), employee, shredding.KeyStandard, 1}
	b := place{shredding.Location{
		Partition: 8, Kind: shredding.KindIntent, Record: event.ID(run(0xb0, 16)),
		Type: "hr.employee.moved", SchemaVersion: 2, Pointer: "/data/phone",
	}, "employee:E-2", shredding.KeyRegulatory, 2}
	seal := func(p place, text string) shredding.Envelope {
		e, err := shredding.Seal(p.key(t, dek), p.at, p.subject, []byte(text))
		require.NoError(t, err)
		return e
	}
	ea, eb := seal(a, `"a"`), seal(b, `"b"`)
	_, err := shredding.Open(a.key(t, dek), a.at, a.subject, ea)
	require.NoError(t, err)
	_, err = shredding.Open(a.key(t, dek), a.at, a.subject, eb)
	refused(t, err)
	_, err = shredding.Open(b.key(t, dek), b.at, b.subject, ea)
	refused(t, err)

	require.Len(t, exchanges, 9)
	for name, move := range exchanges {
		p := a
		move(&p, &b)
		_, err := shredding.Open(p.key(t, dek), p.at, p.subject, ea)
		refused(t, err, "with the other's %s", name)
		// The header follows what the reader believes, as an attacker could make it.
		forged := slices.Clone(ea)
		forged[1] = byte(p.class)
		forged[5] = byte(p.version)
		_, err = shredding.Open(p.key(t, dek), p.at, p.subject, forged)
		refused(t, err, "with the other's %s and a header to match", name)
		p = b
		move(&p, &a)
		_, err = shredding.Open(p.key(t, dek), p.at, p.subject, eb)
		refused(t, err, "with the other's %s", name)
	}
	for first, move := range exchanges {
		for second, too := range exchanges {
			p := a
			move(&p, &b)
			too(&p, &b)
			_, err := shredding.Open(p.key(t, dek), p.at, p.subject, ea)
			refused(t, err, "with the other's %s and %s", first, second)
		}
	}
}

func TestAADFieldBoundaries(t *testing.T) {
	t.Parallel()
	texts := [][4]string{{"event", "ab", "c", "d:e"}, {"event", "a", "bc", "d:e"}, {"event", "", "abc", "d:e"}, {"eventa", "b", "c", "d:e"}, {"event", "ab", "cd", ":e"}, {"event", "c", "ab", "d:e"}}
	seen := map[string]int{}
	for i, x := range texts {
		at := shredding.Location{Kind: shredding.Kind(x[0]), Type: x[1], Pointer: x[2]}
		aad := string(at.AppendAAD(nil, shredding.Subject(x[3]), 0, 1))
		require.NotContains(t, seen, aad, fmt.Sprint(i))
		seen[aad] = i
	}
}

func TestOpen_FlippedBits(t *testing.T) {
	t.Parallel()
	key := testKey(t, shredding.KeyStandard, 1, run(0, 32))
	at := knownLocation()
	count := 0
	for i := range 100 {
		e, err := shredding.Seal(key, at, employee, []byte(fmt.Sprintf(`"value %0*d"`, i, i)))
		require.NoError(t, err)
		for j := range e {
			flipped := slices.Clone(e)
			flipped[j] ^= 1 << (uint(i+j) % 8)
			count++
			if _, err := shredding.Open(key, at, employee, flipped); err == nil {
				require.Fail(t, "opened", "envelope %d with byte %d changed", i, j)
			} else if i == 0 {
				refused(t, err)
			}
		}
		text := e.String()
		for j := range text {
			changed := []byte(text)
			changed[j] ^= 1
			other, err := shredding.ParseEnvelope(string(changed))
			if err == nil {
				_, err = shredding.Open(key, at, employee, other)
			}
			require.Error(t, err)
		}
		for n := range e {
			_, err := shredding.Open(key, at, employee, e[:n])
			require.Error(t, err)
		}
	}
	require.Greater(t, count, 12_000)
}

func TestOpen_OtherKey(t *testing.T) {
	t.Parallel()
	at := knownLocation()
	right, wrong := testKey(t, 0, 1, run(0, 32)), testKey(t, 0, 1, run(1, 32))
	e, err := shredding.Seal(right, at, employee, []byte(`"x"`))
	require.NoError(t, err)
	_, err = shredding.Open(wrong, at, employee, e)
	refused(t, err)
}

// TestSaltsAndNonces checks that salts, nonces and value keys of many values are all different.
func TestSaltsAndNonces(t *testing.T) {
	t.Parallel()
	const count = 100_000
	key := testKey(t, shredding.KeyStandard, 1, run(0, 32))
	at, value := knownLocation(), []byte(`"x"`)
	salts, nonces, commitments := make(map[[24]byte]bool, count), make(map[[12]byte]bool, count), make(map[[32]byte]bool, count)
	for range count {
		e, err := shredding.Seal(key, at, employee, value)
		require.NoError(t, err)
		salts[[24]byte(e[6:30])], commitments[[32]byte(e[30:62])], nonces[[12]byte(e[62:74])] = true, true, true
	}
	require.Len(t, salts, count)
	require.Len(t, nonces, count)
	require.Len(t, commitments, count)
}

// TestKeyVersions checks that each version of a key opens the values that it sealed and no value
// of another version.
func TestKeyVersions(t *testing.T) {
	t.Parallel()
	at := knownLocation()
	keys := map[uint32]shredding.Key{}
	sealed := map[uint32]shredding.Envelope{}
	for i, version := range []uint32{1, 2, 255, 256, 1<<32 - 1} {
		keys[version] = testKey(t, shredding.KeyPIISubject, version, run(byte(i), 32))
		e, err := shredding.Seal(keys[version], at, employee, []byte(fmt.Sprint(version)))
		require.NoError(t, err)
		sealed[version] = e
	}
	for version, e := range sealed {
		h, err := e.Header()
		require.NoError(t, err)
		plain, err := shredding.Open(keys[h.Version], at, employee, e)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(version), string(plain.Reveal()))
		for other, key := range keys {
			if other != version {
				_, err := shredding.Open(key, at, employee, e)
				refused(t, err)
			}
		}
	}
	same := testKey(t, shredding.KeyPIISubject, 2, run(0, 32)) // the DEK of version 1 under another number
	_, err := shredding.Open(same, at, employee, sealed[1])
	refused(t, err)
}
