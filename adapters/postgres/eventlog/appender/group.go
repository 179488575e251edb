package appender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/keystore"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// group holds the requests' decisions and rows of the transaction that is being run, and its
// buffers, which the next one uses again. Each appender has one, and each slot.
type group struct {
	engine          *Engine
	facts           *facts
	overlay         overlay
	heads           map[event.PartitionID]*head
	partitions      []event.PartitionID // ascending, the order in which their head rows are locked
	partitionIDs    *pg.Column
	events          []event.Prepared // of the accepted requests, in order; while a request is decided, its own at the end
	verdicts        []verdict
	businessClaims  []businessClaim // of the request being decided
	numbers         []seriesNumber  // drawn by the request being decided
	tracksEntities  bool            // a request of the group has entity expectations, so accept keeps the overlay's entities
	scratch         []byte          // buffer of ChainChecksum
	decidedAt       time.Time
	batchedLookups  []anyLookup
	writer          *writer
	lease           externalLease
	openTransaction *pgxpool.Conn // its transaction, which holds the head lock, is continued by runOnce; nil: runOnce begins one
	keyStoreFault   *fault.Error  // why no subject key can be leased; nil: they can be
}

func (g *group) init(s *Engine) {
	g.engine = s
	g.facts = newFacts(s.leases != nil)
	g.lease.pool = s.leases
	g.overlay = newOverlay()
	g.heads = map[event.PartitionID]*head{}
	g.partitionIDs = pg.NewColumn(pgtype.Int4OID)
	g.writer = newWriter()
}

// beginAppend names the isolation level, whatever the database's default: statements after
// the lock must see what was committed before the lock was acquired.
const beginAppend = "begin isolation level read committed"

// transactionOutcome says how a transaction ended.
type transactionOutcome int

const (
	committed      transactionOutcome = iota // also when no request had rows to write, and the transaction was rolled back
	rolledBack                               // nothing was written; err says why
	outcomeUnknown                           // the connection was lost at commit
	unavailable                              // nothing was written; the database could not be reached
)

// Bounds of retries: of a group, and of the search for a commit whose answer was lost. Each pause
// is twice as long as the one before.
const (
	maxReruns    = 4
	rerunPause   = 20 * time.Millisecond
	resolveTries = 5
	resolvePause = 200 * time.Millisecond
)

// runOnce runs the group in one transaction and resolves an unknown outcome. A lease in another
// database lives until the outcome is known.
func (g *group) runOnce(ws []*queuedRequest, keyStoreFault *fault.Error) (transactionOutcome, error) {
	g.keyStoreFault = keyStoreFault
	defer g.lease.release()
	end, err := g.transact(ws)
	if end == outcomeUnknown {
		g.engine.db.Log.Warn("connection lost at commit; looking for the outcome", "requests", len(ws), "error", pg.RedactError(err))
		end, err = g.resolveOutcome(ws)
	}
	return end, err
}

// run commits the group, in more than one transaction if it has to, and answers its callers. It
// returns requests that must wait for a lock of another session, unanswered and unwritten, so
// that the caller can retry them without blocking other partitions. With probeLocks, after a lock
// timeout run asks PostgreSQL which head rows are free, commits the requests of those and returns
// the other requests; without, it returns all.
func (g *group) run(ws []*queuedRequest, probeLocks bool) (unanswered []*queuedRequest) {
	var keyStoreFault *fault.Error
	for rerun := 0; ; rerun++ {
		started := time.Now()
		end, err := g.runOnce(ws, keyStoreFault)
		switch {
		case errors.Is(err, errNoKeyStore) && keyStoreFault == nil:
			g.engine.db.Log.Error("the key store's schema is missing; personal values are refused", "error", pg.RedactError(err))
			keyStoreFault = keystore.Missing(err)
			continue
		case errors.Is(err, errLeaseLost) && rerun >= maxReruns:
			keyStoreFault = keystore.Unavailable(err) // requests without personal values are still committed
			continue
		case end == committed:
			g.engine.metrics.ObserveGroup(len(ws), len(g.events), time.Since(started))
			g.answerAll(ws)
			return nil
		case end == outcomeUnknown:
			g.engine.db.Log.Error("the outcome of an append group is not known", "requests", len(ws), "error", pg.RedactError(err))
			// The refused requests too: the row that refused one may be of this very group.
			for _, w := range ws {
				w.answer <- answer{err: outcomeUnknownFault(w.request)}
			}
			return nil
		case pg.IsLockTimeout(err):
			return g.handleLockTimeout(ws, probeLocks)
		case rerun < maxReruns && (end == unavailable || mayPass(err)):
			time.Sleep(rerunPause << rerun)
			continue
		case end == unavailable:
			g.engine.db.Log.Error("append group refused: the database cannot be reached", "requests", len(ws), "error", pg.RedactError(err))
			g.refuseAll(ws, pg.UnavailableFault(err))
			return nil
		case isFault(err): // it holds for every request, such as a clock that is off
			f, _ := fault.As(err)
			g.refuseAll(ws, f)
			return nil
		case len(ws) > 1:
			// Nearly always the store refuses a value of one request. Halving the group finds
			// which one and commits the other requests. Other errors of the store that reruns did not
			// end, such as deadlocks, take this way too.
			g.engine.db.Log.Warn("append group refused by the store; halving it", "requests", len(ws), "error", pg.RedactError(err))
			return g.runHalves(ws, probeLocks)
		case mayPass(err):
			g.engine.db.Log.Error("append refused: the store ended every run of its transaction", "error", pg.RedactError(err))
			g.refuseAll(ws, pg.UnavailableFault(err))
			return nil
		default:
			g.refuseAll(ws, g.rejected(err))
			return nil
		}
	}
}

