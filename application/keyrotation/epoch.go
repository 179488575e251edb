package keyrotation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var plainSegment = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// segment turns any text into one segment of a key's alias or of a name in the export store:
// the text itself if both allow its characters, else a digest.
func segment(text string) string {
	if plainSegment.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "x-" + hex.EncodeToString(sum[:16])
}

// openEpoch makes the KEK of the next epoch, unless one is pending, and activates it.
func (s *Service) openEpoch(ctx context.Context, tenantID string, e epochs, progress Progress) (epochs, error) {
	if e.pending == nil {
		progress.report(tenantID, 1, "Making the next key", 0, 0)
		var err error
		if e, err = s.addKEK(ctx, tenantID, e.newest+1); err != nil {
			return epochs{}, err
		}
	}
	if e.pending != nil { // else another process has activated the KEK
		progress.report(tenantID, 2, "Activating the next key", 0, 0)
		if err := s.recordCoverage(ctx, tenantID, e.pending.Epoch); err != nil {
			return epochs{}, err
		}
		if err := s.c.Keys.ActivateKEK(ctx, tenantID, e.pending.Epoch); err != nil {
			return epochs{}, err
		}
	}
	return s.epochs(ctx, tenantID)
}

// addKEK makes the KEK of an epoch under the epoch's alias, or finds the key that an earlier
// attempt or another process made. It skips an alias whose key cannot be used: the database
// was restored to a time before that key was deleted.
func (s *Service) addKEK(ctx context.Context, tenantID string, epoch uint32) (epochs, error) {
	const aliases = 20
	for n := 1; n <= aliases; n++ {
		alias := fmt.Sprintf("%s/%s/epoch-%d", s.c.AliasPrefix, segment(tenantID), epoch)
		if n > 1 {
			alias += fmt.Sprintf("-%d", n)
		}
		key, err := s.c.KMS.Create(ctx, alias, ports.WrapDataKeys)
		if err != nil {
			return epochs{}, err
		}
		if key.Purpose != ports.WrapDataKeys || key.State != ports.KeyEnabled {
			continue
		}
		err = s.c.Keys.AddKEK(ctx, ports.KEK{TenantID: tenantID, Epoch: epoch, KeyID: key.ID, State: ports.KEKPending})
		if err != nil && fault.CodeOf(err) != "keys.epoch_taken" {
			return epochs{}, err
		}
		return s.epochs(ctx, tenantID)
	}
	return epochs{}, fault.New(fault.FailedPrecondition, "keys.kek_unusable", "the key service has keys under the names of the next epoch, and none of them is enabled; enable the newest one, then rotate again")
}

// rewrap wraps all keys of the old KEK with the new one, and returns how many it changed.
func (s *Service) rewrap(ctx context.Context, from, to ports.KEK, progress Progress) (int64, error) {
	left, err := s.c.Keys.CountWrappedWith(ctx, from.TenantID, from.Epoch)
	if err != nil {
		return 0, err
	}
	var done int64
	for idle := 0; ; {
		progress.report(from.TenantID, 3, "Wrapping the keys again", done, left)
		page, err := s.c.Keys.WrappedWith(ctx, from.TenantID, from.Epoch, PageSize)
		if err != nil || len(page) == 0 {
			return done, err
		}
		err = s.forEach(ctx, len(page), func(ctx context.Context, i int) error {
			row := &page[i]
			wrapped, err := s.c.KMS.ReWrap(ctx, row.KEK, to.KeyID, row.Wrapped, ports.Bound(row.Partition, row.Reference, row.Version))
			row.Wrapped, row.KEK, row.Epoch = wrapped, to.KeyID, to.Epoch
			return err
		})
		if err != nil {
			return done, err
		}
		changed, err := s.c.Keys.SaveRewrapped(ctx, from.TenantID, from.Epoch, to.Epoch, page)
		if err != nil {
			return done, err
		}
		done += changed
		// Between read and save an erasure may destroy all keys of a page, or another process
		// may rewrap them. That does not happen many times in a row.
		if idle++; changed > 0 {
			idle = 0
		}
		if idle > 10 {
			return done, fault.New(fault.Internal, "keys.rotation_stuck", "keys are left on the old epoch and none of them can be saved; look for the cause in the log of the key store's database, then rotate again")
		}
	}
}

// forEach runs f for 0 to n-1 on a few goroutines and returns the first error, after which it
// begins no more calls.
func (s *Service) forEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, s.c.Workers)
	var running sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// check requires, before the export, that no key is wrapped with the old KEK any more and
