package kmsd

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// The key specifications that are served, named as AWS KMS names them.
const (
	specSymmetric = "SYMMETRIC_DEFAULT"
	specEd25519   = "ECC_NIST_EDWARDS25519"

	usageEncrypt = "ENCRYPT_DECRYPT"
	usageSign    = "SIGN_VERIFY"

	algorithmEd25519 = "ED25519_SHA_512"
)

// The states of a key, named as AWS KMS names them.
const (
	stateEnabled         = "Enabled"
	stateDisabled        = "Disabled"
	statePendingDeletion = "PendingDeletion"
)

const (
	materialSize = 32 // bytes of an AES-256 key and of an Ed25519 seed
	keyVersion   = 1  // material is never rotated within a key: an epoch has a key of its own
)

// key is one key. Its material is written once and never changes; only the state does.
type key struct {
	keyFile
	stateFile
}

// keyFile is the content of <id>.<version>.key.
type keyFile struct {
	ID          string    `json:"id"` // a random UUID
	Version     uint32    `json:"version"`
	Spec        string    `json:"spec"`
	Description string    `json:"description,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	Material    []byte    `json:"material"`
}

// stateFile is the content of <id>.state.
type stateFile struct {
	State      string    `json:"state"`
	DeletionAt time.Time `json:"deletion_at,omitzero"` // zero unless the state is PendingDeletion
}

func newKey(spec, description string, now time.Time) *key {
	return &key{
		keyFile{
			ID: uuid.NewString(), Version: keyVersion, Spec: spec, Description: description,
			CreatedAt: now.UTC().Truncate(time.Millisecond), Material: randomBytes(materialSize),
		},
		stateFile{State: stateEnabled},
	}
}

// account is the account number in the names of keys; there is only one.
const account = "000000000000"

const arnPrefix = "arn:aws:kms:" + Region + ":" + account + ":"

func (k *key) arn() string { return arnPrefix + "key/" + k.ID }

func (k *key) usage() string {
	if k.Spec == specEd25519 {
		return usageSign
	}
	return usageEncrypt
}

// Format of a ciphertext: 1 byte format, 16 bytes key id, u32 version, 32 bytes
// salt, AES-256-GCM ciphertext with its tag. Every ciphertext has an encryption
// key of its own, derived from the salt, so the nonce may stay zero and the number of
// calls per key needs no bound.
const (
	formatWrapped  = 1
	saltSize       = 32
	wrappedHeader  = 1 + 16 + 4
	wrappedMinimum = wrappedHeader + saltSize + 16
	wrapInfo       = "backbone/kmsd/wrap/v1"
	aadDomain      = "backbone/kmsd/aad/v1"
)

// header is the unencrypted head of a ciphertext. It is not authenticated.
type header struct {
	keyID   string
	version uint32
}

// parseHeader reads the head of a ciphertext; ok is false if this server cannot have made
// the ciphertext.
func parseHeader(blob []byte) (h header, ok bool) {
	if len(blob) < wrappedMinimum || blob[0] != formatWrapped {
		return header{}, false
	}
	return header{keyID: uuid.UUID(blob[1:17]).String(), version: binary.BigEndian.Uint32(blob[17:wrappedHeader])}, true
}

// seal encrypts a data key under the key, bound to the encryption context.
func (k *key) seal(plain []byte, context map[string]string) ([]byte, error) {
	id, err := uuid.Parse(k.ID)
	if err != nil {
		return nil, err
	}
	blob := make([]byte, 0, wrappedMinimum+len(plain))
	blob = append(blob, formatWrapped)
	blob = append(blob, id[:]...)
	blob = binary.BigEndian.AppendUint32(blob, k.Version)
	salt := randomBytes(saltSize)
	blob = append(blob, salt...)
	aead, err := k.aead(salt)
	if err != nil {
		return nil, err
	}
	return aead.Seal(blob, make([]byte, aead.NonceSize()), plain, k.additionalData(context)), nil
}

// open decrypts what seal made. It reports all failures alike.
func (k *key) open(blob []byte, context map[string]string) ([]byte, bool) {
	h, ok := parseHeader(blob)
	if !ok || h.keyID != k.ID || h.version != k.Version {
		return nil, false
	}
	aead, err := k.aead(blob[wrappedHeader : wrappedHeader+saltSize])
	if err != nil {
		return nil, false
	}
	plain, err := aead.Open(nil, make([]byte, aead.NonceSize()), blob[wrappedHeader+saltSize:], k.additionalData(context))
	return plain, err == nil
}

func (k *key) aead(salt []byte) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, k.Material, salt, wrapInfo, 32)
	if err != nil {
		return nil, err
	}
	defer clear(derived)
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// additionalData binds a ciphertext to its key and its encryption context:
// length-prefixed pairs sorted by name, so that no two contexts share an encoding.
func (k *key) additionalData(context map[string]string) []byte {
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	b := text(nil, aadDomain)
	b = text(b, k.ID)
	b = binary.BigEndian.AppendUint32(b, k.Version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(context)))
	for _, name := range slices.Sorted(maps.Keys(context)) {
		b = text(text(b, name), context[name])
	}
	return b
}

func (k *key) sign(message []byte) []byte {
	return ed25519.Sign(ed25519.NewKeyFromSeed(k.Material), message)
}

// publicKey gives the DER form of SubjectPublicKeyInfo (RFC 5280, RFC 8410).
func (k *key) publicKey() ([]byte, error) {
	return x509.MarshalPKIXPublicKey(ed25519.NewKeyFromSeed(k.Material).Public())
}
