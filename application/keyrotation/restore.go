package keyrotation

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Restored is the result of Restore.
type Restored struct {
	Export uint64      `json:"export"`
	Keys   int64       `json:"keys"` // rows taken from the export
	Dead   []ports.KEK `json:"-"`    // KEKs that the key service deleted or will delete
}

// Restore restores wrapped keys from an export (number 0: the newest) after the key store was
// restored from a backup. It replaces the rows that are wrapped with KEKs which the key
// service has deleted or will delete, and adds the rows that the backup lacks. It does not
// repeat the erasures since the backup: the operator replays the receipts afterwards.
//
//	keys.export_missing, keys.export_damaged
//	keys.export_too_old  FailedPrecondition: the KEK that was active when the export was made is deleted too
func (s *Service) Restore(ctx context.Context, number uint64, progress Progress) (Restored, error) {
	e, err := s.readExport(ctx, number)
	if err != nil {
		return Restored{}, err
	}
	out := Restored{Export: e.Number}
	progress.report("", 1, "Reading the export", 0, 0)
	exported, err := s.c.Recovery.ExportedKEKs(ctx, s.lines(ctx, e))
	if err != nil {
		return out, err
	}
	stored, err := s.c.Keys.KEKs(ctx, "")
	if err != nil {
		return out, err
	}
	type epoch struct {
		tenantID string
		number   uint32
	}
	keks := map[epoch]ports.KEK{}
	for _, k := range append(exported, stored...) {
		keks[epoch{k.TenantID, k.Epoch}] = k
	}
	asked := 0
	for _, k := range keks {
		progress.report("", 2, "Asking which keys are gone", int64(asked), int64(len(keks)))
		asked++
		gone, err := s.isGone(ctx, k)
		if err != nil {
			return out, err
		}
		if gone {
			out.Dead = append(out.Dead, k)
		}
	}
	for _, k := range exported {
		if k.State == ports.KEKActive && slices.ContainsFunc(out.Dead, func(dead ports.KEK) bool { return dead.TenantID == k.TenantID && dead.Epoch == k.Epoch }) {
			return out, fault.New(fault.FailedPrecondition, "keys.export_too_old", "the key that export %d is wrapped with is deleted too; take a newer export, or cancel the key's deletion in the key service while that is possible", e.Number)
		}
	}
	progress.report("", 3, "Replacing keys", 0, 0)
	out.Keys, err = s.c.Recovery.RestoreKeys(ctx, s.lines(ctx, e), out.Dead)
	return out, err
}

// isGone reports whether the key service has deleted a KEK or will delete it. A disabled
// key is not gone: an operator can enable it again.
func (s *Service) isGone(ctx context.Context, k ports.KEK) (bool, error) {
	key, err := s.c.KMS.Describe(ctx, k.KeyID)
	if fault.CodeOf(err) == codeKeyNotFound {
		return true, nil
	}
	return key.State == ports.KeyPendingDeletion, err
}
