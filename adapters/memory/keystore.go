package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// KeyStore is a key store in the process's memory, for tests, as nodes use it. It makes the
// promises of the PostgreSQL one except durability and the separation of roles.
type KeyStore struct{ *keyState }

// ErasureRegister stores requests, receipts and holds of erasures in a key store.
type ErasureRegister struct{ *keyState }

// KeyRotation rotates the KEKs of a key store, and exports and restores its keys.
type KeyRotation struct{ *keyState }

// Erasures is the part of the store that erases.
func (k *KeyStore) Erasures() *ErasureRegister { return &ErasureRegister{k.keyState} }

// Rotation is the part of the store that rotates, exports and restores.
func (k *KeyStore) Rotation() *KeyRotation { return &KeyRotation{k.keyState} }

// keyState is shared by the parts of a key store. One lock guards all of it, and a lease
// holds a share of that lock.
type keyState struct {
	mu         sync.RWMutex
	clock      ports.Clock
	keks       []ports.KEK // by tenant and epoch
	subjects   map[ports.SubjectKeyID]*subjectKey
	fences     map[ports.SubjectKeyID]*fence
	secrets    map[secretKey]ports.TenantSecret
	requests   []*erasure // in the order they came
	receipts   []*receipt // by number
	holds      []ports.LegalHold
	generation int64
	nodes      map[string]nodeReport

	listenMu  sync.Mutex
	listeners map[chan string]struct{}
	fail      error // guarded by listenMu
}

type subjectKey struct {
	tenantID string
	ports.SubjectKey
}

type secretKey struct{ tenantID, purpose string }

type nodeReport struct {
	generation int64
	at         time.Time
}

// NewKeyStore makes an empty key store on the system's clock.
func NewKeyStore() *KeyStore {
	return &KeyStore{&keyState{
		clock: systemClock{}, subjects: map[ports.SubjectKeyID]*subjectKey{}, fences: map[ports.SubjectKeyID]*fence{},
		secrets: map[secretKey]ports.TenantSecret{}, nodes: map[string]nodeReport{}, listeners: map[chan string]struct{}{},
	}}
}

// SetClock gives the store another clock. Call it before anything else.
func (k *KeyStore) SetClock(c ports.Clock) { k.clock = c }

// PutBack stores a key as a superuser of a database could, past every rule: it replaces the row,
// and removes the fence.
func (k *KeyStore) PutBack(tenantID string, key ports.SubjectKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key.Versions = cloneVersions(key.Versions)
	k.subjects[key.SubjectKeyID] = &subjectKey{tenantID: tenantID, SubjectKey: key}
	delete(k.fences, key.SubjectKeyID)
}

// Fail makes every method of ports.SubjectKeys and ReportNode fail with an error, as if the
// store were unreachable; nil ends it.
func (k *KeyStore) Fail(err error) {
	k.listenMu.Lock()
	defer k.listenMu.Unlock()
	k.fail = err
}

func (k *keyState) failing() error {
	k.listenMu.Lock()
	defer k.listenMu.Unlock()
	return k.fail
}

func (k *keyState) now() time.Time { return event.Micros(k.clock.Now()) }

