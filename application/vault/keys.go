package vault

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// want is a key that a request needs: a version of it to open with, or 0 for the
// active one, to seal with.
type want struct {
	id      ports.SubjectKeyID
	version uint32
}

// loan is the keys of one request. They are given back by release.
type loan struct {
	vault *Vault
	deks  map[want]*dek
	gone  verdicts // destroyed; to seal with: fenced too
	dead  verdicts // the key store has no such version and does not say destroyed
}

// verdicts are the keys of which the same is true; usually none.
type verdicts map[want]bool

func (v *verdicts) add(w want) {
	if *v == nil {
		*v = verdicts{}
	}
	(*v)[w] = true
}

func (l *loan) release() {
	l.vault.mu.Lock()
	defer l.vault.mu.Unlock()
	for _, d := range l.deks {
		d.release()
	}
	clear(l.deks)
}

// borrow gets the keys: those in memory at once, the others with one read of the
// key store and one call of the key service each.
func (v *Vault) borrow(ctx context.Context, tenantID string, wants []want) (*loan, error) {
	l := &loan{vault: v, deks: make(map[want]*dek, len(wants))}
	rest := v.inMemory(l, wants)
	v.Observer.CacheHits(len(wants) - len(rest))
	if len(rest) > 0 {
		v.Observer.CacheMisses(len(rest))
	}
	for round := 1; len(rest) > 0; round++ {
		var err error
		if rest, err = v.fetch(ctx, tenantID, l, rest, round == rounds); err != nil {
			l.release()
			return nil, err
		}
	}
	return l, nil
}

// inMemory lends what is there and lists what is not.
func (v *Vault) inMemory(l *loan, wants []want) (rest []want) {
	now := v.Clock.Now()
	v.mu.Lock()
	evicted := v.cache.expire(now)
	for _, w := range wants {
		e := v.cache.get(w.id, now)
		if e == nil {
			rest = append(rest, w)
			continue
		}
		version := w.version
		if version == 0 && e.known.State.Seals() {
			version = e.known.Active
		}
		switch d := e.deks[version]; {
		case e.known.State == shredding.KeyDestroyed:
			l.gone.add(w)
		case d != nil:
			d.users++
			l.deks[w] = d
		default:
			rest = append(rest, w)
		}
	}
	v.mu.Unlock()
	v.evicted(evicted)
	return rest
}

// fetch lends what is not in memory. What turns out to have moved since it was read
// comes back, to be asked again; the last round takes it as it is.
func (v *Vault) fetch(ctx context.Context, tenantID string, l *loan, wants []want, last bool) (again []want, err error) {
	ids, seen := make([]ports.SubjectKeyID, 0, len(wants)), make(map[ports.SubjectKeyID]bool, len(wants))
	for _, w := range wants {
		if !seen[w.id] {
			seen[w.id] = true
			ids = append(ids, w.id)
		}
	}
	entries, err := v.known(ctx, ids)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var first error
	take := func(w want) {
		e := entries[w.id]
		d, verdict, err := v.key(ctx, tenantID, w, e)
		mu.Lock()
		defer mu.Unlock()
		if d != nil {
			l.deks[w] = d
		}
		switch {
		case !last && (verdict == died || e.remembered && (verdict == moved || err != nil && couldHaveMoved(err))):
			again = append(again, w)
		case err != nil:
			first = cmp.Or(first, err)
		case verdict == destroyed, verdict == moved && w.version == 0:
			l.gone.add(w)
		case verdict == moved:
			l.dead.add(w)
		case verdict == died:
			first = cmp.Or(first, evictedMeanwhile())
		}
	}
	if len(wants) == 1 {
		take(wants[0])
	} else {
		var running sync.WaitGroup
		slots := make(chan struct{}, unwrapsAtOnce)
		for _, w := range wants {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				take(w)
			})
		}
		running.Wait()
	}
	if first != nil {
		return nil, first
	}
	for _, w := range again {
		v.forget(w.id)
	}
	return again, nil
}

// verdict is what came of a wanted key.
type verdict int

const (
	useful    verdict = iota // here it is
	destroyed                // it is no more; to seal with: or is about to be
	moved                    // what was read does not fit, and may be old
	died                     // it took so long that the read has died, or is known to be old
)

func evictedMeanwhile() error {
	return fault.New(fault.Unavailable, "pii.key_evicted", "the key was taken out of memory meanwhile; try again")
}

// couldHaveMoved reports whether an error of the key service may come from what was
// read being old: keys are wrapped again when their KEK is replaced.
func couldHaveMoved(err error) bool {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.FailedPrecondition, fault.Invalid:
		return true
	}
	return false
}