// mayPass reports whether a group that was rolled back may be committed by another run: a
// deadlock, a serialization failure, a commit that got lost or was rolled back, a lost lease.
func mayPass(err error) bool {
	return pg.IsSerializationFailure(err) || errors.Is(err, errCommitNotFound) || errors.Is(err, errCommitRolledBack) || errors.Is(err, errLeaseLost)
}

// rejected is the fault of a request that failed when it was alone in its group.
func (g *group) rejected(err error) *fault.Error {
	cause := pg.RedactError(err)
	detail := "the store refused a value of this request; correct it before sending it again"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == pg.SQLStateUnique {
		detail = "the store holds a row of this request already; send the request with new ids"
		// decide checked everything else that is unique under the head lock.
		g.engine.db.Log.Error("unique violation under the head lock: a used event id, or a session that writes without the lock", "error", cause)
	} else {
		g.engine.db.Log.Error("append rejected by the store", "error", cause)
	}
	f := fault.New(fault.Internal, codeRejected, "%s", detail).WithCause(cause)
	if s, ok := errors.AsType[*pg.StatementError](cause); ok {
		if strings.HasPrefix(s.Constraint, "event_rows_") { // of backbone.write_event_rows
			return errRowsDiffer().With("constraint", s.Constraint).WithCause(cause)
		}
		f = f.With("sqlstate", s.SQLState)
		if s.Constraint != "" {
			f = f.With("constraint", s.Constraint)
		}
	}
	return f
}

// transact locks, reads, decides, writes and commits, on the connection of openTransaction or on
// another one of the pool. openLease only connects to the key store, before the group locks heads
// (a stalled partition's are locked already); takeLease locks the keys, after the heads.
func (g *group) transact(ws []*queuedRequest) (transactionOutcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.engine.limits.GroupTimeout)
	defer cancel()
	conn, isOpen := g.openTransaction, g.openTransaction != nil
	g.openTransaction = nil
	if !isOpen {
		var err error
		if conn, err = g.engine.pool.Acquire(ctx); err != nil {
			return unavailable, err
		}
	}
	g.openLease(ctx, ws)
	end, err := g.transactOn(ctx, conn, isOpen, ws)
	if end != committed {
		discard(conn)
	} else {
		conn.Release()
	}
	return end, err
}

// discard closes the connection, because after a failure inside a pipeline the state of its
// protocol is unknown. The server rolls back.
func discard(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), pg.CloseTimeout)
	defer cancel()
	_ = conn.Conn().Close(ctx) // an error changes nothing: the pool drops the connection either way
	conn.Release()
}

