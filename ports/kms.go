package ports

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/erpbackbone/backbone/domain/shredding"
)

// The key management service holds the keys that wrap data keys and the keys that
// sign. Its keys never leave it. Where a method takes a key, it takes the id that
// Create returned; Create and Describe know a key by its alias too.
//
// Faults of all methods (each is final unless it says so):
//
//	kms.unavailable           Unavailable: not reached, too slow, throttled or broken
//	                          inside, after several tries. The outcome is unknown.
//	                          Retryable, and it says when.
//	kms.access_denied         Unavailable: the service refuses the client's credentials or
//	                          rights. Retryable once an operator has repaired it;
//	                          tried once.
//	kms.key_not_found         NotFound: no such key, or its deletion is complete.
//	kms.key_disabled          FailedPrecondition: an operator disabled the key.
//	kms.key_pending_deletion  FailedPrecondition: the key is scheduled for deletion.
//	kms.key_usage             Invalid: the key is of the wrong sort for this.
//	kms.request_invalid       Invalid: refused for its form.
//
// A caller's own cancellation or deadline comes back as kms.unavailable whose cause
// is the context's error. No fault carries key material, plain text or messages.
//
// A change of a key's state (disabled, scheduled, cancelled) may take the service a
// while to show everywhere; nothing is cached on this side of it.

// EncryptionContext is bound to a wrapped key: unwrapping needs the same one. The
// service's audit trail shows it in clear for years, so it names things by random
// ids only. 1 to 8 pairs, neither names nor values empty.
type EncryptionContext map[string]string

// DataKey is a fresh data key.
type DataKey struct {
	Plain   shredding.Secret
	Wrapped []byte // opaque; at most 6144 bytes
}

// DataKeys makes and opens data keys. Safe for concurrent use. Never call it inside
// a database transaction.
type DataKeys interface {
	// Generate makes a random 256-bit data key and wraps it under a key.
	Generate(ctx context.Context, keyID string, bound EncryptionContext) (DataKey, error)
	// Unwrap opens a wrapped data key. It names the key it expects, so that what was
	// wrapped under another one is refused.
	//
	//	kms.ciphertext_invalid  Invalid: not what Generate or ReWrap returned, or another
	//	                        encryption context; the service does not say which
	//	kms.key_mismatch        Invalid: wrapped under another key
	Unwrap(ctx context.Context, keyID string, wrapped []byte, bound EncryptionContext) (shredding.Secret, error)
}

// KeyPurpose is the use of a key.
type KeyPurpose string

// The purposes.
const (
	WrapDataKeys KeyPurpose = "wrap" // symmetric: DataKeys and ReWrap
	SignMessages KeyPurpose = "sign" // Ed25519: Signer
)

// KeyState is the state of a key in the service.
type KeyState string

// The states. A deleted key has none: it is not found.
const (
	KeyEnabled         KeyState = "enabled"
	KeyDisabled        KeyState = "disabled"
	KeyPendingDeletion KeyState = "pending_deletion"
	KeyUnusable        KeyState = "unusable" // any other state the service may know
)

// ManagedKey describes a key of the service.
type ManagedKey struct {
	ID         string // stable for the key's life
	Purpose    KeyPurpose
	State      KeyState
	CreatedAt  time.Time
	DeletionAt time.Time // zero unless the deletion is scheduled
}

// KeyLifecycle creates and deletes keys. Safe for concurrent use.
type KeyLifecycle interface {
	// Create makes a key under an alias ("alias/" and up to 250 of A-Z a-z 0-9 / _ -).
	// If the alias names a key already, Create returns that key, whatever its state and
	// purpose: after a crash the caller finds the key it made, and checks it. A crash, a
	// lost answer or a race may leave a key without a name that nothing uses.
	Create(ctx context.Context, alias string, purpose KeyPurpose) (ManagedKey, error)
	// Describe returns the description of a key, by id or alias.
	Describe(ctx context.Context, key string) (ManagedKey, error)
	// ReWrap wraps a data key, which stays the same, under another key without showing
	// it. Both keys must be enabled. Faults of Unwrap too.
	ReWrap(ctx context.Context, fromKeyID, toKeyID string, wrapped []byte, bound EncryptionContext) ([]byte, error)
	// ScheduleDeletion makes a key unusable at once and destroys it after a number of
	// days, 7 to 30. It returns the time of destruction; for a key that is scheduled
	// already, the scheduled time. Once destroyed: kms.key_not_found.
	ScheduleDeletion(ctx context.Context, keyID string, days int) (time.Time, error)
}

// MaximumSignedMessage is how many bytes a Signer takes.
const MaximumSignedMessage = 4096

// Signer signs with Ed25519 (RFC 8032, not prehashed), so the same message has the
// same signature for ever. Safe for concurrent use.
type Signer interface {
	// Sign signs 1 to MaximumSignedMessage bytes. kms.request_invalid otherwise.
	Sign(ctx context.Context, keyID string, message []byte) ([]byte, error)
	// PublicKey returns the key to check signatures with; keep it, since a deleted key
	// cannot be asked.
	PublicKey(ctx context.Context, keyID string) (ed25519.PublicKey, error)
}
