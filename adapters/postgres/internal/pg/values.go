package pg

import (
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
