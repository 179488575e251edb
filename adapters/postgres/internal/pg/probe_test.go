package pg_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

// recovery dials a server. While it is on, it refuses connections as a server does that is
// starting up.
type recovery struct {
	on      atomic.Bool
	refused atomic.Int64
}

func (r *recovery) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !r.on.Load() {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}
	return r.refuse()
}

func (r *recovery) refuse() (net.Conn, error) {
	r.refused.Add(1)
	near, far := net.Pipe()
	go func() {
		defer func() { _ = far.Close() }()
		server := pgproto3.NewBackend(far, far)
		if _, err := server.ReceiveStartupMessage(); err != nil {
			return
		}
		server.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P03", Message: "the database system is starting up"})
		_ = server.Flush()
	}()
	return near, nil
}

// TestProbeWithBackoff_RecoveringServer sends many requests while the server recovers: they
// are answered, and few of them make a connection.
func TestProbeWithBackoff_RecoveringServer(t *testing.T) {
	t.Parallel()
	const requests = 2000
	dsn := pgtest.Database(t)
	var r recovery
	s := pgtest.Open(t, dsn, func(c *postgres.Config) { c.DialFunc = r.dial })
	require.NoError(t, s.Ping(t.Context()))
	r.on.Store(true)
	pgtest.Execute(t, dsn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'backbone reads'`)
	began := time.Now()
	for range requests {
		err := s.Ping(t.Context())
		require.Equal(t, "store.unavailable", fault.CodeOf(err), err)
	}
	windows := int64(time.Since(began)/(100*time.Millisecond)) + 1
	require.Positive(t, r.refused.Load())
	require.LessOrEqual(t, r.refused.Load(), 8*windows, "the appenders' pool, who listens and who notifies ask too")
	r.on.Store(false)
	testkit.EventuallyNoError(t, pgtest.WaitLimit, func() error { return s.Ping(t.Context()) }, "it is asked again")
}

// TestProbeWithBackoff_SecondServerIsReached names two servers, as for a failover: while the one
// recovers, the other is reached by all who need a connection.
func TestProbeWithBackoff_SecondServerIsReached(t *testing.T) {
	t.Parallel()
	const recovering = "192.0.2.1" // reserved for documentation (RFC 5737); no server has it
	dsn, err := url.Parse(pgtest.Database(t))
	require.NoError(t, err)
	q := dsn.Query()
	if q.Get("host") == "" {
		q.Set("host", dsn.Hostname())
	}
	if q.Get("port") == "" {
		q.Set("port", dsn.Port())
	}
	healthy := q.Get("host")
	q.Set("host", recovering+","+healthy)
	q.Set("port", q.Get("port")+","+q.Get("port"))
	dsn.RawQuery, dsn.Host = q.Encode(), ""
	var r recovery
	s := pgtest.Open(t, dsn.String(), func(c *postgres.Config) {
		c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasPrefix(address, recovering) {
				return r.refuse()
			}
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, address)
		}
	})
	for range 4 { // of the pool: each needs a connection of its own
		conn, err := s.Pool().Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conn.Release)
	}
	require.Positive(t, r.refused.Load())
}
