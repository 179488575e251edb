package memory

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// DataKeys is the part of a key service that makes and opens data keys, in the
// process's memory, for tests. Every key id it is asked for has a key.
type DataKeys struct {
	mu   sync.Mutex
	keys map[string]cipher.AEAD
	fail error
}

var _ ports.DataKeys = (*DataKeys)(nil)

// NewDataKeys makes a key service without keys.
func NewDataKeys() *DataKeys { return &DataKeys{keys: map[string]cipher.AEAD{}} }

// Fail makes every call fail with an error; nil ends it.
func (d *DataKeys) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// Forget destroys a key: what it wrapped opens no more.
func (d *DataKeys) Forget(keyID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.keys, keyID)
}

func (d *DataKeys) key(keyID string) (cipher.AEAD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	if aead, ok := d.keys[keyID]; ok {
		return aead, nil
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	d.keys[keyID] = aead
	return aead, nil
}

// Generate implements ports.DataKeys.
func (d *DataKeys) Generate(_ context.Context, keyID string, bound ports.EncryptionContext) (ports.DataKey, error) {
	plain := make([]byte, shredding.DEKSize)
	_, _ = rand.Read(plain) // never fails
	made := ports.DataKey{Plain: shredding.NewSecret(plain)}
	var err error
	made.Wrapped, err = d.wrap(keyID, made.Plain, bound)
	return made, err
}

func (d *DataKeys) wrap(keyID string, secret shredding.Secret, bound ports.EncryptionContext) (wrapped []byte, err error) {
	aead, err := d.key(keyID)
	if err != nil {
		return nil, err
	}
	err = secret.Use(func(plain []byte) error {
		wrapped = append(pair(nil, keyID), aead.Seal(nil, nil, plain, boundBytes(bound))...)
		return nil
	})
	return wrapped, err
}

// Unwrap implements ports.DataKeys.
func (d *DataKeys) Unwrap(_ context.Context, keyID string, wrapped []byte, bound ports.EncryptionContext) (shredding.Secret, error) {
	aead, err := d.key(keyID)
	if err != nil {
		return shredding.Secret{}, err
	}
	invalid := fault.New(fault.Invalid, "kms.ciphertext_invalid", "the wrapped key is damaged or bound to something else; look at where it comes from")
	if len(wrapped) < 4 || uint64(len(wrapped)) < 4+uint64(binary.BigEndian.Uint32(wrapped)) {
		return shredding.Secret{}, invalid
	}
	end := 4 + binary.BigEndian.Uint32(wrapped)
	if string(wrapped[4:end]) != keyID {
		return shredding.Secret{}, fault.New(fault.Invalid, "kms.key_mismatch", "the key was wrapped under another key; name that one")
	}
	plain, err := aead.Open(nil, nil, wrapped[end:], boundBytes(bound))
	if err != nil {
		return shredding.Secret{}, invalid
	}
	return shredding.NewSecret(plain), nil
}

// boundBytes writes the pairs by name, each part with its length.
func boundBytes(bound ports.EncryptionContext) []byte {
	var out []byte
	for _, name := range slices.Sorted(maps.Keys(bound)) {
		out = pair(pair(out, name), bound[name])
	}
	return out
}

func pair(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}
