package appender_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// network is the connection between a store and its database, which tests break.
type network struct {
	mu      sync.Mutex
	at      string        // the statement that cut waits for
	cut     func(*wire)   // called once when an appender is about to send that statement
	refused atomic.Bool   // new connections
	aborts  atomic.Int32  // how many connections of appenders still answer their commits with a rollback
	jam     chan struct{} // closed: the end of what keeps new connections waiting; nil: nothing does
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if n.refused.Load() {
		return nil, errors.New("refused")
	}
	n.mu.Lock()
	jam := n.jam
	n.mu.Unlock()
	if jam != nil {
		select {
		case <-jam:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, network: n}, nil
}

// atCommit calls f with the appender's connection before it sends the next commit.
func (n *network) atCommit(f func(*wire)) { n.before("commit", f) }

// atWrite calls f before the appender sends the inserts of events: together with the commit,
// unless keys are leased in another database.
func (n *network) atWrite(f func(*wire)) { n.before(eventlog.InsertEvents, f) }

func (n *network) before(statement string, f func(*wire)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at, n.cut = statement, f
}

// freeze blocks the network before an appender's events are written.
func (n *network) freeze(t *testing.T) (reached <-chan struct{}, thaw func()) {
	t.Helper()
	frozen, thawed := make(chan struct{}), make(chan struct{})
	thaw = sync.OnceFunc(func() { close(thawed) })
	t.Cleanup(thaw) // or the store could not be closed
	n.atWrite(func(*wire) {
		close(frozen)
		<-thawed
	})
	return frozen, thaw
}

// delay delays new connections.
func (n *network) delay(t *testing.T) (end func()) {
	t.Helper()
	jam := make(chan struct{})
	end = sync.OnceFunc(func() { close(jam) })
	t.Cleanup(end)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.jam = jam
	return end
}

// requireCut checks that the connection was broken at the intended statement.
func (n *network) requireCut(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	require.Nil(t, n.cut, "the statement was never sent")
}

type wire struct {
	net.Conn
	network  *network
	appends  bool              // an appender's, as its start-up message says
	prepared map[string]string // SQL by the name of the statement
	deaf     atomic.Bool       // what the server says next is lost
	lost     atomic.Bool
}

func (w *wire) Write(b []byte) (int, error) {
	if w.lost.Load() {
		return 0, net.ErrClosed
	}
	w.network.mu.Lock()
	cut := w.network.cut
	w.appends = w.appends || bytes.Contains(b, []byte("application_name\x00backbone appends\x00"))
	if commit := []byte("\x00commit\x00"); w.appends && bytes.Contains(b, commit) && w.network.aborts.Add(-1) >= 0 {
		b = bytes.Replace(b, commit, []byte("\x00abort \x00"), 1) // its Parse message
	}
	if sent := w.executed(b); cut == nil || !w.appends || !slices.Contains(sent, w.network.at) {
		w.network.mu.Unlock()
		return w.Conn.Write(b)
	}
	w.network.cut = nil
	w.network.mu.Unlock()
	cut(w)
	if w.lost.Load() {
		return 0, net.ErrClosed
	}
	return w.Conn.Write(b)
}

// executed is the SQL of the statements that whole messages execute. A message is its
// type, its length without the type, and its body; that of a start-up has no type.
func (w *wire) executed(messages []byte) (statements []string) {
	for len(messages) > 5 && messages[0] != 0 {
		end := 1 + int(binary.BigEndian.Uint32(messages[1:]))
		if end > len(messages) {
			break
		}
		first, rest, _ := bytes.Cut(messages[5:end], []byte{0})
		second, _, _ := bytes.Cut(rest, []byte{0})
		switch messages[0] {
		case 'P': // Parse: the statement's name, its SQL
			if w.prepared == nil {
				w.prepared = map[string]string{}
			}
			w.prepared[string(first)] = string(second)
		case 'B': // Bind: the portal's name, the statement's
			statements = append(statements, w.prepared[string(second)])
		}
		messages = messages[end:]
	}
	return statements
}

// Read may have begun before the wire was cut: the driver listens while a write takes
// long.
func (w *wire) Read(b []byte) (int, error) {
	if w.lost.Load() {
		return 0, net.ErrClosed
	}
	n, err := w.Conn.Read(b)
	if w.deaf.Load() {
		w.drain(bytes.Clone(b[:n]), err)
	}
	if w.lost.Load() { // lost while the answer came
		return 0, net.ErrClosed
	}
	return n, err
}

// drain reads the rest of the server's answer, so that the commit is done, and closes the
// connection.
func (w *wire) drain(answer []byte, err error) {
	// ReadyForQuery in state idle: the transaction is over.
	for b := make([]byte, 4096); err == nil && !bytes.HasSuffix(answer, []byte{'Z', 0, 0, 0, 5, 'I'}); {
		var n int
		n, err = w.Conn.Read(b)
		answer = append(answer, b[:n]...)
	}
	w.lose()
}

// lose closes the connection before anything is sent.
func (w *wire) lose() {
	w.lost.Store(true)
	_ = w.Close()
}

// loseAnswer sends the pending messages and drops the server's answer.
func (w *wire) loseAnswer() { w.deaf.Store(true) }

func throughNetwork(n *network) pgtest.Option {
	return func(c *postgres.Config) { c.Appenders, c.DialFunc = 1, n.dial }
}

// openConnections opens the appender's connection by a first append.
func openConnections(t *testing.T, s *postgres.Database, r ports.AppendRequest) {
	t.Helper()
	_, err := s.Appender.Append(t.Context(), r)
	require.NoError(t, err)
}

func TestResolveOutcome_ConnectionLostBeforeCommit(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := pgtest.Open(t, pgtest.Database(t), throughNetwork(n))
	p := pgtest.NewPartitions(t, s, 1)[0]
	openConnections(t, s, pgtest.Invoice(p, 1))
	n.atCommit((*wire).lose)
	result, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	n.requireCut(t)
	require.NoError(t, err, "the group is absent and runs again")
	require.EqualValues(t, 2, result.Head)
	require.Equal(t, 2, pgtest.RequireVerified(t, s, p))
}

func TestResolveOutcome_ConnectionLostAfterCommit(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := pgtest.Open(t, pgtest.Database(t), throughNetwork(n))
	p := pgtest.NewPartitions(t, s, 1)[0]
	openConnections(t, s, pgtest.Invoice(p, 1))
	n.atCommit((*wire).loseAnswer)
	r := pgtest.Invoice(p, 3)
	result, err := s.Appender.Append(t.Context(), r)
	n.requireCut(t)
	require.NoError(t, err, "the group is found")
	require.False(t, result.Replayed)
	require.Len(t, result.Events, 3)
	stored, err := s.Events.EventByID(t.Context(), p, r.Events[2].ID)
	require.NoError(t, err)
	require.Equal(t, stored.Checksum, result.Events[2].Checksum)
	require.Equal(t, 4, pgtest.RequireVerified(t, s, p))
}

func TestResolveOutcome_KeyWithoutEvents(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*wire){"before": (*wire).lose, "after": (*wire).loseAnswer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &network{}
			s := pgtest.Open(t, pgtest.Database(t), throughNetwork(n))
			p := pgtest.NewPartitions(t, s, 1)[0]
			request := func() ports.AppendRequest {
				r := pgtest.Invoice(p, 1)
				r.Events, r.Streams = nil, nil
				return r
			}
			openConnections(t, s, request())
			n.atCommit(cut)
			r := request()
			_, err := s.Appender.Append(t.Context(), r)
			n.requireCut(t)
			require.NoError(t, err)
			_, found, err := s.Intents.IdempotencyOutcome(t.Context(), p, r.Idempotency.Key, time.Now())
			require.NoError(t, err)
			require.True(t, found)
		})
	}
}

