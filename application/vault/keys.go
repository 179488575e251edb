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

// want is a key that a request needs: a version to open with, or 0 for the active version,
// to seal with.
type want struct {
	id      ports.SubjectKeyID
	version uint32
}

// keySet holds the keys that one request uses until it calls release. A wanted key that is
// in neither map has a version that the key store lacks.
type keySet struct {
	vault     *Vault
	deks      map[want]*dek
	destroyed map[want]bool // to seal with: fenced too
}

func (l *keySet) release() {
	l.vault.mu.Lock()
	defer l.vault.mu.Unlock()
	for _, d := range l.deks {
		d.release()
	}
	clear(l.deks)
}

// acquireKeys returns the keys: those in memory at once, the others with one read of the
// key store and one call of the key service each.
func (v *Vault) acquireKeys(ctx context.Context, tenantID string, wants []want) (*keySet, error) {
	l := &keySet{vault: v, deks: make(map[want]*dek, len(wants)), destroyed: map[want]bool{}}
	missing := v.acquireCached(l, wants)
	v.Observer.CacheHits(len(wants) - len(missing))
	if len(missing) > 0 {
		v.Observer.CacheMisses(len(missing))
	}
	for round := 1; len(missing) > 0; round++ {
		var err error
		if missing, err = v.acquireFromStore(ctx, tenantID, l, missing, round == maxRounds); err != nil {
			l.release()
			return nil, err
		}
	}
	return l, nil
}

// acquireCached adds the keys that are in memory to the set and returns the others.
func (v *Vault) acquireCached(l *keySet, wants []want) (missing []want) {
	now := v.Clock.Now()
	v.mu.Lock()
	evicted := v.cache.expire(now)
	for _, w := range wants {
		e := v.cache.get(w.id, now)
		if e == nil {
			missing = append(missing, w)
			continue
		}
		version := w.version
		if version == 0 && e.known.State.Seals() {
			version = e.known.Active
		}
		switch d := e.deks[version]; {
		case e.known.State == shredding.KeyDestroyed:
			l.destroyed[w] = true
		case d != nil:
			d.users++
			l.deks[w] = d
		default:
			missing = append(missing, w)
		}
	}
	v.mu.Unlock()
	v.countEvicted(evicted)
	return missing
}

// acquireFromStore adds the keys that are not in memory to the set. It returns those whose
// cached state is outdated, so that acquireKeys asks for them again; the last round accepts
// them as they are.
func (v *Vault) acquireFromStore(ctx context.Context, tenantID string, l *keySet, wants []want, last bool) (outdated []want, err error) {
	ids, seen := make([]ports.SubjectKeyID, 0, len(wants)), make(map[ports.SubjectKeyID]bool, len(wants))
	for _, w := range wants {
		if !seen[w.id] {
			seen[w.id] = true
			ids = append(ids, w.id)
		}
	}
	entries, err := v.lookUp(ctx, ids)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var first error
	take := func(w want) {
		e := entries[w.id]
		d, verdict, err := v.acquireKey(ctx, tenantID, w, e)
		mu.Lock()
		defer mu.Unlock()
		if d != nil {
			l.deks[w] = d
		}
		switch {
		case !last && (verdict == keyExpired || e.mayBeOutdated && (verdict == keyChanged || err != nil && isFromOutdatedRead(err))):
			outdated = append(outdated, w)
		case err != nil:
			first = cmp.Or(first, err)
		case verdict == keyDestroyed, verdict == keyChanged && w.version == 0:
			l.destroyed[w] = true
		case verdict == keyExpired:
			first = cmp.Or(first, keyEvicted())
		}
	}
	if len(wants) == 1 {
		take(wants[0])
	} else {
		var running sync.WaitGroup
		slots := make(chan struct{}, maxParallelUnwraps)
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
	for _, w := range outdated {
		v.forget(w.id)
	}
	return outdated, nil
}

// verdict is the result of acquiring a key.
type verdict int

const (
	keyUsable    verdict = iota
	keyDestroyed         // to seal with: fenced too
	keyChanged           // the read lacks the wanted version, and may be outdated
	keyExpired           // the read expired before the key was unwrapped, or is known to be outdated
)

func keyEvicted() error {
	return fault.New(fault.Unavailable, "pii.key_evicted", "the key was removed from memory; try again")
}

// isFromOutdatedRead reports whether an error of the key service may be due to an outdated
// read of the key store: a rotation wraps keys again under another KEK.
func isFromOutdatedRead(err error) bool {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.FailedPrecondition, fault.Invalid:
		return true
	}
	return false
}