// key gets one key from what is known about it.
func (v *Vault) key(ctx context.Context, tenantID string, w want, e found) (*dek, verdict, error) {
	version := w.version
	switch state := e.known.State; {
	case state == shredding.KeyDestroyed:
		return nil, destroyed, nil
	case version != 0 && !slices.ContainsFunc(e.known.Versions, func(k ports.WrappedKey) bool { return k.Version == version }):
		return nil, moved, nil
	case version != 0:
	case state.Seals():
		version = e.known.Active
	case state == shredding.KeyAbsent:
		return v.mint(ctx, tenantID, w.id)
	case e.remembered:
		return nil, moved, nil // fenced, but an erasure may have been refused since
	default:
		return nil, destroyed, nil
	}
	d, err := v.unwrapped(ctx, e.entry, version)
	if err != nil {
		return nil, useful, err
	}
	if d == nil { // the minting that it waited for found the subject erased
		return nil, died, nil
	}
	if !v.Clock.Now().Before(e.dies) {
		v.giveBack(d)
		return nil, died, nil
	}
	return d, useful, nil
}

func (v *Vault) giveBack(d *dek) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.release()
}

// making is a key on its way, minted or unwrapped, and those who wait for it.
type making struct {
	watch
	done    chan struct{}
	waiting int // guarded by the Vault's lock, as the result until done is closed
	dek     *dek
	verdict verdict
	err     error
}

// end hands the result to those who wait. The lock is held.
func (m *making) end(d *dek, is verdict, err error) {
	m.dek, m.verdict, m.err = d, is, err
	if d != nil {
		if d.users += m.waiting; d.users == 0 && !d.kept {
			d.key.DEK.Zero()
		}
	}
	close(m.done)
}

// await waits for a key in which the caller has a share.
func (v *Vault) await(ctx context.Context, m *making) (*dek, verdict, error) {
	select {
	case <-m.done:
		return m.dek, m.verdict, m.err
	case <-ctx.Done():
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-m.done:
		if m.dek != nil {
			m.dek.release()
		}
	default:
		m.waiting--
	}
	return nil, useful, ctx.Err()
}

// unwrapped gives a version of a key in clear, with a share in it. It is nil if the
// subject turns out to be erased.
func (v *Vault) unwrapped(ctx context.Context, e *entry, version uint32) (*dek, error) {
	v.mu.Lock()
	if d := e.deks[version]; d != nil && d.kept {
		d.users++
		v.mu.Unlock()
		return d, nil
	}
	m := e.unwraps[version]
	if m == nil && version == firstVersion {
		m = v.mints[e.known.SubjectKeyID] // stored already, and about to be here in clear
	}
	if m == nil {
		m = &making{done: make(chan struct{})}
		e.unwraps[version] = m
		go v.unwrap(ctx, m, e, version)
	}
	m.waiting++
	v.mu.Unlock()
	d, _, err := v.await(ctx, m)
	return d, err
}

func (v *Vault) unwrap(ctx context.Context, m *making, e *entry, version uint32) {
	ctx, cancel := detached(ctx)
	defer cancel()
	d, err := v.open(ctx, e.known, version)
	v.mu.Lock()
	evicted := 0
	if d != nil {
		evicted = v.cache.add(e, d)
	}
	delete(e.unwraps, version)
	v.evicted(evicted)
	m.end(d, useful, err)
	v.mu.Unlock()
}

// open calls the key service.
func (v *Vault) open(ctx context.Context, k ports.SubjectKey, version uint32) (*dek, error) {
	i := slices.IndexFunc(k.Versions, func(w ports.WrappedKey) bool { return w.Version == version })
	if i < 0 {
		return nil, fault.New(fault.Internal, "pii.key_invalid", "the key store names an active version of a key and does not have it; verify the key store")
	}
	w := k.Versions[i]
	plain, err := v.unwrapKey(ctx, w.KEK, w.Wrapped, ports.Bound(k.Partition, k.Reference, version))
	if err != nil {
		return nil, err
	}
	return newDEK(k.Class, version, plain)
}

func newDEK(class shredding.KeyClass, version uint32, plain shredding.Secret) (*dek, error) {
	length := 0
	err := plain.Use(func(b []byte) error { length = len(b); return nil })
	if err != nil || length != shredding.DEKSize {
		plain.Zero()
		return nil, fmt.Errorf("the key service gave a key of %d bytes", length)
	}
	return &dek{key: shredding.Key{Class: class, Version: version, DEK: plain}}, nil
}
