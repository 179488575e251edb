package postgres

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
)

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
		b := &bound{}
		b.left.Store(int64(bytes))
		if events, err = s.fetch(ctx, p, correlation, sequences, true, b); b.left.Load() >= 0 {
			return events, false, err
		}
		s.large.Store(p, nil)
	}
	events = []event.Recorded{}
	for some := range slices.Chunk(sequences, fetchLarge) {
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
	if len(sequences) > fetchLarge {
		s.large.Delete(p) // all of the page fitted
	}
	return events, false, nil
}

// bound ends the rows of all parts of a fetch once their last columns, the payloads,
// exceed what is left of a number of bytes together.
type bound struct{ left atomic.Int64 }

var errBeyondBound = errors.New("the payloads are larger than their bound")

// on is a connection whose rows count.
func (b *bound) on(db backbonedb.DBTX) backbonedb.DBTX {
	if b == nil {
		return db
	}
	return &boundDB{db, b}
}

type boundDB struct {
	backbonedb.DBTX
	bound *bound
}

// Query implements backbonedb.DBTX.
func (d *boundDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := d.DBTX.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return &boundRows{Rows: rows, bound: d.bound}, nil
}

type boundRows struct {
	pgx.Rows
	bound *bound
	err   error
}

// Next implements pgx.Rows.
func (r *boundRows) Next() bool {
	if r.err != nil || !r.Rows.Next() {
		return false
	}
	values := r.RawValues()
	if r.bound.left.Add(-int64(len(values[len(values)-1]))) < 0 {
		r.err = errBeyondBound
		r.Close()
		return false
	}
	return true
}

// Err implements pgx.Rows.
func (r *boundRows) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.Rows.Err()
}
