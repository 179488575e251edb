package pgtest

import (
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/directory"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/intents"
	"github.com/erpbackbone/backbone/adapters/postgres/projections"
	"github.com/erpbackbone/backbone/adapters/postgres/registry"
	"github.com/erpbackbone/backbone/adapters/postgres/streams"
	"github.com/erpbackbone/backbone/adapters/postgres/subscriptions"
)

// The stores, under names that none of their methods has.
type (
	engine              = appender.Engine
	eventReader         = eventlog.Reader
	eventAudit          = eventlog.Audit
	personalRecords     = eventlog.PersonalRecords
	streamSnapshots     = streams.Snapshots
	intentStore         = intents.Store
	registryStore       = registry.Store
	directoryStore      = directory.Store
	projectionWork      = projections.Checkpoints
	projectionVersions  = projections.Versions
	projectionRows      = projections.Rows
	projectionSnapshots = projections.Snapshots
	projectionTargets   = projections.Targets
	subscriptionStore   = subscriptions.Store
	webhookStore        = subscriptions.Webhooks
	publisherStore      = subscriptions.Publishers
)

// Combined has the methods of all stores, for suites that test one store.
type Combined struct {
	*engine
	*eventReader
	*eventAudit
	*personalRecords
	*streamSnapshots
	*intentStore
	*registryStore
	*directoryStore
	*projectionWork
	*projectionVersions
	*projectionRows
	*projectionSnapshots
	*projectionTargets
	*subscriptionStore
	*webhookStore
	*publisherStore

	Database *postgres.Database
}

// Combine embeds the stores of a database in one.
func Combine(d *postgres.Database) Combined {
	return Combined{
		d.Appender, d.Events, d.Audit, d.PersonalRecords, d.Snapshots, d.Intents, d.Registry, d.Directory, d.Projections,
		d.ProjectionVersions, d.ProjectionRows, d.ProjectionSnapshots, d.ProjectionTargets, d.Subscriptions, d.Webhooks, d.Publishers,
		d,
	}
}
