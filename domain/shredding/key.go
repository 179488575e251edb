package shredding

import (
	"crypto/hkdf"
	"crypto/sha256"

	"github.com/erpbackbone/backbone/domain/fault"
)

// DEKSize is the length of a data encryption key in bytes.
const DEKSize = 32

const fingerprintInfo = "backbone/dek-fp/v1"

// Fingerprint names a DEK without giving it away. Receipts carry it, so that a
// replay destroys exactly the keys an erasure destroyed.
type Fingerprint [16]byte

// Key is one version of a subject's data encryption key. It prints without the
// DEK. Versions start at 1; class and version are authenticated with every value
// the key seals.
type Key struct {
	Class   KeyClass
	Version uint32
	DEK     Secret
}

// NewKey takes over the DEK's bytes. pii.key_invalid unless there are 32 of them,
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
