// Package signednote writes and reads signed notes (c2sp.org/signed-note) whose Ed25519
// keys stay in a key management service. [Signer] signs the receipts, certificates and
// notices of erasure and keyrotation, [Opener] verifies them without any service. The
// package never holds a private key.
package signednote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	algorithmEd25519 = 0x01
	algorithmCosign  = 0x04 // of witnesses: the signature covers its time too
	algorithmOther   = 0xff // followed by the algorithm's name

	digestName = "backbone/note-digest/v1"
)

// Signer implements ports.NoteSigner with one key of a signing service. Safe for
// concurrent use.
type Signer struct {
	name string
	key  string
	sign ports.Signer

	mu     sync.Mutex
	public ed25519.PublicKey
}

var (
	_ ports.NoteSigner       = (*Signer)(nil)
	_ ports.NoteOpener       = Opener{}
	_ ports.CheckpointOpener = Opener{}
)

// NewSigner makes a Signer. name identifies the signer in every note, such as
// "receipts.books.example.org": no blanks, no plus sign. note.key_invalid (Invalid)
// for any other.
func NewSigner(name, keyID string, s ports.Signer) (*Signer, error) {
	if !isName(name) {
		return nil, keyInvalid("the name of a signer has neither blanks nor plus signs; choose another")
	}
	return &Signer{name: name, key: keyID, sign: s}, nil
}

// SignNote implements ports.NoteSigner.
func (s *Signer) SignNote(ctx context.Context, text []byte) ([]byte, error) {
	if !printable(text) {
		return nil, textInvalid()
	}
	public, err := s.publicKey(ctx)
	if err != nil {
		return nil, err
	}
	message, prefix := message(text), keyPrefix(text)
	var failed error
	signed, err := note.Sign(&note.Note{Text: string(text)}, keyed{
		name: s.name, hash: keyHash(s.name, prefix, public),
		sign: func([]byte) ([]byte, error) {
			var signature []byte
			if signature, failed = s.sign.Sign(ctx, s.key, message); failed == nil && !ed25519.Verify(public, message, signature) {
				failed = fault.New(fault.Unavailable, "kms.signature_wrong", "the signing service answered with a wrong signature; check the key and the connection")
			}
			return signature, failed
		},
	})
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, textInvalid().WithCause(err)
	}
	return signed, nil
}

// printable reports whether readers of notes accept the text, which the library's writer
// does not check.
func printable(text []byte) bool {
	return utf8.Valid(text) && bytes.HasSuffix(text, []byte("\n")) && !bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' })
}

func textInvalid() *fault.Error {
	return fault.New(fault.Internal, "note.text_invalid", "a note holds lines of printable text, each ended by a line break; report this defect")
}

// VerifierKey implements ports.NoteSigner.
func (s *Signer) VerifierKey(ctx context.Context) (string, error) {
	public, err := s.publicKey(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s+%08x+%s", s.name, keyHash(s.name, []byte{algorithmEd25519}, public),
		base64.StdEncoding.EncodeToString(append([]byte{algorithmEd25519}, public...))), nil
}

// publicKey returns the public key. It asks the service once.
func (s *Signer) publicKey(ctx context.Context) (ed25519.PublicKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.public != nil {
		return s.public, nil
	}
	public, err := s.sign.PublicKey(ctx, s.key)
	if err != nil {
		return nil, err
	}
	if len(public) != ed25519.PublicKeySize {
		return nil, keyInvalid("the signing service gave no Ed25519 key; check the key's id")
	}
	s.public = public
	return public, nil
}

// Opener implements ports.NoteOpener.
type Opener struct{}

// OpenNote implements ports.NoteOpener.
func (Opener) OpenNote(signed []byte, verifierKeys ...string) ([]byte, error) {
	var verifiers []note.Verifier
	for i, text := range verifierKeys {
		if slices.Contains(verifierKeys[:i], text) {
			continue // a key that is given twice is one
		}
		name, algorithm, public, err := parseKey(text)
		if err != nil {
			return nil, err
		}
		if algorithm != algorithmEd25519 {
			return nil, keyInvalid("this is the key of a witness; give the key of the signer")
		}
		for _, prefix := range [][]byte{{algorithmEd25519}, digestPrefix()} {
			verifiers = append(verifiers, keyed{name: name, hash: keyHash(name, prefix, public), verify: func(text, signature []byte) bool {
				return bytes.Equal(keyPrefix(text), prefix) && ed25519.Verify(public, message(text), signature)
			}})
		}
	}
	opened, err := note.Open(signed, note.VerifierList(verifiers...))
	if err != nil {
		return nil, notVerified().WithCause(err)
	}
	// note.Open ignores spare bits of base64 and signatures of unknown keys. Accept only the
	// one encoding that SignNote returns.
	if len(opened.Sigs) != 1 || len(opened.UnverifiedSigs) != 0 {
		return nil, notVerified()
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(opened.Sigs[0].Base64)
	if err != nil {
		return nil, notVerified()
	}
	encoded := opened.Text + "\n— " + opened.Sigs[0].Name + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
	if encoded != string(signed) {
		return nil, notVerified()
	}
	return []byte(opened.Text), nil
}

// parseKey parses a verifier key, which has one encoding.
func parseKey(text string) (name string, algorithm byte, public ed25519.PublicKey, err error) {
	invalid := keyInvalid("a verifier key is <name>+<8 hex digits>+<base64 of an Ed25519 key>; copy it as it was published")
	name, rest, _ := strings.Cut(text, "+")
	hash, encoded, _ := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != algorithmEd25519 && raw[0] != algorithmCosign || !isName(name) ||
		hash != fmt.Sprintf("%08x", keyHash(name, raw[:1], raw[1:])) {
		return "", 0, nil, invalid
	}
	return name, raw[0], raw[1:], nil
}

// isName reports whether a signer may have the name.
func isName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || r == '+' })
}

// keyed implements note.Signer and note.Verifier.
type keyed struct {
	name   string
	hash   uint32
	sign   func(message []byte) ([]byte, error)
	verify func(message, signature []byte) bool
}

func (k keyed) Name() string                          { return k.name }
func (k keyed) KeyHash() uint32                       { return k.hash }
func (k keyed) Sign(message []byte) ([]byte, error)   { return k.sign(message) }
func (k keyed) Verify(message, signature []byte) bool { return k.verify(message, signature) }

// message returns the message to sign for a text: the text, or its digest if it is longer
// than a signing service accepts.
func message(text []byte) []byte {
	if len(text) <= ports.MaximumSignedMessage {
		return text
	}
	return fmt.Appendf(nil, "%s\n%x\n", digestName, sha256.Sum256(text))
}

func keyPrefix(text []byte) []byte {
	if len(text) <= ports.MaximumSignedMessage {
		return []byte{algorithmEd25519}
	}
	return digestPrefix()
}

func digestPrefix() []byte { return append([]byte{algorithmOther}, digestName...) }

// keyHash is the first four bytes of SHA-256(name ‖ "\n" ‖ algorithm ‖ public key).
func keyHash(name string, prefix []byte, public ed25519.PublicKey) uint32 {
	h := sha256.New()
	h.Write([]byte(name + "\n"))
	h.Write(prefix)
	h.Write(public)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

func keyInvalid(detail string) *fault.Error {
	return fault.New(fault.Invalid, "note.key_invalid", detail)
}

func notVerified() *fault.Error {
	return fault.New(fault.Invalid, "note.not_verified", "the signature is missing, does not fit the text, or is of another key; compare the document with another copy and check the key")
}
