package pg

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlstateCannotConnectNow is the answer of a server that starts, recovers or shuts down.
const sqlstateCannotConnectNow = "57P03"

// probeInterval is how long a pool opens no connection after a server refused one so.
const probeInterval = 100 * time.Millisecond

// pingAfter is how long a connection of a pool may be unused before it is pinged when it
// is used next. The library's default of one second would double the statements of an idle
// node, which queries each of its pools every few seconds.
const pingAfter = 10 * time.Second

// refusal is the answer of a server that accepts no connections.
type refusal struct {
	at  time.Time
	err *pgconn.PgError
}

// ProbeWithBackoff spares a recovering server a process for each connection attempt: within
// probeInterval of a refusal, further attempts get the same answer without connecting. A
// DSN that names several servers is always tried, because another one may accept.
func ProbeWithBackoff(config *pgxpool.Config) {
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	one := config.ConnConfig
	if slices.ContainsFunc(one.Fallbacks, func(o *pgconn.FallbackConfig) bool { return o.Host != one.Host || o.Port != one.Port }) {
		return
	}
	var last atomic.Pointer[refusal]
	handle := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(c *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == sqlstateCannotConnectNow {
			last.Store(&refusal{time.Now(), err})
		}
		return handle(c, err)
	}
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if r := last.Load(); r != nil && time.Since(r.at) < probeInterval {
			return r.err
		}
		return nil
	}
}
