package eventlog

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
)

// Events that lie scattered are fetched in parts at the same time, and their payloads
// beside them: each is a page of its own to find, and the disk finds several as fast
// as one.
const (
	fetchPart       = 250
	fetchParallel   = 4
	fetchSerially   = 32 // so few are not worth a second connection
	largeEventsPage = 8  // large ones are fetched so many at a time
)

// readAheadPages is how many pages the system is told to read before they are needed.
const readAheadPages = 32

// scattered runs statements whose rows lie scattered: under ReadScattered, in one
// round trip and one transaction with it.
type scattered struct {
	pool    *pgxpool.Pool
	queries *eventlogdb.Queries
	limit   atomic.Int64 // of the server, plus one; 0: it was not asked yet
}

var _ eventlogdb.DBTX = (*scattered)(nil)

// readAhead is readAheadPages, or less if the server does not allow it.
func (s *scattered) readAhead(ctx context.Context) (int32, error) {
	limit := s.limit.Load()
	if limit == 0 {
		n, err := s.queries.GetReadAheadLimit(ctx, s.pool)
		if err != nil {
			return 0, err
		}
		limit = int64(n) + 1
		s.limit.Store(limit)
	}
	return int32(min(limit-1, readAheadPages)), nil
}

// Query implements eventlogdb.DBTX.
func (s *scattered) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ahead, err := s.readAhead(ctx)
	if err != nil {
		return nil, err
	}
	var b pgx.Batch
	b.Queue(eventlogdb.ReadScattered, ahead)
	b.Queue(sql, args...)
	results := s.pool.SendBatch(ctx, &b)
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // the same error again
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // the same error again
		return nil, err
	}
	return &scatteredRows{Rows: rows, results: results}, nil
}

// Exec implements eventlogdb.DBTX. Nothing is written scattered.
func (s *scattered) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return s.pool.Exec(ctx, sql, args...)
}

// QueryRow implements eventlogdb.DBTX. One row is not scattered.
func (s *scattered) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return s.pool.QueryRow(ctx, sql, args...)
}

// scatteredRows give the connection back when they are closed.
type scatteredRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
}

