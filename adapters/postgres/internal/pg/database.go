// Package pg is what all rooms of the PostgreSQL adapter share, and nothing else: the
// Database (pool, clock, log, time-outs of sessions, LISTEN), the translation of errors
// into faults, and the encoding of columns. It knows no table.
package pg

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Config says how to connect. Every member is required, but for Tracer.
type Config struct {
	// DSN connects as backbone_app. It may lead through a transaction pooler that
	// passes on start-up parameters.
	DSN string
	// ListenDSN connects to PostgreSQL directly, for LISTEN.
	ListenDSN string
	// ReadPoolSize bounds the connections of the pool that every room but the append
	// engine shares.
	ReadPoolSize int
	// ListenCheck is the silence after which a listening connection is probed.
	ListenCheck time.Duration
	// MaxClockSkew is how far the clock may be from the database's; negative: the clock is
	// injected and is not compared.
	MaxClockSkew time.Duration
	// Clock gives the time that rows are stamped with.
	Clock ports.Clock
	// Logger gets what operators must know.
	Logger *slog.Logger
	// Tracer follows statements (never their arguments); nil follows nothing.
	Tracer pgx.QueryTracer
	// DialFunc opens connections.
	DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

	Timeouts Timeouts
}

// Timeouts bounds how long our sessions may hold locks, and how long they wait for locks
// of other sessions.
type Timeouts struct {
	IdleInTransaction time.Duration // the server ends an appender that holds locks and hangs
	ProjectionWork    time.Duration // the server ends a hung session that holds a checkpoint, so that another node gets it
	Lock              time.Duration // a statement waits at most so long for a lock; appends: Config.LockTimeout
	Notify            time.Duration // a notification that cannot be sent is dropped
	// acquiring leases on work skips those that another session locks for longer
	LeaseWait time.Duration
}

// DefaultTimeouts are the time-outs of production. Tests that stop a session in the middle
// set longer ones.
var DefaultTimeouts = Timeouts{IdleInTransaction: 2 * time.Second, ProjectionWork: 10 * time.Second, Lock: 5 * time.Second, Notify: 5 * time.Second, LeaseWait: ShortLockWait}

// KeyStore bounds each query to an external key store, because the group holds head locks
// while it waits for the answer.
func (l Timeouts) KeyStore() time.Duration { return l.IdleInTransaction / 2 }

// Database is the connection to the log's database that all rooms share: the pool of
// reads and short transactions, the clock, the log and the time-outs of sessions.
type Database struct {
	Config Config
	Clock  ports.Clock
	Log    *slog.Logger
	Reads  *pgxpool.Pool
}

// Open opens the pool and makes sure that the server answers. Faults:
// store.dsn_invalid, store.unavailable.
func Open(ctx context.Context, c Config) (*Database, error) {
	s := &Database{Config: c, Clock: c.Clock, Log: c.Logger}
	var err error
	// With one plan for all values a statement locks and looks at the partitions it
	// needs only; custom plans cost half the point reads at eight partitions.
	if s.Reads, err = s.OpenPool(ctx, c.DSN, "backbone reads", c.ReadPoolSize, map[string]string{
		"plan_cache_mode": "force_generic_plan",
		"jit":             "off",
	}); err != nil {
		return nil, err
	}
	if err := s.Reads.Ping(ctx); err != nil {
		s.Reads.Close()
		return nil, UnavailableFault(err)
	}
	return s, nil
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
		// The library's text may quote the password.
		return nil, fault.New(fault.Invalid, "store.dsn_invalid", "the database address cannot be read; correct it")
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

// Now is the clock in the store's precision.
func (s *Database) Now() time.Time { return s.Clock.Now().UTC().Truncate(time.Microsecond) }

// CloseTimeout is how long closing a connection may take whose state is not known.
const CloseTimeout = time.Second
