package shredding

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Envelope format 1, which [Envelope] and [Location.AppendAAD] describe; ADR 0014 has the reasons
// and the tests have known answers. Offsets and sizes are frozen: stored values cannot be sealed
// again.
const (
	envelopeFormat = 1

	saltOffset       = 6
	commitmentOffset = 30
	nonceOffset      = 62
	sealedOffset     = 74

	saltSize        = commitmentOffset - saltOffset
	tagSize         = 16
	keySize         = 32
	padding         = 32 // plaintext is a multiple of it
	minEnvelopeSize = sealedOffset + padding + tagSize
	aadSize         = 128 // room for the authenticated data but for type, pointer and subject
	aadDomain       = "backbone/pii-aad/v1"
	kdfDomain       = "backbone/pii-kdf/v1"
)

// Kind is the kind of record that a sealed value belongs to.
type Kind string

// The kinds.
const (
	KindEvent  Kind = "event"
	KindIntent Kind = "intent"
)

// Location is where a value was sealed. It is authenticated: a ciphertext moved
// to another record, field or subject does not open.
type Location struct {
	Partition     event.PartitionID
	Kind          Kind
	Record        event.ID
	Type          string // as stored, so opening comes before upcasting
	SchemaVersion uint32 // as stored
	Pointer       string // RFC 6901 in the stored document, with real indexes: /data/contacts/0/email
}

// AppendAAD adds the authenticated data of a value:
//
//	L("backbone/pii-aad/v1") L(u32 partition_id) L(kind) L(record id) L(type) L(u32 schema_version)
//	L(pointer) L(subject id) L(u8 key class) L(u32 key version)
//
// with L(x) = u32 length ‖ x, integers big-endian.
func (l Location) AppendAAD(dst []byte, subject Subject, class KeyClass, version uint32) []byte {
	dst = appendText(dst, aadDomain)
	dst = appendNumber(dst, uint32(l.Partition))
	dst = appendText(dst, string(l.Kind))
	dst = appendText(dst, string(l.Record[:]))
	dst = appendText(dst, l.Type)
	dst = appendNumber(dst, l.SchemaVersion)
	dst = appendText(dst, l.Pointer)
	dst = appendText(dst, string(subject))
	dst = append(dst, 0, 0, 0, 1, byte(class))
	return appendNumber(dst, version)
}

func appendText(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

func appendNumber(dst []byte, v uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, 4)
	return binary.BigEndian.AppendUint32(dst, v)
}

// Envelope is one sealed value in format 1:
//
//	format, key class, u32 key version, salt[24], commitment[32], nonce[12], ciphertext and tag
type Envelope []byte

// Header is the unencrypted part of an envelope. Only opening authenticates it.
type Header struct {
	Class   KeyClass
	Version uint32
}

// ParseEnvelope reads base64url without padding and checks the form. Every
// fault is pii.unsealable.
func ParseEnvelope(text string) (Envelope, error) {
	// The decoder skips line breaks, but a value has one spelling only.
	if len(text) < base64.RawURLEncoding.EncodedLen(minEnvelopeSize) || bytes.ContainsAny([]byte(text), "\r\n") {
		return nil, unsealable()
	}
	e, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || !Envelope(e).isWellFormed() {
		return nil, unsealable()
	}
	return e, nil
}

// String gives base64url without padding.
func (e Envelope) String() string { return base64.RawURLEncoding.EncodeToString(e) }

// Header reads key class and version, to find the key. pii.unsealable if the
// envelope has not the form of a known format.
func (e Envelope) Header() (Header, error) {
	if !e.isWellFormed() {
		return Header{}, unsealable()
	}
	return Header{Class: KeyClass(e[1]), Version: binary.BigEndian.Uint32(e[2:])}, nil
}

func (e Envelope) isWellFormed() bool {
	return len(e) >= minEnvelopeSize && (len(e)-sealedOffset-tagSize)%padding == 0 && e[0] == envelopeFormat && KeyClass(e[1]).Valid()
}

// unsealable is the fault of every failure to open: a wrong key, a wrong place and a changed
// byte give the same one.
func unsealable() error {
	return fault.New(fault.Internal, "pii.unsealable", "this sealed value cannot be opened; verify the log and the key store")
}

// Seal encrypts a value, its JSON text exactly as received, for one place and subject. It
// derives the value's key from the DEK with a random salt and uses it once. Faults:
// pii.key_evicted if the DEK was zeroed; pii.value_invalid if the value is empty or has blanks
// around it, which opening could not give back.
func Seal(key Key, at Location, subject Subject, value []byte) (Envelope, error) {
	var salt [saltSize]byte
	_, _ = rand.Read(salt[:]) // never fails: it ends the program instead
	return seal(key, at, subject, value, salt, sealRandomNonce)
}

