package signednote_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// service signs as a key management service does.
type service struct {
	key    ed25519.PrivateKey
	err    error
	broken bool
	asked  int
}

func newService(seed byte) *service {
	return &service{key: ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, ed25519.SeedSize))}
}

func (s *service) Sign(_ context.Context, keyID string, message []byte) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if keyID != "key-1" || len(message) == 0 || len(message) > ports.MaximumSignedMessage {
		return nil, fault.New(fault.Invalid, "kms.request_invalid", "refused")
	}
	signature := ed25519.Sign(s.key, message)
	if s.broken {
		signature[0]++
	}
	return signature, nil
}

func (s *service) PublicKey(context.Context, string) (ed25519.PublicKey, error) {
	s.asked++
	return s.key.Public().(ed25519.PublicKey), s.err
}

func signer(t *testing.T, s *service) (*signednote.Signer, string) {
	t.Helper()
	n, err := signednote.NewSigner("receipts.example.org", "key-1", s)
	require.NoError(t, err)
	vkey, err := n.VerifierKey(t.Context())
	require.NoError(t, err)
	return n, vkey
}

const text = "backbone/test/v1\nfirst line\nünd noch eine\n"

func TestSignNoteKnownAnswers(t *testing.T) {
	t.Parallel()
	s := newService(1)
	n, vkey := signer(t, s)
	signed, err := n.SignNote(t.Context(), []byte(text))
	require.NoError(t, err)
	again, err := n.SignNote(t.Context(), []byte(text))
	require.NoError(t, err)
	require.Equal(t, signed, again)
	require.Equal(t, 1, s.asked, "the public key is fetched once")

	// The library's own verifier knows the key and the note.
	v, err := note.NewVerifier(vkey)
	require.NoError(t, err)
	opened, err := note.Open(signed, note.VerifierList(v))
	require.NoError(t, err)
	require.Equal(t, text, opened.Text)

	got, err := signednote.Opener{}.OpenNote(signed, vkey)
	require.NoError(t, err)
	require.Equal(t, text, string(got))

	// A known answer: a stored signature must verify for ever.
	require.Equal(t, "receipts.example.org+f82bea8e+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c", vkey)
	require.Equal(t, text+"\n— receipts.example.org +CvqjgYDLlhG3ueKblWxM2YDp+cYvNtnnA+uCX2KI5PpqSwBVUWAln0aybVkQFMxYWt0naC/mHiKDuGPPsGEec7ScwQ=\n", string(signed))
}

func signature(t *testing.T, signed []byte) []byte {
	t.Helper()
	line := string(signed[strings.LastIndex(string(signed), " ")+1:])
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(line, "\n"))
	require.NoError(t, err)
	return raw[4:]
}

// TestSignNoteSignsDigestOfLongText passes the limit of the service.
func TestSignNoteSignsDigestOfLongText(t *testing.T) {
	t.Parallel()
	s := newService(1)
	n, vkey := signer(t, s)
	for _, size := range []int{ports.MaximumSignedMessage - 1, ports.MaximumSignedMessage, ports.MaximumSignedMessage + 1, 100_000} {
		long := strings.Repeat("x", size-1) + "\n"
		signed, err := n.SignNote(t.Context(), []byte(long))
		require.NoError(t, err)
		got, err := signednote.Opener{}.OpenNote(signed, vkey)
		require.NoError(t, err)
		require.Equal(t, long, string(got))

		digest := fmt.Appendf(nil, "backbone/note-digest/v1\n%x\n", sha256.Sum256([]byte(long)))
		byDigest := ed25519.Verify(s.key.Public().(ed25519.PublicKey), digest, signature(t, signed))
		require.Equal(t, size > ports.MaximumSignedMessage, byDigest, size)

		v, err := note.NewVerifier(vkey)
		require.NoError(t, err)
		_, err = note.Open(signed, note.VerifierList(v))
		require.Equal(t, byDigest, err != nil, "a reader of the standard refuses the signature of a digest")

		changed := []byte(strings.Replace(string(signed), "xx", "xy", 1))
		_, err = signednote.Opener{}.OpenNote(changed, vkey)
		require.Equal(t, "note.not_verified", fault.CodeOf(err))
	}
	// The signature of a digest is none of a text that has the same bytes.
	long := []byte(strings.Repeat("y", 5000) + "\n")
	signed, err := n.SignNote(t.Context(), long)
	require.NoError(t, err)
	forged := fmt.Sprintf("backbone/note-digest/v1\n%x\n%s", sha256.Sum256(long), signed[len(long):])
	_, err = signednote.Opener{}.OpenNote([]byte(forged), vkey)
	require.Equal(t, "note.not_verified", fault.CodeOf(err))
}