func (g *group) transactOn(ctx context.Context, conn *pgxpool.Conn, isOpen bool, ws []*queuedRequest) (transactionOutcome, error) {
	if err := g.lockHeadsAndRead(ctx, conn, isOpen, ws); err != nil {
		return beforeCommit(err), err
	}
	locked := time.Now()
	g.takeLease(ctx)
	g.decidedAt = g.engine.db.Now() // and recorded_at, unless the last event's is later; in the store's microseconds
	for {
		g.decideAll(ws, g.decidedAt)
		if !g.facts.pending() {
			g.wantHolders(ws)
		}
		if !g.facts.pending() {
			break
		}
		if err := g.readPending(ctx, conn); err != nil {
			return beforeCommit(err), err
		}
	}
	for i := range g.verdicts {
		g.nameHolder(ws[i].request.Partition, &g.verdicts[i])
	}
	if !slices.ContainsFunc(g.verdicts, func(v verdict) bool { return v.writes }) {
		if _, err := conn.Exec(ctx, "rollback"); err != nil {
			return beforeCommit(err), err
		}
		return committed, nil
	}
	end, err := g.write(ctx, conn, ws)
	if end == committed {
		g.engine.holdTimes.record(time.Since(locked))
	}
	return end, err
}

func beforeCommit(err error) transactionOutcome {
	if !isFault(err) && !errors.Is(err, errLeaseLost) && pg.IsUnavailable(err) {
		return unavailable
	}
	return rolledBack
}

func isFault(err error) bool { _, ok := fault.As(err); return ok }

// lockHeadsAndRead is the first round trip. If the log's database should hold the key store and
// lacks its schema, the error is errNoKeyStore, whichever statement of the batch failed for it.
func (g *group) lockHeadsAndRead(ctx context.Context, conn *pgxpool.Conn, isOpen bool, ws []*queuedRequest) error {
	err := g.sendLockAndReads(ctx, conn, isOpen, ws)
	if err != nil && g.lease.pool == nil && g.keyStoreFault == nil && keystore.LacksKeyStore(err) && anySealed(ws) {
		return fmt.Errorf("%w: %w", errNoKeyStore, err)
	}
	return err
}

func (g *group) sendLockAndReads(ctx context.Context, conn *pgxpool.Conn, isOpen bool, ws []*queuedRequest) error {
	g.facts.reset()
	g.partitions = g.partitions[:0]
	for _, w := range ws {
		g.partitions = append(g.partitions, w.request.Partition)
	}
	slices.Sort(g.partitions)
	g.partitions = slices.Compact(g.partitions)
	g.partitionIDs.Reset()
	for _, p := range g.partitions {
		g.partitionIDs.Int4(int32(p))
	}
	g.wantAll(ws)

	var batch pgx.Batch
	if !isOpen {
		batch.Queue(beginAppend)
		if wait := g.engine.lockWait(); wait != g.engine.shortLockWait() { // shortLockWait is the session's setting
			batch.Queue(pg.SetLockTimeout, pg.Milliseconds(wait))
		}
	}
	openingStatements := batch.Len()
	batch.Queue(appenderdb.LockPartitionHeads, g.partitionIDs)
	batch.Queue(appenderdb.ListLastEvents, g.partitionIDs)
	g.batchedLookups = queuePending(&batch, g.facts.logLookups, g.batchedLookups[:0])
	before := g.engine.db.Clock.Now()
	results := conn.SendBatch(ctx, &batch)
	defer results.Close()
	for range openingStatements {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if err := g.readHeads(results); err != nil {
		return err
	}
	databaseTime, err := g.readLastEvents(results)
	if err != nil {
		return err
	}
	for _, l := range g.batchedLookups {
		if err := l.read(results); err != nil {
			return err
		}
	}
	if err := results.Close(); err != nil {
		return err
	}
	return g.checkClock(before, databaseTime, g.engine.db.Clock.Now())
}

func (g *group) readHeads(results pgx.BatchResults) error {
	clear(g.heads)
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int32
		var genesis []byte
		if err := rows.Scan(&id, &genesis); err != nil {
			return err
		}
		h := &head{}
		copy(h.genesis[:], genesis)
		h.stored = ports.Head{Genesis: h.genesis, Checksum: h.genesis}
		g.heads[event.PartitionID(id)] = h
	}
	return rows.Err()
}

func (g *group) readLastEvents(results pgx.BatchResults) (databaseTime time.Time, err error) {
	rows, err := results.Query()
	if err != nil {
		return databaseTime, err
	}
	defer rows.Close()
	for rows.Next() {
		var r appenderdb.ListLastEventsRow
		if err := rows.Scan(&r.PartitionID, &r.Sequence, &r.RecordedAt, &r.Checksum, &r.DatabaseTime); err != nil {
			return databaseTime, err
		}
		databaseTime = r.DatabaseTime
		if h, ok := g.heads[event.PartitionID(r.PartitionID)]; ok && r.Sequence > 0 {
			h.stored.Sequence = event.Sequence(r.Sequence)
			h.stored.RecordedAt = r.RecordedAt.UTC()
			copy(h.stored.Checksum[:], r.Checksum)
		}
	}
	return databaseTime, rows.Err()
}

