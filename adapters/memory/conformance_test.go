package memory_test

import (
	"testing"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	keys := memory.NewKeyStore()
	conformance.RunEventStore(t, conformance.EventStoreHarness{
		New: func(_ *testing.T, clock ports.Clock) conformance.Store {
			return conformance.NewMemoryStore(memory.Config{Clock: clock, Keys: keys})
		},
		Keys: func(*testing.T, conformance.Store) *conformance.KeyRegister {
			return conformance.NewKeyRegister(keys, keys.Rotation(), keys.Erasures())
		},
		Leases: func(s conformance.Store) ports.Leases { return s.(conformance.MemoryStore).Database.Leases },
		ReadModel: func(_ *testing.T, s conformance.Store) conformance.ReadModel {
			return conformance.MemoryReadModel{ReadModels: s.(conformance.MemoryStore).Database.ReadModels}
		},
	})
}
