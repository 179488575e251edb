package conformance

import "github.com/erpbackbone/backbone/adapters/memory"

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
