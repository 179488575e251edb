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

// An appender waits for locks of somebody else, such as a session of an administrator
// that holds a head row, only briefly. Whatever a group misses a lock for goes on in
// detours, one per partition, and the appender serves the other partitions. A detour
// waits for the lock as long as its requests have patience, in one of a few slots with
// a connection each. Once it has had the lock, its partition is the appender's again.
// A partition whose lock nobody has had since goes into a detour at once. More detours
// than slots have a common cause, such as a lock on a whole table: when one of them has
// had its lock, the appender tries all of them together.
const (
	// Where groups take longer, those of other nodes do too: several of them may be
	// before this one, which waits for so many, but at most longestBrief.
	groupsBefore = 4
	longestBrief = 2 * time.Second
	detourSlots  = 4
	// With more detours than slots they take turns: all of them within a turn, if each
	// of them waits at least as long as shortTurn.
	detourTurn = time.Second
	shortTurn  = 10 * time.Millisecond
	// detourPause is between two attempts of a detour that has had the head and missed
	// another lock.
	detourPause = 20 * time.Millisecond
)

// detour is the requests of one partition that wait for a lock of somebody else. Its
// fields are the queue's.
type detour struct {
	partition event.PartitionID
	first     []*waiting // that missed the lock together; the queue's load does not count them
	rest      []*waiting // that came after them
	runs      bool       // it has the lock, and its first requests run
	recalled  chan struct{}
}

// divert gives a partition a detour. It is called with mu.
func (q *queue) divert(p event.PartitionID) *detour {
	d := &detour{partition: p, recalled: make(chan struct{})}
	q.detours[p], q.suspects[p] = d, true
	q.begin(d)
	return d
}

// follow lets a request wait behind the others of its partition. It is called with the
// queue's mu, and the request is in its load already.
func (d *detour) follow(q *queue, w *waiting, now time.Time) {
	w.bear(now.Add(q.patience))
	d.rest = append(d.rest, w)
	q.behind = q.behind.plus(1, w.bytes)
}

// bear bounds the patience of a request when it meets a lock of somebody else for the
// first time; to meet another does not prolong it.
func (w *waiting) bear(until time.Time) {
	if w.until.IsZero() {
		w.until = until
	}
}

// miss sends the requests of a group that missed a lock, of which nothing was written,
// into detours, in their order, and behind them whatever waits for the same partitions.
// It returns those that there is no room for.
func (q *queue) miss(ws []*waiting, until time.Time) (refused []*waiting) {
	if len(ws) == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range ws {
		if !w.state.CompareAndSwap(stateTaken, stateWaiting) {
			continue // nobody waits for an answer any more
		}
		aside := q.aside.plus(1, w.bytes)
		if q.aside.requests > 0 && aside.exceeds(q.limit) {
			refused = append(refused, w)
			continue
		}
		q.aside = aside
		p := w.request.Partition
		d := q.detours[p]
		if d == nil {
			d = q.divert(p)
		}
		w.bear(until)
		d.first = append(d.first, w)
	}
	now := time.Now()
	kept := q.items[:0]
	for _, w := range q.items {
		if d := q.detours[w.request.Partition]; d != nil {
			d.follow(q, w, now)
			continue
		}
		kept = append(kept, w)
	}
	clear(q.items[len(kept):])
	q.items = kept
	return refused
}

// next prepares the next attempt of a detour: late has lost its patience, and the first
// of the others loses it at until. over: nothing waits any more, and the detour has
// ended.
func (q *queue) next(d *detour, now time.Time) (late []*waiting, until time.Time, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.detours[d.partition] != d {
		return nil, until, true // recalled
	}
	remain := func(ws []*waiting, left func(*waiting)) []*waiting {
		return slices.DeleteFunc(ws, func(w *waiting) bool {
			switch {
			case !w.waits():
			case now.Before(w.until):
				return false
			default:
				late = append(late, w)
			}
			left(w)
			return true
		})
	}
	d.first = remain(d.first, q.back)
	d.rest = remain(d.rest, q.leftBehind)
	if len(d.first) == 0 {
		d.first, d.rest = gather(d.first, d.rest, false, (*waiting).waits, q.leftBehind)
		for _, w := range d.first {
			q.aside = q.aside.plus(1, w.bytes)
		}
	}
	if len(d.first) == 0 {
		delete(q.detours, d.partition)
		q.signal()
		return late, until, true
	}
	return late, slices.MinFunc(d.first, func(a, b *waiting) int { return a.until.Compare(b.until) }).until, false
}

