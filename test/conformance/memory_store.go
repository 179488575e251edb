package conformance

import (
	"context"
	"time"

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

// PartitionHeads is that of the reader: the projections have one too.
func (s MemoryStore) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	return s.Database.Events.PartitionHeads(ctx)
}

// RecordedAt is that of the reader.
func (s MemoryStore) RecordedAt(ctx context.Context, places []ports.EventPosition) (map[ports.EventPosition]time.Time, error) {
	return s.Database.Events.RecordedAt(ctx, places)
}
