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

// knownKey is an entry for a request. remembered: the read began before the request, so it
// may be outdated.
type knownKey struct {
	*entry
	remembered bool
}

// lookUp returns the state of keys, from memory or with one read of the key store for all
// that are not in memory.
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
	for id, r := range joined {
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
				if have := v.cache.get(k.SubjectKeyID, now); have != nil && have.matches(k) {
					e = have // a mint added it in between, with the key in clear
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
	v.evicted(evicted)
	close(r.done)
	v.mu.Unlock()
}

// Evict zeroes the key with the reference, although requests may use it.
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
	v.evicted(evicted)
}

// EvictAll zeroes all keys of persons, although requests may use them.
func (v *Vault) EvictAll() {
	v.mu.Lock()
	for w := range v.inFlight {
		w.all = true
	}
	v.detachInFlight()
	clear(v.keks)
	evicted := v.cache.clear()
	v.mu.Unlock()
	v.evicted(evicted)
}

// detachInFlight prevents later requests from waiting for reads and mints that began before
// an eviction. The caller holds the lock.
func (v *Vault) detachInFlight() {
	clear(v.reads)
	clear(v.mints)
}

// Forget implements module.Sealer.
func (v *Vault) Forget(p event.PartitionID, used []event.SealedSubject) {
	ids := make([]ports.SubjectKeyID, len(used))
	for i, u := range used {
		ids[i] = ports.SubjectKeyID{Partition: p, Subject: shredding.Subject(u.Subject), Class: shredding.KeyClass(u.KeyClass)}
	}
	v.forget(ids...)
}

// forget makes the next request read the key store. Requests that use the keys may
// continue.
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
	v.evicted(evicted)
}

func (v *Vault) evicted(keys int) {
	if keys > 0 {
		v.Observer.Evicted(keys)
	}
}

// destroyed returns the keys that are known to be destroyed, for readers who may not read
// the values. While the key store is unavailable it returns none: the values are then
// masked, not shown as redacted.
func (v *Vault) destroyed(ctx context.Context, ids []ports.SubjectKeyID) map[ports.SubjectKeyID]bool {
	if len(ids) == 0 || v.ready() != nil {
		return nil
	}
	states, err := v.lookUp(ctx, ids)
	if err != nil {
		return nil
	}
	gone := make(map[ports.SubjectKeyID]bool, len(ids))
	for id, e := range states {
		if e.known.State == shredding.KeyDestroyed {
			gone[id] = true
		}
	}
	return gone
}