// Next implements pgx.Rows.
func (r *scatteredRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close implements pgx.Rows.
func (r *scatteredRows) Close() {
	r.Rows.Close()
	if err := r.results.Close(); r.err == nil {
		r.err = err
	}
}

// Err implements pgx.Rows.
func (r *scatteredRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// fetchTarget is an event that is to be fetched, and its place in the answer.
type fetchTarget struct {
	sequence int64
	index    int
}

// fetch is what is fetched of the events of one partition.
type fetch struct {
	store       *Reader
	partition   event.PartitionID
	correlation string        // of all the events between the first and the last; "": they have nothing in common
	targets     []fetchTarget // by sequence
	events      []event.Recorded
	payloads    []eventlogdb.ListPayloadsBySequenceRow // empty: they are not asked for
	bound       *byteLimit                             // of the payloads; nil: none
}

// BySequence fetches events in the given order.
func (s *Reader) BySequence(ctx context.Context, p event.PartitionID, sequences []int64, withPayload bool) ([]event.Recorded, error) {
	return s.fetch(ctx, p, "", sequences, withPayload, nil)
}

// fetch is bySequence for events of a correlation, if one is given: the sequences are
// then all that it has between the first and the last of them. It fails when the payloads
// go beyond their bound, if there is one.
func (s *Reader) fetch(ctx context.Context, p event.PartitionID, correlation string, sequences []int64, withPayload bool, b *byteLimit) ([]event.Recorded, error) {
	f := &fetch{
		store: s, partition: p, correlation: correlation, bound: b, targets: make([]fetchTarget, len(sequences)), events: make([]event.Recorded, len(sequences)),
	}
	for i, n := range sequences {
		f.targets[i] = fetchTarget{n, i}
	}
	slices.SortFunc(f.targets, func(a, b fetchTarget) int { return cmp.Compare(a.sequence, b.sequence) })
	if withPayload {
		f.payloads = make([]eventlogdb.ListPayloadsBySequenceRow, len(sequences))
	}
	var parts []func(context.Context) error
	for part := range slices.Chunk(f.targets, fetchPart) {
		parts = append(parts, func(ctx context.Context) error { return f.readEvents(ctx, part) })
		if withPayload {
			parts = append(parts, func(ctx context.Context) error { return f.readPayloads(ctx, part) })
		}
	}
	together := fetchParallel
	if len(sequences) <= fetchSerially {
		together = 1
	}
	if err := runParts(ctx, parts, together); err != nil {
		return nil, pg.Translate(ctx, err)
	}
	for i := range f.payloads {
		copy(f.events[i].Salt[:], f.payloads[i].Salt)
		f.events[i].Payload = f.payloads[i].Payload
	}
	return slices.DeleteFunc(f.events, func(e event.Recorded) bool { return e.Sequence == 0 }), nil
}

// runParts runs parts, so many at the same time, and gives the first error.
func runParts(ctx context.Context, parts []func(context.Context) error, together int) error {
	if together = min(together, len(parts)); together <= 1 {
		for _, run := range parts {
			if err := run(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range together {
		running.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(parts); i = next.Add(1) - 1 {
				if err := parts[i](ctx); err != nil {
					cancel(err) // the first one's stays, not that of those who are cancelled by it
					return
				}
			}
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// targetsOf are where a sequence is wanted; more than one if it was asked for twice.
func targetsOf(part []fetchTarget, sequence int64) []fetchTarget {
	from, _ := slices.BinarySearchFunc(part, sequence, func(w fetchTarget, n int64) int { return cmp.Compare(w.sequence, n) })
	to := from
	for to < len(part) && part[to].sequence == sequence {
		to++
	}
	return part[from:to]
}

func sequencesOf(part []fetchTarget) []int64 {
	out := make([]int64, len(part))
	for i, w := range part {
		out[i] = w.sequence
	}
	return out
}

func (f *fetch) readEvents(ctx context.Context, part []fetchTarget) error {
	var rows pgx.Rows
	var err error
	if f.correlation != "" {
		rows, err = f.store.scattered.Query(ctx, eventlogdb.ListEventsOfCorrelation, int32(f.partition), f.correlation, part[0].sequence, part[len(part)-1].sequence)
	} else {
		rows, err = f.store.scattered.Query(ctx, eventlogdb.ListEventsBySequence, int32(f.partition), sequencesOf(part))
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	return eachEvent(rows, func(row *eventlogdb.BackboneEvent) error {
		for _, w := range targetsOf(part, row.Sequence) {
			if err := decode(row, nil, nil, &f.events[w.index]); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachEvent reads whole rows of events, one in the place of the other: they are large,
// and a list of them that grows would be most of what a fetch allocates.
func eachEvent(rows pgx.Rows, do func(*eventlogdb.BackboneEvent) error) error {
	var e eventlogdb.BackboneEvent
	// The fields have the order of the table, and so have the columns of e.*.
	fields := reflect.ValueOf(&e).Elem()
	columns := make([]any, fields.NumField())
	for i := range columns {
		columns[i] = fields.Field(i).Addr().Interface()
	}
	for rows.Next() {
		e = eventlogdb.BackboneEvent{} // what the row before was read into belongs to its event
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		if err := do(&e); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (f *fetch) readPayloads(ctx context.Context, part []fetchTarget) error {
	s := f.store
	rows, err := s.queries.ListPayloadsBySequence(ctx, f.bound.limitRows(s.scattered), &eventlogdb.ListPayloadsBySequenceParams{PartitionID: int32(f.partition), Sequences: sequencesOf(part)})
	if err != nil {
		return err
	}
	for i := range rows {
		for _, w := range targetsOf(part, rows[i].Sequence) {
			f.payloads[w.index] = rows[i]
		}
	}
	return nil
}

// fetchWithin is fetch up to a number of bytes of payloads: it ends before the event that
// exceeds it, but never before the first, and tells so. 0 bytes are no bound. Nearly all
// pages fit, so they are fetched whole, and given up when they turn out not to. Such a
// partition is remembered: of its pages a few events are fetched at a time.
func (s *Reader) fetchWithin(ctx context.Context, p event.PartitionID, correlation string, sequences []int64, withPayload bool, bytes int) (events []event.Recorded, cut bool, err error) {
	if bytes <= 0 || !withPayload || len(sequences) <= 1 {
		events, err = s.fetch(ctx, p, correlation, sequences, withPayload, nil)
		return events, false, err
	}
	if _, large := s.large.Load(p); !large {
		b := &byteLimit{}
		b.left.Store(int64(bytes))
		if events, err = s.fetch(ctx, p, correlation, sequences, true, b); b.left.Load() >= 0 {
			return events, false, err
		}
		s.large.Store(p, nil)
	}
	events = []event.Recorded{}
	for some := range slices.Chunk(sequences, largeEventsPage) {
		part, err := s.fetch(ctx, p, correlation, some, true, nil)
		if err != nil {
			return nil, false, err
		}
		for i := range part {
			if bytes -= len(part[i].Payload); bytes < 0 && len(events) > 0 {
				return events, true, nil
			}
			events = append(events, part[i])
		}
	}
	if len(sequences) > largeEventsPage {
		s.large.Delete(p) // all of the page fitted
	}
	return events, false, nil
}

// byteLimit ends the rows of all parts of a fetch once their last columns, the payloads,
// exceed what is left of a number of bytes together.
type byteLimit struct{ left atomic.Int64 }

var errByteLimit = errors.New("the payloads are larger than their bound")

// limitRows is a connection whose rows count.
func (b *byteLimit) limitRows(db eventlogdb.DBTX) eventlogdb.DBTX {
	if b == nil {
		return db
	}
	return &limitedDB{db, b}
}

type limitedDB struct {
	eventlogdb.DBTX
	bound *byteLimit
}

// Query implements eventlogdb.DBTX.
func (d *limitedDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := d.DBTX.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return &limitedRows{Rows: rows, bound: d.bound}, nil
}

type limitedRows struct {
	pgx.Rows
	bound *byteLimit
	err   error
}

// Next implements pgx.Rows.
func (r *limitedRows) Next() bool {
	if r.err != nil || !r.Rows.Next() {
		return false
	}
	values := r.RawValues()
	if r.bound.left.Add(-int64(len(values[len(values)-1]))) < 0 {
		r.err = errByteLimit
		r.Close()
		return false
	}
	return true
}

// Err implements pgx.Rows.
func (r *limitedRows) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.Rows.Err()
}