// TestOpenNoteDetectsEveryChangedByte changes, drops and adds bytes.
func TestOpenNoteDetectsEveryChangedByte(t *testing.T) {
	t.Parallel()
	n, vkey := signer(t, newService(1))
	signed, err := n.SignNote(t.Context(), []byte(text))
	require.NoError(t, err)
	refused := func(changed []byte, what string, at int) {
		_, err := signednote.Opener{}.OpenNote(changed, vkey)
		require.Equal(t, "note.not_verified", fault.CodeOf(err), "%s at %d", what, at)
	}
	for i := range signed {
		for bit := range 8 {
			changed := slices.Clone(signed)
			changed[i] ^= 1 << bit
			refused(changed, "flip", i)
		}
		refused(slices.Delete(slices.Clone(signed), i, i+1), "dropped", i)
		refused(slices.Insert(slices.Clone(signed), i, 'A'), "added", i)
	}
	last := signed[strings.LastIndex(string(signed[:len(signed)-1]), "\n")+1:]
	refused(append(slices.Clone(signed), last...), "signature twice", 0)
	refused(append(slices.Clone(signed), "— other.example.org AAAAAAAA\n"...), "foreign signature", 0)
	refused(nil, "nothing", 0)
	refused([]byte(text), "text alone", 0)
}

func TestVerifierKeys(t *testing.T) {
	t.Parallel()
	n, vkey := signer(t, newService(1))
	_, other := signer(t, newService(2))
	signed, err := n.SignNote(t.Context(), []byte(text))
	require.NoError(t, err)
	_, err = signednote.Opener{}.OpenNote(signed, other)
	require.Equal(t, "note.not_verified", fault.CodeOf(err))
	_, err = signednote.Opener{}.OpenNote(signed)
	require.Equal(t, "note.not_verified", fault.CodeOf(err))
	_, err = signednote.Opener{}.OpenNote(signed, other, vkey)
	require.NoError(t, err, "notes of a replaced key verify with its key")
	for _, bad := range []string{"", "x", vkey + "x", strings.Replace(vkey, "example", "Example", 1), strings.ToUpper(vkey), vkey[:len(vkey)-1], "a+b+c"} {
		_, err = signednote.Opener{}.OpenNote(signed, bad)
		require.Equal(t, "note.key_invalid", fault.CodeOf(err), bad)
	}
	for _, name := range []string{"", "a b", "a+b", "a\nb"} {
		_, err := signednote.NewSigner(name, "key-1", newService(1))
		require.Equal(t, "note.key_invalid", fault.CodeOf(err), "%q", name)
	}
}

func TestSignNoteRefuses(t *testing.T) {
	t.Parallel()
	s := newService(1)
	n, _ := signer(t, s)
	for _, bad := range []string{"", "no line break", "bell\a\n", "\xff\n"} {
		_, err := n.SignNote(t.Context(), []byte(bad))
		require.Equal(t, "note.text_invalid", fault.CodeOf(err), "%q", bad)
	}
	s.broken = true
	_, err := n.SignNote(t.Context(), []byte(text))
	require.Equal(t, "kms.signature_wrong", fault.CodeOf(err), "a wrong signature is not returned")
	s.err = fault.New(fault.Unavailable, "kms.unavailable", "away")
	_, err = n.SignNote(t.Context(), []byte(text))
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
	fresh, err := signednote.NewSigner("a", "key-1", s)
	require.NoError(t, err)
	_, err = fresh.VerifierKey(t.Context())
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
}

// FuzzOpenNote holds the reader of signed notes, which are receipts and checkpoints, to its
// promise: no panic, and nothing opens but the one note that was signed.
func FuzzOpenNote(f *testing.F) {
	n, err := signednote.NewSigner("receipts.example.org", "key-1", newService(1))
	require.NoError(f, err)
	verifierKey, err := n.VerifierKey(f.Context())
	require.NoError(f, err)
	signed, err := n.SignNote(f.Context(), []byte("first line\nsecond line\n"))
	require.NoError(f, err)
	f.Add(signed, verifierKey)
	f.Add(append(slices.Clone(signed), '\n'), verifierKey)
	f.Add(append(slices.Clone(signed), signed[bytes.LastIndex(signed, []byte("—")):]...), verifierKey)
	f.Add([]byte("x\n\n— receipts.example.org AAAA\n"), verifierKey)
	f.Add([]byte{}, "")
	f.Add(signed, "receipts.example.org+00000000+AAAA")
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		opened, err := signednote.Opener{}.OpenNote(text, verifierKey)
		if err == nil {
			require.Equal(t, signed, text)
			require.Equal(t, "first line\nsecond line\n", string(opened))
		} else {
			_, ok := fault.As(err)
			require.True(t, ok)
		}
		if _, err := (signednote.Opener{}).OpenNote(signed, key); err == nil {
			require.Equal(t, verifierKey, key)
		}
	})
}
