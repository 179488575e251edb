package shredding

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
)

// DEKSize is the length of a data encryption key in bytes.
const DEKSize = 32

const fingerprintInfo = "backbone/dek-fp/v1"

// Fingerprint identifies a DEK without revealing it. Receipts hold it, so that a replay
// destroys exactly the keys that the erasure destroyed.
type Fingerprint [16]byte

// ParseFingerprint reads a fingerprint from hex. ok is false for a text of any other length.
func ParseFingerprint(text string) (f Fingerprint, ok bool) {
	if len(text) != hex.EncodedLen(len(f)) {
		return f, false
	}
	_, err := hex.Decode(f[:], []byte(text))
	return f, err == nil
}

// Key is one version of a subject's data encryption key. It prints without the
// DEK. Versions start at 1; class and version are authenticated with every value
// the key seals.
type Key struct {
	Class   KeyClass
	Version uint32
	DEK     Secret
}

// NewKey takes ownership of the DEK's bytes. pii.key_invalid unless there are 32 of them,
// the class is known and the version not 0.
func NewKey(class KeyClass, version uint32, dek []byte) (Key, error) {
	if len(dek) != DEKSize || !class.Valid() || version == 0 {
		clear(dek)
		return Key{}, fault.New(fault.Internal, "pii.key_invalid", "a data key has %d bytes, a known class and a version from 1; check the key store", DEKSize)
	}
	return Key{Class: class, Version: version, DEK: NewSecret(dek)}, nil
}

// Fingerprint is HKDF-SHA-256(DEK, no salt, info "backbone/dek-fp/v1")[0:16].
// pii.key_evicted if the DEK was zeroed.
func (k Key) Fingerprint() (f Fingerprint, err error) {
	err = k.DEK.Use(func(dek []byte) error {
		okm, err := hkdf.Key(sha256.New, dek, nil, fingerprintInfo, len(f))
		copy(f[:], okm)
		return err
	})
	return f, err
}

// KeyState is the state of a subject's key, per partition, subject and key class.
type KeyState string

// The states.
const (
	KeyAbsent    KeyState = "absent" // never minted
	KeyActive    KeyState = "active"
	KeyFenced    KeyState = "fenced"    // an erasure has begun: the key opens values and seals none
	KeyDestroyed KeyState = "destroyed" // every version is deleted
)

// keyMoves are the allowed moves. A destroyed key becomes active only by a reopening that
// two persons approved, with a new version. An absent key becomes destroyed by the erasure
// of an unknown subject, so that no key can be minted later.
var keyMoves = map[KeyState][]KeyState{
	KeyAbsent:    {KeyActive, KeyDestroyed},
	KeyActive:    {KeyActive, KeyFenced},
	KeyFenced:    {KeyActive, KeyDestroyed},
	KeyDestroyed: {KeyActive},
}

// CanBecome reports whether a key may move from one state to another; active
// becomes active by a new version.
func (s KeyState) CanBecome(to KeyState) bool { return slices.Contains(keyMoves[s], to) }

// Seals reports whether new values may be sealed.
func (s KeyState) Seals() bool { return s == KeyActive }

// Codes of faults that callers act on.
const (
	CodeKeyMoved      = "pii.key_moved"      // of the store: seal again
	CodeSubjectErased = "pii.subject_erased" // Erased
)

// Erased is the fault for an append about a subject whose key is fenced or
// destroyed.
func Erased(pointer string) *fault.Error {
	return fault.New(fault.Gone, CodeSubjectErased,
		"the personal data of this subject are erased or being erased; leave the personal fields out").WithField(pointer)
}
