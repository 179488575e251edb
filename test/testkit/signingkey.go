package testkit

import (
	"context"
	"crypto/ed25519"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// SigningKey is a ports.Signer with one key in memory, whatever its id.
type SigningKey struct{ key ed25519.PrivateKey }

var _ ports.Signer = SigningKey{}

// NewSigningKey makes the key of a seed.
func NewSigningKey(seed byte) SigningKey {
	return SigningKey{ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, ed25519.SeedSize))}
}

// Sign implements ports.Signer.
func (k SigningKey) Sign(_ context.Context, _ string, message []byte) ([]byte, error) {
	if len(message) == 0 || len(message) > ports.MaximumSignedMessage {
		return nil, fault.New(fault.Invalid, "kms.request_invalid", "a message has 1 to 4096 bytes")
	}
	return ed25519.Sign(k.key, message), nil
}

// PublicKey implements ports.Signer.
func (k SigningKey) PublicKey(context.Context, string) (ed25519.PublicKey, error) {
	return k.key.Public().(ed25519.PublicKey), nil
}
