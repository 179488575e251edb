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

// watch notes what is evicted while something is under way, so that its result is
// not kept. The Vault's lock guards it.
type watch struct {
	ids     []ports.SubjectKeyID
	all     bool
	evicted []string // references
}

// stale reports whether what came back under a reference must not be kept.
func (w *watch) stale(reference string) bool { return w.all || slices.Contains(w.evicted, reference) }

// reading is one read of the key store and those who wait for it.
type reading struct {
	watch
	done    chan struct{}
	entries map[ports.SubjectKeyID]*entry // set before done is closed
	err     error
}

// found is what is known of a key. Remembered says that this request has not asked
// itself: the knowledge may be older than it is.
type found struct {
	*entry
	remembered bool
}

// known tells what the key store says of the keys, from memory or with one read for
// all that are not there.
func (v *Vault) known(ctx context.Context, ids []ports.SubjectKeyID) (map[ports.SubjectKeyID]found, error) {
	out := make(map[ports.SubjectKeyID]found, len(ids))
	joined := map[ports.SubjectKeyID]*reading{}
	var own *reading
	now := v.Clock.Now()
	v.mu.Lock()
	for _, id := range ids {
		if e := v.cache.get(id, now); e != nil {
			out[id] = found{e, true}
			continue
		}
		if r := v.reads[id]; r != nil {
			joined[id] = r
			continue
		}
		if own == nil {
			own = &reading{done: make(chan struct{})}
			v.flying[&own.watch] = struct{}{}
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
		out[id] = found{r.entries[id], r != own}
	}
	return out, nil
}

// read asks the key store. What it says dies at the given time, which counts from
// before it was asked.
func (v *Vault) read(ctx context.Context, r *reading, dies time.Time) {
	ctx, cancel := detached(ctx)
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
			e := newEntry(k, dies)
			if !r.stale(k.Reference) {
				if have := v.cache.get(k.SubjectKeyID, now); have != nil && have.says(k) {
					e = have // it came meanwhile, by a minting, and has the key in clear
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
	delete(v.flying, &r.watch)
	v.evicted(evicted)
	close(r.done)
	v.mu.Unlock()
}

// Evict forgets the key with the reference at once, whoever uses it.
func (v *Vault) Evict(reference string) {
	v.mu.Lock()
	for w := range v.flying {
		w.evicted = append(w.evicted, reference)
	}
	v.part()
	evicted := 0
	if e := v.cache.byRef[reference]; e != nil {
		evicted = v.cache.drop(e, true)
	}
	v.mu.Unlock()
	v.evicted(evicted)
}

// EvictAll forgets every key of persons at once, whoever uses it.
func (v *Vault) EvictAll() {
	v.mu.Lock()
	for w := range v.flying {
		w.all = true
	}
	v.part()
	clear(v.keks)
	evicted := v.cache.clear()
	v.mu.Unlock()
	v.evicted(evicted)
}

// part lets nobody join what began before an eviction. The lock is held.
func (v *Vault) part() {
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

// forget makes the next request ask the key store. Those who use the keys may go
// on.
func (v *Vault) forget(ids ...ports.SubjectKeyID) {
	v.mu.Lock()
	evicted := 0
	for _, id := range ids {
		if e := v.cache.byID[id]; e != nil {
			evicted += v.cache.drop(e, false)
		}
		for w := range v.flying {
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

// destroyed tells which of the keys are known to be destroyed, for readers who get
// no value in any case. While the key store cannot be asked it says none, which
// withholds.
func (v *Vault) destroyed(ctx context.Context, ids []ports.SubjectKeyID) map[ports.SubjectKeyID]bool {
	if len(ids) == 0 || v.ready() != nil {
		return nil
	}
	states, err := v.known(ctx, ids)
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
