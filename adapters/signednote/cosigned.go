package signednote

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// timestampBytes is the length of the time before the signature of a witness.
const timestampBytes = 8

// OpenCosigned implements ports.CheckpointOpener.
func (Opener) OpenCosigned(signed []byte, verifierKeys ...string) (text []byte, signers []string, err error) {
	var verifiers []note.Verifier
	keys := map[string]string{} // by name and hash
	for _, key := range verifierKeys {
		name, algorithm, public, err := parseKey(key)
		if err != nil {
			return nil, nil, err
		}
		hash := keyHash(name, []byte{algorithm}, public)
		keys[fmt.Sprintf("%s+%08x", name, hash)] = key
		verify := func(text, signature []byte) bool { return ed25519.Verify(public, text, signature) }
		if algorithm == algorithmCosign {
			verify = func(text, signature []byte) bool { return verifyCosignature(public, text, signature) }
		}
		verifiers = append(verifiers, keyed{name: name, hash: hash, verify: verify})
	}
	opened, err := note.Open(signed, note.VerifierList(verifiers...))
	if err != nil {
		return nil, nil, notVerified().WithCause(err)
	}
	for _, s := range opened.Sigs {
		signers = append(signers, keys[fmt.Sprintf("%s+%08x", s.Name, s.Hash)])
	}
	return []byte(opened.Text), signers, nil
}

// Cosigner signs checkpoints as a witness (c2sp.org/tlog-cosignature), with a key of its own.
type Cosigner struct {
	name string
	key  ed25519.PrivateKey
}

// NewCosigner makes a Cosigner. Fault note.key_invalid (Invalid) for a name with blanks or plus signs.
func NewCosigner(name string, key ed25519.PrivateKey) (*Cosigner, error) {
	if !isName(name) {
		return nil, keyInvalid("the name of a witness has neither blanks nor plus signs; choose another")
	}
	return &Cosigner{name, key}, nil
}

// VerifierKey is the key to check the signatures with.
func (c *Cosigner) VerifierKey() string {
	public := c.key.Public().(ed25519.PublicKey)
	return fmt.Sprintf("%s+%08x+%s", c.name, keyHash(c.name, []byte{algorithmCosign}, public), base64.StdEncoding.EncodeToString(append([]byte{algorithmCosign}, public...)))
}

// Cosign returns the line of a signature of the text of a checkpoint.
func (c *Cosigner) Cosign(text []byte, at time.Time) (line []byte) {
	seconds := uint64(at.Unix())
	raw := binary.BigEndian.AppendUint32(nil, keyHash(c.name, []byte{algorithmCosign}, c.key.Public().(ed25519.PublicKey)))
	raw = binary.BigEndian.AppendUint64(raw, seconds)
	raw = append(raw, ed25519.Sign(c.key, cosignedMessage(text, seconds))...)
	return fmt.Appendf(nil, "— %s %s\n", c.name, base64.StdEncoding.EncodeToString(raw))
}

// verifyCosignature checks a signature of a witness: its time, and the signature over the time and the text.
func verifyCosignature(public ed25519.PublicKey, text, signature []byte) bool {
	if len(signature) != timestampBytes+ed25519.SignatureSize {
		return false
	}
	at := binary.BigEndian.Uint64(signature)
	return at < 1<<63 && ed25519.Verify(public, cosignedMessage(text, at), signature[timestampBytes:])
}

// cosignedMessage is what a witness signs at a time in seconds since 1970 (c2sp.org/tlog-cosignature).
func cosignedMessage(text []byte, at uint64) []byte {
	return fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text)
}