// back takes a request out of what is aside.
func (q *queue) back(w *waiting) { q.aside = q.aside.plus(-1, -w.bytes) }

func (q *queue) leftBehind(w *waiting) {
	q.behind = q.behind.plus(-1, -w.bytes)
	q.left(w)
}

// had gives the first requests of a detour, now that it has the lock, to whoever runs
// them, without those whose callers gave up.
func (q *queue) had(d *detour) []*waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.detours[d.partition] != d {
		return nil // recalled
	}
	d.runs = true
	taken := make([]*waiting, 0, len(d.first))
	for _, w := range d.first {
		q.back(w)
		if w.take() {
			taken = append(taken, w)
		}
	}
	d.first = d.first[:0]
	return taken
}

// end ends a detour whose requests were answered: what came after them is first in the
// queue. Its patience begins anew with the next lock that it misses, for the one before
// was had: where several nodes are busy in one partition, their turns are many.
func (q *queue) end(d *detour) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.detours[d.partition] != d {
		return // recalled
	}
	for _, w := range d.rest {
		w.until = time.Time{}
	}
	q.give(d)
	if len(q.detours) > detourSlots {
		for _, other := range q.detours {
			if !other.runs {
				q.give(other)
				close(other.recalled)
			}
		}
	}
	q.signal()
}

// give puts what waits in a detour before the queue. It is called with mu.
func (q *queue) give(d *detour) {
	for _, w := range d.first {
		q.back(w)
		q.load = q.load.plus(1, w.bytes)
		q.partitions[d.partition] = q.partitions[d.partition].plus(1, w.bytes)
	}
	for _, w := range d.rest {
		q.behind = q.behind.plus(-1, -w.bytes)
	}
	q.items = slices.Concat(d.first, d.rest, q.items)
	d.first, d.rest = nil, nil
	delete(q.detours, d.partition)
	delete(q.suspects, d.partition)
}

// stay gives requests that missed a lock again back to their detour.
func (q *queue) stay(d *detour, ws []*waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d.runs = false
	for _, w := range ws {
		if w.state.CompareAndSwap(stateTaken, stateWaiting) {
			d.first = append(d.first, w)
			q.aside = q.aside.plus(1, w.bytes)
		}
	}
}

// detour runs until its partition is the appender's again or nothing waits for it.
func (a *appender) detour(d *detour) {
	s := a.store
	s.count(1)
	defer s.count(-1)
	var since time.Time // the first attempt that missed the lock; zero: none did
	for {
		late, until, over := a.queue.next(d, time.Now())
		for _, w := range late {
			w.answer <- answer{err: lockedFault(s.config.LockTimeout)}
		}
		if over {
			return
		}
		g := s.slot(until, d.recalled)
		if g == nil {
			continue
		}
		began := time.Now()
		missed := a.pass(g, d, until)
		s.slots <- g
		switch {
		case !missed && since.IsZero():
		case !missed:
			s.db.Log.Info("appends of a legal entity go on", "partition", uint32(d.partition), "after", time.Since(since).String())
		case since.IsZero():
			since = began
			s.db.Log.Warn("appends of a legal entity wait for a lock that another session holds; backbone doctor --section contention names it",
				"partition", uint32(d.partition), "patience", s.config.LockTimeout.String())
		}
		if !missed {
			a.queue.end(d)
			return
		}
	}
}

// count keeps the number of detours that run.
func (s *Engine) count(change int) {
	s.detoursMu.Lock()
	defer s.detoursMu.Unlock()
	s.detours += change
	s.metrics.ObserveDetours(s.detours)
}

// slot waits for the buffers of a group, and with them the right to a connection, until
// a moment or a recall; nil then.
func (s *Engine) slot(until time.Time, recalled <-chan struct{}) *group {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case g := <-s.slots:
		return g
	case <-timer.C:
		return nil
	case <-recalled:
		return nil
	}
}

// turn is how long an attempt of a detour may wait for its head.
func (s *Engine) turn(until time.Time) time.Duration {
	wait := time.Until(until)
	s.detoursMu.Lock()
	n := s.detours
	s.detoursMu.Unlock()
	if n >= detourSlots {
		wait = min(wait, max(detourTurn*detourSlots/time.Duration(n), shortTurn))
	}
	return max(wait, time.Millisecond) // none would be for ever
}

