package appender

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/ports"
)

// Engine is a node's ports.EventAppender: a few appenders, the slots that stalled partitions
// share, and their connections. It is safe for concurrent use.
type Engine struct {
	limits    pg.Limits
	db        *pg.Database
	metrics   pg.AppendMetrics
	pool      *pgxpool.Pool // one connection for each appender and each slot
	leases    *leasePool    // nil: the key store is in the log's database
	queries   *appenderdb.Queries
	appenders []*appender
	freeSlots chan *group // a slot is the buffers of a group; who has it may use a connection for a stalled partition
	holdTimes holdTimes
	notifier  *notifier

	stalledMu         sync.Mutex
	stalledPartitions int // of all appenders, that serveStalled serves now; most wait for their lock
}

var _ ports.EventAppender = (*Engine)(nil)

// Start opens the connections of the appenders and starts them. Faults:
// store.dsn_invalid, store.unavailable.
func Start(ctx context.Context, db *pg.Database) (*Engine, error) {
	c := &db.Config
	s := &Engine{limits: c.Limits, db: db, metrics: c.Metrics, queries: appenderdb.New()}
	var err error
	if s.pool, err = db.OpenPool(ctx, c.DSN, "backbone appends", c.Appenders+stalledSlots, map[string]string{
		"plan_cache_mode":                     "force_generic_plan",
		"enable_seqscan":                      "off", // a plan from when a partition was empty must not stay a scan
		"jit":                                 "off",
		"idle_in_transaction_session_timeout": pg.Milliseconds(c.Limits.IdleTimeout),
		"lock_timeout":                        pg.Milliseconds(s.shortLockWait()),
		"tcp_keepalives_idle":                 "15",
		"tcp_keepalives_interval":             "5",
		"tcp_keepalives_count":                "3",
	}); err != nil {
		return nil, err
	}
	if c.KeyStoreDSN != "" && !sameDatabase(c.KeyStoreDSN, c.DSN) {
		if s.leases, err = openLeasePool(ctx, s); err != nil {
			s.pool.Close()
			return nil, err
		}
	}
	s.notifier = startNotifier(s)
	s.freeSlots = make(chan *group, stalledSlots)
	for range stalledSlots {
		s.freeSlots <- new(group)
	}
	s.appenders = make([]*appender, c.Appenders)
	for i := range s.appenders {
		s.appenders[i] = startAppender(s, i)
	}
	return s, nil
}

// Close refuses new requests, answers the queued ones, then ends the appenders and their
// connections. It waits for stalled partitions too, so it may take Limits.LockTimeout when
// another session holds a lock.
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
	s.pool.Close()
}
