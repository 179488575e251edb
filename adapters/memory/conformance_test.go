package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	keys := memory.NewKeyStore()
	conformance.RunEventStore(t, conformance.Harness{
		New: func(_ *testing.T, clock ports.Clock) conformance.Store {
			return conformance.NewMemoryStore(memory.Config{Clock: clock, Keys: keys})
		},
		Keys: func(*testing.T, conformance.Store) conformance.Keys {
			return conformance.NewKeyRegister(keys, keys.Rotation(), keys.Erasures())
		},
		Leases: func(s conformance.Store) ports.Leases { return s.(conformance.MemoryStore).Database.Leases },
		ReadModel: func(_ *testing.T, s conformance.Store) conformance.ReadModel {
			return readModel{s.(conformance.MemoryStore).Database.ReadModels}
		},
	})
}

type readModel struct{ committed *memory.ReadModels }

func prefix(p event.PartitionID) string { return fmt.Sprintf("%d/", p) }

func (readModel) Put(_ context.Context, tx ports.ProjectionTx, p event.PartitionID, key, value string) error {
	m, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	m.Put("conformance", prefix(p)+key, value)
	return nil
}

func (r readModel) Committed(_ context.Context, p event.PartitionID) (map[string]string, error) {
	out := map[string]string{}
	for _, row := range r.committed.Rows("conformance", prefix(p)) {
		out[strings.TrimPrefix(row.Key, prefix(p))] = fmt.Sprint(row.Value)
	}
	return out, nil
}
