package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// network is the wire between a store and its database, which tests cut.
type network struct {
	mu      sync.Mutex
	cut     func(*wire)   // called once at the next second round trip, before it is sent
	refused atomic.Bool   // new connections
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

// atCommit arms the network: f gets the appender's wire whose second round trip is
// about to be sent.
func (n *network) atCommit(f func(*wire)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = f
}

// freeze arms the network to stand still at the appender's second round trip, before it
// is sent.
func (n *network) freeze(t *testing.T) (reached <-chan struct{}, thaw func()) {
	t.Helper()
	frozen, thawed := make(chan struct{}), make(chan struct{})
	thaw = sync.OnceFunc(func() { close(thawed) })
	t.Cleanup(thaw) // or the store could not be closed
	n.atCommit(func(*wire) {
		close(frozen)
		<-thawed
	})
	return frozen, thaw
}

// delay keeps new connections waiting.
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

// requireCut checks that the wire was cut where the test meant it to be.
func (n *network) requireCut(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	require.Nil(t, n.cut, "no second round trip was seen")
}

type wire struct {
	net.Conn
	network *network
	appends bool // an appender's, as its start-up message says
	trips   int  // round trips since the network was armed
	lost    atomic.Bool
}

// sync is the message that ends each round trip.
var syncMessage = []byte{'S', 0, 0, 0, 4}

func (w *wire) Write(b []byte) (int, error) {
	if w.lost.Load() {
		return 0, net.ErrClosed
	}
	w.network.mu.Lock()
	cut := w.network.cut
	w.appends = w.appends || bytes.Contains(b, []byte("application_name\x00backbone appends\x00"))
	if cut != nil && w.appends && bytes.HasSuffix(b, syncMessage) {
		if w.trips++; w.trips == 2 {
			w.network.cut, w.trips = nil, 0
			w.network.mu.Unlock()
			cut(w)
			if w.lost.Load() {
				return 0, net.ErrClosed
			}
			return w.Conn.Write(b)
		}
	}
	w.network.mu.Unlock()
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	if w.lost.Load() {
		return 0, net.ErrClosed
	}
	n, err := w.Conn.Read(b)
	if w.lost.Load() { // lost while the answer came
		return 0, net.ErrClosed
	}
	return n, err
}

// lose drops the connection before anything is sent.
func (w *wire) lose() {
	w.lost.Store(true)
	_ = w.Close()
}

// loseAnswer lets the server have the round trip and drops what it says.
func (w *wire) loseAnswer() {
	w.Conn = &deaf{Conn: w.Conn, lost: &w.lost}
}

// deaf reads the server's whole answer, so that the commit is certainly done, and
// then fails.
type deaf struct {
	net.Conn
	lost *atomic.Bool
}

func (d *deaf) Read(b []byte) (int, error) {
	var tail []byte
	for {
		n, err := d.Conn.Read(b)
		tail = append(tail, b[:n]...)
		// ReadyForQuery in state idle: the transaction is over.
		if err != nil || bytes.HasSuffix(tail, []byte{'Z', 0, 0, 0, 5, 'I'}) {
			d.lost.Store(true)
			_ = d.Close()
			return 0, net.ErrClosed
		}
	}
}

func behind(n *network) option {
	return func(c *postgres.Config) { c.Appenders, c.DialFunc = 1, n.dial }
}

// warm prepares the statements, so that each round trip is one write.
func warm(t *testing.T, s *postgres.Store, r ports.AppendRequest) {
	t.Helper()
	_, err := s.Append(t.Context(), r)
	require.NoError(t, err)
}

func TestConnectionLostBeforeTheCommitArrives(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := open(t, database(t), behind(n))
	p := newBooks(t, s, 1)[0]
	warm(t, s, invoice(p, 1))
	n.atCommit((*wire).lose)
	result, err := s.Append(t.Context(), invoice(p, 1))
	n.requireCut(t)
	require.NoError(t, err, "the group is absent and runs again")
	require.EqualValues(t, 2, result.Head)
	require.Equal(t, 2, requireSound(t, s, p))
}

func TestConnectionLostAfterTheCommit(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := open(t, database(t), behind(n))
	p := newBooks(t, s, 1)[0]
	warm(t, s, invoice(p, 1))
	n.atCommit((*wire).loseAnswer)
	r := invoice(p, 3)
	result, err := s.Append(t.Context(), r)
	n.requireCut(t)
	require.NoError(t, err, "the group is found")
	require.False(t, result.Replayed)
	require.Len(t, result.Events, 3)
	stored, err := s.EventByID(t.Context(), p, r.Events[2].ID)
	require.NoError(t, err)
	require.Equal(t, stored.Checksum, result.Events[2].Checksum)
	require.Equal(t, 4, requireSound(t, s, p))
}

func TestConnectionLostAroundTheCommitOfAnIntentAlone(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*wire){"before": (*wire).lose, "after": (*wire).loseAnswer} {
		for _, withKey := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := &network{}
				s := open(t, database(t), behind(n))
				p := newBooks(t, s, 1)[0]
				request := func() ports.AppendRequest {
					r := invoice(p, 1)
					if !withKey {
						r.Idempotency = nil
					}
					r.Intent = &ports.IntentWrite{Intent: intent.Intent{
						ID: r.Events[0].ID, Type: "ap.submit_invoice", Status: intent.Denied, CreatedAt: time.Now(), UpdatedAt: time.Now(),
					}}
					r.Events, r.Streams = nil, nil
					return r
				}
				warm(t, s, request())
				n.atCommit(cut)
				r := request()
				_, err := s.Append(t.Context(), r)
				n.requireCut(t)
				require.NoError(t, err)
				in, err := s.Intent(t.Context(), p, r.Intent.Intent.ID)
				require.NoError(t, err)
				require.Equal(t, 1, in.Revision)
			})
		}
	}
}

