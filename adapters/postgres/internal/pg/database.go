// Package pg holds what all packages of the PostgreSQL adapter share: the Database (pool,
// clock, log, timeouts of sessions, LISTEN), the translation of errors into faults, and the
// encoding of columns. It knows no table.
//
// A node has these connections: ReadPool of them in Database.Reads, one for each appender and
// stalled slot in the append engine's pool, as many again to an external key store, one that
// notifies and one for each channel that it listens to.
package pg

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/ports"
)

// Config says how to open the database of the log, and bounds what its sessions do. Every
// member is required unless it says otherwise; defaults are those of package configs.
type Config struct {
	// DSN connects as backbone_app. It may lead through a transaction pooler that
	// passes on start-up parameters.
	DSN string
	// ListenDSN connects to PostgreSQL directly, for LISTEN; "" is DSN.
	ListenDSN string
	// KeyStoreDSN connects as backbone_app to the database of the key store; "" or the
	// log's own database takes leases on keys in the append's transaction.
	KeyStoreDSN string
	// ReadPool bounds the connections of the pool that all packages but the append engine
	// share.
	ReadPool int
	// Appenders is how many groups may be in flight.
	Appenders int
	// PhysicalPartitions is how many legal entities get tables of their own.
	PhysicalPartitions int
	Limits             Limits
	// Clock gives the time that rows are stamped with.
	Clock ports.Clock
	// Logger gets messages for operators.
	Logger *slog.Logger
	// Metrics observes the append engine; nil observes nothing.
	Metrics AppendMetrics
	// Tracer follows statements (never their arguments); nil follows nothing.
	Tracer pgx.QueryTracer
	// Archive reads payloads that have left the database; nil: the node has none.
	Archive ports.ArchivedPayloads
	// DialFunc opens connections; nil is Dial.
	DialFunc func(ctx context.Context, network, address string) (net.Conn, error)
}

// Limits bounds the append engine and the sessions of the database. Its members are those of
// configs.Engine, which converts to it.
type Limits struct {
	// OnePartitionPerGroup keeps a transaction to one partition, so that on a sharded
	// cluster it stays on one shard.
	OnePartitionPerGroup bool
	// GroupEvents and GroupBytes bound one append transaction. A request of more than
	// OversizeBytes has a transaction of its own: a few of a megabyte each in one group held
	// up small callers for a second.
	GroupEvents, GroupBytes, OversizeBytes int
	// QueueRequests and QueueBytes bound the requests that wait for one appender.
	QueueRequests, QueueBytes int
	// PartitionRequests and PartitionBytes bound the share of one partition in them.
	PartitionRequests, PartitionBytes int
	// GroupTimeout bounds one transaction of an appender.
	GroupTimeout time.Duration
	// LockTimeout is how long a caller waits for a lock that another session holds, such as
	// that of its partition's head, before it is refused. Appends of other partitions do not
	// wait with it.
	LockTimeout time.Duration
	// LeaseLockTimeout is how long a node waits for a lock on leases; it skips those that
	// another session locks for longer.
	LeaseLockTimeout time.Duration
	// IdleTimeout is the silence after which the server ends an append session that holds
	// locks.
	IdleTimeout time.Duration
	// ProjectionIdleTimeout is the silence after which the server ends any other session in a
	// transaction, such as one that holds a checkpoint or a cursor, so that another node gets it.
	ProjectionIdleTimeout time.Duration
	// NotifyTimeout is how long a notification may take before it is dropped.
	NotifyTimeout time.Duration
	// ListenCheck is the silence after which a listening connection is probed, because one whose
	// network path is gone receives nothing and does not fail.
	ListenCheck time.Duration
	// MaxClockSkew is how far the clock may be from the database's before appends are
	// refused; negative: the clock is injected and is not compared.
	MaxClockSkew time.Duration
}

// KeyStoreTimeout bounds each query to an external key store, because the group holds head
// locks while it waits for the answer.
func (l Limits) KeyStoreTimeout() time.Duration { return l.IdleTimeout / 2 }

// AppendMetrics observes the append engine. Its methods are called on the hot path and
// must not block.
type AppendMetrics interface {
	// ObserveAppend reports one request: from queueing to its answer or to the end of its
	// context, how many events it carried, and the fault code: "" is success, and
	// append.outcome_unknown a caller that left before its answer.
	ObserveAppend(latency time.Duration, events int, code string)
	// ObserveGroup reports one transaction: how many requests and events shared it
	// and how long it took.
	ObserveGroup(requests, events int, duration time.Duration)
	// ObserveQueue reports the requests that wait for an appender.
	ObserveQueue(appender, requests, bytes int)
	// ObserveStalledPartitions reports in how many partitions appends wait for a lock that
	// another session holds.
	ObserveStalledPartitions(partitions int)
}

