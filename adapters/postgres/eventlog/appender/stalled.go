package appender

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// An appender waits only briefly for a lock that another session holds, such as an
// administrator's session on a head row. A partition whose lock a group did not acquire is
// stalled: its requests, and later ones, wait in a stalledPartition, and the appender serves
// the other partitions. A stalledPartition attempts to acquire the lock until its requests'
// deadline, in one of a few slots with a connection each. It ends when it has acquired the lock
// and its next group is answered; the appender then serves the partition again. More stalled
// partitions of one appender than there are slots have a common cause, such as a lock on a whole
// table: when one of them ends, the appender takes all of them back and tries them together.
//
// The waits, each at most Limits.LockTimeout:
//
//	lockWait     of a group for one lock: lock_timeout of its transaction
//	attemptWait  of one attempt of a stalled partition for its head lock
//	deadline     of a request for all locks that it meets: Limits.LockTimeout after the start of
//	             the group that timed out, or after its arrival in a stalled partition
const (
	// lockWait is pg.ShortLockWait. Where groups hold their locks for longer than that, it is
	// the time of groupsBefore groups, at most maxLockWait: groups of other nodes may hold the
	// lock, and they take about as long as this node's.
	groupsBefore = 4
	maxLockWait  = 2 * time.Second
	stalledSlots = 4 // of all appenders together
	// Where at least as many partitions of the node are stalled as there are slots, each attempt
	// is so short that all have one within stalledRound, but never shorter than minAttempt.
	stalledRound = time.Second
	minAttempt   = 10 * time.Millisecond
	// stalledPause is the pause between two attempts of a partition that acquired its head lock
	// and not another one.
	stalledPause = 20 * time.Millisecond
)

// stalledPartition holds the requests of one partition that wait for a lock of another
// session. The queue's mu guards its fields.
type stalledPartition struct {
	partition event.PartitionID
	nextGroup []*queuedRequest // run as one group once the lock is acquired; in borrowedLoad, not in load
	later     []*queuedRequest // of the groups after that; in load and stalledLoad
	isRunning bool             // a slot has taken nextGroup and runs it
	recalled  chan struct{}    // closed when the appender has taken its requests back
}

// isolate makes a partition a stalled one and starts to serve it. It is called with mu held.
func (q *queue) isolate(p event.PartitionID) *stalledPartition {
	d := &stalledPartition{partition: p, recalled: make(chan struct{})}
	q.stalled[p], q.suspects[p] = d, true
	q.startServing(d)
	return d
}

// enqueue adds a request to those of the stalled partition. It is called with the
// queue's mu held, and the queue's load counts the request already.
func (d *stalledPartition) enqueue(q *queue, w *queuedRequest, now time.Time) {
	w.setDeadline(now.Add(q.maxWait))
	d.later = append(d.later, w)
	q.stalledLoad = q.stalledLoad.plus(1, w.bytes)
}

// setDeadline bounds how long a request waits for locks of other sessions, from the first
// one that it meets; a second lock does not extend the deadline.
func (w *queuedRequest) setDeadline(until time.Time) {
	if w.deadline.IsZero() {
		w.deadline = until
	}
}

// stall moves the requests of a group that timed out waiting for a lock, and of which nothing
// was written, into stalled partitions in their order, followed by the queued requests of the
// same partitions. It returns the requests that borrowedLoad has no room for: it may hold as
// much as the queue. Their callers are refused at once.
func (q *queue) stall(ws []*queuedRequest, until time.Time) (refused []*queuedRequest) {
	if len(ws) == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range ws {
		if !w.state.CompareAndSwap(stateTaken, stateQueued) {
			continue // its caller gave up and has its answer
		}
		borrowed := q.borrowedLoad.plus(1, w.bytes)
		if q.borrowedLoad.requests > 0 && borrowed.exceeds(q.limit) {
			refused = append(refused, w)
			continue
		}
		q.borrowedLoad = borrowed
		p := w.request.Partition
		d := q.stalled[p]
		if d == nil {
			d = q.isolate(p)
		}
		w.setDeadline(until)
		d.nextGroup = append(d.nextGroup, w)
	}
	now := time.Now()
	kept := q.items[:0]
	for _, w := range q.items {
		if d := q.stalled[w.request.Partition]; d != nil {
			d.enqueue(q, w, now)
			continue
		}
		kept = append(kept, w)
	}
	clear(q.items[len(kept):])
	q.items = kept
	return refused
}