func TestAnOutcomeThatCannotBeFoundOutIsCalledUnknown(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := open(t, database(t), behind(n))
	p := newBooks(t, s, 1)[0]
	warm(t, s, invoice(p, 1))
	n.atCommit(func(w *wire) {
		n.refused.Store(true)
		w.loseAnswer()
	})
	r := invoice(p, 1)
	_, err := s.Append(t.Context(), r)
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "append.outcome_unknown", f.Code)
	require.Equal(t, fault.Timeout, f.Kind)
	require.Equal(t, r.Idempotency.Key, f.Attributes["idempotency_key"])

	n.refused.Store(false)
	again, err := s.Append(t.Context(), r)
	require.NoError(t, err)
	require.True(t, again.Replayed, "it had been written")
	require.Equal(t, 2, requireSound(t, s, p))
}

func TestAKilledBackendLosesNothing(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s := open(t, dsn)
	p := newBooks(t, s, 2)
	stop := make(chan struct{})
	var acknowledged atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Append(context.Background(), invoice(p[i%2], 1)); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				acknowledged.Add(1)
			}
		})
	}
	killer := connect(t, dsn)
	for round := range int64(10) {
		testkit.Eventually(t, aWhile, func() bool { return acknowledged.Load() > round*50 })
		_, err := killer.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name IN ('backbone appends', 'backbone notify')`)
		require.NoError(t, err)
	}
	close(stop)
	wg.Wait()
	written := requireSound(t, s, p[0]) + requireSound(t, s, p[1])
	require.EqualValues(t, acknowledged.Load(), written)
}

func TestAHolderThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	n := &network{}
	hanging, healthy := open(t, dsn, usual, behind(n)), open(t, dsn)
	p := newBooks(t, healthy, 1)[0]
	warm(t, hanging, invoice(p, 1))
	held, thaw := n.freeze(t)
	late := send(context.Background(), hanging, invoice(p, 1))
	receive(t, held, "the second round trip: it has the head lock and says nothing more")
	_, err := healthy.Append(t.Context(), invoice(p, 1))
	require.NoError(t, err, "it hangs on, and the lock is free all the same")
	thaw()
	require.NoError(t, (<-late).err, "it finds its group absent and runs it again")
	require.Equal(t, 3, requireSound(t, healthy, p))
}

func TestWithoutADatabaseAppendsAreUnavailable(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := open(t, database(t), behind(n))
	p := newBooks(t, s, 1)[0]
	n.refused.Store(true)
	_, err := s.Append(t.Context(), invoice(p, 1))
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	n.refused.Store(false)
	_, err = s.Append(t.Context(), invoice(p, 1))
	require.NoError(t, err)
}

func TestAFailedNotificationDoesNotFailAnAppend(t *testing.T) {
	t.Parallel()
	n := &network{}
	s := open(t, database(t), behind(n))
	p := newBooks(t, s, 1)[0]
	// The appender's first append opens its connection; the notifier finds no way.
	warm(t, s, ports.AppendRequest{Partition: p})
	n.refused.Store(true)
	for range 5 {
		_, err := s.Append(t.Context(), invoice(p, 1))
		require.NoError(t, err)
	}
	n.refused.Store(false)
	require.Equal(t, 5, requireSound(t, s, p))
}