func TestDrillOutcomeUnknown(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := pgtest.Open(t, pgtest.Database(t), throughNetwork(n))
	p := pgtest.NewPartitions(t, s, 1)[0]
	openConnections(t, s, pgtest.Invoice(p, 1))
	n.atCommit(func(w *wire) {
		n.refused.Store(true)
		w.loseAnswer()
	})
	r := pgtest.Invoice(p, 1)
	_, err := s.Appender.Append(t.Context(), r)
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "append.outcome_unknown", f.Code)
	require.Equal(t, fault.Timeout, f.Kind)
	require.Equal(t, r.Idempotency.Key, f.Attributes["idempotency_key"])

	n.refused.Store(false)
	again, err := s.Appender.Append(t.Context(), r)
	require.NoError(t, err)
	require.True(t, again.Replayed, "it had been written")
	require.Equal(t, 2, pgtest.RequireVerified(t, s, p))
}

func TestDrillBackendKilled(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 2)
	stop := make(chan struct{})
	var acknowledged [2]atomic.Int64 // of each partition
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Appender.Append(context.Background(), pgtest.Invoice(p[i%2], 1)); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				acknowledged[i%2].Add(1)
			}
		})
	}
	killer := pgtest.Connect(t, dsn)
	for range 10 {
		// A group that loses several connections in a row is refused, so both stores make
		// progress between kills: 25 answers are more than the groups before the kill held.
		seen := [2]int64{acknowledged[0].Load(), acknowledged[1].Load()}
		testkit.Eventually(t, pgtest.WaitLimit, func() bool { return acknowledged[0].Load() >= seen[0]+25 && acknowledged[1].Load() >= seen[1]+25 })
		_, err := killer.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name IN ('backbone appends', 'backbone notify')`)
		require.NoError(t, err)
	}
	close(stop)
	wg.Wait()
	written := pgtest.RequireVerified(t, s, p[0]) + pgtest.RequireVerified(t, s, p[1])
	require.EqualValues(t, acknowledged[0].Load()+acknowledged[1].Load(), written)
}

func TestDrillHungLockHolder(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	n := &network{}
	hanging, healthy := pgtest.Open(t, dsn, pgtest.WithDefaultLimits, throughNetwork(n)), pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, healthy, 1)[0]
	openConnections(t, hanging, pgtest.Invoice(p, 1))
	held, thaw := n.freeze(t)
	late := send(context.Background(), hanging, pgtest.Invoice(p, 1))
	pgtest.Receive(t, held, "what it is about to write: it has the head lock and says nothing more")
	_, err := healthy.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.NoError(t, err, "the server ended the hanging session and released its lock")
	thaw()
	require.NoError(t, (<-late).err, "the group was not committed and runs again")
	require.Equal(t, 3, pgtest.RequireVerified(t, healthy, p))
}

func TestAppend_UnreachableDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := pgtest.Open(t, pgtest.Database(t), throughNetwork(n))
	p := pgtest.NewPartitions(t, s, 1)[0]
	n.refused.Store(true)
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	n.refused.Store(false)
	_, err = s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.NoError(t, err)
}

func TestNotify_FailureDoesNotFailAppend(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := pgtest.Open(t, pgtest.Database(t), throughNetwork(n))
	p := pgtest.NewPartitions(t, s, 1)[0]
	// The appender's first append opens its connection; the notifier cannot connect.
	openConnections(t, s, ports.AppendRequest{Partition: p})
	n.refused.Store(true)
	for range 5 {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.NoError(t, err)
	}
	n.refused.Store(false)
	require.Equal(t, 5, pgtest.RequireVerified(t, s, p))
}

// A commit that the server answers with a rollback has written nothing: the group runs again, and
// its callers may send their requests again.
func TestAppend_CommitAnsweredByRollback(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := pgtest.Open(t, pgtest.Database(t), throughNetwork(n))
	p := pgtest.NewPartitions(t, s, 1)[0]
	n.aborts.Store(2)
	r := pgtest.Invoice(p, 1)
	_, err := s.Appender.Append(t.Context(), r)
	require.NoError(t, err)
	require.Negative(t, n.aborts.Load(), "two commits were rolled back")
	require.Equal(t, 1, pgtest.RequireVerified(t, s, p))
}

func TestAppend_CommitAlwaysAnsweredByRollback(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := pgtest.Open(t, pgtest.Database(t), throughNetwork(n))
	p := pgtest.NewPartitions(t, s, 1)[0]
	n.aborts.Store(100)
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "store.unavailable", f.Code)
	require.Positive(t, f.RetryAfter)
}

// A request that always meets deadlocks is refused as one that may be sent again, not as one
// with a value that the store rejects.
func TestAppend_PersistentSerializationFailureIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, sqlstate := range []string{"40P01", "40001"} {
		t.Run(sqlstate, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			s := pgtest.Open(t, dsn, pgtest.SingleAppender)
			p := pgtest.NewPartitions(t, s, 1)[0]
			pgtest.Execute(t, dsn, `CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION SQLSTATE '`+sqlstate+`'; END $$`)
			pgtest.Execute(t, dsn, `CREATE TRIGGER fail BEFORE INSERT ON backbone.idempotency_keys FOR EACH ROW EXECUTE FUNCTION public.fail()`)
			r := pgtest.Invoice(p, 1)
			_, err := s.Appender.Append(t.Context(), r)
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, "store.unavailable", f.Code)
			require.Equal(t, fault.Unavailable, f.Kind)
			require.Positive(t, f.RetryAfter)

			pgtest.Execute(t, dsn, `DROP TRIGGER fail ON backbone.idempotency_keys`)
			_, err = s.Appender.Append(t.Context(), r)
			require.NoError(t, err, "nothing was written before")
			require.Equal(t, 1, pgtest.RequireVerified(t, s, p))
		})
	}
}

// A request whose caller leaves is counted, whether it still waits or runs.
func TestAppend_EndedContextIsObserved(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t, pgtest.Database(t), pgtest.SingleAppender)
	p := pgtest.NewPartitions(t, s, 1)[0]
	reached, resume := pgtest.Observer(s).PauseAfterCommit(t)
	runningContext, leaveRunning := context.WithCancel(t.Context())
	running := send(runningContext, s, pgtest.Invoice(p, 1))
	pgtest.Receive(t, reached, "the first group")
	waitingContext, leaveWaiting := context.WithCancel(t.Context())
	waiting := send(waitingContext, s, pgtest.Invoice(p, 1))
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) > 0 })
	leaveWaiting()
	require.ErrorIs(t, (<-waiting).err, context.Canceled)
	leaveRunning()
	require.Equal(t, "append.outcome_unknown", fault.CodeOf((<-running).err))
	require.Equal(t, []string{"append.outcome_unknown", "append.outcome_unknown"}, pgtest.Observer(s).Codes())
	resume()
}
