package appender

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/keystore"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Bounds of a lease in another database, besides Limits.KeyStoreTimeout, which bounds each query
// and each wait for a connection.
const (
	leaseTries = 2 // the pool may hold a connection that a restart has cut
	// keyStoreBackoff is how long groups do not ask a key store that did not answer: waiting
	// for it delays the appends without personal values too.
	keyStoreBackoff = 3 * time.Second
)

// sameDatabase reports whether two DSNs lead to one database, whatever their users. Two
// names of one server count as two databases, which is slower and still correct.
func sameDatabase(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := pgconn.ParseConfig(a)
	y, errY := pgconn.ParseConfig(b)
	return errX == nil && errY == nil && x.Host == y.Host && x.Port == y.Port && x.Database == y.Database
}

// leasePool connects to a key store in another database.
type leasePool struct {
	pool    *pgxpool.Pool
	timeout time.Duration // of each query
	// skippedUntil is until when groups do not ask the key store, because it did not answer:
	// Unix nanoseconds. Otherwise one group after another would wait for it.
	skippedUntil atomic.Int64
}

func openLeasePool(ctx context.Context, s *Engine) (*leasePool, error) {
	pool, err := s.db.OpenPool(ctx, s.db.Config.KeyStoreDSN, "backbone leases", s.db.Config.Appenders+stalledSlots, map[string]string{
		"plan_cache_mode": "force_generic_plan",
		"jit":             "off",
		// Longer than the session that appends may hang between the probe and its commit.
		"idle_in_transaction_session_timeout": pg.Milliseconds(s.limits.GroupTimeout),
		"lock_timeout":                        pg.Milliseconds(s.limits.KeyStoreTimeout()),
		"tcp_keepalives_idle":                 "15",
		"tcp_keepalives_interval":             "5",
		"tcp_keepalives_count":                "3",
	})
	if err != nil {
		return nil, err
	}
	return &leasePool{pool: pool, timeout: s.limits.KeyStoreTimeout()}, nil
}

func (p *leasePool) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if time.Now().UnixNano() < p.skippedUntil.Load() {
		return nil, errKeyStoreTimedOut
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err != nil && ctx.Err() != nil {
		p.skippedUntil.Store(time.Now().Add(keyStoreBackoff).UnixNano())
	}
	return conn, err
}

// errKeyStoreTimedOut says that the key store has not answered in time within keyStoreBackoff.
var errKeyStoreTimedOut = errors.New("the key store did not answer a moment ago")

// errLeaseLost says that the lease ended before the commit of the events. Nothing was written
// and the group may run again.
var errLeaseLost = errors.New("the lease on the keys was lost")

// externalLease is the lease of one group in another database: a transaction that
// ends after the events' commit. Without a pool, its zero value, it leases nothing: the key
// store is in the log's database.
type externalLease struct {
	pool           *leasePool
	conn           *pgxpool.Conn
	held           bool // the transaction has begun
	batchedLookups []anyLookup
}

// open gets a connection. A group opens its lease before it locks heads, so that a key store that
// does not answer blocks no other session; only a stalled partition holds its head lock already.
func (l *externalLease) open(ctx context.Context) (err error) {
	l.conn, err = l.pool.acquire(ctx)
	return err
}

// take begins the transaction and leases the keys that the group wants.
func (l *externalLease) take(ctx context.Context, f *facts) error {
	ctx, cancel := context.WithTimeout(ctx, l.pool.timeout)
	defer cancel()
	var err error
	for range leaseTries {
		if l.conn == nil {
			if err = l.open(ctx); err != nil {
				return err
			}
		}
		if err = l.read(ctx, f, beginAppend, "set local synchronous_commit = off"); err == nil {
			l.held = true
			return nil
		}
		l.drop()
		if !pg.IsUnavailable(err) {
			return err
		}
		l.pool.pool.Reset()
	}
	return err
}

// read answers the pending lookups of keys, after the given statements.
func (l *externalLease) read(ctx context.Context, f *facts, before ...string) error {
	ctx, cancel := context.WithTimeout(ctx, l.pool.timeout)
	defer cancel()
	var batch pgx.Batch
	for _, sql := range before {
		batch.Queue(sql)
	}
	l.batchedLookups = queuePending(&batch, f.keyStoreLookups, l.batchedLookups[:0])
	results := l.conn.SendBatch(ctx, &batch)
	defer results.Close()
	for range before {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	for _, p := range l.batchedLookups {
		if err := p.read(results); err != nil {
			return err
		}
	}
	return results.Close()
}

// probe checks, just before the events' commit, that the lease still exists.
func (l *externalLease) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.pool.timeout)
	defer cancel()
	_, err := l.conn.Exec(ctx, "select 1")
	return err
}

// release ends the lease, if there is one.
func (l *externalLease) release() {
	if l.conn == nil {
		return
	}
	if l.held {
		ctx, cancel := context.WithTimeout(context.Background(), pg.CloseTimeout)
		defer cancel()
		if _, err := l.conn.Exec(ctx, "rollback"); err != nil {
			l.drop()
			return
		}
	}
	l.conn.Release()
	l.conn, l.held = nil, false
}

// drop closes the connection; the server ends the lease.
func (l *externalLease) drop() {
	discard(l.conn)
	l.conn, l.held = nil, false
}

// openLease connects to an external key store for a group with sealed values. If it fails,
// the requests with sealed values are refused and the other requests continue.
func (g *group) openLease(ctx context.Context, ws []*queuedRequest) {
	if g.lease.pool == nil || g.keyStoreFault != nil || !anySealed(ws) {
		return
	}
	if err := g.lease.open(ctx); err != nil {
		g.refuseSubjectKeys(err)
	}
}

// takeLease leases the group's keys in the external key store, under the head locks.
func (g *group) takeLease(ctx context.Context) {
	if g.lease.conn == nil {
		return
	}
	if err := g.lease.take(ctx, g.facts); err != nil {
		g.facts.forgetSubjectKeys()
		g.refuseSubjectKeys(err)
	}
}

func (g *group) refuseSubjectKeys(err error) {
	g.engine.db.Log.Error("the key store gives no leases; personal values are refused", "error", pg.RedactError(err))
	g.keyStoreFault = leaseFault(err)
}

func leaseFault(err error) *fault.Error {
	if keystore.LacksKeyStore(err) {
		return keystore.Missing(err)
	}
	return keystore.Unavailable(err)
}
