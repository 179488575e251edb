package ports

import "context"

// A note is a short text with a signature under it, in the signed note format of C2SP
// (c2sp.org/signed-note): the text, which ends in a line break, an empty line, and
// "— <name> <base64(key hash ‖ signature)>". A verifier key is the text
// "<name>+<8 hex digits of the key hash>+<base64(0x01 ‖ Ed25519 public key)>".
//
// A text longer than MaximumSignedMessage is signed by its digest: what is signed is
//
//	backbone/note-digest/v1
//	<SHA-256 of the text, in lower-case hex>
//
// with a line break after each of the two lines, under the key hash of the algorithm
// 0xff "backbone/note-digest/v1", so that it is not taken for a signature of the text.
// It is checked with the same verifier key.

// NoteSigner signs texts with one key. The same text always gives the same note.
// Safe for concurrent use.
type NoteSigner interface {
	// SignNote signs a text of printable UTF-8 lines, the last one ended by a line
	// break: note.text_invalid (Internal) otherwise. Faults of Signer too.
	SignNote(ctx context.Context, text []byte) (note []byte, err error)
	// VerifierKey returns the key to check the notes with.
	VerifierKey(ctx context.Context) (string, error)
}

// NoteOpener checks notes. It needs no service.
type NoteOpener interface {
	// OpenNote returns a note's text if it is signed with one of the keys and has no other
	// signature. A note has one encoding, so OpenNote detects every changed byte.
	//
	//	note.key_invalid   Invalid: not a verifier key
	//	note.not_verified  Invalid: malformed, changed, or signed with another key
	OpenNote(note []byte, verifierKeys ...string) (text []byte, err error)
}

// CheckpointOpener checks notes that others may have signed too, as witnesses do (c2sp.org/tlog-cosignature).
type CheckpointOpener interface {
	// OpenCosigned returns a note's text and those of the keys that signed it, at least one.
	// It ignores signatures of other keys. A verifier key of a witness has 0x04 in place of 0x01.
	//
	//	note.key_invalid   Invalid: not a verifier key
	//	note.not_verified  Invalid: malformed, changed, or signed with none of the keys
	OpenCosigned(note []byte, verifierKeys ...string) (text []byte, signers []string, err error)
	// Signature finds the line with the signature of a text with one key among lines, and returns it in its one encoding.
	// It ignores other lines. Faults as of OpenCosigned.
	Signature(text, lines []byte, verifierKey string) (line []byte, err error)
}
