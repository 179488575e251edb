package ports

import (
	"context"
	"strconv"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// SubjectKeyID names the key of a person in one partition. A person who occurs in several
// partitions, or in types of several retention classes, has several keys. Keys of different
// classes are erased independently.
type SubjectKeyID struct {
	Partition event.PartitionID
	Subject   shredding.Subject
	Class     shredding.KeyClass
}

// SubjectKey is the state of a key in the key store.
type SubjectKey struct {
	SubjectKeyID
	Reference string // random UUID; the only name of a subject that leaves the store (KMS, NOTIFY)
	State     shredding.KeyState
	Active    uint32       // the version that seals; 0 when absent or destroyed
	Versions  []WrappedKey // all that exist, ascending; none once destroyed
}

// WrappedKey is one version of a data key, as only the KMS can open it.
type WrappedKey struct {
	Version     uint32
	Epoch       uint32 // of the tenant's KEK
	KEK         string // KMS id of that KEK
	Wrapped     []byte
	Fingerprint shredding.Fingerprint
}

// SubjectKeys is the key store for nodes that append and read. The wrapped keys of a
// destroyed subject are deleted and cannot be restored. Implementations read committed
// data and cache nothing.
//
// Errors: keys.unavailable (Unavailable: the key store cannot be reached, retryable),
// and those named below. Suite: test/conformance, RunKeyStore.
type SubjectKeys interface {
	// SubjectKeys returns the state of every id, in order. A key that was never minted has
	// state absent; a key that an erasure has fenced has state fenced and its versions.
	SubjectKeys(ctx context.Context, ids []SubjectKeyID) ([]SubjectKey, error)
	// MintSubjectKey stores the first version of an absent key, or the next version of
	// an active one, and returns the stored key: the loser of a race gets the winner's key
	// and discards its own. The KEK must be the tenant's active one.
	//
	//	pii.subject_erased  Gone: fenced or destroyed
	//	keys.epoch_closed   Conflict: the KEK is not active any more; generate again under the active one
	MintSubjectKey(ctx context.Context, tenantID string, k MintedKey) (SubjectKey, error)
	// ActiveKEK returns the KEK that wraps new keys of a tenant. keys.kek_missing
	// (FailedPrecondition) if the tenant has none yet.
	ActiveKEK(ctx context.Context, tenantID string) (KEK, error)
	// TenantSecret returns a tenant's wrapped secret of a purpose; Reference is "" if
	// there is none.
	TenantSecret(ctx context.Context, tenantID, purpose string) (TenantSecret, error)
	// SaveTenantSecret stores the first secret of a tenant and purpose and returns the
	// stored one. keys.epoch_closed as above.
	SaveTenantSecret(ctx context.Context, s TenantSecret) (TenantSecret, error)
}

// MintedKey is a fresh version of a key.
type MintedKey struct {
	SubjectKeyID
	Reference string // of an active key its own; of an absent one a new random UUID
	WrappedKey
}

// TenantSecret is a secret that belongs to a tenant and to no subject, such as the key of
// idempotency fingerprints.
type TenantSecret struct {
	TenantID  string
	Purpose   string
	Reference string // random UUID, bound into the wrapping
	WrappedKey
}

// KeyEvictions notifies a node of the keys that it must evict.
type KeyEvictions interface {
	// ListenEvictions calls evict with the reference of every key that was destroyed or
	// got a new version, and lost when it may have missed signals: then the node must evict
	// all keys. It reconnects by itself and returns when ctx ends.
	ListenEvictions(ctx context.Context, evict func(reference string), lost func()) error
	// ReportNode stores that the node has evicted all keys destroyed up to the generation
	// and returns the newest one. A later generation means that keys were destroyed.
	ReportNode(ctx context.Context, node string, evicted int64) (newest int64, err error)
}

// Bound is the encryption context of a wrapped key. It holds no subject: the
// service's audit trail keeps it for years.
func Bound(p event.PartitionID, reference string, version uint32) EncryptionContext {
	return EncryptionContext{"bb": "dek/1", "p": strconv.FormatUint(uint64(p), 10), "k": reference, "v": strconv.FormatUint(uint64(version), 10)}
}
