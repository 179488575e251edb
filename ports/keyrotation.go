package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
)

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
	KEKDraining KEKState = "draining" // opens; a rotation is wrapping its keys again
	KEKDeleting KEKState = "deleting" // wraps nothing; the key service deletes it, or will be asked to
	KEKDeleted  KEKState = "deleted"
)

// KeyRotation is the key store for the rotation of KEK epochs. Every method may be
// repeated.
type KeyRotation interface {
	// KEKs lists a tenant's KEKs by epoch; tenant "" lists all tenants'.
	KEKs(ctx context.Context, tenantID string) ([]KEK, error)
	// AddKEK stores a new KEK as pending. The epoch follows the newest one;
	// keys.epoch_taken (Conflict) if another process was faster.
	AddKEK(ctx context.Context, k KEK) error
	// ActivateKEK makes the pending epoch active and the active one draining, in one
	// transaction that waits for mints in flight.
	ActivateKEK(ctx context.Context, tenantID string, epoch uint32) error
	// WrappedWith returns up to limit rows that are wrapped with an epoch, subject keys and
	// tenant secrets, in any order.
	WrappedWith(ctx context.Context, tenantID string, epoch uint32, limit int) ([]WrappedRow, error)
	// CountWrappedWith counts them.
	CountWrappedWith(ctx context.Context, tenantID string, epoch uint32) (int64, error)
	// SaveRewrapped replaces the wrapping of rows that are still wrapped with the old
	// epoch; it skips rows that were destroyed in between. It returns how many it changed.
	SaveRewrapped(ctx context.Context, tenantID string, from, to uint32, rows []WrappedRow) (int64, error)
	// CloseKEK moves a draining epoch without rows to deleting, or a deleting one to
	// deleted. keys.epoch_in_use (FailedPrecondition) while rows are wrapped with it.
	CloseKEK(ctx context.Context, tenantID string, epoch uint32, to KEKState) error
	// SampleKeys returns up to n random rows of an epoch.
	SampleKeys(ctx context.Context, tenantID string, epoch uint32, n int) ([]WrappedRow, error)
	// ExportKeys calls row for every line of the key store's tables in the form that
	// KeyRecovery reads: one JSON object per line, consistent as of one moment.
	ExportKeys(ctx context.Context, row func(line []byte) error) error
}

// ExportedLines passes the lines of an export, as ExportKeys wrote them, to yield until
// it returns false, and returns the error that ended the reading early. It may be
// called again.
type ExportedLines func(yield func(line []byte) bool) error

// KeyRecovery restores wrapped keys from an export when the key store was restored from a
// backup whose keys are wrapped with deleted KEKs.
//
//	keys.export_damaged  Invalid: not lines of ExportKeys
type KeyRecovery interface {
	// SampleExport loads an export into scratch tables, as RestoreKeys does, and returns how
	// many of its rows are wrapped with an epoch, with up to n of them at random. It does
	// not change the store.
	SampleExport(ctx context.Context, lines ExportedLines, tenantID string, epoch uint32, n int) (rows []WrappedRow, total int64, err error)
	// ExportedKEKs returns the KEKs of an export, by tenant and epoch.
	ExportedKEKs(ctx context.Context, lines ExportedLines) ([]KEK, error)
	// RestoreKeys stores an export's rows where the store has none, or one that is wrapped
	// with a dead KEK, and stores the KEKs with their states; dead ones become deleting. It
	// changes no row under another KEK, which may be newer, and no destroyed key. It is one
	// transaction; repeated, it changes nothing. It returns how many rows it stored.
	RestoreKeys(ctx context.Context, lines ExportedLines, dead []KEK) (int64, error)
}

// WrappedRow is a wrapped key with the values of its encryption context.
type WrappedRow struct {
	Partition event.PartitionID // 0 for a tenant secret
	Reference string
	WrappedKey
}