// next prepares the next attempt of a stalled partition. late are the requests whose
// deadline has passed; until is the earliest deadline in nextGroup. ended reports that the
// stalled partition has ended: no request waits in it, or the appender has recalled it.
func (q *queue) next(d *stalledPartition, now time.Time) (late []*queuedRequest, until time.Time, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stalled[d.partition] != d {
		return nil, until, true // recalled
	}
	dropEnded := func(ws []*queuedRequest, onDropped func(*queuedRequest)) []*queuedRequest {
		return slices.DeleteFunc(ws, func(w *queuedRequest) bool {
			switch {
			case !w.isQueued(): // its caller gave up and has its answer
			case now.Before(w.deadline):
				return false
			default:
				late = append(late, w)
			}
			onDropped(w)
			return true
		})
	}
	d.nextGroup = dropEnded(d.nextGroup, q.returnBorrowed)
	d.later = dropEnded(d.later, q.removeStalled)
	if len(d.nextGroup) == 0 {
		d.nextGroup, d.later = gather(d.nextGroup, d.later, q.limits, false, (*queuedRequest).isQueued, q.removeStalled)
		for _, w := range d.nextGroup {
			q.borrowedLoad = q.borrowedLoad.plus(1, w.bytes)
		}
	}
	if len(d.nextGroup) == 0 {
		delete(q.stalled, d.partition)
		q.signal()
		return late, until, true
	}
	return late, slices.MinFunc(d.nextGroup, func(a, b *queuedRequest) int { return a.deadline.Compare(b.deadline) }).deadline, false
}

// returnBorrowed subtracts a request from borrowedLoad.
func (q *queue) returnBorrowed(w *queuedRequest) { q.borrowedLoad = q.borrowedLoad.plus(-1, -w.bytes) }

func (q *queue) removeStalled(w *queuedRequest) {
	q.stalledLoad = q.stalledLoad.plus(-1, -w.bytes)
	q.remove(w)
}

// takeNextGroup takes the requests of nextGroup to run them. It leaves out those whose callers
// gave up, and returns nil when the appender has recalled the stalled partition.
func (q *queue) takeNextGroup(d *stalledPartition) []*queuedRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stalled[d.partition] != d {
		return nil // recalled
	}
	d.isRunning = true
	taken := make([]*queuedRequest, 0, len(d.nextGroup))
	for _, w := range d.nextGroup {
		q.returnBorrowed(w)
		if w.markTaken() {
			taken = append(taken, w)
		}
	}
	d.nextGroup = d.nextGroup[:0]
	return taken
}

// end ends a stalled partition whose next group was answered, or given up by its callers, and
// puts its later requests first in the queue. Their deadlines start again with the next lock that
// they wait for: where several nodes write to one partition, a request waits for many locks that
// are held briefly.
func (q *queue) end(d *stalledPartition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stalled[d.partition] != d {
		return // recalled
	}
	for _, w := range d.later {
		w.deadline = time.Time{}
	}
	q.requeue(d)
	if len(q.stalled) > stalledSlots {
		for _, other := range q.stalled {
			if !other.isRunning {
				q.requeue(other)
				close(other.recalled)
			}
		}
	}
	q.signal()
}

// requeue puts the requests of a stalled partition, which ends, before all queued ones. It is
// called with mu held.
func (q *queue) requeue(d *stalledPartition) {
	for _, w := range d.nextGroup {
		q.returnBorrowed(w)
		q.load = q.load.plus(1, w.bytes)
		q.partitionLoads[d.partition] = q.partitionLoads[d.partition].plus(1, w.bytes)
	}
	for _, w := range d.later {
		q.stalledLoad = q.stalledLoad.plus(-1, -w.bytes)
	}
	q.items = slices.Concat(d.nextGroup, d.later, q.items)
	d.nextGroup, d.later = nil, nil
	delete(q.stalled, d.partition)
	delete(q.suspects, d.partition)
}

