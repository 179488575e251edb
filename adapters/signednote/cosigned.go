package signednote

import (
	"bytes"
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
		v, err := verifierOf(key)
		if err != nil {
			return nil, nil, err
		}
		if id := v.id(); keys[id] == "" { // a key that is given twice is one
			keys[id], verifiers = key, append(verifiers, v)
		}
	}
	opened, err := note.Open(signed, note.VerifierList(verifiers...))
	if err != nil {
		return nil, nil, notVerified().WithCause(err)
	}
	for _, s := range opened.Sigs {
		signers = append(signers, keys[keyed{name: s.Name, hash: s.Hash}.id()])
	}
	return []byte(opened.Text), signers, nil
}

// Signature implements ports.CheckpointOpener.
func (Opener) Signature(text, lines []byte, verifierKey string) (line []byte, err error) {
	v, err := verifierOf(verifierKey)
	if err != nil {
		return nil, err
	}
	for found := range bytes.Lines(lines) {
		rest, isLine := bytes.CutPrefix(found, []byte("— "+v.name+" "))
		raw, err := base64.StdEncoding.Strict().DecodeString(string(bytes.TrimSuffix(rest, []byte("\n"))))
		if !isLine || err != nil || len(raw) < hashBytes || binary.BigEndian.Uint32(raw) != v.hash {
			continue
		}
		if !v.verify(text, raw[hashBytes:]) {
			return nil, notVerified()
		}
		return fmt.Appendf(nil, "— %s %s\n", v.name, base64.StdEncoding.EncodeToString(raw)), nil
	}
	return nil, notVerified()
}

// hashBytes is the length of the hash of a key before its signature.
const hashBytes = 4

// verifierOf is the verifier of the key of a log or a witness.
func verifierOf(key string) (keyed, error) {
	name, algorithm, public, err := parseKey(key)
	if err != nil {
		return keyed{}, err
	}
	v := keyed{name: name, hash: keyHash(name, []byte{algorithm}, public), verify: func(text, signature []byte) bool { return ed25519.Verify(public, text, signature) }}
	if algorithm == algorithmCosign {
		v.verify = func(text, signature []byte) bool { return verifyCosignature(public, text, signature) }
	}
	return v, nil
}

// id tells keys apart, as note.Open does.
func (k keyed) id() string { return fmt.Sprintf("%s+%08x", k.name, k.hash) }

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
