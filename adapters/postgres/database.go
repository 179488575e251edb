package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/archive"
	"github.com/erpbackbone/backbone/adapters/postgres/blindindex"
	"github.com/erpbackbone/backbone/adapters/postgres/directory"
	"github.com/erpbackbone/backbone/adapters/postgres/disclosure"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/globallog"
	"github.com/erpbackbone/backbone/adapters/postgres/intents"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/leases"
	"github.com/erpbackbone/backbone/adapters/postgres/papers"
	"github.com/erpbackbone/backbone/adapters/postgres/projections"
	"github.com/erpbackbone/backbone/adapters/postgres/registry"
	"github.com/erpbackbone/backbone/adapters/postgres/streams"
	"github.com/erpbackbone/backbone/adapters/postgres/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Config says how to open a store, and bounds what its sessions do.
type Config = pg.Config

// Limits bounds the append engine and the sessions of the database.
type Limits = pg.Limits

// AppendMetrics observes the append engine.
type AppendMetrics = pg.AppendMetrics

// Database is an open database of the log, one object per concern. It is safe for
// concurrent use.
type Database struct {
	Appender            *appender.Engine
	Events              *eventlog.Reader
	Audit               *eventlog.Audit
	PersonalRecords     *eventlog.PersonalRecords
	Snapshots           *streams.Snapshots
	Intents             *intents.Store
	Registry            *registry.Store
	Directory           *directory.Store
	Projections         *projections.Checkpoints
	ProjectionVersions  *projections.Versions
	ProjectionRows      *projections.Rows
	ProjectionSnapshots *projections.Snapshots
	ProjectionTargets   *projections.Targets
	Subscriptions       *subscriptions.Store
	Webhooks            *subscriptions.Webhooks
	Publishers          *subscriptions.Publishers
	Leases              *leases.Store
	AccessLog           *disclosure.Store
	BlindIndex          *blindindex.Store
	Papers              *papers.Store
	GlobalLog           *globallog.Store
	Archive             *archive.Register

	db      *pg.Database
	closing sync.Once
}

// Chains are the stores that a verification reads.
type Chains struct {
	*eventlog.Audit
	*directory.Store
	ports.IntentAudit
	ports.AccessReader
	ports.PaperAudit
	ports.ArchivedSegments
	headReader
	registryReader
	subscriptionReader
	webhookReader
	projectionReader
}

type projectionReader interface {
	ports.DeadLetters
	ListProjections(ctx context.Context) ([]projection.Projection, error)
}

type subscriptionReader interface {
	ports.FormerDecisions
	Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error)
}

type webhookReader interface {
	WebhookEndpoints(ctx context.Context, tenantID string) ([]ports.WebhookEndpoint, error)
}

type registryReader interface {
	EventTypeNumbers(ctx context.Context, names []string) (map[string]ports.EventTypeName, error)
	RegistryRecord(ctx context.Context, tenantID string) (ports.RegistryRecord, error)
}

type headReader interface {
	Head(ctx context.Context, p event.PartitionID) (ports.Head, error)
}

// Chains returns the stores that a verification reads.
func (d *Database) Chains() Chains {
	return Chains{d.Audit, d.Directory, d.Intents, d.AccessLog, d.Papers, d.Archive, d.Events, d.Registry, d.Subscriptions, d.Webhooks, d.ProjectionVersions}
}

// Pool is the pool of reads, for read models that modules keep in this database.
func (d *Database) Pool() *pgxpool.Pool { return d.db.Reads }

// Ping reports whether the database answers.
func (d *Database) Ping(ctx context.Context) error { return d.db.Ping(ctx) }

// Open connects to a migrated database and starts the append engine. Faults:
// store.dsn_invalid, store.unavailable.
func Open(ctx context.Context, c Config) (*Database, error) {
	db, err := pg.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	engine, err := appender.Start(ctx, db)
	if err != nil {
		db.Close()
		return nil, err
	}
	events := eventlog.NewReader(db)
	checkpoints := projections.New(db, events)
	directory := directory.New(db, c.PhysicalPartitions)
	return &Database{
		Appender:            engine,
		Events:              events,
		Audit:               eventlog.NewAudit(db, events),
		PersonalRecords:     eventlog.NewPersonalRecords(db, events),
		Snapshots:           streams.NewSnapshots(db),
		Intents:             intents.New(db, directory, events),
		Registry:            registry.New(db),
		Directory:           directory,
		Projections:         checkpoints,
		ProjectionVersions:  projections.NewVersions(checkpoints),
		ProjectionRows:      projections.NewRows(checkpoints),
		ProjectionSnapshots: projections.NewSnapshots(checkpoints),
		ProjectionTargets:   projections.NewTargets(checkpoints),
		Subscriptions:       subscriptions.New(db, events),
		Webhooks:            subscriptions.NewWebhooks(db),
		Publishers:          subscriptions.NewPublishers(db),
		Leases:              leases.New(db),
		AccessLog:           disclosure.New(db),
		BlindIndex:          blindindex.New(db),
		Papers:              papers.New(db),
		GlobalLog:           globallog.New(db),
		Archive:             archive.NewRegister(db),
		db:                  db,
	}, nil
}

// Close answers the appends that are queued, then ends all connections. New appends are
// refused from the moment it is called.
func (d *Database) Close() {
	d.closing.Do(func() {
		d.Appender.Close()
		d.db.Close()
	})
}
