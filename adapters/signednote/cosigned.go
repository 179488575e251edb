package signednote

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/note"
)

// timestampBytes is the length of the time before the signature of a witness.
const timestampBytes = 8

// OpenCosigned implements ports.CheckpointOpener.
func (Opener) OpenCosigned(signed []byte, verifierKeys ...string) (text []byte, signers []string, err error) {
	var verifiers []note.Verifier
	for _, key := range verifierKeys {
		name, algorithm, public, err := parseKey(key)
		if err != nil {
			return nil, nil, err
		}
		verify := func(text, signature []byte) bool { return ed25519.Verify(public, text, signature) }
		if algorithm == algorithmCosign {
			verify = func(text, signature []byte) bool { return verifyCosignature(public, text, signature) }
		}
		verifiers = append(verifiers, keyed{name: name, hash: keyHash(name, []byte{algorithm}, public), verify: verify})
	}
	opened, err := note.Open(signed, note.VerifierList(verifiers...))
	if err != nil {
		return nil, nil, notVerified().WithCause(err)
	}
	for _, s := range opened.Sigs {
		if !slices.Contains(signers, s.Name) {
			signers = append(signers, s.Name)
		}
	}
	return []byte(opened.Text), signers, nil
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