// sealer encrypts under a block cipher and adds nonce, ciphertext and tag to dst.
type sealer func(block cipher.Block, dst, plaintext, aad []byte) ([]byte, error)

// sealRandomNonce is the form of GCM that FIPS-only mode allows.
func sealRandomNonce(block cipher.Block, dst, plaintext, aad []byte) ([]byte, error) {
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return gcm.Seal(dst, nil, plaintext, aad), nil
}

func seal(key Key, at Location, subject Subject, value []byte, salt [saltSize]byte, encrypt sealer) (Envelope, error) {
	if len(value) == 0 || len(bytes.TrimSpace(value)) != len(value) {
		return nil, fault.New(fault.Invalid, "pii.value_invalid", "a sealed value is one JSON value without blanks around it; send it so")
	}
	if !key.Class.Valid() || key.Version == 0 {
		return nil, fault.New(fault.Internal, "pii.key_invalid", "a key has a known class and a version from 1; check the key store")
	}
	padded := (len(value) + padding - 1) / padding * padding
	scratch := make([]byte, padded, padded+aadSize+len(at.Type)+len(at.Pointer)+len(subject))
	plaintext := scratch[:padded:padded]
	aad := at.AppendAAD(scratch[padded:], subject, key.Class, key.Version)
	okm, err := deriveValueKey(key, salt[:], aad)
	if err != nil {
		return nil, err
	}
	defer clear(okm)
	defer clear(plaintext)
	for i := copy(plaintext, value); i < padded; i++ {
		plaintext[i] = ' '
	}
	e := make(Envelope, nonceOffset, sealedOffset+padded+tagSize)
	e[0], e[1] = envelopeFormat, byte(key.Class)
	binary.BigEndian.PutUint32(e[2:], key.Version)
	copy(e[saltOffset:], salt[:])
	copy(e[commitmentOffset:], okm[keySize:])
	block, err := aes.NewCipher(okm[:keySize])
	if err != nil {
		return nil, err
	}
	return encrypt(block, e, plaintext, aad)
}

// Open returns the value. Every failure (form, key, place, subject, a changed byte) has the
// same fault pii.unsealable; only a zeroed DEK is pii.key_evicted, after which the caller
// may try again.
func Open(key Key, at Location, subject Subject, e Envelope) (Plain, error) {
	h, err := e.Header()
	if err != nil || h.Class != key.Class || h.Version != key.Version {
		return Plain{}, unsealable()
	}
	var scratch [512]byte
	aad := at.AppendAAD(scratch[:0], subject, key.Class, key.Version)
	okm, err := deriveValueKey(key, e[saltOffset:commitmentOffset], aad)
	if err != nil {
		return Plain{}, err
	}
	defer clear(okm)
	// GCM alone commits to no key: one ciphertext can be made to open under two.
	if subtle.ConstantTimeCompare(okm[keySize:], e[commitmentOffset:nonceOffset]) != 1 {
		return Plain{}, unsealable()
	}
	block, err := aes.NewCipher(okm[:keySize])
	if err != nil {
		return Plain{}, unsealable()
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return Plain{}, unsealable()
	}
	text, err := gcm.Open(nil, nil, e[nonceOffset:], aad)
	if err != nil {
		return Plain{}, unsealable()
	}
	if text = bytes.TrimRight(text, " "); len(text) == 0 {
		return Plain{}, unsealable()
	}
	return NewPlain(text), nil
}

// IsSealedWith reports whether the key sealed the value at its place. It does not open the value.
func (e Envelope) IsSealedWith(key Key, at Location, subject Subject) bool {
	h, err := e.Header()
	if err != nil || h.Class != key.Class || h.Version != key.Version {
		return false
	}
	okm, err := deriveValueKey(key, e[saltOffset:commitmentOffset], at.AppendAAD(nil, subject, key.Class, key.Version))
	defer clear(okm)
	return err == nil && subtle.ConstantTimeCompare(okm[keySize:], e[commitmentOffset:nonceOffset]) == 1
}

// deriveValueKey gives key[32] ‖ commitment[32]:
// HKDF-SHA-256(DEK, salt, L("backbone/pii-kdf/v1") ‖ SHA-256(aad), 64 bytes).
func deriveValueKey(key Key, salt, aad []byte) (okm []byte, err error) {
	digest := sha256.Sum256(aad)
	var scratch [64]byte
	info := append(appendText(scratch[:0], kdfDomain), digest[:]...)
	err = key.DEK.Use(func(dek []byte) error {
		okm, err = hkdf.Key(sha256.New, dek, salt, string(info), 2*keySize)
		return err
	})
	return okm, err
}
