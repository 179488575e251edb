package conformance

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// KeyTable is a key store without keys: states and versions in memory. It gives
// leases as the memory store wants them.
type KeyTable struct {
	mu   sync.RWMutex // held for reading by every lease
	keys map[ports.SubjectKeyID]ports.SubjectKey
}

// NewKeyTable is empty.
func NewKeyTable() *KeyTable { return &KeyTable{keys: map[ports.SubjectKeyID]ports.SubjectKey{}} }

// LeaseKeys gives what stands of the keys and keeps it until release is called.
func (k *KeyTable) LeaseKeys(ids []ports.SubjectKeyID) (keys []ports.SubjectKey, release func()) {
	k.mu.RLock()
	for _, id := range ids {
		keys = append(keys, k.stands(id))
	}
	return keys, k.mu.RUnlock
}

func (k *KeyTable) stands(id ports.SubjectKeyID) ports.SubjectKey {
	key, known := k.keys[id]
	if !known {
		key = ports.SubjectKey{SubjectKeyID: id, State: shredding.KeyAbsent}
	}
	return key
}

// Mint implements Keys.
func (k *KeyTable) Mint(t *testing.T, id ports.SubjectKeyID) uint32 {
	t.Helper()
	return k.move(t, id, shredding.KeyActive).Active
}

// Fence implements Keys.
func (k *KeyTable) Fence(t *testing.T, id ports.SubjectKeyID) {
	t.Helper()
	k.move(t, id, shredding.KeyFenced)
}

// Destroy implements Keys.
func (k *KeyTable) Destroy(t *testing.T, id ports.SubjectKeyID) {
	t.Helper()
	k.move(t, id, shredding.KeyDestroyed)
}

func (k *KeyTable) move(t *testing.T, id ports.SubjectKeyID, to shredding.KeyState) ports.SubjectKey {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	key := k.stands(id)
	require.True(t, key.State.CanBecome(to), "%s to %s", key.State, to)
	switch key.State = to; to {
	case shredding.KeyActive:
		key.Active++
	case shredding.KeyDestroyed:
		key.Active = 0
	}
	k.keys[id] = key
	return key
}