// acquireKey acquires one key from its entry.
func (v *Vault) acquireKey(ctx context.Context, tenantID string, w want, e knownKey) (*dek, verdict, error) {
	version := w.version
	switch state := e.known.State; {
	case state == shredding.KeyDestroyed:
		return nil, keyDestroyed, nil
	case version != 0 && !slices.ContainsFunc(e.known.Versions, func(k ports.WrappedKey) bool { return k.Version == version }):
		return nil, keyChanged, nil
	case version != 0:
	case state.Seals():
		version = e.known.Active
	case state == shredding.KeyAbsent:
		return v.mintKey(ctx, tenantID, w.id)
	case e.mayBeOutdated:
		return nil, keyChanged, nil // fenced, but an erasure may have been refused since
	default:
		return nil, keyDestroyed, nil
	}
	d, err := v.loadDEK(ctx, e.entry, version)
	if err != nil {
		return nil, keyUsable, err
	}
	if d == nil { // loadDEK joined a mint, which found the subject erased
		return nil, keyExpired, nil
	}
	if !v.Clock.Now().Before(e.expiresAt) {
		v.releaseKey(d)
		return nil, keyExpired, nil
	}
	return d, keyUsable, nil
}

func (v *Vault) releaseKey(d *dek) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.release()
}

// pendingKey is a key that a goroutine mints or unwraps, and the requests that wait for it.
type pendingKey struct {
	evictionWatch
	done    chan struct{}
	waiters int // guarded by the Vault's lock, as the result until done is closed
	dek     *dek
	verdict verdict
	err     error
}

// complete delivers the result to the waiting requests. The caller holds the lock.
func (m *pendingKey) complete(d *dek, v verdict, err error) {
	m.dek, m.verdict, m.err = d, v, err
	if d != nil {
		if d.users += m.waiters; d.users == 0 && !d.cached {
			d.key.DEK.Zero()
		}
	}
	close(m.done)
}

// await waits for a key. The caller has added itself to waiters.
func (v *Vault) await(ctx context.Context, m *pendingKey) (*dek, verdict, error) {
	select {
	case <-m.done:
		return m.dek, m.verdict, m.err
	case <-ctx.Done():
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if ports.TryReceive(m.done) {
		return m.dek, m.verdict, m.err
	}
	m.waiters--
	return nil, keyUsable, ctx.Err()
}

// loadDEK returns a version of a key in clear, which the caller releases. It is nil if
// the subject turns out to be erased.
func (v *Vault) loadDEK(ctx context.Context, e *entry, version uint32) (*dek, error) {
	v.mu.Lock()
	if d := e.deks[version]; d != nil && d.cached {
		d.users++
		v.mu.Unlock()
		return d, nil
	}
	m := e.unwraps[version]
	if m == nil && version == firstVersion {
		m = v.mints[e.known.SubjectKeyID] // it will deliver this version in clear
	}
	if m == nil {
		m = &pendingKey{done: make(chan struct{})}
		e.unwraps[version] = m
		go v.runUnwrap(ctx, m, e, version)
	}
	m.waiters++
	v.mu.Unlock()
	d, _, err := v.await(ctx, m)
	return d, err
}

func (v *Vault) runUnwrap(ctx context.Context, m *pendingKey, e *entry, version uint32) {
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	d, err := v.unwrapVersion(ctx, e.known, version)
	v.mu.Lock()
	evicted := 0
	if d != nil {
		evicted = v.cache.add(e, d)
	}
	delete(e.unwraps, version)
	v.countEvicted(evicted)
	m.complete(d, keyUsable, err)
	v.mu.Unlock()
}

// unwrapVersion unwraps a version with the key service.
func (v *Vault) unwrapVersion(ctx context.Context, k ports.SubjectKey, version uint32) (*dek, error) {
	i := slices.IndexFunc(k.Versions, func(w ports.WrappedKey) bool { return w.Version == version })
	if i < 0 {
		return nil, fault.New(fault.Internal, "pii.key_invalid", "the key store lacks the active version of a key; restore the key store's row from an export")
	}
	w := k.Versions[i]
	plain, err := v.unwrapKey(ctx, w.KEK, w.Wrapped, ports.Bound(k.Partition, k.Reference, version))
	if err != nil {
		return nil, err
	}
	d, err := newDEK(k.Class, version, plain)
	if err != nil {
		return nil, err
	}
	if err := v.requireOwn(d.key, w); err != nil {
		plain.Zero()
		return nil, err
	}
	return d, nil
}

// requireOwn requires that an unwrapped key is none that an erasure destroyed, and has the
// fingerprint that is stored with it: erasures, receipts and the gate know a key by that one.
func (v *Vault) requireOwn(key shredding.Key, stored ports.WrappedKey) error {
	f, err := key.Fingerprint()
	if err != nil {
		return err
	}
	if err := v.RequireLive(f); err != nil {
		return err
	}
	if f != stored.Fingerprint {
		return fault.New(fault.Internal, "pii.key_invalid", "a key is stored with the fingerprint of another one; run `backbone erasure replay`, then restore the key store's row from an export")
	}
	return nil
}

func newDEK(class shredding.KeyClass, version uint32, plain shredding.Secret) (*dek, error) {
	length := 0
	err := plain.Use(func(b []byte) error { length = len(b); return nil })
	if err != nil || length != shredding.DEKSize {
		plain.Zero()
		return nil, fmt.Errorf("the key service returned a key of %d bytes", length)
	}
	return &dek{key: shredding.Key{Class: class, Version: version, DEK: plain}}, nil
}