// SubjectKeys implements ports.SubjectKeys.
func (k *KeyStore) SubjectKeys(_ context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error) {
	if err := k.failing(); err != nil {
		return nil, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.read(ids), nil
}

func (k *keyState) read(ids []ports.SubjectKeyID) []ports.SubjectKey {
	out := make([]ports.SubjectKey, len(ids))
	for i, id := range ids {
		out[i] = ports.SubjectKey{SubjectKeyID: id, State: shredding.KeyAbsent}
		if stored, ok := k.subjects[id]; ok {
			out[i] = stored.SubjectKey
			out[i].Versions = cloneVersions(stored.Versions)
		}
		if k.isFenced(id) && out[i].State != shredding.KeyDestroyed {
			out[i].State = shredding.KeyFenced
		}
	}
	return out
}

func cloneVersions(versions []ports.WrappedKey) []ports.WrappedKey {
	out := slices.Clone(versions)
	for i := range out {
		out[i].Wrapped = slices.Clone(out[i].Wrapped)
	}
	return out
}

func (k *keyState) isFenced(id ports.SubjectKeyID) bool {
	f, ok := k.fences[id]
	return ok && !f.lifted
}

// LeaseKeys implements KeyLeases.
func (k *KeyStore) LeaseKeys(ids []ports.SubjectKeyID) (keys []ports.SubjectKey, release func()) {
	k.mu.RLock()
	return k.read(ids), sync.OnceFunc(k.mu.RUnlock)
}

// MintSubjectKey implements ports.SubjectKeys.
func (k *KeyStore) MintSubjectKey(_ context.Context, tenantID string, m ports.MintedKey) (ports.SubjectKey, error) {
	if err := k.failing(); err != nil {
		return ports.SubjectKey{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	stored, known := k.subjects[m.SubjectKeyID]
	switch {
	case k.isFenced(m.SubjectKeyID), known && stored.State == shredding.KeyDestroyed:
		return ports.SubjectKey{}, shredding.Erased("")
	case known && stored.tenantID != tenantID, !known && m.Version != 1, m.Reference == "":
		return ports.SubjectKey{}, fault.New(fault.Internal, "keys.request_invalid",
			"the key store was asked for a key that cannot be: another tenant's, a version without the one before, or a damaged reference; report this")
	case known && (m.Version != stored.Active+1 || m.Reference != stored.Reference):
		return k.read([]ports.SubjectKeyID{m.SubjectKeyID})[0], nil
	}
	kek, err := k.active(tenantID, m.Epoch)
	if err != nil {
		return ports.SubjectKey{}, err
	}
	m.KEK = kek.KeyID
	m.Wrapped = slices.Clone(m.Wrapped)
	if !known {
		stored = &subjectKey{tenantID: tenantID, SubjectKey: ports.SubjectKey{SubjectKeyID: m.SubjectKeyID, Reference: m.Reference, State: shredding.KeyActive}}
		k.subjects[m.SubjectKeyID] = stored
	} else {
		k.notify(m.Reference)
	}
	stored.Active = m.Version
	stored.Versions = append(stored.Versions, m.WrappedKey)
	return k.read([]ports.SubjectKeyID{m.SubjectKeyID})[0], nil
}

// active gives the KEK of an epoch if it is the active one.
func (k *keyState) active(tenantID string, epoch uint32) (*ports.KEK, error) {
	kek := k.kek(tenantID, epoch)
	if kek == nil || kek.State != ports.KEKActive {
		return nil, fault.New(fault.Conflict, "keys.epoch_closed", "new keys are not wrapped with this epoch of the tenant's key any more; make the key again under the active one")
	}
	return kek, nil
}

// ActiveKEK implements ports.SubjectKeys.
func (k *KeyStore) ActiveKEK(_ context.Context, tenantID string) (ports.KEK, error) {
	if err := k.failing(); err != nil {
		return ports.KEK{}, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, kek := range k.keks {
		if kek.TenantID == tenantID && kek.State == ports.KEKActive {
			return kek, nil
		}
	}
	return ports.KEK{}, fault.New(fault.FailedPrecondition, "keys.kek_missing",
		"the tenant has no key yet that wraps the keys of persons; try again, a server makes it while the key service answers")
}

// TenantSecret implements ports.SubjectKeys.
func (k *KeyStore) TenantSecret(_ context.Context, tenantID, purpose string) (ports.TenantSecret, error) {
	if err := k.failing(); err != nil {
		return ports.TenantSecret{}, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if s, ok := k.secrets[secretKey{tenantID, purpose}]; ok {
		s.Wrapped = slices.Clone(s.Wrapped)
		return s, nil
	}
	return ports.TenantSecret{TenantID: tenantID, Purpose: purpose}, nil
}

// SaveTenantSecret implements ports.SubjectKeys.
func (k *KeyStore) SaveTenantSecret(_ context.Context, s ports.TenantSecret) (ports.TenantSecret, error) {
	if err := k.failing(); err != nil {
		return ports.TenantSecret{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := secretKey{s.TenantID, s.Purpose}
	if stored, ok := k.secrets[key]; ok {
		return stored, nil
	}
	kek, err := k.active(s.TenantID, s.Epoch)
	if err != nil {
		return ports.TenantSecret{}, err
	}
	s.KEK, s.Wrapped = kek.KeyID, slices.Clone(s.Wrapped)
	k.secrets[key] = s
	return s, nil
}

// notify sends a reference to all listeners. A listener that does not keep up is
// disconnected.
func (k *keyState) notify(reference string) {
	k.listenMu.Lock()
	defer k.listenMu.Unlock()
	for c := range k.listeners {
		select {
		case c <- reference:
		default:
			delete(k.listeners, c)
			close(c)
		}
	}
}

// ListenEvictions implements ports.KeyEvictions. It calls lost once it listens.
func (k *KeyStore) ListenEvictions(ctx context.Context, evict func(reference string), lost func()) error {
	for {
		signals := make(chan string, 1024)
		k.listenMu.Lock()
		k.listeners[signals] = struct{}{}
		k.listenMu.Unlock()
		lost()
		for open := true; open; {
			var ref string
			select {
			case <-ctx.Done():
				k.listenMu.Lock()
				delete(k.listeners, signals)
				k.listenMu.Unlock()
				return ctx.Err()
			case ref, open = <-signals:
				if open {
					evict(ref)
				}
			}
		}
		lost()
	}
}

// ReportNode implements ports.KeyEvictions.
func (k *KeyStore) ReportNode(_ context.Context, node string, forgotten int64) (newest int64, err error) {
	if err := k.failing(); err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[node] = nodeReport{forgotten, k.now()}
	return k.generation, nil
}