// stallAgain returns requests that timed out on another lock to their stalled partition.
func (q *queue) stallAgain(d *stalledPartition, ws []*queuedRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d.isRunning = false
	for _, w := range ws {
		if w.state.CompareAndSwap(stateTaken, stateQueued) {
			d.nextGroup = append(d.nextGroup, w)
			q.borrowedLoad = q.borrowedLoad.plus(1, w.bytes)
		}
	}
}

// serveStalled repeats attempts of a stalled partition until it has ended.
func (a *appender) serveStalled(d *stalledPartition) {
	s := a.engine
	s.countStalled(1)
	defer s.countStalled(-1)
	var since time.Time // start of the first attempt that timed out; zero: none
	for {
		late, until, ended := a.queue.next(d, time.Now())
		for _, w := range late {
			w.answer <- answer{err: lockedFault(s.limits.LockTimeout)}
		}
		if ended {
			return
		}
		g := s.acquireSlot(until, d.recalled)
		if g == nil {
			continue
		}
		began := time.Now()
		timedOut := a.attemptStalled(g, d, until)
		s.freeSlots <- g
		switch {
		case !timedOut && since.IsZero():
		case !timedOut:
			s.db.Log.Info("appends of a legal entity continue", "partition", uint32(d.partition), "after", time.Since(since).String())
		case since.IsZero():
			since = began
			s.db.Log.Warn("appends of a legal entity wait for a lock that another session holds; backbone doctor --section contention names it",
				"partition", uint32(d.partition), "lock_timeout", s.limits.LockTimeout.String())
		}
		if !timedOut {
			a.queue.end(d)
			return
		}
	}
}

// countStalled changes the number of stalled partitions that are served, and reports it.
func (s *Engine) countStalled(change int) {
	s.stalledMu.Lock()
	defer s.stalledMu.Unlock()
	s.stalledPartitions += change
	s.metrics.ObserveStalledPartitions(s.stalledPartitions)
}

// acquireSlot waits for a slot, which is the right to a connection and the buffers of a group.
// It returns nil at the given time or when the stalled partition is recalled.
func (s *Engine) acquireSlot(until time.Time, recalled <-chan struct{}) *group {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case g := <-s.freeSlots:
		return g
	case <-timer.C:
		return nil
	case <-recalled:
		return nil
	}
}

// attemptWait is how long an attempt of a stalled partition may wait for its head lock.
func (s *Engine) attemptWait(until time.Time) time.Duration {
	wait := time.Until(until)
	s.stalledMu.Lock()
	n := s.stalledPartitions
	s.stalledMu.Unlock()
	if n >= stalledSlots {
		wait = min(wait, max(stalledRound*stalledSlots/time.Duration(n), minAttempt))
	}
	return max(wait, time.Millisecond) // PostgreSQL waits without limit for a timeout of 0
}

// attemptStalled waits for the head lock of a stalled partition and runs its next group in the
// same transaction. It reports whether it timed out on that lock or on another one; then the
// partition stays stalled.
func (a *appender) attemptStalled(g *group, d *stalledPartition, until time.Time) (timedOut bool) {
	if g.engine == nil {
		g.init(a.engine)
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.engine.limits.GroupTimeout)
	defer cancel()
	conn, err := g.waitForHead(ctx, d.partition, a.engine.attemptWait(until))
	if pg.IsLockTimeout(err) {
		return true
	}
	// After any other error conn is nil: the group begins a transaction itself and handles its
	// errors.
	ws := a.queue.takeNextGroup(d)
	if len(ws) == 0 {
		if conn != nil {
			discard(conn)
		}
		return false
	}
	g.openTransaction = conn
	unanswered := g.run(ws, false)
	if len(unanswered) == 0 {
		return false
	}
	a.queue.stallAgain(d, unanswered)
	time.Sleep(stalledPause)
	return true
}

// waitForHead begins the transaction of a stalled partition and acquires its head lock. It
// sends one statement at a time, because a timeout inside a pipeline would cost the
// connection.
func (g *group) waitForHead(ctx context.Context, p event.PartitionID, wait time.Duration) (*pgxpool.Conn, error) {
	conn, err := g.engine.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	err = func() error {
		if _, err := conn.Exec(ctx, beginAppend); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, pg.SetLockTimeout, pg.Milliseconds(wait)); err != nil {
			return err
		}
		if _, err := g.engine.queries.LockPartitionHeads(ctx, conn, []int32{int32(p)}); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, pg.SetLockTimeout, pg.Milliseconds(g.engine.lockWait()))
		return err
	}()
	if err == nil {
		return conn, nil
	}
	if _, failed := conn.Exec(ctx, "rollback"); failed != nil || !pg.IsLockTimeout(err) {
		discard(conn)
	} else {
		conn.Release()
	}
	return nil, err
}

