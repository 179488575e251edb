package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// KeyRegister mints and erases keys of a key store as RunEventStore needs it: an erasure
// passes through the whole procedure, with two persons. The wrapped keys open nothing.
type KeyRegister struct {
	keys     ports.SubjectKeys
	rotation ports.KeyRotation
	erasures ports.ErasureRegister

	mu       sync.Mutex
	ids      *idSource
	tenants  map[string]bool
	requests map[ports.SubjectKeyID]event.ID
}

// NewKeyRegister wraps an empty key store.
func NewKeyRegister(keys ports.SubjectKeys, rotation ports.KeyRotation, erasures ports.ErasureRegister) *KeyRegister {
	return &KeyRegister{
		keys: keys, rotation: rotation, erasures: erasures,
		ids: newIDSource(), tenants: map[string]bool{}, requests: map[ports.SubjectKeyID]event.ID{},
	}
}

func tenantOf(p event.PartitionID) string { return fmt.Sprintf("tenant-of-%d", p) }

// tenant returns the tenant of a key, which it gives an active KEK.
func (k *KeyRegister) tenant(t *testing.T, id ports.SubjectKeyID) string {
	t.Helper()
	name := tenantOf(id.Partition)
	if !k.tenants[name] {
		ctx := context.Background()
		require.NoError(t, k.rotation.AddKEK(ctx, ports.KEK{TenantID: name, Epoch: 1, KeyID: "kek-of-" + name, State: ports.KEKPending}))
		require.NoError(t, k.rotation.ActivateKEK(ctx, name, 1))
		k.tenants[name] = true
	}
	return name
}

// Mint makes the first or the next version of a key the active one and returns its number.
func (k *KeyRegister) Mint(t *testing.T, id ports.SubjectKeyID) uint32 {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx := context.Background()
	tenant := k.tenant(t, id)
	stored, err := k.keys.SubjectKeys(ctx, []ports.SubjectKeyID{id})
	require.NoError(t, err)
	m := ports.MintedKey{
		SubjectKeyID: id, Reference: stored[0].Reference,
		WrappedKey: ports.WrappedKey{Version: stored[0].Active + 1, Epoch: 1, KEK: "kek-of-" + tenant, Wrapped: []byte("wrapped")},
	}
	_, _ = rand.Read(m.Fingerprint[:]) // never fails
	if m.Reference == "" {
		var random [16]byte
		_, _ = rand.Read(random[:])
		m.Reference = fmt.Sprintf("%x-%x-%x-%x-%x", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
	}
	key, err := k.keys.MintSubjectKey(ctx, tenant, m)
	require.NoError(t, err)
	require.Equal(t, m.Version, key.Active)
	return key.Active
}

// Fence refuses values sealed with the key, beginning with the next append.
func (k *KeyRegister) Fence(t *testing.T, id ports.SubjectKeyID) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx := context.Background()
	request := ports.ErasureRequest{
		ID: k.ids.next(), TenantID: k.tenant(t, id), Subject: id.Subject, Partitions: []event.PartitionID{id.Partition},
		Basis: shredding.SubjectRequest, Reason: "conformance", RequestedBy: "officer", RequestedAt: time.Now(),
		DueOn: event.DateOf(time.Now().Add(shredding.ErasureDue)),
	}
	require.NoError(t, k.erasures.AddErasure(ctx, request))
	request, err := k.erasures.Erasure(ctx, request.TenantID, request.ID)
	require.NoError(t, err)
	request.State, request.Scope, request.Preview = shredding.ErasurePreviewed, fingerprint("scope"), []byte(`{}`)
	request, err = k.erasures.MoveErasure(ctx, request)
	require.NoError(t, err)
	request, err = k.erasures.ApproveErasure(ctx, request.ID, "controller", request.Scope, time.Now())
	require.NoError(t, err)
	request.Classes = []ports.ErasureClass{{Class: id.Class, Erased: true}}
	request, err = k.erasures.FenceErasure(ctx, request)
	require.NoError(t, err)
	k.requests[id] = request.ID
}

// Destroy ends a fenced key. It returns when no append that leased the key is in flight.
func (k *KeyRegister) Destroy(t *testing.T, id ports.SubjectKeyID) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	destruction, _, err := k.erasures.DestroyErasure(context.Background(), k.requests[id], nil)
	require.NoError(t, err)
	require.Len(t, destruction.Keys, 1)
}