// pass waits for the head of a detour's partition and runs its first requests in the
// same transaction. It reports whether they missed a lock, that one or another.
func (a *appender) pass(g *group, d *detour, until time.Time) (missed bool) {
	if g.store == nil {
		g.init(a.store)
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.store.config.GroupTimeout)
	defer cancel()
	conn, err := g.waitForHead(ctx, d.partition, a.store.turn(until))
	if pg.IsLockTimeout(err) {
		return true
	}
	// Whatever else failed, the group finds out by itself.
	ws := a.queue.had(d)
	if len(ws) == 0 {
		if conn != nil {
			discard(conn)
		}
		return false
	}
	g.begun = conn
	again := g.run(ws, false)
	if len(again) == 0 {
		return false
	}
	a.queue.stay(d, again)
	pause(detourPause)
	return true
}

// waitForHead begins the transaction of a detour: it has the head of its partition when
// it returns. Nothing is pipelined here, so that a lock that was missed costs no
// connection.
func (g *group) waitForHead(ctx context.Context, p event.PartitionID, wait time.Duration) (*pgxpool.Conn, error) {
	conn, err := g.store.appends.Acquire(ctx)
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
		if _, err := g.store.queries.LockPartitionHeads(ctx, conn, []int32{int32(p)}); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, pg.SetLockTimeout, pg.Milliseconds(g.store.brief()))
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

// brief is how long an appender waits for a lock where groups are fast.
func (c Config) brief() time.Duration { return min(pg.ShortLockWait, c.LockTimeout) }

// brief is how long an appender waits for a lock.
func (s *Engine) brief() time.Duration {
	wait := s.config.brief()
	if held := s.pace.fastest(); held > wait {
		wait = min(groupsBefore*held, longestBrief, s.config.LockTimeout)
	}
	return wait
}

// pace is how long the latest groups held their heads. The fastest of them counts: one
// that is slow says nothing about those of other nodes.
type pace struct {
	mu   sync.Mutex
	held [4]time.Duration
	next int
}

func (p *pace) note(held time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[p.next] = held
	p.next = (p.next + 1) % len(p.held)
}

func (p *pace) fastest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Min(p.held[:])
}

// parted tells the requests of partitions whose heads are free just now from those
// that wait for somebody.
func (g *group) parted(ws []*waiting) (free, held []*waiting, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.store.config.GroupTimeout)
	defer cancel()
	conn, err := g.store.appends.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Release()
	ids := make([]int32, len(g.partitions))
	for i, p := range g.partitions {
		ids[i] = int32(p)
	}
	found, err := g.store.queries.ListFreeHeads(ctx, conn, ids)
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

// missed says which requests of a group that missed a lock cannot go on, after it has
// run the others, if it may look for them.
func (g *group) missed(ws []*waiting, look bool) (again []*waiting) {
	if !look || len(g.partitions) < 2 {
		return ws
	}
	free, held, err := g.parted(ws)
	if err != nil {
		g.store.db.Log.Warn("it could not be found out whose lock an append group missed", "error", pg.RedactError(err))
		return ws
	}
	if len(held) == 0 {
		return g.run(ws, false) // the lock was given back, or is another one: that is found out now
	}
	return slices.Concat(held, g.run(free, false))
}

// runHalves runs the requests of the second half after the first, but for those whose
// partition missed a lock meanwhile.
func (g *group) runHalves(ws []*waiting, look bool) (again []*waiting) {
	again = g.run(ws[:len(ws)/2], look)
	if len(again) == 0 {
		return g.run(ws[len(ws)/2:], look)
	}
	again = slices.Clone(again)
	var free []*waiting
	for _, w := range ws[len(ws)/2:] {
		if slices.ContainsFunc(again, func(v *waiting) bool { return v.request.Partition == w.request.Partition }) {
			again = append(again, w)
		} else {
			free = append(free, w)
		}
	}
	if len(free) == 0 {
		return again
	}
	return slices.Concat(again, g.run(free, look))
}

// lockedFault is the answer when patience has ended. Nothing was written.
func lockedFault(patience time.Duration) *fault.Error {
	return fault.New(fault.Unavailable, pg.CodeUnavailable,
		"another session of the database has held a lock that this legal entity's appends need for %s; try again, and end that session if it stays (backbone doctor --section contention names it)",
		patience.Round(time.Millisecond)).WithRetryAfter(pg.RetryAfter)
}
