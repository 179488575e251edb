package vault

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// evictionWatch records the evictions during a read or mint, so that an outdated result is
// not cached. The Vault's lock guards it.
type evictionWatch struct {
	ids     []ports.SubjectKeyID
	all     bool
	evicted []string // references
}

// stale reports whether a result with a reference must not be cached.
func (w *evictionWatch) stale(reference string) bool {
	return w.all || slices.Contains(w.evicted, reference)
}

// reading is one read of the key store, which several requests may wait for.
type reading struct {
	evictionWatch
	done    chan struct{}
	entries map[ports.SubjectKeyID]*entry // set before done is closed
	err     error
}

// knownKey is the entry of a key that a request needs.
type knownKey struct {
	*entry
	mayBeOutdated bool // the read began before the request
}

// lookUp returns the states of keys. It reads those that are neither in memory nor being
// read from the key store, all at once.
func (v *Vault) lookUp(ctx context.Context, ids []ports.SubjectKeyID) (map[ports.SubjectKeyID]knownKey, error) {
	out := make(map[ports.SubjectKeyID]knownKey, len(ids))
	joined := map[ports.SubjectKeyID]*reading{}
	var own *reading
	now := v.Clock.Now()
	v.mu.Lock()
	for _, id := range ids {
		if e := v.cache.get(id, now); e != nil {
			out[id] = knownKey{e, true}
			continue
		}
		if r := v.reads[id]; r != nil {
			joined[id] = r
			continue
		}
		if own == nil {
			own = &reading{done: make(chan struct{})}
			v.inFlight[&own.evictionWatch] = struct{}{}
		}
		own.ids = append(own.ids, id)
		v.reads[id] = own
		joined[id] = own
	}
	if own != nil {
		go v.read(ctx, own, now.Add(v.Life))
	}
	v.mu.Unlock()
	for _, id := range ids {
		r := joined[id]
		if r == nil {
			continue
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.err != nil {
			return nil, r.err
		}
		out[id] = knownKey{r.entries[id], r != own}
	}
	return out, nil
}

// read reads the key store. The result expires at the given time, which the caller counts
// from before the read.
func (v *Vault) read(ctx context.Context, r *reading, expiresAt time.Time) {
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	keys, err := v.Keys.SubjectKeys(ctx, r.ids)
	if err == nil && len(keys) != len(r.ids) {
		err = fmt.Errorf("the key store answered %d keys for %d", len(keys), len(r.ids))
	}
	now := v.Clock.Now()
	v.mu.Lock()
	r.err = err
	evicted := 0
	if err == nil {
		r.entries = make(map[ports.SubjectKeyID]*entry, len(keys))
		for i, k := range keys {
			k.SubjectKeyID = r.ids[i]
			e := newEntry(k, expiresAt)
			if !r.stale(k.Reference) {
				if cached := v.cache.get(k.SubjectKeyID, now); cached != nil && cached.matches(k) {
					e = cached // a mint added it in between, with the key in clear
				} else {
					evicted += v.cache.put(e)
				}
			}
			r.entries[k.SubjectKeyID] = e
		}
	}
	for _, id := range r.ids {
		if v.reads[id] == r {
			delete(v.reads, id)
		}
	}
	delete(v.inFlight, &r.evictionWatch)
	v.countEvicted(evicted)
	close(r.done)
	v.mu.Unlock()
}

// Evict zeroes the key with the reference. Requests that use it fail with pii.key_evicted
// and are tried once more.
func (v *Vault) Evict(reference string) {
	v.mu.Lock()
	for w := range v.inFlight {
		w.evicted = append(w.evicted, reference)
	}
	v.detachInFlight()
	evicted := 0
	if e := v.cache.byRef[reference]; e != nil {
		evicted = v.cache.drop(e, true)
	}
	v.mu.Unlock()
	v.countEvicted(evicted)
}

// EvictAll does the same for all keys of persons, and forgets the active KEKs.
func (v *Vault) EvictAll() {
	v.mu.Lock()
	for w := range v.inFlight {
		w.all = true
	}
	v.detachInFlight()
	clear(v.keks)
	evicted := v.cache.clear()
	v.mu.Unlock()
	v.countEvicted(evicted)
}

// detachInFlight keeps later requests from joining reads and mints that began before an
// eviction. The caller holds the lock.
func (v *Vault) detachInFlight() {
	clear(v.reads)
	clear(v.mints)
}

// Forget implements module.Sealer. The transaction of an append leases the versions of the
// keys that its values were sealed with, and holds the leases until it ends: a destruction
// waits for it. It fails with pii.subject_erased if a key was fenced or destroyed since, and
// with pii.key_moved if the key has a newer version or is locked; then the caller forgets the
// keys and seals again.
func (v *Vault) Forget(p event.PartitionID, used []event.SealedSubject) {
	ids := make([]ports.SubjectKeyID, len(used))
	for i, u := range used {
		ids[i] = ports.SubjectKeyID{Partition: p, Subject: shredding.Subject(u.Subject), Class: shredding.KeyClass(u.KeyClass)}
	}
	v.forget(ids...)
}

// forget drops keys from memory, so that the next request reads the key store. Requests
// that use the keys continue.
func (v *Vault) forget(ids ...ports.SubjectKeyID) {
	v.mu.Lock()
	evicted := 0
	for _, id := range ids {
		if e := v.cache.byID[id]; e != nil {
			evicted += v.cache.drop(e, false)
		}
		for w := range v.inFlight {
			w.all = w.all || slices.Contains(w.ids, id)
		}
		delete(v.reads, id)
		delete(v.mints, id)
	}
	v.mu.Unlock()
	v.countEvicted(evicted)
}

func (v *Vault) countEvicted(keys int) {
	if keys > 0 {
		v.Observer.Evicted(keys)
	}
}

// findDestroyed returns which of the keys are destroyed, so that readers without the right to
// the values get [REDACTED] too. While the key store is unavailable or the gate is closed it returns
// none, so these readers get [MASKED].
func (v *Vault) findDestroyed(ctx context.Context, ids []ports.SubjectKeyID) map[ports.SubjectKeyID]bool {
	if len(ids) == 0 || v.ready() != nil {
		return nil
	}
	states, err := v.lookUp(ctx, ids)
	if err != nil {
		return nil
	}
	destroyed := make(map[ports.SubjectKeyID]bool, len(ids))
	for id, e := range states {
		if e.known.State == shredding.KeyDestroyed {
			destroyed[id] = true
		}
	}
	return destroyed
}