// noMetrics observes nothing.
type noMetrics struct{}

func (noMetrics) ObserveAppend(time.Duration, int, string)   {}
func (noMetrics) ObserveGroup(int, int, time.Duration)       {}
func (noMetrics) ObserveQueue(appender, requests, bytes int) {}
func (noMetrics) ObserveStalledPartitions(partitions int)    {}

// Database is the access to the log's database that all packages of the adapter share: the
// pool for reads and short transactions, the clock, the logger and the settings of sessions.
type Database struct {
	Config Config
	Clock  ports.Clock
	Log    *slog.Logger
	Reads  *pgxpool.Pool
}

// Open opens the pool and makes sure that the server answers. Faults:
// store.dsn_invalid, store.unavailable.
func Open(ctx context.Context, c Config) (*Database, error) {
	if l := c.Limits; min(c.ReadPool, c.Appenders, l.GroupEvents, l.QueueRequests, l.PartitionRequests) < 1 || min(l.GroupTimeout, l.LockTimeout) <= 0 || c.Clock == nil || c.Logger == nil {
		return nil, errors.New("postgres: a limit, the clock or the logger is missing; begin with the limits of configs.Default")
	}
	c.ListenDSN = cmp.Or(c.ListenDSN, c.DSN)
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	if c.DialFunc == nil {
		c.DialFunc = Dial
	}
	s := &Database{Config: c, Clock: c.Clock, Log: c.Logger}
	var err error
	// A generic plan locks and reads only the partitions that the statement needs; with custom
	// plans, point reads on eight partitions were half as many per second.
	if s.Reads, err = s.OpenPool(ctx, c.DSN, "backbone reads", c.ReadPool, map[string]string{
		"plan_cache_mode":                     "force_generic_plan",
		"jit":                                 "off",
		"idle_in_transaction_session_timeout": Milliseconds(c.Limits.ProjectionIdleTimeout),
	}); err != nil {
		return nil, err
	}
	if err := s.Reads.Ping(ctx); err != nil {
		s.Reads.Close()
		return nil, UnavailableFault(err)
	}
	return s, nil
}

var dialer = net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}

// Dial opens a TCP or unix socket connection with keepalive.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, network, address)
}

// Close ends the connections of the pool.
func (s *Database) Close() { s.Reads.Close() }

// Ping reports whether the database answers.
func (s *Database) Ping(ctx context.Context) error { return Translate(ctx, s.Reads.Ping(ctx)) }

// Milliseconds formats a duration for a setting that PostgreSQL reads in milliseconds.
func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// OpenPool makes a pool of at most size connections to dsn. The name is the sessions'
// application_name; parameters are sent at their start. Faults: store.dsn_invalid,
// store.unavailable.
func (s *Database) OpenPool(ctx context.Context, dsn, name string, size int, parameters map[string]string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, InvalidDSN("the database address")
	}
	config.MaxConns = int32(size)
	s.prepareConn(config.ConnConfig, name, parameters)
	ProbeWithBackoff(config)
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerColumns(conn)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, UnavailableFault(err)
	}
	return pool, nil
}

func (s *Database) prepareConn(config *pgx.ConnConfig, name string, parameters map[string]string) {
	config.RuntimeParams["application_name"] = name
	for k, v := range parameters {
		config.RuntimeParams[k] = v
	}
	config.DialFunc = s.Config.DialFunc
	config.Tracer = s.Config.Tracer
}

// Now reads the clock and truncates to PostgreSQL's microseconds.
func (s *Database) Now() time.Time { return s.Clock.Now().UTC().Truncate(time.Microsecond) }

// CloseTimeout bounds closing a connection whose state is unknown.
const CloseTimeout = time.Second

// OpenEraser opens a small pool as the role backbone_eraser, which has rights that the role that appends lacks. Faults:
// store.dsn_invalid, store.unavailable.
func OpenEraser(ctx context.Context, dsn, application string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, InvalidDSN("the database address")
	}
	config.MaxConns = 2
	config.ConnConfig.RuntimeParams["application_name"] = application
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed" // functions see what was committed while they waited
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, UnavailableFault(err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, UnavailableFault(err)
	}
	return pool, nil
}
