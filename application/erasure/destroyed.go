package erasure

import (
	"context"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	comparedPage  = 1000   // keys that one query of the key store compares
	comparedCheck = 10_000 // keys that one check compares, once all were compared
)

// destroyedKeys are the keys that the exported receipts name, about 100 bytes a key. They only
// grow: an erasure is never undone.
type destroyedKeys struct {
	newest   uint64     // receipt that is read
	hash     event.Hash // of its note
	keys     []ports.ReplayKey
	next     int  // key to compare next
	compared bool // all were compared once

	mu           sync.RWMutex
	known        uint64 // receipt up to which fingerprints has all
	fingerprints map[shredding.Fingerprint]struct{}
}

// learn adds the fingerprints of the receipts that the register has since the last call.
func (d *destroyedKeys) learn(ctx context.Context, receipts ports.ErasureReceipts) error {
	for {
		d.mu.RLock()
		from := d.known + 1
		d.mu.RUnlock()
		page, err := receipts.DestroyedFingerprints(ctx, from, comparedPage)
		if err != nil {
			return err
		}
		for _, r := range page {
			d.addFingerprints(r.Number, r.Fingerprints)
		}
		if len(page) < comparedPage {
			return nil
		}
	}
}

func (d *destroyedKeys) addFingerprints(number uint64, fingerprints []shredding.Fingerprint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = max(d.known, number)
	for _, f := range fingerprints {
		d.fingerprints[f] = struct{}{}
	}
}

// add adds the receipt after the newest one, and reports whether it is that.
func (d *destroyedKeys) add(number uint64, note []byte) bool {
	r, err := parseUnverified(note)
	if err != nil || number != d.newest+1 || r.Number != number || r.Previous != d.hash {
		return false
	}
	d.newest, d.hash = number, noteHash(note)
	d.addKeys(r)
	return true
}

func (d *destroyedKeys) addKeys(r Receipt) {
	d.keys = append(d.keys, r.Keys...)
	for _, k := range r.Keys {
		d.addFingerprints(r.Number, k.Fingerprints)
	}
}

func (d *destroyedKeys) contains(f shredding.Fingerprint) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	_, found := d.fingerprints[f]
	return found
}

// compare looks for a destroyed key that the key store has again. It compares page by page:
// all keys the first time, then at most comparedCheck a call, in turns, so that a check costs
// the same however many persons were erased. unopened is the fault of a key that the key service
// could not open now.
func (d *destroyedKeys) compare(ctx context.Context, keys ports.SubjectKeys, dataKeys ports.DataKeys) (found bool, unopened, err error) {
	for n := 0; n < comparedCheck || !d.compared; n += comparedPage {
		page := d.keys[d.next:min(d.next+comparedPage, len(d.keys))]
		if len(page) == 0 {
			d.next, d.compared = 0, true
			return false, unopened, nil
		}
		ids := make([]ports.SubjectKeyID, len(page))
		for i, k := range page {
			ids[i] = k.ID()
		}
		stored, err := keys.SubjectKeys(ctx, ids)
		if err != nil {
			return false, nil, err
		}
		for _, k := range stored {
			isBack, err := d.isBack(ctx, k, dataKeys)
			if isBack {
				return true, nil, nil
			}
			if err != nil {
				unopened = err
			}
		}
		d.next += len(page)
	}
	return false, unopened, nil
}

// isBack reports whether a key that a receipt names can be used again. It is destroyed, or
// fenced with versions that were minted after the erasure in a database restored from a backup.
// The stored fingerprint of such a version may be forged, so its key is unwrapped; one that
// does not unwrap cannot be used, unless it may unwrap later (unopened). dataKeys may be nil: then
// the stored fingerprint decides.
func (d *destroyedKeys) isBack(ctx context.Context, k ports.SubjectKey, dataKeys ports.DataKeys) (isBack bool, unopened error) {
	switch {
	case k.State == shredding.KeyDestroyed:
		return len(k.Versions) > 0, nil
	case k.State != shredding.KeyFenced || len(k.Versions) == 0:
		return true, nil
	}
	for _, v := range k.Versions {
		if d.contains(v.Fingerprint) {
			return true, nil
		}
		if dataKeys == nil {
			continue
		}
		f, err := unwrappedFingerprint(ctx, dataKeys, k, v)
		switch {
		case err == nil && d.contains(f):
			return true, nil
		case mayOpenLater(err):
			unopened = err
		}
	}
	return false, unopened
}

// mayOpenLater reports whether the key service is unavailable, or its key is disabled or waits for
// its deletion, which persons can take back.
func mayOpenLater(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Unavailable || kind == fault.FailedPrecondition
}

// unwrappedFingerprint computes the fingerprint of a version from the key itself.
func unwrappedFingerprint(ctx context.Context, dataKeys ports.DataKeys, k ports.SubjectKey, v ports.WrappedKey) (shredding.Fingerprint, error) {
	plain, err := dataKeys.Unwrap(ctx, v.KEK, v.Wrapped, ports.Bound(k.Partition, k.Reference, v.Version))
	if err != nil {
		return shredding.Fingerprint{}, err
	}
	defer plain.Zero()
	return shredding.Key{DEK: plain}.Fingerprint()
}

// forgedFingerprints adds to the keys of a receipt the fingerprints under which the store has
// the versions that the receipt names, where a version was stored under another fingerprint
// than its own. It reports whether there are any.
func forgedFingerprints(ctx context.Context, c ReplayConfig, named []ports.ReplayKey) (out []ports.ReplayKey, found bool, err error) {
	ids := make([]ports.SubjectKeyID, len(named))
	for i, k := range named {
		ids[i] = k.ID()
	}
	stored, err := c.Keys.SubjectKeys(ctx, ids)
	if err != nil {
		return nil, false, err
	}
	out = slices.Clone(named)
	for i, k := range stored {
		for _, v := range k.Versions {
			f, err := unwrappedFingerprint(ctx, c.DataKeys, k, v)
			if fault.KindOf(err) == fault.Unavailable {
				return nil, false, err
			}
			if err == nil && slices.Contains(named[i].Fingerprints, f) {
				out[i].Fingerprints, found = append(slices.Clip(out[i].Fingerprints), v.Fingerprint), true
			}
		}
	}
	return out, found, nil
}
