package vault

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const codeEpochClosed = "keys.epoch_closed"

// firstVersion is the version of a key that is made for an absent one.
const firstVersion = 1

// mintKey makes the first version of a key that was absent in the last read. The caller
// releases it.
func (v *Vault) mintKey(ctx context.Context, tenantID string, id ports.SubjectKeyID) (*dek, verdict, error) {
	now := v.Clock.Now()
	v.mu.Lock()
	if e := v.cache.get(id, now); e != nil {
		v.mu.Unlock()
		return v.acquireKey(ctx, tenantID, want{id: id}, knownKey{e, true}) // another request has minted it
	}
	m := v.mints[id]
	if m == nil {
		m = &pendingKey{evictionWatch: evictionWatch{ids: []ports.SubjectKeyID{id}}, done: make(chan struct{})}
		v.mints[id] = m
		v.inFlight[&m.evictionWatch] = struct{}{}
		go v.runMint(ctx, m, tenantID, id)
	}
	m.waiters++
	v.mu.Unlock()
	return v.await(ctx, m)
}

// runMint mints a key and delivers it to the waiting requests. The loser of a race between
// nodes zeroes its own key and unwraps the winner's.
func (v *Vault) runMint(ctx context.Context, m *pendingKey, tenantID string, id ports.SubjectKeyID) {
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	e, d, err := v.mintOnce(ctx, tenantID, id)
	if fault.CodeOf(err) == codeEpochClosed {
		e, d, err = v.mintOnce(ctx, tenantID, id)
	}
	result := keyUsable
	switch {
	case fault.CodeOf(err) == shredding.CodeSubjectErased:
		result, err = keyDestroyed, nil
	case err == nil && !e.known.State.Seals():
		result = keyDestroyed
	case err == nil && d == nil:
		d, err = v.unwrapVersion(ctx, e.known, e.known.Active)
	}
	now := v.Clock.Now()
	v.mu.Lock()
	evicted := 0
	if e != nil && !m.stale(e.known.Reference) {
		// A read that began after the key was stored may have ended before this mint. Its
		// entry stays, because the requests that waited for it use it.
		if cached := v.cache.get(id, now); cached == nil || !cached.matches(e.known) {
			evicted = v.cache.put(e)
		}
	}
	if result != keyUsable && d != nil {
		d.key.DEK.Zero()
		d = nil
	}
	if d != nil {
		if later := v.cache.byID[id]; later != nil && later.known.Reference == e.known.Reference {
			evicted += v.cache.add(later, d) // e, or the entry of such a read
		}
	}
	if v.mints[id] == m {
		delete(v.mints, id)
	}
	delete(v.inFlight, &m.evictionWatch)
	v.countEvicted(evicted)
	m.complete(d, result, err)
	v.mu.Unlock()
}

// mintOnce mints under the active KEK. The dek is nil if another node has minted the key.
func (v *Vault) mintOnce(ctx context.Context, tenantID string, id ports.SubjectKeyID) (*entry, *dek, error) {
	reference := newReference()
	plain, wrapped, err := v.generate(ctx, tenantID, id.Partition, reference)
	if err != nil {
		return nil, nil, err
	}
	d, err := newDEK(id.Class, firstVersion, plain)
	if err != nil {
		return nil, nil, err
	}
	began := v.Clock.Now()
	stored, err := v.Keys.MintSubjectKey(ctx, tenantID, ports.MintedKey{SubjectKeyID: id, Reference: reference, WrappedKey: wrapped})
	if err != nil {
		d.key.DEK.Zero()
		v.dropKEK(tenantID, err)
		return nil, nil, err
	}
	stored.SubjectKeyID = id
	e := newEntry(stored, began.Add(v.Life))
	if stored.Reference != reference || stored.Active != firstVersion {
		d.key.DEK.Zero()
		return e, nil, nil
	}
	return e, d, nil
}

// cachedKEK is a tenant's active KEK.
type cachedKEK struct {
	ports.KEK
	expiresAt time.Time
}

// generate makes the first version of a data key under the tenant's active KEK. If the cached
// KEK is not active any more, generate reads it again, once.
func (v *Vault) generate(ctx context.Context, tenantID string, p event.PartitionID, reference string) (plain shredding.Secret, wrapped ports.WrappedKey, err error) {
	for {
		kek, isCached, err := v.activeKEK(ctx, tenantID)
		if err != nil {
			return plain, wrapped, err
		}
		made, err := v.generateKey(ctx, kek.KeyID, ports.Bound(p, reference, firstVersion))
		if err == nil {
			wrapped = ports.WrappedKey{Version: firstVersion, Epoch: kek.Epoch, KEK: kek.KeyID, Wrapped: made.Wrapped}
			wrapped.Fingerprint, err = shredding.Key{DEK: made.Plain}.Fingerprint()
			return made.Plain, wrapped, err
		}
		if v.dropKEK(tenantID, err); !isCached || !isFromOutdatedRead(err) {
			return plain, wrapped, err
		}
	}
}

// activeKEK returns the KEK for new keys, and whether it is from memory.
func (v *Vault) activeKEK(ctx context.Context, tenantID string) (kek ports.KEK, isCached bool, err error) {
	now := v.Clock.Now()
	v.mu.Lock()
	cached, ok := v.keks[tenantID]
	v.mu.Unlock()
	if ok && now.Before(cached.expiresAt) {
		return cached.KEK, true, nil
	}
	if kek, err = v.Keys.ActiveKEK(ctx, tenantID); err != nil {
		return ports.KEK{}, false, err
	}
	v.mu.Lock()
	v.keks[tenantID] = cachedKEK{kek, now.Add(v.Life)}
	v.mu.Unlock()
	return kek, false, nil
}

// dropKEK drops the cached KEK of a tenant if the error may be due to it being outdated.
func (v *Vault) dropKEK(tenantID string, refusal error) {
	if fault.CodeOf(refusal) != codeEpochClosed && !isFromOutdatedRead(refusal) {
		return
	}
	v.mu.Lock()
	delete(v.keks, tenantID)
	v.mu.Unlock()
}

// newReference makes a random UUID (RFC 9562, version 4).
func newReference() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
