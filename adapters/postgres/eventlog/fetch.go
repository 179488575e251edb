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

// A fetch of events that are scattered over the table is divided into parts, for events and
// for payloads, that run in parallel: nearly every row is on another page, and a disk reads
// several pages as fast as one.
const (
	fetchPart       = 250 // events of one part
	fetchParallel   = 4   // parts at the same time
	fetchSerially   = 32  // events; so few do not justify a second connection
	largeEventsPage = 8   // events of one part in partitions with large events
)

// readAheadPages is how many pages PostgreSQL asks the operating system to read ahead.
const readAheadPages = 32

// scattered runs statements whose rows are scattered over a table. It sends ReadScattered,
// which sets the read-ahead, in the same round trip and transaction.
type scattered struct {
	pool    *pgxpool.Pool
	queries *eventlogdb.Queries
	limit   atomic.Int64 // read-ahead that the server allows, plus one; 0: not read yet
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
		_ = results.Close() // reports the same error
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // reports the same error
		return nil, err
	}
	return &scatteredRows{Rows: rows, results: results}, nil
}

// Exec implements eventlogdb.DBTX, without read-ahead.
func (s *scattered) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return s.pool.Exec(ctx, sql, args...)
}

// QueryRow implements eventlogdb.DBTX, without read-ahead.
func (s *scattered) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return s.pool.QueryRow(ctx, sql, args...)
}

// scatteredRows releases the connection when it is closed.
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

// fetchTarget is an event to fetch and its index in the result.
type fetchTarget struct {
	sequence int64
	index    int
}

// fetch reads events of one partition and their payloads.
type fetch struct {
	store       *Reader
	partition   event.PartitionID
	correlation string        // whose events between the first and the last target are the targets; "": the targets are listed
	targets     []fetchTarget // by sequence
	events      []event.Recorded
	payloads    []eventlogdb.ListPayloadsBySequenceRow // empty: not fetched
	bound       *byteLimit                             // of the payloads; nil: none
}

// BySequence fetches events in the order of sequences and leaves out those that do not exist.
func (s *Reader) BySequence(ctx context.Context, p event.PartitionID, sequences []int64, withPayload bool) ([]event.Recorded, error) {
	events, _, err := s.fetchWithin(ctx, p, "", sequences, withPayload, 0)
	return events, err
}

// fetch is BySequence with two options. With a correlation, the sequences must be all that the
// correlation has between the first and the last of them. With a byteLimit it fails if the
// payloads exceed the limit.
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
		var err error
		if f.events[i].Redactions, err = DecodeRedactions(f.payloads[i].Redactions); err != nil {
			return nil, UndecodableFault(f.events[i].ID)
		}
	}
	return slices.DeleteFunc(f.events, func(e event.Recorded) bool { return e.Sequence == 0 }), nil
}

// runParts runs parts, at most together of them at the same time, and returns the first error.
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
					cancel(err) // keeps the first cause, not the errors of the parts that it cancels
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

// targetsOf finds the targets with a sequence: several if the caller listed it twice.
func targetsOf(part []fetchTarget, sequence int64) []fetchTarget {
	from, _ := slices.BinarySearchFunc(part, sequence, func(w fetchTarget, n int64) int { return cmp.Compare(w.sequence, n) })
	to := from
	for to < len(part) && part[to].sequence == sequence {
		to++
	}
	return part[from:to]
}

func sequencesOf(part []fetchTarget) []int64 {
	return pg.Map(part, func(w *fetchTarget) int64 { return w.sequence })
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
			if err := (payloadRow{event: row}).decode(&f.events[w.index]); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachEvent calls do for each row, and scans all rows into one struct: rows are large, and a
// growing slice of them would be most of the memory that a fetch allocates.
func eachEvent(rows pgx.Rows, do func(*eventlogdb.BackboneEvent) error) error {
	var e eventlogdb.BackboneEvent
	// The fields have the order of the table, and so have the columns of e.*.
	fields := reflect.ValueOf(&e).Elem()
	columns := make([]any, fields.NumField())
	for i := range columns {
		columns[i] = fields.Field(i).Addr().Interface()
	}
	for rows.Next() {
		e = eventlogdb.BackboneEvent{} // slices of the previous row belong to its event now
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
// exceeds them, but never before the first, and cut reports so. 0 bytes are no bound. Nearly
// all pages fit, so it first fetches the whole page and gives up when the payloads exceed the
// bytes. From then on it fetches the pages of that partition in parts of largeEventsPage
// events.
func (s *Reader) fetchWithin(ctx context.Context, p event.PartitionID, correlation string, sequences []int64, withPayload bool, bytes int) (events []event.Recorded, cut bool, err error) {
	events, cut, err = s.fetchStored(ctx, p, correlation, sequences, withPayload, bytes)
	if err != nil || !withPayload {
		return events, cut, err
	}
	events, cutLater, err := s.FillArchived(ctx, s.db.Reads, events, bytes, Every)
	return events, cut || cutLater, err
}

// fetchStored is fetchWithin without payloads of the archive.
func (s *Reader) fetchStored(ctx context.Context, p event.PartitionID, correlation string, sequences []int64, withPayload bool, bytes int) (events []event.Recorded, cut bool, err error) {
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
		s.large.Delete(p) // its events are no longer so large that the bytes cut a page
	}
	return events, false, nil
}

// byteLimit bounds the payloads of all parts of a fetch together. Rows of a connection that
// limitRows wraps end with an error once their last columns, the payloads, exceed left.
type byteLimit struct{ left atomic.Int64 }

var errByteLimit = errors.New("the payloads exceed their byte limit")

// limitRows wraps a connection whose rows count against the limit; without one, for nil, it
// returns db.
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
