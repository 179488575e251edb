package eventlog_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// newHeadWatcher runs a watch over a store. Without listening it polls only.
func newHeadWatcher(t *testing.T, s *postgres.Database, wakeUps ports.WakeUps, poll time.Duration) *subscriptions.HeadWatcher {
	t.Helper()
	w := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: s.Events, WakeUps: wakeUps, Clock: system.Clock{}, Poll: poll}))
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return w
}

// awaitHead waits until a watch knows a head.
func awaitHead(t *testing.T, w *subscriptions.HeadWatcher, p event.PartitionID, want event.Sequence) {
	t.Helper()
	limit := time.NewTimer(pgtest.WaitLimit)
	defer limit.Stop()
	for {
		heads, changed := w.Heads()
		if heads[p].Sequence >= want {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			require.Failf(t, "a head was not seen in time", "sequence %d of %d", heads[p].Sequence, want)
		}
	}
}

// awaitListener waits until a session listens for appends whose pid is not before. The last
// statement of a session that was probed is the probe.
func awaitListener(t *testing.T, dsn string, before int32) (pid int32) {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		err := conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'backbone listen' AND query IN ('LISTEN "event_appended"', '-- ping') AND pid <> $1`, before).Scan(&pid)
		return err == nil
	}, "no session listens")
	return pid
}

// startSignal reports when its listener listens and reads notifications: the server shows
// the session as listening before that.
type startSignal struct {
	ports.WakeUps
	begun chan struct{} // of capacity 1
}

func (b startSignal) Listen(ctx context.Context, wake func(event.PartitionID)) error {
	return b.WakeUps.Listen(ctx, func(p event.PartitionID) {
		wake(p)
		if p == 0 {
			select {
			case b.begun <- struct{}{}:
			default:
			}
		}
	})
}

// Every append is seen while the listening connection is killed over and over: a listener wakes
// when it begins to listen again, since it may have lost notifications.
func TestDrillListenerKilled(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	w := newHeadWatcher(t, s, s.Events, time.Hour)
	killer := pgtest.Connect(t, dsn)
	pid := awaitListener(t, dsn, 0)
	for range 6 {
		_, err := killer.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid)
		require.NoError(t, err)
		for range 10 {
			result, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
			require.NoError(t, err)
			awaitHead(t, w, p, result.Head)
		}
		pid = awaitListener(t, dsn, pid)
	}
}

// lossyNetwork drops the data that the server sends to listening connections.
type lossyNetwork struct {
	on    atomic.Bool
	conns atomic.Int64
}

func (d *lossyNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, network: d}, nil
}

// lossyConn is a connection over a lossyNetwork.
type lossyConn struct {
	net.Conn
	network *lossyNetwork
	listens atomic.Bool
}

func (h *lossyConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("application_name\x00backbone listen\x00")) {
		h.listens.Store(true)
		h.network.conns.Add(1)
	}
	return h.Conn.Write(b)
}

// Read drops everything that arrives while the network is lossy, without an error or an end.
func (h *lossyConn) Read(b []byte) (int, error) {
	for {
		n, err := h.Conn.Read(b)
		if err != nil || !h.network.on.Load() || !h.listens.Load() {
			return n, err
		}
	}
}

// A listener without notifications probes its connection, and opens another one.
func TestDrillListenerWithoutNotifications(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	var network lossyNetwork
	s := pgtest.Open(t, dsn, func(c *postgres.Config) { c.DialFunc, c.Limits.ListenCheck = network.dial, 50*time.Millisecond })
	p := pgtest.NewPartitions(t, s, 1)[0]
	listener := startSignal{s.Events, make(chan struct{}, 1)}
	w := newHeadWatcher(t, s, listener, time.Hour)
	pgtest.Receive(t, listener.begun, "no session listens")
	before := network.conns.Load()
	network.on.Store(true)
	result, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.NoError(t, err)
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return network.conns.Load() > before }, "it never probed")
	network.on.Store(false)
	awaitHead(t, w, p, result.Head)
}

// However fast a partition grows, a notification is sent at most every 10 ms, and one for the
// last append: one per append would serialise the commits of the whole cluster.
func TestNotify_CoalescesPerPartition(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	listener := pgtest.Connect(t, dsn)
	_, err := listener.Exec(t.Context(), "LISTEN event_appended")
	require.NoError(t, err)
	const writers, each = 16, 40
	started := time.Now()
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range each {
				if _, err := s.Appender.Append(context.WithoutCancel(t.Context()), pgtest.Invoice(p, 1)); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	last := `"sequence":"640"}`
	received := 0
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.WaitLimit)
	defer cancel()
	for {
		n, err := listener.WaitForNotification(ctx)
		require.NoError(t, err)
		received++
		if bytes.HasSuffix([]byte(n.Payload), []byte(last)) {
			break
		}
	}
	took := time.Since(started)
	writing.Wait()
	require.LessOrEqual(t, received, int(took/(10*time.Millisecond))+1)
}
