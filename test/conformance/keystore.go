package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// NodeKeyStore is a key store as appending and reading nodes see it.
type NodeKeyStore interface {
	ports.SubjectKeys
	ports.KeyEvictions
}

// EraserKeyStore is the parts of a key store that erase and rotate.
type EraserKeyStore struct {
	ports.ErasureRegister
	ports.KeyRotation
	ports.KeyRecovery
}

// KeyStoreHarness makes key stores.
type KeyStoreHarness struct {
	// New makes an empty key store and returns both views of it.
	New func(t *testing.T) (NodeKeyStore, EraserKeyStore)
}

// RunKeyStore checks the ports of a key store: keys of subjects and their eviction on nodes
// (SubjectKey), the states of erasure requests (Erasure), the destruction of keys with its
// receipts (Destruction), and rotation, export and recovery (Rotation).
func RunKeyStore(t *testing.T, h KeyStoreHarness) {
	runGroups(t, []testGroup[*keyFixture]{
		{"SubjectKey", subjectKeyTests}, {"Erasure", erasureTests}, {"Destruction", destructionTests}, {"Rotation", rotationTests}, {"Audit", keyAuditTests},
	}, func(t *testing.T) *keyFixture { return newKeyFixture(t, h) })
}

// testGroup are tests, by name, that take a fixture.
type testGroup[F any] struct {
	name  string
	tests map[string]func(*testing.T, F)
}

// runGroups runs all tests of the groups in parallel.
func runGroups[F any](t *testing.T, groups []testGroup[F], fixture func(t *testing.T) F) {
	t.Helper()
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range slices.Sorted(maps.Keys(group.tests)) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					group.tests[name](t, fixture(t))
				})
			}
		})
	}
}

const keyTenant = "acme"

// keyFixture is the key store of one sub-test, with an active KEK of keyTenant.
type keyFixture struct {
	harness KeyStoreHarness
	node    NodeKeyStore
	eraser  EraserKeyStore
}

func newKeyFixture(t *testing.T, h KeyStoreHarness) *keyFixture {
	t.Helper()
	f := &keyFixture{harness: h}
	f.node, f.eraser = h.New(t)
	f.activate(t, 1)
	return f
}

// activate makes the next KEK of keyTenant.
func (f *keyFixture) activate(t *testing.T, epoch uint32) {
	t.Helper()
	require.NoError(t, f.eraser.AddKEK(t.Context(), ports.KEK{TenantID: keyTenant, Epoch: epoch, KeyID: kekOf(epoch)}))
	require.NoError(t, f.eraser.ActivateKEK(t.Context(), keyTenant, epoch))
}

func kekOf(epoch uint32) string { return fmt.Sprintf("kek-%d", epoch) }

func subjectKeyID(p event.PartitionID, subject string, c shredding.KeyClass) ports.SubjectKeyID {
	return ports.SubjectKeyID{Partition: p, Subject: shredding.Subject(subject), Class: c}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// minted is a fresh version of a key under an epoch.
func minted(id ports.SubjectKeyID, ref string, version, epoch uint32) ports.MintedKey {
	return ports.MintedKey{SubjectKeyID: id, Reference: ref, WrappedKey: ports.WrappedKey{
		Version: version, Epoch: epoch, KEK: kekOf(epoch), Wrapped: randomBytes(60), Fingerprint: shredding.Fingerprint(randomBytes(16)),
	}}
}

// mint stores the first version of a key.
func (f *keyFixture) mint(t *testing.T, id ports.SubjectKeyID) ports.SubjectKey {
	t.Helper()
	key, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(id, uuid.NewString(), 1, f.epoch(t)))
	require.NoError(t, err)
	require.Equal(t, shredding.KeyActive, key.State)
	return key
}

func (f *keyFixture) epoch(t *testing.T) uint32 {
	t.Helper()
	kek, err := f.node.ActiveKEK(t.Context(), keyTenant)
	require.NoError(t, err)
	return kek.Epoch
}

func (f *keyFixture) read(t *testing.T, id ports.SubjectKeyID) ports.SubjectKey {
	t.Helper()
	keys, err := f.node.SubjectKeys(t.Context(), []ports.SubjectKeyID{id})
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, id, keys[0].SubjectKeyID)
	return keys[0]
}

func requireRefused(t *testing.T, kind fault.Kind, code string, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, fault.CodeOf(err), "%v", err)
	require.Equal(t, kind, fault.KindOf(err), "%v", err)
}