// that the new KEK unwraps a sample.
func (s *Service) check(ctx context.Context, from, to ports.KEK, progress Progress) error {
	progress.report(to.TenantID, 4, "Checking that keys open", 0, 0)
	left, err := s.c.Keys.CountWrappedWith(ctx, from.TenantID, from.Epoch)
	if err != nil {
		return err
	}
	if left > 0 {
		return fault.New(fault.Conflict, "keys.epoch_in_use", "%d keys are left on the old epoch; rotate again", left)
	}
	sample, err := s.c.Keys.SampleKeys(ctx, to.TenantID, to.Epoch, SampleSize)
	if err != nil {
		return err
	}
	return s.proveKeys(ctx, to, sample)
}

// proveKeys unwraps keys with a KEK and compares them with their stored fingerprints.
func (s *Service) proveKeys(ctx context.Context, kek ports.KEK, rows []ports.WrappedRow) error {
	return s.forEach(ctx, len(rows), func(ctx context.Context, i int) error {
		row := rows[i]
		plain, err := s.c.DataKeys.Unwrap(ctx, kek.KeyID, row.Wrapped, ports.Bound(row.Partition, row.Reference, row.Version))
		if err != nil {
			return err
		}
		defer plain.Zero()
		return checkFingerprint(plain, row)
	})
}

// epochRecord names the newest erasure of the tenant before an epoch was activated. The
// epoch covers the erasures up to that one: its KEK never wrapped a key that they destroyed,
// so once the KEKs of earlier epochs are deleted no backup can undo them.
type epochRecord struct {
	Receipt uint64 `json:"receipts_to"` // number of the erasure's receipt; 0: none
}

func epochRecordName(tenantID string, epoch uint32) string {
	return fmt.Sprintf("epochs/%s/%d/begun.json", segment(tenantID), epoch)
}

// recordCoverage stores, once and before the epoch is activated, which erasures it covers.
func (s *Service) recordCoverage(ctx context.Context, tenantID string, epoch uint32) error {
	newest, err := s.newestReceipts(ctx)
	if err != nil {
		return err
	}
	content, err := json.Marshal(epochRecord{Receipt: newest[tenantID]})
	if err != nil {
		return err
	}
	err = s.c.Exports.PutIfAbsent(ctx, epochRecordName(tenantID, epoch), content)
	if fault.CodeOf(err) == "export.name_taken" {
		return nil // an earlier run stored it, when there were as many erasures or fewer: it never claims too many
	}
	return err
}

// readCoverage returns the newest receipt that an epoch covers, 0 if recordCoverage stored
// nothing.
func (s *Service) readCoverage(ctx context.Context, tenantID string, epoch uint32) (uint64, error) {
	content, err := s.c.Exports.Get(ctx, epochRecordName(tenantID, epoch))
	if fault.CodeOf(err) == "export.not_found" {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var record epochRecord
	if err := json.Unmarshal(content, &record); err != nil {
		return 0, fault.New(fault.FailedPrecondition, "keys.epoch_record_damaged", "%s in the export store is damaged; remove it, then rotate again", epochRecordName(tenantID, epoch)).WithCause(err)
	}
	return record.Receipt, nil
}

// deleteKEKs continues the deletion of every KEK of a tenant that is in state deleting: it
// schedules the deletion, exports the notice, and marks the KEK as deleted once the key
// service has deleted it.
func (s *Service) deleteKEKs(ctx context.Context, tenantID string) error {
	keks, err := s.c.Keys.KEKs(ctx, tenantID)
	if err != nil {
		return err
	}
	for i, k := range keks {
		if k.State != ports.KEKDeleting {
			continue
		}
		successor := k.Epoch + 1
		if i+1 < len(keks) {
			successor = keks[i+1].Epoch
		}
		if _, err := s.deleteKEK(ctx, k, successor); err != nil {
			return err
		}
	}
	return nil
}

// deleteKEK does so for one KEK and returns when the key service deletes it.
func (s *Service) deleteKEK(ctx context.Context, k ports.KEK, successor uint32) (time.Time, error) {
	if gone, err := s.isGone(ctx, k); err != nil {
		return time.Time{}, err
	} else if !gone {
		if err := s.requireUnused(ctx, k); err != nil {
			return time.Time{}, err
		}
	}
	at, err := s.c.KMS.ScheduleDeletion(ctx, k.KeyID, s.c.DeletionDays)
	if fault.CodeOf(err) == codeKeyNotFound {
		at = s.c.Clock.Now()
		if err := s.exportLastNotice(ctx, k, successor, at); err != nil {
			return time.Time{}, err
		}
		return at, s.c.Keys.CloseKEK(ctx, k.TenantID, k.Epoch, ports.KEKDeleted)
	}
	if err != nil {
		return time.Time{}, err
	}
	return at, s.exportNotice(ctx, k, successor, at)
}
