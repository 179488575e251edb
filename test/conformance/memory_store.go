package conformance

import (
	"context"
	"fmt"
	"strings"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// MemoryStore has the methods of all objects of a memory database, for suites and
// fixtures that want one store.
type MemoryStore struct {
	*memory.Appender
	*memory.EventReader
	*memory.Audit
	*memory.PersonalRecords
	*memory.Snapshots
	*memory.Intents
	*memory.Registry
	*memory.Directory
	*memory.Projections
	*memory.ProjectionVersions
	*memory.ProjectionRows
	*memory.ProjectionSnapshots
	*memory.SubscriptionStore

	Database *memory.Database
}

// NewMemoryStore makes an empty memory database and combines its objects.
func NewMemoryStore(c memory.Config) MemoryStore {
	d := memory.New(c)
	return MemoryStore{
		d.Appender, d.Events, d.Audit, d.PersonalRecords, d.Snapshots, d.Intents, d.Registry, d.Directory, d.Projections,
		d.ProjectionVersions, d.ProjectionRows, d.ProjectionSnapshots, d.Subscriptions, d,
	}
}

// MemoryReadModel is the read model of a memory database.
type MemoryReadModel struct{ *memory.ReadModels }

// Put implements ReadModel.
func (MemoryReadModel) Put(_ context.Context, tx ports.ProjectionTx, p event.PartitionID, key, value string) error {
	m, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	m.Put("conformance", fmt.Sprintf("%d/%s", p, key), value)
	return nil
}

// Committed implements ReadModel.
func (r MemoryReadModel) Committed(_ context.Context, p event.PartitionID) (map[string]string, error) {
	out := map[string]string{}
	prefix := fmt.Sprintf("%d/", p)
	for _, row := range r.Rows("conformance", prefix) {
		out[strings.TrimPrefix(row.Key, prefix)] = fmt.Sprint(row.Value)
	}
	return out, nil
}
