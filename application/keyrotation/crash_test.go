package keyrotation_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// eraserStore is the part of a key store that rotations use.
type eraserStore interface {
	ports.KeyRotation
	ports.KeyRecovery
}

// faultyStore passes the calls of a store through a faultInjector.
type faultyStore struct {
	eraserStore
	*faultInjector
}

func (t faultyStore) KEKs(ctx context.Context, tenantID string) ([]ports.KEK, error) {
	return injectAround(t.faultInjector, "KEKs", func() ([]ports.KEK, error) { return t.eraserStore.KEKs(ctx, tenantID) })
}

func (t faultyStore) AddKEK(ctx context.Context, k ports.KEK) error {
	return inject(t.faultInjector, "AddKEK", func() error { return t.eraserStore.AddKEK(ctx, k) })
}

func (t faultyStore) ActivateKEK(ctx context.Context, tenantID string, epoch uint32) error {
	return inject(t.faultInjector, "ActivateKEK", func() error { return t.eraserStore.ActivateKEK(ctx, tenantID, epoch) })
}

func (t faultyStore) WrappedWith(ctx context.Context, tenantID string, epoch uint32, limit int) ([]ports.WrappedRow, error) {
	return injectAround(t.faultInjector, "WrappedWith", func() ([]ports.WrappedRow, error) {
		return t.eraserStore.WrappedWith(ctx, tenantID, epoch, limit)
	})
}

func (t faultyStore) CountWrappedWith(ctx context.Context, tenantID string, epoch uint32) (int64, error) {
	return injectAround(t.faultInjector, "CountWrappedWith", func() (int64, error) { return t.eraserStore.CountWrappedWith(ctx, tenantID, epoch) })
}

func (t faultyStore) SaveRewrapped(ctx context.Context, tenantID string, from, to uint32, rows []ports.WrappedRow) (int64, error) {
	return injectAround(t.faultInjector, "SaveRewrapped", func() (int64, error) { return t.eraserStore.SaveRewrapped(ctx, tenantID, from, to, rows) })
}

func (t faultyStore) CloseKEK(ctx context.Context, tenantID string, epoch uint32, to ports.KEKState) error {
	return inject(t.faultInjector, "CloseKEK", func() error { return t.eraserStore.CloseKEK(ctx, tenantID, epoch, to) })
}

func (t faultyStore) SampleKeys(ctx context.Context, tenantID string, epoch uint32, n int) ([]ports.WrappedRow, error) {
	return injectAround(t.faultInjector, "SampleKeys", func() ([]ports.WrappedRow, error) { return t.eraserStore.SampleKeys(ctx, tenantID, epoch, n) })
}

func (t faultyStore) ExportKeys(ctx context.Context, row func([]byte) error) error {
	return inject(t.faultInjector, "ExportKeys", func() error { return t.eraserStore.ExportKeys(ctx, row) })
}

func (t faultyStore) SampleExport(ctx context.Context, lines ports.ExportedLines, tenantID string, epoch uint32, n int) (rows []ports.WrappedRow, total int64, err error) {
	err = inject(t.faultInjector, "SampleExport", func() error {
		rows, total, err = t.eraserStore.SampleExport(ctx, lines, tenantID, epoch, n)
		return err
	})
	return rows, total, err
}

// storedFixture is a rotationFixture with the keys in a key store of an adapter.
type storedFixture struct {
	*rotationFixture
	node   ports.SubjectKeys
	eraser eraserStore
	deks   map[string][]byte // by reference
}

func (s *storedFixture) service() *keyrotation.Service {
	return testkit.Must(keyrotation.New(keyrotation.Config{
		Keys: faultyStore{s.eraser, s.faultInjector}, Recovery: faultyStore{s.eraser, s.faultInjector}, KMS: s.rotationFixture, DataKeys: s.rotationFixture, Exports: exportStore{s.rotationFixture},
		Receipts: s.rotationFixture, Notary: s.rotationFixture, Clock: s.clock, AliasPrefix: "alias/backbone/test",
		Limits: keyrotation.Limits{DeletionDays: 7, Workers: 1},
	}))
}

