package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/ports"
)

// EngineConfig bounds the append engine. Every member is required, but for KeyStoreDSN.
type EngineConfig struct {
	// KeyStoreDSN connects as backbone_app to the database of the key store; "" or the
	// log's own database takes leases on keys in the append's transaction.
	KeyStoreDSN string
	// Appenders is how many groups may be in flight.
	Appenders int
	// OnePartitionPerGroup keeps a transaction to one partition, so that on a sharded
	// cluster it stays on one shard.
	OnePartitionPerGroup bool
	// QueueRequests and QueueBytes bound what may wait for one appender.
	QueueRequests int
	QueueBytes    int
	// PartitionRequests and PartitionBytes bound the share of one partition in it.
	PartitionRequests int
	PartitionBytes    int
	// GroupTimeout bounds one transaction of an appender.
	GroupTimeout time.Duration
	// LockTimeout is how long an append waits for a lock that another session holds before
	// it is refused.
	LockTimeout time.Duration
	// Metrics observes the engine.
	Metrics Metrics
}

// Engine appends events: a few appenders gather waiting requests of many partitions into
// groups and write each group in one transaction. It is safe for concurrent use.
type Engine struct {
	config    EngineConfig
	db        *Database
	metrics   Metrics
	appends   *pgxpool.Pool
	leases    *leasePool // nil: the key store is in the log's database
	queries   *backbonedb.Queries
	appenders []*appender
	slots     chan *group // of detours
	pace      pace
	notifier  *notifier

	detoursMu sync.Mutex
	detours   int // that run
}

var _ ports.EventAppender = (*Engine)(nil)

// startEngine opens the connections of the appenders and starts them. Faults:
// store.dsn_invalid, store.unavailable.
func startEngine(ctx context.Context, db *Database, c EngineConfig) (*Engine, error) {
	s := &Engine{config: c, db: db, metrics: c.Metrics, queries: backbonedb.New()}
	var err error
	if s.appends, err = db.pool(ctx, db.config.DSN, "backbone appends", c.Appenders+detourSlots, map[string]string{
		"plan_cache_mode":                     "force_generic_plan",
		"enable_seqscan":                      "off", // a plan from when a partition was empty must not stay a scan
		"jit":                                 "off",
		"idle_in_transaction_session_timeout": milliseconds(db.config.limits.idle),
		"lock_timeout":                        milliseconds(c.brief()),
		"tcp_keepalives_idle":                 "15",
		"tcp_keepalives_interval":             "5",
		"tcp_keepalives_count":                "3",
	}); err != nil {
		return nil, err
	}
	if c.KeyStoreDSN != "" && !sameDatabase(c.KeyStoreDSN, db.config.DSN) {
		if s.leases, err = openLeasePool(ctx, s); err != nil {
			s.appends.Close()
			return nil, err
		}
	}
	s.notifier = startNotifier(s)
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

// Close answers the requests that are queued, then ends the appenders and their
// connections. New requests are refused from the moment it is called.
func (s *Engine) Close() {
	for _, a := range s.appenders {
		a.queue.close()
	}
	for _, a := range s.appenders {
		<-a.done
	}
	s.notifier.close()
	if s.leases != nil {
		s.leases.pool.Close()
	}
	s.appends.Close()
}