var subjectKeyTests = map[string]func(*testing.T, *keyFixture){
	"absent key has no versions": func(t *testing.T, f *keyFixture) {
		key := f.read(t, subjectKeyID(1, "employee:E-1", 0))
		require.Equal(t, ports.SubjectKey{SubjectKeyID: key.SubjectKeyID, State: shredding.KeyAbsent}, key)
		keys, err := f.node.SubjectKeys(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, keys)
	},
	"minted key is read as written": func(t *testing.T, f *keyFixture) {
		m := minted(subjectKeyID(7, "employee:E-1", shredding.KeyRegulatory), uuid.NewString(), 1, 1)
		key, err := f.node.MintSubjectKey(t.Context(), keyTenant, m)
		require.NoError(t, err)
		want := ports.SubjectKey{SubjectKeyID: m.SubjectKeyID, Reference: m.Reference, State: shredding.KeyActive, Active: 1, Versions: []ports.WrappedKey{m.WrappedKey}}
		require.Equal(t, want, key)
		require.Equal(t, want, f.read(t, m.SubjectKeyID))
		require.Equal(t, shredding.KeyAbsent, f.read(t, subjectKeyID(7, "employee:E-1", shredding.KeyStandard)).State, "classes are independent")
		require.Equal(t, shredding.KeyAbsent, f.read(t, subjectKeyID(8, "employee:E-1", shredding.KeyRegulatory)).State, "partitions are independent")
	},
	"many keys are read in the given order": func(t *testing.T, f *keyFixture) {
		var ids []ports.SubjectKeyID
		for i := range 20 {
			id := subjectKeyID(event.PartitionID(1+i%3), fmt.Sprintf("customer:C-%02d", 19-i), shredding.KeyClass(i%3))
			if i%4 != 0 {
				f.mint(t, id)
			}
			ids = append(ids, id, id)
		}
		keys, err := f.node.SubjectKeys(t.Context(), ids)
		require.NoError(t, err)
		require.Len(t, keys, len(ids))
		for i, key := range keys {
			require.Equal(t, ids[i], key.SubjectKeyID)
			require.Equal(t, i/2%4 != 0, key.State == shredding.KeyActive)
			require.Equal(t, i/2%4 != 0, len(key.Versions) == 1)
		}
	},
	"next version seals and earlier ones are kept": func(t *testing.T, f *keyFixture) {
		first := f.mint(t, subjectKeyID(1, "employee:E-1", 0))
		m := minted(first.SubjectKeyID, first.Reference, 2, 1)
		key, err := f.node.MintSubjectKey(t.Context(), keyTenant, m)
		require.NoError(t, err)
		require.EqualValues(t, 2, key.Active)
		require.Equal(t, []ports.WrappedKey{first.Versions[0], m.WrappedKey}, key.Versions)
		// The same version again, or one further, changes nothing.
		for _, version := range []uint32{1, 2, 4} {
			stored, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(first.SubjectKeyID, first.Reference, version, 1))
			require.NoError(t, err)
			require.Equal(t, key, stored)
		}
	},
	"invalid keys are refused": func(t *testing.T, f *keyFixture) {
		id := subjectKeyID(1, "employee:E-1", 0)
		_, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(id, uuid.NewString(), 2, 1))
		requireRefused(t, fault.Internal, "keys.request_invalid", err)
		_, err = f.node.MintSubjectKey(t.Context(), keyTenant, minted(id, "", 1, 1))
		requireRefused(t, fault.Internal, "keys.request_invalid", err)
		key := f.mint(t, id)
		_, err = f.node.MintSubjectKey(t.Context(), "another", minted(id, key.Reference, 2, 1))
		requireRefused(t, fault.Internal, "keys.request_invalid", err)
	},
	"racing nodes get one key": func(t *testing.T, f *keyFixture) {
		for round := range races {
			id := subjectKeyID(1, fmt.Sprintf("employee:E-%d", round), 0)
			got := make([]ports.SubjectKey, 8)
			errs := race(len(got), func(i int) (err error) {
				got[i], err = f.node.MintSubjectKey(context.WithoutCancel(t.Context()), keyTenant, minted(id, uuid.NewString(), 1, 1))
				return err
			})
			stored := f.read(t, id)
			require.Len(t, stored.Versions, 1)
			for i := range got {
				require.NoError(t, errs[i])
				require.Equal(t, stored, got[i])
			}
		}
	},
	"only the active epoch wraps": func(t *testing.T, f *keyFixture) {
		_, err := f.node.ActiveKEK(t.Context(), "unknown")
		requireRefused(t, fault.FailedPrecondition, "keys.kek_missing", err)
		id := subjectKeyID(1, "employee:E-1", 0)
		old := f.mint(t, subjectKeyID(1, "employee:E-0", 0))
		f.activate(t, 2)
		_, err = f.node.MintSubjectKey(t.Context(), keyTenant, minted(id, uuid.NewString(), 1, 1))
		requireRefused(t, fault.Conflict, "keys.epoch_closed", err)
		_, err = f.node.MintSubjectKey(t.Context(), keyTenant, minted(id, uuid.NewString(), 1, 3))
		requireRefused(t, fault.Conflict, "keys.epoch_closed", err)
		_, err = f.node.MintSubjectKey(t.Context(), keyTenant, minted(old.SubjectKeyID, old.Reference, 2, 1))
		requireRefused(t, fault.Conflict, "keys.epoch_closed", err)
		require.EqualValues(t, 2, f.mint(t, id).Versions[0].Epoch)
		kek, err := f.node.ActiveKEK(t.Context(), keyTenant)
		require.NoError(t, err)
		require.Equal(t, ports.KEK{TenantID: keyTenant, Epoch: 2, KeyID: kekOf(2), State: ports.KEKActive}, kek)
	},
	"first tenant secret is kept": func(t *testing.T, f *keyFixture) {
		none, err := f.node.TenantSecret(t.Context(), keyTenant, "fingerprint")
		require.NoError(t, err)
		require.Empty(t, none.Reference)
		secret := func(epoch uint32) ports.TenantSecret {
			m := minted(ports.SubjectKeyID{}, uuid.NewString(), 1, epoch)
			return ports.TenantSecret{TenantID: keyTenant, Purpose: "fingerprint", Reference: m.Reference, WrappedKey: m.WrappedKey}
		}
		_, err = f.node.SaveTenantSecret(t.Context(), secret(2))
		requireRefused(t, fault.Conflict, "keys.epoch_closed", err)
		first := secret(1)
		for range 2 {
			stored, err := f.node.SaveTenantSecret(t.Context(), first)
			require.NoError(t, err)
			require.Equal(t, first, stored)
			stored, err = f.node.SaveTenantSecret(t.Context(), secret(1))
			require.NoError(t, err)
			require.Equal(t, first, stored)
		}
		stored, err := f.node.TenantSecret(t.Context(), keyTenant, "fingerprint")
		require.NoError(t, err)
		require.Equal(t, first, stored)
	},
	"nodes are notified of destroyed and new keys": func(t *testing.T, f *keyFixture) {
		signals := f.listen(t)
		key := f.mint(t, subjectKeyID(1, "employee:E-1", 0))
		_, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(key.SubjectKeyID, key.Reference, 2, 1))
		require.NoError(t, err)
		signals.wait(t, key.Reference, 1)
		f.destroyed(t, f.fenced(t, key.SubjectKeyID))
		signals.wait(t, key.Reference, 2)
	},
	"nodes report the generation that they evicted": func(t *testing.T, f *keyFixture) {
		start := time.Now().Add(-time.Minute)
		newest, err := f.node.ReportNode(t.Context(), "a", 0)
		require.NoError(t, err)
		require.Zero(t, newest)
		d, _ := f.destroyed(t, f.fenced(t, subjectKeyID(1, "employee:E-1", 0)))
		require.EqualValues(t, 1, d.Generation)
		behind := func(since time.Time) int {
			n, err := f.eraser.NodesBehind(t.Context(), d.Generation, since)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 1, behind(start))
		newest, err = f.node.ReportNode(t.Context(), "b", 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, newest)
		require.Equal(t, 2, behind(start))
		require.Zero(t, behind(time.Now().Add(time.Hour)), "a node that has not reported since does not count")
		for _, node := range []string{"a", "b"} {
			_, err = f.node.ReportNode(t.Context(), node, newest)
			require.NoError(t, err)
		}
		require.Zero(t, behind(start))
	},
}

// signals counts the evictions that a node was notified of.
type signals struct {
	mu      sync.Mutex
	evicted map[string]int // by reference of the key
	losses  int
}

// listen starts a node that is notified of evictions.
func (f *keyFixture) listen(t *testing.T) *signals {
	t.Helper()
	s := &signals{evicted: map[string]int{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- f.node.ListenEvictions(ctx, func(ref string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.evicted[ref]++
		}, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.losses++
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err == nil {
			t.Error("listening ended without an error")
		}
	})
	testkit.Eventually(t, time.Minute, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.losses > 0
	}, "a new listener forgets all keys")
	return s
}

func (s *signals) wait(t *testing.T, ref string, n int) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.evicted[ref] >= n
	}, "eviction of a key")
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, n, s.evicted[ref])
}
