package keyrotation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var plainSegment = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// Segment makes any text a part of a name: as it is where that is safe, else a digest.
func Segment(text string) string {
	if plainSegment.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "x-" + hex.EncodeToString(sum[:16])
}

// openEpoch makes the next KEK, unless one is pending, and activates it.
func (s *Service) openEpoch(ctx context.Context, tenantID string, e epochs, progress Progress) (epochs, error) {
	if e.pending == nil {
		progress.tell(tenantID, 1, "Making the next key", 0, 0)
		var err error
		if e, err = s.addKEK(ctx, tenantID, e.newest+1); err != nil {
			return epochs{}, err
		}
	}
	if e.pending != nil { // else another process activated it meanwhile
		progress.tell(tenantID, 2, "Activating the next key", 0, 0)
		if err := s.begin(ctx, tenantID, e.pending.Epoch); err != nil {
			return epochs{}, err
		}
		if err := s.c.Keys.ActivateKEK(ctx, tenantID, e.pending.Epoch); err != nil {
			return epochs{}, err
		}
	}
	return s.epochs(ctx, tenantID)
}

// addKEK makes a KEK under its epoch's alias, or finds the one that a crash or
// another process left there. An alias whose key is of no use, because a database was
// restored to a time before that key was ended, is passed over.
func (s *Service) addKEK(ctx context.Context, tenantID string, epoch uint32) (epochs, error) {
	const aliases = 20
	for n := 1; n <= aliases; n++ {
		alias := fmt.Sprintf("%s/%s/epoch-%d", s.c.AliasPrefix, Segment(tenantID), epoch)
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

// rewrap wraps everything that is left on an epoch with the next one.
func (s *Service) rewrap(ctx context.Context, from, to ports.KEK, progress Progress) (int64, error) {
	left, err := s.c.Keys.CountWrappedWith(ctx, from.TenantID, from.Epoch)
	if err != nil {
		return 0, err
	}
	var done int64
	for idle := 0; ; {
		progress.tell(from.TenantID, 3, "Wrapping the keys again", done, left)
		page, err := s.c.Keys.WrappedWith(ctx, from.TenantID, from.Epoch, PageSize)
		if err != nil || len(page) == 0 {
			return done, err
		}
		err = s.each(ctx, len(page), func(ctx context.Context, i int) error {
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
		// A page may be destroyed, or wrapped by another process, meanwhile; not for ever.
		if idle++; changed > 0 {
			idle = 0
		}
		if idle > 10 {
			return done, fault.New(fault.Internal, "keys.rotation_stuck", "keys are left on the old epoch and none of them can be saved; look at the key store's log, then rotate again")
		}
	}
}

// each runs f for 0 to n-1 on a few goroutines and gives the first error.
func (s *Service) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, done := make(chan int), make(chan struct{})
	workers := min(s.c.Workers, n)
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range work {
				if ctx.Err() != nil {
					continue
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for i := range n {
		work <- i
	}
	close(work)
	for range workers {
		<-done
	}
	return context.Cause(ctx)
}

// check is the look at the store before the export: nothing is left on the old
// epoch, and keys of the new one open.
func (s *Service) check(ctx context.Context, from, to ports.KEK, progress Progress) error {
	progress.tell(to.TenantID, 4, "Checking that keys open", 0, 0)
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
	return s.open(ctx, to, sample)
}

// open proves that wrapped keys open under a KEK and are the keys they were.
func (s *Service) open(ctx context.Context, kek ports.KEK, rows []ports.WrappedRow) error {
	return s.each(ctx, len(rows), func(ctx context.Context, i int) error {
		row := rows[i]
		plain, err := s.c.DataKeys.Unwrap(ctx, kek.KeyID, row.Wrapped, ports.Bound(row.Partition, row.Reference, row.Version))
		if err != nil {
			return err
		}
		defer plain.Zero()
		return sameKey(plain, row)
	})
}

// begun is what is known of the erasures when an epoch opens. An erasure before that
// moment left nothing that is wrapped with the epoch's KEK.
type begun struct {
	Receipt uint64 `json:"receipts_to"` // of the tenant; 0: none
}

func begunName(tenantID string, epoch uint32) string {
	return fmt.Sprintf("epochs/%s/%d/begun.json", Segment(tenantID), epoch)
}

// begin writes down, once and before the epoch is used, which erasures it covers.
func (s *Service) begin(ctx context.Context, tenantID string, epoch uint32) error {
	newest, err := s.newestReceipt(ctx, tenantID)
	if err != nil {
		return err
	}
	content, err := json.Marshal(begun{Receipt: newest})
	if err != nil {
		return err
	}
	err = s.c.Exports.PutIfAbsent(ctx, begunName(tenantID, epoch), content)
	if fault.CodeOf(err) == "export.name_taken" {
		return nil // by a run before, which knew of fewer: less is claimed than is true
	}
	return err
}

// covered reads what begin wrote. An epoch of which nothing is written covers nothing.
func (s *Service) covered(ctx context.Context, tenantID string, epoch uint32) (uint64, error) {
	content, err := s.c.Exports.Get(ctx, begunName(tenantID, epoch))
	if err != nil {
		if fault.CodeOf(err) == "export.not_found" {
			err = nil
		}
		return 0, err
	}
	var b begun
	if err := json.Unmarshal(content, &b); err != nil {
		return 0, fault.New(fault.FailedPrecondition, "keys.epoch_record_damaged", "%s in the export store is damaged; remove it, then rotate again", begunName(tenantID, epoch)).WithCause(err)
	}
	return b.Receipt, nil
}

// endKEKs goes on with every KEK of a tenant that is being deleted: it makes sure
// that its deletion is scheduled and its notice exported, and marks it deleted once
// the key service has no such key any more.
func (s *Service) endKEKs(ctx context.Context, tenantID string) error {
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
		if _, err := s.endKEK(ctx, k, successor); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) endKEK(ctx context.Context, k ports.KEK, successor uint32) (time.Time, error) {
	at, err := s.c.KMS.ScheduleDeletion(ctx, k.KeyID, s.c.DeletionDays)
	if fault.CodeOf(err) == "kms.key_not_found" {
		if err := s.giveNotice(ctx, k, successor, s.c.Clock.Now()); err != nil {
			return time.Time{}, err
		}
		return s.c.Clock.Now(), s.c.Keys.CloseKEK(ctx, k.TenantID, k.Epoch, ports.KEKDeleted)
	}
	if err != nil {
		return time.Time{}, err
	}
	return at, s.giveNotice(ctx, k, successor, at)
}
