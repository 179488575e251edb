package postgres

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/directory"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/intents"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/leases"
	"github.com/erpbackbone/backbone/adapters/postgres/projections"
	"github.com/erpbackbone/backbone/adapters/postgres/registry"
	"github.com/erpbackbone/backbone/adapters/postgres/streams"
	"github.com/erpbackbone/backbone/adapters/postgres/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Config says how to open a store. Only DSN is required.
type Config struct {
	// DSN connects as backbone_app. It may lead through a transaction pooler that
	// passes on start-up parameters.
	DSN string
	// ListenDSN connects to PostgreSQL directly, for LISTEN; "" is DSN.
	ListenDSN string
	// KeyStoreDSN connects as backbone_app to the database of the key store; "" or the
	// log's own database takes leases on keys in the append's transaction. Another
	// one is connected to when the first sealed values are appended.
	KeyStoreDSN string
	// ReadPoolSize bounds the connections of reads; 0 is four per core, at least 8.
	ReadPoolSize int
	// Appenders is how many groups may be in flight; 0 is one per core, at least 2.
	Appenders int
	// PhysicalPartitions is how many legal entities get tables of their own; 0 is
	// DefaultPhysicalPartitions, negative none.
	PhysicalPartitions int
	// OnePartitionPerGroup keeps a transaction to one partition, so that on a sharded
	// cluster it stays on one shard.
	OnePartitionPerGroup bool
	// QueueRequests and QueueBytes bound what may wait for one appender; 0 is 4,096
	// requests and 64 MiB.
	QueueRequests int
	QueueBytes    int
	// PartitionRequests and PartitionBytes bound the share of one partition in it; 0
	// is half.
	PartitionRequests int
	PartitionBytes    int
	// GroupTimeout bounds one transaction of an appender; 0 is 30 s.
	GroupTimeout time.Duration
	// LockTimeout is how long an append waits for a lock that another session holds, such
	// as that of its partition's head, before it is refused; 0 is 5 s. Appends of other
	// partitions do not wait with it.
	LockTimeout time.Duration
	// ListenCheck is the silence after which a listening connection is asked whether it
	// is still there, since one that the network has forgotten hears nothing and does not
	// fail; 0 is 15 s.
	ListenCheck time.Duration
	// MaxClockSkew is how far the clock may be from the database's before appends are
	// refused; 0 is one second, negative does not look (injected clocks).
	MaxClockSkew time.Duration
	// Clock gives recorded_at; nil is the machine's.
	Clock ports.Clock
	// Logger gets what operators must know; nil is slog.Default.
	Logger *slog.Logger
	// Metrics observes the append engine; nil observes nothing.
	Metrics appender.Metrics
	// Tracer follows statements (never their arguments); nil follows nothing.
	Tracer pgx.QueryTracer
	// DialFunc opens connections; nil is a TCP or unix socket dialer with keepalive.
	DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

	Timeouts pg.Timeouts // zero: those of a server; tests that stop in the middle take longer
}

// DefaultPhysicalPartitions is how many legal entities get tables of their own
// unless configured. Generic plans over hundreds of them exhaust the lock table.
const DefaultPhysicalPartitions = 32

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (c Config) withDefaults() Config {
	cores := runtime.GOMAXPROCS(0)
	if c.ListenDSN == "" {
		c.ListenDSN = c.DSN
	}
	if c.ReadPoolSize <= 0 {
		c.ReadPoolSize = max(8, 4*cores)
	}
	if c.Appenders <= 0 {
		c.Appenders = max(2, cores)
	}
	if c.PhysicalPartitions == 0 {
		c.PhysicalPartitions = DefaultPhysicalPartitions
	}
	c.PhysicalPartitions = max(c.PhysicalPartitions, 0)
	if c.QueueRequests <= 0 {
		c.QueueRequests = 4096
	}
	if c.QueueBytes <= 0 {
		c.QueueBytes = 64 << 20
	}
	if c.PartitionRequests <= 0 {
		c.PartitionRequests = max(c.QueueRequests/2, 1)
	}
	if c.PartitionBytes <= 0 {
		c.PartitionBytes = max(c.QueueBytes/2, 1)
	}
	if c.GroupTimeout <= 0 {
		c.GroupTimeout = 30 * time.Second
	}
	if c.Timeouts == (pg.Timeouts{}) {
		c.Timeouts = pg.DefaultTimeouts
	}
	if c.LockTimeout <= 0 {
		c.LockTimeout = pg.DefaultTimeouts.Lock
	}
	if c.ListenCheck <= 0 {
		c.ListenCheck = 15 * time.Second
	}
	if c.MaxClockSkew == 0 {
		c.MaxClockSkew = time.Second
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	if c.DialFunc == nil {
		dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
		c.DialFunc = dialer.DialContext
	}
	return c
}

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

	db      *pg.Database
	closing sync.Once
}

// Chains is what a verification reads: the audit of partitions with their heads, and the
// directory that lists them.
type Chains struct {
	*eventlog.Audit
	*directory.Store
	events *eventlog.Reader
}

// Head is that of the reader.
func (c Chains) Head(ctx context.Context, p event.PartitionID) (ports.Head, error) {
	return c.events.Head(ctx, p)
}

// Chains gives what a verification reads.
func (d *Database) Chains() Chains { return Chains{d.Audit, d.Directory, d.Events} }

// Pool is the pool of reads, for read models that modules keep in this database.
func (d *Database) Pool() *pgxpool.Pool { return d.db.Reads }

// Ping reports whether the database answers.
func (d *Database) Ping(ctx context.Context) error { return d.db.Ping(ctx) }

// Open connects to a migrated database and starts the append engine. Faults:
// store.dsn_invalid, store.unavailable.
func Open(ctx context.Context, c Config) (*Database, error) {
	c = c.withDefaults()
	db, err := pg.Open(ctx, pg.Config{
		DSN: c.DSN, ListenDSN: c.ListenDSN, ReadPoolSize: c.ReadPoolSize, ListenCheck: c.ListenCheck, MaxClockSkew: c.MaxClockSkew,
		Clock: c.Clock, Logger: c.Logger, Tracer: c.Tracer, DialFunc: c.DialFunc, Timeouts: c.Timeouts,
	})
	if err != nil {
		return nil, err
	}
	engine, err := appender.Start(ctx, db, appender.Config{
		KeyStoreDSN: c.KeyStoreDSN, Appenders: c.Appenders, OnePartitionPerGroup: c.OnePartitionPerGroup,
		QueueRequests: c.QueueRequests, QueueBytes: c.QueueBytes, PartitionRequests: c.PartitionRequests, PartitionBytes: c.PartitionBytes,
		GroupTimeout: c.GroupTimeout, LockTimeout: c.LockTimeout, Metrics: c.Metrics,
	})
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
		Intents:             intents.New(db, directory),
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

// noMetrics observes nothing.
type noMetrics struct{}

func (noMetrics) ObserveAppend(time.Duration, int, string)   {}
func (noMetrics) ObserveGroup(int, int, time.Duration)       {}
func (noMetrics) ObserveQueue(appender, requests, bytes int) {}
func (noMetrics) ObserveDetours(partitions int)              {}
