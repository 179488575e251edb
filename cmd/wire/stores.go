package wire

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Stores are the stores of a log by concern, with the names that they have in postgres.Database and
// memory.Database.
type Stores struct {
	Appender            ports.EventAppender
	Events              EventStore
	Audit               ports.ChainReader
	PersonalRecords     ports.PersonalRecords
	Snapshots           SnapshotStore
	Intents             IntentStore
	Registry            EventTypeStore
	Directory           DirectoryStore
	Projections         ports.Projections
	ProjectionVersions  ProjectionStore
	ProjectionRows      ProjectionRowStore
	ProjectionSnapshots ports.ProjectionSnapshots
	ProjectionTargets   ports.ProjectionTargetStore
	Subscriptions       SubscriptionStore
	Webhooks            WebhookStore
	Publishers          ports.PublisherCursors
	Leases              ports.Leases
	AccessLog           AccessStore
	BlindIndex          ports.BlindIndex
	Papers              ports.Papers
	GlobalLog           GlobalLogStore
	Archive             ArchiveStore     // nil: payloads are not archived
	Redactions          ports.Redactions // nil: payloads cannot be redacted
	Archiver            ports.Archiver   // nil: payloads cannot be archived

	Chains verify.Store // what a verification reads
	Ping   func(ctx context.Context) error
	Close  func() // answers the queued appends and closes the connections
}

// EventStore reads the log.
type EventStore interface {
	query.Log
	ports.HeadReader
	ports.LogPositions
	ports.WakeUps
	subscriptions.Log
}

// SnapshotStore keeps the snapshots of streams and entities.
type SnapshotStore interface {
	ports.EntitySnapshots
	ports.StreamSnapshots
}

// IntentStore reads intents, and the keys of requests.
type IntentStore interface {
	ports.IntentReader
	ports.IdempotencyReader
	DeleteExpiredIdempotencyKeys(ctx context.Context, now time.Time) (int64, error)
}

// EventTypeStore keeps the event types that all tenants share.
type EventTypeStore interface {
	ports.SharedEventTypes
	ports.RegistryAudit
	// ListenEventTypes calls changed whenever a node announces that event types have changed, until
	// ctx ends.
	ListenEventTypes(ctx context.Context, changed func()) error
}

// DirectoryStore keeps the installation, its legal entities, and callers of earlier releases.
type DirectoryStore interface {
	ports.Installations
	ports.LegalEntities
	FormerPrincipals(ctx context.Context, tenantID string) ([]ports.Principal, error)
}

// ProjectionStore keeps the versions of projections and the events that they could not apply.
type ProjectionStore interface {
	ports.ProjectionRegister
	ports.ProjectionVersions
	ports.DeadLetters
	ListProjections(ctx context.Context) ([]projection.Projection, error)
}

// ProjectionRowStore keeps the rows of custom projections.
type ProjectionRowStore interface {
	ports.ProjectionRows
	ports.RowRecomputer
}

// SubscriptionStore keeps subscriptions and what they deliver.
type SubscriptionStore interface {
	subscriptions.Store
	ports.FormerDecisions
	Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error)
}

// WebhookStore keeps endpoints.
type WebhookStore interface {
	ports.WebhookEndpoints
	ports.WebhookAttempts
	// FormerHosts lists the hosts that a tenant's endpoints had in an earlier release.
	FormerHosts(ctx context.Context, tenantID string) ([]ports.WebhookHost, error)
}

// AccessStore keeps reads that matter.
type AccessStore interface {
	ports.AccessLog
	ports.AccessReader
}

// GlobalLogStore keeps the one order of all events, and the tree over it.
type GlobalLogStore interface {
	ports.GlobalLogWriter
	ports.GlobalOrder
	ports.GlobalTree
	ports.Checkpoints
}

// ArchiveStore knows what is in the archive.
type ArchiveStore interface {
	ports.ArchiveRegister
	ports.ArchivedStates
}

// storesOf are the stores of a database.
func storesOf(d *postgres.Database) Stores {
	return Stores{
		Appender: d.Appender, Events: d.Events, Audit: d.Audit, PersonalRecords: d.PersonalRecords, Snapshots: d.Snapshots, Intents: d.Intents, Registry: d.Registry, Directory: d.Directory,
		Projections: d.Projections, ProjectionVersions: d.ProjectionVersions, ProjectionRows: d.ProjectionRows, ProjectionSnapshots: d.ProjectionSnapshots, ProjectionTargets: d.ProjectionTargets,
		Subscriptions: d.Subscriptions, Webhooks: d.Webhooks, Publishers: d.Publishers, Leases: d.Leases, AccessLog: d.AccessLog, BlindIndex: d.BlindIndex, Papers: d.Papers, GlobalLog: d.GlobalLog, Archive: d.Archive,
		Chains: d.Chains(), Ping: d.Ping, Close: d.Close,
	}
}
