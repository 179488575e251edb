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
	KEKDraining KEKState = "draining" // opens, its keys are being wrapped again
	KEKDeleting KEKState = "deleting" // its deletion is scheduled
	KEKDeleted  KEKState = "deleted"
)

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
