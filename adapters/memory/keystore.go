package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// KeyStore is a key store in the process's memory, for tests. It makes the promises
// of the PostgreSQL one except durability and the separation of roles; one lock
// guards all of it, and a lease holds a share of that lock.
type KeyStore struct {
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

var (
	_ ports.SubjectKeys     = (*KeyStore)(nil)
	_ ports.KeyEvictions    = (*KeyStore)(nil)
	_ ports.ErasureRegister = (*KeyStore)(nil)
	_ ports.KeyRotation     = (*KeyStore)(nil)
	_ ports.KeyRecovery     = (*KeyStore)(nil)
	_ KeyLeases             = (*KeyStore)(nil)
)

// NewKeyStore makes an empty key store on the system's clock.
func NewKeyStore() *KeyStore {
	return &KeyStore{
		clock: systemClock{}, subjects: map[ports.SubjectKeyID]*subjectKey{}, fences: map[ports.SubjectKeyID]*fence{},
		secrets: map[secretKey]ports.TenantSecret{}, nodes: map[string]nodeReport{}, listeners: map[chan string]struct{}{},
	}
}

// SetClock gives the store another clock. Call it before anything else.
func (k *KeyStore) SetClock(c ports.Clock) { k.clock = c }

// Fail makes every method of ports.SubjectKeys and ReportNode fail with an error, as
// a store that is not reached; nil ends it.
func (k *KeyStore) Fail(err error) {
	k.listenMu.Lock()
	defer k.listenMu.Unlock()
	k.fail = err
}

func (k *KeyStore) failing() error {
	k.listenMu.Lock()
	defer k.listenMu.Unlock()
	return k.fail
}

func (k *KeyStore) now() time.Time { return k.clock.Now().UTC().Truncate(time.Microsecond) }

// SubjectKeys implements ports.SubjectKeys.
func (k *KeyStore) SubjectKeys(_ context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error) {
	if err := k.failing(); err != nil {
		return nil, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.read(ids), nil
}

func (k *KeyStore) read(ids []ports.SubjectKeyID) []ports.SubjectKey {
	out := make([]ports.SubjectKey, len(ids))
	for i, id := range ids {
		out[i] = ports.SubjectKey{SubjectKeyID: id, State: shredding.KeyAbsent}
		if stands, ok := k.subjects[id]; ok {
			out[i] = stands.SubjectKey
			out[i].Versions = cloneVersions(stands.Versions)
		}
		if k.fenced(id) && out[i].State != shredding.KeyDestroyed {
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

func (k *KeyStore) fenced(id ports.SubjectKeyID) bool {
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
	stands, known := k.subjects[m.SubjectKeyID]
	switch {
	case k.fenced(m.SubjectKeyID), known && stands.State == shredding.KeyDestroyed:
		return ports.SubjectKey{}, shredding.Erased("")
	case known && stands.tenantID != tenantID, !known && m.Version != 1, m.Reference == "":
		return ports.SubjectKey{}, fault.New(fault.Internal, "keys.request_invalid",
			"the key store was asked for a key that cannot be: another tenant's, a version without the one before, or a damaged reference; report this")
	case known && (m.Version != stands.Active+1 || m.Reference != stands.Reference):
		return k.read([]ports.SubjectKeyID{m.SubjectKeyID})[0], nil
	}
	kek, err := k.active(tenantID, m.Epoch)
	if err != nil {
		return ports.SubjectKey{}, err
	}
	m.KEK = kek.KeyID
	m.Wrapped = slices.Clone(m.Wrapped)
	if !known {
		stands = &subjectKey{tenantID: tenantID, SubjectKey: ports.SubjectKey{SubjectKeyID: m.SubjectKeyID, Reference: m.Reference, State: shredding.KeyActive}}
		k.subjects[m.SubjectKeyID] = stands
	} else {
		k.tell(m.Reference)
	}
	stands.Active = m.Version
	stands.Versions = append(stands.Versions, m.WrappedKey)
	return k.read([]ports.SubjectKeyID{m.SubjectKeyID})[0], nil
}

// active gives the KEK of an epoch if it is the active one.
func (k *KeyStore) active(tenantID string, epoch uint32) (*ports.KEK, error) {
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
		"the tenant has no key yet that its persons' keys are wrapped with; run backbone keys rotate for it")
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
	if stands, ok := k.secrets[key]; ok {
		return stands, nil
	}
	kek, err := k.active(s.TenantID, s.Epoch)
	if err != nil {
		return ports.TenantSecret{}, err
	}
	s.KEK, s.Wrapped = kek.KeyID, slices.Clone(s.Wrapped)
	k.secrets[key] = s
	return s, nil
}

// tell sends a reference to everybody who listens. Who does not keep up loses the
// connection, as it were.
func (k *KeyStore) tell(reference string) {
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

// Disconnect cuts everybody off who listens, as a lost connection does.
func (k *KeyStore) Disconnect() {
	k.listenMu.Lock()
	defer k.listenMu.Unlock()
	for c := range k.listeners {
		delete(k.listeners, c)
		close(c)
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
