package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// SaveReceipt implements ports.ErasureRegister.
func (k *ErasureRegister) SaveReceipt(_ context.Context, number uint64, note []byte, exported bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.receipts {
		if r.Number == number {
			return r.save(note, exported)
		}
	}
	return erasureNotFound()
}

func (r *receipt) save(note []byte, exported bool) error {
	if len(note) == 0 || len(r.Note) > 0 && !bytes.Equal(r.Note, note) {
		return receiptChanged()
	}
	r.Note, r.Exported = bytes.Clone(note), r.Exported || exported
	return nil
}

// Receipts implements ports.ErasureRegister.
func (k *ErasureRegister) Receipts(_ context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	out := []ports.ErasureReceipt{}
	for _, r := range k.receipts {
		if r.Number >= from && (limit <= 0 || len(out) < limit) {
			c := r.ErasureReceipt
			c.Note = bytes.Clone(c.Note)
			out = append(out, c)
		}
	}
	return out, nil
}

// DestroyedFingerprints implements ports.ErasureReceipts.
func (k *ErasureRegister) DestroyedFingerprints(_ context.Context, from uint64, limit int) ([]ports.ReceiptFingerprints, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	out := []ports.ReceiptFingerprints{}
	for _, r := range k.receipts {
		if r.Number < from || limit > 0 && len(out) == limit {
			continue
		}
		f := ports.ReceiptFingerprints{Number: r.Number}
		for _, key := range r.destruction.Keys {
			f.Fingerprints = append(f.Fingerprints, key.Fingerprints...)
		}
		out = append(out, f)
	}
	return out, nil
}

// ReplayErasure implements ports.ErasureRegister.
func (k *ErasureRegister) ReplayErasure(_ context.Context, replayed ports.ErasureReceipt, keys []ports.ReplayKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if s, ok := k.subjects[key.ID()]; ok && s.tenantID != replayed.TenantID {
			return otherTenantsKey()
		}
	}
	d := ports.Destruction{DestroyedAt: k.now(), Receipt: replayed.Number}
	changed := false
	for _, key := range keys {
		s, destroyed := k.destroyAgain(key, replayed)
		changed = changed || destroyed
		d.Keys = append(d.Keys, ports.DestroyedKey{Partition: key.Partition, Class: key.Class, Reference: s.Reference, Fingerprints: slices.Clone(key.Fingerprints)})
	}
	i := slices.IndexFunc(k.receipts, func(r *receipt) bool { return r.Number == replayed.Number })
	if changed || i < 0 {
		k.generation++
	}
	d.Generation = k.generation
	if slices.ContainsFunc(k.receipts, func(r *receipt) bool { return (r.Number == replayed.Number) != (r.RequestID == replayed.RequestID) }) {
		return receiptChanged()
	}
	if i >= 0 {
		if err := k.receipts[i].save(replayed.Note, replayed.Exported); err != nil {
			return err
		}
	} else {
		replayed.Note = bytes.Clone(replayed.Note)
		k.receipts = append(k.receipts, &receipt{ErasureReceipt: replayed, destruction: d})
		slices.SortFunc(k.receipts, func(a, b *receipt) int { return cmp.Compare(a.Number, b.Number) })
	}
	if e, err := k.request(replayed.RequestID); err == nil && len(keys) > 0 && e.TenantID == replayed.TenantID && !e.State.Final() && !e.State.Irrevocable() {
		k.resume(e, keys, d)
	}
	return nil
}