// checkClock refuses to stamp events when this node's clock differs from the database's by
// more than MaxClockSkew. The node read its clock before and after it asked the database. With a
// negative MaxClockSkew the clock is injected, and not compared.
func (g *group) checkClock(before, database, after time.Time) error {
	limit := g.engine.limits.MaxClockSkew
	if limit < 0 || !database.Before(before.Add(-limit)) && !database.After(after.Add(limit)) {
		return nil
	}
	skew := before.Sub(database)
	g.engine.db.Log.Error("this node's clock is off; appends are refused", "skew", skew.String(), "limit", limit.String())
	return fault.New(fault.Unavailable, codeClockSkew,
		"this node's clock is %s off the database's; use another node until its clock is set", skew.Round(time.Millisecond)).WithRetryAfter(5 * time.Second)
}

// readPending reads the rows whose keys became known while the group was decided.
func (g *group) readPending(ctx context.Context, conn *pgxpool.Conn) error {
	if slices.ContainsFunc(g.facts.keyStoreLookups, isPending) {
		if err := g.lease.read(ctx, g.facts); err != nil {
			return fmt.Errorf("%w: %w", errLeaseLost, pg.RedactError(err))
		}
	}
	var batch pgx.Batch
	if g.batchedLookups = queuePending(&batch, g.facts.logLookups, g.batchedLookups[:0]); len(g.batchedLookups) == 0 {
		return nil
	}
	results := conn.SendBatch(ctx, &batch)
	defer results.Close()
	for _, l := range g.batchedLookups {
		if err := l.read(results); err != nil {
			return err
		}
	}
	return results.Close()
}

// wantHolders wants the ids of the stored events because of which requests are refused. The ids
// of the group's own events are known.
func (g *group) wantHolders(ws []*queuedRequest) {
	for i := range g.verdicts {
		v := &g.verdicts[i]
		if v.holder != 0 && v.holder <= v.partitionHead.stored.Sequence {
			g.facts.ids.want(sequenceKey{ws[i].request.Partition, v.holder})
		}
	}
}

// answerAll answers from the verdicts after the commit, and marks the partitions that grew for the
// notifier.
func (g *group) answerAll(ws []*queuedRequest) {
	for i, w := range ws {
		v := &g.verdicts[i]
		switch {
		case v.err != nil:
			w.answer <- answer{err: v.err}
		case v.replay != nil:
			w.answer <- answer{result: ports.AppendResult{Events: []ports.AppendedEvent{}, Head: v.headSequence, Replayed: true, Outcome: *v.replay}}
		default:
			w.answer <- answer{result: g.result(v)}
		}
	}
	for p, h := range g.heads {
		if h.current.Sequence > h.stored.Sequence {
			g.engine.notifier.markGrown(p, h.current.Sequence)
		}
	}
	clear(g.events) // so that the callers' payloads can be freed
}

func (g *group) refuseAll(ws []*queuedRequest, err *fault.Error) {
	for _, w := range ws {
		w.answer <- answer{err: err}
	}
}

// nameHolder names in the fault the event because of which the request is refused.
func (g *group) nameHolder(p event.PartitionID, v *verdict) {
	if v.holder == 0 {
		return
	}
	id := g.facts.ids.rows[sequenceKey{p, v.holder}]
	for i := range g.events {
		if g.events[i].Partition == p && g.events[i].Sequence == v.holder {
			id = g.events[i].ID
		}
	}
	v.err = v.err.WithHolder(fault.Holder{EventID: id.String(), Sequence: decimal(v.holder)})
}

func (g *group) result(v *verdict) ports.AppendResult {
	receipts := make([]ports.AppendedEvent, v.count)
	for i := range receipts {
		e := &g.events[v.first+i]
		receipts[i] = ports.AppendedEvent{
			ID: e.ID, Type: e.Type, Sequence: e.Sequence, Stream: e.Stream,
			StreamVersion: e.StreamVersion, RecordedAt: e.RecordedAt, Checksum: e.Checksum,
		}
	}
	return ports.AppendResult{Events: receipts, Head: v.headSequence, Outcome: v.outcome}
}
