package signednote_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/domain/fault"
)

// witness signs texts as c2sp.org/tlog-cosignature says, written from its text.
type witness struct {
	name string
	key  ed25519.PrivateKey
}

func newWitness(name string, seed byte) witness {
	return witness{name, ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, ed25519.SeedSize))}
}

func (w witness) keyID() []byte {
	public := w.key.Public().(ed25519.PublicKey)
	sum := sha256.Sum256(append([]byte(w.name+"\n\x04"), public...))
	return sum[:4]
}

func (w witness) verifierKey() string {
	public := w.key.Public().(ed25519.PublicKey)
	return fmt.Sprintf("%s+%x+%s", w.name, w.keyID(), base64.StdEncoding.EncodeToString(append([]byte{4}, public...)))
}

func (w witness) line(text string, at uint64) string {
	signature := ed25519.Sign(w.key, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text))
	raw := append(binary.BigEndian.AppendUint64(w.keyID(), at), signature...)
	return "— " + w.name + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
}

// TestOpenCosigned names the keys that signed, ignores signatures of others, and refuses a wrong one of a key.
func TestOpenCosigned(t *testing.T) {
	t.Parallel()
	log, key := signer(t, newService(1))
	const text = "receipts.example.org\n1\nAAAA\n"
	note, err := log.SignNote(t.Context(), []byte(text))
	require.NoError(t, err)
	one, two := newWitness("witness.example/w1", 2), newWitness("witness.example/w2", 3)
	cosigned := string(note) + one.line(text, 1679315147) + two.line(text, 1679315148)
	for name, c := range map[string]struct {
		note string
		keys []string
		want []string
		code string
	}{
		"one signature":                 {string(note), []string{key}, []string{key}, ""},
		"a witness whose key is given":  {cosigned, []string{key, one.verifierKey()}, []string{key, one.verifierKey()}, ""},
		"two witnesses":                 {cosigned, []string{key, two.verifierKey(), one.verifierKey()}, []string{key, one.verifierKey(), two.verifierKey()}, ""},
		"witnesses whose keys are not":  {cosigned, []string{key}, []string{key}, ""},
		"keys that are given twice":     {cosigned, []string{key, one.verifierKey(), key, one.verifierKey()}, []string{key, one.verifierKey()}, ""},
		"a witness alone":               {cosigned, []string{one.verifierKey()}, []string{one.verifierKey()}, ""},
		"no key":                        {cosigned, nil, nil, "note.not_verified"},
		"a witness of another time":     {string(note) + one.line(text, 1<<63), []string{key, one.verifierKey()}, nil, "note.not_verified"},
		"a witness of another text":     {string(note) + one.line("other\n", 1), []string{key, one.verifierKey()}, nil, "note.not_verified"},
		"a changed text":                {"x" + cosigned, []string{key}, nil, "note.not_verified"},
		"a key of another kind":         {cosigned, []string{"a+b+c"}, nil, "note.key_invalid"},
		"a key with another hash":       {cosigned, []string{"x" + one.verifierKey()}, nil, "note.key_invalid"},
		"a signature that is too short": {string(note) + "— " + one.name + " " + base64.StdEncoding.EncodeToString(append(one.keyID(), 1, 2, 3)) + "\n", []string{key, one.verifierKey()}, nil, "note.not_verified"},
	} {
		opened, signers, err := signednote.Opener{}.OpenCosigned([]byte(c.note), c.keys...)
		require.Equal(t, c.code, fault.CodeOf(err), name)
		require.Equal(t, c.want, signers, name)
		if c.code == "" {
			require.Equal(t, text, string(opened), name)
		}
	}
	_, err = signednote.Opener{}.OpenNote(note, key, one.verifierKey())
	require.Equal(t, "note.key_invalid", fault.CodeOf(err), "receipts have no witnesses")
}

// TestCosigner writes the same signatures as the witness of this file.
func TestCosigner(t *testing.T) {
	t.Parallel()
	want := newWitness("witness.example/w1", 2)
	got, err := signednote.NewCosigner(want.name, want.key)
	require.NoError(t, err)
	require.Equal(t, want.verifierKey(), got.VerifierKey())
	require.Equal(t, want.line("a/1\n0\n", 1679315147), string(got.Cosign([]byte("a/1\n0\n"), time.Unix(1679315147, 5))))
	_, err = signednote.NewCosigner("a b", want.key)
	require.Equal(t, "note.key_invalid", fault.CodeOf(err))
}

// TestSignature finds the line of one key among others, and refuses a false one of that key.
func TestSignature(t *testing.T) {
	t.Parallel()
	const text = "a/1\n0\n"
	one, two := newWitness("w1", 2), newWitness("w2", 3)
	lines := "junk\n— w1 ?\n— w2 AAAA\n" + two.line(text, 7) + one.line(text, 8) + one.line("other\n", 9)
	line, err := signednote.Opener{}.Signature([]byte(text), []byte(lines), one.verifierKey())
	require.NoError(t, err)
	require.Equal(t, one.line(text, 8), string(line))
	for _, lines := range []string{"", two.line(text, 7), one.line("other\n", 9) + one.line(text, 8)} {
		_, err = signednote.Opener{}.Signature([]byte(text), []byte(lines), one.verifierKey())
		require.Equal(t, "note.not_verified", fault.CodeOf(err))
	}
	_, err = signednote.Opener{}.Signature([]byte(text), nil, "x")
	require.Equal(t, "note.key_invalid", fault.CodeOf(err))
}