// destroyAgain fences a key and destroys the versions that a receipt names. It reports whether
// that changed anything.
func (k *keyState) destroyAgain(key ports.ReplayKey, replayed ports.ErasureReceipt) (s *subjectKey, changed bool) {
	id := key.ID()
	f := k.fences[id]
	if f == nil || f.lifted || !slices.ContainsFunc(k.receipts, func(r *receipt) bool { return r.RequestID == f.request }) {
		changed = f == nil || f.lifted || f.request != replayed.RequestID
		k.fences[id] = &fence{request: replayed.RequestID}
	}
	s = k.ensureKey(id, replayed.TenantID)
	before := len(s.Versions)
	s.Versions = slices.DeleteFunc(s.Versions, func(v ports.WrappedKey) bool {
		return s.State == shredding.KeyDestroyed || slices.Contains(key.Fingerprints, v.Fingerprint)
	})
	newest := uint32(0)
	for _, v := range s.Versions {
		newest = v.Version
	}
	if len(s.Versions) == before && newest == s.Active {
		return s, changed
	}
	if s.Active = newest; newest == 0 {
		s.State, s.Versions = shredding.KeyDestroyed, nil
	}
	k.notify(s.Reference)
	return s, true
}

// resume lets the request of a replayed receipt continue from destroyed, with the partitions
// and classes of the receipt.
func (k *keyState) resume(e *erasure, keys []ports.ReplayKey, d ports.Destruction) {
	decided := e.Classes
	e.Partitions, e.fencedClasses, e.Classes = nil, nil, nil
	for _, key := range keys {
		e.Partitions, e.fencedClasses = append(e.Partitions, key.Partition), append(e.fencedClasses, key.Class)
	}
	slices.Sort(e.Partitions)
	slices.Sort(e.fencedClasses)
	e.Partitions, e.fencedClasses = slices.Compact(e.Partitions), slices.Compact(e.fencedClasses)
	for _, class := range shredding.KeyClasses() {
		c := ports.ErasureClass{Class: class, Erased: slices.Contains(e.fencedClasses, class)}
		if i := slices.IndexFunc(decided, func(c ports.ErasureClass) bool { return c.Class == class && !c.Erased }); i >= 0 && !c.Erased {
			c = decided[i] // why it was kept
		}
		e.Classes = append(e.Classes, c)
	}
	e.DestroyedAt, e.Generation, e.Receipt = d.DestroyedAt, d.Generation, d.Receipt
	k.enterState(e, shredding.ErasureDestroyed)
}

// NodesBehind implements ports.ErasureRegister.
func (k *ErasureRegister) NodesBehind(_ context.Context, generation int64, since time.Time) (int, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	n := 0
	for _, r := range k.nodes {
		if !r.at.Before(since) && r.generation < generation {
			n++
		}
	}
	return n, nil
}

// PlaceHold implements ports.ErasureRegister.
func (k *ErasureRegister) PlaceHold(_ context.Context, h ports.LegalHold) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, stored := range k.holds {
		if stored.ID != h.ID {
			continue
		}
		sameEnd := (stored.Until == nil) == (h.Until == nil) && (h.Until == nil || *h.Until == *stored.Until)
		if stored.TenantID == h.TenantID && stored.Subject == h.Subject && stored.Partition == h.Partition && stored.Reason == h.Reason && stored.PlacedBy == h.PlacedBy && sameEnd {
			return nil
		}
		return erasureChanged()
	}
	h.ReleasedBy, h.ReleasedAt = "", time.Time{}
	k.holds = append(k.holds, h)
	return nil
}

// ReleaseHold implements ports.ErasureRegister.
func (k *ErasureRegister) ReleaseHold(_ context.Context, tenantID string, id event.ID, by string, at time.Time) (ports.LegalHold, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.holds {
		h := &k.holds[i]
		if h.ID == id && h.TenantID == tenantID {
			if h.ReleasedAt.IsZero() {
				h.ReleasedBy, h.ReleasedAt = by, at.UTC()
			}
			return *h, nil
		}
	}
	return ports.LegalHold{}, erasureNotFound()
}

// Holds implements ports.ErasureRegister; the day of Until is still in force. Subject
// "" lists those of all subjects.
func (k *ErasureRegister) Holds(_ context.Context, tenantID string, subject shredding.Subject, on event.Date) ([]ports.LegalHold, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return list(slices.Values(k.holds), func(h ports.LegalHold) bool {
		return h.TenantID == tenantID && (subject == "" || h.Subject == subject) && inForce(&h, on)
	}, func(a, b ports.LegalHold) int { return a.PlacedAt.Compare(b.PlacedAt) }), nil
}
