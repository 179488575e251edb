package ports

import (
	"context"
	"strconv"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// SubjectKeyID names the key of a person in one partition. Keys of different
// classes are erased independently.
type SubjectKeyID struct {
	Partition event.PartitionID
	Subject   shredding.Subject
	Class     shredding.KeyClass
}

// SubjectKey is what the key store knows of a key.
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

// KEK is the key encryption key of one tenant and epoch.
type KEK struct {
	TenantID string
	Epoch    uint32 // from 1
	KeyID    string // KMS id
	State    KEKState
}

// KEKState is the state of a KEK.
type KEKState string

// The states. A tenant has at most one active and one draining KEK.
const (
	KEKPending  KEKState = "pending"  // made, not used yet
	KEKActive   KEKState = "active"   // new keys are wrapped with it
	KEKDraining KEKState = "draining" // opens, its keys are being wrapped again
	KEKDeleting KEKState = "deleting" // its deletion is scheduled
	KEKDeleted  KEKState = "deleted"
)

// SubjectKeys is the key store as an appending and reading node sees it. The wrapped
// keys of a destroyed subject are gone; nothing brings them back. It reads what is
// committed and keeps nothing.
//
// Errors: keys.unavailable (Unavailable: the key store was not reached, retryable),
// and those named below. Suite: test/conformance, RunKeyStore.
type SubjectKeys interface {
	// SubjectKeys answers for every id, in order. One that was never minted has state
	// absent; one that an erasure has fenced has state fenced and its versions.
	SubjectKeys(ctx context.Context, ids []SubjectKeyID) ([]SubjectKey, error)
	// MintSubjectKey stores the first version of an absent key, or the next version of
	// an active one, and answers what stands afterwards: the loser of a race gets the
	// winner's key and throws its own away. The KEK must be the tenant's active one.
	//
	//	pii.subject_erased  Gone: fenced or destroyed
	//	keys.epoch_closed   Conflict: the KEK is not active any more; generate again under the active one
	MintSubjectKey(ctx context.Context, tenantID string, k MintedKey) (SubjectKey, error)
	// ActiveKEK gives the KEK that wraps new keys of a tenant. keys.kek_missing
	// (FailedPrecondition) if the tenant has none yet.
	ActiveKEK(ctx context.Context, tenantID string) (KEK, error)
	// TenantSecret gives a tenant's wrapped secret of a purpose; Reference is "" if
	// there is none.
	TenantSecret(ctx context.Context, tenantID, purpose string) (TenantSecret, error)
	// SaveTenantSecret stores the first secret of a tenant and purpose and answers what
	// stands afterwards. keys.epoch_closed as above.
	SaveTenantSecret(ctx context.Context, s TenantSecret) (TenantSecret, error)
}

// MintedKey is a fresh version of a key.
type MintedKey struct {
	SubjectKeyID
	Reference string // of an active key its own; of an absent one a new random UUID
	WrappedKey
}

// TenantSecret is a secret of a tenant that is no subject's, such as the key of
// idempotency fingerprints.
type TenantSecret struct {
	TenantID  string
	Purpose   string
	Reference string // random UUID, bound into the wrapping
	WrappedKey
}

// KeyEvictions tells a node which keys it must forget.
type KeyEvictions interface {
	// ListenEvictions calls evict with the reference of every key that was destroyed or
	// got a new version, and lost when signals may have been missed: then everything
	// must be forgotten. It reconnects by itself and returns when ctx ends.
	ListenEvictions(ctx context.Context, evict func(reference string), lost func()) error
	// ReportNode stores that the node has forgotten everything destroyed up to the
	// generation and gives the newest one. A generation that grew means that keys were
	// destroyed.
	ReportNode(ctx context.Context, node string, forgotten int64) (newest int64, err error)
}

// KeyRotation is the key store as the rotation of KEK epochs sees it. Every method
// may be repeated.
type KeyRotation interface {
	// KEKs lists a tenant's KEKs by epoch; tenant "" lists all tenants'.
	KEKs(ctx context.Context, tenantID string) ([]KEK, error)
	// AddKEK stores a new KEK as pending. The epoch follows the newest one;
	// keys.epoch_taken (Conflict) if another process was faster.
	AddKEK(ctx context.Context, k KEK) error
	// ActivateKEK makes the pending epoch active and the active one draining, in one
	// transaction that waits for mints in flight.
	ActivateKEK(ctx context.Context, tenantID string, epoch uint32) error
	// WrappedWith pages through what is wrapped with an epoch, subject keys and tenant
	// secrets.
	WrappedWith(ctx context.Context, tenantID string, epoch uint32, limit int) ([]WrappedRow, error)
	// CountWrappedWith counts them.
	CountWrappedWith(ctx context.Context, tenantID string, epoch uint32) (int64, error)
	// SaveRewrapped replaces the wrapping of rows that are still wrapped with the old
	// epoch; rows destroyed meanwhile are left out. It returns how many it changed.
	SaveRewrapped(ctx context.Context, tenantID string, from, to uint32, rows []WrappedRow) (int64, error)
	// CloseKEK moves a draining epoch without rows to deleting, or a deleting one to
	// deleted. keys.epoch_in_use (FailedPrecondition) while rows are wrapped with it.
	CloseKEK(ctx context.Context, tenantID string, epoch uint32, to KEKState) error
	// SampleKeys gives up to n random rows of an epoch.
	SampleKeys(ctx context.Context, tenantID string, epoch uint32, n int) ([]WrappedRow, error)
	// ExportKeys calls row for every line of the key store's tables in a form that
	// ImportKeys takes: one JSON object per line, consistent as of one moment.
	ExportKeys(ctx context.Context, row func(line []byte) error) error
}

// ExportedLines hands the lines of an export, as ExportKeys gave them, to yield until
// it returns false, and returns the error that ended the reading early. It may be
// called again.
type ExportedLines func(yield func(line []byte) bool) error

// KeyRecovery brings wrapped keys back from an export when the key store was restored
// from a backup whose keys are wrapped with KEKs that are gone.
//
//	keys.export_damaged  Invalid: not lines of ExportKeys
type KeyRecovery interface {
	// SampleExport restores an export in a scratch place, the way RestoreKeys would, and
	// gives how many rows it holds that are wrapped with an epoch, with up to n of them
	// at random. Nothing of it stays and the store is not changed.
	SampleExport(ctx context.Context, lines ExportedLines, tenantID string, epoch uint32, n int) (rows []WrappedRow, total int64, err error)
	// ExportedKEKs gives the KEKs that an export knows, by tenant and epoch.
	ExportedKEKs(ctx context.Context, lines ExportedLines) ([]KEK, error)
	// RestoreKeys takes an export's rows where the store has none, or has one that is
	// wrapped with a dead KEK, and makes the KEKs known with their states; dead ones
	// become deleting. Rows under other KEKs stay, since they may be newer, and so does
	// everything that is destroyed. One transaction; repeated, it changes nothing. It
	// returns how many rows it took.
	RestoreKeys(ctx context.Context, lines ExportedLines, dead []KEK) (int64, error)
}

// WrappedRow is a wrapped key with what binds it.
type WrappedRow struct {
	Partition event.PartitionID // 0 for a tenant secret
	Reference string
	WrappedKey
}

// Bound is the encryption context of a wrapped key. It holds no subject: the
// service's audit trail keeps it for years.
func Bound(p event.PartitionID, reference string, version uint32) EncryptionContext {
	return EncryptionContext{"bb": "dek/1", "p": strconv.FormatUint(uint64(p), 10), "k": reference, "v": strconv.FormatUint(uint64(version), 10)}
}

// ExportStore keeps documents outside the database and its backups: receipts of
// erasures, key-store exports, certificates. Names are slash-separated paths of
// [A-Za-z0-9._-].
type ExportStore interface {
	// PutIfAbsent stores a document for ever, durably before it returns. If the name is
	// taken by the same bytes it does nothing; by others: export.name_taken (Conflict).
	PutIfAbsent(ctx context.Context, name string, content []byte) error
	// Get reads a document. export.not_found (NotFound).
	Get(ctx context.Context, name string) ([]byte, error)
	// List gives the names below a prefix, ascending.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete removes a document that must not be kept, such as an old key-store export.
	// Removing what is not there is no error.
	Delete(ctx context.Context, name string) error
}