// newStoredFixture makes one KEK, n keys of persons and a tenant's secret.
func newStoredFixture(t *testing.T, n int, node ports.SubjectKeys, eraser eraserStore) *storedFixture {
	t.Helper()
	s := &storedFixture{rotationFixture: newRotationFixture(), node: node, eraser: eraser, deks: map[string][]byte{}}
	require.NoError(t, s.service().EnsureKEK(t.Context(), tenant))
	kek, err := node.ActiveKEK(t.Context(), tenant)
	require.NoError(t, err)
	fresh := func(p event.PartitionID) (reference string, k ports.WrappedKey) {
		reference = uuid.NewString()
		made, err := s.Generate(t.Context(), kek.KeyID, ports.Bound(p, reference, 1))
		require.NoError(t, err)
		k = ports.WrappedKey{Version: 1, Epoch: kek.Epoch, KEK: kek.KeyID, Wrapped: made.Wrapped}
		require.NoError(t, made.Plain.Use(func(dek []byte) error { s.deks[reference] = bytes.Clone(dek); return nil }))
		k.Fingerprint, err = shredding.Key{DEK: made.Plain}.Fingerprint()
		require.NoError(t, err)
		return reference, k
	}
	for i := range n {
		id := ports.SubjectKeyID{Partition: event.PartitionID(1 + i%3), Subject: shredding.Subject(fmt.Sprintf("person:P-%d", i))}
		reference, k := fresh(id.Partition)
		_, err := node.MintSubjectKey(t.Context(), tenant, ports.MintedKey{SubjectKeyID: id, Reference: reference, WrappedKey: k})
		require.NoError(t, err)
	}
	reference, k := fresh(0)
	_, err = node.SaveTenantSecret(t.Context(), ports.TenantSecret{TenantID: tenant, Purpose: "fingerprint", Reference: reference, WrappedKey: k})
	require.NoError(t, err)
	return s
}

// requireRotated requires that no key is wrapped with the old KEK, that every key is unchanged,
// that one new KEK was made, and that the deletion of the old one is scheduled.
func (s *storedFixture) requireRotated(t *testing.T, where string) {
	t.Helper()
	keks, err := s.eraser.KEKs(t.Context(), tenant)
	require.NoError(t, err, where)
	require.Len(t, keks, 2, where)
	require.Equal(t, []ports.KEKState{ports.KEKDeleting, ports.KEKActive}, []ports.KEKState{keks[0].State, keks[1].State}, where)
	require.Len(t, s.keys, 2, where)
	require.Equal(t, ports.KeyPendingDeletion, s.keys[keks[0].KeyID].State, where)
	left, err := s.eraser.CountWrappedWith(t.Context(), tenant, 1)
	require.NoError(t, err, where)
	require.Zero(t, left, where)
	rows, err := s.eraser.SampleKeys(t.Context(), tenant, 2, len(s.deks)+1)
	require.NoError(t, err, where)
	require.Len(t, rows, len(s.deks), where)
	for _, k := range rows {
		plain, err := s.Unwrap(t.Context(), keks[1].KeyID, k.Wrapped, ports.Bound(k.Partition, k.Reference, k.Version))
		require.NoError(t, err, where)
		require.NoError(t, plain.Use(func(dek []byte) error {
			require.Equal(t, s.deks[k.Reference], dek, where)
			return nil
		}))
	}
	require.Contains(t, s.exports, keyrotation.NoticeName(tenant, 1), where)
}

// TestRotate_CrashAtEveryCallInMemory runs rotations that die at each call to a port, before or after
// the call takes effect, and requires that the next run finishes.
func TestRotate_CrashAtEveryCallInMemory(t *testing.T) {
	t.Parallel()
	fixture := func(t *testing.T) *storedFixture {
		k := memory.NewKeyStore()
		return newStoredFixture(t, 5, k, k.Rotation())
	}
	s := fixture(t)
	s.calls = 0
	_, err := s.service().Rotate(t.Context(), tenant, nil)
	require.NoError(t, err)
	calls := s.calls
	s.requireRotated(t, "without a crash")
	for at := 1; at <= calls; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, after: %t", at, after), func(t *testing.T) {
				s := fixture(t)
				*s.faultInjector = faultInjector{failAt: at, after: after}
				_, err := s.service().Rotate(t.Context(), tenant, nil)
				where := fmt.Sprintf("call %d (%s), after: %t", at, s.names[len(s.names)-1], after)
				require.ErrorIs(t, err, errCrash, where)
				*s.faultInjector = faultInjector{}
				keks, err := s.eraser.KEKs(t.Context(), tenant)
				require.NoError(t, err, where)
				if keks[0].State == ports.KEKDeleting { // only the deletion is left
					require.NoError(t, s.service().Night(t.Context(), keyrotation.Nightly{}), where)
				} else {
					_, err = s.service().Rotate(t.Context(), tenant, nil)
					require.NoError(t, err, where)
				}
				s.requireRotated(t, where)
			})
		}
	}
}
