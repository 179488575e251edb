package vault

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const codeEpochClosed = "keys.epoch_closed"

// firstVersion is the version of a key that is made for an absent one.
const firstVersion = 1

// mint makes the first version of a key that was absent when somebody looked, with
// a share in it.
func (v *Vault) mint(ctx context.Context, tenantID string, id ports.SubjectKeyID) (*dek, verdict, error) {
	now := v.Clock.Now()
	v.mu.Lock()
	if e := v.cache.get(id, now); e != nil {
		v.mu.Unlock()
		return v.key(ctx, tenantID, want{id: id}, found{e, true}) // another request has been faster
	}
	m := v.mints[id]
	if m == nil {
		m = &making{watch: watch{ids: []ports.SubjectKeyID{id}}, done: make(chan struct{})}
		v.mints[id] = m
		v.flying[&m.watch] = struct{}{}
		go v.mintFor(ctx, m, tenantID, id)
	}
	m.waiting++
	v.mu.Unlock()
	return v.await(ctx, m)
}

// mintFor carries a minting through. The loser of a race between nodes throws its
// key away and unwraps the winner's.
func (v *Vault) mintFor(ctx context.Context, m *making, tenantID string, id ports.SubjectKeyID) {
	ctx, cancel := detached(ctx)
	defer cancel()
	e, d, err := v.mintOnce(ctx, tenantID, id)
	if fault.CodeOf(err) == codeEpochClosed {
		e, d, err = v.mintOnce(ctx, tenantID, id)
	}
	is := useful
	switch {
	case fault.CodeOf(err) == shredding.CodeSubjectErased:
		is, err = destroyed, nil
	case err == nil && !e.known.State.Seals():
		is = destroyed
	case err == nil && d == nil:
		d, err = v.open(ctx, e.known, e.known.Active)
	}
	now := v.Clock.Now()
	v.mu.Lock()
	evicted := 0
	if e != nil && !m.stale(e.known.Reference) {
		// A read that began after the key was stored may have been faster. What it found
		// stays: whoever it was for looks for the key there.
		if have := v.cache.get(id, now); have == nil || !have.says(e.known) {
			evicted = v.cache.put(e)
		}
	}
	if is != useful && d != nil {
		d.key.DEK.Zero()
		d = nil
	}
	if d != nil {
		if later := v.cache.byID[id]; later != nil && later.known.Reference == e.known.Reference {
			evicted += v.cache.add(later, d) // e, or what a read found that began after the key was stored
		}
	}
	if v.mints[id] == m {
		delete(v.mints, id)
	}
	delete(v.flying, &m.watch)
	v.evicted(evicted)
	m.end(d, is, err)
	v.mu.Unlock()
}

// mintOnce tries with the active KEK. d is nil if another key stands.
func (v *Vault) mintOnce(ctx context.Context, tenantID string, id ports.SubjectKeyID) (*entry, *dek, error) {
	reference := newReference()
	kek, plain, wrapped, err := v.generate(ctx, tenantID, ports.Bound(id.Partition, reference, firstVersion))
	if err != nil {
		return nil, nil, err
	}
	d, err := newDEK(id.Class, firstVersion, plain)
	if err != nil {
		return nil, nil, err
	}
	fingerprint, err := d.key.Fingerprint()
	if err != nil {
		return nil, nil, err
	}
	began := v.Clock.Now()
	stands, err := v.Keys.MintSubjectKey(ctx, tenantID, ports.MintedKey{
		SubjectKeyID: id, Reference: reference,
		WrappedKey: ports.WrappedKey{Version: firstVersion, Epoch: kek.Epoch, KEK: kek.KeyID, Wrapped: wrapped, Fingerprint: fingerprint},
	})
	if err != nil {
		d.key.DEK.Zero()
		v.dropKEK(tenantID, err)
		return nil, nil, err
	}
	stands.SubjectKeyID = id
	e := newEntry(stands, began.Add(v.Life))
	if stands.Reference != reference || stands.Active != firstVersion {
		d.key.DEK.Zero()
		return e, nil, nil
	}
	return e, d, nil
}

// keptKEK is a tenant's active KEK as it was read.
type keptKEK struct {
	ports.KEK
	dies time.Time
}

// generate makes a data key under the tenant's active KEK. If that turns out to be
// none any more, the KEK is read again, once.
func (v *Vault) generate(ctx context.Context, tenantID string, bound ports.EncryptionContext) (ports.KEK, shredding.Secret, []byte, error) {
	for {
		kek, remembered, err := v.activeKEK(ctx, tenantID)
		if err != nil {
			return ports.KEK{}, shredding.Secret{}, nil, err
		}
		made, err := v.generateKey(ctx, kek.KeyID, bound)
		if err == nil {
			return kek, made.Plain, made.Wrapped, nil
		}
		if v.dropKEK(tenantID, err); !remembered || !couldHaveMoved(err) {
			return ports.KEK{}, shredding.Secret{}, nil, err
		}
	}
}

// activeKEK gives the KEK for new keys; remembered says that it was read earlier.
func (v *Vault) activeKEK(ctx context.Context, tenantID string) (kek ports.KEK, remembered bool, err error) {
	now := v.Clock.Now()
	v.mu.Lock()
	kept, ok := v.keks[tenantID]
	v.mu.Unlock()
	if ok && now.Before(kept.dies) {
		return kept.KEK, true, nil
	}
	if kek, err = v.Keys.ActiveKEK(ctx, tenantID); err != nil {
		return ports.KEK{}, false, err
	}
	v.mu.Lock()
	v.keks[tenantID] = keptKEK{kek, now.Add(v.Life)}
	v.mu.Unlock()
	return kek, false, nil
}

// dropKEK forgets a KEK that was refused.
func (v *Vault) dropKEK(tenantID string, refusal error) {
	if fault.CodeOf(refusal) != codeEpochClosed && !couldHaveMoved(refusal) {
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
