package postgres

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/fault"
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
	Metrics Metrics
	// Tracer follows statements (never their arguments); nil follows nothing.
	Tracer pgx.QueryTracer
	// DialFunc opens connections; nil is a TCP or unix socket dialer with keepalive.
	DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

	limits limits // zero: those of a server; tests that stop in the middle take longer
}

// DefaultPhysicalPartitions is how many legal entities get tables of their own
// unless configured. Generic plans over hundreds of them exhaust the lock table.
const DefaultPhysicalPartitions = 32

// limits are how long a session of ours may keep others waiting, and wait for them.
type limits struct {
	idle time.Duration // the server ends an appender that holds locks and hangs
	turn time.Duration // the server ends a session that works a projection and hangs, so that another node gets its checkpoint
	lock time.Duration // who waits for a lock gives up; appends: Config.LockTimeout
	tell time.Duration // a notification that nobody takes is dropped
	// whoever asks for leases on work leaves those alone that another session locks so long
	share time.Duration
}

var usualLimits = limits{idle: 2 * time.Second, turn: 10 * time.Second, lock: 5 * time.Second, tell: 5 * time.Second, share: briefly}

// lease bounds each question to a key store that is a database of its own: the head
// locks are held meanwhile.
func (l limits) lease() time.Duration { return l.idle / 2 }

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
	if c.limits == (limits{}) {
		c.limits = usualLimits
	}
	if c.LockTimeout <= 0 {
		c.LockTimeout = usualLimits.lock
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

// Store is the event store in PostgreSQL. It is safe for concurrent use.
type Store struct {
	config    Config
	clock     ports.Clock
	log       *slog.Logger
	metrics   Metrics
	reads     *pgxpool.Pool
	scattered *scattered // the same
	appends   *pgxpool.Pool
	leases    *leasePool // nil: the key store is in the log's database
	queries   *backbonedb.Queries
	appenders []*appender
	slots     chan *group // of detours
	pace      pace
	notifier  *notifier
	closing   sync.Once
	cursors   *cursorWaits
	warned    atomic.Int64 // when locked leases were last said: Unix nanoseconds
	// large are partitions whose events are so large that a page had to be cut.
	large sync.Map
	// sweeps are how far versions are swept: by swept the last partition that is done.
	sweeps sync.Map

	detoursMu sync.Mutex
	detours   int // that run

	installationMu sync.Mutex
	installation   *ports.Installation
}

// The store keeps every promise of these ports.
var (
	_ ports.EventAppender     = (*Store)(nil)
	_ ports.IdempotencyReader = (*Store)(nil)
	_ ports.EventReader       = (*Store)(nil)
	_ ports.CausalityReader   = (*Store)(nil)
	_ ports.IntentReader      = (*Store)(nil)
	_ ports.ChainReader       = (*Store)(nil)
	_ ports.LegalEntities     = (*Store)(nil)
	_ ports.Principals        = (*Store)(nil)
	_ ports.Installations     = (*Store)(nil)
	_ ports.EventTypes        = (*Store)(nil)
	_ ports.Projections       = (*Store)(nil)
	_ ports.WakeUps           = (*Store)(nil)
	_ ports.PersonalRecords   = (*Store)(nil)
)

// Open connects to a migrated database and starts the appenders. Faults:
// store.dsn_invalid, store.unavailable.
func Open(ctx context.Context, c Config) (*Store, error) {
	c = c.withDefaults()
	s := &Store{config: c, clock: c.Clock, log: c.Logger, metrics: c.Metrics, queries: backbonedb.New()}
	var err error
	// With one plan for all values a statement locks and looks at the partitions it
	// needs only; custom plans cost half the point reads at eight partitions.
	if s.reads, err = s.pool(ctx, c.DSN, "backbone reads", c.ReadPoolSize, map[string]string{
		"plan_cache_mode": "force_generic_plan",
		"jit":             "off",
	}); err != nil {
		return nil, err
	}
	s.scattered = &scattered{pool: s.reads, queries: s.queries}
	if s.appends, err = s.pool(ctx, c.DSN, "backbone appends", c.Appenders+detourSlots, map[string]string{
		"plan_cache_mode":                     "force_generic_plan",
		"enable_seqscan":                      "off", // a plan from when a partition was empty must not stay a scan
		"jit":                                 "off",
		"idle_in_transaction_session_timeout": milliseconds(c.limits.idle),
		"lock_timeout":                        milliseconds(c.brief()),
		"tcp_keepalives_idle":                 "15",
		"tcp_keepalives_interval":             "5",
		"tcp_keepalives_count":                "3",
	}); err != nil {
		s.reads.Close()
		return nil, err
	}
	if c.KeyStoreDSN != "" && !sameDatabase(c.KeyStoreDSN, c.DSN) {
		if s.leases, err = openLeasePool(ctx, s); err != nil {
			s.closePools()
			return nil, err
		}
	}
	if err := s.reads.Ping(ctx); err != nil {
		s.closePools()
		return nil, unavailableFault(err)
	}
	s.notifier = startNotifier(s)
	s.cursors = newCursorWaits(c.ReadPoolSize)
	s.slots = make(chan *group, detourSlots)
	for range detourSlots {
		s.slots <- new(group)
	}
	s.appenders = make([]*appender, c.Appenders)
	for i := range s.appenders {
		s.appenders[i] = startAppender(s, i)
	}
	return s, nil
}

// Close answers what is queued, then ends the appenders and all connections. New
// appends are refused from the moment it is called.
func (s *Store) Close() {
	s.closing.Do(func() {
		for _, a := range s.appenders {
			a.queue.close()
		}
		for _, a := range s.appenders {
			<-a.done
		}
		s.notifier.close()
		s.closePools()
	})
}

func (s *Store) closePools() {
	if s.leases != nil {
		s.leases.pool.Close()
	}
	s.appends.Close()
	s.reads.Close()
}

// Pool is the pool of reads, for read models that modules keep in this database.
func (s *Store) Pool() *pgxpool.Pool { return s.reads }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return translate(ctx, s.reads.Ping(ctx)) }

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (s *Store) pool(ctx context.Context, dsn, name string, size int, parameters map[string]string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// The library's text may quote the password.
		return nil, fault.New(fault.Invalid, "store.dsn_invalid", "the database address cannot be read; correct it")
	}
	config.MaxConns = int32(size)
	s.prepareConn(config.ConnConfig, name, parameters)
	knockSeldom(config)
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerColumns(conn)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, unavailableFault(err)
	}
	return pool, nil
}

func (s *Store) prepareConn(config *pgx.ConnConfig, name string, parameters map[string]string) {
	config.RuntimeParams["application_name"] = name
	for k, v := range parameters {
		config.RuntimeParams[k] = v
	}
	config.DialFunc = s.config.DialFunc
	config.Tracer = s.config.Tracer
}

// now is the clock in the store's precision.
func (s *Store) now() time.Time { return s.clock.Now().UTC().Truncate(time.Microsecond) }