// shortLockWait is lockWait while groups are fast.
func (s *Engine) shortLockWait() time.Duration { return min(pg.ShortLockWait, s.limits.LockTimeout) }

// lockWait is how long a group waits for each lock.
func (s *Engine) lockWait() time.Duration {
	wait := s.shortLockWait()
	if held := s.holdTimes.shortest(); held > wait {
		wait = min(groupsBefore*held, maxLockWait, s.limits.LockTimeout)
	}
	return wait
}

// holdTimes records how long the latest groups of this node held their head locks. lockWait uses
// the shortest: one slow group says nothing about the groups of other nodes.
type holdTimes struct {
	mu   sync.Mutex
	held [4]time.Duration
	next int
}

func (h *holdTimes) record(held time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[h.next] = held
	h.next = (h.next + 1) % len(h.held)
}

func (h *holdTimes) shortest() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Min(h.held[:])
}

// splitByLockState separates the requests of partitions whose heads are free now from those
// whose heads another session has locked.
func (g *group) splitByLockState(ws []*queuedRequest) (free, held []*queuedRequest, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.engine.limits.GroupTimeout)
	defer cancel()
	conn, err := g.engine.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Release()
	ids := make([]int32, len(g.partitions))
	for i, p := range g.partitions {
		ids[i] = int32(p)
	}
	found, err := g.engine.queries.ListFreeHeads(ctx, conn, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range ws {
		if slices.Contains(found, int32(w.request.Partition)) {
			free = append(free, w)
		} else {
			held = append(held, w)
		}
	}
	return free, held, nil
}

// handleLockTimeout returns the requests of a group that must wait for a lock. With probeLocks,
// and where the group has several partitions, it first runs the requests whose head rows are
// free, and returns the other requests.
func (g *group) handleLockTimeout(ws []*queuedRequest, probeLocks bool) (unanswered []*queuedRequest) {
	if !probeLocks || len(g.partitions) < 2 {
		return ws
	}
	free, held, err := g.splitByLockState(ws)
	if err != nil {
		g.engine.db.Log.Warn("the head rows that other sessions lock could not be listed; the whole append group waits", "error", pg.RedactError(err))
		return ws
	}
	if len(held) == 0 {
		return g.run(ws, false) // the lock was released since, or is not a head lock; the next run shows which
	}
	return slices.Concat(held, g.run(free, false))
}

// runHalves runs both halves of a group, the first one first. From the second it leaves out
// the partitions whose lock the first did not acquire, so that their requests keep their order.
func (g *group) runHalves(ws []*queuedRequest, probeLocks bool) (unanswered []*queuedRequest) {
	unanswered = g.run(ws[:len(ws)/2], probeLocks)
	if len(unanswered) == 0 {
		return g.run(ws[len(ws)/2:], probeLocks)
	}
	unanswered = slices.Clone(unanswered)
	var free []*queuedRequest
	for _, w := range ws[len(ws)/2:] {
		if slices.ContainsFunc(unanswered, func(v *queuedRequest) bool { return v.request.Partition == w.request.Partition }) {
			unanswered = append(unanswered, w)
		} else {
			free = append(free, w)
		}
	}
	if len(free) == 0 {
		return unanswered
	}
	return slices.Concat(unanswered, g.run(free, probeLocks))
}

// lockedFault is the fault of a request that waited for locks until its deadline, or that stall
// had no room for. Nothing was written.
func lockedFault(waited time.Duration) *fault.Error {
	return fault.New(fault.Unavailable, pg.CodeUnavailable,
		"another session of the database has held a lock that this legal entity's appends need for %s; try again, and end that session if it stays (backbone doctor --section contention names it)",
		waited.Round(time.Millisecond)).WithRetryAfter(pg.RetryAfter)
}
