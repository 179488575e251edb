package appender

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
)

const notifyInterval = 10 * time.Millisecond // per partition, at least

// notifier notifies listeners of partitions that have new events, after the commit and on its
// own connection: NOTIFY inside the append's transaction would take a lock of the
// whole cluster and make all partitions' commits wait for each other. Notifications that fail are
// dropped, and the append is successful; readers poll as well.
type notifier struct {
	engine     *Engine
	mu         sync.Mutex
	heads      map[event.PartitionID]event.Sequence // of partitions that grew since their last notification
	notifiedAt map[event.PartitionID]time.Time
	wake       chan struct{}
	stop       chan struct{}
	done       chan struct{}
}

func startNotifier(s *Engine) *notifier {
	n := &notifier{
		engine: s, heads: map[event.PartitionID]event.Sequence{}, notifiedAt: map[event.PartitionID]time.Time{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go n.run()
	return n
}

func (n *notifier) markGrown(p event.PartitionID, head event.Sequence) {
	n.mu.Lock()
	n.heads[p] = max(n.heads[p], head)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) close() {
	close(n.stop)
	<-n.done
}

func (n *notifier) run() {
	defer close(n.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var conn *pgx.Conn
	defer func() { pg.CloseConn(conn) }()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		stopping := false
		select {
		case <-n.wake:
		case <-timer.C:
		case <-n.stop:
			stopping = true
		}
		due, wait := n.takeDue(stopping)
		if len(due) > 0 {
			conn = n.notify(ctx, conn, due)
			if conn == nil && !stopping {
				n.waitToReconnect()
			}
		}
		if stopping {
			return
		}
		if wait > 0 {
			timer.Reset(wait)
		}
	}
}

// waitToReconnect waits ReconnectPause after a failure, or until the notifier is closed.
func (n *notifier) waitToReconnect() {
	timer := time.NewTimer(pg.ReconnectPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.stop:
		// run finds the channel closed and ends.
	}
}

type growth struct {
	partition event.PartitionID
	head      event.Sequence
}

// takeDue removes the partitions that may be notified now, all of them on request, and returns how
// long the other partitions have to wait.
func (n *notifier) takeDue(all bool) (due []growth, wait time.Duration) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for p, head := range n.heads {
		if left := notifyInterval - now.Sub(n.notifiedAt[p]); left > 0 && !all {
			wait = max(wait, left)
			continue
		}
		due = append(due, growth{p, head})
		n.notifiedAt[p] = now
		delete(n.heads, p)
	}
	return due, wait
}

func (n *notifier) notify(ctx context.Context, conn *pgx.Conn, due []growth) *pgx.Conn {
	ctx, cancel := context.WithTimeout(ctx, n.engine.limits.NotifyTimeout)
	defer cancel()
	var err error
	if conn == nil {
		if conn, err = n.engine.db.Connect(ctx, n.engine.db.Config.DSN, "backbone notify"); err != nil {
			n.engine.db.Log.Warn("cannot notify; readers poll", "error", pg.RedactError(err))
			return nil
		}
	}
	var batch pgx.Batch
	for _, d := range due {
		batch.Queue(appenderdb.NotifyChannel, eventlog.ChannelAppended, appendedPayload(d.partition, d.head))
	}
	if err = conn.SendBatch(ctx, &batch).Close(); err != nil {
		n.engine.db.Log.Warn("cannot notify; readers poll", "error", pg.RedactError(err))
		pg.CloseConn(conn)
		return nil
	}
	return conn
}

// appendedPayload renders the payload of a notification: {"partition":17,"sequence":"4242"}.
func appendedPayload(p event.PartitionID, head event.Sequence) string {
	b := append(make([]byte, 0, 64), `{"partition":`...)
	b = strconv.AppendUint(b, uint64(p), 10)
	b = append(b, `,"sequence":"`...)
	b = strconv.AppendUint(b, uint64(head), 10)
	return string(append(b, `"}`...))
}
