// Package appender is the append engine. Engine.Append puts a request into the queue of
// its partition's appender; the appender gathers queued requests into a group and commits the
// group in one transaction of two round trips. The steps have a file each:
//
//	queue.go    the queued requests, bounded in number and bytes
//	stalled.go  partitions whose lock another session holds; they wait in slots of their own
//	group.go    one transaction: lock the head rows and read what the requests build on
//	lookup.go   the rows that the group reads, in one statement for each kind
//	decide.go   accept or refuse each request, in Go, against the rows that were read
//	write.go    insert the rows of all accepted requests, one statement for each table
//	commit.go   commit in the same round trip
//	resolve.go  find out whether a commit whose answer was lost has happened
//	notify.go   notify listeners which partitions grew
//
// A partition's head row, its row of backbone.partition_heads, is its lock. It holds the
// genesis checksum and is never written; the head itself is the partition's last event. A
// group holds the lock from before it reads the head until its commit, whichever process it
// runs in. So the next group numbers its events after the last committed one: sequences of
// a partition have no gaps, and no event is committed before one that a reader has seen. There
// is no order across partitions: a reader of several keeps a position in each.
//
// A group takes its locks in this order: the head rows by partition id, then leases on the
// keys that values of its requests are sealed with (key_lease.go, and external_key_store.go
// for a key store in another database), then the locks of its inserts.
package appender

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/ports"
)

// Engine appends events: a few appenders gather waiting requests of many partitions into
// groups and write each group in one transaction. It is safe for concurrent use.
type Engine struct {
	limits    pg.Limits
	db        *pg.Database
	metrics   pg.AppendMetrics
	appends   *pgxpool.Pool
	leases    *leasePool // nil: the key store is in the log's database
	queries   *appenderdb.Queries
	appenders []*appender
	slots     chan *group // of stalled partitions
	holdTimes holdTimes
	notifier  *notifier

	stalledMu         sync.Mutex
	stalledPartitions int // that run
}

var _ ports.EventAppender = (*Engine)(nil)

// Start opens the connections of the appenders and starts them. Faults:
// store.dsn_invalid, store.unavailable.
func Start(ctx context.Context, db *pg.Database) (*Engine, error) {
	c := &db.Config
	s := &Engine{limits: c.Limits, db: db, metrics: c.Metrics, queries: appenderdb.New()}
	var err error
	if s.appends, err = db.OpenPool(ctx, c.DSN, "backbone appends", c.Appenders+stalledSlots, map[string]string{
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
			s.appends.Close()
			return nil, err
		}
	}
	s.notifier = startNotifier(s)
	s.slots = make(chan *group, stalledSlots)
	for range stalledSlots {
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
