package vault_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// keyStore is a key store that counts and fails on demand. Hooks run without its
// lock.
type keyStore struct {
	mu         sync.Mutex
	keys       map[ports.SubjectKeyID]ports.SubjectKey
	secrets    map[string]ports.TenantSecret
	epoch      uint32
	reads      int
	mints      int
	fail       error
	beforeRead func()
	afterRead  func()
	beforeMint func()
	afterMint  func() // runs when the key is stored, before the caller gets the result
}

func (s *keyStore) SubjectKeys(_ context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error) {
	s.mu.Lock()
	before, after := s.beforeRead, s.afterRead
	s.reads++
	s.mu.Unlock()
	if before != nil {
		before()
	}
	s.mu.Lock()
	out := make([]ports.SubjectKey, len(ids))
	for i, id := range ids {
		k, ok := s.keys[id]
		if !ok {
			k = ports.SubjectKey{SubjectKeyID: id, State: shredding.KeyAbsent}
		}
		k.Versions = slices.Clone(k.Versions)
		out[i] = k
	}
	err := s.fail
	s.mu.Unlock()
	if after != nil {
		after()
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *keyStore) MintSubjectKey(_ context.Context, tenantID string, m ports.MintedKey) (ports.SubjectKey, error) {
	s.mu.Lock()
	before, after := s.beforeMint, s.afterMint
	s.beforeMint, s.afterMint = nil, nil
	s.mints++
	s.mu.Unlock()
	if before != nil {
		before()
	}
	if after != nil {
		defer after()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have, ok := s.keys[m.SubjectKeyID]
	switch {
	case s.fail != nil:
		return ports.SubjectKey{}, s.fail
	case ok && !have.State.Seals():
		return ports.SubjectKey{}, shredding.Erased("")
	case m.Epoch != s.epoch || m.KEK != kekID(tenantID, s.epoch):
		return ports.SubjectKey{}, fault.New(fault.Conflict, "keys.epoch_closed", "generate again")
	case ok:
		return have, nil
	}
	k := ports.SubjectKey{SubjectKeyID: m.SubjectKeyID, Reference: m.Reference, State: shredding.KeyActive, Active: 1, Versions: []ports.WrappedKey{m.WrappedKey}}
	s.keys[m.SubjectKeyID] = k
	return k, nil
}

func kekID(tenantID string, epoch uint32) string { return fmt.Sprintf("kek-%s-%d", tenantID, epoch) }

func (s *keyStore) ActiveKEK(_ context.Context, tenantID string) (ports.KEK, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ports.KEK{TenantID: tenantID, Epoch: s.epoch, KeyID: kekID(tenantID, s.epoch), State: ports.KEKActive}, s.fail
}

func (s *keyStore) TenantSecret(_ context.Context, tenantID, purpose string) (ports.TenantSecret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets[tenantID+purpose], s.fail
}

func (s *keyStore) SaveTenantSecret(_ context.Context, t ports.TenantSecret) (ports.TenantSecret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.secrets[t.TenantID+t.Purpose]; ok {
		return have, nil
	}
	if t.Epoch != s.epoch {
		return ports.TenantSecret{}, fault.New(fault.Conflict, "keys.epoch_closed", "generate again")
	}
	s.secrets[t.TenantID+t.Purpose] = t
	return t, nil
}

// set changes a stored key, as another process would, and returns its reference.
func (s *keyStore) set(id ports.SubjectKeyID, change func(*ports.SubjectKey)) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[id]
	k.SubjectKeyID = id
	change(&k)
	s.keys[id] = k
	return k.Reference
}

func (s *keyStore) counts() (reads, mints int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.mints
}

func (s *keyStore) setFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func destroy(k *ports.SubjectKey) {
	k.State, k.Active, k.Versions = shredding.KeyDestroyed, 0, nil
}

func fence(k *ports.SubjectKey) { k.State = shredding.KeyFenced }

// keyService wraps keys by remembering them.
type keyService struct {
	mu        sync.Mutex
	wrapped   map[string]wrapping
	issued    []shredding.Secret // every plain key that a caller got
	generated int
	unwrapped int
	fail      error
	onCall    func() // runs in every call
}

type wrapping struct {
	key   string
	bound ports.EncryptionContext
	plain []byte
}

func (s *keyService) call() error {
	s.mu.Lock()
	onCall := s.onCall
	s.mu.Unlock()
	if onCall != nil {
		onCall()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail
}

func (s *keyService) issue(plain []byte) shredding.Secret {
	secret := shredding.NewSecret(bytes.Clone(plain))
	s.issued = append(s.issued, secret)
	return secret
}

func (s *keyService) Generate(_ context.Context, keyID string, bound ports.EncryptionContext) (ports.DataKey, error) {
	if err := s.call(); err != nil {
		return ports.DataKey{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generated++
	plain := make([]byte, shredding.DEKSize)
	_, _ = rand.Read(plain)
	name := fmt.Sprintf("wrapped-%d", s.generated)
	s.wrapped[name] = wrapping{keyID, bound, plain}
	return ports.DataKey{Plain: s.issue(plain), Wrapped: []byte(name)}, nil
}

func (s *keyService) Unwrap(_ context.Context, keyID string, wrapped []byte, bound ports.EncryptionContext) (shredding.Secret, error) {
	if err := s.call(); err != nil {
		return shredding.Secret{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwrapped++
	w, ok := s.wrapped[string(wrapped)]
	switch {
	case !ok || !maps.Equal(w.bound, bound):
		return shredding.Secret{}, fault.New(fault.Invalid, "kms.ciphertext_invalid", "no")
	case w.key != keyID:
		return shredding.Secret{}, fault.New(fault.Invalid, "kms.key_mismatch", "no")
	}
	return s.issue(w.plain), nil
}

func (s *keyService) set(change func(*keyService)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *keyService) counts() (generated, unwrapped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generated, s.unwrapped
}

// liveKeys counts the issued keys that are not zeroed.
func (s *keyService) liveKeys() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.issued {
		if secret.Use(func([]byte) error { return nil }) == nil {
			n++
		}
	}
	return n
}

type manifests struct{ known *shredding.Manifest }

func (m manifests) Manifest(_ context.Context, at shredding.Location) (*shredding.Manifest, error) {
	if at.Kind == shredding.KindEvent && at.Type == "hr.employee.hired" && at.SchemaVersion == 1 {
		return m.known, nil
	}
	return nil, nil
}

// readableClasses is a reader who may read the listed classes.
type readableClasses []shredding.Class

func (s readableClasses) Reads(_ string, c shredding.Class) bool { return slices.Contains(s, c) }

func (readableClasses) Disclose(context.Context, []module.Opened) error { return nil }

var allClasses = readableClasses(shredding.Classes())

type vaultFixture struct {
	store    *keyStore
	service  *keyService
	clock    *testkit.Clock
	vault    *vault.Vault
	counters *counters
	types    manifests
}

const (
	keyLife = time.Minute
	poll    = 5 * time.Second
)

func newVaultFixture(t testing.TB, change ...func(*vault.Config)) *vaultFixture {
	t.Helper()
	manifest, found := eventtype.Manifest([]eventtype.PIIField{
		{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"path":"$.id","type":"employee"}`)},
		{Path: "$.iban", Class: "bank", Subject: json.RawMessage(`{"path":"$.id","type":"employee"}`)},
		{Path: "$.partner.name", Class: "identity", Subject: json.RawMessage(`{"path":"$.partner.id","type":"person"}`)},
	})
	require.Empty(t, found)
	r := &vaultFixture{
		store:   &keyStore{keys: map[ports.SubjectKeyID]ports.SubjectKey{}, secrets: map[string]ports.TenantSecret{}, epoch: 1},
		service: &keyService{wrapped: map[string]wrapping{}},
		clock:   testkit.NewClock(time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)), counters: &counters{kms: map[string]int{}}, types: manifests{manifest},
	}
	r.vault = r.newNode(change...)
	return r
}

// newNode makes the vault of another process on the same stores.
func (r *vaultFixture) newNode(change ...func(*vault.Config)) *vault.Vault {
	c := vault.Config{Keys: r.store, DataKeys: r.service, Manifests: r.types, Clock: r.clock, Observer: r.counters,
		Limits: vault.Limits{Entries: 50_000, Life: keyLife, Poll: poll, MaxCalls: 64, MaxCallWait: 5 * time.Second},
	}
	for _, f := range change {
		f(&c)
	}
	return testkit.Must(vault.New(c))
}

// counters implements vault.Observer.
type counters struct {
	mu                                              sync.Mutex
	hits, misses, evicted, sealed, opened, redacted int
	kms                                             map[string]int
}

func (o *counters) add(n *int, by int) { o.mu.Lock(); defer o.mu.Unlock(); *n += by }

func (o *counters) CacheHits(n int)   { o.add(&o.hits, n) }
func (o *counters) CacheMisses(n int) { o.add(&o.misses, n) }
func (o *counters) Evicted(n int)     { o.add(&o.evicted, n) }
func (o *counters) Sealed(n int)      { o.add(&o.sealed, n) }
func (o *counters) Opened(n int)      { o.add(&o.opened, n) }
func (o *counters) Redacted(n int)    { o.add(&o.redacted, n) }
func (o *counters) KMSCall(operation, code string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kms[operation+code]++
}

const canary = "ada@canary.example"

var record = event.ID{1, 2, 3}

func location() shredding.Location {
	return shredding.Location{Partition: 7, Kind: shredding.KindEvent, Record: record, Type: "hr.employee.hired", SchemaVersion: 1}
}

func employeeKey(id string) ports.SubjectKeyID {
	return ports.SubjectKeyID{Partition: 7, Subject: shredding.Subject("employee:" + id), Class: shredding.KeyStandard}
}

// contactRequest asks to seal an employee's document with a mail address.
func (r *vaultFixture) contactRequest(id string) module.SealRequest {
	return r.sealRequest(`{"data":{"id":"` + id + `","email":"` + canary + `"}}`)
}

func (r *vaultFixture) sealRequest(text string) module.SealRequest {
	fields, err := r.types.known.Resolve([]byte(text), "/data", nil)
	if err != nil {
		panic(err)
	}
	return module.SealRequest{TenantID: "acme", At: location(), Document: []byte(text), Fields: fields}
}

func (r *vaultFixture) seal(t testing.TB, request module.SealRequest) []byte {
	t.Helper()
	document, _, err := r.vault.Seal(t.Context(), request)
	require.NoError(t, err)
	require.NotContains(t, string(document), canary)
	return document
}

func open(ctx context.Context, v *vault.Vault, reader module.Reader, document []byte) (string, error) {
	documents := []module.SealedDocument{{At: location(), Document: document}}
	err := v.Open(ctx, documents, reader)
	return string(documents[0].Document), err
}

func (r *vaultFixture) open(t testing.TB, document []byte) string {
	t.Helper()
	text, err := open(t.Context(), r.vault, allClasses, document)
	require.NoError(t, err)
	return text
}

var errStoreDown = fault.New(fault.Unavailable, "keys.unavailable", "the key store is down; try again")
