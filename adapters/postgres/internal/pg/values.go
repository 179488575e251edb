package pg

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/domain/event"
)

// UUID converts an event id for a uuid parameter.
func UUID(id event.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// PageSize turns a limit of 0, which reads to the end, into a number for LIMIT.
func PageSize(limit int) int32 {
	if limit <= 0 || limit > math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(limit)
}

// TimeOrZero converts a nullable timestamp to UTC; NULL is the zero time.
func TimeOrZero(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// OptionalTime converts a time for a parameter; the zero time is NULL.
func OptionalTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// OptionalDate converts a date for a parameter; nil is NULL.
func OptionalDate(d *event.Date) pgtype.Date {
	if d == nil {
		return pgtype.Date{}
	}
	return pgtype.Date{Time: d.Time(), Valid: true}
}

// OptionalText converts a text for a parameter; "" is NULL.
func OptionalText(s string) pgtype.Text { return pgtype.Text{String: s, Valid: s != ""} }

// Date converts a date for a parameter.
func Date(d event.Date) pgtype.Date { return pgtype.Date{Time: d.Time(), Valid: true} }

// Map converts every element of a list.
func Map[A, B any](in []A, convert func(*A) B) []B {
	out := make([]B, len(in))
	for i := range in {
		out[i] = convert(&in[i])
	}
	return out
}

// MapRows converts the rows of a query that returned err.
func MapRows[A, B any](ctx context.Context, rows []A, err error, convert func(*A) B) ([]B, error) {
	if err != nil {
		return nil, Translate(ctx, err)
	}
	return Map(rows, convert), nil
}

// UUIDs converts ids.
func UUIDs(ids []event.ID) []pgtype.UUID {
	return Map(ids, func(id *event.ID) pgtype.UUID { return UUID(*id) })
}

// Partitions converts numbers of partitions.
func Partitions(partitions []event.PartitionID) []int32 {
	return Map(partitions, func(p *event.PartitionID) int32 { return int32(*p) })
}

// Sequences converts sequences.
func Sequences(sequences []event.Sequence) []int64 {
	return Map(sequences, func(n *event.Sequence) int64 { return int64(*n) })
}
